// SPDX-License-Identifier: MIT
/* Placement of chunks is part of the contract of every pool ever made: it must never change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/shared/chunk_pg.h"

/* Computed by another program, in another language, from the formula alone. */
static void golden_vectors(void **state)
{
	static const struct {
		uint64_t first, chunk;
		uint32_t shift, count, pg;
	} golden[] = {
		{0ull, 0ull, 12, 4096, 3503},
		{7ull, 1ull, 12, 4096, 3511},
		{0ull, 4095ull, 12, 4096, 3502},
		{0ull, 4096ull, 12, 4096, 3265},
		{123456ull, 999999ull, 10, 1024, 632},
		{5ull, 1099511627776ull, 12, 8192, 2853},
		{18446744073709551615ull, 4398046511103ull, 16, 65536, 23073},
		{0ull, 0ull, 4, 16, 15},
		{3ull, 77ull, 6, 128, 17},
		{9223372036854775808ull, 12345678901ull, 12, 4096, 1177},
	};

	assert_int_equal(ash_mix64(0), 0xe220a8397b1dcdafull);
	assert_int_equal(ash_mix64(1), 0x910a2dec89025cc1ull);
	assert_int_equal(ash_mix64(UINT64_MAX), 0xe4d971771b652c20ull);
	for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++)
		assert_int_equal(ash_chunk_pg(golden[i].first, golden[i].chunk, golden[i].shift,
					      golden[i].count),
				 golden[i].pg);
}

/* Every aligned run of 2^s chunks uses each of 2^s PGs exactly once. */
static void balance_is_exact(void **state)
{
	static unsigned hits[65536];
	struct ash_prng rng;

	ash_prng_seed(&rng, 1);
	for (uint32_t shift = 4; shift <= 16; shift++) {
		uint64_t first_pg = ash_prng_next(&rng);
		uint64_t run = ash_prng_below(&rng, 1 << 20) << shift;

		memset(hits, 0, sizeof(hits));
		for (uint64_t c = 0; c < 1ull << shift; c++)
			hits[ash_chunk_pg(first_pg, run + c, shift, 1u << shift)]++;
		for (uint32_t pg = 0; pg < 1u << shift; pg++)
			assert_int_equal(hits[pg], 1);
	}
}

/* Doubling the PGs leaves a chunk on its PG, or moves it to the PG's new sibling; again and again.
 */
static void doubling_misplaces_nothing(void **state)
{
	struct ash_prng rng;

	ash_prng_seed(&rng, 2);
	for (int i = 0; i < 100000; i++) {
		uint64_t first = ash_prng_next(&rng), c = ash_prng_below(&rng, 1ull << 42);
		uint32_t shift = 4 + (uint32_t)ash_prng_below(&rng, 9);
		uint32_t was = ash_chunk_pg(first, c, shift, 1u << shift);

		for (uint32_t count = 2u << shift; count <= 65536; count *= 2) {
			uint32_t now = ash_chunk_pg(first, c, shift, count);

			assert_true(now == was || now == was + count / 2);
			was = now;
		}
	}
}

static unsigned distinct_pgs(uint64_t first_pg, uint64_t stride, unsigned chunks)
{
	static unsigned char seen[4096];
	unsigned distinct = 0;

	memset(seen, 0, sizeof(seen));
	for (uint64_t i = 0; i < chunks; i++)
		seen[ash_chunk_pg(first_pg, i * stride, 12, 4096)] = 1;
	for (unsigned i = 0; i < 4096; i++)
		distinct += seen[i];
	return distinct;
}

/* Without the mix each of these strides would fall on 4096 / stride PGs. */
static void strides_spread(void **state)
{
	/* ext4's inode tables: one per flex_bg of 2 GiB, 512 of them on 1 TiB. */
	for (uint64_t first = 0; first < 4096; first += 97)
		assert_true(distinct_pgs(first, 2048, 512) >= 470);
	for (uint64_t stride = 64; stride <= 16384; stride *= 2)
		assert_true(distinct_pgs(0, stride, 4096) >= 2400);
	/* Neighbours are on different PGs within a run, so that sequential I/O spreads. */
	assert_int_equal(distinct_pgs(0, 1, 4096), 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(golden_vectors),
		cmocka_unit_test(balance_is_exact),
		cmocka_unit_test(doubling_misplaces_nothing),
		cmocka_unit_test(strides_spread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
