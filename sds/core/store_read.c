// SPDX-License-Identifier: MIT
/*
 * Reads. Data and, if it is not in memory, the checksum page are read side by side; then every
 * block is verified. A checksum that is unknown is taken from the data, once.
 */
#include "common/base/crc.h"
#include "sds/core/store_int.h"

static void finish(struct sds_store *s, struct sds_store_op *op);

static unsigned state_of(const struct sds_store *s, const struct sds_opx *x, unsigned block)
{
	return x->ext == SDS_NONE ? ASH_BLK_INHERIT : sds_entry_state(&s->ext[x->ext].e, block);
}

static void single_read(struct sds_store *s, struct sds_store_op *op);

/* After an error of a longer read: block by block, to know which it is. */
static void single_done(struct ash_disk_op *d, int result)
{
	struct sds_store *s = d->owner;
	struct sds_opx *x = ash_container_of(sds_io_of(d), struct sds_opx, io);
	struct sds_store_op *op = sds_op_of(x);

	if (sds_io_end(s, &x->io))
		return;
	if (result && x->status == 0) {
		x->status = result == -ENODEV ? -ENODEV : -EIO;
		op->bad_block = x->at;
		s->stats.medium_errors++;
	}
	x->at++;
	single_read(s, op);
	sds_store_turn(s);
}

static void single_read(struct sds_store *s, struct sds_store_op *op)
{
	struct sds_opx *x = sds_opx(op);

	while (x->at < x->hi && state_of(s, x, x->at) != ASH_BLK_DATA)
		x->at++;
	if (x->at >= x->hi || x->status || s->failed) {
		x->flags &= ~SDS_X_DATA;
		finish(s, op);
		return;
	}
	sds_io_submit(s, &x->io, ASH_DISK_READ, sds_data_offset(s, x->ext, x->at),
		      op->data + (size_t)(x->at - op->first_block) * ASH_BLOCK_BYTES,
		      ASH_BLOCK_BYTES, false, single_done);
}

static void data_done(struct ash_disk_op *d, int result)
{
	struct sds_store *s = d->owner;
	struct sds_opx *x = ash_container_of(sds_io_of(d), struct sds_opx, io);
	struct sds_store_op *op = sds_op_of(x);

	if (sds_io_end(s, &x->io))
		return;
	if (result && x->hi - x->lo > 1) {
		x->at = x->lo;
		single_read(s, op);
	} else {
		if (result) {
			x->status = result == -ENODEV ? -ENODEV : -EIO;
			op->bad_block = x->lo;
			s->stats.medium_errors++;
		}
		x->flags &= ~SDS_X_DATA;
		finish(s, op);
	}
	sds_store_turn(s);
}

void sds_read_page_ready(struct sds_store *s, struct sds_store_op *op)
{
	sds_opx(op)->flags &= ~SDS_X_PAGE;
	finish(s, op);
}

static void note_bad(struct sds_store_op *op, int *status, int what, unsigned block)
{
	if (*status == 0) {
		*status = what;
		op->bad_block = (uint16_t)block;
	}
}

/* One DATA block: checksum against data. Returns what the caller is given as its checksum. */
static uint32_t verify(struct sds_store *s, struct sds_store_op *op, unsigned block,
		       const uint8_t *data, int *status)
{
	struct sds_page *page = sds_opx(op)->page;
	uint64_t bit = 1ull << (block % 64);
	uint32_t crc = ash_crc32c(data, ASH_BLOCK_BYTES);

	if (!(page->known[block / 64] & bit)) {
		if (page->state != SDS_PAGE_LOADED || page->crc[block] != crc)
			op->unknown = true;
		if (page->state == SDS_PAGE_LOADED) {
			page->crc[block] = crc;
			page->known[block / 64] |= bit;
		}
		return crc;
	}
	if (page->crc[block] != crc && ASH_RULE(CSUM_VERIFY)) {
		s->stats.checksum_errors++;
		note_bad(op, status, -EBADMSG, block);
	}
	return page->crc[block];
}

static void check_blocks(struct sds_store *s, struct sds_store_op *op)
{
	struct sds_opx *x = sds_opx(op);
	int status = x->status; /* an error of the disk: blocks before it are fine */

	for (unsigned i = 0; i < op->blocks; i++) {
		unsigned block = op->first_block + i, state = state_of(s, x, block);
		uint8_t *data = op->data + (size_t)i * ASH_BLOCK_BYTES;

		if (op->state)
			op->state[i] = (uint8_t)state;
		if (state == ASH_BLK_DATA && x->status && block >= op->bad_block) {
			op->crc[i] = 0;
			continue;
		}
		if (state == ASH_BLK_DATA) {
			op->crc[i] = verify(s, op, block, data, &status);
			continue;
		}
		memset(data, 0, ASH_BLOCK_BYTES);
		op->crc[i] = ash_crc32c_zero_block();
		if (state == ASH_BLK_BAD)
			note_bad(op, &status, -ENODATA, block);
	}
	x->status = status;
}

static void finish(struct sds_store *s, struct sds_store_op *op)
{
	struct sds_opx *x = sds_opx(op);

	if (x->flags & (SDS_X_DATA | SDS_X_PAGE))
		return;
	if (s->failed)
		x->status = -ENODEV;
	else
		check_blocks(s, op);
	if (x->page)
		sds_page_unpin(s, x->page);
	if (x->ext != SDS_NONE)
		sds_ext_unpin(s, x->ext);
	sds_op_done(s, op, x->status);
}

/* The span from the first to the last block with data; false if there is none. */
static bool data_span(const struct sds_entry *e, struct sds_store_op *op, struct sds_opx *x)
{
	unsigned first = op->first_block, end = first + op->blocks;

	while (first < end && sds_entry_state(e, first) != ASH_BLK_DATA)
		first++;
	while (end > first && sds_entry_state(e, end - 1) != ASH_BLK_DATA)
		end--;
	x->lo = (uint16_t)first;
	x->hi = (uint16_t)end;
	return first < end;
}

void sds_read_begin(struct sds_store *s, struct sds_store_op *op)
{
	struct sds_opx *x = sds_opx(op);
	uint32_t ext = sds_index_find(s, op->node, op->chunk);
	struct sds_ext *e;

	op->existed = ext != SDS_NONE;
	if (ext == SDS_NONE || !data_span(&s->ext[ext].e, op, x)) {
		s->stats.reads++;
		x->ext = ext;
		if (ext != SDS_NONE)
			s->ext[ext].io++;
		finish(s, op);
		return;
	}
	if (!sds_page_can_get(s, ext)) {
		sds_queue_add(&s->q_page, op);
		return;
	}
	e = &s->ext[ext];
	x->ext = ext;
	e->io++;
	x->page = sds_page_get(s, ext, false);
	x->flags |= SDS_X_DATA;
	s->stats.reads++;
	s->stats.read_bytes += (uint64_t)op->blocks * ASH_BLOCK_BYTES;
	if (!sds_page_covers(x->page, &e->e, op->first_block, op->blocks)) {
		x->flags |= SDS_X_PAGE;
		sds_page_load(s, x->page, op);
	}
	sds_io_submit(s, &x->io, ASH_DISK_READ, sds_data_offset(s, ext, x->lo),
		      op->data + (size_t)(x->lo - op->first_block) * ASH_BLOCK_BYTES,
		      (uint64_t)(x->hi - x->lo) * ASH_BLOCK_BYTES, false, data_done);
}
