// SPDX-License-Identifier: MIT
/*
 * Bringing a copy up to date, from the primary's side.
 *
 * From the moment the session is open, every new change goes to the target as well; what had begun
 * before is waited for, so that the inventories taken after that miss nothing. Then chunk by chunk,
 * at most 128 KiB at a time under the range lock, both sides read, hashes are compared, and what
 * differs is sent with its state. A target that missed a change is worth nothing: its session ends.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "common/base/crc.h"
#include "common/base/hash.h"
#include "sds/core/sds_int.h"

static void fail(struct sds_sync *y, const char *why, uint64_t pause_ms);

/* ------------------------------------------------------------ requests to the target */

static void prepare(struct sds_preq *preq)
{
	struct sds_sync *y = preq->owner;
	struct sds_op *work = y->work;
	struct ash_msg *m = &preq->msg;

	m->h.op = y->request;
	m->h.gen = y->pg->row.gen;
	m->h.flags = ASH_F_BUILD;
	switch (y->request) {
	case ASH_OP_SYNC_BEGIN:
	case ASH_OP_SYNC_END:
	case ASH_OP_INVENTORY:
		m->h.node = y->pg->pool->id;
		m->h.mark = y->pg->pg;
		m->h.offset = y->request == ASH_OP_INVENTORY ? y->cursor : 0;
		break;
	case ASH_OP_HASH:
		m->h.node = work->h.node;
		m->h.offset = work->chunk * ASH_CHUNK_BYTES + y->block * ASH_BLOCK_BYTES;
		m->h.length = work->blocks * ASH_BLOCK_BYTES;
		break;
	case ASH_OP_XFER:
		m->h.node = work->h.node;
		m->h.offset = work->chunk * ASH_CHUNK_BYTES +
			      (uint64_t)(y->block + y->run) * ASH_BLOCK_BYTES;
		m->h.length = (uint32_t)(y->ends - y->run) * ASH_BLOCK_BYTES;
		m->h.status = work->state[y->run];
		m->h.mark = y->stamp;
		if (m->h.status == ASH_BLK_DATA) {
			m->data = work->buf->base + (size_t)y->run * ASH_BLOCK_BYTES;
			m->data_bytes = m->h.length;
			m->crc = work->crcs + y->run;
			m->crcs = (uint32_t)(y->ends - y->run);
		}
		break;
	case ASH_OP_SETTLE:
	case ASH_OP_DROP_CHUNK:
		m->h.node = work->h.node;
		m->h.offset = work->chunk * ASH_CHUNK_BYTES;
		m->h.mark = y->stamp;
		break;
	default:
		break;
	}
}

static void ask(struct sds_sync *y, uint8_t request)
{
	y->request = request;
	preq_send(&y->peer->data, &y->preq);
}

static void again(struct sds_sync *y)
{
	preq_send_later(&y->peer->data, &y->preq, RETRY_MS * MS);
}

static void step_over(struct sds_sync *y)
{
	sds_range_unlock(&y->s->locks, &y->work->range);
	y->work->stage = OP_NEW;
	y->sub = SUB_IDLE;
	y->kick = true;
}

static void next_chunk(struct sds_sync *y)
{
	y->at++;
	y->block = 0;
	y->step = SYNC_STEP_BLOCKS;
}

static void took_inventory(struct sds_sync *y, const struct ash_msg *m);
static void took_hashes(struct sds_sync *y, const struct ash_msg *m);
static void xfer_next(struct sds_sync *y);
static void flushed(struct sds_sync *y);

static void took(struct sds_sync *y, const struct ash_msg *m)
{
	struct sds *s = y->s;

	switch (y->request) {
	case ASH_OP_SYNC_BEGIN:
		y->open = true;
		y->barrier = s->seq;
		y->stage = SYNC_BARRIER;
		break;
	case ASH_OP_INVENTORY:
		took_inventory(y, m);
		break;
	case ASH_OP_HASH:
		took_hashes(y, m);
		break;
	case ASH_OP_XFER:
		s->stats.resync_blocks_sent += (uint64_t)(y->ends - y->run);
		y->sent_blocks += (uint64_t)(y->ends - y->run);
		y->run = y->ends;
		xfer_next(y);
		break;
	case ASH_OP_DROP_CHUNK:
	case ASH_OP_SETTLE:
		next_chunk(y);
		step_over(y);
		break;
	case ASH_OP_REPL_FLUSH:
		y->have_there = true;
		flushed(y);
		break;
	case ASH_OP_SYNC_END:
		y->stage = SYNC_JOIN;
		y->pg->proposed = true;
		y->pg->promised_ns = sds_now(s);
		mdm_want(y->pg, PB__PG_ACTION__PG_JOIN, y->device, y->incarnation,
			 "the copy is up to date");
		break;
	default:
		break;
	}
	y->kick = true;
}

static void answered(struct sds_preq *preq, struct ash_msg *m)
{
	struct sds_sync *y = preq->owner;
	struct ash_wire_row row;

	if (!y->pg || y->failed)
		return;
	if (!m) {
		fail(y, "the connection ended", 100);
		return;
	}
	switch (m->h.status) {
	case ASH_ST_OK:
		took(y, m);
		break;
	case ASH_ST_STALE:
		if (m->data_bytes >= sizeof(row)) {
			memcpy(&row, m->data, sizeof(row));
			mdm_take_row(y->s, &row);
		}
		again(y);
		break;
	case ASH_ST_BEHIND:
		again(y);
		break;
	case ASH_ST_RETRY:
		if (y->request == ASH_OP_SYNC_BEGIN)
			again(y);
		else
			fail(y, "the copy has lost the session", 100);
		break;
	case ASH_ST_BADSUM:
		again(y);
		break;
	case ASH_ST_NOT_MAPPED:
		fail(y, "a node was deleted meanwhile", 100);
		break;
	default:
		fail(y, ash_status_text(m->h.status), m->h.status == ASH_ST_NOSPACE ? 5000 : 1000);
		break;
	}
}

/* ------------------------------------------------------------ inventories */

static void scan_mine(struct sds_sync *y)
{
	struct sds *s = y->s;
	struct sds_chunk_info info[256];

	for (unsigned round = 0; round < 256; round++) {
		unsigned n = sds_store_scan(y->pg->dev->store, y->cursor, info, 256, &y->cursor);

		for (unsigned i = 0; i < n; i++)
			if (pg_of(s, info[i].node, info[i].chunk) == y->pg)
				sync_list_add(&y->mine, &info[i]);
		if (!y->cursor) {
			y->stage = SYNC_THEIRS;
			ask(y, ASH_OP_INVENTORY);
			return;
		}
	}
	/* The rest in another turn. */
}

static void took_inventory(struct sds_sync *y, const struct ash_msg *m)
{
	struct ash_wire_inv wire;
	struct ash_inv e;

	for (uint32_t at = 0; at + sizeof(wire) <= m->data_bytes; at += sizeof(wire)) {
		struct sds_chunk_info info;

		memcpy(&wire, m->data + at, sizeof(wire));
		if (ash_inv_decode(&wire, &e)) {
			fail(y, "malformed inventory", 1000);
			return;
		}
		info = (struct sds_chunk_info){.node = e.node,
					       .chunk = e.chunk,
					       .stamp = e.stamp,
					       .unsettled = e.flags & ASH_INV_UNSETTLED};
		sync_list_add(&y->theirs, &info);
	}
	if ((m->h.flags & ASH_F_MORE) && m->h.offset > y->cursor) {
		y->cursor = m->h.offset;
		ask(y, ASH_OP_INVENTORY);
		return;
	}
	sync_set(&y->mine, &y->theirs, y->left_gen, &y->set);
	sds_trace(y->s, ASH_LOG_INFO,
		  "event=resync_set pool=%llu pg=%u device=%llu left_gen=%llu here=%u there=%u "
		  "compare=%u",
		  (unsigned long long)y->pg->pool->id, y->pg->pg, (unsigned long long)y->device,
		  (unsigned long long)y->left_gen, y->mine.count, y->theirs.count, y->set.count);
	sync_list_done(&y->mine);
	sync_list_done(&y->theirs);
	y->at = 0;
	y->block = 0;
	y->step = SYNC_STEP_BLOCKS;
	y->stage = SYNC_CHUNKS;
}

/* ------------------------------------------------------------ comparing and sending */

static bool differs(const struct sds_sync *y, unsigned i)
{
	const struct sds_op *work = y->work;

	if (work->state[i] != y->there[i].state)
		return true;
	return work->state[i] == ASH_BLK_DATA &&
	       ash_hash64(work->buf->base + (size_t)i * ASH_BLOCK_BYTES, ASH_BLOCK_BYTES) !=
		       y->there[i].hash;
}

/* The next run of blocks of one state that differ. */
static void xfer_next(struct sds_sync *y)
{
	struct sds_op *work = y->work;

	while (y->run < work->blocks && !differs(y, y->run)) {
		y->s->stats.resync_blocks_skipped++;
		y->run++;
	}
	if (y->run == work->blocks) {
		y->done_blocks += work->blocks;
		y->block = (uint16_t)(y->block + work->blocks);
		if (y->block % SYNC_STEP_BLOCKS == 0)
			y->step = SYNC_STEP_BLOCKS;
		if (y->block == ASH_CHUNK_BLOCKS)
			next_chunk(y);
		step_over(y);
		return;
	}
	y->ends = (uint16_t)(y->run + 1);
	while (y->ends < work->blocks && work->state[y->ends] == work->state[y->run] &&
	       differs(y, y->ends))
		y->ends++;
	y->sub = SUB_XFER;
	ask(y, ASH_OP_XFER);
}

/* What the survivor cannot read is bad on the copy too: an error, never zeros. */
static bool mark_unreadable(struct sds_sync *y)
{
	struct sds_op *work = y->work;

	if (!y->local_status)
		return true;
	if (y->local_status == -ENODEV) {
		fail(y, "the own device failed", 1000);
		return false;
	}
	if (y->local_status == -EIO && work->blocks > 1) {
		y->step = 1; /* block by block, to know which */
		step_over(y);
		return false;
	}
	for (unsigned i = 0; i < work->blocks; i++)
		if (work->state[i] == ASH_BLK_DATA &&
		    (y->local_status == -EIO ||
		     ash_crc32c(work->buf->base + (size_t)i * ASH_BLOCK_BYTES, ASH_BLOCK_BYTES) !=
			     work->crcs[i]))
			work->state[i] = ASH_BLK_BAD;
	return true;
}

static void compare_done(struct sds_sync *y)
{
	if (!y->have_local || !y->have_there || y->failed)
		return;
	if (!mark_unreadable(y))
		return;
	y->run = 0;
	xfer_next(y);
}

static void local_read(struct sds_op *op, int status)
{
	struct sds_sync *y = op->sync;

	y->local_status = status;
	y->have_local = y->kick = true;
	compare_done(y);
}

static void took_hashes(struct sds_sync *y, const struct ash_msg *m)
{
	struct ash_wire_blockhash wire;

	if (m->data_bytes != y->work->blocks * sizeof(wire)) {
		fail(y, "malformed hashes", 1000);
		return;
	}
	for (unsigned i = 0; i < y->work->blocks; i++) {
		memcpy(&wire, m->data + i * sizeof(wire), sizeof(wire));
		if (ash_blockhash_decode(&wire, &y->there[i])) {
			fail(y, "malformed hashes", 1000);
			return;
		}
	}
	y->have_there = true;
	compare_done(y);
}

static bool look_up(struct sds_sync *y)
{
	struct sds_chunk_info info;
	bool found = sds_store_lookup(y->pg->dev->store, y->work->h.node, y->work->chunk, &info);

	y->stamp = found ? info.stamp : 0;
	return found;
}

static void compare_begin(struct sds_op *op)
{
	struct sds_sync *y = op->sync;

	if (y->failed || !look_up(y)) {
		step_over(y);
		return;
	}
	y->sub = SUB_COMPARE;
	y->have_local = y->have_there = false;
	op_store(op, SDS_STORE_READ, op->first, op->blocks, op->buf->base, op->crcs, local_read);
	ask(y, ASH_OP_HASH);
}

static void drop_begin(struct sds_op *op)
{
	struct sds_sync *y = op->sync;

	if (y->failed || look_up(y)) {
		step_over(y); /* written meanwhile: compare it after all */
		return;
	}
	y->sub = SUB_DROP;
	ask(y, ASH_OP_DROP_CHUNK);
}

static void lock(struct sds_sync *y, uint16_t first, uint16_t blocks,
		 void (*begin)(struct sds_op *op))
{
	struct sds_op *work = y->work;

	work->first = first;
	work->blocks = blocks;
	work->begin = begin;
	y->sub = SUB_LOCK;
	if (ASH_RULE(RESYNC_LOCK))
		op_lock(work, true); /* readers may share it, no change can begin */
	else
		begin(work);
}

/* Points at the chunk; false when its node is gone. */
static bool aim(struct sds_sync *y)
{
	const struct sds_chunk_info *e = &y->set.entry[y->at];

	y->work->h.node = e->node;
	y->work->chunk = e->chunk;
	return pg_of(y->s, e->node, e->chunk) == y->pg;
}

static void flushed(struct sds_sync *y)
{
	if (!y->have_local || !y->have_there)
		return;
	if (y->local_status) {
		fail(y, "flush failed", 1000);
		return;
	}
	y->at = 0;
	y->stage = SYNC_SETTLE;
	y->kick = true;
}

static void own_flushed(struct sds_op *op, int status)
{
	struct sds_sync *y = op->sync;

	y->local_status = status;
	y->have_local = true;
	if (!y->failed)
		flushed(y);
	y->kick = true;
}

static void flush_both(struct sds_sync *y)
{
	struct sds_dev *dev = y->pg->dev;

	y->stage = SYNC_FLUSH;
	y->have_local = !dev->write_back;
	y->have_there = false;
	y->local_status = 0;
	if (!y->have_local)
		op_store(y->work, SDS_STORE_FLUSH, 0, 0, NULL, NULL, own_flushed);
	ask(y, ASH_OP_REPL_FLUSH);
}

static void chunks(struct sds_sync *y)
{
	while (y->at < y->set.count && !aim(y))
		next_chunk(y);
	if (y->at == y->set.count)
		flush_both(y);
	else if (look_up(y))
		lock(y, y->block, y->step, compare_begin);
	else
		lock(y, 0, ASH_CHUNK_BLOCKS, drop_begin);
}

/* ------------------------------------------------------------ settling */

/* Another copy is away: our marks still count for it. */
static bool others_away(const struct sds_sync *y)
{
	for (unsigned i = 0; i < y->pg->row.replicas; i++)
		if (y->pg->row.replica[i].state == ASH_REPLICA_ABSENT)
			return true;
	return false;
}

/*
 * With the whole chunk locked, equal and durable on both sides: the marks go, and the copy gets our
 * stamp. That one it needs also while another is away: what was found equal was not sent, and its
 * own stamp may be of an earlier time in which it had a part in the group. Bringing the one that is
 * away up to date from this copy would pass over the chunk.
 */
static void settle_begin(struct sds_op *op)
{
	struct sds_sync *y = op->sync;

	if (y->failed || !look_up(y)) {
		if (!y->failed)
			next_chunk(y);
		step_over(y);
		return;
	}
	if (!others_away(y))
		sds_store_settle(op->dev->store, op->h.node, op->chunk);
	y->sub = SUB_SETTLE;
	ask(y, ASH_OP_SETTLE);
}

static void settle(struct sds_sync *y)
{
	while (y->at < y->set.count && !aim(y))
		next_chunk(y);
	if (y->at < y->set.count) {
		lock(y, 0, ASH_CHUNK_BLOCKS, settle_begin);
		return;
	}
	/* From before the join is proposed, the copy counts. */
	pg_promise(y->pg, y->device);
	y->promise = y->s->seq;
	y->stage = SYNC_PROMISE;
	pg_touch(y->pg);
	y->kick = true;
}

/* ------------------------------------------------------------ life */

void sync_init(struct sds *s)
{
	for (unsigned i = 0; i < SYNCS_MAX; i++) {
		struct sds_sync *y = &s->sync[i];

		y->s = s;
		preq_init(s, &y->preq, y);
		y->preq.once = true;
		y->preq.prepare = prepare;
		y->preq.answered = answered;
	}
}

/* The memory goes when nothing of it is out. */
static void release(struct sds_sync *y)
{
	struct sds_pg *pg = y->pg;

	if (y->preq.state != PREQ_IDLE || y->preq.in_transport || y->work->local_busy)
		return;
	sync_list_done(&y->mine);
	sync_list_done(&y->theirs);
	sync_list_done(&y->set);
	y->work->sync = NULL;
	op_put(y->work);
	y->work = NULL;
	y->pg = NULL;
	if (pg->sync == y)
		pg->sync = NULL;
}

static void over(struct sds_sync *y, uint64_t pause_ms)
{
	struct sds *s = y->s;

	y->failed = true;
	y->open = false;
	y->stage = SYNC_OVER;
	y->pg->sync_ns = sds_now(s) + pause_ms * MS;
	preq_cancel(&y->preq);
	if (y->preq.in_transport)
		link_close(y->preq.on);
	sds_range_unlock(&s->locks, &y->work->range);
	y->work->stage = OP_NEW;
	y->kick = true;
	pg_touch(y->pg);
}

static void fail(struct sds_sync *y, const char *why, uint64_t pause_ms)
{
	struct sds_pg *pg = y->pg;

	if (y->failed)
		return;
	sds_trace(y->s, ASH_LOG_NOTICE,
		  "event=resync_over pool=%llu pg=%u device=%llu stage=%d why=\"%s\"",
		  (unsigned long long)pg->pool->id, pg->pg, (unsigned long long)y->device, y->stage,
		  why);
	if (pg->promised == y->device && !pg->proposed)
		pg->promised = 0; /* nobody has heard of it */
	over(y, pause_ms);
}

static bool start(struct sds *s, struct sds_pg *pg, const struct ash_replica *r)
{
	struct sds_sync *y = NULL;
	struct ash_buf *buf;

	for (unsigned i = 0; i < SYNCS_MAX; i++)
		if (!s->sync[i].pg)
			y = &s->sync[i];
	if (!y || !peer_get(s, r->sds))
		return false;
	buf = ash_buf_get(s->port->bufs, SYNC_STEP_BLOCKS * ASH_BLOCK_BYTES, ASH_BUF_PEER);
	y->work = buf ? op_get(s, true) : NULL;
	if (!y->work) {
		ash_buf_put(buf);
		return false;
	}
	y->work->sync = y;
	y->work->pg = pg;
	y->work->dev = pg->dev;
	y->work->buf = buf;
	memset(&y->work->h, 0, sizeof(y->work->h));
	y->work->h.op = ASH_OP_HASH;
	y->pg = pg;
	y->peer = peer_get(s, r->sds);
	y->device = r->device;
	y->incarnation = r->incarnation;
	y->left_gen = r->left_gen;
	y->sub = SUB_IDLE;
	y->open = y->failed = false;
	y->cursor = 0;
	y->at = 0;
	y->block = 0;
	y->step = SYNC_STEP_BLOCKS;
	y->done_blocks = y->sent_blocks = 0;
	y->stage = SYNC_BEGIN;
	pg->sync = y;
	sds_trace(s, ASH_LOG_INFO, "event=resync_begin pool=%llu pg=%u device=%llu",
		  (unsigned long long)pg->pool->id, pg->pg, (unsigned long long)y->device);
	ask(y, ASH_OP_SYNC_BEGIN);
	return true;
}

void sync_row_changed(struct sds_pg *pg)
{
	struct sds_sync *y = pg->sync;
	int i;

	if (!y || y->failed)
		return;
	i = pg_replica_of(&pg->row, y->device, y->incarnation);
	if (pg->role != ROLE_PRIMARY || pg->dev != y->work->dev || i < 0 ||
	    pg->row.replica[i].state == ASH_REPLICA_ABSENT) {
		fail(y, "the row has changed", 0);
		return;
	}
	if (pg->row.replica[i].state == ASH_REPLICA_IN_SYNC) {
		sds_trace(y->s, ASH_LOG_NOTICE,
			  "event=in_sync pool=%llu pg=%u device=%llu gen=%llu compared=%llu "
			  "sent=%llu",
			  (unsigned long long)pg->pool->id, pg->pg, (unsigned long long)y->device,
			  (unsigned long long)pg->row.gen, (unsigned long long)y->done_blocks,
			  (unsigned long long)y->sent_blocks);
		over(y, 0);
		return;
	}
	/* A newer gen has ended the promise; the copy is as good as before: propose anew. */
	if ((y->stage == SYNC_PROMISE || y->stage == SYNC_END || y->stage == SYNC_JOIN) &&
	    pg->promised != y->device) {
		preq_cancel(&y->preq);
		pg_promise(pg, y->device);
		y->promise = y->s->seq;
		y->stage = SYNC_PROMISE;
	}
	y->kick = true;
}

void sync_missed(struct sds_pg *pg, uint64_t device, const char *why)
{
	struct sds_sync *y = pg->sync;

	if (y && y->device == device && y->open && !(pg->proposed && pg->promised == device))
		fail(y, why, 1000);
}

void sync_link_down(struct sds_peer *peer)
{
	for (unsigned i = 0; i < SYNCS_MAX; i++) {
		struct sds_sync *y = &peer->s->sync[i];

		/* Once the join is out the copy counts: changes are sent again to it. */
		if (y->pg && y->peer == peer && !y->failed && !y->pg->proposed)
			fail(y, "the connection ended", 100);
	}
}

bool sync_takes(const struct sds_pg *pg, uint64_t device)
{
	const struct sds_sync *y = pg->sync;

	return y && y->device == device && y->open && !y->failed;
}

static void go(struct sds_sync *y)
{
	struct sds_pg *pg = y->pg;

	switch (y->stage) {
	case SYNC_BARRIER:
		if (op_barrier(pg, y->barrier))
			break;
		y->stage = SYNC_MINE;
		y->cursor = 0;
		scan_mine(y);
		break;
	case SYNC_MINE:
		scan_mine(y);
		break;
	case SYNC_CHUNKS:
		if (y->sub == SUB_IDLE)
			chunks(y);
		break;
	case SYNC_SETTLE:
		if (y->sub == SUB_IDLE)
			settle(y);
		break;
	case SYNC_PROMISE:
		if (op_barrier(pg, y->promise) || preq_out(&y->preq))
			break;
		y->stage = SYNC_END;
		ask(y, ASH_OP_SYNC_END);
		break;
	case SYNC_OVER:
		release(y);
		break;
	default:
		break;
	}
}

void sync_turn(struct sds *s)
{
	for (unsigned i = 0; i < SYNCS_MAX; i++) {
		struct sds_sync *y = &s->sync[i];

		if (!y->pg || !y->kick)
			continue;
		y->kick = false;
		go(y);
	}
}

static void look_for_work(struct sds *s, uint64_t now)
{
	ash_list_each(l, &s->local_pgs) {
		struct sds_pg *pg = ash_container_of(l, struct sds_pg, local);

		if (pg->role != ROLE_PRIMARY || !pg->ready || pg->blocked || pg->sync ||
		    now < pg->sync_ns || s->stopping)
			continue;
		for (unsigned i = 0; i < pg->row.replicas && !pg->sync; i++)
			if (i != pg->me && pg->row.replica[i].state == ASH_REPLICA_BUILDING &&
			    !start(s, pg, &pg->row.replica[i]))
				return;
	}
}

void sync_tick(struct sds *s, uint64_t now)
{
	for (unsigned i = 0; i < SYNCS_MAX; i++) {
		struct sds_sync *y = &s->sync[i];

		/* Barriers, slices of a scan, memory that comes back. */
		if (y->pg)
			y->kick = true;
	}
	look_for_work(s, now);
}

void sync_free_all(struct sds *s)
{
	for (unsigned i = 0; i < SYNCS_MAX; i++) {
		ash_timer_cancel(s->port->timers, &s->sync[i].preq.timer);
		sync_list_done(&s->sync[i].mine);
		sync_list_done(&s->sync[i].theirs);
		sync_list_done(&s->sync[i].set);
	}
}
