// SPDX-License-Identifier: MIT
/*
 * Extent table and checkpoint. The journal's tail moves in steps of a quarter ring once half of it
 * is in use: table blocks changed before the new tail are written and flushed, activity-log entries
 * whose last record lies before it are recorded again, and all first writes before it are sealed.
 * One write per table block at a time; an image is written only after the journal records that it
 * shows are durable.
 */
#include <stdlib.h>

#include "sds/core/store_int.h"

int sds_ckpt_init(struct sds_store *s)
{
	struct sds_ckpt *ck = &s->ck;

	ck->first_dirty = ck->last_dirty = SDS_NONE;
	ck->blocks = calloc(s->label.geo.table_blocks, sizeof(*ck->blocks));
	if (!ck->blocks)
		return -ENOMEM;
	for (unsigned i = 0; i < SDS_TBUFS; i++) {
		ck->bufs[i].buf = sds_aligned(ASH_BLOCK_BYTES);
		if (!ck->bufs[i].buf)
			return -ENOMEM;
		ash_list_init(&ck->bufs[i].wait.link);
		ck->bufs[i].next = ck->free;
		ck->free = &ck->bufs[i];
	}
	return 0;
}

void sds_ckpt_done(struct sds_store *s)
{
	for (unsigned i = 0; i < SDS_TBUFS; i++)
		free(s->ck.bufs[i].buf);
	free(s->ck.blocks);
}

void sds_table_dirty(struct sds_store *s, uint32_t ext)
{
	struct sds_ckpt *ck = &s->ck;
	uint32_t block = ext / SDS_ENTRIES_PER_BLOCK;
	struct sds_tblock *b = &ck->blocks[block];

	if (b->dirty_from)
		return;
	b->dirty_from = s->j.next_seq;
	b->next = SDS_NONE;
	if (ck->last_dirty == SDS_NONE)
		ck->first_dirty = block;
	else
		ck->blocks[ck->last_dirty].next = block;
	ck->last_dirty = block;
}

/* ------------------------------------------------------------ table blocks */

static void table_written(struct ash_disk_op *d, int result)
{
	struct sds_store *s = d->owner;
	struct sds_tbuf *t = ash_container_of(sds_io_of(d), struct sds_tbuf, io);

	if (sds_io_end(s, &t->io))
		return;
	s->ck.blocks[t->block].writing = false;
	s->ck.writing--;
	t->next = s->ck.free;
	s->ck.free = t;
	if (result)
		sds_fail(s, result, "extent table");
	sds_store_turn(s);
}

static void table_submit(struct sds_store *s, struct sds_jwait *wait)
{
	struct sds_tbuf *t = ash_container_of(wait, struct sds_tbuf, wait);

	t->io.d.buf_index = -1;
	sds_io_submit(s, &t->io, ASH_DISK_WRITE,
		      s->label.geo.table_offset + (uint64_t)t->block * ASH_BLOCK_BYTES, t->buf,
		      ASH_BLOCK_BYTES, false, table_written);
}

static void table_write(struct sds_store *s)
{
	struct sds_ckpt *ck = &s->ck;
	struct sds_tbuf *t = ck->free;
	uint32_t block = ck->first_dirty, first = block * SDS_ENTRIES_PER_BLOCK;
	uint64_t wal = 0;

	ck->free = t->next;
	ck->first_dirty = ck->blocks[block].next;
	if (ck->first_dirty == SDS_NONE)
		ck->last_dirty = SDS_NONE;
	ck->blocks[block].dirty_from = 0;
	ck->blocks[block].writing = true;
	ck->writing++;
	t->block = block;
	memset(t->buf, 0, ASH_BLOCK_BYTES);
	for (uint32_t i = 0; i < SDS_ENTRIES_PER_BLOCK && first + i < s->extents; i++) {
		const struct sds_entry *e = &s->ext[first + i].e;

		sds_entry_encode(e, t->buf + (size_t)i * SDS_ENTRY_BYTES);
		if (e->seq > wal)
			wal = e->seq;
	}
	if (sds_journal_durable(&s->j, wal) || !ASH_RULE(TABLE_WAL)) {
		table_submit(s, &t->wait);
	} else {
		t->wait.fn = table_submit;
		sds_journal_wait(s, &t->wait, wal);
	}
}

/* True when no block changed before the target is dirty or on its way. */
static bool write_tables(struct sds_store *s)
{
	struct sds_ckpt *ck = &s->ck;

	while (ck->first_dirty != SDS_NONE && ck->blocks[ck->first_dirty].dirty_from < ck->target) {
		if (!ck->free || ck->blocks[ck->first_dirty].writing)
			return false;
		table_write(s);
		ck->flushing = false;
	}
	return ck->writing == 0;
}

/* ------------------------------------------------------------ moving the tail */

/* True when every hot chunk has a durable record at or after the target. */
static bool carry_forward(struct sds_store *s)
{
	struct sds_ckpt *ck = &s->ck;

	while (!ash_list_empty(&s->al.age)) {
		struct sds_slot *slot = ash_list_first(&s->al.age, struct sds_slot, age);

		if (slot->age_seq >= ck->target)
			break;
		if (slot->state == SDS_SLOT_GONE)
			return false; /* its last record is on its way */
		if (!ASH_RULE(AL_CARRY)) {
			sds_al_recorded(s, slot, s->j.next_seq, false);
			continue;
		}
		if (!sds_journal_room(s, SDS_J_INTERNAL, SDS_JREC_HOT_BYTES))
			return false;
		ck->carry_seq = sds_journal_hot(s, slot->ext);
		sds_al_recorded(s, slot, ck->carry_seq, false);
	}
	return sds_journal_durable(&s->j, ck->carry_seq);
}

static bool sealed(struct sds_store *s)
{
	uint64_t need = s->j.fw_end[(s->ck.target - 1) % s->j.blocks];

	if (s->j.sealed >= need || !ASH_RULE(TAIL_SEAL))
		return true;
	sds_want_seal(&s->j, need);
	return false;
}

static bool tables_flushed(struct sds_store *s)
{
	struct sds_ckpt *ck = &s->ck;

	if (!write_tables(s))
		return !ASH_RULE(TAIL_MOVE);
	if (!ck->flushing) {
		ck->flushing = true;
		ck->flush_ticket = ASH_RULE(ORDER_FLUSH) ? sds_flush_ticket(s) : 0;
	}
	return sds_flush_passed(s, ck->flush_ticket) || !ASH_RULE(TAIL_MOVE);
}

void sds_ckpt_run(struct sds_store *s)
{
	struct sds_ckpt *ck = &s->ck;
	struct sds_journal *j = &s->j;
	bool ready;

	if (ck->target && ck->moved && j->durable_tail >= ck->target) {
		ck->target = 0;
		s->stats.checkpoints++;
		s->wake_journal = s->again = true;
	}
	if (!ck->target) {
		if (j->next_seq - j->durable_tail <= j->blocks / 2)
			return;
		ck->target = j->durable_tail + j->blocks / 4;
		ck->moved = ck->flushing = false;
		ck->carry_seq = 0;
	}
	if (ck->moved)
		return;
	ready = sealed(s);
	ready &= carry_forward(s);
	ready &= tables_flushed(s);
	if (ready) {
		j->tail = ck->target;
		j->force = true;
		ck->moved = true;
	}
}
