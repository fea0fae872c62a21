// SPDX-License-Identifier: MIT
/*
 * Changes at the primary: on the local device and on every other copy side by side. The client is
 * told when the local copy and every copy that counts have it. Copies that do not count yet may
 * take longer; the operation keeps its range until they have it too, or their session is over.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "common/base/crc.h"
#include "sds/core/sds_int.h"

/* ------------------------------------------------------------ steps */

static void local_done(struct sds_op *op, int status)
{
	op->local_status = status;
	op->local_ok = status == 0;
	op_check(op);
}

static void step_start(struct sds_op *op)
{
	const struct sds_step *step = &op->step[op->at];

	for (unsigned i = 0; i < OTHERS_MAX; i++) {
		op->slot[i].state = SLOT_FREE;
		op->slot[i].undo = false;
	}
	op->step_ns = sds_now(op->s);
	op->local_ok = op->undone = false;
	op->local_status = 0;
	repl_send(op);
	if (step->kind == SDS_STORE_WRITE || step->kind == SDS_STORE_ZERO)
		op->reserved = false; /* used up by this */
	op_store(op, step->kind, step->first, step->blocks, step->data, step->crc, local_done);
}

void op_change(struct sds_op *op)
{
	op->at = 0;
	if (op->steps == 0)
		op_finish(op, ASH_ST_OK);
	else if (op->pg->role != ROLE_PRIMARY)
		op_finish(op, ASH_ST_STALE);
	else {
		op->changing = true;
		step_start(op);
	}
}

/* ------------------------------------------------------------ failures */

static void bad_marked(struct sds_op *op, int status)
{
	op_finish(op, ASH_ST_MEDIUM);
}

static bool alone(const struct sds_pg *pg)
{
	for (unsigned i = 0; i < pg->row.replicas; i++)
		if (i != pg->me && pg->row.replica[i].state == ASH_REPLICA_IN_SYNC)
			return false;
	return true;
}

static void missed_by_building(struct sds_op *op)
{
	for (unsigned i = 0; i < OTHERS_MAX; i++)
		if (op->slot[i].state != SLOT_FREE && op->slot[i].state != SLOT_GONE &&
		    op->slot[i].build)
			sync_missed(op->pg, op->slot[i].device, "the primary's own write failed");
}

/* Another copy can serve: leave. The last one tells the client, and marks the blocks. */
static void local_failed(struct sds_op *op)
{
	const struct sds_step *step = &op->step[op->at];

	missed_by_building(op);
	if (op->local_status == -ENODEV || !alone(op->pg)) {
		pg_leave(op->pg, "a write to the device failed");
		op_finish(op, ASH_ST_RETRY);
		return;
	}
	for (unsigned i = 0; i < OTHERS_MAX; i++)
		repl_cancel(&op->slot[i]);
	op->failed = ASH_ST_MEDIUM;
	op_store(op, SDS_STORE_BAD, step->first, step->blocks, NULL, NULL, bad_marked);
}

static void local_undone(struct sds_op *op, int status)
{
	if (status) {
		op->local_status = status;
		local_failed(op);
		return;
	}
	op_check(op);
}

/*
 * A copy has no room. Those that have the new blocks take them back, under the range lock, before
 * the client is told; then all are as before.
 */
static void no_space(struct sds_op *op)
{
	const struct sds_step *step = &op->step[op->at];

	op->failed = ASH_ST_NOSPACE;
	for (unsigned i = 0; i < OTHERS_MAX; i++) {
		struct sds_slot *slot = &op->slot[i];

		if (slot->state == SLOT_ACKED && !slot->undo)
			repl_undo(op, slot);
	}
	if (op->local_ok && !op->undone) {
		op->undone = true;
		op_store(op, SDS_STORE_UNDO, step->first, step->blocks, NULL, NULL, local_undone);
	}
}

static bool waits_for_slots(const struct sds_op *op, bool required)
{
	for (unsigned i = 0; i < OTHERS_MAX; i++) {
		const struct sds_slot *slot = &op->slot[i];

		if (slot->state == SLOT_OUT && (slot->required || !required))
			return true;
		/* Refused for another reason than space: until a newer row is here without it. */
		if (slot->state == SLOT_REFUSED && slot->required &&
		    slot->refused != ASH_ST_NOSPACE && required)
			return true;
	}
	return false;
}

static bool refused_space(const struct sds_op *op)
{
	for (unsigned i = 0; i < OTHERS_MAX; i++)
		if (op->slot[i].state == SLOT_REFUSED && op->slot[i].required &&
		    op->slot[i].refused == ASH_ST_NOSPACE)
			return true;
	return false;
}

/* The local copy has overwritten what was there: no way back, the copy without room has to go. */
static void accuse_refusing(struct sds_op *op)
{
	for (unsigned i = 0; i < OTHERS_MAX; i++) {
		struct sds_slot *slot = &op->slot[i];

		if (slot->state != SLOT_REFUSED || !slot->required)
			continue;
		slot->refused = ASH_ST_MEDIUM;
		pg_accuse(op->s, slot->peer->sds, slot->device, "no room for an overwrite");
	}
}

/* ------------------------------------------------------------ progress */

/* The step is on every copy that counts. */
static void step_done(struct sds_op *op)
{
	bool building = waits_for_slots(op, false);

	if (op->at + 1 < op->steps) {
		if (building)
			return;
		op->at++;
		step_start(op);
		return;
	}
	if (building)
		op_reply(op, ASH_ST_OK);
	else
		op_finish(op, ASH_ST_OK);
}

void op_check(struct sds_op *op)
{
	if (op->stage != OP_BEGUN || op->local_busy || !op->changing || op->failed == ASH_ST_MEDIUM)
		return;
	if (op->pg->role != ROLE_PRIMARY) {
		op_finish(op, ASH_ST_STALE);
		return;
	}
	if (op->local_status == -ENOSPC && (!op->sop.existed || op->sop.first_only)) {
		op->failed = ASH_ST_NOSPACE; /* nothing was changed here */
	} else if (op->local_status) {
		local_failed(op);
		return;
	}
	if (waits_for_slots(op, true))
		return;
	if (!op->failed && refused_space(op)) {
		if (op->local_ok && !op->sop.first_only) {
			accuse_refusing(op);
			return;
		}
		op->failed = ASH_ST_NOSPACE;
	}
	if (!op->failed) {
		if (ASH_RULE(ACK_NEEDS_PEER) || op->local_ok)
			step_done(op);
		return;
	}
	no_space(op);
	if (!op->local_busy && !waits_for_slots(op, false))
		op_finish(op, op->failed);
}

void op_row_changed(struct sds_pg *pg)
{
	ash_list_each_safe(l, &pg->inflight) {
		struct sds_op *op = ash_container_of(l, struct sds_op, begun);

		if (op->local_busy && op->sop.kind != SDS_STORE_READ) {
			/* The store looks at these when the change is made. */
			op->sop.gen = pg->row.gen;
			op->sop.shrunk_at = pg->row.shrunk_at;
		}
		if (!op->changing || op->stage != OP_BEGUN)
			continue;
		for (unsigned i = 0; i < OTHERS_MAX; i++)
			repl_row_changed(op, &op->slot[i]);
		if (!op->failed && ASH_RULE(RESEND))
			repl_send(op);
		op_check(op);
	}
}

void op_role_lost(struct sds_pg *pg)
{
	ash_list_each_safe(l, &pg->inflight) {
		struct sds_op *op = ash_container_of(l, struct sds_op, begun);

		for (unsigned i = 0; i < OTHERS_MAX; i++)
			repl_cancel(&op->slot[i]);
		if (op->stage == OP_SPACE) {
			ash_list_remove(&op->link);
			op->stage = OP_BEGUN;
			op_finish(op, ASH_ST_STALE);
			continue;
		}
		op_check(op);
	}
}

/* ------------------------------------------------------------ space */

void op_reserve(struct sds_op *op, void (*then)(struct sds_op *op))
{
	int r;

	if (op->pg->role != ROLE_PRIMARY) {
		op_finish(op, ASH_ST_STALE);
		return;
	}
	r = sds_store_reserve(op->dev->store, op->h.node, op->chunk, false);
	if (r == -EAGAIN) {
		op->stage = OP_SPACE;
		op->begin = then;
		ash_list_push_back(&op->dev->space_wait, &op->link);
		return;
	}
	if (r < 0) {
		op_finish(op, ASH_ST_NOSPACE);
		return;
	}
	op->reserved = r == 0;
	then(op);
}

void op_space_again(struct sds_dev *dev)
{
	struct ash_list waiting, *l;

	ash_list_init(&waiting);
	while ((l = ash_list_pop(&dev->space_wait)))
		ash_list_push_back(&waiting, l);
	while ((l = ash_list_pop(&waiting))) {
		struct sds_op *op = ash_container_of(l, struct sds_op, link);

		op->stage = OP_BEGUN;
		if (dev->state == DEV_OPEN)
			op_reserve(op, op->begin);
		else
			op_finish(op, ASH_ST_RETRY);
	}
}

/* ------------------------------------------------------------ WRITE */

static uint32_t head_bytes(const struct sds_op *op)
{
	return op->h.offset % ASH_BLOCK_BYTES;
}

/* End of the range inside its last block; 0 = on the border. */
static uint32_t tail_bytes(const struct sds_op *op)
{
	return (op->h.offset + op->h.length) % ASH_BLOCK_BYTES;
}

static void read_failed(struct sds_op *op, int status)
{
	if (status == -ESTALE || op->pg->role != ROLE_PRIMARY)
		op_finish(op, ASH_ST_STALE);
	else
		op_finish(op, status == -ENODEV ? ASH_ST_RETRY : ASH_ST_MEDIUM);
}

static void write_ready(struct sds_op *op)
{
	op->step[0] = (struct sds_step){.kind = SDS_STORE_WRITE,
					.first = op->first,
					.blocks = op->blocks,
					.data = op->data,
					.crc = op->crc};
	op->steps = 1;
	op_change(op);
}

static void merge_tail(struct sds_op *op, const uint8_t *old)
{
	uint32_t tail = tail_bytes(op);
	uint8_t *block = op->data + (size_t)(op->blocks - 1) * ASH_BLOCK_BYTES;

	memcpy(block + tail, old + tail, ASH_BLOCK_BYTES - tail);
	op->crc[op->blocks - 1] = ash_crc32c(block, ASH_BLOCK_BYTES);
}

static void tail_read(struct sds_op *op, int status)
{
	if (status) {
		read_failed(op, status);
		return;
	}
	merge_tail(op, op->rmw->base);
	write_ready(op);
}

static void read_tail(struct sds_op *op)
{
	if (tail_bytes(op) == 0)
		write_ready(op);
	else
		op_read_blocks(op, (uint16_t)(op->first + op->blocks - 1), 1, op->rmw->base,
			       op->crcs, tail_read);
}

static void head_read(struct sds_op *op, int status)
{
	if (status) {
		read_failed(op, status);
		return;
	}
	memcpy(op->data, op->rmw->base, head_bytes(op));
	if (op->blocks == 1 && tail_bytes(op)) {
		merge_tail(op, op->rmw->base);
		write_ready(op);
		return;
	}
	op->crc[0] = ash_crc32c(op->data, ASH_BLOCK_BYTES);
	if (op->blocks == 1)
		write_ready(op);
	else
		read_tail(op);
}

static void write_go(struct sds_op *op)
{
	if (head_bytes(op))
		op_read_blocks(op, op->first, 1, op->rmw->base, op->crcs, head_read);
	else
		read_tail(op);
}

static void write_begin(struct sds_op *op)
{
	op_mark_begun(op);
	op_reserve(op, write_go);
}

/* Whole blocks around the data: what the network received lies so; anything else is copied. */
static bool whole_blocks(struct sds_op *op)
{
	struct ash_buf *buf = op->req->buf;
	size_t bytes = (size_t)op->blocks * ASH_BLOCK_BYTES;

	if (op->buf) {
		memcpy(op->buf->base + head_bytes(op), op->req->data, op->h.length);
		op->data = op->buf->base;
	} else if (buf && buf->bytes >= bytes && buf->refs == 1 &&
		   op->req->data == buf->base + head_bytes(op)) {
		op->data = buf->base;
	} else {
		return false;
	}
	return true;
}

void op_write(struct sds_op *op)
{
	uint16_t status = fence_client(op);

	if (status && status != FENCE_PARK) {
		op_finish(op, status);
		return;
	}
	if (ash_crc32c_check(op->req->data, op->h.offset, op->h.length, op->req->crc) >= 0) {
		op_finish(op, ASH_ST_BADSUM);
		return;
	}
	if ((head_bytes(op) || tail_bytes(op)) && !op->rmw &&
	    !op_buffer(op, &op->rmw, ASH_BLOCK_BYTES, op_write))
		return;
	if (!whole_blocks(op)) {
		if (op_buffer(op, &op->buf, (size_t)op->blocks * ASH_BLOCK_BYTES, op_write))
			op_write(op);
		return;
	}
	op->begin = write_begin;
	op_lock(op, false);
}

/* ------------------------------------------------------------ tick */

static void tick_change(struct sds_op *op, uint64_t now)
{
	uint64_t limit = dev_deadline_ns(op->s);

	if (now < op->step_ns + limit)
		return;
	for (unsigned i = 0; i < OTHERS_MAX; i++) {
		struct sds_slot *slot = &op->slot[i];

		if (slot->state == SLOT_REFUSED && slot->required &&
		    slot->refused != ASH_ST_NOSPACE)
			pg_accuse(op->s, slot->peer->sds, slot->device, "refuses changes");
		if (slot->state != SLOT_OUT)
			continue;
		if (slot->required)
			pg_accuse(op->s, slot->peer->sds, slot->device,
				  "does not acknowledge in time");
		else
			sync_missed(op->pg, slot->device, "does not acknowledge in time");
	}
}

void op_tick(struct sds *s, uint64_t now)
{
	for (unsigned i = 0; s->ops_in_flight && i < CLIENT_OPS; i++) {
		struct sds_op *op = &s->client_ops[i];

		if (op->stage != OP_BEGUN)
			continue;
		op_tick_read(op);
		if (op->stage == OP_BEGUN && op->changing)
			tick_change(op, now);
	}
	s->lease_moved |= !ash_list_empty(&s->lease_wait);
}
