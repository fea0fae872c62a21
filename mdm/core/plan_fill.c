/* SPDX-License-Identifier: MIT */
/* Takes from devices that have too much, gives to those that have too little, then spreads. */
#include <assert.h>
#include <stdlib.h>

#include "common/base/clean.h"
#include "mdm/core/placement_int.h"

/* ---------------------------------------------------------------- shed */

/* The unit that is short of more than half of what is missing in all, or PLAN_NONE. */
static uint32_t hungry_unit(const struct plan *p)
{
	uint32_t *lack = ash_xcalloc(p->units, sizeof(*lack)), found = PLAN_NONE;
	uint64_t all = 0;

	for (uint32_t i = 0; i < p->devs; i++) {
		const struct plan_dev *d = &p->dev[i];

		if (d->quota > d->have) {
			lack[d->unit] += d->quota - d->have;
			all += d->quota - d->have;
		}
	}
	for (uint32_t u = 0; u < p->units; u++)
		if (2ull * lack[u] > all)
			found = u;
	free(lack);
	return found;
}

/* How bad it is to take the copy at @place away: the hole must take what others lack. */
static unsigned cost_of_shedding(const struct plan *p, uint32_t place, uint32_t hungry)
{
	uint32_t partner = plan_unit_at(p, plan_partner(place));

	return 2 * (partner == PLAN_NONE) + (partner == hungry && hungry != PLAN_NONE);
}

static void shed(struct plan *p)
{
	uint32_t hungry = hungry_unit(p);

	plan_index_places(p);
	for (uint32_t d = 0; d < p->devs; d++) {
		struct plan_dev *dev = &p->dev[d];
		uint32_t *list = p->places + p->first[d], n = p->first[d + 1] - p->first[d];

		if (dev->have <= dev->quota)
			continue;
		plan_shuffle(p, list, n);
		for (unsigned cost = 0; cost < 4; cost++)
			for (uint32_t i = 0; i < n && dev->have > dev->quota; i++) {
				if (p->at[list[i]] == PLAN_NONE ||
				    cost_of_shedding(p, list[i], hungry) > cost)
					continue;
				p->at[list[i]] = PLAN_NONE;
				dev->have--;
			}
	}
}

/* ---------------------------------------------------------------- fill */

struct fill {
	struct plan *p;
	uint32_t *hole, holes; /* places */
	uint32_t *bad, bads;   /* holes whose copy shares a unit with its partner */
	uint32_t hole_cursor, row_cursor;
};

static bool is_bad(const struct plan *p, uint32_t place)
{
	return plan_unit_at(p, place) == plan_unit_at(p, plan_partner(place));
}

static void swap_places(struct plan *p, uint32_t a, uint32_t b)
{
	uint32_t d = p->at[a];

	p->at[a] = p->at[b];
	p->at[b] = d;
}

/* Deals the missing replicas out to the holes at random. */
static void deal(struct fill *f)
{
	struct plan *p = f->p;
	uint32_t *deck = ash_xcalloc(2 * (size_t)p->pgs, sizeof(*deck)), n = 0;

	for (uint32_t i = 0; i < 2 * p->pgs; i++)
		if (p->at[i] == PLAN_NONE)
			f->hole[f->holes++] = i;
	for (uint32_t d = 0; d < p->devs; d++)
		for (uint32_t i = p->dev[d].have; i < p->dev[d].quota; i++)
			deck[n++] = d;
	assert(n == f->holes);
	plan_shuffle(p, deck, n);
	for (uint32_t i = 0; i < n; i++) {
		p->at[f->hole[i]] = deck[i];
		p->fresh[f->hole[i]] = true;
		p->dev[deck[i]].have++;
	}
	plan_shuffle(p, f->hole, f->holes);
	free(deck);
	for (uint32_t i = 0; i < f->holes; i++) {
		uint32_t place = f->hole[i];

		/* Of two fresh copies in one row one is enough to mend it. */
		if (is_bad(p, place) && !(p->fresh[plan_partner(place)] && place % 2))
			f->bad[f->bads++] = place;
	}
}

/* Two bad holes of different units mend each other. Afterwards all that are left are of one. */
static void mend_pairs(struct fill *f)
{
	struct plan *p = f->p;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < f->bads; i++) {
		if (kept && plan_unit_at(p, f->bad[kept - 1]) != plan_unit_at(p, f->bad[i]))
			swap_places(p, f->bad[--kept], f->bad[i]);
		else
			f->bad[kept++] = f->bad[i];
	}
	f->bads = kept;
}

/* A copy, and its partner, outside of @unit. */
static bool outside(const struct plan *p, uint32_t place, uint32_t unit)
{
	return plan_unit_at(p, place) != unit && plan_unit_at(p, plan_partner(place)) != unit;
}

static void mend(struct fill *f, uint32_t place)
{
	struct plan *p = f->p;
	uint32_t unit = plan_unit_at(p, place);

	/* All bad ones are of one unit, so what did not serve before will not serve now. */
	while (f->hole_cursor < f->holes) {
		uint32_t other = f->hole[f->hole_cursor++];

		if (outside(p, other, unit)) {
			swap_places(p, place, other);
			return;
		}
	}
	/* Only copies that could have stayed are left: one of them moves to let ours pass. */
	while (f->row_cursor < 2 * p->pgs) {
		uint32_t other = f->row_cursor++;

		if (outside(p, other, unit)) {
			swap_places(p, place, other);
			p->fresh[other] = true;
			return;
		}
	}
	/* The unit would hold more copies than there are groups, which quotas rule out. */
	abort();
}

void plan_fill(struct plan *p)
{
	struct fill f = {.p = p};

	shed(p);
	f.hole = ash_xcalloc(2 * (size_t)p->pgs, sizeof(*f.hole));
	f.bad = ash_xcalloc(2 * (size_t)p->pgs, sizeof(*f.bad));
	deal(&f);
	mend_pairs(&f);
	for (uint32_t i = 0; i < f.bads; i++)
		mend(&f, f.bad[i]);
	free(f.hole);
	free(f.bad);
}

/* ---------------------------------------------------------------- spread */

#define SPREAD_CELLS_MAX (64u << 20)

struct spread {
	struct plan *p;
	uint32_t *pairs;  /* [device][unit]: groups that the device shares with the unit */
	int64_t *inverse; /* of the unit's quota: a large unit is met more often */
	int64_t delta;
};

static void count_pair(struct spread *s, uint32_t dev, uint32_t unit, int step)
{
	uint32_t *cell = &s->pairs[(size_t)dev * s->p->units + unit];

	/* The sum of squares over the expected share is least when all are in proportion. */
	s->delta += s->inverse[unit] * (2 * (int64_t)*cell * step + 1);
	*cell = (uint32_t)((int64_t)*cell + step);
}

static void count_row(struct spread *s, uint32_t a, uint32_t b, int step)
{
	count_pair(s, a, s->p->dev[b].unit, step);
	count_pair(s, b, s->p->dev[a].unit, step);
}

static void exchange(struct spread *s, uint32_t x, uint32_t y)
{
	struct plan *p = s->p;
	uint32_t a = p->at[plan_partner(x)], b = p->at[x], c = p->at[plan_partner(y)], d = p->at[y];

	count_row(s, a, b, -1);
	count_row(s, c, d, -1);
	count_row(s, a, d, 1);
	count_row(s, c, b, 1);
	swap_places(p, x, y);
}

static void try_exchange(struct spread *s, uint32_t x, uint32_t y)
{
	const struct plan *p = s->p;

	if (x / 2 == y / 2 || plan_unit_at(p, x) == plan_unit_at(p, plan_partner(y)) ||
	    plan_unit_at(p, y) == plan_unit_at(p, plan_partner(x)))
		return;
	s->delta = 0;
	exchange(s, x, y);
	if (s->delta >= 0)
		exchange(s, x, y);
}

static void spread_holes(struct spread *s, const uint32_t *hole, uint32_t holes)
{
	struct plan *p = s->p;
	/* With many units chance alone spreads well; with few it pays to look longer. */
	uint64_t rounds = p->units > 64 ? 2 : 24;

	for (uint32_t u = 0; u < p->units; u++)
		s->inverse[u] = (1 << 24) / (p->unit[u].quota ? p->unit[u].quota : 1);
	for (uint32_t pg = 0; pg < p->pgs; pg++)
		count_row(s, p->at[2 * pg], p->at[2 * pg + 1], 1);
	for (uint64_t i = 0; i < rounds * holes; i++)
		try_exchange(s, hole[i % holes], hole[ash_prng_below(&p->rng, holes)]);
}

void plan_spread(struct plan *p)
{
	struct spread s = {.p = p};
	uint32_t *hole, holes = 0;

	if ((uint64_t)p->devs * p->units > SPREAD_CELLS_MAX)
		return;
	hole = ash_xcalloc(2 * (size_t)p->pgs, sizeof(*hole));
	for (uint32_t i = 0; i < 2 * p->pgs; i++)
		if (p->fresh[i])
			hole[holes++] = i;
	if (holes > 1) {
		s.pairs = ash_xcalloc((size_t)p->devs * p->units, sizeof(*s.pairs));
		s.inverse = ash_xcalloc(p->units, sizeof(*s.inverse));
		spread_holes(&s, hole, holes);
		free(s.pairs);
		free(s.inverse);
	}
	free(hole);
}
