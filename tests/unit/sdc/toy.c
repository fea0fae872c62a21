// SPDX-License-Identifier: MIT
#include "tests/unit/sdc/toy.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clean.h"
#include "common/base/crc.h"
#include "common/base/list.h"
#include "common/base/prng.h"
#include "common/io/ctl_server.h"
#include "common/io/reactor.h"
#include "common/shared/wire_codec.h"
#include "tests/unit/sdc/one_volume.h"

static const uint8_t system_uuid[16] = {7, 7, 7};
#define PEERS 16
#define ROWS_GEN 3 /* they never change */

struct toy {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool ready;
	struct ash_reactor *r;
	struct ash_port *port;
	struct ash_ctl_server *ctl;
	struct ash_ctl_peer *peer[PEERS];
	uint16_t data_port, ctl_port;
	uint64_t bytes, version, epoch;
	uint16_t path;
	uint64_t session;
	uint8_t *store, *states;
	struct ash_prng rng;
	_Atomic unsigned breaks, retries, rots, lost; /* set while it runs */
};

/* ------------------------------------------------------------ MDM */

static void build_map(struct toy *t, struct one_map *m)
{
	static const uint8_t ip[16] = {[10] = 255, 255, 127, 0, 0, 1};
	static const int only[1] = {0};

	one_map_init(m, system_uuid, t->version);
	one_map_add_sds(m, ip, t->data_port, 1);
	m->ep[0].transport = ASH_TRANSPORT_TCP;
	m->dev[0].write_back = true;
	for (int i = 0; i < ONE_PGS; i++)
		one_map_add_row(m, ROWS_GEN, only, 1, true);
	one_map_add_volume(m, t->bytes, 1);
	one_map_add_mapping(m, t->epoch, t->version);
}

static void push_map(struct toy *t)
{
	struct one_map m;
	Pb__Push push;

	build_map(t, &m);
	one_push_init(&push, &m);
	for (int i = 0; i < PEERS; i++)
		if (t->peer[i])
			ash_ctl_peer_push(t->peer[i], &push);
}

static void *ctl_open(void *arg, struct ash_ctl_peer *peer)
{
	struct toy *t = arg;

	for (int i = 0; i < PEERS; i++)
		if (!t->peer[i]) {
			t->peer[i] = peer;
			return t;
		}
	return NULL;
}

static void ctl_close(void *arg, struct ash_ctl_peer *peer)
{
	struct toy *t = arg;

	for (int i = 0; i < PEERS; i++)
		if (t->peer[i] == peer)
			t->peer[i] = NULL;
}

static void ctl_request(void *arg, struct ash_ctl_peer *peer, const Pb__Request *req)
{
	struct toy *t = arg;
	Pb__HelloReply hello = PB__HELLO_REPLY__INIT;
	struct one_reply r;
	struct one_map m;

	one_reply_init(&r);
	r.reply.id = req->id;
	if (req->r_case == PB__REQUEST__R_HELLO) {
		hello.version = 1;
		hello.leader = true;
		hello.system = (ProtobufCBinaryData){16, (uint8_t *)system_uuid};
		hello.state = (char *)"leader";
		r.reply.r_case = PB__REPLY__R_HELLO;
		r.reply.hello = &hello;
	} else if (req->r_case == PB__REQUEST__R_SDC_REGISTER) {
		one_reply_registered(&r);
	} else if (req->r_case == PB__REQUEST__R_OPEN_VOLUME &&
		   strcmp(req->open_volume->volume, "v1")) {
		one_reply_refused(&r, ASH_E_NOT_FOUND, "no such volume");
	} else if (req->r_case == PB__REQUEST__R_OPEN_VOLUME) {
		t->epoch = ++t->version;
		one_reply_opened(&r, t->bytes, t->epoch);
	} else {
		build_map(t, &m);
		one_reply_map(&r, &m);
	}
	ash_ctl_peer_reply(peer, &r.reply);
	push_map(t);
}

static const struct ash_ctl_server_events ctl_events = {ctl_open, ctl_request, ctl_close};

/* ------------------------------------------------------------ SDS */

static void reply_sent(struct ash_msg *m)
{
	struct toy *t = m->owner;

	ash_msg_free(t->port->net, m);
}

static void answer(struct toy *t, struct ash_conn *conn, struct ash_msg *req, uint16_t status,
		   const void *data, uint32_t bytes)
{
	bool read = req->h.op == ASH_OP_READ && status == ASH_ST_OK;
	struct ash_msg *m = ash_msg_alloc(t->port->net);

	assert(m);
	m->h = one_answer(&req->h, status, ROWS_GEN, bytes);
	ash_msg_free(t->port->net, req);
	if (bytes) {
		uint32_t shift = read ? (uint32_t)(m->h.offset % ASH_BLOCK_BYTES) : 0;

		m->buf = ash_buf_get(t->port->bufs,
				     shift + bytes > ASH_CHUNK_BYTES ? ASH_CHUNK_BYTES
								     : shift + bytes,
				     ASH_BUF_PEER);
		assert(m->buf);
		m->data = m->buf->base + (shift + bytes > ASH_CHUNK_BYTES ? 0 : shift);
		m->data_bytes = bytes;
		memcpy(m->data, data, bytes);
	}
	if (read) {
		m->crc = m->buf->crc;
		m->crcs = ash_pieces(m->h.offset, bytes);
		assert(m->crcs <= m->buf->bytes / ASH_BLOCK_BYTES);
		ash_crc32c_pieces(m->data, m->h.offset, bytes, m->crc);
		if (ash_prng_below(&t->rng, 10000) < t->rots)
			m->data[ash_prng_below(&t->rng, bytes)] ^= 1;
	}
	m->sent = reply_sent;
	m->owner = t;
	ash_conn_send(conn, m);
}

static void execute(struct toy *t, struct ash_conn *conn, struct ash_msg *m)
{
	const struct ash_hdr *h = &m->h;
	const uint8_t *data;
	uint32_t bytes;

	assert(h->offset + h->length <= t->bytes);
	if (h->op == ASH_OP_WRITE && ash_crc32c_check(m->data, h->offset, h->length, m->crc) >= 0) {
		answer(t, conn, m, ASH_ST_BADSUM, NULL, 0);
		return;
	}
	if (one_changes(h))
		one_change(t->store, t->states, h, m->data);
	data = one_answer_data(t->store, t->states, h, &bytes);
	assert(data || one_changes(h) || h->op == ASH_OP_FLUSH);
	answer(t, conn, m, ASH_ST_OK, data, bytes);
}

static void on_hello(struct toy *t, struct ash_conn *conn, struct ash_msg *m)
{
	struct ash_wire_hello w;

	one_hello(&m->h, m->data, m->data_bytes, ONE_SDS, &t->session, &t->path, &w);
	answer(t, conn, m, ASH_ST_OK, &w, sizeof(w));
}

static void on_msg(struct ash_conn *conn, struct ash_msg *m)
{
	struct toy *t = conn->owner;
	unsigned dice = (unsigned)ash_prng_below(&t->rng, 10000);

	if (m->h.op == ASH_OP_HELLO) {
		on_hello(t, conn, m);
	} else if (m->h.path < t->path) {
		ash_msg_free(conn->net, m); /* from a connection that was replaced */
	} else if (m->h.mark < t->epoch) {
		answer(t, conn, m, ASH_ST_FENCED, NULL, 0);
	} else if (dice < t->breaks) {
		ash_msg_free(conn->net, m);
		ash_conn_close(conn);
	} else if (dice < t->breaks + t->retries) {
		answer(t, conn, m, ASH_ST_RETRY, NULL, 0);
	} else if (dice < t->breaks + t->retries + t->lost) {
		ash_msg_free(conn->net, m);
	} else {
		execute(t, conn, m);
	}
}

static void on_down(struct ash_conn *conn, int reason)
{
}

static const struct ash_conn_events conn_events = {.on_msg = on_msg, .on_down = on_down};

static void on_accept(struct ash_net *net, struct ash_conn *conn)
{
	conn->events = &conn_events;
	conn->owner = net->owner;
	conn->buf_class = ASH_BUF_PEER;
}

/* ------------------------------------------------------------ life */

static void make_servers(struct toy *t)
{
	struct ash_reactor_opts opts = {.buffer_bytes = 256u << 20};
	struct ash_error err;
	struct ash_endpoint at;

	t->r = ash_reactor_new(&opts, &err);
	assert(t->r);
	t->port = ash_reactor_port(t->r);
	t->port->net->on_accept = on_accept;
	t->port->net->owner = t;
	assert(!ash_endpoint_parse("127.0.0.1:1", 1, &at, &err));
	at.port = 0;
	if (ash_reactor_listen(t->r, &at, &t->data_port, &err)) {
		fprintf(stderr, "%s\n", err.message);
		abort();
	}
	for (unsigned i = 0; i < 100 && !t->ctl; i++) {
		at.port = (uint16_t)(20000 + ((unsigned)getpid() * 7 + i * 131) % 30000);
		t->ctl_port = at.port;
		t->ctl = ash_ctl_server_new(ash_reactor_loop(t->r), &at, &ctl_events, t, &err);
	}
	assert(t->ctl);
}

static void *thread_main(void *arg)
{
	struct toy *t = arg;

	make_servers(t);
	pthread_mutex_lock(&t->lock);
	t->ready = true;
	pthread_cond_signal(&t->cond);
	pthread_mutex_unlock(&t->lock);
	ash_reactor_run(t->r);
	ash_ctl_server_free(t->ctl);
	ash_reactor_free(t->r);
	return NULL;
}

struct toy *toy_new(uint64_t bytes, char mdms[32])
{
	struct toy *t = ash_xcalloc(1, sizeof(*t));

	t->bytes = bytes;
	t->version = 10;
	t->store = ash_xcalloc(1, bytes);
	t->states = ash_xcalloc(1, bytes / 4096);
	ash_prng_seed(&t->rng, 5);
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->cond, NULL);
	if (pthread_create(&t->thread, NULL, thread_main, t))
		abort();
	pthread_mutex_lock(&t->lock);
	while (!t->ready)
		pthread_cond_wait(&t->cond, &t->lock);
	pthread_mutex_unlock(&t->lock);
	snprintf(mdms, 32, "127.0.0.1:%u", t->ctl_port);
	return t;
}

void toy_trouble(struct toy *t, unsigned breaks, unsigned retries, unsigned rots, unsigned lost)
{
	t->breaks = breaks;
	t->retries = retries;
	t->rots = rots;
	t->lost = lost;
}

uint8_t *toy_store(struct toy *t)
{
	return t->store;
}

void toy_free(struct toy *t)
{
	ash_reactor_stop(t->r);
	pthread_join(t->thread, NULL);
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->cond);
	free(t->store);
	free(t->states);
	free(t);
}
