// SPDX-License-Identifier: MIT
/* The io_uring of a reactor. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/io/reactor_int.h"

#define REAP_MAX 512

static int ring_try(struct ash_reactor *r, uint32_t entries, unsigned flags)
{
	struct io_uring_params p = {.flags = flags | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP |
					     IORING_SETUP_R_DISABLED,
				    .cq_entries = entries * 4};

	return io_uring_queue_init_params(entries, &r->ring, &p);
}

static struct ash_error explain(int err)
{
	if (err == -EPERM)
		return ash_error_make(ASH_E_STATE,
				      "io_uring is forbidden here; set kernel.io_uring_disabled=0, "
				      "and allow io_uring in the container's seccomp profile");
	if (err == -ENOSYS)
		return ash_error_make(ASH_E_UNSUPPORTED,
				      "this kernel has no io_uring; Linux 5.19 or newer is needed");
	if (err == -ENOMEM)
		return ash_error_make(ASH_E_CAPACITY,
				      "no memory for io_uring; raise the limit of locked memory "
				      "(ulimit -l, or LimitMEMLOCK= of the unit)");
	return ash_error_make(ASH_E_INTERNAL, "cannot set up io_uring: %s", strerror(-err));
}

static void register_files(struct ash_reactor *r)
{
	struct rlimit lim = {0};
	unsigned n = RING_FILES;

	/* The kernel allows no more of them than descriptors. */
	if (getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < n)
		n = (unsigned)lim.rlim_cur & ~63u;
	if (n == 0 || io_uring_register_files_sparse(&r->ring, n))
		return;
	r->fixed_files = true;
	for (unsigned i = n; i < RING_FILES; i++)
		r->file_used[i / 64] |= 1ull << (i % 64);
}

/* Spares the kernel pinning pages at each disk operation; needs locked memory. */
static void register_buffers(struct ash_reactor *r)
{
	void *base;
	size_t bytes;
	int err;

	while (r->slabs < SLABS_MAX && ash_bufs_slab(r->port.bufs, r->slabs, &base, &bytes))
		r->slab[r->slabs++] = (struct iovec){base, bytes};
	err = io_uring_register_buffers(&r->ring, r->slab, r->slabs);
	r->fixed_bufs = err == 0;
	if (err)
		ash_log(ASH_LOG_INFO, "event=buffers_not_registered why=\"%s\"", strerror(-err));
}

int ring_init(struct ash_reactor *r, uint32_t entries, struct ash_error *ret_err)
{
	/* Not IORING_SETUP_DEFER_TASKRUN: then what arrives reaches a sleeper through the eventfd
	 * alone, and the kernel (6.18) may put that signal off by 10 to 30 ms. With cooperative
	 * task work the kernel wakes the thread itself. */
	static const unsigned wanted[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
		IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
		0,
	};
	int err = -EINVAL;

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		err = ring_try(r, entries, wanted[i]);
		if (err != -EINVAL)
			break;
	}
	if (err) {
		*ret_err = explain(err);
		return err;
	}
	r->ring_made = true;
	/* The ring's own descriptor is no alarm clock: what arrives does not always wake those who
	 * poll it. */
	r->ring_event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	err = r->ring_event_fd < 0 ? -errno : io_uring_register_eventfd(&r->ring, r->ring_event_fd);
	if (err) {
		*ret_err = explain(err);
		return err;
	}
	ring_alarm(r, false);
	register_files(r);
	register_buffers(r);
	return 0;
}

void ring_alarm(struct ash_reactor *r, bool on)
{
	/* Fails only where the ring lacks the flag's place, and then the alarm is always on. */
	(void)io_uring_cq_eventfd_toggle(&r->ring, on);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Only now does a thread own the ring: the one that runs the reactor. */
void ring_enable(struct ash_reactor *r)
{
	int err;

	if (!r->ring_on) {
		/* The shared liburing 2.3 forgot to export its wrapper of this. */
		err = io_uring_register((unsigned)r->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS,
					NULL, 0);
		if (err) {
			ash_log(ASH_LOG_ERROR, "event=io_uring_enable_failed why=\"%s\"",
				strerror(-err));
			abort();
		}
		r->ring_on = true;
		r->runner = gettid();
	}
	r->ring_fd_registered = io_uring_register_ring_fd(&r->ring) == 1;
}

void ring_done(struct ash_reactor *r)
{
	if (r->ring_made)
		io_uring_queue_exit(&r->ring);
	if (r->ring_event_fd >= 0)
		close(r->ring_event_fd);
	r->ring_made = false;
}

static void submit_failed(int err)
{
	if (err == -EAGAIN || err == -EBUSY || err == -EINTR || err == -ENOMEM)
		return; /* what was not taken stays queued for the next turn */
	ash_log(ASH_LOG_ERROR, "event=io_uring_enter_failed why=\"%s\"", strerror(-err));
	abort();
}

struct io_uring_sqe *ring_sqe(struct ash_reactor *r)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);
	int n;

	if (!sqe) {
		n = io_uring_submit(&r->ring);
		if (n < 0)
			submit_failed(n);
		sqe = io_uring_get_sqe(&r->ring);
	}
	if (sqe) {
		r->inflight++;
		r->stats.sqes++;
	}
	return sqe;
}

void ring_submit(struct ash_reactor *r)
{
	int n;

	if (io_uring_sq_ready(&r->ring) == 0)
		return;
	n = io_uring_submit_and_get_events(&r->ring);
	if (n < 0)
		submit_failed(n);
}

static bool events_wait(struct ash_reactor *r)
{
	return IO_URING_READ_ONCE(*r->ring.sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW);
}

bool ring_has_work(struct ash_reactor *r)
{
	return io_uring_cq_ready(&r->ring) || events_wait(r);
}

static void complete(uint64_t data, int res, unsigned flags)
{
	void *p = (void *)(uintptr_t)(data & ~(uint64_t)RING_TAG_MASK);

	switch ((enum ring_tag)(data & RING_TAG_MASK)) {
	case RING_DISK:
		disk_on_complete(p, res);
		break;
	case RING_RECV:
		net_on_recv(p, res, flags);
		break;
	case RING_SEND:
		net_on_send(p, res);
		break;
	case RING_CONNECT:
		net_on_connect(p, res);
		break;
	default:
		break;
	}
}

unsigned ring_reap(struct ash_reactor *r)
{
	struct io_uring_cqe *cqe[64];
	unsigned n, total = 0;

	/* Posting them needs a call when the kernel defers it to us. */
	if (events_wait(r)) {
		int err = io_uring_get_events(&r->ring);

		if (err < 0)
			submit_failed(err);
	}
	while (total < REAP_MAX && (n = io_uring_peek_batch_cqe(&r->ring, cqe, 64)) > 0) {
		for (unsigned i = 0; i < n; i++)
			complete(cqe[i]->user_data, cqe[i]->res, cqe[i]->flags);
		io_uring_cq_advance(&r->ring, n);
		assert(r->inflight >= n);
		r->inflight -= n;
		total += n;
	}
	r->stats.completions += total;
	return total;
}

int ring_file_add(struct ash_reactor *r, int fd)
{
	for (unsigned w = 0; r->fixed_files && w < RING_FILES / 64; w++) {
		unsigned bit, slot;

		if (r->file_used[w] == ~0ull)
			continue;
		bit = (unsigned)__builtin_ctzll(~r->file_used[w]);
		slot = w * 64 + bit;
		if (io_uring_register_files_update(&r->ring, slot, &fd, 1) != 1)
			return -1;
		r->file_used[w] |= 1ull << bit;
		return (int)slot;
	}
	return -1;
}

void ring_file_remove(struct ash_reactor *r, int slot)
{
	int none = -1;

	if (slot < 0)
		return;
	if (io_uring_register_files_update(&r->ring, (unsigned)slot, &none, 1) == 1)
		r->file_used[slot / 64] &= ~(1ull << (slot % 64));
}
