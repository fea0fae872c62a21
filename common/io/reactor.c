// SPDX-License-Identifier: MIT
#include "common/io/reactor.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/io/reactor_int.h"

#define US 1000ull
#define MS 1000000ull
#define SEC 1000000000ull

/* How often control sockets are looked at while the data path is busy. */
#define EV_EVERY_NS (100 * US)
#define EV_HOT_NS MS
/* A yield that takes so long means that others need the processor more than we need to spin. */
#define YIELD_MAX_NS (200 * US)
#define PENALTY_MIN_NS (5 * MS)
#define PENALTY_MAX_NS (640 * MS)
#define FREE_WAIT_NS (2 * SEC)

/* ------------------------------------------------------------ the port */

static uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * SEC + (uint64_t)t.tv_nsec;
}

static uint64_t port_now_ns(struct ash_port *port)
{
	return clock_ns();
}

static uint64_t port_rand64(struct ash_port *port)
{
	return ash_prng_next(&ash_container_of(port, struct ash_reactor, port)->rng);
}

static void port_trace(struct ash_port *port, int level, const char *line)
{
	ash_log(level, "%s", line);
}

static void port_post(struct ash_port *port, struct ash_task *task)
{
	struct ash_reactor *r = ash_container_of(port, struct ash_reactor, port);

	task->next = NULL;
	*r->posted_end = task;
	r->posted_end = &task->next;
}

/* ------------------------------------------------------------ tasks */

static unsigned run_posted(struct ash_reactor *r)
{
	struct ash_task *task = r->posted, *next;
	unsigned n = 0;

	/* What these post runs in the next turn. */
	r->posted = NULL;
	r->posted_end = &r->posted;
	for (; task; task = next, n++) {
		next = task->next;
		task->fn(task);
	}
	return n;
}

static unsigned run_remote(struct ash_reactor *r)
{
	struct ash_task *task, *next, *first = NULL;
	unsigned n = 0;

	if (!__atomic_load_n(&r->remote, __ATOMIC_RELAXED))
		return 0;
	task = __atomic_exchange_n(&r->remote, NULL, __ATOMIC_ACQUIRE);
	for (; task; task = next) {
		next = task->next;
		task->next = first;
		first = task;
	}
	for (; first; first = next, n++) {
		next = first->next;
		first->fn(first);
	}
	return n;
}

void ash_reactor_send(struct ash_reactor *r, struct ash_task *task)
{
	task->next = __atomic_load_n(&r->remote, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&r->remote, &task->next, task, true, __ATOMIC_SEQ_CST,
					    __ATOMIC_RELAXED))
		;
	ev_async_send(r->loop, &r->wake); /* costs a call only if the loop sleeps */
}

void ash_reactor_stop(struct ash_reactor *r)
{
	__atomic_store_n(&r->stop, true, __ATOMIC_SEQ_CST);
	ev_async_send(r->loop, &r->wake);
}

static bool stopped(struct ash_reactor *r)
{
	return __atomic_load_n(&r->stop, __ATOMIC_ACQUIRE);
}

/* ------------------------------------------------------------ libev */

static void on_ring_event(struct ev_loop *loop, ev_io *io, int events)
{
	struct ash_reactor *r = ev_userdata(loop);
	uint64_t count;

	r->ev_own++; /* the ring is looked at anyway */
	if (read(r->ring_event_fd, &count, sizeof(count)) < 0)
		return; /* read before */
}

static void on_wake(struct ev_loop *loop, ev_async *async, int events)
{
	((struct ash_reactor *)ev_userdata(loop))->ev_own++; /* so are the tasks */
}

static void on_timer_fd(struct ev_loop *loop, ev_io *io, int events)
{
	struct ash_reactor *r = ev_userdata(loop);
	uint64_t count;

	r->ev_own++;
	if (read(r->timer_fd, &count, sizeof(count)) > 0)
		r->armed_ns = 0;
}

static void on_pending(struct ev_loop *loop)
{
	struct ash_reactor *r = ev_userdata(loop);

	/* After a sleep the turn's clock is old, and these may be the core's. */
	r->port.turn_ns = clock_ns();
	r->ev_user += ev_pending_count(loop);
	ev_invoke_pending(loop);
}

/* Returns how many events of others there were. */
static unsigned run_ev(struct ash_reactor *r, int how)
{
	r->ev_own = r->ev_user = 0;
	ev_run(r->loop, how);
	r->ev_last_ns = clock_ns();
	if (r->ev_user <= r->ev_own)
		return 0;
	r->ev_hot_until_ns = r->ev_last_ns + EV_HOT_NS;
	return r->ev_user - r->ev_own;
}

/* ------------------------------------------------------------ sleeping */

static uint64_t next_deadline(const struct ash_reactor *r)
{
	uint64_t a = ash_timers_next(r->port.timers), b = ash_timers_next(&r->own);

	return a < b ? a : b;
}

/* libev's own timers count in milliseconds; ours need better. An alarm that is set too early costs
 * one empty turn, so it is only moved when it would be too late. */
static void arm_timer_fd(struct ash_reactor *r)
{
	uint64_t at = next_deadline(r);
	struct itimerspec spec = {0};

	if (at == ASH_TIME_NEVER || (r->armed_ns && r->armed_ns <= at))
		return;
	spec.it_value.tv_sec = (time_t)(at / SEC);
	spec.it_value.tv_nsec = (long)(at % SEC);
	if (at == 0)
		spec.it_value.tv_nsec = 1;
	timerfd_settime(r->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
	r->armed_ns = at ? at : 1;
}

static bool has_work(struct ash_reactor *r)
{
	return ring_has_work(r) || r->posted || __atomic_load_n(&r->remote, __ATOMIC_ACQUIRE) ||
	       net_has_work(r) || disk_has_work(r) || io_uring_sq_ready(&r->ring) > 0 || stopped(r);
}

static void contended(struct ash_reactor *r, uint64_t now)
{
	bool again = now < r->no_spin_until_ns + 2 * PENALTY_MAX_NS;

	r->penalty_ns = again ? r->penalty_ns * 2 : PENALTY_MIN_NS;
	if (r->penalty_ns > PENALTY_MAX_NS)
		r->penalty_ns = PENALTY_MAX_NS;
	if (r->penalty_ns < PENALTY_MIN_NS)
		r->penalty_ns = PENALTY_MIN_NS;
	r->no_spin_until_ns = now + r->penalty_ns;
}

/* Waits a little without sleeping. True: something is there. */
static bool spin(struct ash_reactor *r)
{
	uint64_t now = clock_ns(), end = r->active_ns + r->spin_ns, deadline = next_deadline(r);
	uint64_t before;

	if (!r->spin_ns || now >= end || now < r->no_spin_until_ns)
		return false;
	r->stats.spins++;
	while (now < end) {
		if (has_work(r) || now >= deadline)
			return true;
		if (now < r->ev_hot_until_ns && run_ev(r, EVRUN_NOWAIT))
			return true;
		before = clock_ns();
		sched_yield();
		now = clock_ns();
		if (now - before > YIELD_MAX_NS) {
			contended(r, now);
			return has_work(r);
		}
	}
	return has_work(r);
}

/* ------------------------------------------------------------ turns */

/* Returns how much was done. */
static unsigned turn(struct ash_reactor *r)
{
	uint64_t now = clock_ns(), spent;
	unsigned did = 0;

	r->port.turn_ns = now;
	__atomic_store_n(&r->stats.last_turn_ns, now, __ATOMIC_RELAXED);
	r->stats.turns++;
	if (now < r->ev_hot_until_ns || now - r->ev_last_ns > EV_EVERY_NS)
		did += run_ev(r, EVRUN_NOWAIT);
	did += ring_reap(r);
	did += disk_reap(r);
	did += net_resume(r);
	did += net_reap_ended(r);
	did += run_posted(r);
	did += run_remote(r);
	did += ash_timers_run(&r->own, now);
	did += ash_timers_run(r->port.timers, now);
	if (r->on_turn)
		r->on_turn(r->on_turn_arg);
	disk_flush(r);
	net_flush(r);
	ring_submit(r);
	disk_run_inline(r);
	spent = clock_ns() - now;
	if (spent > r->stats.worst_turn_ns)
		r->stats.worst_turn_ns = spent;
	if (did)
		r->active_ns = now + spent;
	return did;
}

static void sleep_until_something(struct ash_reactor *r)
{
	r->stats.sleeps++;
	arm_timer_fd(r);
	ring_alarm(r, true);
	/* What came before the alarm was on rings no bell. */
	if (!has_work(r) && run_ev(r, EVRUN_ONCE))
		r->active_ns = r->ev_last_ns;
	ring_alarm(r, false);
}

void ash_reactor_run(struct ash_reactor *r)
{
	ring_enable(r);
	while (!stopped(r))
		if (!turn(r) && !has_work(r) && !spin(r))
			sleep_until_something(r);
	__atomic_store_n(&r->stop, false, __ATOMIC_SEQ_CST);
	if (r->ring_fd_registered)
		io_uring_unregister_ring_fd(&r->ring);
	r->ring_fd_registered = false;
}

/* ------------------------------------------------------------ life */

static void seed(struct ash_reactor *r)
{
	do {
		if (getrandom(r->rng.s, sizeof(r->rng.s), 0) != (ssize_t)sizeof(r->rng.s))
			ash_prng_seed(&r->rng, clock_ns() ^ (uint64_t)getpid() << 32);
	} while (!(r->rng.s[0] | r->rng.s[1] | r->rng.s[2] | r->rng.s[3]));
}

static bool make_loop(struct ash_reactor *r)
{
	r->loop = ev_loop_new(EVFLAG_NOENV);
	if (!r->loop)
		return false;
	ev_set_userdata(r->loop, r);
	ev_set_invoke_pending_cb(r->loop, on_pending);
	ev_async_init(&r->wake, on_wake);
	ev_async_start(r->loop, &r->wake);
	ev_io_init(&r->ring_io, on_ring_event, r->ring_event_fd, EV_READ);
	ev_io_start(r->loop, &r->ring_io);
	ev_io_init(&r->timer_io, on_timer_fd, r->timer_fd, EV_READ);
	ev_io_start(r->loop, &r->timer_io);
	return true;
}

static void init_port(struct ash_reactor *r)
{
	ash_timers_init(&r->timers);
	ash_timers_init(&r->own);
	r->port = (struct ash_port){
		.timers = &r->timers,
		.turn_ns = clock_ns(),
		.bufs = r->port.bufs,
		.net = &r->net.n,
		.shell = r,
		.now_ns = port_now_ns,
		.rand64 = port_rand64,
		.trace = port_trace,
		.post = port_post,
	};
	r->posted_end = &r->posted;
	seed(r);
}

struct ash_reactor *ash_reactor_new(const struct ash_reactor_opts *opts, struct ash_error *ret_err)
{
	struct ash_reactor *r = calloc(1, sizeof(*r));

	if (!r) {
		*ret_err = ash_error_make(ASH_E_INTERNAL, "no memory for a reactor");
		return NULL;
	}
	r->timer_fd = r->ring_event_fd = -1;
	r->spin_ns = opts->spin_us * (uint32_t)US;
	r->port.bufs = ash_bufs_new(opts->buffer_bytes ? opts->buffer_bytes : 64u << 20);
	init_port(r);
	disk_init(r);
	if (net_init(r, opts->messages ? opts->messages : 8192) || !r->port.bufs) {
		*ret_err = ash_error_make(ASH_E_CAPACITY, "no memory for the reactor's buffers; "
							  "give it less buffer memory");
		goto fail;
	}
	if (ring_init(r, opts->ring_entries ? opts->ring_entries : 1024, ret_err))
		goto fail;
	r->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
	if (r->timer_fd < 0 || !make_loop(r)) {
		*ret_err = ash_error_make(ASH_E_INTERNAL, "cannot create an event loop: %s",
					  strerror(errno));
		goto fail;
	}
	return r;
fail:
	ash_reactor_free(r);
	return NULL;
}

/* The kernel may still write into buffers: nothing is freed before it has let go of them. */
static bool let_go(struct ash_reactor *r)
{
	uint64_t until = clock_ns() + FREE_WAIT_NS;

	if (!r->ring_on || r->runner != gettid())
		return r->inflight == 0 || !r->ring_on;
	while (r->inflight > 0 && clock_ns() < until) {
		turn(r);
		if (!has_work(r)) {
			ev_sleep(0.001);
		}
	}
	return r->inflight == 0;
}

void ash_reactor_free(struct ash_reactor *r)
{
	bool clean;

	if (!r)
		return;
	r->on_turn = NULL;
	net_done(r);
	clean = let_go(r);
	net_reap_ended(r);
	disk_forget_all(r);
	if (r->loop) {
		ev_async_stop(r->loop, &r->wake);
		ev_io_stop(r->loop, &r->ring_io);
		ev_io_stop(r->loop, &r->timer_io);
		ev_loop_destroy(r->loop);
	}
	ring_done(r);
	if (r->timer_fd >= 0)
		close(r->timer_fd);
	ash_timers_done(&r->own);
	ash_timers_done(&r->timers);
	if (!clean) {
		ash_log(ASH_LOG_ERROR, "event=reactor_leaked operations=%llu",
			(unsigned long long)r->inflight);
		return;
	}
	free(r->msgs);
	ash_bufs_free(r->port.bufs);
	free(r);
}

struct ash_port *ash_reactor_port(struct ash_reactor *r)
{
	return &r->port;
}

struct ev_loop *ash_reactor_loop(struct ash_reactor *r)
{
	return r->loop;
}

void ash_reactor_on_turn(struct ash_reactor *r, void (*fn)(void *arg), void *arg)
{
	r->on_turn = fn;
	r->on_turn_arg = arg;
}

void ash_reactor_stats(struct ash_reactor *r, struct ash_reactor_stats *ret_stats)
{
	*ret_stats = r->stats;
	r->stats.worst_turn_ns = 0;
}
