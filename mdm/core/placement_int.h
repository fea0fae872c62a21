/* SPDX-License-Identifier: MIT */
/* Shared by the files of the placement. */
#ifndef ASHLAR_MDM_CORE_PLACEMENT_INT_H
#define ASHLAR_MDM_CORE_PLACEMENT_INT_H

#include <stdbool.h>

#include "common/base/prng.h"
#include "mdm/core/placement.h"

#define PLAN_NONE UINT32_MAX

struct plan_dev {
	uint64_t id, weight; /* MiB */
	uint32_t unit;
	uint32_t lo, hi; /* share of the replicas, rounded down and up */
	uint32_t have, quota;
	uint64_t rest; /* of the rounding down, of 2^32 */
};

struct plan_unit {
	uint64_t id, weight;
	uint32_t quota;
};

/* A place is one copy of one group: 2 * pg + copy. */
struct plan {
	struct ash_prng rng;
	uint32_t pgs, devs, units;
	struct plan_dev *dev;	  /* by id */
	struct plan_unit *unit;	  /* by id */
	uint32_t *at;		  /* [2 * pgs] device of a place, or PLAN_NONE */
	uint32_t *was;		  /* [2 * pgs] the same before any change */
	bool *fresh;		  /* [2 * pgs] the copy has to be made */
	uint32_t *first, *places; /* places by device: places[first[d] .. first[d + 1]) */
};

static inline uint32_t plan_partner(uint32_t place)
{
	return place ^ 1u;
}
/* Unit of the device at a place; PLAN_NONE if there is none. */
static inline uint32_t plan_unit_at(const struct plan *p, uint32_t place)
{
	return p->at[place] == PLAN_NONE ? PLAN_NONE : p->dev[p->at[place]].unit;
}
void plan_index_places(struct plan *p);
void plan_shuffle(struct plan *p, uint32_t *list, uint32_t count);

void plan_quotas(struct plan *p);    /* plan_quota.c */
void plan_fill(struct plan *p);	     /* plan_fill.c: shed what is too much, fill what is empty */
void plan_spread(struct plan *p);    /* plan_fill.c: partners over all units */
void plan_primaries(struct plan *p); /* plan_primary.c: the primary is at 2 * pg */

#endif
