// SPDX-License-Identifier: MIT
#include "tests/unit/sdc/fake.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/crc.h"
#include "common/base/list.h"
#include "common/map/map.h"
#include "common/shared/chunk_pg.h"

enum { POOL = 5, SDS0 = 10, DEV0 = 20, VOLUME = 40, NODE = 60, MAPPING = 80 };
static const uint8_t system_uuid[16] = {1, 2, 3, 4};

struct fake_event {
	struct fake_event *next;
	uint64_t at, order;
	void (*fn)(struct fake *f, struct fake_event *e);
	struct fake_conn *conn;
	int sds;
	uint16_t path;
	uint64_t session;
	bool reply, late;
	struct ash_hdr h;
	uint32_t crcs, bytes;
	uint32_t crc[ASH_PIECES_MAX];
	void (*done)(void *arg, int result, const Pb__Reply *reply);
	void *arg;
	Pb__Request *req;
	uint8_t data[];
};

struct fake_conn {
	struct ash_conn c;
	struct fake *f;
	struct fake_conn *next;
	int sds;
	bool closed, dead, said_hello;
	uint64_t last_at;
	struct ash_msg *tx, **tx_end;
	struct fake_event *begun; /* writes received and not answered */
};

static uint64_t next_order;

static struct fake_event *event_new(struct fake *f, uint64_t in, size_t bytes,
				    void (*fn)(struct fake *, struct fake_event *))
{
	struct fake_event *e = calloc(1, sizeof(*e) + bytes), **at;

	e->at = f->now + in;
	e->order = next_order++;
	e->fn = fn;
	e->bytes = (uint32_t)bytes;
	for (at = &f->events; *at && (*at)->at <= e->at; at = &(*at)->next)
		;
	e->next = *at;
	*at = e;
	return e;
}

/* ------------------------------------------------------------ port */

static uint64_t port_now(struct ash_port *port)
{
	return ash_container_of(port, struct fake, port)->now;
}
static uint64_t port_rand(struct ash_port *port)
{
	return ash_prng_next(&ash_container_of(port, struct fake, port)->rng);
}
static void port_trace(struct ash_port *port, int level, const char *line)
{
	struct fake *f = ash_container_of(port, struct fake, port);

	f->traces++;
	snprintf(f->last_trace, sizeof(f->last_trace), "%s", line);
	if (getenv("FAKE_TRACE"))
		fprintf(stderr, "%8.3f ms  %s\n", (double)f->now / 1e6, line);
}
static void port_post(struct ash_port *port, struct ash_task *task)
{
	struct fake *f = ash_container_of(port, struct fake, port);

	task->next = NULL;
	*f->tasks_end = task;
	f->tasks_end = &task->next;
}

static void turn(struct fake *f)
{
	struct ash_task *t;

	f->port.turn_ns = f->now;
	ash_timers_run(&f->timers, f->now);
	while ((t = f->tasks)) {
		f->tasks = t->next;
		if (!f->tasks)
			f->tasks_end = &f->tasks;
		t->fn(t);
	}
	if (f->sdc)
		sdc_turn(f->sdc);
}

void fake_run(struct fake *f, uint64_t ns, const bool *flag)
{
	uint64_t end = f->now + ns;

	for (;;) {
		uint64_t next = ash_timers_next(&f->timers);

		turn(f);
		if (flag && *flag)
			return;
		if (f->tasks)
			continue;
		next = ash_timers_next(&f->timers);
		if (f->events && f->events->at < next)
			next = f->events->at;
		if (next > end)
			break;
		if (next > f->now)
			f->now = next;
		if (f->events && f->events->at <= f->now) {
			struct fake_event *e = f->events;

			f->events = e->next;
			e->fn(f, e);
			free(e);
		}
	}
	f->now = end;
	turn(f);
}

/* ------------------------------------------------------------ MDM */

struct full_map {
	Pb__Map map;
	Pb__System system;
	Pb__Pool pool, *pools[1];
	Pb__Sds sds[FAKE_SDSS], *sdss[FAKE_SDSS];
	Pb__Endpoint ep[FAKE_SDSS], *eps[FAKE_SDSS][1];
	Pb__Device dev[FAKE_SDSS], *devs[FAKE_SDSS];
	Pb__Volume vol, *vols[1];
	Pb__Mapping mapping, *mappings[1];
	Pb__Row row[FAKE_PGS], *rows[FAKE_PGS];
	Pb__Replica rep[FAKE_PGS][2], *reps[FAKE_PGS][2];
	uint8_t ip[FAKE_SDSS][16];
};

/* The other copy of a PG. */
static int second(const struct fake *f, uint32_t pg)
{
	int p = f->row[pg].primary;

	return p < 0 ? (int)(pg + 1) % FAKE_SDSS : (p + 1) % FAKE_SDSS;
}

static void map_sds(struct fake *f, struct full_map *m, int i)
{
	pb__sds__init(&m->sds[i]);
	pb__endpoint__init(&m->ep[i]);
	m->ip[i][15] = (uint8_t)i;
	m->ep[i].ip = (ProtobufCBinaryData){16, m->ip[i]};
	m->ep[i].port = 7072;
	m->eps[i][0] = &m->ep[i];
	m->sds[i].id = SDS0 + (uint64_t)i;
	m->sds[i].endpoints = m->eps[i];
	m->sds[i].n_endpoints = 1;
	m->sds[i].version = f->version;
	m->sdss[i] = &m->sds[i];
	pb__device__init(&m->dev[i]);
	m->dev[i].id = DEV0 + (uint64_t)i;
	m->dev[i].sds = SDS0 + (uint64_t)i;
	m->dev[i].pool = POOL;
	m->dev[i].write_back = f->write_back[i];
	m->dev[i].version = f->version;
	m->devs[i] = &m->dev[i];
}

static void map_row(struct fake *f, struct full_map *m, uint32_t pg)
{
	int primary = f->row[pg].primary;

	pb__row__init(&m->row[pg]);
	m->row[pg].pool = POOL;
	m->row[pg].pg = pg;
	m->row[pg].gen = f->row[pg].gen;
	m->row[pg].primary = primary >= 0;
	m->row[pg].replicas = m->reps[pg];
	m->row[pg].n_replicas = 2;
	for (int r = 0; r < 2; r++) {
		int sds = r == 0 ? (primary < 0 ? (int)pg % FAKE_SDSS : primary) : second(f, pg);

		pb__replica__init(&m->rep[pg][r]);
		m->rep[pg][r].device = DEV0 + (uint64_t)sds;
		m->rep[pg][r].state = primary < 0 ? PB__REPLICA_STATE__REPLICA_ABSENT
						  : PB__REPLICA_STATE__REPLICA_IN_SYNC;
		m->reps[pg][r] = &m->rep[pg][r];
	}
	m->rows[pg] = &m->row[pg];
}

static void build_map(struct fake *f, struct full_map *m)
{
	memset(m, 0, sizeof(*m));
	pb__map__init(&m->map);
	m->map.version = f->version;
	m->map.place_version = f->version;
	pb__system__init(&m->system);
	m->system.uuid = (ProtobufCBinaryData){16, (uint8_t *)system_uuid};
	m->system.version = 1;
	m->map.system = &m->system;
	pb__pool__init(&m->pool);
	m->pool.id = POOL;
	m->pool.pg_count = FAKE_PGS;
	m->pool.pg_shift = 4;
	m->pool.version = 1;
	m->pools[0] = &m->pool;
	for (int i = 0; i < FAKE_SDSS; i++)
		map_sds(f, m, i);
	for (uint32_t pg = 0; pg < FAKE_PGS; pg++)
		map_row(f, m, pg);
	pb__volume__init(&m->vol);
	m->vol.id = VOLUME;
	m->vol.node = NODE;
	m->vol.pool = POOL;
	m->vol.size = f->size;
	m->vol.name = (char *)"v1";
	m->vol.version = f->version;
	m->vols[0] = &m->vol;
	pb__mapping__init(&m->mapping);
	m->mapping.id = MAPPING;
	m->mapping.volume = VOLUME;
	m->mapping.node = NODE;
	m->mapping.sdc = FAKE_SDC_ID;
	m->mapping.epoch = f->epoch;
	m->mapping.shared = f->shared;
	m->mapping.read_only = f->read_only;
	m->mapping.iops_limit = f->iops_limit;
	m->mapping.bw_limit = f->bw_limit;
	m->mapping.version = f->version;
	m->mappings[0] = &m->mapping;
	m->map.pools = m->pools;
	m->map.n_pools = 1;
	m->map.sdss = m->sdss;
	m->map.n_sdss = FAKE_SDSS;
	m->map.devices = m->devs;
	m->map.n_devices = FAKE_SDSS;
	m->map.rows = m->rows;
	m->map.n_rows = FAKE_PGS;
	m->map.volumes = m->vols;
	m->map.n_volumes = f->mapped;
	m->map.mappings = m->mappings;
	m->map.n_mappings = f->mapped;
}

static void push_event(struct fake *f, struct fake_event *e)
{
	struct full_map m;
	Pb__Push push = PB__PUSH__INIT;

	if (!f->sdc || !f->ctl_up)
		return;
	build_map(f, &m);
	push.p_case = PB__PUSH__P_MAP;
	push.map = &m.map;
	f->ctl.events->on_push(f->ctl.owner, &push);
}

void fake_commit(struct fake *f, bool push)
{
	f->version++;
	if (push)
		event_new(f, f->latency_ns, 0, push_event);
}

void fake_move(struct fake *f, uint32_t pg, int primary, bool push)
{
	fake_commit(f, push);
	f->row[pg] = (struct fake_row){f->version, primary};
}

static void answer(struct fake_event *e, Pb__Reply *reply, int code, const char *message)
{
	Pb__Error err = PB__ERROR__INIT;

	err.code = code;
	err.message = (char *)message;
	if (code)
		reply->error = &err;
	e->done(e->arg, 0, reply);
}

static void ctl_event(struct fake *f, struct fake_event *e)
{
	Pb__Reply reply = PB__REPLY__INIT;
	Pb__SdcRegisterReply reg = PB__SDC_REGISTER_REPLY__INIT;
	Pb__OpenVolumeReply open = PB__OPEN_VOLUME_REPLY__INIT;
	struct full_map m;

	if (!f->ctl_up) {
		e->done(e->arg, -ECONNRESET, NULL);
	} else if (e->req->r_case == PB__REQUEST__R_SDC_REGISTER) {
		reg.sdc = FAKE_SDC_ID;
		reply.r_case = PB__REPLY__R_SDC_REGISTER;
		reply.sdc_register = &reg;
		answer(e, &reply, f->refuse_register ? 2 : 0, "no SDC has this GUID");
		if (!f->refuse_register)
			event_new(f, f->latency_ns, 0, push_event);
	} else if (e->req->r_case == PB__REQUEST__R_OPEN_VOLUME) {
		bool known = e->req->open_volume->volume_id == VOLUME ||
			     strcmp(e->req->open_volume->volume, "v1") == 0;

		open.volume = VOLUME;
		open.node = NODE;
		open.size = f->size;
		reply.r_case = PB__REPLY__R_OPEN_VOLUME;
		reply.open_volume = &open;
		if (known && f->mapped) {
			f->opens++;
			fake_commit(f, true);
			f->epoch = open.epoch = f->version;
		}
		answer(e, &reply, known ? (f->mapped ? 0 : 10) : 2,
		       known ? "volume \"v1\" is not mapped" : "no such volume");
	} else if (e->req->r_case == PB__REQUEST__R_GET_MAP) {
		build_map(f, &m);
		reply.r_case = PB__REPLY__R_MAP;
		reply.map = &m.map;
		answer(e, &reply, 0, NULL);
	} else {
		assert(false);
	}
	pb__request__free_unpacked(e->req, NULL);
}

static void ctl_call(struct ash_ctl *ctl, const Pb__Request *req, uint32_t timeout_ms,
		     void (*done)(void *arg, int result, const Pb__Reply *reply), void *arg)
{
	struct fake *f = ash_container_of(ctl, struct fake, ctl);
	size_t n = pb__request__get_packed_size(req);
	uint8_t *packed = malloc(n + 1);
	struct fake_event *e;

	f->ctl_calls++;
	pb__request__pack(req, packed);
	e = event_new(f, f->ctl_up ? 2 * f->latency_ns : timeout_ms * FAKE_MS, 0, ctl_event);
	e->req = pb__request__unpack(NULL, n, packed);
	e->done = done;
	e->arg = arg;
	free(packed);
}
static const struct ash_ctl_ops ctl_ops = {.call = ctl_call};

void fake_ctl_set(struct fake *f, bool up)
{
	f->ctl_up = up;
	f->ctl.events->on_session(f->ctl.owner, up);
}

/* ------------------------------------------------------------ network */

static struct ash_msg *msg_alloc(struct ash_net *net)
{
	ash_container_of(net, struct fake, net)->msgs++;
	return calloc(1, sizeof(struct ash_msg));
}
static void msg_free(struct ash_net *net, struct ash_msg *m)
{
	ash_container_of(net, struct fake, net)->msgs--;
	ash_buf_put(m->buf);
	free(m);
}

static void sds_event(struct fake *f, struct fake_event *e);
static void reply_event(struct fake *f, struct fake_event *e);

static uint64_t wire_delay(struct fake *f, struct fake_conn *c)
{
	uint64_t at = f->now + f->latency_ns / 2 + ash_prng_below(&f->rng, f->latency_ns + 1);

	if (at <= c->last_at)
		at = c->last_at + 1;
	c->last_at = at;
	return at - f->now;
}

static void give_back(struct fake_conn *c)
{
	struct ash_msg *m;

	while ((m = c->tx)) {
		c->tx = m->next;
		if (!c->tx)
			c->tx_end = &c->tx;
		m->next = NULL;
		m->sent(m);
	}
}

/* Only now are the messages' bytes read. */
static void transmit_event(struct fake *f, struct fake_event *e)
{
	struct fake_conn *c = e->conn;
	struct ash_msg *m;

	if (c->dead || c->closed)
		return;
	if (f->on_transmit)
		f->on_transmit(f);
	for (m = c->tx; m; m = m->next) {
		struct fake_event *k = event_new(f, wire_delay(f, c), m->data_bytes, sds_event);
		uint32_t crcs, bytes;

		assert(ash_hdr_payload(&m->h, &crcs, &bytes) >= 0);
		assert(crcs == m->crcs && bytes == m->data_bytes);
		k->conn = c;
		k->sds = c->sds;
		k->h = m->h;
		k->crcs = m->crcs;
		if (m->crcs)
			memcpy(k->crc, m->crc, m->crcs * 4);
		if (m->data_bytes)
			memcpy(k->data, m->data, m->data_bytes);
	}
	give_back(c);
}

/* What is on its way over a broken connection arrives later than it would have. */
static void delay_rest(struct fake *f, struct fake_conn *c)
{
	uint64_t more = ash_prng_below(&f->rng, 20 * FAKE_MS);
	struct fake_event **at = &f->events, *e, *mine = NULL, **end = &mine;

	while ((e = *at)) {
		if (e->conn == c && e->fn == sds_event) {
			*at = e->next;
			e->next = NULL;
			*end = e;
			end = &e->next;
		} else {
			at = &e->next;
		}
	}
	while ((e = mine)) {
		mine = e->next;
		e->at += more;
		for (at = &f->events; *at && (*at)->at <= e->at; at = &(*at)->next)
			;
		e->next = *at;
		*at = e;
	}
}

static void down_event(struct fake *f, struct fake_event *e)
{
	struct fake_conn *c = e->conn, **at;

	if (c->dead)
		return;
	give_back(c);
	c->dead = true;
	for (at = &f->conn_list; *at != c; at = &(*at)->next)
		;
	*at = c->next;
	c->next = f->graveyard; /* late messages still name it */
	f->graveyard = c;
	delay_rest(f, c);
	c->c.events->on_down(&c->c, c->closed ? 0 : -ECONNRESET);
}

static void conn_down(struct fake_conn *c)
{
	event_new(c->f, 1, 0, down_event)->conn = c;
}

static void up_event(struct fake *f, struct fake_event *e)
{
	if (e->conn->dead || e->conn->closed)
		return;
	if (!f->sds[e->conn->sds].up) {
		conn_down(e->conn);
		return;
	}
	e->conn->c.up = true;
	e->conn->c.events->on_up(&e->conn->c);
}

static struct ash_conn *net_connect(struct ash_net *net, const struct ash_endpoint *to,
				    const struct ash_conn_events *events, void *owner)
{
	struct fake *f = ash_container_of(net, struct fake, net);
	struct fake_conn *c = calloc(1, sizeof(*c));

	c->f = f;
	c->sds = to->ip[15];
	c->c.net = net;
	c->c.events = events;
	c->c.owner = owner;
	c->tx_end = &c->tx;
	c->next = f->conn_list;
	f->conn_list = c;
	f->conns++;
	event_new(f, f->latency_ns, 0, up_event)->conn = c;
	return &c->c;
}

static void net_send(struct ash_conn *conn, struct ash_msg *m)
{
	struct fake_conn *c = (struct fake_conn *)conn;

	m->next = NULL;
	*c->tx_end = m;
	c->tx_end = &m->next;
	event_new(c->f, ash_prng_below(&c->f->rng, c->f->latency_ns), 0, transmit_event)->conn = c;
}

static void net_close(struct ash_conn *conn)
{
	struct fake_conn *c = (struct fake_conn *)conn;

	if (c->closed)
		return;
	c->closed = true;
	conn_down(c);
}

static void net_pause(struct ash_conn *conn, bool paused)
{
}

static const struct ash_net_ops net_ops = {.connect = net_connect,
					   .send = net_send,
					   .close = net_close,
					   .pause = net_pause,
					   .msg_alloc = msg_alloc,
					   .msg_free = msg_free};

void fake_break(struct fake *f, int sds)
{
	for (struct fake_conn *c = f->conn_list; c; c = c->next)
		if (c->sds == sds)
			conn_down(c);
}

void fake_sds_kill(struct fake *f, int sds)
{
	f->sds[sds].up = false;
	fake_break(f, sds);
}

/* ------------------------------------------------------------ an SDS */

static bool write_like(const struct ash_hdr *h)
{
	return h->op == ASH_OP_WRITE || h->op == ASH_OP_DISCARD || h->op == ASH_OP_WRITE_ZEROES;
}

/* The rule that the client owes: looked at when a write arrives on a live connection. */
static void check_overlap(struct fake *f, const struct ash_hdr *h)
{
	for (struct fake_conn *c = f->conn_list; c; c = c->next) {
		if (c->dead || c->closed)
			continue;
		for (struct fake_event *b = c->begun; b; b = b->next)
			if ((b->h.tag & 0xffffff) != (h->tag & 0xffffff) &&
			    f->row[ash_chunk_pg(0, h->offset / ASH_CHUNK_BYTES, 4, FAKE_PGS)]
					    .primary == c->sds &&
			    b->h.offset < h->offset + h->length &&
			    h->offset < b->h.offset + b->h.length)
				f->overlaps++;
	}
}

static void reply(struct fake *f, struct fake_conn *c, const struct ash_hdr *req, uint16_t status,
		  const void *data, uint32_t bytes)
{
	struct fake_event *e;
	struct ash_hdr h = *req;
	uint32_t crcs = 0, n;

	h.flags |= ASH_F_REPLY;
	h.status = status;
	h.place_version = f->version;
	if (!(h.op == ASH_OP_READ && status == ASH_ST_OK))
		h.length = bytes;
	assert(ash_hdr_payload(&h, &crcs, &n) >= 0 && n == bytes);
	if (c->dead || c->closed)
		return;
	e = event_new(f, wire_delay(f, c), bytes, reply_event);
	e->conn = c;
	e->h = h;
	e->crcs = crcs;
	if (bytes)
		memcpy(e->data, data, bytes);
	if (crcs)
		ash_crc32c_pieces(e->data, h.offset, bytes, e->crc);
}

static void set_zero(struct fake *f, const struct ash_hdr *h)
{
	memset(f->store + h->offset, 0, h->length);
	for (uint64_t b = (h->offset + 4095) / 4096; b < (h->offset + h->length) / 4096; b++)
		f->states[b] = ASH_BLK_ZERO;
}

static void execute(struct fake *f, const struct fake_event *e)
{
	const struct ash_hdr *h = &e->h;

	if (h->op == ASH_OP_WRITE) {
		memcpy(f->store + h->offset, e->data, h->length);
		for (uint64_t b = h->offset / 4096; b <= (h->offset + h->length - 1) / 4096; b++)
			f->states[b] = ASH_BLK_DATA;
	} else if (write_like(h)) {
		set_zero(f, h);
	}
	if (write_like(h))
		for (uint64_t b = h->offset / 4096; b <= (h->offset + h->length - 1) / 4096; b++)
			f->flushed[b] = 0;
}

static void send_stale(struct fake *f, struct fake_conn *c, const struct ash_hdr *h, uint32_t pg)
{
	struct ash_wire_row w;
	int primary = f->row[pg].primary;

	memset(&w, 0, sizeof(w));
	w.pool = ash_put64(POOL);
	w.gen = ash_put64(f->row[pg].gen);
	w.pg = ash_put32(pg);
	w.replicas = 2;
	w.primary = primary < 0 ? 255 : 0;
	for (int r = 0; r < 2; r++) {
		int sds = r == 0 ? (primary < 0 ? (int)pg % FAKE_SDSS : primary) : second(f, pg);

		w.replica[r].device = ash_put64(DEV0 + (uint64_t)sds);
		w.replica[r].sds = ash_put64(SDS0 + (uint64_t)sds);
		w.replica[r].endpoint.ip[15] = (uint8_t)sds;
		w.replica[r].endpoint.port = ash_put16(7072);
		w.replica[r].state = primary < 0 ? ASH_REPLICA_ABSENT : ASH_REPLICA_IN_SYNC;
	}
	reply(f, c, h, ASH_ST_STALE, &w, sizeof(w));
}

/* Makes durable whatever lies on this SDS, and the second copies of what it leads. */
static void flush(struct fake *f, int sds)
{
	f->sds[sds].flushes++;
	for (uint64_t i = 0; i < FAKE_BYTES / 4096; i++) {
		uint32_t pg = ash_chunk_pg(0, i / 256, 4, FAKE_PGS);

		f->flushed[i] |= (uint8_t)(1 << sds);
		if (f->row[pg].primary == sds)
			f->flushed[i] |= (uint8_t)(1 << second(f, pg));
	}
}

bool fake_all_flushed(const struct fake *f)
{
	for (uint64_t i = 0; i < FAKE_BYTES / 4096; i++) {
		uint32_t pg = ash_chunk_pg(0, i / 256, 4, FAKE_PGS);

		if (!(f->flushed[i] & 1 << f->row[pg].primary))
			return false;
	}
	return true;
}

/* Fence, then carry out. Returns false when refused (and answers). */
static bool begin(struct fake *f, struct fake_conn *c, struct fake_event *e)
{
	const struct ash_hdr *h = &e->h;
	struct fake_sds *s = &f->sds[e->sds];
	uint32_t pg = ash_chunk_pg(0, h->offset / ASH_CHUNK_BYTES, 4, FAKE_PGS);

	if (h->path < s->path ||
	    (h->op != ASH_OP_FLUSH && (h->gen != f->row[pg].gen || f->row[pg].primary != e->sds))) {
		f->refused_late += c->dead || c->closed;
		send_stale(f, c, h, pg);
		return false;
	}
	if (h->mark < f->epoch) {
		reply(f, c, h, ASH_ST_FENCED, NULL, 0);
		return false;
	}
	assert(h->mark == f->epoch && h->node == NODE);
	return true;
}

static void serve(struct fake *f, struct fake_event *e, enum fake_act act)
{
	const struct ash_hdr *h = &e->h;
	struct fake_conn *c = e->conn;

	if (!begin(f, c, e))
		return;
	f->late_served += c->dead || c->closed;
	f->sds[e->sds].served++;
	if (h->op == ASH_OP_WRITE && ash_crc32c_check(e->data, h->offset, h->length, e->crc) >= 0) {
		reply(f, c, h, ASH_ST_BADSUM, NULL, 0);
		return;
	}
	execute(f, e);
	if (act == FAKE_DROP)
		return;
	if (h->op == ASH_OP_READ) {
		reply(f, c, h, ASH_ST_OK, f->store + h->offset, h->length);
	} else if (h->op == ASH_OP_STATUS) {
		reply(f, c, h, ASH_ST_OK, f->states + h->offset / 4096,
		      ash_pieces(h->offset, h->length));
	} else {
		if (h->op == ASH_OP_FLUSH)
			flush(f, e->sds);
		reply(f, c, h, ASH_ST_OK, NULL, 0);
	}
}

static void on_hello(struct fake *f, struct fake_event *e)
{
	struct fake_sds *s = &f->sds[e->sds];
	struct ash_wire_hello w;
	struct ash_hello hello;

	assert(e->h.op == ASH_OP_HELLO && e->h.tag == 0);
	assert(ash_hello_decode(e->data, e->bytes, &hello) == 0);
	assert(hello.sender == FAKE_SDC_ID && hello.sender_kind == ASH_SENDER_SDC);
	if (s->session != hello.session) {
		s->session = hello.session;
		s->path = 0;
	}
	assert(hello.path > s->path); /* raised at each connection */
	s->path = hello.path;
	s->hellos++;
	f->hellos++;
	e->conn->said_hello = true;
	hello.sender = SDS0 + (uint64_t)e->sds + (s->wrong_identity ? 1 : 0);
	hello.sender_kind = ASH_SENDER_SDS;
	ash_hello_encode(&hello, &w);
	reply(f, e->conn, &e->h, ASH_ST_OK, &w, sizeof(w));
}

/* A message reaches an SDS. */
static void sds_event(struct fake *f, struct fake_event *e)
{
	struct fake_conn *c = e->conn;
	struct fake_sds *s = &f->sds[e->sds];
	enum fake_act act = FAKE_SERVE;
	bool gone = c->dead || c->closed;

	if (!s->up || s->mute || (gone && (!f->late_delivery || !c->said_hello)))
		return;
	if (!c->said_hello) {
		on_hello(f, e);
		return;
	}
	if (f->hook && !gone)
		act = f->hook(f, e->sds, &e->h);
	if (write_like(&e->h) && !gone) {
		struct fake_event *copy = calloc(1, sizeof(*copy));

		check_overlap(f, &e->h);
		copy->h = e->h;
		copy->next = c->begun;
		c->begun = copy;
	}
	if (act >= FAKE_STATUS) {
		reply(f, c, &e->h, (uint16_t)(act - FAKE_STATUS), NULL, 0);
	} else if (act == FAKE_BREAK) {
		conn_down(c);
	} else if (act != FAKE_LOSE) {
		serve(f, e, act);
		if (act == FAKE_TWICE)
			serve(f, e, act);
		if (act == FAKE_ROT)
			for (struct fake_event *r = f->events; r; r = r->next)
				if (r->fn == reply_event && r->h.tag == e->h.tag && r->bytes)
					r->data[ash_prng_below(&f->rng, r->bytes)] ^= 0x40;
	}
}

static void forget_begun(struct fake_conn *c, uint64_t tag)
{
	struct fake_event **at = &c->begun, *b;

	while ((b = *at)) {
		if (b->h.tag == tag) {
			*at = b->next;
			free(b);
		} else {
			at = &b->next;
		}
	}
}

static void reply_event(struct fake *f, struct fake_event *e)
{
	struct fake_conn *c = e->conn;
	struct ash_msg *m;
	uint8_t *data = NULL;
	uint32_t *crc = NULL;

	if (c->dead || c->closed)
		return;
	forget_begun(c, e->h.tag);
	m = msg_alloc(&f->net);
	m->h = e->h;
	m->data_bytes = e->bytes;
	m->crcs = e->crcs;
	if (!e->crcs || ash_prng_below(&f->rng, 100) >= f->place_chance ||
	    !c->c.events->on_place(&c->c, &m->h, &data, &crc)) {
		m->buf = e->bytes ? ash_buf_get(f->port.bufs,
						e->bytes + 4096 > 1048576 ? 1048576 : e->bytes,
						ASH_BUF_PEER)
				  : NULL;
		assert(m->buf || !e->bytes);
		data = m->buf ? m->buf->base : NULL;
		crc = m->buf ? m->buf->crc : NULL;
	}
	m->data = data;
	m->crc = crc;
	if (e->bytes)
		memcpy(data, e->data, e->bytes);
	if (e->crcs)
		memcpy(crc, e->crc, e->crcs * 4);
	c->c.events->on_msg(&c->c, m);
}

/* ------------------------------------------------------------ set-up */

void fake_init(struct fake *f, uint64_t seed)
{
	memset(f, 0, sizeof(*f));
	ash_prng_seed(&f->rng, seed);
	ash_timers_init(&f->timers);
	f->now = FAKE_SEC;
	f->tasks_end = &f->tasks;
	f->port = (struct ash_port){.timers = &f->timers,
				    .now_ns = port_now,
				    .rand64 = port_rand,
				    .trace = port_trace,
				    .post = port_post,
				    .net = &f->net,
				    .bufs = ash_bufs_new(32 << 20)};
	f->net.ops = &net_ops;
	f->ctl.ops = &ctl_ops;
	f->ctl.events = &sdc_ctl_events;
	f->version = 10;
	f->size = FAKE_BYTES;
	f->mapped = true;
	f->latency_ns = 50000;
	f->place_chance = 50;
	f->store = calloc(1, FAKE_BYTES);
	f->states = calloc(1, FAKE_BYTES / 4096);
	f->flushed = malloc(FAKE_BYTES / 4096);
	memset(f->flushed, 0xff, FAKE_BYTES / 4096);
	for (int i = 0; i < FAKE_SDSS; i++)
		f->sds[i].up = true;
	for (uint32_t pg = 0; pg < FAKE_PGS; pg++)
		f->row[pg] = (struct fake_row){5, (int)pg % FAKE_SDSS};
}

struct sdc *fake_sdc(struct fake *f, const struct sdc_cfg *cfg)
{
	struct sdc_cfg def = {.name = "sdc1", .session = 77, .requests = 64};

	f->sdc = sdc_new(&f->port, &f->ctl, cfg ? cfg : &def);
	assert(f->sdc);
	f->ctl.owner = f->sdc;
	fake_ctl_set(f, true);
	return f->sdc;
}

static void set_flag(void *arg)
{
	*(bool *)arg = true;
}

void fake_done(struct fake *f)
{
	bool stopped = false;
	struct fake_event *e;
	struct fake_conn *c;

	if (f->sdc) {
		sdc_stop(f->sdc, set_flag, &stopped);
		fake_run(f, 60 * FAKE_SEC, &stopped);
		assert(stopped);
		sdc_free(f->sdc);
	}
	while ((e = f->events)) {
		f->events = e->next;
		if (e->req)
			pb__request__free_unpacked(e->req, NULL);
		free(e);
	}
	while ((c = f->conn_list ? f->conn_list : f->graveyard)) {
		if (c == f->conn_list)
			f->conn_list = c->next;
		else
			f->graveyard = c->next;
		while ((e = c->begun)) {
			c->begun = e->next;
			free(e);
		}
		free(c);
	}
	assert(f->msgs == 0);
	assert(ash_bufs_in_use(f->port.bufs) == 0);
	assert(f->timers.count == 0);
	ash_bufs_free(f->port.bufs);
	ash_timers_done(&f->timers);
	free(f->store);
	free(f->states);
	free(f->flushed);
}

struct opened {
	bool done;
	int result;
	struct sdc_vol *vol;
};

static void on_open(void *arg, int result, struct sdc_vol *vol, const char *message)
{
	struct opened *o = arg;

	o->done = true;
	o->result = result;
	o->vol = vol;
}

struct sdc_vol *fake_open(struct fake *f)
{
	struct opened o = {0};

	sdc_open(f->sdc, "v1", false, 5000, on_open, &o);
	fake_run(f, 10 * FAKE_SEC, &o.done);
	assert(o.done && o.result == 0 && o.vol);
	return o.vol;
}

void fake_close(struct fake *f, struct sdc_vol *vol)
{
	bool closed = false;

	sdc_close(vol, set_flag, &closed);
	fake_run(f, 600 * FAKE_SEC, &closed);
	assert(closed);
}

static void io_done(struct sdc_io *io, int status)
{
	struct fake_io *i = ash_container_of(io, struct fake_io, io);

	assert(!i->done);
	i->done = true;
	i->status = status;
}

void fake_submit(struct sdc_vol *vol, struct fake_io *io, uint8_t kind, uint64_t offset, void *data,
		 uint64_t bytes)
{
	io->done = false;
	io->status = 1;
	io->io.kind = kind;
	io->io.offset = offset;
	io->io.bytes = bytes;
	if (data) {
		io->iov[0] = (struct iovec){data, bytes};
		io->io.iov = io->iov;
		io->io.iovcnt = 1;
	}
	io->io.done = io_done;
	sdc_submit(vol, &io->io);
}

int fake_io(struct fake *f, struct sdc_vol *vol, uint8_t kind, uint64_t offset, void *data,
	    uint64_t bytes, uint64_t ns)
{
	struct fake_io io = {0};

	fake_submit(vol, &io, kind, offset, data, bytes);
	assert(!io.done);
	fake_run(f, ns, &io.done);
	if (!io.done)
		abort(); /* its memory is on this stack */
	return io.status;
}
