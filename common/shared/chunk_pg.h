/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Which placement group a chunk belongs to. Part of the on-disk contract: golden vectors in
 * tests/unit/base/test_chunk_pg.c. Freestanding, kernel-clean.
 *
 *   pg = (first_pg + c + mix(c >> s)) & (pg_count - 1)
 *
 * s = log2(pg_count at the pool's creation), never changed, so that doubling pg_count misplaces
 * nothing that the doubling does not move. Neighbouring chunks fall on neighbouring PGs; the mix
 * keeps power-of-two strides from collapsing onto a few PGs.
 */
#ifndef ASHLAR_COMMON_SHARED_CHUNK_PG_H
#define ASHLAR_COMMON_SHARED_CHUNK_PG_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdint.h>
#endif

/* splitmix64's finaliser: a bijection of 64 bits. */
static inline uint64_t ash_mix64(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static inline uint32_t ash_chunk_pg(uint64_t first_pg, uint64_t chunk, uint32_t pg_shift,
				    uint32_t pg_count)
{
	return (uint32_t)((first_pg + chunk + ash_mix64(chunk >> pg_shift)) & (pg_count - 1u));
}

#endif
