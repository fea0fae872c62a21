// SPDX-License-Identifier: MIT
/*
 * Opening a device: label, new incarnation, table, journal, and what the crash left behind.
 *
 * Everything up to the first journal block of the new incarnation is a function of what is on the
 * disk: if the power goes meanwhile, the next opening reads the same journal and comes to the same
 * end.
 */
#include <stdlib.h>

#include "common/base/bitmap.h"
#include "common/base/crc.h"
#include "common/base/log.h"
#include "sds/core/store_int.h"

static void read_table(struct sds_store *s);
static void read_ring(struct sds_store *s);
static void verify_next(struct sds_store *s);
static void write_next(struct sds_store *s);

void sds_recovery_free(struct sds_recovery *r)
{
	if (!r)
		return;
	if (r->pend)
		for (uint32_t i = 0; i < r->store->extents; i++)
			free(r->pend[i]);
	free(r->pend);
	free(r->buf);
	free(r->ring);
	free(r->hot);
	free(r->damaged);
	free(r->changed);
	free(r);
}

static void finish(struct sds_store *s, int result)
{
	struct sds_recovery *r = s->recovery;
	void (*done)(void *, int, struct sds_store *) = r->done;
	void *arg = r->arg;

	if (result) {
		sds_store_trace(s, ASH_LOG_ERROR, "event=open_failed errno=%d", -result);
		/* whoever called this may still look at the store: freed from the loop */
		s->dead = true;
		sds_post(s);
		done(arg, result, NULL);
		return;
	}
	sds_recovery_free(r);
	s->recovery = NULL;
	s->started = true;
	done(arg, 0, s);
}

static void submit(struct sds_store *s, unsigned kind, uint64_t offset, void *data, uint64_t bytes,
		   void (*done)(struct ash_disk_op *op, int result))
{
	s->recovery->io.d.buf_index = -1;
	sds_io_submit(s, &s->recovery->io, kind, offset, data, bytes, false, done);
}

/* Store behind a completion, or NULL if it is dead. */
static struct sds_store *ended(struct ash_disk_op *d)
{
	struct sds_store *s = d->owner;

	return sds_io_end(s, sds_io_of(d)) ? NULL : s;
}

/* ------------------------------------------------------------ label */

static int set_up(struct sds_store *s)
{
	struct sds_recovery *r = s->recovery;
	const struct sds_geo *g = &s->label.geo;

	s->extents = (uint32_t)g->extents;
	s->ext = calloc(s->extents, sizeof(*s->ext));
	s->j.fw_end = calloc(g->journal_blocks, sizeof(*s->j.fw_end));
	r->ring = sds_aligned(g->journal_blocks * ASH_BLOCK_BYTES);
	r->pend = calloc(s->extents, sizeof(*r->pend));
	r->hot = calloc(ASH_BITMAP_WORDS(s->extents), 8);
	r->damaged = calloc(ASH_BITMAP_WORDS(s->extents), 8);
	r->changed = calloc(ASH_BITMAP_WORDS(g->table_blocks), 8);
	if (!s->ext || !s->j.fw_end || !r->ring || !r->pend || !r->hot || !r->damaged ||
	    !r->changed)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->extents; i++)
		s->ext[i].slot = s->ext[i].page = SDS_NONE;
	for (unsigned i = 0; i < SDS_JBUFS; i++) {
		s->j.b[i].buf = sds_aligned(ASH_BLOCK_BYTES);
		if (!s->j.b[i].buf)
			return -ENOMEM;
	}
	if (sds_index_init(s) || sds_al_init(s) || sds_pages_init(s) || sds_ckpt_init(s))
		return -ENOMEM;
	return 0;
}

static void label_written(struct sds_store *s)
{
	s->label_done = NULL;
	if (s->failed) {
		finish(s, s->failed);
		return;
	}
	s->recovery->at = 0;
	read_table(s);
}

static void label_known(struct sds_store *s)
{
	struct sds_label *l = &s->label.label;
	int err = sds_geo_check(&s->label.geo, s->disk->bytes);

	if (!err)
		err = set_up(s);
	if (err) {
		finish(s, err);
		return;
	}
	l->incarnation++;
	l->clean = false;
	memcpy(l->boot_id, s->recovery->boot_id, 16);
	for (unsigned i = 0; i < 16; i += 8) {
		uint64_t v = s->port->rand64(s->port);

		memcpy(l->nonce + i, &v, 8);
	}
	s->label_done = label_written;
	sds_label_write(s);
}

static void label_b_done(struct ash_disk_op *d, int result)
{
	struct sds_store *s = ended(d);
	struct sds_recovery *r;
	int err;

	if (!s)
		return;
	r = s->recovery;
	err = sds_label_choose(r->buf, r->label_result, r->buf + ASH_BLOCK_BYTES, result,
			       &s->label);
	if (err)
		finish(s, err);
	else
		label_known(s);
}

static void label_a_done(struct ash_disk_op *d, int result)
{
	struct sds_store *s = ended(d);

	if (!s)
		return;
	s->recovery->label_result = result;
	submit(s, ASH_DISK_READ, SDS_LABEL_B_OFFSET, s->recovery->buf + ASH_BLOCK_BYTES,
	       ASH_BLOCK_BYTES, label_b_done);
}

struct sds_store *sds_store_open(struct ash_port *port, struct ash_disk *disk,
				 const uint8_t boot_id[16],
				 void (*done)(void *arg, int result, struct sds_store *store),
				 void *arg)
{
	struct sds_store *s = calloc(1, sizeof(*s));
	struct sds_recovery *r = calloc(1, sizeof(*r));
	uint8_t *buf = sds_aligned(ASH_CHUNK_BYTES), *label_buf = sds_aligned(ASH_BLOCK_BYTES);

	assert(s && r && buf && label_buf); /* a few pages; nothing can go on without them */
	s->port = port;
	s->disk = disk;
	s->recovery = r;
	s->label_buf = label_buf;
	s->jobs_end = &s->jobs;
	ash_list_init(&s->inflight);
	ash_list_init(&s->j.fw);
	ash_list_init(&s->j.waits);
	r->store = s;
	r->buf = buf;
	r->done = done;
	r->arg = arg;
	memcpy(r->boot_id, boot_id, 16);
	submit(s, ASH_DISK_READ, SDS_LABEL_A_OFFSET, buf, ASH_BLOCK_BYTES, label_a_done);
	return s;
}

/* ------------------------------------------------------------ table and journal */

static void table_done(struct ash_disk_op *d, int result)
{
	struct sds_store *s = ended(d);
	struct sds_recovery *r;
	uint64_t ext;

	if (!s)
		return;
	r = s->recovery;
	if (result) {
		finish(s, result);
		return;
	}
	ext = r->at / SDS_ENTRY_BYTES;
	for (uint64_t i = 0; i < r->bytes && ext < s->extents; i += SDS_ENTRY_BYTES, ext++)
		if (sds_entry_decode(r->buf + i, &s->ext[ext].e))
			ash_bit_set(r->damaged, ext);
	r->at += r->bytes;
	read_table(s);
}

static uint64_t piece(const struct sds_recovery *r, uint64_t end)
{
	return end - r->at < ASH_CHUNK_BYTES ? end - r->at : ASH_CHUNK_BYTES;
}

static void read_table(struct sds_store *s)
{
	struct sds_recovery *r = s->recovery;

	r->bytes = piece(r, s->label.geo.table_blocks * ASH_BLOCK_BYTES);
	if (r->bytes) {
		submit(s, ASH_DISK_READ, s->label.geo.table_offset + r->at, r->buf, r->bytes,
		       table_done);
		return;
	}
	r->at = 0;
	read_ring(s);
}

static void ring_done(struct ash_disk_op *d, int result)
{
	struct sds_store *s = ended(d);

	if (!s)
		return;
	if (result) {
		finish(s, result);
		return;
	}
	s->recovery->at += s->recovery->bytes;
	read_ring(s);
}

static void read_ring(struct sds_store *s)
{
	struct sds_recovery *r = s->recovery;
	int err;

	r->bytes = piece(r, s->label.geo.journal_blocks * ASH_BLOCK_BYTES);
	if (r->bytes) {
		submit(s, ASH_DISK_READ, s->label.geo.journal_offset + r->at, r->ring + r->at,
		       r->bytes, ring_done);
		return;
	}
	err = sds_replay(s, r);
	if (err) {
		finish(s, err);
		return;
	}
	r->ext = 0;
	verify_next(s);
}

/* ------------------------------------------------------------ unsealed first writes */

static void roll_back(struct sds_store *s, uint32_t ext, unsigned block)
{
	struct sds_recovery *r = s->recovery;

	if (!ASH_RULE(ROLLBACK))
		return;
	sds_entry_set_state(&s->ext[ext].e, block, r->pend[ext]->before[block]);
	ash_bit_set(r->changed, ext / SDS_ENTRIES_PER_BLOCK);
	r->rolled_back++;
}

static void verify_read(struct sds_store *s);

static void verify_done(struct ash_disk_op *d, int result)
{
	struct sds_store *s = ended(d);
	struct sds_recovery *r;
	struct sds_pend *p;

	if (!s)
		return;
	r = s->recovery;
	p = r->pend[r->ext];
	if (result && r->count > 1 && result != -ENODEV) {
		r->single = true;
		r->count = 1;
		verify_read(s);
		return;
	}
	/* A block that cannot be read may have been acknowledged: it stays, and reading it fails.
	 */
	for (unsigned i = 0; i < r->count && !result; i++) {
		unsigned block = r->first + i;

		if (ash_bit_get(p->mask, block) && ash_crc32c(r->buf + (size_t)i * ASH_BLOCK_BYTES,
							      ASH_BLOCK_BYTES) != p->crc[block])
			roll_back(s, r->ext, block);
	}
	ash_bits_assign(p->mask, r->first, r->count, false);
	verify_next(s);
}

static void verify_read(struct sds_store *s)
{
	struct sds_recovery *r = s->recovery;

	submit(s, ASH_DISK_READ, sds_data_offset(s, r->ext, r->first), r->buf,
	       (uint64_t)r->count * ASH_BLOCK_BYTES, verify_done);
}

/* An extent where nothing is left after rolling back is free again. */
static void free_if_empty(struct sds_store *s, uint32_t ext)
{
	struct sds_entry *e = &s->ext[ext].e;

	if ((e->flags & SDS_EXT_USED) && sds_entry_empty(e))
		e->flags &= SDS_EXT_RETIRED;
}

static void verify_next(struct sds_store *s)
{
	struct sds_recovery *r = s->recovery;
	int err;

	for (; r->ext < s->extents; r->ext++, r->single = false) {
		const struct sds_pend *p = r->pend[r->ext];
		unsigned first = 0, end = ASH_CHUNK_BLOCKS;

		if (!p)
			continue;
		while (first < end && !ash_bit_get(p->mask, first))
			first++;
		while (end > first && !ash_bit_get(p->mask, end - 1))
			end--;
		if (first < end) {
			r->first = first;
			r->count = r->single ? 1 : end - first;
			verify_read(s);
			return;
		}
		free_if_empty(s, r->ext);
	}
	err = sds_replay_finish(s, r);
	if (err) {
		finish(s, err);
		return;
	}
	r->ext = 0;
	write_next(s);
}

/* ------------------------------------------------------------ back to the table */

static void first_block_durable(struct sds_store *s, struct sds_jwait *wait)
{
	finish(s, s->failed);
}

static void start(struct sds_store *s)
{
	struct sds_recovery *r = s->recovery;

	sds_store_trace(s, ASH_LOG_NOTICE,
			"event=device_open incarnation=%llu used=%u unsettled=%llu rolled_back=%u",
			(unsigned long long)s->label.label.incarnation, s->used,
			(unsigned long long)s->stats.unsettled, r->rolled_back);
	sds_journal_start(s, r->next_seq, r->fw_last);
	r->wait.fn = first_block_durable;
	sds_journal_wait(s, &r->wait, r->next_seq);
	s->j.force = true;
	sds_store_turn(s);
}

static void flush_done(struct ash_disk_op *d, int result)
{
	struct sds_store *s = ended(d);

	if (!s)
		return;
	if (result)
		finish(s, result);
	else
		start(s);
}

static void write_done(struct ash_disk_op *d, int result)
{
	struct sds_store *s = ended(d);

	if (!s)
		return;
	if (result) {
		finish(s, result);
		return;
	}
	s->recovery->ext++;
	write_next(s);
}

static void write_next(struct sds_store *s)
{
	struct sds_recovery *r = s->recovery;
	uint32_t first;

	while (r->ext < s->label.geo.table_blocks && !ash_bit_get(r->changed, r->ext))
		r->ext++;
	if (r->ext >= s->label.geo.table_blocks) {
		if (s->disk->write_back && ASH_RULE(ORDER_FLUSH))
			submit(s, ASH_DISK_FLUSH, 0, NULL, 0, flush_done);
		else
			start(s);
		return;
	}
	first = r->ext * SDS_ENTRIES_PER_BLOCK;
	memset(r->buf, 0, ASH_BLOCK_BYTES);
	for (uint32_t i = 0; i < SDS_ENTRIES_PER_BLOCK && first + i < s->extents; i++)
		sds_entry_encode(&s->ext[first + i].e, r->buf + (size_t)i * SDS_ENTRY_BYTES);
	submit(s, ASH_DISK_WRITE, s->label.geo.table_offset + (uint64_t)r->ext * ASH_BLOCK_BYTES,
	       r->buf, ASH_BLOCK_BYTES, write_done);
}
