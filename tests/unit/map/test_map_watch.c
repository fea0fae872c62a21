// SPDX-License-Identifier: MIT
/* What a map tells of its changes, what it removes, and what it refuses of objects. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/clean.h"
#include "common/map/map.h"

enum { POOL = 5, SDS = 10, DEV = 20, NODE = 60, SDC = 100, PGS = 4 };

/* A message of at most one or two objects of a kind, built by the tests as they need. */
struct message {
	Pb__Map map;
	Pb__System system;
	Pb__Pool pool[2], *pools[2];
	Pb__Device dev[2], *devices[2];
	Pb__Sds sds, *sdss[1];
	Pb__Endpoint ep, *eps[1];
	Pb__Row row[PGS], *rows[PGS];
	Pb__Replica replica[PGS][2], *replicas[PGS][2];
	Pb__Volume vol[2], *volumes[2];
	Pb__Mapping mapping[2], *mappings[2];
	Pb__Fence fence, *fences[1];
	Pb__Tombstone tomb, *tombstones[1];
	Pb__Removed gone[2], *removed[2];
	uint64_t pending[3];
	uint8_t ip[16], uuid[16];
};

static void clear(struct message *m, uint64_t version, uint64_t base)
{
	memset(m, 0, sizeof(*m));
	pb__map__init(&m->map);
	pb__system__init(&m->system);
	pb__sds__init(&m->sds);
	pb__endpoint__init(&m->ep);
	pb__fence__init(&m->fence);
	pb__tombstone__init(&m->tomb);
	for (int i = 0; i < 2; i++) {
		pb__pool__init(m->pools[i] = &m->pool[i]);
		pb__device__init(m->devices[i] = &m->dev[i]);
		pb__volume__init(m->volumes[i] = &m->vol[i]);
		pb__mapping__init(m->mappings[i] = &m->mapping[i]);
		pb__removed__init(m->removed[i] = &m->gone[i]);
		m->pool[i] = (Pb__Pool){.base = m->pool[i].base,
					.name = m->pool[i].name,
					.id = POOL + (uint64_t)i,
					.pg_count = PGS,
					.pg_shift = 2,
					.version = version};
		m->dev[i].id = DEV + (uint64_t)i;
		m->dev[i].sds = SDS;
		m->dev[i].version = version;
		m->vol[i].id = 40 + (uint64_t)i;
		m->vol[i].node = NODE + (uint64_t)i;
		m->vol[i].pool = POOL;
		m->vol[i].version = version;
		m->mapping[i].id = 80 + (uint64_t)i;
		m->mapping[i].node = NODE + (uint64_t)i;
		m->mapping[i].sdc = SDC;
		m->mapping[i].version = version;
		m->gone[i].version = version;
	}
	for (uint32_t pg = 0; pg < PGS; pg++) {
		pb__row__init(m->rows[pg] = &m->row[pg]);
		m->row[pg].pool = POOL;
		m->row[pg].pg = pg;
		m->row[pg].gen = version;
		m->row[pg].primary = 1;
		m->row[pg].n_replicas = 2;
		m->row[pg].replicas = m->replicas[pg];
		for (int i = 0; i < 2; i++) {
			pb__replica__init(m->replicas[pg][i] = &m->replica[pg][i]);
			m->replica[pg][i].device = DEV + (uint64_t)i;
			m->replica[pg][i].state = PB__REPLICA_STATE__REPLICA_IN_SYNC;
		}
	}
	m->eps[0] = &m->ep;
	m->ep.ip = (ProtobufCBinaryData){16, m->ip};
	m->ep.port = 7072;
	m->sdss[0] = &m->sds;
	m->sds.id = SDS;
	m->sds.endpoints = m->eps;
	m->sds.n_endpoints = 1;
	m->sds.version = version;
	m->fences[0] = &m->fence;
	m->fence.id = 90;
	m->fence.node = NODE;
	m->fence.sdc = SDC;
	m->fence.pending_sds = m->pending;
	m->fence.n_pending_sds = 3;
	m->fence.version = version;
	m->tombstones[0] = &m->tomb;
	m->tomb.node = NODE + 5;
	m->tomb.pending_devices = m->pending;
	m->tomb.n_pending_devices = 2;
	m->tomb.version = version;
	m->map.version = version;
	m->map.base_version = base;
	m->map.place_version = version;
	m->map.pools = m->pools;
	m->map.devices = m->devices;
	m->map.sdss = m->sdss;
	m->map.rows = m->rows;
	m->map.volumes = m->volumes;
	m->map.mappings = m->mappings;
	m->map.fences = m->fences;
	m->map.tombstones = m->tombstones;
	m->map.removed = m->removed;
}

static struct message *everything(uint64_t version)
{
	struct message *m = malloc(sizeof(*m));

	clear(m, version, 0);
	m->map.n_pools = 1;
	m->map.n_devices = 2;
	m->map.n_sdss = 1;
	m->map.n_rows = PGS;
	m->map.n_volumes = 2;
	m->map.n_mappings = 2;
	m->map.n_fences = 1;
	m->map.n_tombstones = 1;
	return m;
}

struct heard {
	struct ash_map *map;
	unsigned rows, objects, removed;
	uint64_t old_gen_sum, last_removed;
	int last_kind;
};
static void on_row(void *arg, struct ash_map_pool *pool, uint32_t pg, const struct ash_row *old)
{
	struct heard *h = arg;

	h->rows++;
	h->old_gen_sum += old->gen;
	/* Everything is in place already: versions, all rows. */
	assert_int_equal(pool->rows[pg].gen, ash_map_version(h->map));
	assert_int_equal(ash_map_place_version(h->map), ash_map_version(h->map));
	assert_ptr_equal(ash_map_pool(h->map, pool->id), pool);
}
static void on_object(void *arg, int kind, uint64_t id)
{
	struct heard *h = arg;

	assert_int_equal(h->rows, 0);
	h->objects++;
	h->last_kind = kind;
}
static void on_removed(void *arg, int kind, uint64_t id)
{
	struct heard *h = arg;

	h->removed++;
	h->last_removed = id;
	h->last_kind = kind;
}

static void changes_are_told_once(void **state)
{
	struct ash_map *map = ash_map_new();
	ash_auto_free struct message *m = everything(7);
	struct heard h = {.map = map};
	struct ash_map_watch w = {on_row, on_removed, on_object, &h};

	assert_int_equal(ash_map_apply(map, &m->map, &w), 0);
	assert_int_equal(h.objects, 1 + 2 + 1 + 2 + 2 + 1 + 1);
	assert_int_equal(h.rows, PGS);
	assert_int_equal(ash_map_apply(map, &m->map, &w), 0); /* repeated */
	assert_int_equal(h.objects, 10);
	h = (struct heard){.map = map};
	clear(m, 8, 7);
	m->map.n_rows = 2;
	m->map.n_removed = 1;
	m->gone[0].kind = PB__KIND__KIND_MAPPING;
	m->gone[0].id = 81;
	assert_int_equal(ash_map_apply(map, &m->map, &w), 0);
	assert_int_equal(h.rows, 2);
	assert_int_equal(h.old_gen_sum, 14);
	assert_int_equal(h.removed, 1);
	assert_int_equal(h.last_removed, 81);
	assert_int_equal(h.last_kind, PB__KIND__KIND_MAPPING);
	assert_null(ash_map_mapping(map, NODE + 1, SDC));
	assert_non_null(ash_map_mapping(map, NODE, SDC));
	ash_map_free(map);
}

/* A full map that no longer names an object removes it, of every kind. */
static void full_maps_remove(void **state)
{
	struct ash_map *map = ash_map_new();
	ash_auto_free struct message *m = everything(7);
	struct heard h = {.map = map};
	struct ash_map_watch w = {on_row, on_removed, on_object, &h};
	struct ash_map_pool *pool;
	uint32_t pg;

	assert_int_equal(ash_map_apply(map, &m->map, NULL), 0);
	assert_int_equal(ash_map_next_fence(map, 0)->pending, 3);
	assert_int_equal(ash_map_tombstone(map, NODE + 5)->pending, 2);
	assert_int_equal(ash_map_pool(map, POOL)->rows[1].replica[0].sds, SDS);
	clear(m, 9, 0);
	assert_int_equal(ash_map_apply(map, &m->map, &w), 0);
	assert_int_equal(h.removed, 10);
	assert_null(ash_map_pool(map, POOL));
	assert_null(ash_map_device(map, DEV));
	assert_null(ash_map_sds(map, SDS));
	assert_null(ash_map_volume_by_node(map, NODE));
	assert_null(ash_map_mapping(map, NODE, SDC));
	assert_null(ash_map_next_fence(map, 0));
	assert_null(ash_map_tombstone(map, NODE + 5));
	assert_int_equal(ash_map_locate(map, NODE, 0, &pool, &pg), -ENOENT);
	ash_map_free(map);
}

/* A removal older than the object at hand does not count. */
static void late_removals_are_harmless(void **state)
{
	struct ash_map *map = ash_map_new();
	ash_auto_free struct message *m = everything(7);

	assert_int_equal(ash_map_apply(map, &m->map, NULL), 0);
	clear(m, 8, 7);
	m->map.n_removed = 2;
	m->gone[0].kind = PB__KIND__KIND_VOLUME;
	m->gone[0].id = 40;
	m->gone[0].version = 6;
	m->gone[1].kind = PB__KIND__KIND_VOLUME;
	m->gone[1].id = 4711;
	assert_int_equal(ash_map_apply(map, &m->map, NULL), 0);
	assert_non_null(ash_map_volume(map, 40));
	ash_map_free(map);
}

/* Objects that move between keys leave no trace behind under the old ones. */
static void indexes_follow(void **state)
{
	struct ash_map *map = ash_map_new();
	ash_auto_free struct message *m = everything(7);

	assert_int_equal(ash_map_apply(map, &m->map, NULL), 0);
	clear(m, 8, 7);
	m->map.n_mappings = m->map.n_volumes = 1;
	m->mapping[0].node = m->vol[0].node = NODE + 9;
	assert_int_equal(ash_map_apply(map, &m->map, NULL), 0);
	assert_null(ash_map_mapping(map, NODE, SDC));
	assert_null(ash_map_volume_by_node(map, NODE));
	assert_int_equal(ash_map_mapping(map, NODE + 9, SDC)->id, 80);
	assert_int_equal(ash_map_volume_by_node(map, NODE + 9)->id, 40);
	clear(m, 9, 0);
	assert_int_equal(ash_map_apply(map, &m->map, NULL), 0);
	assert_null(ash_map_mapping(map, NODE, SDC));
	assert_null(ash_map_mapping(map, NODE + 9, SDC));
	assert_null(ash_map_volume_by_node(map, NODE));
	ash_map_free(map);
}

static void refuse(struct ash_map *map, struct message *m)
{
	assert_int_equal(ash_map_apply(map, &m->map, NULL), -EINVAL);
	assert_int_equal(ash_map_version(map), 7);
	clear(m, 8, 7);
}

static void malformed_objects_are_refused(void **state)
{
	struct ash_map *map = ash_map_new();
	ash_auto_free struct message *m = everything(7);

	assert_int_equal(ash_map_apply(map, &m->map, NULL), 0);
	clear(m, 8, 7);
	/* Twice the same id, with other sizes: the rows would not fit. */
	m->map.n_pools = 2;
	m->pool[0].id = m->pool[1].id = 77;
	m->pool[1].pg_count = 65536;
	m->pool[1].version = 9;
	refuse(map, m);
	m->map.n_devices = 2;
	m->dev[0].id = m->dev[1].id;
	refuse(map, m);
	m->map.n_pools = 1;
	m->pool[0].pg_count = 3;
	refuse(map, m);
	m->map.n_pools = 1;
	m->pool[0].pg_count = 131072;
	refuse(map, m);
	m->map.n_devices = 1;
	m->dev[0].uuid = (ProtobufCBinaryData){15, m->uuid};
	refuse(map, m);
	m->map.n_devices = 1;
	m->dev[0].reactor = 64;
	refuse(map, m);
	m->map.n_sdss = 1;
	m->ep.ip.len = 4;
	refuse(map, m);
	m->map.n_sdss = 1;
	m->ep.port = 65536;
	refuse(map, m);
	m->map.n_volumes = 1;
	m->vol[0].size = 4096;
	refuse(map, m);
	m->map.n_volumes = 1;
	m->vol[0].id = 0;
	refuse(map, m);
	m->map.n_rows = 1;
	m->row[0].n_replicas = 2;
	m->replica[0][1].device = DEV;
	refuse(map, m);
	m->map.n_rows = 1;
	m->row[0].pool = POOL + 50;
	refuse(map, m);
	m->map.n_rows = 1;
	m->replica[0][1].state = (Pb__ReplicaState)7;
	refuse(map, m);
	m->map.n_rows = 1;
	m->row[0].handover = 3;
	refuse(map, m);
	/* And after all that the map is as it was. */
	assert_int_equal(ash_map_pool(map, POOL)->rows[0].gen, 7);
	assert_null(ash_map_pool(map, 77));
	m->map.n_rows = 1;
	assert_int_equal(ash_map_apply(map, &m->map, NULL), 0);
	ash_map_free(map);
}

static void other_systems_are_refused(void **state)
{
	struct ash_map *map = ash_map_new();
	ash_auto_free struct message *m = everything(7);

	m->map.system = &m->system;
	memset(m->uuid, 1, 16);
	m->system.uuid = (ProtobufCBinaryData){16, m->uuid};
	m->system.lease_ms = 600;
	m->system.dr_epoch = 3;
	m->system.version = 1;
	assert_int_equal(ash_map_apply(map, &m->map, NULL), 0);
	assert_int_equal(ash_map_lease_ms(map), 600);
	assert_int_equal(ash_map_dr_epoch(map), 3);
	assert_memory_equal(ash_map_system_uuid(map), m->uuid, 16);
	m->map.version = 8;
	m->uuid[3] = 2;
	m->system.version = 2;
	assert_int_equal(ash_map_apply(map, &m->map, NULL), -EINVAL);
	m->uuid[3] = 1;
	m->system.lease_ms = 700;
	assert_int_equal(ash_map_apply(map, &m->map, NULL), 0);
	assert_int_equal(ash_map_lease_ms(map), 700);
	ash_map_free(map);
}

static void wire_rows_are_checked(void **state)
{
	struct ash_map *map = ash_map_new();
	ash_auto_free struct message *m = everything(7);
	struct ash_wire_row good, w;
	struct heard h = {.map = map};
	struct ash_map_watch watch = {.removed = on_removed, .arg = &h};

	assert_int_equal(ash_map_apply(map, &m->map, NULL), 0);
	ash_map_encode_row(map, ash_map_pool(map, POOL), 1, &good);
	good.gen = ash_put64(9);
	w = good;
	w.replica[1].device = w.replica[0].device;
	assert_int_equal(ash_map_apply_row(map, &w, NULL), -EINVAL);
	w = good;
	w.replicas = ASH_ROW_REPLICAS_MAX + 1;
	assert_int_equal(ash_map_apply_row(map, &w, NULL), -EINVAL);
	w = good;
	w.pg = ash_put32(PGS);
	assert_int_equal(ash_map_apply_row(map, &w, NULL), -EINVAL);
	w = good;
	w.primary = 2;
	assert_int_equal(ash_map_apply_row(map, &w, NULL), -EINVAL);
	w = good;
	w.replica[0].reserved[2] = 1;
	assert_int_equal(ash_map_apply_row(map, &w, NULL), -EINVAL);
	w = good;
	w.replica[0].state = ASH_REPLICA_IN_SYNC + 1;
	assert_int_equal(ash_map_apply_row(map, &w, NULL), -EINVAL);
	w = good;
	w.gen = ash_put64(0);
	assert_int_equal(ash_map_apply_row(map, &w, NULL), -EINVAL);
	assert_int_equal(ash_map_apply_row(map, &good, &watch), 1);
	assert_int_equal(ash_map_apply_row(map, &good, &watch), 0);
	/* The endpoint of a peer's row stands until the map itself knows better. */
	w = good;
	w.gen = ash_put64(10);
	w.replica[1].device = ash_put64(999);
	w.replica[1].sds = ash_put64(998);
	w.replica[1].endpoint.port = ash_put16(4444);
	assert_int_equal(ash_map_apply_row(map, &w, NULL), 1);
	assert_int_equal(ash_map_pool(map, POOL)->rows[1].replica[1].endpoint.port, 4444);
	clear(m, 11, 7);
	m->map.n_sdss = 1;
	m->ep.port = 5555;
	assert_int_equal(ash_map_apply(map, &m->map, NULL), 0);
	assert_int_equal(ash_map_pool(map, POOL)->rows[1].replica[0].endpoint.port, 5555);
	assert_int_equal(ash_map_pool(map, POOL)->rows[1].replica[1].endpoint.port, 4444);
	ash_map_free(map);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(changes_are_told_once),
		cmocka_unit_test(full_maps_remove),
		cmocka_unit_test(late_removals_are_harmless),
		cmocka_unit_test(indexes_follow),
		cmocka_unit_test(malformed_objects_are_refused),
		cmocka_unit_test(other_systems_are_refused),
		cmocka_unit_test(wire_rows_are_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
