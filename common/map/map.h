/* SPDX-License-Identifier: MIT */
/*
 * The cluster map as SDSs and SDCs hold it: built from full maps and deltas (pb.Map), looked up per
 * I/O without allocation. One owner thread; every reactor has its own. Pure: no I/O, no clock.
 */
#ifndef ASHLAR_COMMON_MAP_MAP_H
#define ASHLAR_COMMON_MAP_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/port/net.h"
#include "proto/mgmt/ashlar.pb-c.h"
#include "proto/wire/wire.h"

#define ASH_NO_PRIMARY 255

struct ash_replica {
	uint64_t device;
	uint64_t sds; /* of the device, 0 if unknown here */
	uint64_t incarnation;
	uint64_t left_gen;
	struct ash_endpoint endpoint; /* of the reactor that owns the device; port 0 = unknown */
	uint8_t state;		      /* enum ash_replica_state */
};

/* Row of one PG; gen 0 = not placed. Memory is stable for the pool's life, contents change. */
struct ash_row {
	uint64_t gen;
	uint64_t shrunk_at;
	uint8_t replicas;
	uint8_t primary;  /* index, ASH_NO_PRIMARY = nobody serves */
	uint8_t handover; /* index of the intended next primary, ASH_NO_PRIMARY = none */
	struct ash_replica replica[ASH_ROW_REPLICAS_MAX];
};

struct ash_map_pool {
	uint64_t id, domain;
	uint32_t pg_count, pg_shift;
	uint32_t rebuild_grace_ms;
	struct ash_row *rows; /* pg_count of them */
	uint64_t version;
};
struct ash_map_device {
	uint64_t id, sds, pool, incarnation, capacity;
	uint8_t uuid[16], nonce[16], boot_id[16];
	uint32_t reactor;
	uint8_t state; /* Pb__DeviceState */
	bool write_back, force;
	char path[256];
	uint64_t version;
};
struct ash_map_sds {
	uint64_t id, domain, fault_set;
	uint8_t uuid[16], session[16];
	bool up;
	uint32_t endpoints;
	struct ash_endpoint endpoint[64];
	char name[64];
	uint64_t version;
};
struct ash_map_volume {
	uint64_t id, node, vtree, pool, size, first_pg;
	bool thin;
	char name[64];
	uint64_t version;
};
struct ash_map_mapping {
	uint64_t id, volume, node, sdc, epoch;
	bool read_only, shared;
	uint32_t iops_limit;
	uint64_t bw_limit;
	uint64_t version;
};
struct ash_map_fence {
	uint64_t id, node, sdc;
	uint32_t pending;
	uint64_t *pending_sds;
	uint64_t version;
};
struct ash_map_tombstone {
	uint64_t node, pool, gen, version;
	uint32_t pending;
	uint64_t *pending_devices;
};

struct ash_map; /* private: map.c */

struct ash_map *ash_map_new(void); /* NULL without memory */
void ash_map_free(struct ash_map *map);

/*
 * What one apply changed. Called at the end of ash_map_apply(), when all of it is in place: first
 * objects and removals, then rows. The callbacks must not change the map; *old is theirs for the
 * call.
 */
struct ash_map_watch {
	void (*row)(void *arg, struct ash_map_pool *pool, uint32_t pg, const struct ash_row *old);
	void (*removed)(void *arg, int pb_kind, uint64_t id);
	/* any other object changed or was added */
	void (*object)(void *arg, int pb_kind, uint64_t id);
	void *arg;
};

/**
 * ash_map_apply() - take over a full map or a delta.
 * @pb: borrowed; from the network, so nothing in it is trusted.
 * Maps not newer than the one at hand, rows with a gen not above theirs and objects with a version
 * not above theirs are skipped: late and repeated maps are harmless.
 * Return: 0; -EINVAL malformed, an object named twice, or of another system (nothing was changed);
 * -ESTALE a delta whose base is newer than our version (fetch a full map); -ENOMEM (what was taken
 * over stays, was told to @watch, and is consistent; the version is not raised: fetch again).
 */
int ash_map_apply(struct ash_map *map, const Pb__Map *pb, const struct ash_map_watch *watch);

/**
 * ash_map_apply_row() - take over one row heard from an SDS (STALE reply, lease grant).
 * Does not move the map's version, nor its place_version: others up to that gen may be missing.
 * Return: 1 newer and taken, 0 not newer, -EINVAL, -ENOENT pool
 * unknown.
 */
int ash_map_apply_row(struct ash_map *map, const struct ash_wire_row *row,
		      const struct ash_map_watch *watch);
/* Encodes the row for a peer. */
void ash_map_encode_row(const struct ash_map *map, const struct ash_map_pool *pool, uint32_t pg,
			struct ash_wire_row *ret_row);

uint64_t ash_map_version(const struct ash_map *map);
/* Highest gen for which every row of the domain with a gen up to it is here. */
uint64_t ash_map_place_version(const struct ash_map *map);
/* After all rows up to @place_version were applied one by one (lease grant). Never goes back. */
void ash_map_raise_place_version(struct ash_map *map, uint64_t place_version);
/* The system's data; zeroes before the first map. */
const uint8_t *ash_map_system_uuid(const struct ash_map *map);
uint32_t ash_map_dr_epoch(const struct ash_map *map);
uint32_t ash_map_lease_ms(const struct ash_map *map);
uint32_t ash_map_op_deadline_ms(const struct ash_map *map);

/* Look-ups: NULL if unknown. Pointers are valid until the next apply. */
struct ash_map_pool *ash_map_pool(const struct ash_map *map, uint64_t pool);
const struct ash_map_device *ash_map_device(const struct ash_map *map, uint64_t device);
const struct ash_map_sds *ash_map_sds(const struct ash_map *map, uint64_t sds);
const struct ash_map_sds *ash_map_sds_by_uuid(const struct ash_map *map, const uint8_t uuid[16]);
const struct ash_map_volume *ash_map_volume(const struct ash_map *map, uint64_t volume);
const struct ash_map_volume *ash_map_volume_by_node(const struct ash_map *map, uint64_t node);
const struct ash_map_volume *ash_map_volume_by_name(const struct ash_map *map, const char *name);
const struct ash_map_mapping *ash_map_mapping(const struct ash_map *map, uint64_t node,
					      uint64_t sdc);
const struct ash_map_tombstone *ash_map_tombstone(const struct ash_map *map, uint64_t node);

/* The PG of a chunk of a known node. Return: 0, -ENOENT node or pool unknown. */
int ash_map_locate(const struct ash_map *map, uint64_t node, uint64_t chunk,
		   struct ash_map_pool **ret_pool, uint32_t *ret_pg);

/* Iteration in id order: pass 0 first, then the id returned before. NULL at the end. */
const struct ash_map_device *ash_map_next_device(const struct ash_map *map, uint64_t after);
const struct ash_map_sds *ash_map_next_sds(const struct ash_map *map, uint64_t after);
struct ash_map_pool *ash_map_next_pool(const struct ash_map *map, uint64_t after);
const struct ash_map_volume *ash_map_next_volume(const struct ash_map *map, uint64_t after);
const struct ash_map_mapping *ash_map_next_mapping(const struct ash_map *map, uint64_t after);
const struct ash_map_fence *ash_map_next_fence(const struct ash_map *map, uint64_t after);
const struct ash_map_tombstone *ash_map_next_tombstone(const struct ash_map *map, uint64_t after);

#endif
