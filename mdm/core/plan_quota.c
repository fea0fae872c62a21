/* SPDX-License-Identifier: MIT */
/* How many replicas each device shall hold. */
#include <assert.h>
#include <stdlib.h>

#include "common/base/clean.h"
#include "mdm/core/placement_int.h"

typedef unsigned __int128 u128;

/* The unit that is larger than all others together, or PLAN_NONE. */
static uint32_t giant(const struct plan *p, uint64_t total)
{
	for (uint32_t u = 0; u < p->units; u++)
		if (2 * p->unit[u].weight > total)
			return u;
	return PLAN_NONE;
}

static void shares(struct plan *p)
{
	uint64_t total = 0;
	uint32_t big;

	for (uint32_t u = 0; u < p->units; u++)
		total += p->unit[u].weight;
	big = giant(p, total);
	for (uint32_t i = 0; i < p->devs; i++) {
		struct plan_dev *d = &p->dev[i];
		uint64_t replicas = 2ull * p->pgs, of = total;
		u128 part;

		if (big != PLAN_NONE) {
			replicas = p->pgs;
			of = d->unit == big ? p->unit[big].weight : total - p->unit[big].weight;
		}
		part = (u128)replicas * d->weight;
		d->lo = (uint32_t)(part / of);
		d->hi = d->lo + (part % of != 0);
		d->rest = (uint64_t)(((part % of) << 32) / of);
	}
}

static int by_rest(const void *a, const void *b)
{
	const struct plan_dev *x = *(struct plan_dev *const *)a, *y = *(struct plan_dev *const *)b;

	if (x->rest != y->rest)
		return x->rest > y->rest ? -1 : 1;
	return x->id < y->id ? -1 : 1;
}

/* What a device has stays if it is a rounding of its share: rounding anew would move copies. */
void plan_quotas(struct plan *p)
{
	struct plan_dev **order = ash_xcalloc(p->devs, sizeof(*order));
	uint64_t sum = 0, want = 2ull * p->pgs;

	shares(p);
	for (uint32_t i = 0; i < p->devs; i++) {
		struct plan_dev *d = order[i] = &p->dev[i];

		d->quota = d->have < d->lo ? d->lo : d->have > d->hi ? d->hi : d->have;
		p->unit[d->unit].quota += d->quota;
		sum += d->quota;
	}
	qsort(order, p->devs, sizeof(*order), by_rest);
	/* No unit can hold two copies of a group. */
	for (uint32_t i = p->devs; i-- > 0;) {
		struct plan_dev *d = order[i];

		if (d->quota > d->lo && (p->unit[d->unit].quota > p->pgs || sum > want)) {
			d->quota--;
			p->unit[d->unit].quota--;
			sum--;
		}
	}
	for (uint32_t i = 0; i < p->devs && sum < want; i++) {
		struct plan_dev *d = order[i];

		if (d->quota < d->hi && p->unit[d->unit].quota < p->pgs) {
			d->quota++;
			p->unit[d->unit].quota++;
			sum++;
		}
	}
	assert(sum == want);
	free(order);
}
