// SPDX-License-Identifier: MIT
/* A reader fed deltas (late, repeated, reordered) ends with the same map as one fed the full map.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/map/map.h"
#include "common/shared/chunk_pg.h"

#define PGS 16
#define VOLUMES 8
#define SDSS 4

/* The truth: versions of everything; contents follow from id and version. */
struct truth {
	uint64_t version, place;
	uint64_t row_gen[PGS];
	uint64_t volume_version[VOLUMES], removed_version[VOLUMES];
	uint64_t sds_version[SDSS];
	uint64_t device_version[SDSS];
};

enum { POOL = 5, SDS0 = 10, DEV0 = 20, VOL0 = 40, NODE0 = 60, MAPPING0 = 80, SDC = 100 };

struct message {
	Pb__Map map;
	Pb__System system;
	Pb__Pool pool, *pools[1];
	Pb__Row row[PGS], *rows[PGS];
	Pb__Replica replica[PGS][2], *replicas[PGS][2];
	Pb__Volume vol[VOLUMES], *volumes[VOLUMES];
	Pb__Mapping mapping[VOLUMES], *mappings[VOLUMES];
	Pb__Sds sds[SDSS], *sdss[SDSS];
	Pb__Endpoint ep[SDSS], *eps[SDSS][1];
	Pb__Device dev[SDSS], *devs[SDSS];
	Pb__Removed gone[VOLUMES], *removed[VOLUMES];
	uint8_t ip[SDSS][16];
	char name[VOLUMES][16];
};

static void add_sds(struct message *m, const struct truth *t, int i)
{
	pb__sds__init(&m->sds[i]);
	pb__endpoint__init(&m->ep[i]);
	m->ip[i][15] = (uint8_t)t->sds_version[i];
	m->ep[i].ip = (ProtobufCBinaryData){16, m->ip[i]};
	m->ep[i].port = 7072 + (uint32_t)i;
	m->eps[i][0] = &m->ep[i];
	m->sds[i].id = SDS0 + (uint64_t)i;
	m->sds[i].endpoints = m->eps[i];
	m->sds[i].n_endpoints = 1;
	m->sds[i].version = t->sds_version[i];
	m->sdss[m->map.n_sdss++] = &m->sds[i];
}

static void add_device(struct message *m, const struct truth *t, int i)
{
	pb__device__init(&m->dev[i]);
	m->dev[i].id = DEV0 + (uint64_t)i;
	m->dev[i].sds = SDS0 + (uint64_t)i;
	m->dev[i].incarnation = t->device_version[i];
	m->dev[i].version = t->device_version[i];
	m->devs[m->map.n_devices++] = &m->dev[i];
}

static void add_row(struct message *m, const struct truth *t, int pg)
{
	pb__row__init(&m->row[pg]);
	m->row[pg].pool = POOL;
	m->row[pg].pg = (uint32_t)pg;
	m->row[pg].gen = t->row_gen[pg];
	m->row[pg].primary = 1 + (uint32_t)(t->row_gen[pg] % 2);
	m->row[pg].replicas = m->replicas[pg];
	m->row[pg].n_replicas = 2;
	for (int r = 0; r < 2; r++) {
		pb__replica__init(&m->replica[pg][r]);
		m->replica[pg][r].device = DEV0 + (uint64_t)((pg + r) % SDSS);
		m->replica[pg][r].state = PB__REPLICA_STATE__REPLICA_IN_SYNC;
		m->replicas[pg][r] = &m->replica[pg][r];
	}
	m->rows[m->map.n_rows++] = &m->row[pg];
}

static void add_volume(struct message *m, const struct truth *t, int i)
{
	pb__volume__init(&m->vol[i]);
	memcpy(m->name[i], "vol0", 5);
	m->name[i][3] = (char)('0' + i);
	m->vol[i].id = VOL0 + (uint64_t)i;
	m->vol[i].node = NODE0 + (uint64_t)i;
	m->vol[i].pool = POOL;
	m->vol[i].size = t->volume_version[i] << 20;
	m->vol[i].first_pg = (uint64_t)i * 3;
	m->vol[i].name = m->name[i];
	m->vol[i].version = t->volume_version[i];
	m->volumes[m->map.n_volumes++] = &m->vol[i];
	pb__mapping__init(&m->mapping[i]);
	m->mapping[i].id = MAPPING0 + (uint64_t)i;
	m->mapping[i].volume = VOL0 + (uint64_t)i;
	m->mapping[i].node = NODE0 + (uint64_t)i;
	m->mapping[i].sdc = SDC;
	m->mapping[i].epoch = t->volume_version[i];
	m->mapping[i].version = t->volume_version[i];
	m->mappings[m->map.n_mappings++] = &m->mapping[i];
}

static void add_removed(struct message *m, const struct truth *t, int i)
{
	pb__removed__init(&m->gone[i]);
	m->gone[i].kind = PB__KIND__KIND_VOLUME;
	m->gone[i].id = VOL0 + (uint64_t)i;
	m->gone[i].version = t->removed_version[i];
	m->removed[m->map.n_removed++] = &m->gone[i];
}

/* base 0: full. */
static void build(struct message *m, const struct truth *t, uint64_t base)
{
	memset(m, 0, sizeof(*m));
	pb__map__init(&m->map);
	pb__pool__init(&m->pool);
	m->map.version = t->version;
	m->map.base_version = base;
	m->map.place_version = t->place;
	m->pool.id = POOL;
	m->pool.pg_count = PGS;
	m->pool.pg_shift = 4;
	m->pool.version = 1;
	m->pools[0] = &m->pool;
	m->map.pools = m->pools;
	m->map.n_pools = base < 1;
	m->map.rows = m->rows;
	m->map.volumes = m->volumes;
	m->map.mappings = m->mappings;
	m->map.sdss = m->sdss;
	m->map.devices = m->devs;
	m->map.removed = m->removed;
	for (int i = 0; i < SDSS; i++) {
		if (t->sds_version[i] > base)
			add_sds(m, t, i);
		if (t->device_version[i] > base)
			add_device(m, t, i);
	}
	for (int i = 0; i < PGS; i++)
		if (t->row_gen[i] > base)
			add_row(m, t, i);
	for (int i = 0; i < VOLUMES; i++) {
		if (t->volume_version[i] > base)
			add_volume(m, t, i);
		else if (t->removed_version[i] > base && base)
			add_removed(m, t, i);
	}
}

static void change(struct truth *t, struct ash_prng *rng)
{
	int i = (int)ash_prng_below(rng, VOLUMES);

	t->version++;
	switch (ash_prng_below(rng, 4)) {
	case 0:
		if (t->volume_version[i] && ash_prng_below(rng, 2)) {
			t->removed_version[i] = t->version;
			t->volume_version[i] = 0;
		} else if (!t->removed_version[i]) { /* ids are never reused */
			t->volume_version[i] = t->version;
		}
		break;
	case 1:
		t->sds_version[i % SDSS] = t->version;
		break;
	case 2:
		t->device_version[i % SDSS] = t->version;
		break;
	default:
		t->row_gen[ash_prng_below(rng, PGS)] = t->place = t->version;
	}
}

static void assert_same(const struct ash_map *a, const struct ash_map *b)
{
	const struct ash_map_volume *va = NULL, *vb = NULL;
	struct ash_wire_row ra, rb;

	assert_int_equal(ash_map_version(a), ash_map_version(b));
	assert_int_equal(ash_map_place_version(a), ash_map_place_version(b));
	for (uint32_t pg = 0; pg < PGS; pg++) {
		ash_map_encode_row(a, ash_map_pool(a, POOL), pg, &ra);
		ash_map_encode_row(b, ash_map_pool(b, POOL), pg, &rb);
		assert_memory_equal(&ra, &rb, sizeof(ra));
	}
	do {
		va = ash_map_next_volume(a, va ? va->id : 0);
		vb = ash_map_next_volume(b, vb ? vb->id : 0);
		assert_int_equal(va == NULL, vb == NULL);
		if (!va)
			break;
		assert_int_equal(va->id, vb->id);
		assert_int_equal(va->size, vb->size);
		assert_ptr_equal(ash_map_volume_by_node(a, va->node), va);
		assert_int_equal(ash_map_mapping(a, va->node, SDC)->epoch,
				 ash_map_mapping(b, vb->node, SDC)->epoch);
	} while (true);
}

/* Which volumes are there, as bits. */
static unsigned volumes_of(const struct ash_map *map)
{
	const struct ash_map_volume *v = NULL;
	unsigned bits = 0;

	while ((v = ash_map_next_volume(map, v ? v->id : 0)))
		bits |= 1u << (v->id - VOL0);
	return bits;
}

/* Something old arrives again, as a full map or a delta: nothing of it counts. */
static void arrive_late(struct ash_map *follower, struct message *m, const struct truth *old,
			bool full)
{
	uint64_t version = ash_map_version(follower);
	unsigned volumes = volumes_of(follower);

	if (old->version > version)
		return;
	build(m, old, full ? 0 : old->version - 1);
	assert_int_equal(ash_map_apply(follower, &m->map, NULL), 0);
	assert_int_equal(ash_map_version(follower), version);
	assert_int_equal(volumes_of(follower), volumes);
}

static void deltas_equal_full(void **state)
{
	struct message *m = calloc(1, sizeof(*m));

	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct truth t = {.version = 1}, past[40];
		struct ash_map *follower = ash_map_new(), *fresh = ash_map_new();
		struct ash_prng rng;

		ash_prng_seed(&rng, seed);
		build(m, &t, 0);
		assert_int_equal(ash_map_apply(follower, &m->map, NULL), 0);
		for (int step = 0; step < 40; step++) {
			past[step] = t;
			for (uint64_t n = 1 + ash_prng_below(&rng, 4); n; n--)
				change(&t, &rng);
			if (ash_prng_below(&rng, 3) == 0)
				arrive_late(follower, m,
					    &past[ash_prng_below(&rng, (uint64_t)step + 1)],
					    ash_prng_below(&rng, 2));
			if (ash_prng_below(&rng, 2))
				continue;
			build(m, &t, ash_map_version(follower));
			assert_int_equal(ash_map_apply(follower, &m->map, NULL), 0);
		}
		build(m, &t, ash_map_version(follower));
		assert_int_equal(ash_map_apply(follower, &m->map, NULL), 0);
		build(m, &t, 0);
		assert_int_equal(ash_map_apply(fresh, &m->map, NULL), 0);
		assert_same(follower, fresh);
		ash_map_free(follower);
		ash_map_free(fresh);
	}
	free(m);
}

static struct ash_map *small_map(struct message *m, struct truth *t)
{
	struct ash_map *map = ash_map_new();

	*t = (struct truth){.version = 9, .place = 9};
	for (int i = 0; i < PGS; i++)
		t->row_gen[i] = 9;
	for (int i = 0; i < SDSS; i++)
		t->sds_version[i] = t->device_version[i] = 3;
	t->volume_version[0] = 4;
	build(m, t, 0);
	assert_int_equal(ash_map_apply(map, &m->map, NULL), 0);
	return map;
}

static void malformed_is_refused_whole(void **state)
{
	struct message *m = calloc(1, sizeof(*m));
	struct truth t;
	struct ash_map *map = small_map(m, &t);

	t.version = 20;
	t.row_gen[3] = 20;
	t.volume_version[1] = 20;
	build(m, &t, 9);
	m->row[3].primary = 3;
	assert_int_equal(ash_map_apply(map, &m->map, NULL), -EINVAL);
	assert_null(ash_map_volume(map, VOL0 + 1));
	build(m, &t, 9);
	m->row[3].pg = PGS;
	assert_int_equal(ash_map_apply(map, &m->map, NULL), -EINVAL);
	build(m, &t, 9);
	m->replica[3][t.row_gen[3] % 2].state = PB__REPLICA_STATE__REPLICA_BUILDING;
	assert_int_equal(ash_map_apply(map, &m->map, NULL), -EINVAL);
	build(m, &t, 0);
	m->pool.pg_count = 32;
	assert_int_equal(ash_map_apply(map, &m->map, NULL), -EINVAL);
	build(m, &t, 10); /* a base that we have not */
	assert_int_equal(ash_map_apply(map, &m->map, NULL), -ESTALE);
	assert_int_equal(ash_map_version(map), 9);
	build(m, &t, 9);
	assert_int_equal(ash_map_apply(map, &m->map, NULL), 0);
	assert_int_equal(ash_map_version(map), 20);
	ash_map_free(map);
	free(m);
}

static void rows_from_peers(void **state)
{
	struct message *m = calloc(1, sizeof(*m));
	struct truth t;
	struct ash_map *map = small_map(m, &t);
	struct ash_map_pool *pool = ash_map_pool(map, POOL);
	struct ash_wire_row w;

	ash_map_encode_row(map, pool, 2, &w);
	assert_int_equal(ash_map_apply_row(map, &w, NULL), 0);
	w.gen = ash_put64(15);
	w.replica[1].state = ASH_REPLICA_ABSENT;
	w.primary = 1;
	assert_int_equal(ash_map_apply_row(map, &w, NULL), -EINVAL);
	w.primary = 0;
	assert_int_equal(ash_map_apply_row(map, &w, NULL), 1);
	assert_int_equal(pool->rows[2].gen, 15);
	/* One row heard does not mean that all up to it are here. */
	assert_int_equal(ash_map_place_version(map), 9);
	ash_map_raise_place_version(map, 15);
	ash_map_raise_place_version(map, 12);
	assert_int_equal(ash_map_place_version(map), 15);
	w.pool = ash_put64(77);
	assert_int_equal(ash_map_apply_row(map, &w, NULL), -ENOENT);
	/* A delta that is newer than the map may still hold an older row than a peer gave. */
	t.version = 14;
	t.place = t.row_gen[2] = t.row_gen[3] = 14;
	build(m, &t, 9);
	assert_int_equal(ash_map_apply(map, &m->map, NULL), 0);
	assert_int_equal(pool->rows[2].gen, 15);
	assert_int_equal(pool->rows[3].gen, 14);
	assert_int_equal(ash_map_place_version(map), 15);
	ash_map_free(map);
	free(m);
}

static void locate_computes_the_pg(void **state)
{
	struct message *m = calloc(1, sizeof(*m));
	struct truth t;
	struct ash_map *map = small_map(m, &t);
	struct ash_map_pool *pool;
	uint32_t pg;

	assert_int_equal(ash_map_locate(map, NODE0, 77, &pool, &pg), 0);
	assert_int_equal(pg, ash_chunk_pg(0, 77, 4, PGS));
	assert_int_equal(ash_map_locate(map, 4711, 0, &pool, &pg), -ENOENT);
	/* Endpoints follow their SDS. */
	t.version = 30;
	t.sds_version[1] = 30;
	build(m, &t, 9);
	assert_int_equal(ash_map_apply(map, &m->map, NULL), 0);
	assert_int_equal(pool->rows[1].replica[0].endpoint.ip[15], 30);
	assert_int_equal(pool->rows[1].replica[0].sds, SDS0 + 1);
	ash_map_free(map);
	free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(deltas_equal_full),
		cmocka_unit_test(malformed_is_refused_whole),
		cmocka_unit_test(rows_from_peers),
		cmocka_unit_test(locate_computes_the_pg),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
