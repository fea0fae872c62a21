// SPDX-License-Identifier: MIT
#include "tests/unit/sdc/nbd_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/unit/sdc/await.h"

struct world w;

/* ------------------------------------------------------------ memory behind it */

struct pending {
	struct pending *next;
	struct sdc_io *io;
	uint64_t offset, bytes;
	void (*status_done)(void *arg, int status, const struct sdc_extent *ext, unsigned n);
	void *arg;
};

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
		bool data = w.no_holes || w.written[at / 4096];

		to = to < p->offset + p->bytes ? to : p->offset + p->bytes;
		if (n && ext[n - 1].data == data)
			ext[n - 1].bytes += to - at;
		else
			ext[n++] = (struct sdc_extent){to - at, data};
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
	struct nbd_server_stats s;

	nbd_server_flush(w.srv);
	nbd_server_stats(w.srv, &s);
	if (!w.reached || !w.reached(&s, w.reached_n))
		return;
	w.reached = NULL;
	w.at = s;
	sem_post(&w.event);
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

void on_server(void (*fn)(void *arg), void *arg)
{
	w.arg = arg;
	/* libev is not built for the thread sanitizer: this orders what came before for it. */
	__atomic_store_n(&w.fn, fn, __ATOMIC_RELEASE);
	ev_async_send(w.loop, &w.command);
	await(&w.done, "the server's thread does not do as it is told");
}

int nbd_rig_run(void)
{
	return pthread_create(&w.thread, NULL, thread_main, NULL);
}

int nbd_rig_setup(void **state)
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
	sem_init(&w.event, 0, 0);
	return nbd_rig_run();
}

void was_stopped(void *arg)
{
	ev_break(w.loop, EVBREAK_ALL);
}

void do_stop(void *arg)
{
	nbd_server_stop(w.srv, was_stopped, NULL);
}

void get_stats(void *arg)
{
	nbd_server_stats(w.srv, arg);
}

int nbd_rig_teardown(void **state)
{
	__atomic_store_n(&w.hold, false, __ATOMIC_RELEASE);
	if (!w.stopped)
		on_server(do_stop, NULL);
	pthread_join(w.thread, NULL);
	assert_int_equal(w.count, 0);
	nbd_server_free(w.srv);
	ev_loop_destroy(w.loop);
	sem_destroy(&w.done);
	sem_destroy(&w.event);
	free(w.mem);
	free(w.written);
	return 0;
}

static void do_accept(void *arg)
{
	nbd_server_accept(w.srv, *(int *)arg);
}

int raw_client(void)
{
	int fd[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
	on_server(do_accept, &fd[1]);
	return fd[0];
}

struct nbd_handle *client(const char *name, bool structured)
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

struct wish {
	bool (*reached)(const struct nbd_server_stats *s, unsigned n);
	unsigned n;
};

static void set_wish(void *arg)
{
	struct wish *wish = arg;

	w.reached = wish->reached;
	w.reached_n = wish->n;
}

struct nbd_server_stats await_server(bool (*reached)(const struct nbd_server_stats *s, unsigned n),
				     unsigned n, const char *what)
{
	struct wish wish = {reached, n};

	on_server(set_wish, &wish);
	await(&w.event, what);
	return w.at;
}

static bool is_settled(const struct nbd_server_stats *s, unsigned open)
{
	return s->open == open && (open || !s->in_flight);
}

struct nbd_server_stats settled(unsigned open)
{
	return await_server(is_settled, open, "connections do not end");
}

void random_fill(uint8_t *p, size_t n, uint64_t seed)
{
	struct ash_prng r;

	ash_prng_seed(&r, seed);
	for (size_t i = 0; i < n; i += 8) {
		uint64_t v = ash_prng_next(&r);

		memcpy(p + i, &v, 8);
	}
}

/* ------------------------------------------------------------ a client without a library */

void put(int fd, const void *data, size_t n)
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

void get(int fd, void *data, size_t n)
{
	assert_int_equal(recv(fd, data, n, MSG_WAITALL), n);
}

void raw_go(int fd, const char *name)
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

void raw_request(int fd, uint16_t type, uint64_t cookie, uint64_t offset, uint32_t n)
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
