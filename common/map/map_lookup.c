// SPDX-License-Identifier: MIT
#include <string.h>

#include "common/map/map_int.h"

uint64_t ash_map_version(const struct ash_map *map)
{
	return map->version;
}
uint64_t ash_map_place_version(const struct ash_map *map)
{
	return map->place_version;
}
const uint8_t *ash_map_system_uuid(const struct ash_map *map)
{
	return map->system_uuid;
}
uint32_t ash_map_dr_epoch(const struct ash_map *map)
{
	return map->dr_epoch;
}
uint32_t ash_map_lease_ms(const struct ash_map *map)
{
	return map->lease_ms;
}
uint32_t ash_map_op_deadline_ms(const struct ash_map *map)
{
	return map->op_deadline_ms;
}

struct ash_map_pool *ash_map_pool(const struct ash_map *map, uint64_t pool)
{
	return map_find(map, MAP_POOL, pool);
}
const struct ash_map_device *ash_map_device(const struct ash_map *map, uint64_t device)
{
	return map_find(map, MAP_DEVICE, device);
}
const struct ash_map_sds *ash_map_sds(const struct ash_map *map, uint64_t sds)
{
	return map_find(map, MAP_SDS, sds);
}
const struct ash_map_volume *ash_map_volume(const struct ash_map *map, uint64_t volume)
{
	return map_find(map, MAP_VOLUME, volume);
}
const struct ash_map_tombstone *ash_map_tombstone(const struct ash_map *map, uint64_t node)
{
	return map_find(map, MAP_TOMBSTONE, node);
}

const struct ash_map_sds *ash_map_sds_by_uuid(const struct ash_map *map, const uint8_t uuid[16])
{
	const struct ash_map_sds *s = NULL;

	while ((s = map_next(map, MAP_SDS, s ? s->id : 0)))
		if (memcmp(s->uuid, uuid, 16) == 0)
			return s;
	return NULL;
}

const struct ash_map_volume *ash_map_volume_by_node(const struct ash_map *map, uint64_t node)
{
	return ash_htab_get(&map->volume_by_node, node);
}

const struct ash_map_volume *ash_map_volume_by_name(const struct ash_map *map, const char *name)
{
	const struct ash_map_volume *v = NULL;

	while ((v = map_next(map, MAP_VOLUME, v ? v->id : 0)))
		if (strcmp(v->name, name) == 0)
			return v;
	return NULL;
}

const struct ash_map_mapping *ash_map_mapping(const struct ash_map *map, uint64_t node,
					      uint64_t sdc)
{
	const struct ash_map_mapping *m =
		ash_htab_get(&map->mapping_by_key, map_mapping_key(node, sdc));

	return m && m->node == node && m->sdc == sdc ? m : NULL;
}

const struct ash_map_device *ash_map_next_device(const struct ash_map *map, uint64_t after)
{
	return map_next(map, MAP_DEVICE, after);
}
const struct ash_map_sds *ash_map_next_sds(const struct ash_map *map, uint64_t after)
{
	return map_next(map, MAP_SDS, after);
}
struct ash_map_pool *ash_map_next_pool(const struct ash_map *map, uint64_t after)
{
	return map_next(map, MAP_POOL, after);
}
const struct ash_map_volume *ash_map_next_volume(const struct ash_map *map, uint64_t after)
{
	return map_next(map, MAP_VOLUME, after);
}
const struct ash_map_mapping *ash_map_next_mapping(const struct ash_map *map, uint64_t after)
{
	return map_next(map, MAP_MAPPING, after);
}
const struct ash_map_fence *ash_map_next_fence(const struct ash_map *map, uint64_t after)
{
	return map_next(map, MAP_FENCE, after);
}
const struct ash_map_tombstone *ash_map_next_tombstone(const struct ash_map *map, uint64_t after)
{
	return map_next(map, MAP_TOMBSTONE, after);
}
