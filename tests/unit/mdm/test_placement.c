/* SPDX-License-Identifier: MIT */
/* Placement of random clusters: what it promises, and how little it moves. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "mdm/core/placement.h"

#define DEVS_MAX 12000
#define PGS_MAX 65536

struct world {
	struct mdm_place_device dev[DEVS_MAX];
	size_t devs;
	uint32_t pgs;
	struct mdm_place_row row[PGS_MAX], old[PGS_MAX];
	uint64_t next_id;
};

static void add(struct world *w, uint64_t unit, uint64_t gib)
{
	w->dev[w->devs++] =
		(struct mdm_place_device){.id = ++w->next_id, .unit = unit, .capacity = gib << 30};
}

static void remove_dev(struct world *w, size_t i)
{
	w->devs--;
	w->dev[i] = w->dev[w->devs];
}

static size_t find(const struct world *w, uint64_t id)
{
	for (size_t i = 0; i < w->devs; i++)
		if (w->dev[i].id == id)
			return i;
	return SIZE_MAX;
}

static double unit_weight(const struct world *w, uint64_t unit, double *ret_total)
{
	double mine = 0;

	*ret_total = 0;
	for (size_t i = 0; i < w->devs; i++) {
		*ret_total += (double)w->dev[i].capacity;
		if (w->dev[i].unit == unit)
			mine += (double)w->dev[i].capacity;
	}
	return mine;
}

static uint64_t giant_unit(const struct world *w)
{
	for (size_t i = 0; i < w->devs; i++) {
		double total, mine = unit_weight(w, w->dev[i].unit, &total);

		if (2 * mine > total)
			return w->dev[i].unit;
	}
	return 0;
}

/* Replicas that the device should hold. */
static double share(const struct world *w, size_t i, uint64_t giant)
{
	double total, big;

	if (!giant) {
		unit_weight(w, 0, &total);
		return 2.0 * w->pgs * (double)w->dev[i].capacity / total;
	}
	big = unit_weight(w, giant, &total);
	return w->pgs * (double)w->dev[i].capacity / (w->dev[i].unit == giant ? big : total - big);
}

static void check(const struct world *w)
{
	uint32_t *replicas = calloc(w->devs, sizeof(*replicas));
	uint32_t *primaries = calloc(w->devs, sizeof(*primaries));
	uint64_t giant = giant_unit(w);

	for (uint32_t pg = 0; pg < w->pgs; pg++) {
		size_t a = find(w, w->row[pg].device[0]), b = find(w, w->row[pg].device[1]);

		assert_true(a != SIZE_MAX && b != SIZE_MAX);
		assert_int_not_equal(w->dev[a].unit, w->dev[b].unit);
		replicas[a]++;
		replicas[b]++;
		primaries[a]++;
	}
	for (size_t i = 0; i < w->devs; i++) {
		double want = share(w, i, giant);

		if (fabs(replicas[i] - want) >= 1.0 + 1e-6 || fabs(primaries[i] - want / 2) > 1.0)
			fail_msg("device %zu: %u replicas, %u primaries, share %f", i, replicas[i],
				 primaries[i], want);
	}
	free(replicas);
	free(primaries);
}

/* Copies that are where they were not. */
static uint32_t moved(const struct world *w)
{
	uint32_t n = 0;

	for (uint32_t pg = 0; pg < w->pgs; pg++)
		for (int i = 0; i < 2; i++)
			n += w->row[pg].device[i] != w->old[pg].device[0] &&
			     w->row[pg].device[i] != w->old[pg].device[1];
	return n;
}

/* The least that any plan has to move to get from the counts of old to those of row. */
static uint32_t must_move(const struct world *w)
{
	uint32_t n = 0;
	int *diff = calloc(w->devs, sizeof(*diff));

	for (uint32_t pg = 0; pg < w->pgs; pg++)
		for (int i = 0; i < 2; i++) {
			size_t old = find(w, w->old[pg].device[i]);

			diff[find(w, w->row[pg].device[i])]++;
			if (old != SIZE_MAX)
				diff[old]--;
		}
	for (size_t i = 0; i < w->devs; i++)
		n += diff[i] > 0 ? (uint32_t)diff[i] : 0;
	free(diff);
	return n;
}

static void random_world(struct world *w, struct ash_prng *rng)
{
	unsigned units = 2 + (unsigned)ash_prng_below(rng, 8);

	memset(w, 0, sizeof(*w));
	w->pgs = 16u << ash_prng_below(rng, 8);
	for (unsigned u = 0; u < units; u++) {
		unsigned n = 1 + (unsigned)ash_prng_below(rng, 5);
		/* Now and then one that is larger than all others together. */
		uint64_t gib = !ash_prng_below(rng, 12) ? 100000 : 100 + ash_prng_below(rng, 4000);

		for (unsigned i = 0; i < n; i++)
			add(w, 1 + u,
			    ash_prng_below(rng, 3) ? gib : 100 + ash_prng_below(rng, 900));
	}
}

static void random_clusters_are_fair(void **state)
{
	static struct world w;
	struct ash_prng rng;

	ash_prng_seed(&rng, 1);
	for (unsigned i = 0; i < 1500; i++) {
		random_world(&w, &rng);
		assert_int_equal(mdm_placement_fresh(w.dev, w.devs, w.row, w.pgs, i), 2 * w.pgs);
		check(&w);
	}
}

static void changes_move_little(void **state)
{
	static struct world w;
	struct ash_prng rng;
	uint64_t moves = 0, least = 0;

	ash_prng_seed(&rng, 2);
	for (unsigned i = 0; i < 400; i++) {
		random_world(&w, &rng);
		mdm_placement_fresh(w.dev, w.devs, w.row, w.pgs, i);
		for (unsigned step = 0; step < 8; step++) {
			unsigned what = (unsigned)ash_prng_below(&rng, 3);
			uint32_t m, n;
			int64_t plan;

			memcpy(w.old, w.row, sizeof(w.row));
			if (what == 0)
				add(&w, 1 + ash_prng_below(&rng, 10),
				    100 + ash_prng_below(&rng, 4000));
			else if (what == 1)
				w.dev[ash_prng_below(&rng, w.devs)].capacity += 50ull << 30;
			else
				remove_dev(&w, ash_prng_below(&rng, w.devs));
			plan = mdm_placement_plan(w.dev, w.devs, w.row, w.pgs, step);
			if (plan < 0) {
				assert_int_equal(plan, -EINVAL);
				break;
			}
			check(&w);
			m = moved(&w);
			n = must_move(&w);
			assert_int_equal(m, plan);
			moves += m;
			least += n;
		}
	}
	/* Letting copies pass each other costs a little; most plans need none of it. */
	assert_true(moves >= least);
	if (moves > least + least / 50)
		fail_msg("%llu moves where %llu are the least", (unsigned long long)moves,
			 (unsigned long long)least);
}

static void no_change_moves_nothing(void **state)
{
	static struct world w;
	struct ash_prng rng;

	ash_prng_seed(&rng, 3);
	for (unsigned i = 0; i < 300; i++) {
		random_world(&w, &rng);
		mdm_placement_fresh(w.dev, w.devs, w.row, w.pgs, i);
		memcpy(w.old, w.row, sizeof(w.row));
		assert_int_equal(mdm_placement_plan(w.dev, w.devs, w.row, w.pgs, i + 1), 0);
		assert_memory_equal(w.old, w.row, w.pgs * sizeof(w.row[0])); /* primaries too */
	}
}

static void same_input_same_plan(void **state)
{
	static struct world w;
	struct ash_prng rng;

	ash_prng_seed(&rng, 4);
	for (unsigned i = 0; i < 50; i++) {
		random_world(&w, &rng);
		mdm_placement_fresh(w.dev, w.devs, w.row, w.pgs, i);
		mdm_placement_fresh(w.dev, w.devs, w.old, w.pgs, i);
		assert_memory_equal(w.old, w.row, w.pgs * sizeof(w.row[0]));
	}
}

static void partners_are_spread(void **state)
{
	static struct world w;

	/* 8 units of 4 devices, 4096 groups: 256 replicas per device, 36.6 with each other unit. */
	memset(&w, 0, sizeof(w));
	w.pgs = 4096;
	for (unsigned u = 1; u <= 8; u++)
		for (unsigned i = 0; i < 4; i++)
			add(&w, u, 1000);
	mdm_placement_fresh(w.dev, w.devs, w.row, w.pgs, 5);
	for (size_t d = 0; d < w.devs; d++) {
		unsigned with[9] = {0};

		for (uint32_t pg = 0; pg < w.pgs; pg++)
			for (int i = 0; i < 2; i++)
				if (w.row[pg].device[i] == w.dev[d].id)
					with[w.dev[find(&w, w.row[pg].device[1 - i])].unit]++;
		for (unsigned u = 1; u <= 8; u++)
			if (u != w.dev[d].unit)
				assert_in_range(with[u], 33, 40);
	}
}

static void a_lost_unit_spreads_over_the_rest(void **state)
{
	static struct world w;
	unsigned got[40] = {0};

	memset(&w, 0, sizeof(w));
	w.pgs = 4096;
	for (unsigned u = 1; u <= 8; u++)
		for (unsigned i = 0; i < 4; i++)
			add(&w, u, 1000);
	mdm_placement_fresh(w.dev, w.devs, w.row, w.pgs, 5);
	memcpy(w.old, w.row, sizeof(w.row));
	w.devs -= 4;
	assert_int_equal(mdm_placement_plan(w.dev, w.devs, w.row, w.pgs, 6), 1024);
	check(&w);
	for (uint32_t pg = 0; pg < w.pgs; pg++) {
		uint64_t kept = find(&w, w.old[pg].device[0]) == SIZE_MAX ? w.old[pg].device[1]
									  : w.old[pg].device[0];
		size_t fresh = find(&w, w.row[pg].device[0] == kept ? w.row[pg].device[1]
								    : w.row[pg].device[0]);

		if (find(&w, w.old[pg].device[0]) != SIZE_MAX &&
		    find(&w, w.old[pg].device[1]) != SIZE_MAX)
			continue;
		got[fresh]++;
		/* The copy that has the data is there still. */
		assert_true(w.row[pg].device[0] == kept || w.row[pg].device[1] == kept);
	}
	for (size_t i = 0; i < w.devs; i++)
		assert_in_range(got[i], 36, 37); /* 1024 over 28 */
}

static void neighbours_differ(void **state)
{
	static struct world w;
	struct ash_prng rng;

	ash_prng_seed(&rng, 6);
	for (unsigned i = 0; i < 400; i++) {
		uint32_t most = 0, *count;

		random_world(&w, &rng);
		mdm_placement_fresh(w.dev, w.devs, w.row, w.pgs, i);
		count = calloc(w.next_id + 1, sizeof(*count));
		for (uint32_t pg = 0; pg < w.pgs; pg++)
			if (++count[w.row[pg].device[0]] > most)
				most = count[w.row[pg].device[0]];
		free(count);
		if (2 * most >= w.pgs)
			continue; /* not possible, or barely */
		for (uint32_t pg = 0; pg < w.pgs; pg++)
			assert_int_not_equal(w.row[pg].device[0],
					     w.row[(pg + 1) % w.pgs].device[0]);
	}
}

static void one_unit_is_refused(void **state)
{
	static struct world w;

	memset(&w, 0, sizeof(w));
	w.pgs = 16;
	assert_int_equal(mdm_placement_plan(w.dev, 0, w.row, w.pgs, 1), -EINVAL);
	add(&w, 1, 100);
	add(&w, 1, 100);
	assert_int_equal(mdm_placement_plan(w.dev, w.devs, w.row, w.pgs, 1), -EINVAL);
	assert_int_equal(w.row[0].device[0], 0);
}

static void large_cluster(void **state)
{
	static struct world w;
	struct ash_prng rng;
	int64_t moves;

	ash_prng_seed(&rng, 9);
	memset(&w, 0, sizeof(w));
	w.pgs = 65536;
	for (unsigned u = 1; u <= 1000; u++)
		for (unsigned i = 0; i < 10; i++)
			add(&w, u, 1000);
	assert_int_equal(mdm_placement_fresh(w.dev, w.devs, w.row, w.pgs, 7), 131072);
	/* One server comes: only its own share moves. */
	for (unsigned i = 0; i < 10; i++)
		add(&w, 1001, 1000);
	moves = mdm_placement_plan(w.dev, w.devs, w.row, w.pgs, 8);
	assert_in_range(moves, 130, 140);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_clusters_are_fair),
		cmocka_unit_test(changes_move_little),
		cmocka_unit_test(no_change_moves_nothing),
		cmocka_unit_test(same_input_same_plan),
		cmocka_unit_test(partners_are_spread),
		cmocka_unit_test(a_lost_unit_spreads_over_the_rest),
		cmocka_unit_test(neighbours_differ),
		cmocka_unit_test(one_unit_is_refused),
		cmocka_unit_test(large_cluster),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
