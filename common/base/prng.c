// SPDX-License-Identifier: MIT
#include "common/base/prng.h"

#include "common/shared/chunk_pg.h"

static uint64_t rotl(uint64_t x, int k)
{
	return (x << k) | (x >> (64 - k));
}

void ash_prng_seed(struct ash_prng *rng, uint64_t seed)
{
	for (int i = 0; i < 4; i++) {
		rng->s[i] = ash_mix64(seed);
		seed += 0x9e3779b97f4a7c15ull;
	}
}

uint64_t ash_prng_next(struct ash_prng *rng)
{
	uint64_t *s = rng->s;
	uint64_t result = rotl(s[1] * 5, 7) * 9;
	uint64_t t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotl(s[3], 45);
	return result;
}

uint64_t ash_prng_below(struct ash_prng *rng, uint64_t limit)
{
	if (limit == 0)
		return 0;
	return (uint64_t)(((unsigned __int128)ash_prng_next(rng) * limit) >> 64);
}
