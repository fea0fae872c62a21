/* SPDX-License-Identifier: MIT */
/* The whole state as bytes, and back. Equal states give equal bytes. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "mdm/core/state.h"

/* The repeated field of pb.Map that holds a kind. */
struct list {
	void ***items;
	size_t *count;
};

static struct list list_of(Pb__Map *map, int kind)
{
#define LIST(KIND_NAME, field)                                                                     \
	case PB__KIND__KIND_##KIND_NAME:                                                           \
		return (struct list)                                                               \
		{                                                                                  \
			(void ***)(void *)&map->field, &map->n_##field                             \
		}
	switch (kind) {
		LIST(DOMAIN, domains);
		LIST(FAULT_SET, fault_sets);
		LIST(SDS, sdss);
		LIST(DEVICE, devices);
		LIST(POOL, pools);
		LIST(VOLUME, volumes);
		LIST(SDC, sdcs);
		LIST(MAPPING, mappings);
		LIST(FENCE, fences);
		LIST(TOMBSTONE, tombstones);
		LIST(MDM, mdms);
	default:
		abort();
	}
#undef LIST
}

static size_t placed(const struct mdm_rows *rows)
{
	size_t n = 0;

	for (uint32_t pg = 0; pg < rows->pg_count; pg++)
		n += rows->row[pg].gen != 0;
	return n;
}

static void put_rows(const struct mdm_state *st, Pb__Map *map)
{
	size_t n = 0;

	for (size_t i = 0; i < st->rows_count; i++)
		n += placed(st->rows[i]);
	map->rows = ash_xcalloc(n, sizeof(*map->rows));
	for (size_t i = 0; i < st->rows_count; i++)
		for (uint32_t pg = 0; pg < st->rows[i]->pg_count; pg++)
			if (st->rows[i]->row[pg].gen)
				map->rows[map->n_rows++] = mdm_row_pb(st->rows[i], pg);
}

uint8_t *mdm_snapshot(const struct mdm_state *st, size_t *ret_bytes)
{
	Pb__Map map = PB__MAP__INIT;
	uint8_t *data;

	map.version = st->version;
	map.system = st->system;
	for (int kind = 1; kind < MDM_KINDS; kind++) {
		struct list l = list_of(&map, kind);

		*l.items = st->table[kind].obj;
		*l.count = st->table[kind].count;
	}
	put_rows(st, &map);
	map.removed = st->removed;
	map.n_removed = st->removed_count;
	map.events = st->events;
	map.n_events = st->events_count;
	map.next_id = st->next_id;
	map.next_event = st->next_event;
	map.removed_floor = st->removed_floor;
	map.applied_index = st->applied;
	*ret_bytes = pb__map__get_packed_size(&map);
	data = ash_xcalloc(1, *ret_bytes + 1);
	pb__map__pack(&map, data);
	for (size_t i = 0; i < map.n_rows; i++)
		mdm_pb_free(map.rows[i]);
	free(map.rows);
	return data;
}

/* ---------------------------------------------------------------- restore */

static const char *take_objects(struct mdm_state *st, Pb__Map *map)
{
	for (int kind = 1; kind < MDM_KINDS; kind++) {
		struct list l = list_of(map, kind);
		struct mdm_table *t = &st->table[kind];

		for (size_t i = 0; i < *l.count; i++) {
			uint64_t id = mdm_obj_id((*l.items)[i]);

			if (!id || (i && id <= mdm_obj_id((*l.items)[i - 1])))
				return "objects out of order";
		}
		t->obj = *l.items;
		t->count = t->room = *l.count;
		*l.items = NULL;
		*l.count = 0;
	}
	return NULL;
}

/* References that apply follows without asking. */
static const char *check_links(const struct mdm_state *st)
{
	MDM_EACH(st, PB__KIND__KIND_POOL, Pb__Pool, pool)
		if (!mdm_domain(st, pool->domain) || pool->pg_count < MDM_PG_MIN ||
		    pool->pg_count > MDM_PG_MAX || (pool->pg_count & (pool->pg_count - 1)) ||
		    pool->spare_pct > 100)
			return "a pool is malformed";
	MDM_EACH(st, PB__KIND__KIND_SDS, Pb__Sds, sds)
		if (!mdm_domain(st, sds->domain) ||
		    (sds->fault_set && !mdm_fault_set(st, sds->fault_set)))
			return "an SDS is in no domain";
	MDM_EACH(st, PB__KIND__KIND_DEVICE, Pb__Device, dev)
		if (!mdm_sds(st, dev->sds) || !mdm_pool(st, dev->pool))
			return "a device is of no SDS or pool";
	MDM_EACH(st, PB__KIND__KIND_VOLUME, Pb__Volume, vol)
		if (!mdm_pool(st, vol->pool))
			return "a volume is in no pool";
	MDM_EACH(st, PB__KIND__KIND_MAPPING, Pb__Mapping, m)
		if (!mdm_volume(st, m->volume) || !mdm_sdc(st, m->sdc))
			return "a mapping has no volume or SDC";
	return NULL;
}

static const char *take_row(struct mdm_state *st, const Pb__Row *r)
{
	struct mdm_rows *rows = mdm_rows(st, r->pool);
	struct mdm_row *row;

	if (!rows || r->pg >= rows->pg_count || !r->gen || r->gen > st->version ||
	    r->n_replicas > ASH_ROW_REPLICAS_MAX || r->n_last_in_sync > ASH_ROW_REPLICAS_MAX ||
	    r->primary > r->n_replicas || r->handover > r->n_replicas)
		return "a row is malformed";
	row = &rows->row[r->pg];
	row->gen = r->gen;
	row->shrunk_at = r->shrunk_at;
	row->primary = (uint8_t)r->primary;
	row->handover = (uint8_t)r->handover;
	row->replicas = (uint8_t)r->n_replicas;
	row->last_count = (uint8_t)r->n_last_in_sync;
	for (size_t i = 0; i < r->n_last_in_sync; i++)
		row->last[i] = r->last_in_sync[i];
	for (size_t i = 0; i < r->n_replicas; i++) {
		const Pb__Replica *from = r->replicas[i];

		if (!mdm_device(st, from->device) ||
		    from->state > PB__REPLICA_STATE__REPLICA_IN_SYNC)
			return "a row names no device";
		row->replica[i] = (struct mdm_replica){.device = from->device,
						       .state = (uint8_t)from->state,
						       .incarnation = from->incarnation,
						       .left_gen = from->left_gen};
	}
	return !row->primary == !mdm_row_in_sync(row) ? NULL : "a row has no primary";
}

static const char *take_rows(struct mdm_state *st, const Pb__Map *map)
{
	const char *why;

	MDM_EACH(st, PB__KIND__KIND_POOL, Pb__Pool, pool)
		mdm_rows_add(st, pool->id, pool->pg_count);
	for (size_t i = 0; i < map->n_rows; i++) {
		why = take_row(st, map->rows[i]);
		if (why)
			return why;
	}
	for (size_t i = 0; i < st->rows_count; i++)
		mdm_rows_chain(st->rows[i]);
	return NULL;
}

static const char *take_all(struct mdm_state *st, Pb__Map *map)
{
	const char *why = take_objects(st, map);

	st->version = map->version;
	st->system = map->system;
	map->system = NULL;
	if (!why)
		why = check_links(st);
	if (!why)
		why = take_rows(st, map);
	st->removed = map->removed;
	st->removed_count = map->n_removed;
	st->events = map->events;
	st->events_count = map->n_events;
	map->removed = NULL;
	map->events = NULL;
	map->n_removed = map->n_events = 0;
	st->next_id = map->next_id;
	st->next_event = map->next_event;
	st->removed_floor = map->removed_floor;
	st->applied = map->applied_index;
	if (!why && (st->events_count > MDM_EVENTS_MAX || st->removed_count > MDM_REMOVED_MAX))
		why = "more events or removals than are kept";
	return why;
}

struct mdm_state *mdm_restore(const uint8_t *data, size_t bytes, struct ash_error *ret_err)
{
	Pb__Map *map = pb__map__unpack(NULL, bytes, data);
	struct mdm_state *st;
	const char *why;

	if (!map) {
		*ret_err = ash_error_make(ASH_E_INVALID,
					  "the snapshot of %zu bytes cannot be decoded", bytes);
		return NULL;
	}
	st = mdm_state_new();
	why = take_all(st, map);
	pb__map__free_unpacked(map, NULL);
	if (why) {
		*ret_err = ash_error_make(ASH_E_INVALID, "the snapshot is not sound: %s", why);
		mdm_state_free(st);
		return NULL;
	}
	return st;
}
