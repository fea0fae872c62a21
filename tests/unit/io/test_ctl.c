// SPDX-License-Identifier: MIT
#include <errno.h>
#include <ev.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/crc.h"
#include "common/base/list.h"
#include "common/base/prng.h"
#include "common/io/ctl_server.h"
#include "common/io/ctl_stream.h"
#include "common/io/reactor.h"

/* ------------------------------------------------------------ a server that echoes */

struct world {
	struct ev_loop *loop;
	struct ash_ctl_server *srv;
	struct ash_endpoint at;
	unsigned opened, closed, requests;
	bool refuse, close_after;
	size_t push_bytes; /* each request is answered by pushes of that size until it ends */
};

static void *on_open(void *arg, struct ash_ctl_peer *peer)
{
	struct world *w = arg;

	if (w->refuse)
		return NULL;
	w->opened++;
	return w;
}

static void push_much(struct world *w, struct ash_ctl_peer *peer)
{
	Pb__Push push = PB__PUSH__INIT;
	char *text = malloc(w->push_bytes + 1);

	memset(text, 'x', w->push_bytes);
	text[w->push_bytes] = '\0';
	push.p_case = PB__PUSH__P_LEADER_ADDRESS;
	push.leader_address = text;
	for (int i = 0; i < 40; i++)
		ash_ctl_peer_push(peer, &push);
	free(text);
}

static void on_request(void *arg, struct ash_ctl_peer *peer, const Pb__Request *req)
{
	struct world *w = arg;
	Pb__Reply reply = PB__REPLY__INIT;
	Pb__AdminReply admin = PB__ADMIN_REPLY__INIT;

	assert_ptr_equal(ash_ctl_peer_owner(peer), w);
	w->requests++;
	if (w->push_bytes)
		push_much(w, peer);
	reply.id = req->id;
	if (req->r_case == PB__REQUEST__R_ADMIN) {
		admin.note = req->admin->name;
		reply.r_case = PB__REPLY__R_ADMIN;
		reply.admin = &admin;
	}
	ash_ctl_peer_reply(peer, &reply);
	if (w->close_after)
		ash_ctl_peer_close(peer);
}

static void on_close(void *arg, struct ash_ctl_peer *peer)
{
	((struct world *)arg)->closed++;
}

static const struct ash_ctl_server_events events = {on_open, on_request, on_close};

static void world_init(struct world *w)
{
	struct ash_error err;

	memset(w, 0, sizeof(*w));
	w->loop = ev_loop_new(0);
	assert_int_equal(ash_endpoint_parse("127.0.0.1:0", 0, &w->at, &err), 0);
	w->srv = ash_ctl_server_new(w->loop, &w->at, &events, w, &err);
	assert_non_null(w->srv);
	w->at.port = ash_ctl_server_port(w->srv);
}

static void world_done(struct world *w)
{
	ash_ctl_server_free(w->srv);
	assert_int_equal(w->opened, w->closed);
	ev_loop_destroy(w->loop);
}

/* ------------------------------------------------------------ a client end */

struct client {
	struct ash_ctl_stream s;
	unsigned frames, pushes;
	uint64_t last_id;
	size_t note_bytes;
	bool up, ended;
};

static void client_up(struct ash_ctl_stream *s)
{
	ash_container_of(s, struct client, s)->up = true;
}

static void client_frame(struct ash_ctl_stream *s, int type, const uint8_t *body, size_t bytes)
{
	struct client *c = ash_container_of(s, struct client, s);
	Pb__Reply *reply;

	if (type == ASH_FRAME_PUSH) {
		c->pushes++;
		return;
	}
	reply = (Pb__Reply *)ash_ctl_unpack(&pb__reply__descriptor, body, bytes);
	assert_non_null(reply);
	c->frames++;
	c->last_id = reply->id;
	if (reply->r_case == PB__REPLY__R_ADMIN)
		c->note_bytes = strlen(reply->admin->note);
	pb__reply__free_unpacked(reply, NULL);
}

static void client_end(struct ash_ctl_stream *s)
{
	ash_container_of(s, struct client, s)->ended = true;
}

static const struct ash_ctl_stream_events client_events = {client_up, client_frame, client_end};

static void client_open(struct world *w, struct client *c)
{
	memset(c, 0, sizeof(*c));
	assert_int_equal(ash_ctl_stream_connect(&c->s, w->loop, &w->at, &client_events), 0);
	while (!c->up && !c->ended)
		ev_run(w->loop, EVRUN_ONCE);
}

static void client_ask(struct client *c, uint64_t id, size_t note_bytes)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__Admin admin = PB__ADMIN__INIT;
	char *note = malloc(note_bytes + 1);

	memset(note, 'n', note_bytes);
	note[note_bytes] = '\0';
	admin.name = note;
	req.id = id;
	req.r_case = PB__REQUEST__R_ADMIN;
	req.admin = &admin;
	assert_int_equal(ash_ctl_stream_send(&c->s, ASH_FRAME_REQUEST, &req.base), 0);
	free(note);
}

/* ------------------------------------------------------------ tests */

static void test_echo_of_all_sizes(void **state)
{
	static const size_t sizes[] = {0, 1, 100, 4000, 4080, 4096, 5000, 65536, 300000, 5000000};
	struct world w;
	struct client c;

	world_init(&w);
	client_open(&w, &c);
	client_ask(&c, 99, 10);
	while (c.frames < 1)
		ev_run(w.loop, EVRUN_ONCE);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		client_ask(&c, i, sizes[i]);
		client_ask(&c, i + 1000, sizes[i]);
		while (c.frames < 2 * i + 3)
			ev_run(w.loop, EVRUN_ONCE);
		assert_int_equal(c.last_id, i + 1000);
		assert_int_equal(c.note_bytes, sizes[i]);
	}
	ash_ctl_stream_done(&c.s);
	while (w.closed < 1)
		ev_run(w.loop, EVRUN_ONCE);
	world_done(&w);
}

static void test_refused_and_closed(void **state)
{
	struct world w;
	struct client c;

	world_init(&w);
	w.refuse = true;
	client_open(&w, &c);
	while (!c.ended)
		ev_run(w.loop, EVRUN_ONCE);
	ash_ctl_stream_done(&c.s);
	w.refuse = false;
	w.close_after = true;
	client_open(&w, &c);
	client_ask(&c, 1, 0);
	while (!c.ended)
		ev_run(w.loop, EVRUN_ONCE);
	assert_int_equal(c.frames, 1);
	ash_ctl_stream_done(&c.s);
	while (w.closed < 1)
		ev_run(w.loop, EVRUN_ONCE);
	world_done(&w);
}

/* A frame around @bytes of body, sent raw. */
static void raw_frame(struct client *c, uint32_t magic, int version, int type, uint32_t promised,
		      const void *body, size_t bytes, bool good_crc)
{
	struct ash_frame f = {
		.magic = ash_put32(magic),
		.version = ash_put16((uint16_t)version),
		.type = ash_put16((uint16_t)type),
		.bytes = ash_put32(promised),
		.crc = ash_put32(ash_crc32c(body, bytes) + !good_crc),
	};

	assert_int_equal(write(c->s.fd, &f, sizeof(f)), sizeof(f));
	if (bytes)
		assert_int_equal(write(c->s.fd, body, bytes), bytes);
}

static void test_bad_frames(void **state)
{
	struct world w;
	struct client c;
	static const uint8_t junk[] = {0xff, 0xff, 0xff, 0xff};

	world_init(&w);
	for (int kind = 0; kind < 7; kind++) {
		client_open(&w, &c);
		raw_frame(&c, kind == 0 ? 1 : ASH_FRAME_MAGIC, kind == 1 ? 9 : ASH_FRAME_VERSION,
			  kind == 2 ? ASH_FRAME_REPLY : ASH_FRAME_REQUEST,
			  kind == 3   ? 0xffffffff
			  : kind == 4 ? 1u << 20 /* fine later, too much before HELLO */
				      : sizeof(junk),
			  junk, sizeof(junk), kind != 5);
		while (!c.ended)
			ev_run(w.loop, EVRUN_ONCE);
		ash_ctl_stream_done(&c.s);
	}
	assert_int_equal(w.requests, 0);
	while (w.closed < 7)
		ev_run(w.loop, EVRUN_ONCE);
	world_done(&w);
}

static void test_random_garbage(void **state)
{
	struct world w;
	struct ash_prng rng;
	struct client good;

	ash_prng_seed(&rng, 7);
	world_init(&w);
	client_open(&w, &good);
	for (int i = 0; i < 200; i++) {
		struct client c;
		uint8_t bytes[512];
		size_t n = 16 + ash_prng_below(&rng, sizeof(bytes) - 16);

		for (size_t j = 0; j < n; j++)
			bytes[j] = (uint8_t)ash_prng_next(&rng);
		client_open(&w, &c);
		if (i % 2)
			raw_frame(&c, ASH_FRAME_MAGIC, ASH_FRAME_VERSION, ASH_FRAME_REQUEST,
				  (uint32_t)n, bytes, n, true);
		else
			assert_int_equal(write(c.s.fd, bytes, n), n);
		while (!c.ended && w.requests == 0)
			ev_run(w.loop, EVRUN_ONCE);
		w.requests = 0; /* random bytes may be a valid, empty request */
		ash_ctl_stream_done(&c.s);
	}
	client_ask(&good, 5, 5);
	while (good.frames == 0)
		ev_run(w.loop, EVRUN_ONCE);
	ash_ctl_stream_done(&good.s);
	while (w.closed < w.opened)
		ev_run(w.loop, EVRUN_ONCE);
	world_done(&w);
}

static void test_peer_that_does_not_read(void **state)
{
	struct world w;
	struct client c;

	world_init(&w);
	client_open(&w, &c);
	ev_io_stop(w.loop, &c.s.rd);
	w.push_bytes = 10u << 20; /* 40 of them are more than may wait */
	client_ask(&c, 1, 0);
	while (w.closed == 0)
		ev_run(w.loop, EVRUN_ONCE);
	ash_ctl_stream_done(&c.s);
	world_done(&w);
}

/* Wraps @n bytes into a length-delimited field. */
static size_t wrap(uint8_t *buf, size_t n, unsigned field)
{
	uint8_t head[16];
	size_t k = 0, v = (field << 3) | 2;

	for (; v >= 0x80; v >>= 7)
		head[k++] = (uint8_t)(v | 0x80);
	head[k++] = (uint8_t)v;
	for (v = n; v >= 0x80; v >>= 7)
		head[k++] = (uint8_t)(v | 0x80);
	head[k++] = (uint8_t)v;
	memmove(buf + k, buf, n);
	memcpy(buf, head, k);
	return n + k;
}

/* request.admin.command.sds_state.also.also...: protobuf-c alone would overflow the stack. */
static size_t nested(uint8_t *buf, unsigned depth)
{
	size_t n = 0;

	for (unsigned i = 0; i < depth; i++)
		n = wrap(buf, n, 5);
	n = wrap(buf, n, 15);
	n = wrap(buf, n, 1);
	return wrap(buf, n, 20);
}

static void test_unpack_is_bounded(void **state)
{
	uint8_t *buf = malloc(1 << 20);
	ProtobufCMessage *msg;
	size_t n = nested(buf, 3);

	msg = ash_ctl_unpack(&pb__request__descriptor, buf, n);
	assert_non_null(msg);
	protobuf_c_message_free_unpacked(msg, NULL);
	n = nested(buf, 60000);
	assert_null(ash_ctl_unpack(&pb__request__descriptor, buf, n));
	/* Map with a million empty rows: two bytes each. */
	for (n = 0; n + 2 <= 1 << 20; n += 2) {
		buf[n] = 9 << 3 | 2;
		buf[n + 1] = 0;
	}
	assert_null(ash_ctl_unpack(&pb__map__descriptor, buf, 1 << 20));
	free(buf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_echo_of_all_sizes),
		cmocka_unit_test(test_refused_and_closed),
		cmocka_unit_test(test_bad_frames),
		cmocka_unit_test(test_random_garbage),
		cmocka_unit_test(test_peer_that_does_not_read),
		cmocka_unit_test(test_unpack_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
