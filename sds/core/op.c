// SPDX-License-Identifier: MIT
/*
 * Operations: pool, buffers, range lock, begin, answer, end. An operation holds buffers before its
 * lock, its lock before it begins. Once begun it keeps the lock until its device I/O has ended,
 * whatever becomes of client, generation or role.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "sds/core/sds_int.h"

static void on_granted(struct sds_range *range);
static void begin(struct sds_op *op);

/* ------------------------------------------------------------ pool */

static void preq_memory_back(struct sds_preq *preq)
{
	op_maybe_free(preq->owner);
}

static void slot_memory_back(struct sds_preq *preq)
{
	op_maybe_free(((struct sds_slot *)preq->owner)->op);
}

static void pool_init(struct sds *s, struct sds_op *ops, unsigned n, struct ash_list *free_list)
{
	for (unsigned i = 0; i < n; i++) {
		struct sds_op *op = &ops[i];

		op->s = s;
		op->of_peer = ops == s->peer_ops;
		ash_list_init(&op->begun);
		ash_list_init(&op->link);
		preq_init(s, &op->copy, op);
		op->copy.idle = preq_memory_back;
		for (unsigned k = 0; k < OTHERS_MAX; k++) {
			preq_init(s, &op->slot[k].preq, &op->slot[k]);
			op->slot[k].op = op;
			op->slot[k].preq.idle = slot_memory_back;
		}
		ash_list_push_back(free_list, &op->link);
	}
}

static void buf_free(struct ash_buf_waiter *waiter)
{
	ash_container_of(waiter, struct sds, buf_waiter)->buf_freed = true;
}

int op_init(struct sds *s)
{
	ash_list_init(&s->client_free);
	ash_list_init(&s->peer_free);
	ash_list_init(&s->buf_wait);
	ash_list_init(&s->lease_wait);
	ash_list_init(&s->flush_next);
	ash_list_init(&s->flush_now);
	ash_list_init(&s->pflush_next);
	ash_list_init(&s->pflush_now);
	s->buf_waiter.fn = buf_free;
	s->client_ops = calloc(CLIENT_OPS, sizeof(*s->client_ops));
	s->peer_ops = calloc(PEER_OPS, sizeof(*s->peer_ops));
	if (!s->client_ops || !s->peer_ops)
		return -1;
	pool_init(s, s->client_ops, CLIENT_OPS, &s->client_free);
	pool_init(s, s->peer_ops, PEER_OPS, &s->peer_free);
	return 0;
}

static void forget_timers(struct sds *s, struct sds_op *ops, unsigned n)
{
	for (unsigned i = 0; ops && i < n; i++) {
		ash_timer_cancel(s->port->timers, &ops[i].copy.timer);
		for (unsigned k = 0; k < OTHERS_MAX; k++)
			ash_timer_cancel(s->port->timers, &ops[i].slot[k].preq.timer);
	}
}

void op_free_all(struct sds *s)
{
	forget_timers(s, s->client_ops, CLIENT_OPS);
	forget_timers(s, s->peer_ops, PEER_OPS);
	free(s->client_ops);
	free(s->peer_ops);
}

struct sds_op *op_get(struct sds *s, bool of_peer)
{
	struct ash_list *l = ash_list_pop(of_peer ? &s->peer_free : &s->client_free);
	struct sds_op *op;

	if (!l)
		return NULL;
	op = ash_container_of(l, struct sds_op, link);
	op->stage = OP_NEW;
	op->ses = NULL;
	op->req = NULL;
	op->pg = NULL;
	op->dev = NULL;
	op->begin = NULL;
	op->buf = op->rmw = NULL;
	op->data = NULL;
	op->crc = NULL;
	op->steps = op->at = 0;
	op->changing = false;
	op->local_busy = op->reserved = op->local_ok = op->undone = op->replied = false;
	op->exclusive = op->flush_failed = op->reply_out = false;
	op->local_status = 0;
	op->failed = 0;
	op->flush_left = 0;
	op->seq = 0;
	s->ops_in_flight++;
	return op;
}

void op_put(struct sds_op *op)
{
	struct sds *s = op->s;

	assert(op->stage != OP_FREE && !op->local_busy);
	op->stage = OP_FREE;
	op->dev = NULL;
	if (op->req)
		ash_msg_free(s->port->net, op->req);
	ash_buf_put(op->buf);
	ash_buf_put(op->rmw);
	op->req = NULL;
	op->buf = op->rmw = NULL;
	if (op->ses)
		session_put(op->ses);
	op->ses = NULL;
	ash_list_push_back(op->of_peer ? &s->peer_free : &s->client_free, &op->link);
	s->ops_in_flight--;
	s->backlog_due = true;
}

/* No operation left: the message waits, and the connection reads no more. */
static void keep(struct sds_session *ses, struct ash_msg *msg)
{
	msg->next = NULL;
	*ses->backlog_end = msg;
	ses->backlog_end = &msg->next;
	if (!ses->paused) {
		ses->paused = true;
		ses->conn->net->ops->pause(ses->conn, true);
	}
}

struct sds_op *op_of_message(struct sds_session *ses, struct ash_msg *msg, bool of_peer)
{
	struct sds_op *op = op_get(ses->s, of_peer);

	if (!op) {
		keep(ses, msg);
		return NULL;
	}
	op->ses = ses;
	ses->refs++;
	op->req = msg;
	op->h = msg->h;
	op->chunk = msg->h.offset / ASH_CHUNK_BYTES;
	op->first = (uint16_t)(msg->h.offset % ASH_CHUNK_BYTES / ASH_BLOCK_BYTES);
	op->blocks = (uint16_t)ash_pieces(msg->h.offset, msg->h.length);
	op->data = msg->data;
	op->crc = msg->crc;
	return op;
}

/* ------------------------------------------------------------ buffers */

bool op_buffer(struct sds_op *op, struct ash_buf **ret_buf, size_t bytes,
	       void (*again)(struct sds_op *op))
{
	struct sds *s = op->s;

	*ret_buf = ash_buf_get(s->port->bufs, bytes, op->of_peer ? ASH_BUF_PEER : ASH_BUF_CLIENT);
	if (*ret_buf)
		return true;
	op->stage = OP_BUFFER;
	op->begin = again;
	ash_list_push_back(&s->buf_wait, &op->link);
	ash_bufs_wait(s->port->bufs, &s->buf_waiter);
	return false;
}

static void buffers_again(struct sds *s)
{
	struct ash_list waiting, *l;

	if (!s->buf_freed)
		return;
	s->buf_freed = false;
	/* Each once: one that still lacks its buffer goes to the end. */
	ash_list_init(&waiting);
	while ((l = ash_list_pop(&s->buf_wait)))
		ash_list_push_back(&waiting, l);
	while ((l = ash_list_pop(&waiting))) {
		struct sds_op *op = ash_container_of(l, struct sds_op, link);

		op->stage = OP_NEW;
		if (op->ses && !op->ses->conn)
			op_finish(op, ASH_ST_RETRY);
		else
			op->begin(op);
	}
}

/* ------------------------------------------------------------ lock and begin */

void op_lock(struct sds_op *op, bool shared)
{
	op->range.node = op->h.node;
	op->range.chunk = op->chunk;
	op->range.first = op->first;
	op->range.end = (uint16_t)(op->first + op->blocks);
	op->range.shared = shared;
	op->range.granted = on_granted;
	op->range.owner = op;
	op->stage = OP_LOCK;
	if (!ASH_RULE(RANGE_LOCK) ||
	    (!ASH_RULE(READ_WAITS) && op->h.op == ASH_OP_READ && !op->exclusive) ||
	    sds_range_lock(&op->s->locks, &op->range))
		begin(op);
}

static void on_granted(struct sds_range *range)
{
	begin(range->owner);
}

static void park(struct sds_op *op)
{
	sds_range_unlock(&op->s->locks, &op->range);
	op->stage = OP_PARKED;
	ash_list_push_back(&op->pg->parked, &op->link);
}

static void begin(struct sds_op *op)
{
	uint16_t status = 0;

	if (!op->ses) { /* resync: its session looks itself whether it still may */
		op->stage = OP_BEGUN;
		op->seq = ++op->s->seq;
		op->begin(op);
		return;
	}
	/* A client that is gone sends again by a newer path, if it still wants. */
	if (!op->ses->conn || op->ses->closing) {
		op_finish(op, ASH_ST_RETRY);
		return;
	}
	if (ASH_RULE(FENCE_BEGIN) || !op->pg)
		status = op->of_peer ? fence_repl(op) : fence_client(op);
	if (op->s->stopping)
		status = ASH_ST_RETRY;
	if (status == FENCE_PARK)
		park(op);
	else if (status || !op->dev)
		op_finish(op, status ? status : ASH_ST_RETRY);
	else {
		op->stage = OP_BEGUN;
		op->seq = ++op->s->seq;
		op->begun_ns = sds_now(op->s);
		op->begin(op);
	}
}

void op_mark_begun(struct sds_op *op)
{
	ash_list_push_back(&op->pg->inflight, &op->begun);
}

bool op_barrier(const struct sds_pg *pg, uint64_t seq)
{
	return !ash_list_empty(&pg->inflight) &&
	       ash_list_first(&pg->inflight, struct sds_op, begun)->seq <= seq;
}

static bool node_busy(const struct sds_op *ops, unsigned n, uint64_t node, uint64_t seq)
{
	for (unsigned i = 0; i < n; i++)
		if (ops[i].stage >= OP_BEGUN && ops[i].stage != OP_DONE && ops[i].h.node == node &&
		    ops[i].seq && ops[i].seq <= seq)
			return true;
	return false;
}

bool op_node_busy(const struct sds *s, uint64_t node, uint64_t seq)
{
	return node_busy(s->client_ops, CLIENT_OPS, node, seq) ||
	       node_busy(s->peer_ops, PEER_OPS, node, seq);
}

void op_session_gone(struct sds_session *ses)
{
	struct sds *s = ses->s;

	for (unsigned i = 0; i < CLIENT_OPS; i++) {
		struct sds_op *op = &s->client_ops[i];

		if (op->ses != ses || op->stage != OP_PARKED)
			continue;
		ash_list_remove(&op->link);
		op_finish(op, ASH_ST_RETRY);
	}
}

/* ------------------------------------------------------------ the local device */

static void store_done(struct sds_store_op *sop, int status)
{
	struct sds_op *op = sop->owner;
	struct sds_dev *dev = op->dev;

	op->local_busy = false;
	op->stored(op, status);
	dev_op_ended(dev);
}

void op_store(struct sds_op *op, unsigned kind, uint16_t first, uint16_t blocks, uint8_t *data,
	      uint32_t *crc, void (*stored)(struct sds_op *op, int status))
{
	const struct ash_row *row = op->pg ? &op->pg->row : NULL;

	assert(!op->local_busy && op->dev && op->dev->store);
	op->sop = (struct sds_store_op){
		.kind = (uint8_t)kind,
		.fua = (op->h.flags & ASH_F_FUA) && kind != SDS_STORE_READ,
		.node = op->h.node,
		.chunk = op->chunk,
		.first_block = first,
		.blocks = blocks,
		.gen = row ? row->gen : 0,
		.shrunk_at = row ? row->shrunk_at : 0,
		.data = data,
		.crc = crc,
		.state = kind == SDS_STORE_READ ? op->state : NULL,
		.buf_index = -1,
		.done = store_done,
		.owner = op,
	};
	if (op->h.op == ASH_OP_XFER && op->of_peer) {
		op->sop.rebuild = op->sop.stamp_exact = true;
		op->sop.gen = op->h.mark;
	}
	op->stored = stored;
	op->local_busy = true;
	op->dev->ops++;
	sds_store_submit(op->dev->store, &op->sop);
}

/* ------------------------------------------------------------ answers */

static void reply_sent(struct ash_msg *msg)
{
	struct sds_op *op = msg->owner;

	op->reply_out = false;
	op_maybe_free(op);
}

static bool reply_begin(struct sds_op *op, uint16_t status)
{
	struct sds *s = op->s;

	if (op->replied || !op->ses || !op->ses->conn || op->ses->closing)
		return false;
	op->replied = true;
	op->reply = (struct ash_msg){.h = {.op = op->h.op,
					   .flags = ASH_F_REPLY,
					   .path = op->h.path,
					   .status = status,
					   .tag = op->h.tag,
					   .gen = op->pg ? op->pg->row.gen : op->h.gen,
					   .node = op->h.node,
					   .offset = op->h.offset,
					   .place_version = sds_place_version(s)},
				     .sent = reply_sent,
				     .owner = op};
	op->reply_out = true;
	return true;
}

/* STALE carries the row, if we have one that the sender can use. */
static void attach_row(struct sds_op *op)
{
	struct sds *s = op->s;
	const struct ash_map_pool *pool;

	if (!op->pg || op->pg->pool->gone || !pg_is_placed(op->pg))
		return;
	pool = ash_map_pool(s->map, op->pg->pool->id);
	if (!pool || op->pg->pg >= pool->pg_count)
		return;
	ash_map_encode_row(s->map, pool, op->pg->pg, &op->row);
	op->reply.data = (uint8_t *)&op->row;
	op->reply.data_bytes = op->reply.h.length = sizeof(op->row);
}

void op_reply(struct sds_op *op, uint16_t status)
{
	if (!reply_begin(op, status))
		return;
	if (status == ASH_ST_STALE)
		attach_row(op);
	if (op->of_peer && status == ASH_ST_OK && (op->h.flags & ASH_F_LEASE)) {
		/* The end is booked before the other can count. */
		lease_by_ack(op->s, op->ses->sender->id);
		op->reply.h.flags |= ASH_F_LEASE;
	}
	ash_conn_send(op->ses->conn, &op->reply);
}

void op_reply_data(struct sds_op *op, uint8_t *data, uint32_t bytes, uint32_t *crc, uint32_t crcs)
{
	if (!reply_begin(op, ASH_ST_OK))
		return;
	op->reply.data = data;
	op->reply.data_bytes = op->reply.h.length = bytes;
	op->reply.crc = crc;
	op->reply.crcs = crcs;
	ash_conn_send(op->ses->conn, &op->reply);
}

/* ------------------------------------------------------------ the end */

static bool slots_out(const struct sds_op *op)
{
	for (unsigned i = 0; i < OTHERS_MAX; i++)
		if (preq_out(&op->slot[i].preq))
			return true;
	return preq_out(&op->copy);
}

void op_maybe_free(struct sds_op *op)
{
	if (op->stage != OP_DONE || op->reply_out || op->local_busy || slots_out(op))
		return;
	op_put(op);
}

void op_end(struct sds_op *op)
{
	assert(op->stage != OP_FREE && op->stage != OP_DONE && !op->local_busy);
	if (op->reserved && op->dev && op->dev->store)
		sds_store_unreserve(op->dev->store, op->h.node, op->chunk);
	op->reserved = false;
	for (unsigned i = 0; i < OTHERS_MAX; i++) {
		preq_cancel(&op->slot[i].preq);
		op->slot[i].state = SLOT_FREE;
	}
	preq_cancel(&op->copy);
	ash_list_remove(&op->begun);
	if (op->pg && op->pg->sync)
		op->pg->sync->kick = true; /* a barrier may be over */
	sds_range_unlock(&op->s->locks, &op->range);
	op->stage = OP_DONE;
	op_maybe_free(op);
}

void op_finish(struct sds_op *op, uint16_t status)
{
	op_reply(op, status);
	op_end(op);
}

/* ------------------------------------------------------------ turn */

void op_turn(struct sds *s)
{
	buffers_again(s);
	if (s->lease_moved) {
		s->lease_moved = false;
		op_lease_again(s);
	}
}
