// SPDX-License-Identifier: MIT
/*
 * The two ends of map distribution together: the MDM's state under random commands makes full maps
 * and deltas, readers that fell behind by any number of versions take them, and end with what a
 * newcomer gets in one piece.
 */
#include "tests/unit/mdm/random.h"

#include "common/map/map.h"

/* All rows of @fresh are the same in @map. */
static void assert_rows(const struct ash_map *map, const struct ash_map *fresh)
{
	struct ash_map_pool *pool = NULL, *have;
	struct ash_wire_row a, b;

	while ((pool = ash_map_next_pool(fresh, pool ? pool->id : 0))) {
		have = ash_map_pool(map, pool->id);
		assert_non_null(have);
		assert_int_equal(have->pg_count, pool->pg_count);
		for (uint32_t pg = 0; pg < pool->pg_count; pg++) {
			ash_map_encode_row(map, have, pg, &a);
			ash_map_encode_row(fresh, pool, pg, &b);
			assert_memory_equal(&a, &b, sizeof(a));
			assert_int_equal(have->rows[pg].handover, pool->rows[pg].handover);
		}
	}
}

static const struct ash_map_fence *ash_map_fence(const struct ash_map *map, uint64_t id)
{
	const struct ash_map_fence *f = ash_map_next_fence(map, id - 1);

	return f && f->id == id ? f : NULL;
}

/* All objects of @fresh are in @map at the same version, and, if @exact, no others. */
#define ASSERT_OBJECTS(kind, id_field)                                                             \
	do {                                                                                       \
		const struct ash_map_##kind *x = NULL;                                             \
		size_t extra = 0;                                                                  \
                                                                                                   \
		while ((x = ash_map_next_##kind(fresh, x ? x->id_field : 0))) {                    \
			assert_non_null(ash_map_##kind(map, x->id_field));                         \
			assert_int_equal(ash_map_##kind(map, x->id_field)->version, x->version);   \
		}                                                                                  \
		while ((x = ash_map_next_##kind(map, x ? x->id_field : 0)))                        \
			extra += !ash_map_##kind(fresh, x->id_field);                              \
		assert_true(extra == 0 || !exact);                                                 \
	} while (0)

static void assert_mappings(const struct ash_map *map, const struct ash_map *fresh)
{
	const struct ash_map_mapping *m = NULL, *have;
	size_t count = 0;

	while ((m = ash_map_next_mapping(fresh, m ? m->id : 0))) {
		have = ash_map_mapping(map, m->node, m->sdc);
		assert_non_null(have);
		assert_int_equal(have->id, m->id);
		assert_int_equal(have->epoch, m->epoch);
		assert_int_equal(have->version, m->version);
		count++;
	}
	while ((m = ash_map_next_mapping(map, m ? m->id : 0)))
		count--;
	assert_int_equal(count, 0); /* none that is gone */
}

/* A client keeps objects that it no longer needs, but no mapping that is gone. */
static void assert_same(const struct ash_map *map, const struct ash_map *fresh, bool exact)
{
	assert_int_equal(ash_map_version(map), ash_map_version(fresh));
	assert_int_equal(ash_map_place_version(map), ash_map_place_version(fresh));
	assert_rows(map, fresh);
	assert_mappings(map, fresh);
	ASSERT_OBJECTS(sds, id);
	ASSERT_OBJECTS(device, id);
	ASSERT_OBJECTS(pool, id);
	ASSERT_OBJECTS(volume, id);
	ASSERT_OBJECTS(fence, id);
	ASSERT_OBJECTS(tombstone, node);
}

struct follower {
	enum mdm_audience audience;
	uint64_t id;
	struct ash_map *map;
};

/* What the runs have seen, so that an empty run does not pass. */
static struct {
	unsigned deltas, volumes, mappings, fences, tombstones;
} seen;

static void look(const struct ash_map *map)
{
	seen.volumes += ash_map_next_volume(map, 0) != NULL;
	seen.mappings += ash_map_next_mapping(map, 0) != NULL;
	seen.fences += ash_map_next_fence(map, 0) != NULL;
	seen.tombstones += ash_map_next_tombstone(map, 0) != NULL;
}

static void catch_up(struct follower *f, const struct mdm_state *st)
{
	Pb__Map *pb = mdm_map_for(st, f->audience, f->id, ash_map_version(f->map));

	seen.deltas += pb->base_version != 0;
	assert_int_equal(ash_map_apply(f->map, pb, NULL), 0);
	/* The same again changes nothing. */
	assert_int_equal(ash_map_apply(f->map, pb, NULL), 0);
	pb__map__free_unpacked(pb, NULL);
	assert_int_equal(ash_map_version(f->map), mdm_state_version(st));
}

static void compare(const struct follower *f, const struct mdm_state *st)
{
	struct ash_map *fresh = ash_map_new();
	Pb__Map *pb = mdm_map_for(st, f->audience, f->id, 0);

	assert_int_equal(pb->base_version, 0);
	assert_int_equal(ash_map_apply(fresh, pb, NULL), 0);
	pb__map__free_unpacked(pb, NULL);
	assert_same(f->map, fresh, f->audience == MDM_FOR_SDS);
	look(fresh);
	ash_map_free(fresh);
}

/* Volumes need every PG of their pool placed. */
static void place_all(struct cluster *c)
{
	const struct mdm_table *devices = &c->st->table[PB__KIND__KIND_DEVICE];

	for (uint32_t pg = 0; pg < 16; pg++)
		for (size_t i = 0; i < devices->count * devices->count; i++)
			if (place_pg(c, pg, mdm_obj_id(devices->obj[i / devices->count]),
				     mdm_obj_id(devices->obj[i % devices->count])))
				break;
}

static void follow(uint64_t seed, enum mdm_audience audience, int kind)
{
	struct random_run r;
	struct follower f = {.audience = audience, .map = ash_map_new()};
	const struct mdm_table *t;

	random_start(&r, seed);
	place_all(&r.c);
	t = &r.c.st->table[kind];
	for (int i = 0; i < 400; i++) {
		for (uint64_t n = 1 + ash_prng_below(&r.rng, 5); n > 0; n--)
			random_step(&r);
		if (!f.id && t->count)
			f.id = mdm_obj_id(t->obj[0]);
		if (!f.id || ash_prng_below(&r.rng, 2))
			continue;
		if (!mdm_find(r.c.st, kind, f.id))
			break; /* the reader itself was removed */
		catch_up(&f, r.c.st);
		compare(&f, r.c.st);
	}
	ash_map_free(f.map);
	free_cluster(&r.c);
}

static void data_servers_follow(void **state)
{
	memset(&seen, 0, sizeof(seen));
	for (uint64_t seed = 1; seed <= 20; seed++)
		follow(seed, MDM_FOR_SDS, PB__KIND__KIND_SDS);
	print_message("%u deltas, seen: %u volumes, %u mappings, %u fences, %u tombstones\n",
		      seen.deltas, seen.volumes, seen.mappings, seen.fences, seen.tombstones);
	assert_true(seen.deltas > 500 && seen.volumes > 100 && seen.mappings > 50);
	assert_true(seen.fences > 10 && seen.tombstones > 10);
}

static void clients_follow(void **state)
{
	memset(&seen, 0, sizeof(seen));
	for (uint64_t seed = 101; seed <= 120; seed++)
		follow(seed, MDM_FOR_SDC, PB__KIND__KIND_SDC);
	print_message("%u deltas, seen: %u volumes, %u mappings\n", seen.deltas, seen.volumes,
		      seen.mappings);
	assert_true(seen.deltas > 500 && seen.volumes > 50 && seen.mappings > 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(data_servers_follow),
		cmocka_unit_test(clients_follow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
