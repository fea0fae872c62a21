// SPDX-License-Identifier: MIT
/* Parts of the SDS core that are pure: range locks, leases, the set of a resync. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "sds/core/sds_int.h"

/* ------------------------------------------------------------ range locks */

#define RANGES 64

struct held {
	struct sds_range range;
	bool has;
	uint64_t asked; /* order of asking */
};

static void granted(struct sds_range *range)
{
	struct held *h = range->owner;

	assert_false(h->has);
	h->has = true;
}

static bool conflict(const struct held *a, const struct held *b)
{
	return a->range.node == b->range.node && a->range.chunk == b->range.chunk &&
	       a->range.first < b->range.end && b->range.first < a->range.end &&
	       !(a->range.shared && b->range.shared);
}

/* Nobody holds what conflicts; nobody waits but for somebody who came earlier; nobody overtakes. */
static void check(const struct held *h, const bool *in_use)
{
	for (unsigned i = 0; i < RANGES; i++) {
		bool must_wait = false;

		for (unsigned k = 0; in_use[i] && k < RANGES; k++) {
			if (k == i || !in_use[k] || !conflict(&h[i], &h[k]))
				continue;
			assert_false(h[i].has && h[k].has);
			must_wait |= h[k].asked < h[i].asked;
		}
		if (in_use[i])
			assert_true(h[i].has != must_wait);
	}
}

static void test_range_locks(void **state)
{
	static struct held h[RANGES];
	struct sds_locks locks;
	struct ash_prng rng;
	bool in_use[RANGES] = {false};
	uint64_t asked = 0;

	assert_int_equal(sds_locks_init(&locks, 4), 0);
	ash_prng_seed(&rng, 7);
	for (unsigned step = 0; step < 20000; step++) {
		unsigned i = (unsigned)ash_prng_below(&rng, RANGES);

		if (in_use[i]) {
			sds_range_unlock(&locks, &h[i].range);
			in_use[i] = h[i].has = false;
		} else {
			h[i].range =
				(struct sds_range){.node = ash_prng_below(&rng, 2),
						   .chunk = ash_prng_below(&rng, 2),
						   .first = (uint16_t)ash_prng_below(&rng, 200),
						   .shared = ash_prng_below(&rng, 3) == 0,
						   .granted = granted,
						   .owner = &h[i]};
			h[i].range.end =
				(uint16_t)(h[i].range.first + 1 + ash_prng_below(&rng, 56));
			h[i].asked = ++asked;
			in_use[i] = true;
			h[i].has = sds_range_lock(&locks, &h[i].range);
		}
		sds_locks_run(&locks);
		check(h, in_use);
	}
	for (unsigned i = 0; i < RANGES; i++)
		sds_range_unlock(&locks, &h[i].range);
	assert_int_equal(locks.held + locks.waiting, 0);
	sds_locks_done(&locks);
}

/* ------------------------------------------------------------ leases */

/* What a clock that runs @drift_pct fast shows at world time @ns. */
static uint64_t clock_at(uint64_t ns, int drift_pct)
{
	return 1000000000ull + ns / 100 * (uint64_t)(100 + drift_pct);
}

/* However the clocks drift and the messages travel, the holder stops before the granter's wait
 * ends. */
static void test_lease_drift(void **state)
{
	static const int drifts[] = {-20, -7, 0, 7, 20};
	const uint64_t duration = 600 * MS;
	struct ash_prng rng;

	ash_prng_seed(&rng, 11);
	for (unsigned run = 0; run < 2000; run++) {
		int holder = drifts[ash_prng_below(&rng, 5)],
		    granter = drifts[ash_prng_below(&rng, 5)];
		uint64_t asked = ash_prng_below(&rng, 10 * SEC);
		uint64_t received = asked + ash_prng_below(&rng, 800 * MS);
		struct sds_lease at_holder = {0}, at_granter = {0};

		lease_book(&at_granter, clock_at(received, granter), duration);
		lease_granted(&at_holder, clock_at(asked, holder), duration, 5, 5);
		for (uint64_t t = asked; t < received + 3 * SEC; t += 10 * MS)
			if (clock_at(t, granter) >= at_granter.granted_ns)
				assert_false(lease_holds(&at_holder, clock_at(t, holder)));
	}
}

static void test_lease_bound(void **state)
{
	struct sds_lease l = {0};

	/* The granter acts on rows that we have not: it counts when we have them, from the ask. */
	lease_granted(&l, 100, 600, 9, 8);
	assert_false(lease_holds(&l, 101));
	lease_recount(&l, 8);
	assert_false(lease_holds(&l, 101));
	lease_recount(&l, 9);
	assert_true(lease_holds(&l, 699));
	assert_false(lease_holds(&l, 700));
	/* An older grant never shortens a newer one. */
	lease_granted(&l, 500, 600, 9, 9);
	lease_granted(&l, 200, 600, 9, 9);
	assert_true(lease_holds(&l, 1099));
}

/* ------------------------------------------------------------ resync set */

static void add(struct sync_list *list, uint64_t chunk, uint64_t stamp, bool unsettled)
{
	struct sds_chunk_info info = {
		.node = 1, .chunk = chunk, .stamp = stamp, .unsettled = unsettled};

	sync_list_add(list, &info);
}

static bool has(const struct sync_list *list, uint64_t chunk)
{
	for (uint32_t i = 0; i < list->count; i++)
		if (list->entry[i].chunk == chunk)
			return true;
	return false;
}

static void test_resync_set(void **state)
{
	struct sync_list mine = {0}, theirs = {0}, set = {0};

	add(&mine, 9, 5, false); /* untouched on both sides */
	add(&theirs, 9, 5, false);
	add(&mine, 3, 10, false); /* changed when the copy left */
	add(&theirs, 3, 5, false);
	add(&mine, 4, 5, true); /* hot here */
	add(&theirs, 4, 5, false);
	add(&mine, 5, 5, false); /* hot there */
	add(&theirs, 5, 5, true);
	add(&mine, 6, 1, false);   /* only here */
	add(&theirs, 7, 1, false); /* only there */
	assert_int_equal(sync_set(&mine, &theirs, 10, &set), 5);
	assert_true(has(&set, 3) && has(&set, 4) && has(&set, 5) && has(&set, 6) && has(&set, 7));
	assert_false(has(&set, 9));
	sync_list_done(&set);
	/* Never in sync: everything. */
	assert_int_equal(sync_set(&mine, &theirs, 0, &set), 6);
	sync_list_done(&set);
	sync_list_done(&mine);
	sync_list_done(&theirs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_range_locks),
		cmocka_unit_test(test_lease_drift),
		cmocka_unit_test(test_lease_bound),
		cmocka_unit_test(test_resync_set),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
