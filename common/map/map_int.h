/* SPDX-License-Identifier: MIT */
/* Private to common/map. */
#ifndef ASHLAR_COMMON_MAP_INT_H
#define ASHLAR_COMMON_MAP_INT_H

#include "common/base/htab.h"
#include "common/map/map.h"

/* Objects of one kind in id order. Each object is allocated alone, so that pointers stay. */
struct map_table {
	void **obj;
	size_t count, room;
	struct ash_htab by_id;
};

enum map_kind {
	MAP_SDS,
	MAP_DEVICE,
	MAP_POOL,
	MAP_VOLUME,
	MAP_MAPPING,
	MAP_FENCE,
	MAP_TOMBSTONE,
	MAP_KINDS,
};

struct ash_map {
	uint64_t version, place_version;
	uint8_t system_uuid[16];
	uint32_t dr_epoch, lease_ms, op_deadline_ms;
	uint64_t system_version;
	struct map_table table[MAP_KINDS];
	struct ash_htab volume_by_node;
	struct ash_htab mapping_by_key; /* map_mapping_key() */
	bool endpoints_dirty;		/* an SDS or device changed: rows must be looked through */
};

/* What one apply changed, kept until everything is in place and the watch may be told. */
struct map_change {
	int pb_kind;
	bool removed;
	uint64_t id;
};
struct map_row_change {
	struct ash_map_pool *pool;
	uint32_t pg;
	struct ash_row old;
};
struct map_changes {
	const struct ash_map_watch *watch; /* NULL: nobody wants to know, nothing is kept */
	struct map_change *object;
	size_t objects;
	struct map_row_change *row;
	size_t rows;
};

/* How the generic code handles one kind. */
struct map_kind_ops {
	int pb_kind;
	size_t bytes;
	size_t id_at, version_at;
	/* Checks one object from the network. Return 0 or -EINVAL. */
	int (*check)(const struct ash_map *map, const void *pb);
	/* Fills @obj (zeroed, or the older state) from @pb. Return 0 or -ENOMEM. */
	int (*fill)(struct ash_map *map, void *obj, const void *pb);
	/* Frees what @obj owns and takes it out of the indexes. */
	void (*drop)(struct ash_map *map, void *obj);
	/* The list of this kind in a map, and an entry's id and version. */
	size_t (*list)(const Pb__Map *pb, void *const **ret_list);
	uint64_t (*pb_id)(const void *pb);
	uint64_t (*pb_version)(const void *pb);
};
extern const struct map_kind_ops map_kinds[MAP_KINDS];

static inline uint64_t map_obj_id(enum map_kind kind, const void *obj)
{
	return *(const uint64_t *)(const void *)((const char *)obj + map_kinds[kind].id_at);
}
static inline uint64_t *map_obj_version(enum map_kind kind, void *obj)
{
	return (uint64_t *)(void *)((char *)obj + map_kinds[kind].version_at);
}

void *map_find(const struct ash_map *map, enum map_kind kind, uint64_t id);
/* First object with an id above @after, or NULL. */
void *map_next(const struct ash_map *map, enum map_kind kind, uint64_t after);
/* Return 0 or -ENOMEM (then nothing changed). */
int map_insert(struct ash_map *map, enum map_kind kind, void *obj);
void map_remove(struct ash_map *map, enum map_kind kind, uint64_t id);
uint64_t map_mapping_key(uint64_t node, uint64_t sdc);

/* rows */
int map_row_check(const struct ash_map *map, const Pb__Map *all, const Pb__Row *pb);
void map_row_apply(struct ash_map *map, const Pb__Row *pb, struct map_changes *changes);
void map_rows_refresh_endpoints(struct ash_map *map);

#endif
