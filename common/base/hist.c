// SPDX-License-Identifier: MIT
#include "common/base/hist.h"

#include <string.h>

void ash_hist_init(struct ash_hist *h)
{
	memset(h, 0, sizeof(*h));
	h->min = UINT64_MAX;
}

/* Values below 128 have a bucket each; above, the top 7 bits choose it. */
static unsigned bucket_of(uint64_t value)
{
	unsigned shift;

	if (value < 128)
		return (unsigned)value;
	shift = (unsigned)(63 - __builtin_clzll(value)) - 6;
	return 64 * (shift + 1) + (unsigned)(value >> shift) - 64;
}

static uint64_t upper_of(unsigned bucket)
{
	unsigned shift;

	if (bucket < 128)
		return bucket;
	shift = bucket / 64 - 1;
	return (((uint64_t)(bucket % 64) + 65) << shift) - 1;
}

void ash_hist_add(struct ash_hist *h, uint64_t value)
{
	unsigned b = bucket_of(value);

	h->bucket[b < ASH_HIST_BUCKETS ? b : ASH_HIST_BUCKETS - 1]++;
	h->count++;
	h->sum += value;
	if (value < h->min)
		h->min = value;
	if (value > h->max)
		h->max = value;
}

void ash_hist_merge(struct ash_hist *into, const struct ash_hist *from)
{
	for (unsigned i = 0; i < ASH_HIST_BUCKETS; i++)
		into->bucket[i] += from->bucket[i];
	into->count += from->count;
	into->sum += from->sum;
	if (from->min < into->min)
		into->min = from->min;
	if (from->max > into->max)
		into->max = from->max;
}

uint64_t ash_hist_quantile(const struct ash_hist *h, unsigned permille)
{
	uint64_t want = (h->count * permille + 999) / 1000, seen = 0;

	if (h->count == 0)
		return 0;
	for (unsigned i = 0; i < ASH_HIST_BUCKETS; i++) {
		seen += h->bucket[i];
		if (seen >= want && seen > 0)
			return upper_of(i) < h->max ? upper_of(i) : h->max;
	}
	return h->max;
}
