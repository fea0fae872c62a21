// SPDX-License-Identifier: MIT
/*
 * DISCARD and WRITE_ZEROES. Whole blocks change their state; the pieces of blocks at the ends are
 * written with zeros where there is data to be overwritten.
 */
#include <errno.h>
#include <string.h>

#include "common/base/crc.h"
#include "sds/core/sds_int.h"

static bool keeps_space(const struct sds_op *op)
{
	return op->h.op == ASH_OP_WRITE_ZEROES && (op->h.flags & ASH_F_NO_UNMAP);
}

static uint64_t end_of(const struct sds_op *op)
{
	return op->h.offset + op->h.length;
}

static bool has_head(const struct sds_op *op)
{
	return op->h.offset % ASH_BLOCK_BYTES || (op->blocks == 1 && end_of(op) % ASH_BLOCK_BYTES);
}

static bool has_tail(const struct sds_op *op)
{
	return op->blocks > 1 && end_of(op) % ASH_BLOCK_BYTES;
}

static void read_failed(struct sds_op *op, int status)
{
	if (status == -ESTALE || op->pg->role != ROLE_PRIMARY)
		op_finish(op, ASH_ST_STALE);
	else
		op_finish(op, status == -ENODEV ? ASH_ST_RETRY : ASH_ST_MEDIUM);
}

static void middle(struct sds_op *op)
{
	uint16_t first = (uint16_t)(op->first + has_head(op));
	uint16_t end = (uint16_t)(op->first + op->blocks - has_tail(op));

	if (first < end)
		op->step[op->steps++] = (struct sds_step){
			.kind = keeps_space(op) ? SDS_STORE_ZERO : SDS_STORE_DISCARD,
			.first = first,
			.blocks = (uint16_t)(end - first)};
	op_change(op);
}

/* Zeroes [from, to) of the block just read; no step where it reads as zeros already. */
static void zero_part(struct sds_op *op, uint16_t block, uint8_t *data, uint32_t *crc,
		      uint32_t from, uint32_t to)
{
	if (op->state[0] != ASH_BLK_DATA)
		return;
	memset(data + from, 0, to - from);
	*crc = ash_crc32c(data, ASH_BLOCK_BYTES);
	op->step[op->steps++] = (struct sds_step){
		.kind = SDS_STORE_WRITE, .first = block, .blocks = 1, .data = data, .crc = crc};
}

static void tail_read(struct sds_op *op, int status)
{
	if (status) {
		read_failed(op, status);
		return;
	}
	zero_part(op, (uint16_t)(op->first + op->blocks - 1), op->rmw->base + ASH_BLOCK_BYTES,
		  &op->crcs[1], 0, end_of(op) % ASH_BLOCK_BYTES);
	middle(op);
}

static void read_tail(struct sds_op *op)
{
	if (has_tail(op))
		op_read_blocks(op, (uint16_t)(op->first + op->blocks - 1), 1,
			       op->rmw->base + ASH_BLOCK_BYTES, &op->crcs[1], tail_read);
	else
		middle(op);
}

static void head_read(struct sds_op *op, int status)
{
	uint32_t from = op->h.offset % ASH_BLOCK_BYTES;
	uint32_t to = op->blocks > 1 ? ASH_BLOCK_BYTES : from + op->h.length;

	if (status) {
		read_failed(op, status);
		return;
	}
	zero_part(op, op->first, op->rmw->base, &op->crcs[0], from, to);
	read_tail(op);
}

static void discard_go(struct sds_op *op)
{
	op->steps = 0;
	if (has_head(op))
		op_read_blocks(op, op->first, 1, op->rmw->base, &op->crcs[0], head_read);
	else
		read_tail(op);
}

static void discard_begin(struct sds_op *op)
{
	op_mark_begun(op);
	if (keeps_space(op))
		op_reserve(op, discard_go);
	else
		discard_go(op);
}

void op_discard(struct sds_op *op)
{
	uint16_t status = fence_client(op);

	if (status && status != FENCE_PARK) {
		op_finish(op, status);
		return;
	}
	if ((has_head(op) || has_tail(op)) && !op->rmw &&
	    !op_buffer(op, &op->rmw, 2 * ASH_BLOCK_BYTES, op_discard))
		return;
	op->begin = discard_begin;
	op_lock(op, false);
}
