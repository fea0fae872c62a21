/* SPDX-License-Identifier: MIT */
/* Seeded random numbers (xoshiro256**) for tests, the simulator and back-off jitter; not for
 * secrets. Each generator belongs to one thread. */
#ifndef ASHLAR_COMMON_BASE_PRNG_H
#define ASHLAR_COMMON_BASE_PRNG_H

#include <stdint.h>

struct ash_prng {
	uint64_t s[4];
};

void ash_prng_seed(struct ash_prng *rng, uint64_t seed);
uint64_t ash_prng_next(struct ash_prng *rng);
/* Uniform in [0, limit); 0 for limit 0. */
uint64_t ash_prng_below(struct ash_prng *rng, uint64_t limit);

#endif
