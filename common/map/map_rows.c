// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>

#include "common/map/map_int.h"
#include "common/shared/chunk_pg.h"

/* The pool of a row: at hand, or in the same message. */
static uint32_t pg_count_of(const struct ash_map *map, const Pb__Map *all, uint64_t pool)
{
	const struct ash_map_pool *p = map_find(map, MAP_POOL, pool);

	if (p)
		return p->pg_count;
	for (size_t i = 0; i < all->n_pools; i++)
		if (all->pools[i]->id == pool)
			return all->pools[i]->pg_count;
	return 0;
}

int map_row_check(const struct ash_map *map, const Pb__Map *all, const Pb__Row *pb)
{
	if (pb->pg >= pg_count_of(map, all, pb->pool) || pb->n_replicas > ASH_ROW_REPLICAS_MAX ||
	    pb->primary > pb->n_replicas || pb->handover > pb->n_replicas || pb->gen == 0)
		return -EINVAL;
	for (size_t i = 0; i < pb->n_replicas; i++) {
		if (pb->replicas[i]->device == 0 ||
		    (unsigned)pb->replicas[i]->state > PB__REPLICA_STATE__REPLICA_IN_SYNC)
			return -EINVAL;
		for (size_t j = 0; j < i; j++)
			if (pb->replicas[j]->device == pb->replicas[i]->device)
				return -EINVAL;
	}
	/* Who serves must be in sync. */
	if (pb->primary &&
	    pb->replicas[pb->primary - 1]->state != PB__REPLICA_STATE__REPLICA_IN_SYNC)
		return -EINVAL;
	return 0;
}

/* Fills SDS and endpoint from the objects at hand; what is unknown here keeps its old value, which
 * may have come with a row from an SDS. */
static void resolve(const struct ash_map *map, struct ash_replica *r)
{
	const struct ash_map_device *d = map_find(map, MAP_DEVICE, r->device);
	const struct ash_map_sds *s = d ? map_find(map, MAP_SDS, d->sds) : NULL;

	if (!s)
		return;
	r->sds = s->id;
	if (d->reactor < s->endpoints)
		r->endpoint = s->endpoint[d->reactor];
}

void map_row_apply(struct ash_map *map, const Pb__Row *pb, struct map_changes *changes)
{
	struct ash_map_pool *pool = map_find(map, MAP_POOL, pb->pool);
	struct ash_row row = {.gen = pb->gen,
			      .shrunk_at = pb->shrunk_at,
			      .replicas = (uint8_t)pb->n_replicas,
			      .primary = (uint8_t)(pb->primary - 1),
			      .handover = (uint8_t)(pb->handover - 1)};

	if (!pool || pb->gen <= pool->rows[pb->pg].gen)
		return;
	for (size_t i = 0; i < pb->n_replicas; i++) {
		const Pb__Replica *r = pb->replicas[i];

		row.replica[i] = (struct ash_replica){.device = r->device,
						      .incarnation = r->incarnation,
						      .left_gen = r->left_gen,
						      .state = (uint8_t)r->state};
		resolve(map, &row.replica[i]);
	}
	if (changes->watch)
		changes->row[changes->rows++] = (struct map_row_change){
			.pool = pool, .pg = pb->pg, .old = pool->rows[pb->pg]};
	pool->rows[pb->pg] = row;
}

void map_rows_refresh_endpoints(struct ash_map *map)
{
	struct ash_map_pool *pool = NULL;

	map->endpoints_dirty = false;
	while ((pool = map_next(map, MAP_POOL, pool ? pool->id : 0)))
		for (uint32_t pg = 0; pg < pool->pg_count; pg++)
			for (unsigned i = 0; i < pool->rows[pg].replicas; i++)
				resolve(map, &pool->rows[pg].replica[i]);
}

static int decode_replica(const struct ash_wire_replica *w, struct ash_replica *r)
{
	if (w->reserved[0] || w->reserved[1] || w->reserved[2] || w->endpoint.reserved)
		return -EINVAL;
	*r = (struct ash_replica){.device = ash_get64(w->device),
				  .sds = ash_get64(w->sds),
				  .incarnation = ash_get64(w->incarnation),
				  .left_gen = ash_get64(w->left_gen),
				  .state = w->state};
	memcpy(r->endpoint.ip, w->endpoint.ip, 16);
	r->endpoint.port = ash_get16(w->endpoint.port);
	r->endpoint.transport = w->endpoint.transport;
	return r->device && r->state <= ASH_REPLICA_IN_SYNC ? 0 : -EINVAL;
}

static bool named_before(const struct ash_row *row, unsigned i)
{
	for (unsigned j = 0; j < i; j++)
		if (row->replica[j].device == row->replica[i].device)
			return true;
	return false;
}

int ash_map_apply_row(struct ash_map *map, const struct ash_wire_row *w,
		      const struct ash_map_watch *watch)
{
	struct ash_map_pool *pool = map_find(map, MAP_POOL, ash_get64(w->pool));
	uint32_t pg = ash_get32(w->pg);
	struct ash_row row = {.gen = ash_get64(w->gen),
			      .shrunk_at = ash_get64(w->shrunk_at),
			      .replicas = w->replicas,
			      .primary = w->primary,
			      .handover = ASH_NO_PRIMARY};
	struct ash_row old;

	if (!pool)
		return -ENOENT;
	if (w->reserved[0] || w->reserved[1] || pg >= pool->pg_count ||
	    w->replicas > ASH_ROW_REPLICAS_MAX || row.gen == 0 ||
	    (w->primary != ASH_NO_PRIMARY && w->primary >= w->replicas))
		return -EINVAL;
	for (unsigned i = 0; i < w->replicas; i++)
		if (decode_replica(&w->replica[i], &row.replica[i]) || named_before(&row, i))
			return -EINVAL;
	if (w->primary != ASH_NO_PRIMARY && row.replica[w->primary].state != ASH_REPLICA_IN_SYNC)
		return -EINVAL;
	if (row.gen <= pool->rows[pg].gen)
		return 0;
	old = pool->rows[pg];
	pool->rows[pg] = row;
	if (watch && watch->row)
		watch->row(watch->arg, pool, pg, &old);
	return 1;
}

void ash_map_encode_row(const struct ash_map *map, const struct ash_map_pool *pool, uint32_t pg,
			struct ash_wire_row *w)
{
	const struct ash_row *row = &pool->rows[pg];

	memset(w, 0, sizeof(*w));
	w->pool = ash_put64(pool->id);
	w->gen = ash_put64(row->gen);
	w->shrunk_at = ash_put64(row->shrunk_at);
	w->pg = ash_put32(pg);
	w->replicas = row->replicas;
	w->primary = row->primary;
	for (unsigned i = 0; i < row->replicas; i++) {
		const struct ash_replica *r = &row->replica[i];
		struct ash_wire_replica *out = &w->replica[i];

		out->device = ash_put64(r->device);
		out->sds = ash_put64(r->sds);
		out->incarnation = ash_put64(r->incarnation);
		out->left_gen = ash_put64(r->left_gen);
		out->state = r->state;
		memcpy(out->endpoint.ip, r->endpoint.ip, 16);
		out->endpoint.port = ash_put16(r->endpoint.port);
		out->endpoint.transport = r->endpoint.transport;
	}
}

int ash_map_locate(const struct ash_map *map, uint64_t node, uint64_t chunk,
		   struct ash_map_pool **ret_pool, uint32_t *ret_pg)
{
	const struct ash_map_volume *v = ash_map_volume_by_node(map, node);
	struct ash_map_pool *pool = v ? map_find(map, MAP_POOL, v->pool) : NULL;

	if (!pool)
		return -ENOENT;
	*ret_pool = pool;
	*ret_pg = ash_chunk_pg(v->first_pg, chunk, pool->pg_shift, pool->pg_count);
	return 0;
}
