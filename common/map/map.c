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
		ash_htab_done(&map->table[k].by_id);
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
	return ash_htab_get(&map->table[kind].by_id, id);
}

void *map_next(const struct ash_map *map, enum map_kind kind, uint64_t after)
{
	size_t i = after == UINT64_MAX ? map->table[kind].count : lower_bound(map, kind, after + 1);

	return i < map->table[kind].count ? map->table[kind].obj[i] : NULL;
}

int map_insert(struct ash_map *map, enum map_kind kind, void *obj)
{
	struct map_table *t = &map->table[kind];
	uint64_t id = map_obj_id(kind, obj);
	size_t i = lower_bound(map, kind, id);

	if (t->count == t->room) {
		size_t room = t->room ? t->room * 2 : 16;
		void **bigger = realloc(t->obj, room * sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		t->obj = bigger;
		t->room = room;
	}
	if (ash_htab_put(&t->by_id, id, obj))
		return -ENOMEM;
	memmove(&t->obj[i + 1], &t->obj[i], (t->count - i) * sizeof(*t->obj));
	t->obj[i] = obj;
	t->count++;
	return 0;
}

void map_remove(struct ash_map *map, enum map_kind kind, uint64_t id)
{
	struct map_table *t = &map->table[kind];
	void *obj = ash_htab_remove(&t->by_id, id);
	size_t i = lower_bound(map, kind, id);

	if (!obj)
		return;
	map_kinds[kind].drop(map, obj);
	free(obj);
	t->count--;
	memmove(&t->obj[i], &t->obj[i + 1], (t->count - i) * sizeof(*t->obj));
}
