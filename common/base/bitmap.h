/* SPDX-License-Identifier: MIT */
/* Bits in an array of 64-bit words; the caller's memory. */
#ifndef ASHLAR_COMMON_BASE_BITMAP_H
#define ASHLAR_COMMON_BASE_BITMAP_H

#include <stdbool.h>
#include <stdint.h>

#define ASH_BITMAP_WORDS(bits) (((bits) + 63u) / 64u)

static inline bool ash_bit_get(const uint64_t *map, uint64_t i)
{
	return map[i / 64] >> (i % 64) & 1;
}
static inline void ash_bit_set(uint64_t *map, uint64_t i)
{
	map[i / 64] |= 1ull << (i % 64);
}
static inline void ash_bit_clear(uint64_t *map, uint64_t i)
{
	map[i / 64] &= ~(1ull << (i % 64));
}
static inline void ash_bits_assign(uint64_t *map, uint64_t first, uint64_t count, bool on)
{
	for (uint64_t i = first; i < first + count; i++) {
		if (on)
			ash_bit_set(map, i);
		else
			ash_bit_clear(map, i);
	}
}
static inline bool ash_bits_any(const uint64_t *map, uint64_t first, uint64_t count)
{
	for (uint64_t i = first; i < first + count; i++)
		if (ash_bit_get(map, i))
			return true;
	return false;
}

#endif
