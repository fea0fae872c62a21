// SPDX-License-Identifier: MIT
/* What must hold after a crash. */
#include "common/base/crc.h"
#include "tests/unit/sds/store_crash.h"

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
	struct model_chunk *c = crash_promised(t, place);
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

void crash_check_all(struct crash *t, bool twice)
{
	for (unsigned p = 0; p < MODEL_PLACES && !t->m.why[0]; p++)
		check_chunk(t, p, twice);
	check_space(t);
}

/* A block that rots at rest must be noticed if its checksum is known; a write heals it. */
void crash_rot_one(struct crash *t)
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
	crash_promised(t, place)->touched = true;
}
