// SPDX-License-Identifier: MIT
/* The SDSs: one store between them, and the rules that the client relies on. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/crc.h"
#include "common/shared/chunk_pg.h"
#include "tests/unit/sdc/fake_int.h"

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
	struct ash_hdr h = one_answer(req, status, f->version, bytes);
	uint32_t crcs = 0, n;

	assert(ash_hdr_payload(&h, &crcs, &n) >= 0 && n == bytes);
	if (c->dead || c->closed)
		return;
	e = fake_event_new(f, fake_wire_delay(f, c), bytes, fake_reply_event);
	e->conn = c;
	e->h = h;
	e->crcs = crcs;
	if (bytes)
		memcpy(e->data, data, bytes);
	if (crcs)
		ash_crc32c_pieces(e->data, h.offset, bytes, e->crc);
}

static void execute(struct fake *f, const struct fake_event *e)
{
	const struct ash_hdr *h = &e->h;

	if (!one_changes(h))
		return;
	one_change(f->store, f->states, h, e->data);
	for (uint64_t b = h->offset / 4096; b <= (h->offset + h->length - 1) / 4096; b++)
		f->flushed[b] = 0;
}

static void send_stale(struct fake *f, struct fake_conn *c, const struct ash_hdr *h, uint32_t pg)
{
	struct ash_wire_row w;
	int primary = f->row[pg].primary;

	memset(&w, 0, sizeof(w));
	w.pool = ash_put64(ONE_POOL);
	w.gen = ash_put64(f->row[pg].gen);
	w.pg = ash_put32(pg);
	w.replicas = 2;
	w.primary = primary < 0 ? 255 : 0;
	for (int r = 0; r < 2; r++) {
		int sds = fake_copy(f, pg, r);

		w.replica[r].device = ash_put64(ONE_DEV + (uint64_t)sds);
		w.replica[r].sds = ash_put64(ONE_SDS + (uint64_t)sds);
		w.replica[r].endpoint.ip[15] = (uint8_t)sds;
		w.replica[r].endpoint.port = ash_put16(FAKE_PORT);
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
			f->flushed[i] |= (uint8_t)(1 << fake_copy(f, pg, 1));
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
	assert(h->mark == f->epoch && h->node == ONE_NODE);
	return true;
}

static void serve(struct fake *f, struct fake_event *e, enum fake_act act)
{
	const struct ash_hdr *h = &e->h;
	struct fake_conn *c = e->conn;
	const uint8_t *data;
	uint32_t bytes;

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
	if (h->op == ASH_OP_FLUSH)
		flush(f, e->sds);
	data = one_answer_data(f->store, f->states, h, &bytes);
	reply(f, c, h, ASH_ST_OK, data, bytes);
}

static void on_hello(struct fake *f, struct fake_event *e)
{
	struct fake_sds *s = &f->sds[e->sds];
	struct ash_wire_hello w;

	one_hello(&e->h, e->data, e->bytes,
		  ONE_SDS + (uint64_t)e->sds + (s->wrong_identity ? 1 : 0), &s->session, &s->path,
		  &w);
	s->hellos++;
	f->hellos++;
	e->conn->said_hello = true;
	reply(f, e->conn, &e->h, ASH_ST_OK, &w, sizeof(w));
}

void fake_sds_event(struct fake *f, struct fake_event *e)
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
	if (one_changes(&e->h) && !gone) {
		struct fake_event *copy = calloc(1, sizeof(*copy));

		check_overlap(f, &e->h);
		copy->h = e->h;
		copy->next = c->begun;
		c->begun = copy;
	}
	if (act >= FAKE_STATUS) {
		reply(f, c, &e->h, (uint16_t)(act - FAKE_STATUS), NULL, 0);
	} else if (act == FAKE_BREAK) {
		fake_conn_down(c);
	} else if (act != FAKE_LOSE) {
		serve(f, e, act);
		if (act == FAKE_TWICE)
			serve(f, e, act);
		if (act == FAKE_ROT)
			for (struct fake_event *r = f->events; r; r = r->next)
				if (r->fn == fake_reply_event && r->h.tag == e->h.tag && r->bytes)
					r->data[ash_prng_below(&f->rng, r->bytes)] ^= 0x40;
	}
}
