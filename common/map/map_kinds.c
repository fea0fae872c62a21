// SPDX-License-Identifier: MIT
/* From protobuf objects to the map's own, one block per kind. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/map/map_int.h"
#include "common/shared/chunk_pg.h"

#define LISTING(kind, field)                                                                       \
	static size_t kind##_list(const Pb__Map *pb, void *const **ret_list)                       \
	{                                                                                          \
		*ret_list = (void *const *)pb->field;                                              \
		return pb->n_##field;                                                              \
	}
#define KEYS(kind, type, id_field)                                                                 \
	static uint64_t kind##_id(const void *p)                                                   \
	{                                                                                          \
		return ((const type *)p)->id_field;                                                \
	}                                                                                          \
	static uint64_t kind##_version(const void *p)                                              \
	{                                                                                          \
		return ((const type *)p)->version;                                                 \
	}
#define OPS(kind, pbk, type, id_field)                                                             \
	{                                                                                          \
		pbk, sizeof(type), offsetof(type, id_field), offsetof(type, version),              \
			kind##_check, kind##_fill, kind##_drop, kind##_list, kind##_id,            \
			kind##_version                                                             \
	}

LISTING(sds, sdss)
LISTING(device, devices)
LISTING(pool, pools)
LISTING(volume, volumes)
LISTING(mapping, mappings)
LISTING(fence, fences)
LISTING(tombstone, tombstones)
KEYS(sds, Pb__Sds, id)
KEYS(device, Pb__Device, id)
KEYS(pool, Pb__Pool, id)
KEYS(volume, Pb__Volume, id)
KEYS(mapping, Pb__Mapping, id)
KEYS(fence, Pb__Fence, id)
KEYS(tombstone, Pb__Tombstone, node)

/* Fixed-size bytes: exactly 16, or none (zeroes). */
static bool bytes16_ok(const ProtobufCBinaryData *b)
{
	return b->len == 0 || b->len == 16;
}
static void take16(uint8_t out[16], const ProtobufCBinaryData *b)
{
	memset(out, 0, 16);
	if (b->len == 16)
		memcpy(out, b->data, 16);
}
static void take_text(char *out, size_t room, const char *text)
{
	size_t n = text ? strnlen(text, room - 1) : 0;

	memcpy(out, text ? text : "", n);
	out[n] = '\0';
}
static int take_list(uint64_t **list, uint32_t *count, const uint64_t *from, size_t n)
{
	uint64_t *copy = NULL;

	if (n > 0) {
		copy = malloc(n * sizeof(*copy));
		if (!copy)
			return -ENOMEM;
		memcpy(copy, from, n * sizeof(*copy));
	}
	free(*list);
	*list = copy;
	*count = (uint32_t)n;
	return 0;
}

/* ---- SDS */
static int sds_check(const struct ash_map *map, const void *p)
{
	const Pb__Sds *pb = p;

	if (!pb->id || !bytes16_ok(&pb->uuid) || !bytes16_ok(&pb->session) || pb->n_endpoints > 64)
		return -EINVAL;
	for (size_t i = 0; i < pb->n_endpoints; i++)
		if (pb->endpoints[i]->ip.len != 16 || pb->endpoints[i]->port > 65535 ||
		    pb->endpoints[i]->transport > 255)
			return -EINVAL;
	return 0;
}
static int sds_fill(struct ash_map *map, void *obj, const void *p)
{
	const Pb__Sds *pb = p;
	struct ash_map_sds *o = obj;

	o->id = pb->id;
	o->domain = pb->domain;
	o->fault_set = pb->fault_set;
	take16(o->uuid, &pb->uuid);
	take16(o->session, &pb->session);
	o->up = pb->up;
	o->endpoints = (uint32_t)pb->n_endpoints;
	for (size_t i = 0; i < pb->n_endpoints; i++) {
		memcpy(o->endpoint[i].ip, pb->endpoints[i]->ip.data, 16);
		o->endpoint[i].port = (uint16_t)pb->endpoints[i]->port;
		o->endpoint[i].transport = (uint8_t)pb->endpoints[i]->transport;
	}
	take_text(o->name, sizeof(o->name), pb->name);
	map->endpoints_dirty = true;
	return 0;
}
static void sds_drop(struct ash_map *map, void *obj)
{
	map->endpoints_dirty = true;
}

/* ---- device */
static int device_check(const struct ash_map *map, const void *p)
{
	const Pb__Device *pb = p;

	return pb->id && bytes16_ok(&pb->uuid) && bytes16_ok(&pb->nonce) &&
			       bytes16_ok(&pb->boot_id) && pb->reactor < 64
		       ? 0
		       : -EINVAL;
}
static int device_fill(struct ash_map *map, void *obj, const void *p)
{
	const Pb__Device *pb = p;
	struct ash_map_device *o = obj;

	o->id = pb->id;
	o->sds = pb->sds;
	o->pool = pb->pool;
	o->incarnation = pb->incarnation;
	o->capacity = pb->capacity;
	take16(o->uuid, &pb->uuid);
	take16(o->nonce, &pb->nonce);
	take16(o->boot_id, &pb->boot_id);
	o->reactor = pb->reactor;
	o->state = (uint8_t)pb->state;
	o->write_back = pb->write_back;
	o->force = pb->force;
	take_text(o->path, sizeof(o->path), pb->path);
	map->endpoints_dirty = true;
	return 0;
}
static void device_drop(struct ash_map *map, void *obj)
{
	map->endpoints_dirty = true;
}

/* ---- pool */
static int pool_check(const struct ash_map *map, const void *p)
{
	const Pb__Pool *pb = p;
	const struct ash_map_pool *have = map_find(map, MAP_POOL, pb->id);

	if (!pb->id || pb->pg_count == 0 || pb->pg_count > 65536 ||
	    (pb->pg_count & (pb->pg_count - 1)) || pb->pg_shift > 16)
		return -EINVAL;
	return have && have->pg_count != pb->pg_count ? -EINVAL : 0;
}
static int pool_fill(struct ash_map *map, void *obj, const void *p)
{
	const Pb__Pool *pb = p;
	struct ash_map_pool *o = obj;

	if (!o->rows) {
		o->rows = calloc(pb->pg_count, sizeof(*o->rows));
		if (!o->rows)
			return -ENOMEM;
		for (uint32_t i = 0; i < pb->pg_count; i++)
			o->rows[i].primary = o->rows[i].handover = ASH_NO_PRIMARY;
	}
	o->id = pb->id;
	o->domain = pb->domain;
	o->pg_count = pb->pg_count;
	o->pg_shift = pb->pg_shift;
	o->rebuild_grace_ms = pb->rebuild_grace_ms;
	return 0;
}
static void pool_drop(struct ash_map *map, void *obj)
{
	free(((struct ash_map_pool *)obj)->rows);
}

/* ---- volume */
static int volume_check(const struct ash_map *map, const void *p)
{
	const Pb__Volume *pb = p;

	return pb->id && pb->node && pb->size % ASH_CHUNK_BYTES == 0 ? 0 : -EINVAL;
}
static void volume_drop(struct ash_map *map, void *obj)
{
	const struct ash_map_volume *o = obj;

	if (ash_htab_get(&map->volume_by_node, o->node) == obj)
		ash_htab_remove(&map->volume_by_node, o->node);
}
static int volume_fill(struct ash_map *map, void *obj, const void *p)
{
	const Pb__Volume *pb = p;
	struct ash_map_volume *o = obj;

	if (o->node && o->node != pb->node)
		volume_drop(map, o);
	o->id = pb->id;
	o->node = pb->node;
	o->vtree = pb->vtree;
	o->pool = pb->pool;
	o->size = pb->size;
	o->first_pg = pb->first_pg;
	o->thin = pb->thin;
	take_text(o->name, sizeof(o->name), pb->name);
	return ash_htab_put(&map->volume_by_node, o->node, o);
}

/* ---- mapping */
/* Ids are below 2^32 in any system that will ever exist, so that this is collision-free; the
 * look-up compares the fields all the same. */
uint64_t map_mapping_key(uint64_t node, uint64_t sdc)
{
	return node << 32 ^ sdc;
}
static void mapping_unindex(struct ash_map *map, const struct ash_map_mapping *o)
{
	uint64_t key = map_mapping_key(o->node, o->sdc);

	if (ash_htab_get(&map->mapping_by_key, key) == o)
		ash_htab_remove(&map->mapping_by_key, key);
}
static int mapping_check(const struct ash_map *map, const void *p)
{
	const Pb__Mapping *pb = p;

	return pb->id && pb->node && pb->sdc ? 0 : -EINVAL;
}
static int mapping_fill(struct ash_map *map, void *obj, const void *p)
{
	const Pb__Mapping *pb = p;
	struct ash_map_mapping *o = obj;

	/* Whoever is indexed under the key it leaves must not be this one any more. */
	if (o->id && (o->node != pb->node || o->sdc != pb->sdc))
		mapping_unindex(map, o);
	o->id = pb->id;
	o->volume = pb->volume;
	o->node = pb->node;
	o->sdc = pb->sdc;
	o->epoch = pb->epoch;
	o->read_only = pb->read_only;
	o->shared = pb->shared;
	o->iops_limit = pb->iops_limit;
	o->bw_limit = pb->bw_limit;
	return ash_htab_put(&map->mapping_by_key, map_mapping_key(o->node, o->sdc), o);
}
static void mapping_drop(struct ash_map *map, void *obj)
{
	mapping_unindex(map, obj);
}

/* ---- fence, tombstone */
static int fence_check(const struct ash_map *map, const void *p)
{
	return ((const Pb__Fence *)p)->id ? 0 : -EINVAL;
}
static int fence_fill(struct ash_map *map, void *obj, const void *p)
{
	const Pb__Fence *pb = p;
	struct ash_map_fence *o = obj;

	o->id = pb->id;
	o->node = pb->node;
	o->sdc = pb->sdc;
	return take_list(&o->pending_sds, &o->pending, pb->pending_sds, pb->n_pending_sds);
}
static void fence_drop(struct ash_map *map, void *obj)
{
	free(((struct ash_map_fence *)obj)->pending_sds);
}
static int tombstone_check(const struct ash_map *map, const void *p)
{
	return ((const Pb__Tombstone *)p)->node ? 0 : -EINVAL;
}
static int tombstone_fill(struct ash_map *map, void *obj, const void *p)
{
	const Pb__Tombstone *pb = p;
	struct ash_map_tombstone *o = obj;

	o->node = pb->node;
	o->pool = pb->pool;
	o->gen = pb->gen;
	return take_list(&o->pending_devices, &o->pending, pb->pending_devices,
			 pb->n_pending_devices);
}
static void tombstone_drop(struct ash_map *map, void *obj)
{
	free(((struct ash_map_tombstone *)obj)->pending_devices);
}

const struct map_kind_ops map_kinds[MAP_KINDS] = {
	[MAP_SDS] = OPS(sds, PB__KIND__KIND_SDS, struct ash_map_sds, id),
	[MAP_DEVICE] = OPS(device, PB__KIND__KIND_DEVICE, struct ash_map_device, id),
	[MAP_POOL] = OPS(pool, PB__KIND__KIND_POOL, struct ash_map_pool, id),
	[MAP_VOLUME] = OPS(volume, PB__KIND__KIND_VOLUME, struct ash_map_volume, id),
	[MAP_MAPPING] = OPS(mapping, PB__KIND__KIND_MAPPING, struct ash_map_mapping, id),
	[MAP_FENCE] = OPS(fence, PB__KIND__KIND_FENCE, struct ash_map_fence, id),
	[MAP_TOMBSTONE] = OPS(tombstone, PB__KIND__KIND_TOMBSTONE, struct ash_map_tombstone, node),
};
