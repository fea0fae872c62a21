// SPDX-License-Identifier: MIT
/*
 * Reads at the primary. They share their range with each other, wait for overlapping changes, and
 * are answered only under a lease of every copy in sync, looked at when the answer is ready. A
 * block that cannot be read here comes from another copy and is repaired in place.
 */
#include <errno.h>
#include <string.h>

#include "common/base/crc.h"
#include "sds/core/sds_int.h"

/* ------------------------------------------------------------ repair */

#define TO_FIX 0xffu

static int other_in_sync(const struct sds_pg *pg)
{
	for (unsigned i = 0; i < pg->row.replicas; i++)
		if (i != pg->me && pg->row.replica[i].state == ASH_REPLICA_IN_SYNC)
			return (int)i;
	return -1;
}

static bool is_bad(const struct sds_op *op, unsigned i)
{
	if (op->state[i] == ASH_BLK_BAD)
		return true;
	if (op->state[i] != ASH_BLK_DATA)
		return false;
	if (op->rd_status == -EIO && op->rd_first + i >= op->sop.bad_block)
		return true;
	return ash_crc32c(op->rd_data + (size_t)i * ASH_BLOCK_BYTES, ASH_BLOCK_BYTES) !=
	       op->rd_crc[i];
}

static void fix_next(struct sds_op *op);

static void fixed(struct sds_op *op, int status)
{
	/* What cannot be written again was read all the same. */
	if (status)
		sds_trace(op->s, ASH_LOG_WARN, "event=repair_failed node=%llu chunk=%llu error=%d",
			  (unsigned long long)op->h.node, (unsigned long long)op->chunk, status);
	fix_next(op);
}

static void fix_next(struct sds_op *op)
{
	uint16_t i = op->fix_at, end;

	while (i < op->rd_blocks && op->state[i] != TO_FIX)
		i++;
	if (i == op->rd_blocks || op->pg->role != ROLE_PRIMARY) {
		op->rd_done(op, op->pg->role == ROLE_PRIMARY ? 0 : -ESTALE);
		return;
	}
	for (end = i; end < op->rd_blocks && op->state[end] == TO_FIX; end++)
		op->state[end] = ASH_BLK_DATA;
	op->fix_at = end;
	op_store(op, SDS_STORE_WRITE, (uint16_t)(op->rd_first + i), (uint16_t)(end - i),
		 op->rd_data + (size_t)i * ASH_BLOCK_BYTES, op->rd_crc + i, fixed);
}

static void ask_copy(struct sds_op *op);

static void copy_prepare(struct sds_preq *preq)
{
	struct sds_op *op = preq->owner;

	preq->msg.h.op = ASH_OP_READ_COPY;
	preq->msg.h.gen = op->pg->row.gen;
	preq->msg.h.node = op->h.node;
	preq->msg.h.offset = op->chunk * ASH_CHUNK_BYTES + op->rd_first * ASH_BLOCK_BYTES;
	preq->msg.h.length = op->rd_blocks * ASH_BLOCK_BYTES;
}

static void take_copy(struct sds_op *op, const struct ash_msg *m)
{
	unsigned n = 0;

	for (unsigned i = 0; i < op->rd_blocks; i++) {
		size_t at = (size_t)i * ASH_BLOCK_BYTES;

		if (!is_bad(op, i))
			continue;
		memcpy(op->rd_data + at, m->data + at, ASH_BLOCK_BYTES);
		op->rd_crc[i] = m->crc[i];
		op->state[i] = TO_FIX;
		n++;
	}
	sds_trace(op->s, ASH_LOG_WARN,
		  "event=blocks_repaired node=%llu chunk=%llu first=%u blocks=%u bad=%u error=%d",
		  (unsigned long long)op->h.node, (unsigned long long)op->chunk, op->rd_first,
		  op->rd_blocks, n, op->rd_status);
	op->fix_at = 0;
	fix_next(op);
}

static void copy_answered(struct sds_preq *preq, struct ash_msg *m)
{
	struct sds_op *op = preq->owner;
	struct ash_wire_row row;

	if (m->h.status == ASH_ST_OK && m->data_bytes == op->rd_blocks * ASH_BLOCK_BYTES &&
	    m->crcs == op->rd_blocks && ash_crc32c_check(m->data, 0, m->data_bytes, m->crc) < 0) {
		take_copy(op, m);
		return;
	}
	if (m->h.status == ASH_ST_MEDIUM) {
		op->rd_done(op, op->rd_status);
		return;
	}
	if (m->h.status == ASH_ST_STALE && m->data_bytes >= sizeof(row)) {
		memcpy(&row, m->data, sizeof(row));
		mdm_take_row(op->s, &row);
	}
	ask_copy(op);
}

static void ask_copy(struct sds_op *op)
{
	struct sds_pg *pg = op->pg;
	int i = pg->role == ROLE_PRIMARY ? other_in_sync(pg) : -1;
	struct sds_peer *peer = i >= 0 ? peer_get(op->s, pg->row.replica[i].sds) : NULL;

	if (!peer) {
		op->rd_done(op, pg->role == ROLE_PRIMARY ? op->rd_status : -ESTALE);
		return;
	}
	op->copy.prepare = copy_prepare;
	op->copy.answered = copy_answered;
	preq_send_later(&peer->data, &op->copy,
			op->copy.seq && op->copy.sent_ns > op->begun_ns ? RETRY_MS * MS : 0);
}

/* The peer that was asked may have left meanwhile. */
static void copy_tick(struct sds_op *op)
{
	int i = other_in_sync(op->pg);

	if (op->pg->role == ROLE_PRIMARY && i >= 0 &&
	    op->pg->row.replica[i].sds == op->copy.on->peer->sds)
		return;
	preq_cancel(&op->copy);
	if (op->copy.in_transport)
		link_close(op->copy.on); /* gives it back */
	ask_copy(op);
}

static void blocks_read(struct sds_op *op, int status)
{
	if (!status || status == -ENODEV || other_in_sync(op->pg) < 0) {
		op->rd_done(op, status);
		return;
	}
	op->rd_status = status;
	ask_copy(op);
}

void op_read_blocks(struct sds_op *op, uint16_t first, uint16_t blocks, uint8_t *data,
		    uint32_t *crc, void (*done)(struct sds_op *op, int status))
{
	op->rd_first = first;
	op->rd_blocks = blocks;
	op->rd_data = data;
	op->rd_crc = crc;
	op->rd_done = done;
	op_store(op, SDS_STORE_READ, first, blocks, data, crc, blocks_read);
}

/* ------------------------------------------------------------ answering */

static void send_data(struct sds_op *op)
{
	uint32_t skip = op->h.offset % ASH_BLOCK_BYTES, end = skip + op->h.length;
	uint32_t head = end < ASH_BLOCK_BYTES ? op->h.length : ASH_BLOCK_BYTES - skip;
	uint32_t tail = end % ASH_BLOCK_BYTES;
	uint8_t *data = op->buf->base + skip;

	/* Pieces of blocks get checksums of their own. */
	if (skip || end < ASH_BLOCK_BYTES)
		op->crcs[0] = ash_crc32c(data, head);
	if (tail && op->blocks > 1)
		op->crcs[op->blocks - 1] = ash_crc32c(op->buf->base + end - tail, tail);
	op_reply_data(op, data, op->h.length, op->crcs, op->blocks);
}

static void answer(struct sds_op *op)
{
	struct sds *s = op->s;

	if (op->pg->role != ROLE_PRIMARY || !op->pg->ready) {
		op_finish(op, ASH_ST_STALE);
		return;
	}
	if (!pg_leased(op->pg, sds_now(s))) {
		op->stage = OP_LEASE;
		ash_list_push_back(&s->lease_wait, &op->link);
		return;
	}
	if (op->h.op == ASH_OP_READ)
		send_data(op);
	else
		op_reply_data(op, op->state, op->blocks, NULL, 0);
	op_end(op);
}

void op_lease_again(struct sds *s)
{
	struct ash_list waiting, *l;

	ash_list_init(&waiting);
	while ((l = ash_list_pop(&s->lease_wait)))
		ash_list_push_back(&waiting, l);
	while ((l = ash_list_pop(&waiting))) {
		struct sds_op *op = ash_container_of(l, struct sds_op, link);

		if (!op->ses->conn)
			op_end(op);
		else
			answer(op);
	}
}

static void lock_again(struct sds_op *op);

static void read_done(struct sds_op *op, int status)
{
	if (!status)
		answer(op);
	else if (op->pg->role != ROLE_PRIMARY || status == -ESTALE)
		op_finish(op, ASH_ST_STALE);
	else if (status == -ENODEV)
		op_finish(op, ASH_ST_RETRY);
	else if (!op->exclusive && other_in_sync(op->pg) >= 0)
		lock_again(op);
	else
		op_finish(op, ASH_ST_MEDIUM);
}

static void read_exclusive(struct sds_op *op)
{
	op_read_blocks(op, op->first, op->blocks, op->buf->base, op->crcs, read_done);
}

/* A repair writes: alone in the range. */
static void lock_again(struct sds_op *op)
{
	sds_range_unlock(&op->s->locks, &op->range);
	op->exclusive = true;
	op->begin = read_exclusive;
	op_lock(op, false);
}

static void read_begin(struct sds_op *op)
{
	op_store(op, SDS_STORE_READ, op->first, op->blocks, op->buf->base, op->crcs, read_done);
}

void op_read(struct sds_op *op)
{
	uint16_t status = fence_client(op);

	if (status && status != FENCE_PARK) {
		op_finish(op, status);
		return;
	}
	if (!op->buf && !op_buffer(op, &op->buf, (size_t)op->blocks * ASH_BLOCK_BYTES, op_read))
		return;
	op->begin = read_begin;
	op_lock(op, true);
}

/* ------------------------------------------------------------ block states */

static void status_done(struct sds_op *op, int status)
{
	/* States are there even of blocks that cannot be read. */
	if (status == -ENODEV)
		op_finish(op, ASH_ST_RETRY);
	else
		answer(op);
}

static void status_begin(struct sds_op *op)
{
	struct sds_chunk_info info;

	if (sds_store_lookup(op->dev->store, op->h.node, op->chunk, &info)) {
		op_store(op, SDS_STORE_READ, op->first, op->blocks, op->buf->base, op->crcs,
			 status_done);
		return;
	}
	memset(op->state, ASH_BLK_INHERIT, op->blocks);
	answer(op);
}

void op_status(struct sds_op *op)
{
	uint16_t status = fence_client(op);

	if (status && status != FENCE_PARK) {
		op_finish(op, status);
		return;
	}
	if (!op->buf && !op_buffer(op, &op->buf, (size_t)op->blocks * ASH_BLOCK_BYTES, op_status))
		return;
	op->begin = status_begin;
	op_lock(op, true);
}

/* ------------------------------------------------------------ tick */

void op_tick_read(struct sds_op *op)
{
	if (op->copy.state != PREQ_IDLE)
		copy_tick(op);
}
