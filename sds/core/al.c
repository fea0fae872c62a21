// SPDX-License-Identifier: MIT
/*
 * The activity log: which chunks may differ from a peer, or have checksums only in memory, after a
 * crash. A bounded cache of the unsettled mark: a chunk leaves it, when no operation is in flight,
 * by a journal record that sets the mark, never for anything that a peer would have to say. Before
 * that its checksum page is made durable.
 */
#include <stdlib.h>

#include "sds/core/store_int.h"

#define LEAVE_MAX 64u	    /* chunks leaving at a time */
#define CANDIDATES_MAX 128u /* looked at per turn */

int sds_al_init(struct sds_store *s)
{
	struct sds_al *al = &s->al;

	al->capacity = s->label.geo.al_capacity;
	al->slots = calloc(al->capacity, sizeof(*al->slots));
	al->free = calloc(al->capacity, sizeof(*al->free));
	ash_list_init(&al->lru);
	ash_list_init(&al->leaving);
	ash_list_init(&al->age);
	if (!al->slots || !al->free)
		return -ENOMEM;
	for (uint32_t i = 0; i < al->capacity; i++)
		al->free[i] = al->capacity - 1 - i;
	al->free_count = al->capacity;
	return 0;
}

void sds_al_done(struct sds_store *s)
{
	free(s->al.slots);
	free(s->al.free);
}

static void slot_free(struct sds_store *s, struct sds_slot *slot)
{
	struct sds_al *al = &s->al;

	ash_list_remove(&slot->lru);
	ash_list_remove(&slot->age);
	ash_list_remove(&slot->wait.link);
	slot->state = SDS_SLOT_FREE;
	al->free[al->free_count++] = (uint32_t)(slot - al->slots);
	s->wake_al = s->again = true;
}

/* ------------------------------------------------------------ staying */

bool sds_al_can_get(struct sds_store *s, uint32_t ext)
{
	if (ext != SDS_NONE && s->ext[ext].slot != SDS_NONE)
		return true;
	return s->al.free_count > 0 && (!s->q_al.head || s->retrying);
}

struct sds_slot *sds_al_get(struct sds_store *s, uint32_t ext, bool *ret_open)
{
	struct sds_al *al = &s->al;
	struct sds_slot *slot;

	*ret_open = false;
	if (s->ext[ext].slot == SDS_NONE) {
		if (!al->free_count)
			return NULL;
		slot = &al->slots[al->free[--al->free_count]];
		memset(slot, 0, sizeof(*slot));
		ash_list_init(&slot->lru);
		ash_list_init(&slot->age);
		ash_list_init(&slot->wait.link);
		slot->ext = ext;
		s->ext[ext].slot = (uint32_t)(slot - al->slots);
		*ret_open = true;
	} else {
		slot = &al->slots[s->ext[ext].slot];
		if (slot->state != SDS_SLOT_HOT)
			al->evicting--;
		if (slot->state == SDS_SLOT_GONE) {
			ash_list_remove(&slot->wait.link);
			*ret_open = true;
		}
	}
	slot->state = SDS_SLOT_HOT;
	slot->inflight++;
	ash_list_remove(&slot->lru);
	ash_list_push_back(&al->lru, &slot->lru);
	return slot;
}

void sds_al_recorded(struct sds_store *s, struct sds_slot *slot, uint64_t seq, bool open)
{
	slot->age_seq = seq;
	if (open)
		slot->open_seq = seq;
	ash_list_remove(&slot->age);
	ash_list_push_back(&s->al.age, &slot->age);
}

void sds_al_unpin(struct sds_store *s, struct sds_slot *slot)
{
	assert(slot->inflight > 0);
	if (--slot->inflight == 0) {
		if (slot->state == SDS_SLOT_ORPHAN)
			slot_free(s, slot);
		else if (s->q_al.head)
			s->again = true;
	}
}

void sds_al_drop(struct sds_store *s, uint32_t ext)
{
	struct sds_slot *slot;

	if (s->ext[ext].slot == SDS_NONE)
		return;
	slot = &s->al.slots[s->ext[ext].slot];
	if (slot->state != SDS_SLOT_HOT)
		s->al.evicting--;
	s->ext[ext].slot = SDS_NONE;
	if (slot->inflight == 0) {
		slot_free(s, slot);
		return;
	}
	slot->state = SDS_SLOT_ORPHAN;
	ash_list_remove(&slot->lru);
	ash_list_remove(&slot->age);
	ash_list_remove(&slot->wait.link);
}

static bool overlaps(const uint64_t map[SDS_BITMAP_WORDS], unsigned first, unsigned count)
{
	for (unsigned b = first; b < first + count; b++)
		if (map[b / 64] >> (b % 64) & 1)
			return true;
	return false;
}

uint64_t sds_al_unsealed(struct sds_store *s, struct sds_slot *slot, unsigned first, unsigned count)
{
	uint64_t sealed = s->j.sealed;

	if (slot->fw_no <= sealed || !ASH_RULE(SEAL))
		return 0;
	if (slot->older_no > sealed && overlaps(slot->older, first, count))
		return slot->older_no;
	if (!overlaps(slot->unsealed, first, count))
		return 0;
	if (slot->older_no <= sealed) {
		memcpy(slot->older, slot->unsealed, sizeof(slot->older));
		memset(slot->unsealed, 0, sizeof(slot->unsealed));
		slot->older_no = slot->fw_no;
	}
	return slot->fw_no;
}

/* ------------------------------------------------------------ leaving */

static void left(struct sds_store *s, struct sds_jwait *wait)
{
	struct sds_slot *slot = ash_container_of(wait, struct sds_slot, wait);

	s->ext[slot->ext].slot = SDS_NONE;
	s->al.evicting--;
	s->stats.al_evictions++;
	slot_free(s, slot);
}

static void leave_record(struct sds_store *s, struct sds_slot *slot)
{
	struct sds_ext *ext = &s->ext[slot->ext];

	if (ASH_RULE(EVICT_U) && !(ext->e.flags & SDS_EXT_UNSETTLED)) {
		ext->e.flags |= SDS_EXT_UNSETTLED;
		s->stats.unsettled++;
	}
	slot->state = SDS_SLOT_GONE;
	slot->wait.fn = left;
	sds_journal_wait(s, &slot->wait,
			 sds_journal_entry(s, SDS_JF_LEAVE, slot->ext, 0, 0, NULL, NULL));
}

static void page_is_written(struct sds_store *s, struct sds_slot *slot)
{
	slot->state = sds_flush_passed(s, slot->flush_ticket) ? SDS_SLOT_READY : SDS_SLOT_FLUSH;
	s->again = true;
}

void sds_al_page_written(struct sds_store *s, uint32_t ext, bool dirty)
{
	struct sds_slot *slot;

	if (s->ext[ext].slot == SDS_NONE)
		return;
	slot = &s->al.slots[s->ext[ext].slot];
	slot->flush_ticket = sds_flush_ticket(s);
	if (slot->state == SDS_SLOT_PAGE) {
		if (dirty)
			sds_page_write(s, &s->pages.pages[s->ext[ext].page]);
		else
			page_is_written(s, slot);
	}
}

static void begin_leaving(struct sds_store *s, struct sds_slot *slot)
{
	uint32_t i = s->ext[slot->ext].page;
	struct sds_page *page = i == SDS_NONE ? NULL : &s->pages.pages[i];

	ash_list_remove(&slot->lru);
	ash_list_push_back(&s->al.leaving, &slot->lru);
	s->al.evicting++;
	/* A write of the page may be in flight from an earlier attempt to leave. */
	if (page && page->dirty)
		sds_page_write(s, page);
	if (page && (page->writing || page->want_write) && ASH_RULE(LEAVE_CSUM))
		slot->state = SDS_SLOT_PAGE;
	else
		page_is_written(s, slot);
}

static uint32_t wanted_free(const struct sds_store *s)
{
	const struct sds_al *al = &s->al;

	if (s->closing)
		return al->capacity;
	if (al->capacity >= s->extents)
		return 0;
	return al->capacity / 16 + 1 + (s->q_al.head != NULL);
}

static void choose_leavers(struct sds_store *s)
{
	struct sds_al *al = &s->al;
	uint32_t want = wanted_free(s);
	unsigned looked = 0;

	ash_list_each_safe(it, &al->lru) {
		struct sds_slot *slot = ash_container_of(it, struct sds_slot, lru);

		if (al->free_count + al->evicting >= want || al->evicting >= LEAVE_MAX ||
		    looked++ >= CANDIDATES_MAX)
			break;
		if (slot->inflight)
			continue;
		if (slot->fw_no > s->j.sealed)
			sds_want_seal(&s->j,
				      slot->fw_no); /* its unsealed blocks would be forgotten */
		else if (sds_journal_durable(&s->j, slot->open_seq))
			begin_leaving(s, slot);
	}
}

void sds_al_run(struct sds_store *s)
{
	struct sds_al *al = &s->al;

	if (al->free_count + al->evicting < wanted_free(s))
		choose_leavers(s);
	ash_list_each_safe(it, &al->leaving) {
		struct sds_slot *slot = ash_container_of(it, struct sds_slot, lru);

		if (slot->state == SDS_SLOT_FLUSH && sds_flush_passed(s, slot->flush_ticket))
			slot->state = SDS_SLOT_READY;
		if (slot->state == SDS_SLOT_READY) {
			if (!sds_journal_room(s, SDS_J_PEER, sds_jrec_entry_bytes(0)))
				break;
			leave_record(s, slot);
		}
	}
}
