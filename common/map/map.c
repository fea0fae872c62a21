// SPDX-License-Identifier: MIT
#include "common/map/map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/map/map_int.h"

struct ash_map *ash_map_new(void)
{
	return calloc(1, sizeof(struct ash_map));
}

void ash_map_free(struct ash_map *map)
{
	if (!map)
		return;
	for (enum map_kind k = 0; k < MAP_KINDS; k++) {
		for (size_t i = 0; i < map->table[k].count; i++) {
			map_kinds[k].drop(map, map->table[k].obj[i]);
			free(map->table[k].obj[i]);
		}
		free(map->table[k].obj);
	}
	ash_htab_done(&map->volume_by_node);
	ash_htab_done(&map->mapping_by_key);
	free(map);
}

/* Index of the first object with an id >= @id. */
static size_t lower_bound(const struct ash_map *map, enum map_kind kind, uint64_t id)
{
	const struct map_table *t = &map->table[kind];
	size_t lo = 0, hi = t->count;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (map_obj_id(kind, t->obj[mid]) < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

void *map_find(const struct ash_map *map, enum map_kind kind, uint64_t id)
{
	size_t i = lower_bound(map, kind, id);

	if (i < map->table[kind].count && map_obj_id(kind, map->table[kind].obj[i]) == id)
		return map->table[kind].obj[i];
	return NULL;
}

void *map_next(const struct ash_map *map, enum map_kind kind, uint64_t after)
{
	size_t i = after == UINT64_MAX ? map->table[kind].count : lower_bound(map, kind, after + 1);

	return i < map->table[kind].count ? map->table[kind].obj[i] : NULL;
}

int map_insert(struct ash_map *map, enum map_kind kind, void *obj)
{
	struct map_table *t = &map->table[kind];
	size_t i = lower_bound(map, kind, map_obj_id(kind, obj));

	if (t->count == t->room) {
		size_t room = t->room ? t->room * 2 : 16;
		void **bigger = realloc(t->obj, room * sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		t->obj = bigger;
		t->room = room;
	}
	memmove(&t->obj[i + 1], &t->obj[i], (t->count - i) * sizeof(*t->obj));
	t->obj[i] = obj;
	t->count++;
	return 0;
}

void map_remove(struct ash_map *map, enum map_kind kind, uint64_t id)
{
	struct map_table *t = &map->table[kind];
	size_t i = lower_bound(map, kind, id);

	if (i >= t->count || map_obj_id(kind, t->obj[i]) != id)
		return;
	map_kinds[kind].drop(map, t->obj[i]);
	free(t->obj[i]);
	t->count--;
	memmove(&t->obj[i], &t->obj[i + 1], (t->count - i) * sizeof(*t->obj));
}

static int check_all(const struct ash_map *map, const Pb__Map *pb)
{
	for (enum map_kind k = 0; k < MAP_KINDS; k++) {
		void *const *list;
		size_t n = map_kinds[k].list(pb, &list);

		for (size_t i = 0; i < n; i++)
			if (map_kinds[k].check(map, list[i]))
				return -EINVAL;
	}
	for (size_t i = 0; i < pb->n_rows; i++)
		if (map_row_check(map, pb, pb->rows[i]))
			return -EINVAL;
	if (pb->system && pb->system->uuid.len != 16 && pb->system->uuid.len != 0)
		return -EINVAL;
	return 0;
}

static int apply_object(struct ash_map *map, enum map_kind k, const void *pb,
			const struct ash_map_watch *watch)
{
	const struct map_kind_ops *ops = &map_kinds[k];
	uint64_t id = ops->pb_id(pb);
	void *obj = map_find(map, k, id);
	bool fresh = !obj;
	int err;

	if (obj && *map_obj_version(k, obj) >= ops->pb_version(pb))
		return 0;
	if (fresh && !(obj = calloc(1, ops->bytes)))
		return -ENOMEM;
	err = ops->fill(map, obj, pb);
	if (!err && fresh)
		err = map_insert(map, k, obj);
	if (err) {
		if (fresh) {
			ops->drop(map, obj);
			free(obj);
		}
		return err;
	}
	*map_obj_version(k, obj) = ops->pb_version(pb);
	if (watch && watch->object)
		watch->object(watch->arg, ops->pb_kind, id);
	return 0;
}

static void remove_one(struct ash_map *map, enum map_kind k, uint64_t id,
		       const struct ash_map_watch *watch)
{
	map_remove(map, k, id);
	if (watch && watch->removed)
		watch->removed(watch->arg, map_kinds[k].pb_kind, id);
}

static void apply_removals(struct ash_map *map, const Pb__Map *pb,
			   const struct ash_map_watch *watch)
{
	for (size_t i = 0; i < pb->n_removed; i++)
		for (enum map_kind k = 0; k < MAP_KINDS; k++) {
			void *obj;

			if (map_kinds[k].pb_kind != (int)pb->removed[i]->kind)
				continue;
			obj = map_find(map, k, pb->removed[i]->id);
			if (obj && *map_obj_version(k, obj) <= pb->removed[i]->version)
				remove_one(map, k, pb->removed[i]->id, watch);
		}
}

static bool listed(const Pb__Map *pb, enum map_kind k, uint64_t id)
{
	void *const *list;
	size_t n = map_kinds[k].list(pb, &list);

	for (size_t i = 0; i < n; i++)
		if (map_kinds[k].pb_id(list[i]) == id)
			return true;
	return false;
}

/* A full map is all there is: what it does not name is gone. */
static void remove_unlisted(struct ash_map *map, const Pb__Map *pb,
			    const struct ash_map_watch *watch)
{
	for (enum map_kind k = 0; k < MAP_KINDS; k++)
		for (size_t i = map->table[k].count; i-- > 0;) {
			uint64_t id = map_obj_id(k, map->table[k].obj[i]);

			if (!listed(pb, k, id))
				remove_one(map, k, id, watch);
		}
}

static void apply_system(struct ash_map *map, const Pb__System *s)
{
	if (!s || (s->version <= map->system_version && map->system_version))
		return;
	map->system_version = s->version;
	if (s->uuid.len == 16)
		memcpy(map->system_uuid, s->uuid.data, 16);
	map->dr_epoch = s->dr_epoch;
	map->lease_ms = s->lease_ms;
	map->op_deadline_ms = s->op_deadline_ms;
}

int ash_map_apply(struct ash_map *map, const Pb__Map *pb, const struct ash_map_watch *watch)
{
	bool full = pb->base_version == 0;

	if (!full && pb->base_version > map->version)
		return -ESTALE;
	/* Late or repeated. It may name objects that were removed since: nothing of it counts. */
	if (pb->version < map->version || (pb->version == map->version && map->version > 0))
		return 0;
	if (check_all(map, pb))
		return -EINVAL;
	apply_system(map, pb->system);
	if (full)
		remove_unlisted(map, pb, watch);
	else
		apply_removals(map, pb, watch);
	for (enum map_kind k = 0; k < MAP_KINDS; k++) {
		void *const *list;
		size_t n = map_kinds[k].list(pb, &list);

		for (size_t i = 0; i < n; i++) {
			int err = apply_object(map, k, list[i], watch);

			if (err)
				return err;
		}
	}
	if (map->endpoints_dirty)
		map_rows_refresh_endpoints(map);
	if (pb->version > map->version)
		map->version = pb->version;
	if (pb->place_version > map->place_version)
		map->place_version = pb->place_version;
	for (size_t i = 0; i < pb->n_rows; i++)
		map_row_apply(map, pb->rows[i], watch);
	return 0;
}

void ash_map_raise_place_version(struct ash_map *map, uint64_t place_version)
{
	if (place_version > map->place_version)
		map->place_version = place_version;
}
