// SPDX-License-Identifier: MIT
/*
 * The NBD server over memory: judged by libnbd, and by clients that die, lie, do not read, and
 * talk nonsense.
 */
#include <errno.h>
#include <ev.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>
#include <libnbd.h>

#include "common/base/list.h"
#include "common/base/prng.h"
#include "sdc/nbd/nbd_proto.h"
#include "sdc/nbd/server.h"

#define SIZE (64u << 20)

/* ------------------------------------------------------------ memory behind it */

struct pending {
	struct pending *next;
	struct sdc_io *io;
	uint64_t offset, bytes;
	void (*status_done)(void *arg, int status, const struct sdc_extent *ext, unsigned n);
	void *arg;
};

static struct world {
	struct ev_loop *loop;
	struct nbd_server *srv;
	struct nbd_export exp[3];
	ev_timer tick;
	ev_prepare prepare;
	ev_async command;
	void (*fn)(void *arg);
	void *arg;
	sem_t done;
	pthread_t thread;
	struct ash_prng rng;
	struct pending *pending;
	unsigned count;
	bool hold; /* nothing is completed */
	int fail_with;
	uint8_t *mem, *written; /* per block */
	uint64_t flushes, fua;
	bool stopped;
} w;

static int perform(struct sdc_io *io)
{
	if (w.fail_with)
		return w.fail_with;
	w.fua += io->fua;
	switch (io->kind) {
	case SDC_READ:
		memcpy(io->iov->iov_base, w.mem + io->offset, io->bytes);
		break;
	case SDC_WRITE:
		memcpy(w.mem + io->offset, io->iov->iov_base, io->bytes);
		memset(w.written + io->offset / 4096, 1,
		       (io->offset + io->bytes + 4095) / 4096 - io->offset / 4096);
		break;
	case SDC_FLUSH:
		w.flushes++;
		break;
	default:
		memset(w.mem + io->offset, 0, io->bytes);
		for (uint64_t b = (io->offset + 4095) / 4096;
		     b < (io->offset + io->bytes) / 4096 && !io->no_unmap; b++)
			w.written[b] = 0;
	}
	return 0;
}

static void report_status(struct pending *p)
{
	static struct sdc_extent ext[SIZE / 4096];
	unsigned n = 0;

	for (uint64_t at = p->offset; at < p->offset + p->bytes;) {
		uint64_t to = (at / 4096 + 1) * 4096;

		to = to < p->offset + p->bytes ? to : p->offset + p->bytes;
		if (n && ext[n - 1].data == w.written[at / 4096])
			ext[n - 1].bytes += to - at;
		else
			ext[n++] = (struct sdc_extent){to - at, w.written[at / 4096]};
		at = to;
	}
	p->status_done(p->arg, 0, ext, n);
}

static void complete_some(bool all)
{
	struct pending **at = &w.pending, *p, *now = NULL;

	while ((p = *at)) {
		if (!all && ash_prng_below(&w.rng, 3) == 0) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		p->next = now;
		now = p;
	}
	while ((p = now)) {
		now = p->next;
		w.count--;
		if (p->io)
			p->io->done(p->io, perform(p->io));
		else
			report_status(p);
		free(p);
	}
}

static void mem_submit(void *backend, struct sdc_io *io)
{
	struct pending *p = calloc(1, sizeof(*p));

	p->io = io;
	p->next = w.pending;
	w.pending = p;
	w.count++;
}

static void
mem_status(void *backend, uint64_t offset, uint64_t bytes,
	   void (*done)(void *arg, int status, const struct sdc_extent *ext, unsigned n), void *arg)
{
	struct pending *p = calloc(1, sizeof(*p));

	*p = (struct pending){w.pending, NULL, offset, bytes, done, arg};
	w.pending = p;
	w.count++;
}

static const struct nbd_backend_ops ops = {mem_submit, mem_status};

/* ------------------------------------------------------------ the server's thread */

static void on_tick(struct ev_loop *loop, ev_timer *t, int revents)
{
	if (!__atomic_load_n(&w.hold, __ATOMIC_ACQUIRE))
		complete_some(false);
}

static void on_prepare(struct ev_loop *loop, ev_prepare *p, int revents)
{
	nbd_server_flush(w.srv);
}

static void on_command(struct ev_loop *loop, ev_async *a, int revents)
{
	void (*fn)(void *arg) = __atomic_exchange_n(&w.fn, NULL, __ATOMIC_ACQ_REL);

	if (fn)
		fn(w.arg);
	sem_post(&w.done);
}

static void *thread_main(void *arg)
{
	ev_run(w.loop, 0);
	return NULL;
}

/* Runs fn on the server's thread and waits. */
static void on_server(void (*fn)(void *arg), void *arg)
{
	w.arg = arg;
	/* libev is not built for the thread sanitizer: this orders what came before for it. */
	__atomic_store_n(&w.fn, fn, __ATOMIC_RELEASE);
	ev_async_send(w.loop, &w.command);
	sem_wait(&w.done);
}

static int setup(void **state)
{
	memset(&w, 0, sizeof(w));
	ash_prng_seed(&w.rng, 7);
	w.loop = ev_loop_new(0);
	w.mem = calloc(1, SIZE);
	w.written = calloc(1, SIZE / 4096);
	w.srv = nbd_server_new(w.loop);
	for (int i = 0; i < 3; i++) {
		w.exp[i] = (struct nbd_export){.size_bytes = SIZE, .ops = &ops};
		snprintf(w.exp[i].name, 64, "v%d", i + 1);
		nbd_server_add(w.srv, &w.exp[i]);
	}
	w.exp[2].read_only = true;
	snprintf(w.exp[0].description, 128, "the first");
	ev_timer_init(&w.tick, on_tick, 0.0002, 0.0002);
	ev_timer_start(w.loop, &w.tick);
	ev_prepare_init(&w.prepare, on_prepare);
	ev_prepare_start(w.loop, &w.prepare);
	ev_async_init(&w.command, on_command);
	ev_async_start(w.loop, &w.command);
	sem_init(&w.done, 0, 0);
	return pthread_create(&w.thread, NULL, thread_main, NULL);
}

static void was_stopped(void *arg)
{
	ev_break(w.loop, EVBREAK_ALL);
}

static void do_stop(void *arg)
{
	nbd_server_stop(w.srv, was_stopped, NULL);
}

static void get_stats(void *arg)
{
	nbd_server_stats(w.srv, arg);
}

static int teardown(void **state)
{
	__atomic_store_n(&w.hold, false, __ATOMIC_RELEASE);
	if (!w.stopped)
		on_server(do_stop, NULL);
	pthread_join(w.thread, NULL);
	assert_int_equal(w.count, 0);
	nbd_server_free(w.srv);
	ev_loop_destroy(w.loop);
	sem_destroy(&w.done);
	free(w.mem);
	free(w.written);
	return 0;
}

static void do_accept(void *arg)
{
	nbd_server_accept(w.srv, *(int *)arg);
}

static int raw_client(void)
{
	int fd[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
	on_server(do_accept, &fd[1]);
	return fd[0];
}

static struct nbd_handle *client(const char *name, bool structured)
{
	struct nbd_handle *h = nbd_create();

	nbd_set_export_name(h, name);
	nbd_set_request_structured_replies(h, structured);
	if (structured)
		nbd_add_meta_context(h, LIBNBD_CONTEXT_BASE_ALLOCATION);
	nbd_set_strict_mode(h, 0);
	if (nbd_connect_socket(h, raw_client()))
		fail_msg("%s", nbd_get_error());
	return h;
}

/* Waits until no connection is left. */
static struct nbd_server_stats settled(unsigned open)
{
	struct nbd_server_stats s;

	do {
		on_server(get_stats, &s);
	} while (s.open != open || (!open && s.in_flight));
	return s;
}

/* ------------------------------------------------------------ libnbd */

static void test_export_is_described(void **state)
{
	struct nbd_handle *h = client("v1", true);

	assert_int_equal(nbd_get_size(h), SIZE);
	assert_int_equal(nbd_can_flush(h), 1);
	assert_int_equal(nbd_can_fua(h), 1);
	assert_int_equal(nbd_can_trim(h), 1);
	assert_int_equal(nbd_can_zero(h), 1);
	assert_int_equal(nbd_can_fast_zero(h), 1);
	assert_int_equal(nbd_can_multi_conn(h), 1);
	assert_int_equal(nbd_can_df(h), 1);
	assert_int_equal(nbd_is_read_only(h), 0);
	assert_int_equal(nbd_can_meta_context(h, LIBNBD_CONTEXT_BASE_ALLOCATION), 1);
	assert_int_equal(nbd_get_block_size(h, LIBNBD_SIZE_MINIMUM), 512);
	assert_int_equal(nbd_get_block_size(h, LIBNBD_SIZE_PREFERRED), 4096);
	assert_int_equal(nbd_get_block_size(h, LIBNBD_SIZE_MAXIMUM), 32 << 20);
	nbd_close(h);
	h = client("", false);
	assert_int_equal(nbd_get_size(h), SIZE);
	assert_int_equal(nbd_can_meta_context(h, LIBNBD_CONTEXT_BASE_ALLOCATION), 0);
	nbd_close(h);
	h = client("v3", true);
	assert_int_equal(nbd_is_read_only(h), 1);
	nbd_close(h);
}

static int on_export(void *arg, const char *name, const char *description)
{
	size_t n = strlen(arg);

	snprintf((char *)arg + n, 64 - n, "%s,", name);
	return 0;
}

static void test_exports_are_listed_and_unknown_ones_refused(void **state)
{
	struct nbd_handle *h = nbd_create();
	char names[64] = "", *text;

	nbd_set_opt_mode(h, true);
	assert_int_equal(nbd_connect_socket(h, raw_client()), 0);
	assert_int_equal(
		nbd_opt_list(h, (nbd_list_callback){.callback = on_export, .user_data = names}), 3);
	assert_string_equal(names, "v1,v2,v3,");
	nbd_set_export_name(h, "nosuch");
	assert_int_equal(nbd_opt_info(h), -1);
	nbd_set_export_name(h, "v1");
	nbd_set_full_info(h, true);
	assert_int_equal(nbd_opt_info(h), 0);
	text = nbd_get_export_description(h);
	assert_string_equal(text, "the first");
	free(text);
	nbd_set_export_name(h, "v2");
	assert_int_equal(nbd_opt_go(h), 0);
	nbd_close(h);
}

static void random_fill(uint8_t *p, size_t n, uint64_t seed)
{
	struct ash_prng r;

	ash_prng_seed(&r, seed);
	for (size_t i = 0; i < n; i += 8) {
		uint64_t v = ash_prng_next(&r);

		memcpy(p + i, &v, 8);
	}
}

static void test_data_goes_both_ways(void **state)
{
	uint8_t *a = malloc(32 << 20), *b = malloc(32 << 20);

	random_fill(a, 32 << 20, 1);
	for (int structured = 0; structured < 2; structured++) {
		static const uint32_t sizes[] = {512, 4096, 65536 + 512, 1 << 20, 32 << 20};
		struct nbd_handle *h = client("v1", structured);

		for (size_t i = 0; i < 5; i++) {
			assert_int_equal(nbd_pwrite(h, a, sizes[i], 512 * i, 0), 0);
			memset(b, 0, sizes[i]);
			assert_int_equal(nbd_pread(h, b, sizes[i], 512 * i, 0), 0);
			assert_memory_equal(a, b, sizes[i]);
		}
		w.fua = 0;
		assert_int_equal(nbd_pwrite(h, a, 512, 0, LIBNBD_CMD_FLAG_FUA), 0);
		assert_int_equal(w.fua, 1);
		assert_int_equal(nbd_flush(h, 0), 0);
		assert_int_equal(nbd_trim(h, 4096, 0, 0), 0);
		assert_int_equal(nbd_zero(h, 4096, 4096,
					  LIBNBD_CMD_FLAG_NO_HOLE | LIBNBD_CMD_FLAG_FAST_ZERO),
				 0);
		assert_int_equal(nbd_pread(h, b, 8192, 0, structured ? LIBNBD_CMD_FLAG_DF : 0), 0);
		for (int i = 0; i < 8192; i++)
			assert_int_equal(b[i], 0);
		assert_int_equal(nbd_shutdown(h, 0), 0);
		nbd_close(h);
	}
	assert_int_equal(w.flushes, 2);
	free(a);
	free(b);
}

struct extents {
	unsigned n;
	uint32_t e[64];
};
static int on_extent(void *arg, const char *context, uint64_t offset, uint32_t *e, size_t n,
		     int *error)
{
	struct extents *x = arg;

	for (size_t i = 0; i < n && x->n < 64; i++)
		x->e[x->n++] = e[i];
	return 0;
}

static void test_block_status_tells_holes(void **state)
{
	struct nbd_handle *h = client("v1", true);
	struct extents x = {0};
	nbd_extent_callback cb = {.callback = on_extent, .user_data = &x};
	uint8_t a[8192] = {1};

	assert_int_equal(nbd_pwrite(h, a, 8192, 1 << 20, 0), 0);
	assert_int_equal(nbd_block_status(h, SIZE, 0, cb, 0), 0);
	assert_int_equal(x.n, 6);
	assert_int_equal(x.e[0], 1 << 20);
	assert_int_equal(x.e[1], LIBNBD_STATE_HOLE | LIBNBD_STATE_ZERO);
	assert_int_equal(x.e[2], 8192);
	assert_int_equal(x.e[3], 0);
	assert_int_equal(x.e[4], SIZE - (1 << 20) - 8192);
	x.n = 0;
	assert_int_equal(nbd_block_status(h, SIZE, 0, cb, LIBNBD_CMD_FLAG_REQ_ONE), 0);
	assert_int_equal(x.n, 2);
	nbd_close(h);
}

#define assert_fails(call, with)                                                                   \
	do {                                                                                       \
		assert_int_equal(call, -1);                                                        \
		assert_int_equal(nbd_get_errno(), with);                                           \
	} while (0)

static void test_errors_have_their_numbers(void **state)
{
	static uint8_t a[1 << 20];

	for (int structured = 0; structured < 2; structured++) {
		struct nbd_handle *h = client("v1", structured), *ro = client("v3", structured);

		assert_fails(nbd_pread(h, a, 512, SIZE, 0), EINVAL);
		assert_fails(nbd_pread(h, a, 1024, SIZE - 512, 0), EINVAL);
		assert_fails(nbd_pread(h, a, 100, 0, 0), EINVAL);
		assert_fails(nbd_pwrite(h, a, 512, 100, 0), EINVAL);
		assert_fails(nbd_pwrite(h, a, 1024, SIZE - 512, 0), ENOSPC);
		assert_fails(nbd_pwrite(ro, a, 512, 0, 0), EPERM);
		assert_fails(nbd_trim(ro, 512, 0, 0), EPERM);
		w.fail_with = -EROFS;
		assert_fails(nbd_pwrite(h, a, 512, 0, 0), EPERM);
		w.fail_with = -ENOSPC;
		assert_fails(nbd_pwrite(h, a, 512, 0, 0), ENOSPC);
		w.fail_with = -ESHUTDOWN;
		assert_fails(nbd_flush(h, 0), ESHUTDOWN);
		w.fail_with = -EIO;
		assert_fails(nbd_pread(h, a, 1 << 20, 0, 0), EIO);
		w.fail_with = 0;
		/* None of that has hurt the connection. */
		assert_int_equal(nbd_pread(h, a, 512, 0, 0), 0);
		assert_int_equal(nbd_pread(ro, a, 512, 0, 0), 0);
		nbd_close(h);
		nbd_close(ro);
	}
}

#define QD 64
static void test_many_in_flight_end_in_any_order(void **state)
{
	struct nbd_handle *h = client("v1", true);
	struct {
		int64_t cookie;
		bool write;
		uint8_t data[128 << 10];
	} *op = calloc(QD, sizeof(*op));
	struct ash_prng r;
	unsigned done = 0;

	ash_prng_seed(&r, 3);
	for (unsigned begun = 0; done < 4000;) {
		for (unsigned i = 0; i < QD; i++) {
			uint64_t off = (uint64_t)i << 20, n = 512 * (1 + ash_prng_below(&r, 255));

			if (!op[i].cookie && begun < 4000) {
				begun++;
				op[i].write = !op[i].write;
				if (op[i].write) {
					random_fill(op[i].data, sizeof(op[i].data), begun);
					op[i].cookie = nbd_aio_pwrite(h, op[i].data, n, off,
								      NBD_NULL_COMPLETION, 0);
				} else {
					memset(op[i].data, 0, sizeof(op[i].data));
					op[i].cookie = nbd_aio_pread(h, op[i].data, n, off,
								     NBD_NULL_COMPLETION, 0);
				}
				assert_true(op[i].cookie > 0);
				/* Remembered in the first word for the check below. */
			}
			if (op[i].cookie && nbd_aio_command_completed(h, op[i].cookie) == 1) {
				if (!op[i].write)
					assert_memory_equal(op[i].data, w.mem + off, 512);
				op[i].cookie = 0;
				done++;
			}
		}
		assert_true(nbd_poll(h, 100) >= 0);
	}
	free(op);
	nbd_close(h);
}

/* ------------------------------------------------------------ clients that misbehave */

static void put(int fd, const void *data, size_t n)
{
	const uint8_t *p = data;

	while (n) {
		ssize_t k = send(fd, p, n, MSG_NOSIGNAL);

		if (k <= 0)
			return; /* the server had enough */
		p += k;
		n -= (size_t)k;
	}
}

static void get(int fd, void *data, size_t n)
{
	assert_int_equal(recv(fd, data, n, MSG_WAITALL), n);
}

static void raw_go(int fd, const char *name)
{
	uint8_t in[512], out[64], *p = out;
	uint32_t type, n;

	get(fd, in, 18);
	p = nbd_put32(p, 3);
	p = nbd_put64(p, NBD_OPT_MAGIC);
	p = nbd_put32(p, NBD_OPT_GO);
	p = nbd_put32(p, 6 + (uint32_t)strlen(name));
	p = nbd_put32(p, (uint32_t)strlen(name));
	p = (uint8_t *)stpcpy((char *)p, name);
	p = nbd_put16(p, 0);
	put(fd, out, (size_t)(p - out));
	do {
		get(fd, in, 20);
		type = nbd_get32(in + 12);
		n = nbd_get32(in + 16);
		if (n)
			get(fd, in, n);
	} while (type != NBD_REP_ACK);
}

static void raw_request(int fd, uint16_t type, uint64_t cookie, uint64_t offset, uint32_t n)
{
	uint8_t out[NBD_REQUEST_BYTES], *p = out;

	p = nbd_put32(p, NBD_REQUEST_MAGIC);
	p = nbd_put16(p, 0);
	p = nbd_put16(p, type);
	p = nbd_put64(p, cookie);
	p = nbd_put64(p, offset);
	nbd_put32(p, n);
	put(fd, out, sizeof(out));
}

static void test_fifty_clients_killed_with_requests_in_flight(void **state)
{
	struct nbd_handle *healthy = client("v2", true);
	uint8_t data[8192], back[8192];
	struct nbd_server_stats s;

	for (unsigned k = 0; k < 50; k++) {
		int fd = raw_client();

		raw_go(fd, "v1");
		__atomic_store_n(&w.hold, k % 2, __ATOMIC_RELEASE);
		for (unsigned i = 0; i < 64; i++) {
			bool write = i % 2;

			raw_request(fd, write, i, (uint64_t)i * 65536, 4096 * (1 + i % 16));
			/* The last write breaks off within its payload. */
			if (write)
				put(fd, w.mem, i == 63 ? 100 * k : 4096u * (1 + i % 16));
		}
		close(fd); /* replies unread: the server gets a reset */
		__atomic_store_n(&w.hold, false, __ATOMIC_RELEASE);
		random_fill(data, sizeof(data), k);
		assert_int_equal(nbd_pwrite(healthy, data, 8192, 32 << 20, 0), 0);
		assert_int_equal(nbd_pread(healthy, back, 8192, 32 << 20, 0), 0);
		assert_memory_equal(data, back, 8192);
	}
	s = settled(1);
	assert_int_equal(s.in_flight, 0);
	nbd_close(healthy);
	s = settled(0);
	assert_int_equal(s.bytes_held, 0);
	assert_int_equal(s.connections, 51);
}

static void test_a_client_that_does_not_read_is_held_back(void **state)
{
	int fd = raw_client();
	struct nbd_server_stats s;
	struct nbd_handle *other;
	uint8_t head[16], *data = malloc(1 << 20);
	bool seen[400] = {0};

	raw_go(fd, "v1");
	for (unsigned i = 0; i < 400; i++)
		raw_request(fd, NBD_CMD_READ, i, 0, 1 << 20);
	other = client("v2", true);
	for (int i = 0; i < 200; i++)
		assert_int_equal(nbd_pread(other, data, 1 << 20, 0, 0), 0);
	on_server(get_stats, &s);
	assert_true(s.bytes_held > 0 && s.bytes_held <= (66u << 20));
	/* All answers come once it reads. */
	for (unsigned i = 0; i < 400; i++) {
		get(fd, head, 16);
		assert_int_equal(nbd_get32(head + 4), 0);
		assert_true(nbd_get64(head + 8) < 400 && !seen[nbd_get64(head + 8)]);
		seen[nbd_get64(head + 8)] = true;
		get(fd, data, 1 << 20);
	}
	close(fd);
	nbd_close(other);
	free(data);
	assert_int_equal(settled(0).bytes_held, 0);
}

static void test_nonsense_commands_are_refused_or_end_the_connection(void **state)
{
	static uint8_t big[1 << 20];
	uint8_t in[64], junk[512];
	int fd = raw_client();

	raw_go(fd, "v1");
	raw_request(fd, 99, 1, 0, 512);
	get(fd, in, 16);
	assert_int_equal(nbd_get32(in + 4), NBD_EINVAL);
	raw_request(fd, NBD_CMD_READ, 2, UINT64_MAX - 511, 512);
	get(fd, in, 16);
	assert_int_equal(nbd_get32(in + 4), NBD_EINVAL);
	raw_request(fd, NBD_CMD_READ, 3, 0, UINT32_MAX & ~511u);
	get(fd, in, 16);
	assert_int_equal(nbd_get32(in + 4), NBD_EINVAL);
	raw_request(fd, NBD_CMD_BLOCK_STATUS, 4, 0, 512); /* no context was chosen */
	get(fd, in, 16);
	assert_int_equal(nbd_get32(in + 4), NBD_EINVAL);
	/* Longer than the limit that was told: its payload is skipped. Absurdly long: good-bye. */
	raw_request(fd, NBD_CMD_WRITE, 5, 0, 33 << 20);
	for (int i = 0; i < 33; i++)
		put(fd, big, sizeof(big));
	get(fd, in, 16);
	assert_int_equal(nbd_get32(in + 4), NBD_EINVAL);
	raw_request(fd, NBD_CMD_READ, 6, 0, 512);
	get(fd, in, 16);
	assert_int_equal(nbd_get32(in + 4), 0);
	get(fd, junk, 512);
	raw_request(fd, NBD_CMD_WRITE, 7, 0, UINT32_MAX & ~511u);
	assert_int_equal(recv(fd, in, 1, 0), 0);
	close(fd);
	fd = raw_client();
	raw_go(fd, "v1");
	memset(junk, 0x5a, sizeof(junk));
	put(fd, junk, sizeof(junk));
	assert_true(recv(fd, in, 1, 0) <= 0);
	close(fd);
	settled(0);
}

/* A sensible conversation, bytes of which are then changed, dropped, doubled. */
static size_t draft(struct ash_prng *r, uint8_t *out)
{
	uint8_t *p = nbd_put32(out, 3);

	for (uint64_t n = ash_prng_below(r, 8); n; n--) {
		static const uint32_t opts[] = {1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 77};
		uint32_t opt =
			n == 1 && ash_prng_below(r, 2) ? NBD_OPT_GO : opts[ash_prng_below(r, 11)];

		p = nbd_put64(p, NBD_OPT_MAGIC);
		p = nbd_put32(p, opt);
		if (opt == 6 || opt == 7) {
			p = nbd_put32(p, 12);
			p = nbd_put32(p, 2);
			memcpy(p, "v1", 2);
			p = nbd_put16(p + 2, 2);
			p = nbd_put16(p, 1);
			p = nbd_put16(p, 3);
		} else if (opt == 9 || opt == 10) {
			p = nbd_put32(p, 4 + 2 + 4 + 4 + 15);
			p = nbd_put32(p, 2);
			memcpy(p, "v1", 2);
			p = nbd_put32(p + 2, 1);
			p = nbd_put32(p, 15);
			memcpy(p, "base:allocation", 15);
			p += 15;
		} else if (opt == 1) {
			p = nbd_put32(p, 2);
			memcpy(p, "v2", 2);
			p += 2;
		} else {
			p = nbd_put32(p, 0);
		}
	}
	for (uint64_t n = ash_prng_below(r, 6); n; n--) {
		p = nbd_put32(p, NBD_REQUEST_MAGIC);
		p = nbd_put16(p, (uint16_t)ash_prng_below(r, 32));
		p = nbd_put16(p, (uint16_t)ash_prng_below(r, 9));
		p = nbd_put64(p, n);
		p = nbd_put64(p, 512 * ash_prng_below(r, SIZE / 512));
		p = nbd_put32(p, 512 * (uint32_t)ash_prng_below(r, 8));
	}
	return (size_t)(p - out);
}

static size_t spoil(struct ash_prng *r, uint8_t *p, size_t n)
{
	for (uint64_t k = ash_prng_below(r, 4); k && n > 8; k--) {
		size_t at = ash_prng_below(r, n);

		switch (ash_prng_below(r, 4)) {
		case 0:
			p[at] ^= (uint8_t)(1u << ash_prng_below(r, 8));
			break;
		case 1:
			p[at] = (uint8_t)ash_prng_next(r);
			break;
		case 2:
			memmove(p + at, p + at + 1, n - at - 1);
			n--;
			break;
		default:
			memmove(p + at + 1, p + at, n - at);
			n++;
		}
	}
	return n;
}

static void test_spoilt_conversations_do_no_harm(void **state)
{
	static uint8_t buf[4096], in[65536];
	struct ash_prng r;
	struct nbd_server_stats s;

	ash_prng_seed(&r, 11);
	for (int k = 0; k < 3000; k++) {
		int fd = raw_client();
		size_t n = spoil(&r, buf, draft(&r, buf));
		size_t first = ash_prng_below(&r, n + 1);

		put(fd, buf, first);
		put(fd, buf + first, n - first);
		if (k % 4) {
			/* A polite end: everything is answered until the server closes. */
			shutdown(fd, SHUT_WR);
			while (recv(fd, in, sizeof(in), 0) > 0)
				;
		}
		close(fd);
	}
	s = settled(0);
	assert_int_equal(s.in_flight, 0);
	assert_int_equal(s.bytes_held, 0);
	print_message("%llu requests got through\n", (unsigned long long)s.requests);
	assert_true(s.requests > 100); /* many got far, how many depends on timing */
}

/* ------------------------------------------------------------ beginning and end */

static void test_stop_answers_what_was_begun(void **state)
{
	int fd = raw_client();
	uint8_t head[16], data[4096];
	struct nbd_server_stats s;

	raw_go(fd, "v1");
	__atomic_store_n(&w.hold, true, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < 10; i++)
		raw_request(fd, NBD_CMD_READ, i, 0, 4096);
	do {
		on_server(get_stats, &s);
	} while (s.in_flight < 10);
	on_server(do_stop, NULL);
	w.stopped = true;
	__atomic_store_n(&w.hold, false, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < 10; i++) {
		get(fd, head, 16);
		get(fd, data, 4096);
	}
	assert_int_equal(recv(fd, head, 1, 0), 0);
	close(fd);
}

static struct ash_error listen_error;
static void do_listen(void *arg)
{
	listen_error = nbd_server_listen_unix(w.srv, arg);
}

static int connect_unix(const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), err;

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
	err = connect(fd, (struct sockaddr *)&sa, sizeof(sa)) ? -errno : 0;
	close(fd);
	return err;
}

static void test_the_socket_path_is_kept_clean(void **state)
{
	char dir[40], path[64], other[64];
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct stat st;
	int fd;

	snprintf(dir, sizeof(dir), "/tmp/ashlar-nbd-%d", (int)getpid());
	assert_int_equal(mkdir(dir, 0700), 0);
	snprintf(path, sizeof(path), "%s/s", dir);
	snprintf(other, sizeof(other), "%s/f", dir);
	/* Left behind by a server that was killed. */
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	close(fd);
	on_server(do_listen, path);
	assert_int_equal(listen_error.code, 0);
	assert_int_equal(connect_unix(path), 0);
	/* In use, and something else, are left alone. */
	on_server(do_listen, path);
	assert_int_equal(listen_error.code, ASH_E_EXISTS);
	assert_non_null(strstr(listen_error.message, "in use"));
	fclose(fopen(other, "w"));
	on_server(do_listen, other);
	assert_int_equal(listen_error.code, ASH_E_EXISTS);
	assert_int_equal(connect_unix(path), 0);
	on_server(do_stop, NULL);
	w.stopped = true;
	pthread_join(w.thread, NULL);
	pthread_create(&w.thread, NULL, thread_main, NULL);
	ev_async_send(w.loop, &w.command);
	assert_int_not_equal(stat(path, &st), 0);
	assert_int_equal(stat(other, &st), 0);
	unlink(other);
	rmdir(dir);
	on_server(was_stopped, NULL);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_export_is_described),
		T(test_exports_are_listed_and_unknown_ones_refused),
		T(test_data_goes_both_ways),
		T(test_block_status_tells_holes),
		T(test_errors_have_their_numbers),
		T(test_many_in_flight_end_in_any_order),
		T(test_fifty_clients_killed_with_requests_in_flight),
		T(test_a_client_that_does_not_read_is_held_back),
		T(test_nonsense_commands_are_refused_or_end_the_connection),
		T(test_spoilt_conversations_do_no_harm),
		T(test_stop_answers_what_was_begun),
		T(test_the_socket_path_is_kept_clean),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
