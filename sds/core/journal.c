// SPDX-License-Identifier: MIT
/*
 * The metadata journal at run time. Records gather in the block being built; it is written when no
 * other block is in flight (so the batch is what came meanwhile) or when it is full. Blocks count
 * as durable in order only, because replay stops at the first one that is missing.
 */
#include "sds/core/store_int.h"

static struct sds_jbuf *building(struct sds_journal *j)
{
	return &j->b[j->next_seq % SDS_JBUFS];
}

void sds_journal_start(struct sds_store *s, uint64_t seq, uint64_t fw_last)
{
	struct sds_journal *j = &s->j;

	j->blocks = s->label.geo.journal_blocks;
	j->next_seq = j->submit_seq = seq;
	j->durable = j->newest_done = seq - 1;
	j->tail = j->durable_tail = seq;
	j->fw_last = j->fw_done = j->fw_flushed = j->sealed = j->sealed_submitted = fw_last;
	j->seal_want = fw_last;
	j->used = j->records = 0;
	j->room = SDS_JBLOCK_ROOM;
	building(j)->h.fw_first = fw_last + 1;
}

/* ------------------------------------------------------------ appending */

static uint64_t ring_limit(const struct sds_journal *j, enum sds_jclass cls)
{
	switch (cls) {
	case SDS_J_CLIENT:
		return j->blocks / 8 * 5;
	case SDS_J_PEER:
		return j->blocks / 8 * 6;
	case SDS_J_INTERNAL:
		break;
	}
	return j->blocks - 1;
}

bool sds_journal_room(struct sds_store *s, enum sds_jclass cls, size_t bytes)
{
	const struct sds_journal *j = &s->j;
	uint64_t seq = j->next_seq + (j->used + bytes > j->room);

	if (cls == SDS_J_CLIENT && s->q_journal[0].head && !s->retrying)
		return false;
	return seq - j->durable <= SDS_JBUFS && seq - j->durable_tail < ring_limit(j, cls);
}

static void close_block(struct sds_store *s)
{
	struct sds_journal *j = &s->j;
	struct sds_jbuf *b = building(j);

	b->h.seq = j->next_seq;
	b->h.bytes = (uint16_t)j->used;
	b->h.records = (uint16_t)j->records;
	j->fw_end[j->next_seq % j->blocks] = j->fw_last;
	j->next_seq++;
	j->used = j->records = 0;
}

/* Where the next @bytes go. The first-write number of a block's records starts after all that were
 * numbered before; a block's header therefore is begun with its first record. */
static uint8_t *append_at(struct sds_store *s, size_t bytes)
{
	struct sds_journal *j = &s->j;
	struct sds_jbuf *b;
	uint8_t *at;

	if (j->used + bytes > j->room)
		close_block(s);
	b = building(j);
	assert(j->next_seq - j->durable <= SDS_JBUFS && j->next_seq - j->durable_tail < j->blocks);
	if (j->records == 0)
		b->h.fw_first = j->fw_last + 1;
	at = b->buf + SDS_JHDR_BYTES + j->used;
	j->used += (uint32_t)bytes;
	j->records++;
	sds_kick(s);
	return at;
}

uint64_t sds_journal_entry(struct sds_store *s, unsigned flags, uint32_t ext, unsigned first,
			   unsigned count, const uint32_t *crc, const struct sds_entry *before)
{
	size_t bytes = sds_jrec_entry_bytes(flags & SDS_JF_FIRST ? count : 0);
	uint8_t *at = append_at(s, bytes);
	struct sds_entry *e = &s->ext[ext].e;

	e->seq = s->j.next_seq;
	if (e->birth == 0)
		e->birth = e->seq;
	sds_jrec_put_entry(at, flags, ext, first, count, e, crc, before);
	if (flags & SDS_JF_FIRST)
		s->j.fw_last++;
	sds_table_dirty(s, ext);
	return e->seq;
}

uint64_t sds_journal_hot(struct sds_store *s, uint32_t ext)
{
	uint8_t *at = append_at(s, SDS_JREC_HOT_BYTES);

	sds_jrec_put_hot(at, ext, s->ext[ext].e.node, s->ext[ext].e.chunk);
	return s->j.next_seq;
}

void sds_journal_wait(struct sds_store *s, struct sds_jwait *wait, uint64_t seq)
{
	struct ash_list *at = s->j.waits.prev;

	wait->seq = seq;
	while (at != &s->j.waits && ash_container_of(at, struct sds_jwait, link)->seq > seq)
		at = at->prev;
	ash_list_push_front(at, &wait->link);
	if (sds_journal_durable(&s->j, seq))
		sds_kick(s);
}

/* ------------------------------------------------------------ seals */

static void seal_timeout(struct ash_timer *timer)
{
	struct sds_store *s = ash_container_of(timer, struct sds_store, j.seal_timer);

	sds_want_seal(&s->j, s->j.fw_done);
	sds_store_turn(s);
}

void sds_journal_fw_done(struct sds_store *s, struct sds_opx *x)
{
	struct sds_journal *j = &s->j;

	ash_list_remove(&x->fw);
	j->fw_done = ash_list_empty(&j->fw) ? j->fw_last
					    : ash_list_first(&j->fw, struct sds_opx, fw)->fw_no - 1;
	if (j->fw_done > j->sealed_submitted && !ash_timer_is_set(&j->seal_timer)) {
		j->seal_timer.fn = seal_timeout;
		ash_timer_set(s->port->timers, &j->seal_timer,
			      s->port->turn_ns +
				      (s->disk->write_back ? SDS_SEAL_FLUSH_NS : SDS_SEAL_NS));
	}
}

static uint64_t sealable(const struct sds_store *s)
{
	return s->disk->write_back && ASH_RULE(ORDER_FLUSH) ? s->j.fw_flushed : s->j.fw_done;
}

/* Somebody waits for first writes to be sealed: flush if that is missing, then write a block. */
static void seal_run(struct sds_store *s)
{
	struct sds_journal *j = &s->j;

	if (j->seal_want <= j->sealed_submitted)
		return;
	if (sealable(s) >= j->seal_want)
		j->force = true;
	else if (j->fw_done >= j->seal_want && !(s->flush_inflight && s->flush_fw >= j->seal_want))
		sds_flush_ticket(s);
}

/* ------------------------------------------------------------ writing */

static void run_waits(struct sds_store *s)
{
	struct sds_journal *j = &s->j;

	while (!s->failed && !ash_list_empty(&j->waits)) {
		struct sds_jwait *wait = ash_list_first(&j->waits, struct sds_jwait, link);

		if (!sds_journal_durable(j, wait->seq))
			break;
		ash_list_remove(&wait->link);
		wait->fn(s, wait);
		s->again = true;
	}
}

static void block_durable(struct sds_store *s, const struct sds_jbuf *b)
{
	struct sds_journal *j = &s->j;

	j->durable = b->h.seq;
	s->wake_journal = true;
	s->again = true;
	if (b->h.sealed > j->sealed) {
		j->sealed = b->h.sealed;
		s->wake_seal = true;
	}
	if (b->h.tail > j->durable_tail)
		j->durable_tail = b->h.tail;
}

static void write_done(struct ash_disk_op *d, int result)
{
	struct sds_store *s = d->owner;
	struct sds_journal *j = &s->j;
	struct sds_jbuf *b = ash_container_of(sds_io_of(d), struct sds_jbuf, io);

	if (sds_io_end(s, &b->io))
		return;
	j->inflight--;
	b->done = true;
	if (result) {
		sds_fail(s, result, "journal");
	} else if (!s->failed) {
		s->stats.journal_blocks++;
		if (b->h.seq > j->newest_done)
			j->newest_done = b->h.seq;
		while (j->durable + 1 < j->submit_seq && j->b[(j->durable + 1) % SDS_JBUFS].done)
			block_durable(s, &j->b[(j->durable + 1) % SDS_JBUFS]);
	}
	sds_store_turn(s);
}

static void submit_block(struct sds_store *s)
{
	struct sds_journal *j = &s->j;
	struct sds_jbuf *b = &j->b[j->submit_seq % SDS_JBUFS];
	bool fua = s->disk->write_back && ASH_RULE(ORDER_FLUSH);

	b->h.incarnation = s->label.label.incarnation;
	memcpy(b->h.device_uuid, s->label.label.device_uuid, 16);
	b->h.sealed = sealable(s);
	b->h.tail = j->tail;
	b->h.durable = j->durable;
	b->done = false;
	if (b->h.sealed > j->sealed_submitted)
		j->sealed_submitted = b->h.sealed;
	sds_jblock_encode(&b->h, b->buf);
	b->io.d.buf_index = -1;
	j->force = false; /* seal and tail ride in any block */
	j->submit_seq++;
	j->inflight++;
	sds_io_submit(s, &b->io, ASH_DISK_WRITE,
		      s->label.geo.journal_offset + b->h.seq % j->blocks * ASH_BLOCK_BYTES, b->buf,
		      ASH_BLOCK_BYTES, fua, write_done);
}

void sds_journal_run(struct sds_store *s)
{
	struct sds_journal *j = &s->j;

	run_waits(s);
	seal_run(s);
	if (s->failed)
		return;
	if ((j->records || j->force) && !j->inflight && j->submit_seq == j->next_seq &&
	    j->next_seq - j->durable_tail < j->blocks) {
		if (j->records == 0)
			building(j)->h.fw_first = j->fw_last + 1;
		close_block(s);
	}
	while (j->submit_seq < j->next_seq && j->inflight < SDS_JFLY)
		submit_block(s);
}
