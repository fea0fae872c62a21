// SPDX-License-Identifier: MIT
/*
 * Operations that change blocks.
 *
 * A change of state is made in memory and appended to the journal in one go, so that the images in
 * the journal follow each other as the operations did. First-write data goes out alongside its
 * record; data over valid blocks only when the chunk's activity-log record is durable and the
 * blocks are sealed.
 */
#include "sds/core/store_int.h"

static void data_start(struct sds_store *s, struct sds_store_op *op);

static enum sds_jclass class_of(const struct sds_store_op *op)
{
	return op->rebuild || op->kind == SDS_STORE_UNDO || op->kind == SDS_STORE_DROP
		       ? SDS_J_PEER
		       : SDS_J_CLIENT;
}

static bool room(struct sds_store *s, struct sds_store_op *op, size_t bytes)
{
	enum sds_jclass cls = class_of(op);

	if (sds_journal_room(s, cls, bytes))
		return true;
	sds_queue_add(&s->q_journal[cls == SDS_J_PEER], op);
	return false;
}

static bool stamp_wanted(const struct sds_entry *e, const struct sds_store_op *op)
{
	if (!ASH_RULE(STAMP))
		return false;
	return op->stamp_exact ? e->stamp != op->gen : e->stamp < op->shrunk_at;
}

/* ------------------------------------------------------------ the end of an operation */

static void unpin_all(struct sds_store *s, struct sds_opx *x)
{
	if (x->page)
		sds_page_unpin(s, x->page);
	if (x->slot)
		sds_al_unpin(s, x->slot);
	sds_ext_unpin(s, x->ext);
}

static void finish(struct sds_store *s, struct sds_store_op *op)
{
	struct sds_opx *x = sds_opx(op);

	if (x->flags & (SDS_X_DATA | SDS_X_JOURNAL))
		return;
	if (s->failed)
		x->status = -ENODEV;
	if (op->kind == SDS_STORE_WRITE && x->status == 0) {
		for (unsigned i = 0; i < op->blocks; i++)
			sds_page_set(x->page, op->first_block + i, op->crc[i]);
		x->page->dirty = x->page->ext != SDS_NONE;
	}
	if ((x->flags & SDS_X_FREE) && !s->failed && s->ext[x->ext].freeing)
		s->ext[x->ext].free_durable = true;
	unpin_all(s, x);
	sds_op_done(s, op, x->status);
}

static void record_durable(struct sds_store *s, struct sds_jwait *wait)
{
	struct sds_opx *x = ash_container_of(wait, struct sds_opx, wait);
	struct sds_store_op *op = sds_op_of(x);

	x->flags &= ~SDS_X_JOURNAL;
	if (x->flags & SDS_X_DEFERRED) {
		x->flags &= ~SDS_X_DEFERRED;
		if (!s->failed) {
			data_start(s, op);
			return;
		}
		x->flags &= ~SDS_X_DATA;
	}
	if ((x->flags & SDS_X_FAILED) && !s->failed && !(x->flags & (SDS_X_DATA | SDS_X_SINGLE)))
		sds_change_undo(s, op);
	else
		finish(s, op);
}

/* ------------------------------------------------------------ data */

static void data_done(struct ash_disk_op *d, int result)
{
	struct sds_store *s = d->owner;
	struct sds_opx *x = ash_container_of(sds_io_of(d), struct sds_opx, io);
	struct sds_store_op *op = sds_op_of(x);

	if (sds_io_end(s, &x->io))
		return;
	x->flags &= ~SDS_X_DATA;
	if (result == -ENODEV) {
		sds_fail(s, -ENODEV, "data");
	} else if (result) {
		s->stats.medium_errors++;
		x->status = result == -ENOSPC ? -ENOSPC : -EIO;
		x->flags |= SDS_X_FAILED;
		op->bad_block = op->first_block;
	} else if (x->flags & SDS_X_FIRST) {
		sds_journal_fw_done(s, x);
	}
	if ((x->flags & SDS_X_FAILED) && !s->failed && !(x->flags & SDS_X_JOURNAL))
		sds_change_undo(s, op);
	else
		finish(s, op);
	sds_store_turn(s);
}

static void data_start(struct sds_store *s, struct sds_store_op *op)
{
	struct sds_opx *x = sds_opx(op);

	x->flags |= SDS_X_DATA;
	sds_io_submit(s, &x->io, ASH_DISK_WRITE, sds_data_offset(s, x->ext, op->first_block),
		      op->data, (uint64_t)op->blocks * ASH_BLOCK_BYTES,
		      op->fua && s->disk->write_back, data_done);
}

/* ------------------------------------------------------------ records */

static void drop_memory(struct sds_store *s, uint32_t ext)
{
	struct sds_ext *e = &s->ext[ext];

	sds_index_remove(s, ext);
	sds_al_drop(s, ext);
	sds_page_drop(s, ext);
	if (e->e.flags & SDS_EXT_UNSETTLED)
		s->stats.unsettled--;
	e->e.flags &= SDS_EXT_RETIRED;
	e->freeing = true;
	s->used--;
	s->pending_free++;
	if (!ASH_RULE(REUSE)) {
		e->free_durable = true;
		sds_space_release(s, ext);
	}
}

/* Appends the record of a change already made in memory, and waits for it. */
static void record(struct sds_store *s, struct sds_store_op *op, unsigned flags,
		   const struct sds_entry *before)
{
	struct sds_opx *x = sds_opx(op);
	bool whole = op->kind == SDS_STORE_DROP;
	uint64_t seq;

	seq = sds_journal_entry(s, flags, x->ext, whole ? 0 : op->first_block,
				whole ? ASH_CHUNK_BLOCKS : op->blocks, op->crc, before);
	if (x->slot) {
		sds_al_recorded(s, x->slot, seq, x->slot->open_seq == 0);
		if (x->flags & SDS_X_STAMP)
			x->slot->stamp_seq = seq;
	}
	x->flags |= SDS_X_JOURNAL;
	x->wait.fn = record_durable;
	sds_journal_wait(s, &x->wait, seq);
}

static void free_extent(struct sds_store *s, struct sds_store_op *op)
{
	struct sds_opx *x = sds_opx(op);

	x->flags |= SDS_X_FREE;
	drop_memory(s, x->ext);
	record(s, op, SDS_JF_FREE, NULL);
}

/* A write failed: the first-written blocks become what they were, the extent is not used again. */
void sds_change_undo(struct sds_store *s, struct sds_store_op *op)
{
	struct sds_opx *x = sds_opx(op);
	struct sds_entry *e = &s->ext[x->ext].e;

	if (!sds_journal_room(s, SDS_J_INTERNAL, sds_jrec_entry_bytes(0))) {
		sds_queue_add(&s->q_journal[1], op);
		return;
	}
	if (x->flags & SDS_X_FIRST)
		for (unsigned b = op->first_block; b < (unsigned)op->first_block + op->blocks; b++)
			sds_entry_set_state(
				e, b,
				(unsigned)((x->before_lo[b / 64] >> (b % 64) & 1) |
					   (x->before_hi[b / 64] >> (b % 64) & 1) << 1));
	if (x->status != -ENOSPC)
		e->flags |= SDS_EXT_RETIRED;
	x->flags |= SDS_X_SINGLE; /* taken back: the record's end is the operation's */
	if (sds_entry_empty(e)) {
		if (x->slot)
			sds_al_unpin(s, x->slot);
		x->slot = NULL;
		free_extent(s, op);
	} else {
		record(s, op, SDS_JF_OPEN, NULL);
	}
	if (x->flags & SDS_X_FIRST)
		sds_journal_fw_done(s, x);
}

/* ------------------------------------------------------------ WRITE */

struct plan {
	uint32_t ext; /* SDS_NONE: allocate */
	unsigned fresh, valid;
	bool open, stamp, all_inherit;
};

static void plan_blocks(const struct sds_store *s, const struct sds_store_op *op, struct plan *p)
{
	const struct sds_entry *e = &s->ext[p->ext].e;

	p->all_inherit = true;
	for (unsigned b = op->first_block; b < (unsigned)op->first_block + op->blocks; b++) {
		unsigned state = sds_entry_state(e, b);

		p->valid += state == ASH_BLK_DATA;
		p->all_inherit &= state == ASH_BLK_INHERIT;
	}
	p->fresh = op->blocks - p->valid;
}

/* Looks up or checks for space; false if the operation ended or waits. */
static bool plan(struct sds_store *s, struct sds_store_op *op, struct plan *p)
{
	memset(p, 0, sizeof(*p));
	p->ext = sds_index_find(s, op->node, op->chunk);
	op->existed = p->ext != SDS_NONE;
	if (p->ext == SDS_NONE) {
		int err = sds_space_check(s, op);

		if (err == -EAGAIN) {
			sds_queue_add(&s->q_space, op);
			sds_kick(s);
			return false;
		}
		if (err) {
			sds_op_done(s, op, err);
			return false;
		}
		p->fresh = op->blocks;
		p->open = p->all_inherit = true;
	} else {
		plan_blocks(s, op, p);
		p->open = s->ext[p->ext].slot == SDS_NONE ||
			  s->al.slots[s->ext[p->ext].slot].state == SDS_SLOT_GONE;
		p->stamp = stamp_wanted(&s->ext[p->ext].e, op);
	}
	op->first_only = p->all_inherit;
	if (!sds_al_can_get(s, p->ext)) {
		sds_queue_add(&s->q_al, op);
		sds_kick(s);
		return false;
	}
	return true;
}

/* Takes what the plan found to be there. */
static void hold(struct sds_store *s, struct sds_store_op *op, const struct plan *p)
{
	struct sds_opx *x = sds_opx(op);
	bool fresh = p->ext == SDS_NONE, open;

	x->ext = fresh ? sds_space_take(s, op) : p->ext;
	if (op->kind == SDS_STORE_WRITE || op->kind == SDS_STORE_ZERO)
		sds_space_used(s, op->node, op->chunk);
	s->ext[x->ext].io++;
	x->slot = sds_al_get(s, x->ext, &open);
	if (open)
		x->slot->open_seq = 0;
	if (op->kind == SDS_STORE_WRITE)
		x->page = sds_page_get(s, x->ext, fresh);
	if (stamp_wanted(&s->ext[x->ext].e, op)) {
		s->ext[x->ext].e.stamp = op->gen;
		x->flags |= SDS_X_STAMP;
	}
}

static bool seal_missing(struct sds_store *s, struct sds_store_op *op, const struct plan *p)
{
	struct sds_slot *slot;
	uint64_t need;

	if (p->ext == SDS_NONE || !p->valid || s->ext[p->ext].slot == SDS_NONE)
		return false;
	slot = &s->al.slots[s->ext[p->ext].slot];
	need = sds_al_unsealed(s, slot, op->first_block, op->blocks);
	if (!need)
		return false;
	sds_want_seal(&s->j, need);
	sds_queue_add(&s->q_seal, op);
	sds_kick(s);
	return true;
}

static void first_write(struct sds_store *s, struct sds_store_op *op)
{
	struct sds_opx *x = sds_opx(op);
	struct sds_entry *e = &s->ext[x->ext].e, before = *e;
	struct sds_slot *slot = x->slot;

	memcpy(x->before_lo, e->lo, sizeof(x->before_lo));
	memcpy(x->before_hi, e->hi, sizeof(x->before_hi));
	if (slot->fw_no <= s->j.sealed)
		memset(slot->unsealed, 0, sizeof(slot->unsealed));
	for (unsigned b = op->first_block; b < (unsigned)op->first_block + op->blocks; b++) {
		if (sds_entry_state(e, b) != ASH_BLK_DATA)
			slot->unsealed[b / 64] |= 1ull << (b % 64);
		sds_entry_set_state(e, b, ASH_BLK_DATA);
	}
	x->flags |= SDS_X_FIRST;
	record(s, op, SDS_JF_OPEN | SDS_JF_FIRST, &before);
	x->fw_no = slot->fw_no = s->j.fw_last;
	ash_list_push_back(&s->j.fw, &x->fw);
	s->stats.first_writes++;
}

/* All blocks are valid: a record only if the chunk is cold or its stamp is old. */
static void overwrite(struct sds_store *s, struct sds_store_op *op, const struct plan *p)
{
	struct sds_opx *x = sds_opx(op);

	if (p->stamp) {
		record(s, op, SDS_JF_OPEN, NULL);
		s->stats.cold_overwrites += p->open;
	} else if (p->open && ASH_RULE(AL_COVER)) {
		uint64_t seq = sds_journal_hot(s, x->ext);

		sds_al_recorded(s, x->slot, seq, true);
		x->flags |= SDS_X_JOURNAL;
		x->wait.fn = record_durable;
		sds_journal_wait(s, &x->wait, seq);
		s->stats.cold_overwrites++;
	} else if (!sds_journal_durable(&s->j, x->slot->open_seq) ||
		   !sds_journal_durable(&s->j, x->slot->stamp_seq)) {
		/* what another operation recorded, and this one relies on */
		x->flags |= SDS_X_JOURNAL;
		x->wait.fn = record_durable;
		sds_journal_wait(s, &x->wait,
				 x->slot->open_seq > x->slot->stamp_seq ? x->slot->open_seq
									: x->slot->stamp_seq);
	}
}

static size_t record_bytes(const struct sds_store_op *op, const struct plan *p)
{
	if (p->fresh)
		return sds_jrec_entry_bytes(op->blocks);
	if (p->stamp)
		return sds_jrec_entry_bytes(0);
	return p->open ? SDS_JREC_HOT_BYTES : 0;
}

static void write_begin(struct sds_store *s, struct sds_store_op *op)
{
	struct sds_opx *x = sds_opx(op);
	struct plan p;
	size_t bytes;

	if (!plan(s, op, &p))
		return;
	if (!sds_page_can_get(s, p.ext)) {
		sds_queue_add(&s->q_page, op);
		return;
	}
	if (seal_missing(s, op, &p))
		return;
	bytes = record_bytes(op, &p);
	if (bytes && !room(s, op, bytes))
		return;
	hold(s, op, &p);
	s->stats.writes++;
	s->stats.write_bytes += (uint64_t)op->blocks * ASH_BLOCK_BYTES;
	if (p.fresh)
		first_write(s, op);
	else
		overwrite(s, op, &p);
	if (p.valid && !sds_journal_durable(&s->j, x->slot->open_seq) && ASH_RULE(AL_COVER))
		x->flags |= SDS_X_DEFERRED | SDS_X_DATA;
	else
		data_start(s, op);
}

/* ------------------------------------------------------------ changes without data */

static void set_begin(struct sds_store *s, struct sds_store_op *op, unsigned state)
{
	struct sds_opx *x = sds_opx(op);
	struct plan p;

	if (!plan(s, op, &p) || !room(s, op, sds_jrec_entry_bytes(0)))
		return;
	hold(s, op, &p);
	for (unsigned b = op->first_block; b < (unsigned)op->first_block + op->blocks; b++)
		sds_entry_set_state(&s->ext[x->ext].e, b, state);
	record(s, op, SDS_JF_OPEN, NULL);
}

static bool empty_without(const struct sds_entry *entry, const struct sds_store_op *op)
{
	struct sds_entry e = *entry;

	for (unsigned b = op->first_block; b < (unsigned)op->first_block + op->blocks; b++)
		sds_entry_set_state(&e, b, ASH_BLK_INHERIT);
	return sds_entry_empty(&e);
}

static void clear_begin(struct sds_store *s, struct sds_store_op *op)
{
	struct sds_opx *x = sds_opx(op);
	uint32_t ext = sds_index_find(s, op->node, op->chunk);
	struct plan p = {.ext = ext};
	bool frees;

	op->existed = ext != SDS_NONE;
	if (ext != SDS_NONE && op->kind != SDS_STORE_DROP)
		plan_blocks(s, op, &p);
	if (ext == SDS_NONE || p.all_inherit) {
		sds_op_done(s, op, 0);
		return;
	}
	frees = op->kind == SDS_STORE_DROP || empty_without(&s->ext[ext].e, op);
	if (!frees && !sds_al_can_get(s, ext)) {
		sds_queue_add(&s->q_al, op);
		sds_kick(s);
		return;
	}
	if (!room(s, op, sds_jrec_entry_bytes(0)))
		return;
	if (frees) {
		x->ext = ext;
		s->ext[ext].io++;
		free_extent(s, op);
		return;
	}
	hold(s, op, &p);
	for (unsigned b = op->first_block; b < (unsigned)op->first_block + op->blocks; b++)
		sds_entry_set_state(&s->ext[ext].e, b, ASH_BLK_INHERIT);
	record(s, op, SDS_JF_OPEN, NULL);
}

void sds_change_begin(struct sds_store *s, struct sds_store_op *op)
{
	switch (op->kind) {
	case SDS_STORE_WRITE:
		write_begin(s, op);
		break;
	case SDS_STORE_ZERO:
		set_begin(s, op, ASH_BLK_ZERO);
		break;
	case SDS_STORE_BAD:
		set_begin(s, op, ASH_BLK_BAD);
		break;
	default: /* DISCARD, UNDO, DROP */
		clear_begin(s, op);
		break;
	}
}
