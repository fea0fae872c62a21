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

enum { POOL = 5, SDS = 10, DEV = 20, VOLUME = 40, NODE = 60, MAPPING = 80, SDC = 100, PGS = 16 };
static const uint8_t system_uuid[16] = {7, 7, 7};
#define PEERS 16

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

struct whole_map {
	Pb__Map map;
	Pb__System system;
	Pb__Pool pool, *pools[1];
	Pb__Sds sds, *sdss[1];
	Pb__Endpoint ep, *eps[1];
	Pb__Device dev, *devs[1];
	Pb__Volume vol, *vols[1];
	Pb__Mapping mapping, *mappings[1];
	Pb__Row row[PGS], *rows[PGS];
	Pb__Replica rep, *reps[1];
	uint8_t ip[16];
};

static void map_servers(struct toy *t, struct whole_map *m)
{
	pb__endpoint__init(&m->ep);
	memcpy(m->ip, (uint8_t[]){0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 127, 0, 0, 1}, 16);
	m->ep.ip = (ProtobufCBinaryData){16, m->ip};
	m->ep.port = t->data_port;
	m->ep.transport = ASH_TRANSPORT_TCP;
	m->eps[0] = &m->ep;
	pb__sds__init(&m->sds);
	m->sds.id = SDS;
	m->sds.endpoints = m->eps;
	m->sds.n_endpoints = 1;
	m->sds.version = 1;
	m->sdss[0] = &m->sds;
	pb__device__init(&m->dev);
	m->dev.id = DEV;
	m->dev.sds = SDS;
	m->dev.pool = POOL;
	m->dev.write_back = true;
	m->dev.version = 1;
	m->devs[0] = &m->dev;
	pb__replica__init(&m->rep);
	m->rep.device = DEV;
	m->rep.state = PB__REPLICA_STATE__REPLICA_IN_SYNC;
	m->reps[0] = &m->rep;
	for (uint32_t i = 0; i < PGS; i++) {
		pb__row__init(&m->row[i]);
		m->row[i].pool = POOL;
		m->row[i].pg = i;
		m->row[i].gen = 3;
		m->row[i].primary = 1;
		m->row[i].replicas = m->reps;
		m->row[i].n_replicas = 1;
		m->rows[i] = &m->row[i];
	}
}

static void build_map(struct toy *t, struct whole_map *m)
{
	memset(m, 0, sizeof(*m));
	pb__map__init(&m->map);
	m->map.version = t->version;
	pb__system__init(&m->system);
	m->system.uuid = (ProtobufCBinaryData){16, (uint8_t *)system_uuid};
	m->system.version = 1;
	m->map.system = &m->system;
	pb__pool__init(&m->pool);
	m->pool.id = POOL;
	m->pool.pg_count = PGS;
	m->pool.pg_shift = 4;
	m->pool.version = 1;
	m->pools[0] = &m->pool;
	map_servers(t, m);
	pb__volume__init(&m->vol);
	m->vol.id = VOLUME;
	m->vol.node = NODE;
	m->vol.pool = POOL;
	m->vol.size = t->bytes;
	m->vol.name = (char *)"v1";
	m->vol.version = 1;
	m->vols[0] = &m->vol;
	pb__mapping__init(&m->mapping);
	m->mapping.id = MAPPING;
	m->mapping.volume = VOLUME;
	m->mapping.node = NODE;
	m->mapping.sdc = SDC;
	m->mapping.epoch = t->epoch;
	m->mapping.version = t->version;
	m->mappings[0] = &m->mapping;
	m->map.pools = m->pools;
	m->map.sdss = m->sdss;
	m->map.devices = m->devs;
	m->map.volumes = m->vols;
	m->map.mappings = m->mappings;
	m->map.rows = m->rows;
	m->map.n_pools = m->map.n_sdss = m->map.n_devices = m->map.n_volumes = 1;
	m->map.n_mappings = 1;
	m->map.n_rows = PGS;
}

static void push_map(struct toy *t)
{
	struct whole_map m;
	Pb__Push push = PB__PUSH__INIT;

	build_map(t, &m);
	push.p_case = PB__PUSH__P_MAP;
	push.map = &m.map;
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
	Pb__Reply reply = PB__REPLY__INIT;
	Pb__HelloReply hello = PB__HELLO_REPLY__INIT;
	Pb__SdcRegisterReply reg = PB__SDC_REGISTER_REPLY__INIT;
	Pb__OpenVolumeReply open = PB__OPEN_VOLUME_REPLY__INIT;
	Pb__Error err = PB__ERROR__INIT;
	struct whole_map m;

	reply.id = req->id;
	if (req->r_case == PB__REQUEST__R_HELLO) {
		hello.version = 1;
		hello.leader = true;
		hello.system = (ProtobufCBinaryData){16, (uint8_t *)system_uuid};
		hello.state = (char *)"leader";
		reply.r_case = PB__REPLY__R_HELLO;
		reply.hello = &hello;
	} else if (req->r_case == PB__REQUEST__R_SDC_REGISTER) {
		reg.sdc = SDC;
		reply.r_case = PB__REPLY__R_SDC_REGISTER;
		reply.sdc_register = &reg;
	} else if (req->r_case == PB__REQUEST__R_OPEN_VOLUME &&
		   strcmp(req->open_volume->volume, "v1")) {
		err.code = ASH_E_NOT_FOUND;
		err.message = (char *)"no such volume";
		reply.error = &err;
	} else if (req->r_case == PB__REQUEST__R_OPEN_VOLUME) {
		t->epoch = ++t->version;
		open.volume = VOLUME;
		open.node = NODE;
		open.size = t->bytes;
		open.epoch = t->epoch;
		reply.r_case = PB__REPLY__R_OPEN_VOLUME;
		reply.open_volume = &open;
	} else {
		build_map(t, &m);
		reply.r_case = PB__REPLY__R_MAP;
		reply.map = &m.map;
	}
	ash_ctl_peer_reply(peer, &reply);
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
	m->h = req->h;
	ash_msg_free(t->port->net, req);
	m->h.flags |= ASH_F_REPLY;
	m->h.status = status;
	m->h.place_version = 3;
	if (!read)
		m->h.length = bytes;
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
	uint64_t first = h->offset / 4096, end = (h->offset + h->length + 4095) / 4096;

	assert(h->offset + h->length <= t->bytes);
	switch (h->op) {
	case ASH_OP_WRITE:
		if (ash_crc32c_check(m->data, h->offset, h->length, m->crc) >= 0) {
			answer(t, conn, m, ASH_ST_BADSUM, NULL, 0);
			return;
		}
		memcpy(t->store + h->offset, m->data, h->length);
		memset(t->states + first, ASH_BLK_DATA, end - first);
		break;
	case ASH_OP_READ:
		answer(t, conn, m, ASH_ST_OK, t->store + h->offset, h->length);
		return;
	case ASH_OP_STATUS:
		answer(t, conn, m, ASH_ST_OK, t->states + first, (uint32_t)(end - first));
		return;
	case ASH_OP_DISCARD:
	case ASH_OP_WRITE_ZEROES:
		memset(t->store + h->offset, 0, h->length);
		for (uint64_t b = (h->offset + 4095) / 4096; b < (h->offset + h->length) / 4096;
		     b++)
			t->states[b] = ASH_BLK_ZERO;
		break;
	default:
		assert(h->op == ASH_OP_FLUSH);
	}
	answer(t, conn, m, ASH_ST_OK, NULL, 0);
}

static void on_hello(struct toy *t, struct ash_conn *conn, struct ash_msg *m)
{
	struct ash_wire_hello w;
	struct ash_hello hello;

	assert(!ash_hello_decode(m->data, m->data_bytes, &hello));
	if (hello.session != t->session)
		t->path = 0;
	t->session = hello.session;
	assert(hello.path > t->path);
	t->path = hello.path;
	hello.sender = SDS;
	hello.sender_kind = ASH_SENDER_SDS;
	ash_hello_encode(&hello, &w);
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
