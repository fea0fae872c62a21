// SPDX-License-Identifier: MIT
/*
 * From (node, chunk) to extent, the stack of free extents, and reservations. Open addressing with
 * linear probing, at most half full, no tombstones.
 */
#include <stdlib.h>

#include "sds/core/store_int.h"

static uint64_t mix(uint64_t node, uint64_t chunk)
{
	uint64_t h = node * 0x9e3779b97f4a7c15ull ^ (chunk + 0x7f4a7c15ull) * 0xd6e8feb86659fd93ull;

	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93ull;
	return h ^ h >> 29;
}

int sds_index_init(struct sds_store *s)
{
	uint32_t room = 16;

	while (room < 2 * (uint64_t)s->extents && room < 1u << 31)
		room *= 2;
	s->index = malloc((size_t)room * sizeof(*s->index));
	s->free = malloc((size_t)s->extents * sizeof(*s->free));
	s->resv = calloc(SDS_RESV_PLACES, sizeof(*s->resv));
	if (!s->index || !s->free || !s->resv)
		return -ENOMEM;
	memset(s->index, 0xff, (size_t)room * sizeof(*s->index));
	s->index_mask = room - 1;
	return 0;
}

void sds_index_done(struct sds_store *s)
{
	free(s->index);
	free(s->free);
	free(s->resv);
}

/* Place of the chunk, or the free place where its search ended. */
static uint32_t place(const struct sds_store *s, uint64_t node, uint64_t chunk)
{
	uint32_t at = (uint32_t)mix(node, chunk) & s->index_mask;

	while (s->index[at] != SDS_NONE) {
		const struct sds_entry *e = &s->ext[s->index[at]].e;

		if (e->chunk == chunk && e->node == node)
			break;
		at = (at + 1) & s->index_mask;
	}
	return at;
}

uint32_t sds_index_find(const struct sds_store *s, uint64_t node, uint64_t chunk)
{
	return s->index[place(s, node, chunk)];
}

bool sds_index_add(struct sds_store *s, uint32_t ext)
{
	uint32_t at = place(s, s->ext[ext].e.node, s->ext[ext].e.chunk);

	if (s->index[at] != SDS_NONE)
		return false;
	s->index[at] = ext;
	return true;
}

void sds_index_remove(struct sds_store *s, uint32_t ext)
{
	uint32_t hole = place(s, s->ext[ext].e.node, s->ext[ext].e.chunk), at = hole;

	assert(s->index[hole] == ext);
	for (;;) {
		uint32_t home;

		at = (at + 1) & s->index_mask;
		if (s->index[at] == SDS_NONE)
			break;
		home = (uint32_t)mix(s->ext[s->index[at]].e.node, s->ext[s->index[at]].e.chunk) &
		       s->index_mask;
		if (((at - home) & s->index_mask) >= ((at - hole) & s->index_mask)) {
			s->index[hole] = s->index[at];
			hole = at;
		}
	}
	s->index[hole] = SDS_NONE;
}

/* ------------------------------------------------------------ reservations */

#define RESV_MASK (SDS_RESV_PLACES - 1)

static struct sds_resv *resv_place(const struct sds_store *s, uint64_t node, uint64_t chunk)
{
	uint32_t at = (uint32_t)mix(node, chunk) & RESV_MASK;

	while (s->resv[at].count && (s->resv[at].node != node || s->resv[at].chunk != chunk))
		at = (at + 1) & RESV_MASK;
	return &s->resv[at];
}

static void resv_remove(struct sds_store *s, struct sds_resv *r)
{
	uint32_t hole = (uint32_t)(r - s->resv), at = hole;

	s->resv_count--;
	for (;;) {
		uint32_t home;

		at = (at + 1) & RESV_MASK;
		if (!s->resv[at].count)
			break;
		home = (uint32_t)mix(s->resv[at].node, s->resv[at].chunk) & RESV_MASK;
		if (((at - home) & RESV_MASK) >= ((at - hole) & RESV_MASK)) {
			s->resv[hole] = s->resv[at];
			hole = at;
		}
	}
	memset(&s->resv[hole], 0, sizeof(s->resv[hole]));
}

int sds_store_reserve(struct sds_store *s, uint64_t node, uint64_t chunk, bool rebuild)
{
	struct sds_resv *r;

	if (sds_index_find(s, node, chunk) != SDS_NONE)
		return 1;
	r = resv_place(s, node, chunk);
	if (r->count && r->held) {
		r->count++;
		return 0;
	}
	if (s->free_count <= s->held) {
		if (s->pending_free == 0 || rebuild)
			return -ENOSPC;
		s->space_asked = true;
		return -EAGAIN;
	}
	if (s->resv_count >= SDS_RESV_PLACES / 2) {
		s->space_asked = true;
		return -EAGAIN;
	}
	if (!r->count)
		s->resv_count++;
	r->node = node;
	r->chunk = chunk;
	r->count++;
	r->held = true;
	s->held++;
	return 0;
}

void sds_store_unreserve(struct sds_store *s, uint64_t node, uint64_t chunk)
{
	struct sds_resv *r = resv_place(s, node, chunk);

	if (!r->count || --r->count)
		return;
	if (r->held) {
		s->held--;
		s->wake_space = true;
		sds_kick(s);
	}
	resv_remove(s, r);
}

void sds_space_used(struct sds_store *s, uint64_t node, uint64_t chunk)
{
	if (s->resv_count)
		sds_store_unreserve(s, node, chunk);
}

/* ------------------------------------------------------------ space */

int sds_space_check(const struct sds_store *s, const struct sds_store_op *op)
{
	if (s->resv_count && s->free_count > 0 && resv_place(s, op->node, op->chunk)->held)
		return 0;
	if (s->free_count > s->held) /* after those who wait already */
		return !s->q_space.head || s->retrying || op->rebuild ? 0 : -EAGAIN;
	return s->pending_free && !op->rebuild ? -EAGAIN : -ENOSPC;
}

uint32_t sds_space_take(struct sds_store *s, struct sds_store_op *op)
{
	struct sds_resv *r = resv_place(s, op->node, op->chunk);
	struct sds_ext *ext;
	uint32_t i;

	assert(s->free_count > 0);
	if (r->count && r->held) {
		r->held = false;
		s->held--;
	}
	i = s->free[--s->free_count];
	ext = &s->ext[i];
	assert(ext->slot == SDS_NONE && ext->page == SDS_NONE);
	assert(ext->io == 0 || !ASH_RULE(REUSE));
	memset(&ext->e, 0, sizeof(ext->e));
	ext->e.node = op->node;
	ext->e.chunk = op->chunk;
	ext->e.flags = SDS_EXT_USED;
	s->used++;
	sds_index_add(s, i);
	return i;
}

void sds_space_release(struct sds_store *s, uint32_t i)
{
	struct sds_ext *ext = &s->ext[i];

	if (!ext->freeing || !ext->free_durable)
		return;
	if (ext->io && ASH_RULE(REUSE))
		return;
	ext->freeing = ext->free_durable = false;
	s->pending_free--;
	if (ext->e.flags & SDS_EXT_RETIRED) {
		s->retired++;
		return;
	}
	s->free[s->free_count++] = i;
	s->wake_space = s->again = true;
}
