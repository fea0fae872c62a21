// SPDX-License-Identifier: MIT
/*
 * What the journal says. Replay begins at the tail that the newest valid block names and goes on
 * while blocks follow each other; a gap is the end, unless some block claims that the missing one
 * was durable: then the journal is damaged and the copy must not be trusted.
 */
#include <stdlib.h>

#include "common/base/bitmap.h"
#include "common/base/log.h"
#include "sds/core/store_int.h"

static const uint8_t *ring_block(const struct sds_store *s, const struct sds_recovery *r,
				 uint64_t seq)
{
	return r->ring + seq % s->label.geo.journal_blocks * ASH_BLOCK_BYTES;
}

static bool block_at(const struct sds_store *s, const struct sds_recovery *r, uint64_t pos,
		     struct sds_jhdr *h)
{
	return sds_jblock_decode(r->ring + pos * ASH_BLOCK_BYTES, h) == 0 &&
	       !memcmp(h->device_uuid, s->label.label.device_uuid, 16) && h->seq > 0 &&
	       h->seq % s->label.geo.journal_blocks == pos;
}

/* First and last block to replay. */
static int find_range(struct sds_store *s, struct sds_recovery *r, uint64_t *ret_first,
		      uint64_t *ret_last)
{
	uint64_t newest = 0, durable = 0, tail = 0, seq;
	struct sds_jhdr h;

	for (uint64_t pos = 0; pos < s->label.geo.journal_blocks; pos++) {
		if (!block_at(s, r, pos, &h))
			continue;
		if (h.seq > newest) {
			newest = h.seq;
			tail = h.tail;
		}
		if (h.durable > durable)
			durable = h.durable;
	}
	if (newest == 0)
		return -EBADMSG; /* format and every opening write one */
	for (seq = tail; seq <= newest; seq++)
		if (!block_at(s, r, seq % s->label.geo.journal_blocks, &h) || h.seq != seq)
			break;
	if (seq <= durable) {
		sds_store_trace(s, ASH_LOG_ERROR, "event=journal_damaged block=%llu durable=%llu",
				(unsigned long long)seq, (unsigned long long)durable);
		return -EBADMSG;
	}
	*ret_first = tail;
	*ret_last = seq - 1;
	r->next_seq = newest + 1;
	return 0;
}

static void pend_clear(struct sds_recovery *r, uint32_t ext, unsigned first, unsigned count)
{
	if (r->pend[ext])
		ash_bits_assign(r->pend[ext]->mask, first, count, false);
}

static int pend_add(struct sds_recovery *r, const struct sds_jrec *rec)
{
	struct sds_pend *p = r->pend[rec->ext];

	if (!p) {
		p = r->pend[rec->ext] = calloc(1, sizeof(*p));
		if (!p)
			return -ENOMEM;
	}
	for (unsigned i = 0; i < rec->count; i++) {
		unsigned block = rec->first + i;

		if (sds_jrec_before(rec, i) == ASH_BLK_DATA)
			continue; /* an overwrite that rode along */
		ash_bit_set(p->mask, block);
		p->crc[block] = sds_jrec_crc(rec, i);
		p->before[block] = (uint8_t)sds_jrec_before(rec, i);
	}
	return 0;
}

static int apply(struct sds_store *s, struct sds_recovery *r, const struct sds_jrec *rec,
		 uint64_t fw_no)
{
	if (rec->ext >= s->extents)
		return -EBADMSG;
	if (rec->type == SDS_JREC_HOT) {
		ash_bit_set(r->hot, rec->ext);
		return 0;
	}
	s->ext[rec->ext].e = rec->entry;
	ash_bit_clear(r->damaged, rec->ext);
	ash_bit_set(r->changed, rec->ext / SDS_ENTRIES_PER_BLOCK);
	if (rec->flags & (SDS_JF_LEAVE | SDS_JF_FREE))
		ash_bit_clear(r->hot, rec->ext);
	else if (rec->flags & SDS_JF_OPEN)
		ash_bit_set(r->hot, rec->ext);
	if (rec->flags & SDS_JF_FREE)
		pend_clear(r, rec->ext, 0, ASH_CHUNK_BLOCKS);
	else if (!(rec->flags & SDS_JF_FIRST))
		pend_clear(r, rec->ext, rec->first, rec->count);
	else if (fw_no > r->sealed)
		return pend_add(r, rec);
	return 0;
}

int sds_replay(struct sds_store *s, struct sds_recovery *r)
{
	uint64_t first, last, seq;
	struct sds_jhdr h;
	int err = find_range(s, r, &first, &last);

	if (err)
		return err;
	for (seq = first; seq <= last; seq++) {
		sds_jblock_decode(ring_block(s, r, seq), &h);
		if (h.sealed > r->sealed)
			r->sealed = h.sealed;
	}
	r->fw_last = r->sealed;
	for (seq = first; seq <= last; seq++) {
		const uint8_t *block = ring_block(s, r, seq);
		struct sds_jrec rec;
		size_t pos = 0;
		uint64_t fw_no;

		sds_jblock_decode(block, &h);
		fw_no = h.fw_first;
		while (sds_jblock_next(block, &h, &pos, &rec)) {
			err = apply(s, r, &rec, fw_no);
			if (err)
				return err;
			if (rec.flags & SDS_JF_FIRST && rec.type == SDS_JREC_ENTRY)
				fw_no++;
		}
		if (fw_no > r->fw_last)
			r->fw_last = fw_no;
	}
	sds_store_trace(s, ASH_LOG_INFO, "event=journal_replayed blocks=%llu",
			(unsigned long long)(last - first + 1));
	return 0;
}

static void mark_hot(struct sds_store *s, struct sds_recovery *r, uint32_t i)
{
	struct sds_entry *e = &s->ext[i].e;

	if (!ash_bit_get(r->hot, i) || !(e->flags & SDS_EXT_USED))
		return;
	if (ASH_RULE(AL_RECOVER_U))
		e->flags |= SDS_EXT_UNSETTLED;
	e->distrust = s->label.label.incarnation;
	ash_bit_set(r->changed, i / SDS_ENTRIES_PER_BLOCK);
}

int sds_replay_finish(struct sds_store *s, struct sds_recovery *r)
{
	for (uint32_t i = 0; i < s->extents; i++) {
		const struct sds_entry *e = &s->ext[i].e;

		/* nothing reaches the table before the journal */
		if (ash_bit_get(r->damaged, i) || e->seq >= r->next_seq || e->birth > e->seq) {
			sds_store_trace(s, ASH_LOG_ERROR, "event=table_damaged extent=%u", i);
			return -EBADMSG;
		}
		mark_hot(s, r, i);
	}
	for (uint32_t i = s->extents; i-- > 0;) { /* low extents on top of the stack */
		const struct sds_entry *e = &s->ext[i].e;

		if (e->flags & SDS_EXT_USED) {
			s->used++;
			if (e->flags & SDS_EXT_UNSETTLED)
				s->stats.unsettled++;
			if (!sds_index_add(s, i))
				return -EBADMSG; /* two extents for one chunk */
		} else if (e->flags & SDS_EXT_RETIRED) {
			s->retired++;
		} else {
			s->free[s->free_count++] = i;
		}
	}
	return 0;
}
