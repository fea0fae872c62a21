// SPDX-License-Identifier: MIT
/* The workload: operations at random, several at a time, compared with the model as they end. */
#include "common/base/crc.h"
#include "tests/unit/sds/store_crash.h"

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
struct model_chunk *crash_promised(struct crash *t, unsigned place)
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
	struct model_chunk *c = crash_promised(t, f->place);
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
	crash_promised(t, p)->touched = false;
}

static void stamp_done(void *arg, int status)
{
	struct crash *t = arg;

	t->stamping = false;
	for (unsigned i = 0; i < t->stamp_count && !status; i++) {
		const struct sds_chunk_info *info = &t->stamp_list[i];
		struct model_chunk *c = crash_promised(t, model_place(info->node, info->chunk));

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
		t->stamp_birth[i] = crash_promised(t, model_place(t->stamp_list[i].node,
								  t->stamp_list[i].chunk))
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

void crash_plan_fault(struct crash *t)
{
	t->fault_hit = false;
	t->fault = below(t, 8) ? FAULT_NONE : (enum fault)(1 + below(t, 4));
	if (t->fault == FAULT_DATA && t->r.store->retired >= 2)
		t->fault = FAULT_NONE; /* each may cost an extent for good */
	t->fault_in = (unsigned)below(t, 40);
	simdisk_set_fault(t->r.disk, fault_now, t);
}

void crash_workload_step(struct crash *t)
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
