// SPDX-License-Identifier: MIT
/* The TCP transport over loopback: one reactor talks to itself, or to raw sockets of the test. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/io/tcp_int.h"

#define SERVED_MAX 256

struct end {
	struct world *w;
	struct ash_conn *conn;
	bool up, down;
	int reason;
	unsigned received, sent, owed; /* owed: given to send() and not given back */
};

struct world {
	struct ash_reactor *r;
	struct ash_port *port;
	struct ash_endpoint at;
	struct ash_prng rng;
	struct end client;
	struct end served[SERVED_MAX];
	unsigned accepted, served_down;
	const struct ash_conn_events *server_events;
	int buffer_bytes; /* of sockets, 0 = as they are */
	unsigned goal, done;
	bool refuse, place;
	uint64_t next_tag;
	uint8_t *place_data;
	uint32_t place_crc[ASH_PIECES_MAX];
	unsigned placed;
	void (*each_turn)(struct world *w);
	struct ash_task again;
	bool again_posted;
	unsigned held_count, hold;
	struct ash_msg *held;
};

/* ------------------------------------------------------------ contents that follow from the tag */

static void fill(uint64_t tag, uint8_t *data, uint32_t bytes, uint32_t *crc, uint32_t crcs)
{
	struct ash_prng rng;

	ash_prng_seed(&rng, tag);
	for (uint32_t i = 0; i < crcs; i++)
		crc[i] = (uint32_t)ash_prng_next(&rng);
	for (uint32_t i = 0; i < bytes; i += 8) {
		uint64_t v = ash_prng_next(&rng);

		memcpy(data + i, &v, bytes - i < 8 ? bytes - i : 8);
	}
}

static void check(const struct ash_msg *m)
{
	struct ash_prng rng;

	ash_prng_seed(&rng, m->h.tag);
	for (uint32_t i = 0; i < m->crcs; i++)
		assert_int_equal(m->crc[i], (uint32_t)ash_prng_next(&rng));
	for (uint32_t i = 0; i < m->data_bytes; i += 8) {
		uint64_t v = ash_prng_next(&rng);

		assert_memory_equal(m->data + i, &v, m->data_bytes - i < 8 ? m->data_bytes - i : 8);
	}
	if (m->crcs && m->buf)
		assert_int_equal((m->data - m->buf->base) % ASH_BLOCK_BYTES,
				 m->h.offset % ASH_BLOCK_BYTES);
}

/* A range inside a chunk, small ones more often. */
static void random_range(struct ash_prng *rng, struct ash_hdr *h)
{
	uint32_t sectors = 1u << ash_prng_below(rng, 12), first;

	sectors = 1 + (uint32_t)ash_prng_below(rng, sectors);
	first = (uint32_t)ash_prng_below(rng, 2048 - sectors + 1);
	h->offset = ash_prng_below(rng, 1000) * ASH_CHUNK_BYTES + first * 512ull;
	h->length = sectors * 512;
	if (h->op >= ASH_OP_REPL_WRITE) { /* between SDSs: whole blocks */
		h->length = (h->length + h->offset % 4096 + 4095) & ~4095u;
		h->offset &= ~4095ull;
	}
}

static void random_header(struct world *w, struct ash_msg *m)
{
	static const uint8_t ops[] = {
		ASH_OP_READ,	   ASH_OP_WRITE,     ASH_OP_FLUSH,	ASH_OP_DISCARD,
		ASH_OP_WRITE,	   ASH_OP_STATUS,    ASH_OP_REPL_WRITE, ASH_OP_XFER,
		ASH_OP_LEASE_ASK,  ASH_OP_HELLO,     ASH_OP_ROWS,	ASH_OP_PING,
		ASH_OP_READ_COPY,  ASH_OP_INVENTORY, ASH_OP_HASH,	ASH_OP_SYNC_BEGIN,
		ASH_OP_REPL_FLUSH, ASH_OP_SETTLE,
	};
	struct ash_hdr *h = &m->h;

	h->op = ops[ash_prng_below(&w->rng, sizeof(ops))];
	h->tag = ++w->next_tag;
	h->gen = ash_prng_next(&w->rng);
	h->mark = ash_prng_next(&w->rng);
	h->path = (uint16_t)ash_prng_next(&w->rng);
	if (ash_prng_below(&w->rng, 8) == 0) {
		h->flags |= ASH_F_RELAY;
		m->relay =
			(struct ash_relay){.sdc = h->tag * 3, .session = 7, .queue = 9, .hops = 1};
	}
	switch (h->op) {
	case ASH_OP_LEASE_ASK:
	case ASH_OP_HELLO:
	case ASH_OP_ROWS:
		h->length = (uint32_t)ash_prng_below(&w->rng, ASH_AUX_MAX_BYTES + 1);
		break;
	case ASH_OP_FLUSH:
	case ASH_OP_PING:
	case ASH_OP_INVENTORY:
	case ASH_OP_SYNC_BEGIN:
	case ASH_OP_REPL_FLUSH:
	case ASH_OP_SETTLE:
		break;
	default:
		random_range(&w->rng, h);
		if (h->op == ASH_OP_XFER)
			h->status = (uint16_t)ash_prng_below(&w->rng, 4);
		break;
	}
}

/* ------------------------------------------------------------ sending */

static void on_sent(struct ash_msg *m)
{
	struct end *e = m->owner;

	assert_true(e->owed > 0);
	assert_false(e->down);
	e->owed--;
	e->sent++;
	ash_msg_free(&e->w->r->net.n, m);
}

/* Payload as the header asks for, in a buffer or in memory of the pool. */
static bool load(struct world *w, struct ash_msg *m)
{
	uint32_t crcs, bytes;

	assert_true(ash_hdr_payload(&m->h, &crcs, &bytes) >= 0);
	m->crcs = crcs;
	m->data_bytes = bytes;
	if (crcs + bytes == 0)
		return true;
	m->buf = ash_buf_get(w->port->bufs, m->h.offset % ASH_BLOCK_BYTES + bytes, ASH_BUF_PEER);
	if (!m->buf)
		return false;
	m->data = m->buf->base + (crcs ? m->h.offset % ASH_BLOCK_BYTES : 0);
	m->crc = m->buf->crc;
	fill(m->h.tag, m->data, bytes, m->crc, crcs);
	return true;
}

static bool send_msg(struct end *e, struct ash_msg *m)
{
	if (!load(e->w, m)) {
		ash_msg_free(&e->w->r->net.n, m);
		return false;
	}
	m->sent = on_sent;
	m->owner = e;
	e->owed++;
	ash_conn_send(e->conn, m);
	return true;
}

static bool send_random(struct world *w)
{
	struct ash_msg *m = ash_msg_alloc(&w->r->net.n);

	if (!m)
		return false;
	random_header(w, m);
	return send_msg(&w->client, m);
}

/* ------------------------------------------------------------ the serving end */

static void set_buffers(struct world *w, struct ash_conn *conn)
{
	int fd = conn_of(conn)->fd;
	/* A window below the loopback's segment size would make the test wait for TCP's timers. */
	int window = 65536;

	if (!w->buffer_bytes)
		return;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &w->buffer_bytes, sizeof(int));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &window, sizeof(int));
}

static void answer(struct end *e, struct ash_msg *m)
{
	struct ash_msg *a = ash_msg_alloc(&e->w->r->net.n);

	assert_non_null(a);
	a->h = m->h;
	a->relay = m->relay;
	a->h.flags |= ASH_F_REPLY;
	a->h.status = ASH_ST_OK;
	if (m->h.op != ASH_OP_READ && m->h.op != ASH_OP_READ_COPY)
		a->h.length = (uint32_t)(m->h.tag % 3 ? 0 : m->h.tag % 60000);
	ash_msg_free(&e->w->r->net.n, m);
	if (!send_msg(e, a))
		fail_msg("no buffer for an answer");
}

static void server_msg(struct ash_conn *conn, struct ash_msg *m)
{
	struct end *e = conn->owner;
	struct world *w = e->w;

	assert_false(e->down);
	check(m);
	if (m->h.flags & ASH_F_RELAY)
		assert_int_equal(m->relay.sdc, m->h.tag * 3);
	e->received++;
	if (w->hold) { /* keep it, and the buffer, for a while */
		m->next = w->held;
		w->held = m;
		m->owner = e;
		w->held_count++;
		return;
	}
	answer(e, m);
}

static void server_down(struct ash_conn *conn, int reason)
{
	struct end *e = conn->owner;

	assert_false(e->down);
	assert_int_equal(e->owed, 0);
	e->down = true;
	e->reason = reason;
	e->w->served_down++;
}

static const struct ash_conn_events echo_events = {.on_msg = server_msg, .on_down = server_down};

static void on_accept(struct ash_net *net, struct ash_conn *conn)
{
	struct world *w = net->owner;
	struct end *e;

	if (w->refuse) {
		ash_conn_close(conn);
		return;
	}
	assert_true(w->accepted < SERVED_MAX);
	e = &w->served[w->accepted++];
	*e = (struct end){.w = w, .conn = conn, .up = true};
	conn->events = w->server_events;
	conn->owner = e;
	set_buffers(w, conn);
}

/* ------------------------------------------------------------ the asking end */

static void client_up(struct ash_conn *conn)
{
	struct end *e = conn->owner;

	assert_false(e->up || e->down);
	assert_true(conn->up);
	e->up = true;
	set_buffers(e->w, conn);
}

static void client_msg(struct ash_conn *conn, struct ash_msg *m)
{
	struct end *e = conn->owner;

	assert_true(m->h.flags & ASH_F_REPLY);
	if (e->w->place && m->crcs) {
		assert_null(m->buf);
		assert_ptr_equal(m->data, e->w->place_data);
	}
	check(m);
	e->received++;
	ash_msg_free(&e->w->r->net.n, m);
}

static bool client_place(struct ash_conn *conn, const struct ash_hdr *h, uint8_t **ret_data,
			 uint32_t **ret_crc)
{
	struct world *w = ((struct end *)conn->owner)->w;

	if (!w->place)
		return false;
	w->placed++;
	*ret_data = w->place_data;
	*ret_crc = w->place_crc;
	return true;
}

static void client_down(struct ash_conn *conn, int reason)
{
	struct end *e = conn->owner;

	assert_false(e->down);
	assert_int_equal(e->owed, 0);
	e->down = true;
	e->reason = reason;
}

static const struct ash_conn_events client_events = {
	.on_up = client_up, .on_msg = client_msg, .on_place = client_place, .on_down = client_down};

/* ------------------------------------------------------------ world */

static void on_again(struct ash_task *t)
{
	ash_container_of(t, struct world, again)->again_posted = false;
}

/* Another turn, although nothing may come. */
static void again(struct world *w)
{
	if (w->again_posted)
		return;
	w->again_posted = true;
	w->again.fn = on_again;
	w->port->post(w->port, &w->again);
}

static void on_turn(void *arg)
{
	struct world *w = arg;

	w->each_turn(w);
}

static void world_init(struct world *w, size_t bytes, uint32_t messages)
{
	struct ash_reactor_opts opts = {
		.buffer_bytes = bytes, .messages = messages, .spin_us = (bytes >> 20) % 3 ? 20 : 0};
	struct ash_error err;

	memset(w, 0, sizeof(*w));
	w->r = ash_reactor_new(&opts, &err);
	if (!w->r)
		fail_msg("%s", err.message);
	w->port = ash_reactor_port(w->r);
	w->server_events = &echo_events;
	ash_prng_seed(&w->rng, 1);
	w->port->net->on_accept = on_accept;
	w->port->net->owner = w;
	assert_int_equal(ash_endpoint_parse("127.0.0.1:0", 0, &w->at, &err), 0);
	assert_int_equal(ash_reactor_listen(w->r, &w->at, &w->at.port, &err), 0);
	ash_reactor_on_turn(w->r, on_turn, w);
	w->place_data = malloc(ASH_CHUNK_BYTES);
}

static void world_connect(struct world *w)
{
	w->client = (struct end){.w = w};
	w->client.conn = ash_net_connect(w->port->net, &w->at, &client_events, &w->client);
}

static void close_all(struct world *w)
{
	if (!w->client.down && w->client.conn)
		ash_conn_close(w->client.conn);
	for (unsigned i = 0; i < w->accepted; i++)
		if (!w->served[i].down)
			ash_conn_close(w->served[i].conn);
	if ((w->client.down || !w->client.conn) && w->served_down == w->accepted)
		ash_reactor_stop(w->r);
}

static void world_done(struct world *w)
{
	w->each_turn = close_all;
	close_all(w);
	ash_reactor_run(w->r);
	assert_int_equal(ash_bufs_in_use(w->port->bufs), 0);
	assert_int_equal(w->r->msg_free_count, w->r->msg_count);
	ash_reactor_free(w->r);
	free(w->place_data);
}

/* ------------------------------------------------------------ tests */

#define WINDOW 24

static void keep_asking(struct world *w)
{
	struct end *c = &w->client;

	while (c->up && w->done < w->goal && w->done - c->received < WINDOW && send_random(w))
		w->done++;
	if (c->received == w->goal)
		ash_reactor_stop(w->r);
}

static void echo(int buffer_bytes, unsigned messages, bool place)
{
	struct world w;

	world_init(&w, 64u << 20, 1024);
	w.buffer_bytes = buffer_bytes;
	w.goal = messages;
	w.place = place;
	w.each_turn = keep_asking;
	world_connect(&w);
	ash_reactor_run(w.r);
	assert_int_equal(w.served[0].received, messages);
	assert_int_equal(w.client.received, messages);
	assert_false(w.client.down);
	if (place)
		assert_true(w.placed > 100);
	world_done(&w);
	assert_int_equal(w.client.reason, 0);
}

static void test_echo(void **state)
{
	echo(0, 6000, false);
}

static void test_echo_tiny_socket_buffers(void **state)
{
	echo(1, 3000, false); /* the kernel makes 4.5 KiB of that */
}

static void test_echo_placed(void **state)
{
	echo(0, 5000, true);
	echo(1, 1000, true);
}

static void free_sent(struct ash_msg *m)
{
	free(m->data);
	on_sent(m);
}

/* A pool far too small for what is asked, and a server that holds on to what it got. */
static void release_held(struct world *w)
{
	struct end *c = &w->client;

	while (c->up && w->done < w->goal && w->done - c->received < WINDOW) {
		/* Memory of the test, so that the asking side needs no buffers. */
		struct ash_msg *m = ash_msg_alloc(&w->r->net.n);

		if (!m)
			break;
		m->h = (struct ash_hdr){.op = ASH_OP_WRITE,
					.tag = ++w->next_tag,
					.length = w->next_tag % 2 ? ASH_CHUNK_BYTES : 65536};
		m->crcs = ash_pieces(0, m->h.length);
		m->data_bytes = m->h.length;
		m->data = malloc(m->h.length + m->crcs * 4);
		m->crc = (uint32_t *)(m->data + m->h.length);
		fill(m->h.tag, m->data, m->data_bytes, m->crc, m->crcs);
		m->owner = c;
		m->sent = free_sent;
		c->owed++;
		ash_conn_send(c->conn, m);
		w->done++;
	}
	if (w->r->port.turn_ns % 3 == 0 || w->held_count == w->hold) {
		struct ash_msg *m = w->held;

		if (m) {
			struct end *e = m->owner;

			w->held = m->next;
			w->held_count--;
			m->h.tag = m->h.tag * 3 + 1; /* an answer without payload */
			answer(e, m);
		}
	}
	if (c->received == w->goal && c->owed == 0)
		ash_reactor_stop(w->r);
	if (w->held)
		again(w);
}

static void test_backpressure(void **state)
{
	struct world w;

	world_init(&w, 4u << 20, 64);
	w.hold = 3;
	w.goal = 300;
	w.each_turn = release_held;
	world_connect(&w);
	ash_reactor_run(w.r);
	assert_int_equal(w.served[0].received, 300);
	world_done(&w);
}

static void pause_now_and_then(struct world *w)
{
	if (w->accepted && !w->served[0].down)
		w->r->net.n.ops->pause(w->served[0].conn, ash_prng_below(&w->rng, 2));
	keep_asking(w);
	if (w->client.received < w->goal)
		again(w);
}

static void test_pause(void **state)
{
	struct world w;

	world_init(&w, 64u << 20, 1024);
	w.goal = 2000;
	w.each_turn = pause_now_and_then;
	world_connect(&w);
	ash_reactor_run(w.r);
	assert_int_equal(w.served[0].received, 2000);
	world_done(&w);
}

/* ------------------------------------------------------------ ends */

static void until_client_down(struct world *w)
{
	if (w->client.down)
		ash_reactor_stop(w->r);
}

static void test_refused(void **state)
{
	struct world w;
	struct ash_endpoint nobody;
	struct ash_error err;
	uint16_t port;
	int fd;

	world_init(&w, 1 << 20, 64);
	nobody = w.at;
	nobody.port = 0;
	fd = ash_sock_listen(&nobody, &port, &err);
	close(fd);
	nobody.port = port;
	w.each_turn = until_client_down;
	w.client = (struct end){.w = &w};
	w.client.conn = ash_net_connect(w.port->net, &nobody, &client_events, &w.client);
	/* What is queued comes back before the end. */
	assert_true(send_random(&w));
	ash_reactor_run(w.r);
	assert_int_equal(w.client.reason, -ECONNREFUSED);
	assert_false(w.client.up);
	assert_int_equal(w.client.sent, 1);
	/* The other side takes the connection and closes it without a word. */
	w.refuse = true;
	world_connect(&w);
	ash_reactor_run(w.r);
	assert_int_equal(w.client.reason, -ECONNRESET);
	w.client.conn = NULL;
	world_done(&w);
}

static void close_while_connecting(struct world *w)
{
	if (w->done++ == 3)
		ash_conn_close(w->client.conn);
	until_client_down(w);
	again(w);
}

/* Connects to a socket whose backlog is full, so that no answer comes. */
static void test_hanging_connect(void **state)
{
	struct world w;
	struct ash_endpoint at;
	struct sockaddr_storage addr;
	socklen_t bytes;
	int fd, filler[8];

	world_init(&w, 1 << 20, 64);
	at = w.at;
	at.port = 0;
	bytes = ash_sock_address(&at, &addr);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, bytes), 0);
	assert_int_equal(listen(fd, 0), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &bytes), 0);
	for (int i = 0; i < 8; i++) {
		filler[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		(void)!connect(filler[i], (struct sockaddr *)&addr, bytes);
	}
	ash_sock_endpoint(&addr, &at);
	w.client = (struct end){.w = &w};
	w.client.conn = ash_net_connect(w.port->net, &at, &client_events, &w.client);
	assert_true(send_random(&w));
	w.each_turn = close_while_connecting;
	ash_reactor_run(w.r);
	assert_int_equal(w.client.reason, 0);
	assert_int_equal(w.client.sent, 1);
	/* And if nobody closes it, it ends by itself. */
	w.client = (struct end){.w = &w};
	w.client.conn = ash_net_connect(w.port->net, &at, &client_events, &w.client);
	w.each_turn = until_client_down;
	ash_reactor_run(w.r);
	assert_int_equal(w.client.reason, -ETIMEDOUT);
	w.client.conn = NULL;
	for (int i = 0; i < 8; i++)
		close(filler[i]);
	close(fd);
	world_done(&w);
}

/* The answer to a refused HELLO must arrive although the refuser closes at once. */
static void refuse_msg(struct ash_conn *conn, struct ash_msg *m)
{
	answer(conn->owner, m);
	ash_conn_close(conn);
}

static const struct ash_conn_events refuse_events = {.on_msg = refuse_msg, .on_down = server_down};

static void ask_once(struct world *w)
{
	if (w->client.up && !w->done++)
		assert_true(send_random(w));
	until_client_down(w);
}

static void test_last_words(void **state)
{
	struct world w;

	for (int i = 0; i < 20; i++) {
		world_init(&w, 8u << 20, 64);
		ash_prng_seed(&w.rng, (uint64_t)i);
		w.server_events = &refuse_events;
		w.each_turn = ask_once;
		world_connect(&w);
		ash_reactor_run(w.r);
		assert_int_equal(w.client.received, 1);
		assert_int_equal(w.client.reason, -ECONNRESET);
		world_done(&w);
	}
}

/* Closes either end at a random moment of a busy exchange. */
static void close_at_random(struct world *w)
{
	struct end *c = &w->client;

	while (c->up && !c->down && w->done - c->received < WINDOW && send_random(w))
		w->done++;
	if (ash_prng_below(&w->rng, 50) == 0 && !c->down && c->up) {
		if (ash_prng_below(&w->rng, 2))
			ash_conn_close(c->conn);
		else if (w->accepted && !w->served[w->accepted - 1].down)
			ash_conn_close(w->served[w->accepted - 1].conn);
	}
	if (c->down && w->served_down == w->accepted)
		ash_reactor_stop(w->r);
	else if (c->up)
		again(w);
}

static void test_close_in_the_middle(void **state)
{
	struct world w;

	world_init(&w, 64u << 20, 1024);
	for (int i = 0; i < 80; i++) {
		w.done = 0;
		w.each_turn = close_at_random;
		world_connect(&w);
		ash_reactor_run(w.r);
		assert_int_equal(w.client.owed, 0);
	}
	w.client.conn = NULL;
	world_done(&w);
}

/* ------------------------------------------------------------ strangers */

static int raw_connect(struct world *w)
{
	struct sockaddr_storage addr;
	socklen_t bytes = ash_sock_address(&w->at, &addr);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&addr, bytes), 0);
	return fd;
}

static void until_served_down(struct world *w)
{
	if (w->served_down == w->goal)
		ash_reactor_stop(w->r);
}

static void test_garbage(void **state)
{
	struct world w;

	world_init(&w, 8u << 20, 256);
	w.each_turn = until_served_down;
	for (unsigned i = 0; i < 200; i++) {
		uint8_t bytes[4096];
		size_t n = 64 + ash_prng_below(&w.rng, sizeof(bytes) - 64);
		int fd = raw_connect(&w);

		for (size_t j = 0; j < n; j++)
			bytes[j] = (uint8_t)ash_prng_next(&w.rng);
		/* Some with a header that is fine but for what it says. */
		if (i % 4 == 1) {
			struct ash_hdr h = {.op = ASH_OP_WRITE, .offset = 512, .length = 1u << 30};

			ash_hdr_encode(&h, NULL, bytes);
		} else if (i % 4 == 2) {
			struct ash_hdr h = {.op = ASH_OP_HELLO, .length = ASH_AUX_MAX_BYTES + 1};

			ash_hdr_encode(&h, NULL, bytes);
		} else if (i % 4 == 3) {
			struct ash_hdr h = {.op = ASH_OP_PING, .flags = ASH_F_RELAY};
			struct ash_relay relay = {0};
			uint8_t both[ASH_HDR_MAX_BYTES];

			ash_hdr_encode(&h, &relay, both);
			memcpy(bytes, both, ASH_HDR_BYTES); /* the extension is garbage */
			if (n < sizeof(both))
				n = sizeof(both);
		}
		(void)!write(fd, bytes, n);
		w.goal = i + 1;
		ash_reactor_run(w.r);
		assert_int_equal(w.served[i].received, 0);
		assert_int_equal(w.served[i].reason, -EBADMSG);
		close(fd);
	}
	world_done(&w);
}

static void test_dies_in_a_message(void **state)
{
	struct world w;
	uint8_t *bytes = calloc(1, 200000);

	world_init(&w, 8u << 20, 256);
	w.each_turn = until_served_down;
	for (unsigned i = 0; i < 100; i++) {
		struct ash_hdr h = {.op = ASH_OP_WRITE,
				    .length = 512u << ash_prng_below(&w.rng, 9)};
		size_t all = 64 + 4 * ash_pieces(0, h.length) + h.length;
		size_t n = ash_prng_below(&w.rng, all), done = 0;
		int fd = raw_connect(&w);

		ash_hdr_encode(&h, NULL, bytes);
		while (done < n) { /* in two pieces */
			size_t part = done ? n - done : n / 2 + 1;

			assert_int_equal(write(fd, bytes + done, part < n ? part : n),
					 part < n ? part : n);
			done += part;
		}
		close(fd);
		w.goal = i + 1;
		ash_reactor_run(w.r);
		assert_int_equal(w.served[i].received, 0);
		assert_true(w.served[i].reason < 0);
	}
	assert_int_equal(ash_bufs_in_use(w.port->bufs), 0);
	free(bytes);
	world_done(&w);
}

/* A stream cut into pieces at every possible place is still the same messages. */
static void trickle(struct world *w)
{
	uint8_t *bytes = (uint8_t *)w->place_data;
	struct ash_hdr h = {.op = ASH_OP_WRITE, .length = 512, .tag = 5};
	size_t all = 64 + 4 + 512, n;

	if (w->done == 0) {
		ash_hdr_encode(&h, NULL, bytes);
		fill(5, bytes + 68, 512, (uint32_t *)(bytes + 64), 1);
	}
	if (w->done >= 3 * all) {
		if (w->served[0].received == 3)
			ash_reactor_stop(w->r);
		return;
	}
	n = 1 + ash_prng_below(&w->rng, 90);
	if (n > all - w->done % all)
		n = all - w->done % all;
	assert_int_equal(write((int)w->hold, bytes + w->done % all, n), n);
	w->done += (unsigned)n;
	again(w);
}

static void trickle_msg(struct ash_conn *conn, struct ash_msg *m)
{
	struct end *e = conn->owner;

	check(m);
	e->received++;
	ash_msg_free(&e->w->r->net.n, m);
}

static const struct ash_conn_events trickle_events = {.on_msg = trickle_msg,
						      .on_down = server_down};

static void test_trickle(void **state)
{
	struct world w;

	for (int i = 0; i < 50; i++) {
		world_init(&w, 8u << 20, 256);
		ash_prng_seed(&w.rng, (uint64_t)i);
		w.server_events = &trickle_events;
		w.hold = (unsigned)raw_connect(&w);
		w.each_turn = trickle;
		ash_reactor_run(w.r);
		close((int)w.hold);
		world_done(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_echo),
		cmocka_unit_test(test_echo_tiny_socket_buffers),
		cmocka_unit_test(test_echo_placed),
		cmocka_unit_test(test_backpressure),
		cmocka_unit_test(test_pause),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_hanging_connect),
		cmocka_unit_test(test_last_words),
		cmocka_unit_test(test_close_in_the_middle),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_dies_in_a_message),
		cmocka_unit_test(test_trickle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
