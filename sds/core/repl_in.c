// SPDX-License-Identifier: MIT
/*
 * What a copy does for its primary. It waits only for its own range locks and its own device, and
 * keeps a range until the device's I/O has ended, whatever becomes of the primary meanwhile.
 */
#include <errno.h>
#include <string.h>

#include "common/base/crc.h"
#include "common/base/hash.h"
#include "sds/core/sds_int.h"

static uint16_t status_of(int err)
{
	if (!err)
		return ASH_ST_OK;
	return err == -ENOSPC ? ASH_ST_NOSPACE : ASH_ST_MEDIUM;
}

static void changed(struct sds_op *op, int err)
{
	op_finish(op, status_of(err));
}

/* ------------------------------------------------------------ changes */

static unsigned store_kind(const struct ash_hdr *h)
{
	switch (h->op) {
	case ASH_OP_REPL_WRITE:
		return SDS_STORE_WRITE;
	case ASH_OP_REPL_ZEROES:
		return SDS_STORE_ZERO;
	case ASH_OP_REPL_UNDO:
		return SDS_STORE_UNDO;
	case ASH_OP_DROP_CHUNK:
		return SDS_STORE_DROP;
	case ASH_OP_XFER:
		if (h->status == ASH_BLK_DATA)
			return SDS_STORE_WRITE;
		if (h->status == ASH_BLK_ZERO)
			return SDS_STORE_ZERO;
		return h->status == ASH_BLK_BAD ? SDS_STORE_BAD : SDS_STORE_DISCARD;
	default:
		return SDS_STORE_DISCARD;
	}
}

static void change_begin(struct sds_op *op)
{
	unsigned kind = store_kind(&op->h);
	bool data = kind == SDS_STORE_WRITE;

	op_store(op, kind, op->first, op->blocks, data ? op->data : NULL, data ? op->crc : NULL,
		 changed);
}

static void change(struct sds_op *op)
{
	if (op->req->data_bytes &&
	    ash_crc32c_check(op->req->data, 0, op->req->data_bytes, op->req->crc) >= 0) {
		op_finish(op, ASH_ST_BADSUM);
		return;
	}
	op->begin = change_begin;
	op_lock(op, false);
}

/* ------------------------------------------------------------ reads */

static void copy_read(struct sds_op *op, int err)
{
	if (err) {
		op_finish(op, ASH_ST_MEDIUM);
		return;
	}
	op_reply_data(op, op->buf->base, op->h.length, op->crcs, op->blocks);
	op_end(op);
}

static void copy_begin(struct sds_op *op)
{
	op_store(op, SDS_STORE_READ, op->first, op->blocks, op->buf->base, op->crcs, copy_read);
}

/* A block that cannot be read, or not as it was written, counts as bad: it will be sent again. */
static uint8_t state_for_hash(const struct sds_op *op, unsigned i, int err, const uint8_t *data)
{
	if (op->state[i] != ASH_BLK_DATA)
		return op->state[i];
	if (err && err != -EBADMSG && err != -ENODATA && op->first + i >= op->sop.bad_block)
		return ASH_BLK_BAD;
	if (err && ash_crc32c(data, ASH_BLOCK_BYTES) != op->crcs[i])
		return ASH_BLK_BAD;
	return ASH_BLK_DATA;
}

/* The answer takes the place of the data: an entry lies within what has been hashed already. */
static void hash_read(struct sds_op *op, int err)
{
	struct ash_wire_blockhash wire;

	if (err == -ENODEV) {
		op_finish(op, ASH_ST_MEDIUM);
		return;
	}
	for (unsigned i = 0; i < op->blocks; i++) {
		const uint8_t *data = op->buf->base + (size_t)i * ASH_BLOCK_BYTES;
		struct ash_blockhash b = {.state = state_for_hash(op, i, err, data)};

		if (b.state == ASH_BLK_DATA)
			b.hash = ash_hash64(data, ASH_BLOCK_BYTES);
		ash_blockhash_encode(&b, &wire);
		memcpy(op->buf->base + i * sizeof(wire), &wire, sizeof(wire));
	}
	op_reply_data(op, op->buf->base, op->blocks * (uint32_t)sizeof(wire), NULL, 0);
	op_end(op);
}

static void hash_begin(struct sds_op *op)
{
	op_store(op, SDS_STORE_READ, op->first, op->blocks, op->buf->base, op->crcs, hash_read);
}

static void read_for_peer(struct sds_op *op)
{
	if (!op->buf &&
	    !op_buffer(op, &op->buf, (size_t)op->blocks * ASH_BLOCK_BYTES, read_for_peer))
		return;
	op->begin = op->h.op == ASH_OP_HASH ? hash_begin : copy_begin;
	op_lock(op, true);
}

/* ------------------------------------------------------------ whole chunks */

static void stamped(void *arg, int err)
{
	struct sds_op *op = arg;
	struct sds_dev *dev = op->dev;

	op->local_busy = false;
	if (!err)
		sds_store_settle(dev->store, op->h.node, op->chunk);
	op_finish(op, status_of(err));
	dev_op_ended(dev);
}

/* The chunk is equal on both sides: takes over the survivor's stamp, and the U mark goes. */
static void settle_begin(struct sds_op *op)
{
	struct sds_dev *dev = op->dev;

	if (!sds_store_lookup(dev->store, op->h.node, op->chunk, &op->stamp)) {
		op_finish(op, ASH_ST_OK);
		return;
	}
	op->local_busy = true;
	dev->ops++;
	sds_store_stamp(dev->store, &op->stamp, 1, op->h.mark, stamped, op);
}

static void whole_chunk(struct sds_op *op)
{
	op->first = 0;
	op->blocks = ASH_CHUNK_BLOCKS;
	op->begin = op->h.op == ASH_OP_SETTLE ? settle_begin : change_begin;
	op_lock(op, false);
}

/* The session's last word: what was sent is durable here. */
static void sync_end(struct sds_op *op)
{
	uint16_t status = fence_sync(op);

	if (status)
		op_finish(op, status);
	else
		op_repl_flush(op);
}

/* ------------------------------------------------------------ dispatch */

void repl_message(struct sds_session *ses, struct ash_msg *msg)
{
	struct sds_op *op = op_of_message(ses, msg, true);
	uint16_t status = 0;

	if (!op)
		return; /* kept in the backlog */
	if (!ASH_RULE(FENCE_BEGIN) && msg->h.op != ASH_OP_REPL_FLUSH &&
	    msg->h.op != ASH_OP_SYNC_END)
		status = fence_repl(op);
	if (status) {
		op_finish(op, status);
		return;
	}
	switch (msg->h.op) {
	case ASH_OP_REPL_WRITE:
	case ASH_OP_REPL_DISCARD:
	case ASH_OP_REPL_ZEROES:
	case ASH_OP_REPL_UNDO:
	case ASH_OP_XFER:
		change(op);
		break;
	case ASH_OP_REPL_FLUSH:
		op_repl_flush(op);
		break;
	case ASH_OP_READ_COPY:
	case ASH_OP_HASH:
		read_for_peer(op);
		break;
	case ASH_OP_DROP_CHUNK:
	case ASH_OP_SETTLE:
		whole_chunk(op);
		break;
	case ASH_OP_SYNC_END:
		sync_end(op);
		break;
	default:
		op_finish(op, ASH_ST_INVALID);
		break;
	}
}
