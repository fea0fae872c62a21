/* SPDX-License-Identifier: MIT */
/*
 * Latency histogram with buckets of constant relative width (1/64 of a power of two, so a value is
 * at most 1.6 % off). Fixed memory, no allocation per value. One thread; merge for several.
 */
#ifndef ASHLAR_COMMON_BASE_HIST_H
#define ASHLAR_COMMON_BASE_HIST_H

#include <stdint.h>

#define ASH_HIST_BUCKETS (64 * 60)

struct ash_hist {
	uint64_t count, sum, min, max;
	uint64_t bucket[ASH_HIST_BUCKETS];
};

void ash_hist_init(struct ash_hist *h);
void ash_hist_add(struct ash_hist *h, uint64_t value);
void ash_hist_merge(struct ash_hist *into, const struct ash_hist *from);
/* Value at or below which @permille / 1000 of the values lie (upper bound of the bucket, never
 * above the maximum); 0 when empty. */
uint64_t ash_hist_quantile(const struct ash_hist *h, unsigned permille);

#endif
