// SPDX-License-Identifier: MIT
/*
 * Crash points: a random workload against a model, the power cut at a random moment, the store
 * opened again and compared, over and over on one disk.
 *
 *   ashlar-crashtest [--points N] [--seed S] [--leave-out RULE] [--all-rules] [--verbose]
 *
 * One seed runs a number of points on a disk with a write-through cache, the next on one with a
 * volatile cache. Prints the seed and the place of the first violation and exits 1. With
 * --leave-out a violation is what is wanted: exit 0 if one was found.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clean.h"
#include "common/base/crc.h"
#include "tests/unit/sds/store_model.h"
#include "tests/unit/sds/store_rig.h"

#define DISK_BYTES ((2u << 20) + (1u << 20) + (16u << 20))
#define EXTENTS 11u
#define INFLIGHT 48u
#define POINTS_PER_SEED 60u

struct flight {
	struct sds_store_op op; /* first */
	struct crash *t;
	uint8_t *data;
	uint32_t crc[ASH_CHUNK_BLOCKS];
	uint8_t state[ASH_CHUNK_BLOCKS];
	unsigned place, first, count; /* blocks of the model */
	uint32_t ver;
	uint64_t mark;
	uint32_t was_data; /* bit per block: had data when this began */
	bool used;
};

enum fault { FAULT_NONE, FAULT_DATA, FAULT_READ, FAULT_META, FAULT_FLUSH };

struct counts {
	uint64_t failed_data, failed_store, points, ops, reads, inflight, changed, torn, second,
		closes, rots, nospace;
	uint64_t unknown, checkpoints, evictions, lost_pages;
};

struct crash {
	struct rig r;
	struct model m;
	struct flight f[INFLIGHT];
	unsigned inflight, depth, places, first_place;
	enum fault fault;
	unsigned fault_in; /* operations from now */
	bool fault_hit;
	unsigned weight_write, weight_clear; /* of this cycle */
	bool stamping, small_blocks;
	struct sds_chunk_info stamp_list[4];
	unsigned stamp_count;
	uint64_t stamp_gen, stamp_birth[4];
	struct counts *n;
};

static uint64_t below(struct crash *t, uint64_t n)
{
	return ash_prng_below(&t->r.w.rng, n);
}

/* ------------------------------------------------------------ operations of the workload */

static void compare_read(struct crash *t, struct flight *f, int status)
{
	struct model *m = &t->m;

	if ((status == -EIO && t->fault_hit) ||
	    (status == -EBADMSG &&
	     m->c[f->place].b[f->first + f->op.bad_block - f->op.first_block].hurt))
		return;
	for (unsigned i = 0; i < f->count; i++) {
		const struct model_block *b = &m->c[f->place].b[f->first + i];
		uint32_t want[8], got[8];

		model_now(b, want);
		if (want[0] == MODEL_BAD) {
			if (status != -ENODATA)
				model_violation(m, "place %u: bad block read as %d", f->place,
						status);
			continue;
		}
		if (status && status != -ENODATA)
			model_violation(m, "place %u block %u: read gives %d", f->place,
					f->first + i, status);
		if (!model_parse(m, f->data + (size_t)i * ASH_BLOCK_BYTES, f->place, f->first + i,
				 got))
			return;
		if (memcmp(want, got, sizeof(want)) && !(b->hurt && model_may_be(b, got)))
			model_violation(m, "place %u block %u: read version %u, want %u", f->place,
					f->first + i, got[0], want[0]);
		if (!b->hurt &&
		    f->crc[i] != ash_crc32c(f->data + (size_t)i * ASH_BLOCK_BYTES, ASH_BLOCK_BYTES))
			model_violation(m, "place %u block %u: checksum given is wrong", f->place,
					f->first + i);
	}
	t->n->reads++;
}

static bool had_data(const struct model_block *b)
{
	uint32_t now[8];

	model_now(b, now);
	return now[0] != 0;
}

/* What was promised for a chunk holds for the extent it had then. */
static struct model_chunk *promised(struct crash *t, unsigned place)
{
	struct model_chunk *c = &t->m.c[place];
	uint32_t ext = sds_index_find(t->r.store, model_node(place), model_chunk_of(place));
	uint64_t birth = ext == SDS_NONE ? 0 : t->r.store->ext[ext].e.birth * EXTENTS + ext;

	if (birth != c->birth) {
		c->touched = false;
		c->need_stamp = 0;
		c->birth = birth;
	}
	return c;
}

static void chunk_changed(struct crash *t, struct flight *f)
{
	struct model_chunk *c = promised(t, f->place);
	struct sds_chunk_info info;

	if (c->birth == 0 || (sds_opx(&f->op)->flags & SDS_X_FREE))
		return;
	if (f->op.shrunk_at > c->need_stamp)
		c->need_stamp = f->op.shrunk_at;
	c->touched = true;
	if (sds_store_lookup(t->r.store, f->op.node, f->op.chunk, &info) &&
	    info.stamp < c->need_stamp)
		model_violation(&t->m, "place %u kind %u: stamp %llu, must be %llu", f->place,
				f->op.kind, (unsigned long long)info.stamp,
				(unsigned long long)c->need_stamp);
}

static void op_done(struct sds_store_op *op, int status)
{
	struct flight *f = (struct flight *)(void *)op;
	struct crash *t = f->t;
	bool durable = op->kind != SDS_STORE_WRITE || op->fua;

	f->used = false;
	t->inflight--;
	if (op->kind == SDS_STORE_FLUSH) {
		if (status && !t->fault_hit)
			model_violation(&t->m, "flush gives %d", status);
		else if (!status)
			model_flushed(&t->m, f->mark);
		return;
	}
	t->m.c[f->place].busy--;
	if (op->kind == SDS_STORE_READ && (status != -ENODEV || !t->fault_hit))
		compare_read(t, f, status);
	else if (status && status != -ENOSPC && !t->fault_hit)
		model_violation(&t->m, "kind %u gives %d", op->kind, status);
	t->n->nospace += status == -ENOSPC;
	t->n->failed_data += status == -EIO;
	for (unsigned i = 0; i < f->count; i++) {
		struct model_block *b = &t->m.c[f->place].b[f->first + i];

		if (op->kind == SDS_STORE_READ)
			b->busy = false;
		else if (status == -ENODEV)
			model_unknown(b, false);
		else if (status == -EIO && (f->was_data >> i & 1))
			model_unknown(b, true);
		else if (status)
			model_fail(b);
		else
			model_ack(&t->m, b, durable);
	}
	if (op->kind != SDS_STORE_READ && !status && f->mark)
		chunk_changed(t, f);
}

static struct flight *flight_new(struct crash *t)
{
	for (unsigned i = 0; i < INFLIGHT; i++)
		if (!t->f[i].used)
			return &t->f[i];
	return NULL;
}

static void launch(struct crash *t, struct flight *f, unsigned kind)
{
	struct sds_store_op *op = &f->op;

	memset(op, 0, sizeof(*op));
	op->kind = (uint8_t)kind;
	op->node = model_node(f->place);
	op->chunk = model_chunk_of(f->place);
	op->first_block = (uint16_t)model_block_no(f->first);
	op->blocks = (uint16_t)f->count;
	if (f->count == MODEL_BLOCKS)
		op->blocks = ASH_CHUNK_BLOCKS;
	op->gen = t->r.gen;
	op->shrunk_at = t->r.shrunk_at;
	op->data = f->data;
	op->crc = f->crc;
	op->state = f->state;
	op->buf_index = -1;
	op->fua = below(t, 6) == 0;
	op->rebuild = below(t, 8) == 0;
	op->done = op_done;
	f->t = t;
	f->used = true;
	t->inflight++;
	t->n->ops++;
	sds_store_submit(t->r.store, op);
}

static bool range_free(struct crash *t, const struct flight *f)
{
	for (unsigned i = 0; i < f->count; i++) {
		const struct model_block *b = &t->m.c[f->place].b[f->first + i];

		if (b->busy || b->cands >= MODEL_CANDS)
			return false;
	}
	return true;
}

static unsigned choose_kind(struct crash *t)
{
	uint64_t v = below(t, 100);

	if (v < t->weight_write)
		return SDS_STORE_WRITE;
	if (v >= 100 - t->weight_clear)
		return below(t, 6) == 0	  ? SDS_STORE_DROP
		       : below(t, 3) == 0 ? SDS_STORE_UNDO
					  : SDS_STORE_DISCARD;
	v = below(t, 10);
	return v < 6 ? SDS_STORE_READ : v < 9 ? SDS_STORE_ZERO : SDS_STORE_BAD;
}

/* Whole chunks go beyond the blocks of the model; that is fine for what leaves no data. */
static void widen(struct crash *t, struct flight *f, unsigned kind)
{
	if (kind == SDS_STORE_DROP || (kind == SDS_STORE_DISCARD && below(t, 3) == 0)) {
		f->first = 0;
		f->count = MODEL_BLOCKS;
	}
}

static uint32_t data_mask(struct crash *t, const struct flight *f)
{
	uint32_t ext = sds_index_find(t->r.store, model_node(f->place), model_chunk_of(f->place));
	uint32_t mask = 0;

	for (unsigned i = 0; i < f->count && ext != SDS_NONE; i++)
		if (sds_entry_state(&t->r.store->ext[ext].e, model_block_no(f->first + i)) ==
		    ASH_BLK_DATA)
			mask |= 1u << i;
	return mask;
}

static void start_op(struct crash *t)
{
	struct flight *f = flight_new(t);
	unsigned kind = choose_kind(t);
	struct model_chunk *c;
	bool real;

	if (!f || t->inflight >= t->depth)
		return;
	f->place = (t->first_place + (unsigned)below(t, t->places)) % MODEL_PLACES;
	c = &t->m.c[f->place];
	f->first = (unsigned)below(t, MODEL_BLOCKS);
	f->count = 1 + (below(t, 3) == 0 ? (unsigned)below(t, 8) : 0);
	if (f->first < 16 && f->first + f->count > 16)
		f->count = 16 - f->first;
	if (f->first + f->count > MODEL_BLOCKS)
		f->count = MODEL_BLOCKS - f->first;
	widen(t, f, kind);
	if (!range_free(t, f) || (kind == SDS_STORE_DROP && c->busy))
		return;
	f->ver = ++t->m.version;
	f->was_data = data_mask(t, f);
	real = kind == SDS_STORE_WRITE || kind == SDS_STORE_ZERO || kind == SDS_STORE_BAD;
	for (unsigned i = 0; i < f->count; i++) {
		struct model_block *b = &c->b[f->first + i];
		uint8_t *data = f->data + (size_t)i * ASH_BLOCK_BYTES;

		real |= kind != SDS_STORE_READ && had_data(b);
		if (kind == SDS_STORE_READ) {
			b->busy = true;
			continue;
		}
		model_begin(b, kind == SDS_STORE_WRITE ? f->ver
			       : kind == SDS_STORE_BAD ? MODEL_BAD
						       : 0);
		if (kind != SDS_STORE_WRITE)
			continue;
		model_fill(data, f->place, f->first + i, f->ver);
		f->crc[i] = ash_crc32c(data, ASH_BLOCK_BYTES);
	}
	f->mark = real;
	c->busy++;
	launch(t, f, kind);
}

static void start_flush(struct crash *t)
{
	struct flight *f = flight_new(t);

	if (!f)
		return;
	f->place = f->first = f->count = 0;
	f->mark = t->m.clock;
	launch(t, f, SDS_STORE_FLUSH);
}

static bool chunk_certain(const struct model_chunk *c)
{
	for (unsigned i = 0; i < MODEL_BLOCKS; i++)
		if (c->b[i].cands)
			return false;
	return c->busy == 0;
}

static void settle_one(struct crash *t)
{
	unsigned p = (unsigned)below(t, MODEL_PLACES);

	if (!chunk_certain(&t->m.c[p]))
		return;
	sds_store_settle(t->r.store, model_node(p), model_chunk_of(p));
	promised(t, p)->touched = false;
}

static void stamp_done(void *arg, int status)
{
	struct crash *t = arg;

	t->stamping = false;
	for (unsigned i = 0; i < t->stamp_count && !status; i++) {
		const struct sds_chunk_info *info = &t->stamp_list[i];
		struct model_chunk *c = promised(t, model_place(info->node, info->chunk));

		if (c->birth && c->birth == t->stamp_birth[i] && c->need_stamp < t->stamp_gen)
			c->need_stamp = t->stamp_gen;
	}
}

static void start_stamp(struct crash *t)
{
	uint64_t cursor;

	if (t->stamping)
		return;
	t->stamp_count = sds_store_scan(t->r.store, 0, t->stamp_list, 4, &cursor);
	for (unsigned i = 0; i < t->stamp_count; i++)
		t->stamp_birth[i] =
			promised(t, model_place(t->stamp_list[i].node, t->stamp_list[i].chunk))
				->birth;
	t->stamping = true;
	t->stamp_gen = ++t->r.gen;
	sds_store_stamp(t->r.store, t->stamp_list, t->stamp_count, t->stamp_gen, stamp_done, t);
}

static void reserve_some(struct crash *t)
{
	unsigned p = (unsigned)below(t, MODEL_PLACES);
	uint64_t node = model_node(p), chunk = model_chunk_of(p);

	if (sds_store_reserve(t->r.store, node, chunk, below(t, 2)) == 0 && below(t, 2))
		sds_store_unreserve(t->r.store, node, chunk);
}

static int fault_now(void *arg, const struct ash_disk_op *op)
{
	struct crash *t = arg;
	bool data = op->offset >= t->r.store->label.geo.data_offset;
	bool fits = (t->fault == FAULT_DATA && op->kind == ASH_DISK_WRITE && data) ||
		    (t->fault == FAULT_READ && op->kind == ASH_DISK_READ && data) ||
		    (t->fault == FAULT_META && op->kind == ASH_DISK_WRITE && !data) ||
		    (t->fault == FAULT_FLUSH && op->kind == ASH_DISK_FLUSH);

	if (!fits || t->fault_in-- > 0)
		return 0;
	t->fault = FAULT_NONE;
	t->fault_hit = true;
	return -EIO;
}

static void plan_fault(struct crash *t)
{
	t->fault_hit = false;
	t->fault = below(t, 8) ? FAULT_NONE : (enum fault)(1 + below(t, 4));
	if (t->fault == FAULT_DATA && t->r.store->retired >= 2)
		t->fault = FAULT_NONE; /* each may cost an extent for good */
	t->fault_in = (unsigned)below(t, 40);
	simdisk_set_fault(t->r.disk, fault_now, t);
}

static void workload_step(struct crash *t)
{
	uint64_t v = below(t, 400);

	if (v < 240)
		start_op(t);
	else if (v < 246)
		start_flush(t);
	else if (v < 250)
		settle_one(t);
	else if (v < 252)
		start_stamp(t);
	else if (v < 254)
		t->r.shrunk_at = ++t->r.gen;
	else if (v < 256)
		reserve_some(t);
	else if (v < 260) /* many at once */
		for (unsigned i = 0; i < INFLIGHT; i++)
			start_op(t);
	else if (v < 262)
		t->first_place = (unsigned)below(t, MODEL_PLACES);
	simworld_step(&t->r.w);
}

/* ------------------------------------------------------------ after the crash */

static void observe(struct crash *t, unsigned place, unsigned i, const uint8_t *data, int status,
		    bool first)
{
	struct model_block *b = &t->m.c[place].b[i];
	struct sds_chunk_info info;
	uint32_t got[8];

	if (status == -EBADMSG && b->hurt)
		return; /* until it is written again */
	if (status == -ENODATA) {
		for (unsigned s = 0; s < 8; s++)
			got[s] = MODEL_BAD;
	} else if (status) {
		model_violation(&t->m, "place %u block %u: read after the crash gives %d", place, i,
				status);
		return;
	} else if (!model_parse(&t->m, data, place, i, got)) {
		return;
	}
	if (!first) {
		if (!b->hurt && memcmp(got, b->base, sizeof(got)))
			model_violation(&t->m, "place %u block %u: two reads differ", place, i);
		return;
	}
	for (unsigned s = 1; s < 8; s++)
		if (got[s] != got[0]) {
			t->n->torn++;
			break;
		}
	if (model_settle_crash(&t->m, place, i, got)) {
		t->n->changed++;
		if (sds_store_lookup(t->r.store, model_node(place), model_chunk_of(place), &info) &&
		    !info.unsettled)
			model_violation(&t->m,
					"place %u block %u: changed by the crash, not marked "
					"unsettled",
					place, i);
	}
}

static void check_range(struct crash *t, unsigned place, unsigned first, unsigned count, bool twice)
{
	struct rig *r = &t->r;
	int status = rig_op(r, SDS_STORE_READ, model_node(place), model_chunk_of(place),
			    model_block_no(first), count);

	t->n->unknown += r->op.unknown;
	for (unsigned i = 0; i < count && status == 0; i++)
		observe(t, place, first + i, r->data + (size_t)i * ASH_BLOCK_BYTES, 0, !twice);
	for (unsigned i = 0; i < count && status; i++) {
		int one = rig_op(r, SDS_STORE_READ, model_node(place), model_chunk_of(place),
				 model_block_no(first + i), 1);

		observe(t, place, first + i, r->data, one, !twice);
	}
}

static void check_chunk(struct crash *t, unsigned place, bool twice)
{
	struct model_chunk *c = promised(t, place);
	struct sds_chunk_info info;
	bool there = sds_store_lookup(t->r.store, model_node(place), model_chunk_of(place), &info);

	check_range(t, place, 0, 16, twice);
	check_range(t, place, 16, MODEL_BLOCKS - 16, twice);
	if (there && c->touched && !info.unsettled)
		model_violation(&t->m, "place %u: changed, not settled, but not marked", place);
	if (there && info.stamp < c->need_stamp)
		model_violation(&t->m, "place %u: stamp %llu, must be %llu", place,
				(unsigned long long)info.stamp, (unsigned long long)c->need_stamp);
	c->busy = 0;
}

/* Every extent is used by one chunk, with something in it, or free. */
static void check_space(struct crash *t)
{
	struct sds_store *s = t->r.store;
	struct sds_chunk_info list[EXTENTS + 1];
	struct sds_store_stats st;
	uint64_t cursor;
	unsigned n = sds_store_scan(s, 0, list, EXTENTS + 1, &cursor);

	sds_store_stats(s, &st);
	if (n != st.used || s->free_count + st.used + st.retired + st.pending_free != EXTENTS)
		model_violation(&t->m, "space: %u listed, %llu used, %u free, %llu pending", n,
				(unsigned long long)st.used, s->free_count,
				(unsigned long long)st.pending_free);
	for (unsigned i = 0; i < n; i++) {
		uint32_t ext = sds_index_find(s, list[i].node, list[i].chunk);

		if (ext == SDS_NONE || sds_entry_empty(&s->ext[ext].e))
			model_violation(&t->m, "space: an extent with nothing in it");
	}
}

static void check_all(struct crash *t, bool twice)
{
	for (unsigned p = 0; p < MODEL_PLACES && !t->m.why[0]; p++)
		check_chunk(t, p, twice);
	check_space(t);
}

/* A block that rots at rest must be noticed if its checksum is known; a write heals it. */
static void rot_one(struct crash *t)
{
	unsigned place = (unsigned)below(t, MODEL_PLACES), i = (unsigned)below(t, MODEL_BLOCKS);
	uint64_t node = model_node(place), chunk = model_chunk_of(place);
	uint32_t ext = sds_index_find(t->r.store, node, chunk), ver = ++t->m.version;
	struct model_block *b = &t->m.c[place].b[i];
	struct rig *r = &t->r;
	int status;

	if (ext == SDS_NONE || b->hurt ||
	    sds_entry_state(&r->store->ext[ext].e, model_block_no(i)) != ASH_BLK_DATA)
		return;
	if (rig_op(r, SDS_STORE_READ, node, chunk, model_block_no(i), 1))
		model_violation(&t->m, "place %u block %u: unreadable before it rots", place, i);
	simdisk_rot(r->disk, sds_data_offset(r->store, ext, model_block_no(i)),
		    (unsigned)below(t, 32768));
	status = rig_op(r, SDS_STORE_READ, node, chunk, model_block_no(i), 1);
	if (status != -EBADMSG && !r->op.unknown)
		model_violation(&t->m, "place %u block %u: bit rot read as good (%d)", place, i,
				status);
	t->n->rots += status == -EBADMSG;
	model_fill(r->data, place, i, ver);
	r->crc[0] = ash_crc32c(r->data, ASH_BLOCK_BYTES);
	model_begin(b, ver);
	if (rig_op(r, SDS_STORE_WRITE, node, chunk, model_block_no(i), 1) || rig_flush(r))
		model_violation(&t->m, "place %u block %u: cannot be healed", place, i);
	model_ack(&t->m, b, true);
	promised(t, place)->touched = true;
}

static bool reopen(struct crash *t)
{
	struct rig *r = &t->r;
	int status;

	/* crashes while it recovers */
	while (below(t, 5) == 0) {
		unsigned steps = (unsigned)below(t, 60);
		static const uint8_t boot[16];

		r->flag = false;
		r->store = sds_store_open(&r->w.port, simdisk_handle(r->disk), boot, NULL, NULL);
		for (unsigned i = 0; i < steps && !r->store->started; i++) {
			/* the last step would call done */
			if (r->store->recovery && r->store->j.inflight)
				break;
			simworld_step(&r->w);
		}
		rig_cut(r);
		t->n->second++;
	}
	status = rig_open(r);
	if (status)
		model_violation(&t->m, "opening gives %d", status);
	else if (t->small_blocks) /* so that several are in flight at once */
		r->store->j.room = 600;
	return status == 0;
}

static void forget_flights(struct crash *t)
{
	t->n->inflight += t->inflight;
	for (unsigned i = 0; i < INFLIGHT; i++)
		t->f[i].used = false;
	t->inflight = 0;
	t->stamping = false;
	for (unsigned p = 0; p < MODEL_PLACES; p++)
		for (unsigned i = 0; i < MODEL_BLOCKS; i++)
			t->m.c[p].b[i].busy = false;
}

static void note_stats(struct crash *t)
{
	struct sds_store_stats st;

	sds_store_stats(t->r.store, &st);
	t->n->checkpoints += st.checkpoints;
	t->n->evictions += st.al_evictions;
}

static void clean_close(struct crash *t)
{
	t->fault = FAULT_NONE;
	for (unsigned i = 0; i < RIG_STEPS && t->inflight && !t->m.why[0]; i++)
		if (!simworld_step(&t->r.w))
			break;
	if (t->inflight && !t->m.why[0])
		model_violation(&t->m, "%u operations never end", t->inflight);
	if (t->m.why[0])
		return;
	note_stats(t);
	if (rig_close(&t->r) && !t->fault_hit)
		model_violation(&t->m, "closing gives %d", t->r.result);
	if (!t->r.result)
		model_flushed(&t->m, t->m.clock);
	t->n->closes++;
	forget_flights(t);
}

static void one_point(struct crash *t)
{
	unsigned steps = (unsigned)below(t, below(t, 4) ? 400 : 40);

	t->depth = 1 + (unsigned)below(t, below(t, 4) ? 12 : INFLIGHT);
	t->first_place = (unsigned)below(t, MODEL_PLACES);
	plan_fault(t);
	t->places = 1 + (unsigned)below(t, MODEL_PLACES);
	t->weight_write = 30 + (unsigned)below(t, 50);
	t->weight_clear = 2 + (unsigned)below(t, 18);
	for (unsigned i = 0; i < steps && !t->m.why[0]; i++)
		workload_step(t);
	if (t->m.why[0])
		return;
	if (below(t, 40) == 0) {
		clean_close(t);
		if (t->m.why[0])
			return;
	} else {
		note_stats(t);
		t->n->failed_store += t->r.store->failed != 0;
		rig_cut(&t->r);
		forget_flights(t);
	}
	t->n->points++;
	if (!reopen(t))
		return;
	check_all(t, false);
	if (below(t, 4) == 0)
		check_all(t, true);
	if (!t->m.why[0] && below(t, 8) == 0) {
		rig_cut(&t->r);
		t->n->points++;
		if (!reopen(t))
			return;
		check_all(t, true);
	}
	if (!t->m.why[0] && below(t, 16) == 0)
		rot_one(t);
}

/* Return: whether a violation was found. */
static bool run_seed(uint64_t seed, unsigned points, struct counts *n, bool verbose)
{
	struct crash *t = ash_xcalloc(1, sizeof(*t));
	struct sds_format_params params = {
		.al_capacity = seed % 3 ? 4 : EXTENTS,
		.journal_blocks = seed % 5 ? 64 : 96,
		.extents = EXTENTS,
	};
	bool found;

	t->n = n;
	rig_init(&t->r, seed, DISK_BYTES, seed & 1);
	t->m.write_back = seed & 1;
	t->small_blocks = seed % 7 < 3;
	for (unsigned i = 0; i < INFLIGHT; i++) {
		t->f[i].data = sds_aligned(32 * ASH_BLOCK_BYTES);
		assert(t->f[i].data);
	}
	if (rig_format(&t->r, &params) || rig_open(&t->r))
		model_violation(&t->m, "cannot format and open: %d", t->r.result);
	for (unsigned i = 0; i < points && !t->m.why[0]; i++)
		one_point(t);
	n->lost_pages += simdisk_counts(t->r.disk)->lost_pages;
	found = t->m.why[0] != 0;
	if (found && verbose)
		printf("seed %llu (%s): %s\n", (unsigned long long)seed,
		       t->m.write_back ? "volatile cache" : "write-through", t->m.why);
	for (unsigned i = 0; i < INFLIGHT; i++)
		free(t->f[i].data);
	rig_done(&t->r);
	free(t);
	return found;
}

/* ------------------------------------------------------------ command line */

static bool run(uint64_t seed, uint64_t points, struct counts *n, bool verbose)
{
	bool found = false;

	for (; n->points < points && !found; seed++)
		found = run_seed(seed, POINTS_PER_SEED, n, verbose);
	return found;
}

static bool leave_out(const char *name)
{
#ifdef ASHLAR_TEST_SWITCHES
	int rule = ash_rule_find(name);

	if (rule < 0)
		return false;
	ash_rule_left_out[rule] = true;
	return true;
#else
	(void)name;
	return false;
#endif
}

static const char *const rules[] = {
	"SEAL",	      "ROLLBACK",    "REUSE",	       "ORDER_FLUSH",  "TAIL_MOVE", "TAIL_SEAL",
	"AL_COVER",   "AL_CARRY",    "AL_RECOVER_U",   "EVICT_U",      "STAMP",	    "TABLE_WAL",
	"LEAVE_CSUM", "CSUM_VERIFY", "JOURNAL_PREFIX", "CSUM_DISTRUST"};

/* Each rule in a process of its own. Return: rules whose absence went unnoticed. */
static int all_rules(uint64_t seed, uint64_t points)
{
	int missed = 0;

	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		int status;
		pid_t pid;

		fflush(stdout);
		pid = fork();
		if (pid == 0) {
			struct counts n = {0};
			bool found = leave_out(rules[i]);

			if (found) {
				printf("%-15s ", rules[i]);
				found = run(seed, points, &n, true);
			}
			printf("%-15s %s after %llu points\n", rules[i],
			       found ? "found" : "NOT FOUND", (unsigned long long)n.points);
			fflush(stdout);
			_exit(!found);
		}
		if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0) {
			printf("%-15s missed or died (status %d)\n", rules[i], status);
			missed++;
		}
	}
	return missed;
}

static void print_counts(const struct counts *n, double seconds)
{
	printf("points=%llu seconds=%.1f operations=%llu reads=%llu in_flight_at_cut=%llu "
	       "blocks_changed_by_cut=%llu torn=%llu cuts_while_recovering=%llu clean_closes=%llu "
	       "rots_noticed=%llu no_space=%llu unknown_checksums=%llu checkpoints=%llu "
	       "evictions=%llu pages_lost=%llu failed_data=%llu failed_store=%llu\n",
	       (unsigned long long)n->points, seconds, (unsigned long long)n->ops,
	       (unsigned long long)n->reads, (unsigned long long)n->inflight,
	       (unsigned long long)n->changed, (unsigned long long)n->torn,
	       (unsigned long long)n->second, (unsigned long long)n->closes,
	       (unsigned long long)n->rots, (unsigned long long)n->nospace,
	       (unsigned long long)n->unknown, (unsigned long long)n->checkpoints,
	       (unsigned long long)n->evictions, (unsigned long long)n->lost_pages,
	       (unsigned long long)n->failed_data, (unsigned long long)n->failed_store);
}

/* A run that met none of something has not tested it. */
static bool met_everything(const struct counts *n)
{
	return n->inflight && n->changed && n->torn && n->second && n->closes && n->rots &&
	       n->nospace && n->unknown && n->checkpoints && n->evictions && n->lost_pages &&
	       n->failed_data && n->failed_store;
}

static double now_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int usage(const char *me)
{
	fprintf(stderr,
		"usage: %s [--points N] [--seed S] [--leave-out RULE] [--all-rules]\n"
		"--leave-out and --all-rules need a build of the preset \"switches\".\n",
		me);
	return 2;
}

int main(int argc, char **argv)
{
	uint64_t points = 10000, seed = 1;
	const char *rule = NULL;
	bool every_rule = false, found;
	struct counts n = {0};
	double start = now_seconds();

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--points") && i + 1 < argc)
			points = strtoull(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
			seed = strtoull(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "--leave-out") && i + 1 < argc)
			rule = argv[++i];
		else if (!strcmp(argv[i], "--all-rules"))
			every_rule = true;
		else
			return usage(argv[0]);
	}
	if (every_rule)
		return all_rules(seed, points) != 0;
	if (rule && !leave_out(rule))
		return usage(argv[0]);
	found = run(seed, points, &n, true);
	print_counts(&n, now_seconds() - start);
	if (rule) {
		printf("rule %s left out: %s\n", rule, found ? "violation found" : "NOT NOTICED");
		return !found;
	}
	if (!found && points >= 5000 && !met_everything(&n)) {
		printf("something was never met\n");
		return 1;
	}
	return found;
}
