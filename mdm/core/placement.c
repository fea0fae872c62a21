/* SPDX-License-Identifier: MIT */
#include "mdm/core/placement.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "mdm/core/placement_int.h"

static int by_id(const void *a, const void *b)
{
	const struct plan_dev *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

static int by_u64(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static uint32_t unit_index(const struct plan *p, uint64_t id)
{
	uint32_t from = 0, to = p->units;

	while (from < to) {
		uint32_t mid = from + (to - from) / 2;

		if (p->unit[mid].id < id)
			from = mid + 1;
		else
			to = mid;
	}
	return from;
}

static uint32_t dev_index(const struct plan *p, uint64_t id)
{
	struct plan_dev key = {.id = id}, *found = NULL;

	if (id)
		found = bsearch(&key, p->dev, p->devs, sizeof(*p->dev), by_id);
	return found ? (uint32_t)(found - p->dev) : PLAN_NONE;
}

static void load_devices(struct plan *p, const struct mdm_place_device *devices, size_t count)
{
	uint64_t *ids = ash_xcalloc(count, sizeof(*ids));

	p->devs = (uint32_t)count;
	p->dev = ash_xcalloc(count, sizeof(*p->dev));
	p->unit = ash_xcalloc(count, sizeof(*p->unit));
	for (size_t i = 0; i < count; i++)
		ids[i] = devices[i].unit;
	qsort(ids, count, sizeof(*ids), by_u64);
	for (size_t i = 0; i < count; i++)
		if (!i || ids[i] != ids[i - 1])
			p->unit[p->units++].id = ids[i];
	free(ids);
	for (size_t i = 0; i < count; i++) {
		struct plan_dev *d = &p->dev[i];

		d->id = devices[i].id;
		d->weight = devices[i].capacity >> 20 ? devices[i].capacity >> 20 : 1;
		d->unit = unit_index(p, devices[i].unit);
		p->unit[d->unit].weight += d->weight;
	}
	qsort(p->dev, p->devs, sizeof(*p->dev), by_id);
}

/* A row with both copies in one unit (units were joined) has to let one go. */
static void load_rows(struct plan *p, const struct mdm_place_row *rows)
{
	p->at = ash_xcalloc(2 * (size_t)p->pgs, sizeof(*p->at));
	p->fresh = ash_xcalloc(2 * (size_t)p->pgs, sizeof(*p->fresh));
	for (uint32_t i = 0; i < 2 * p->pgs; i++) {
		uint32_t d = dev_index(p, rows[i / 2].device[i % 2]);

		if (d != PLAN_NONE && i % 2 && plan_unit_at(p, i - 1) == p->dev[d].unit)
			d = PLAN_NONE;
		p->at[i] = d;
		if (d != PLAN_NONE)
			p->dev[d].have++;
	}
	p->was = ash_xcalloc(2 * (size_t)p->pgs, sizeof(*p->was));
	memcpy(p->was, p->at, 2 * (size_t)p->pgs * sizeof(*p->was));
}

/* What has to be made after all: exchanges may have brought a copy back to where it was. */
static int64_t count_moves(struct plan *p)
{
	int64_t moves = 0;

	for (uint32_t i = 0; i < 2 * p->pgs; i++) {
		p->fresh[i] = p->at[i] != p->was[i] && p->at[i] != p->was[plan_partner(i)];
		moves += p->fresh[i];
	}
	return moves;
}

void plan_index_places(struct plan *p)
{
	uint32_t sum = 0;

	if (!p->first) {
		p->first = ash_xcalloc(p->devs + 1, sizeof(*p->first));
		p->places = ash_xcalloc(2 * (size_t)p->pgs, sizeof(*p->places));
	}
	memset(p->first, 0, (p->devs + 1) * sizeof(*p->first));
	for (uint32_t i = 0; i < 2 * p->pgs; i++)
		if (p->at[i] != PLAN_NONE)
			p->first[p->at[i]]++;
	for (uint32_t d = 0; d <= p->devs; d++) {
		sum += p->first[d];
		p->first[d] = sum; /* one past the last; filled from the back */
	}
	for (uint32_t i = 2 * p->pgs; i-- > 0;)
		if (p->at[i] != PLAN_NONE)
			p->places[--p->first[p->at[i]]] = i;
}

void plan_shuffle(struct plan *p, uint32_t *list, uint32_t count)
{
	for (uint32_t i = count; i > 1; i--) {
		uint32_t k = (uint32_t)ash_prng_below(&p->rng, i), swap = list[k];

		list[k] = list[i - 1];
		list[i - 1] = swap;
	}
}

static void plan_done(struct plan *p)
{
	free(p->dev);
	free(p->unit);
	free(p->at);
	free(p->was);
	free(p->fresh);
	free(p->first);
	free(p->places);
}

int64_t mdm_placement_plan(const struct mdm_place_device *devices, size_t count,
			   struct mdm_place_row *rows, uint32_t pgs, uint64_t seed)
{
	struct plan p = {.pgs = pgs};
	int64_t moves;

	ash_prng_seed(&p.rng, seed);
	load_devices(&p, devices, count);
	if (p.units < 2 || !pgs) {
		plan_done(&p);
		return -EINVAL;
	}
	load_rows(&p, rows);
	plan_quotas(&p);
	plan_fill(&p);
	plan_spread(&p);
	moves = count_moves(&p);
	plan_primaries(&p);
	for (uint32_t i = 0; i < 2 * pgs; i++)
		rows[i / 2].device[i % 2] = p.dev[p.at[i]].id;
	plan_done(&p);
	return moves;
}

/* ---------------------------------------------------------------- order of fresh groups */

struct keyed {
	uint64_t key; /* when its turn comes, of 2^32 per round of all groups */
	struct mdm_place_row row;
};

static int by_primary(const void *a, const void *b)
{
	return by_u64(&((const struct keyed *)a)->row.device[0],
		      &((const struct keyed *)b)->row.device[0]);
}

static int by_key(const void *a, const void *b)
{
	const struct keyed *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return by_u64(&x->row.device[0], &y->row.device[0]);
}

static bool clash(const struct mdm_place_row *rows, uint32_t pgs, uint32_t at)
{
	uint64_t d = rows[at].device[0];

	return rows[(at + 1) % pgs].device[0] == d || rows[(at + pgs - 1) % pgs].device[0] == d;
}

static bool swap_away(struct mdm_place_row *rows, uint32_t pgs, uint32_t i)
{
	for (uint32_t k = 0; k < pgs; k++) {
		struct mdm_place_row swap = rows[i];

		rows[i] = rows[k];
		rows[k] = swap;
		if (!clash(rows, pgs, i) && !clash(rows, pgs, k))
			return true;
		rows[k] = rows[i];
		rows[i] = swap;
	}
	return false;
}

/* Takes row @i out and puts it between two others that it does not clash with. */
static void move_away(struct mdm_place_row *rows, uint32_t pgs, uint32_t i)
{
	struct mdm_place_row row = rows[i];
	uint64_t d = row.device[0];

	if (rows[(i + 1) % pgs].device[0] == rows[(i + pgs - 1) % pgs].device[0])
		return;
	for (uint32_t k = 0; k + 1 < pgs; k++) {
		if (k == i || k + 1 == i || rows[k].device[0] == d || rows[k + 1].device[0] == d)
			continue;
		if (k < i)
			memmove(&rows[k + 2], &rows[k + 1], (i - k - 1) * sizeof(row));
		else
			memmove(&rows[i], &rows[i + 1], (k - i) * sizeof(row));
		rows[k < i ? k + 1 : k] = row;
		return;
	}
}

/* Neighbours with one primary, left over where the turns meet. */
static void part_neighbours(struct mdm_place_row *rows, uint32_t pgs)
{
	for (uint32_t i = 0; i < pgs; i++)
		if (clash(rows, pgs, i) && !swap_away(rows, pgs, i))
			move_away(rows, pgs, i);
}

int64_t mdm_placement_fresh(const struct mdm_place_device *devices, size_t count,
			    struct mdm_place_row *ret_rows, uint32_t pgs, uint64_t seed)
{
	struct keyed *k;
	int64_t moves;

	memset(ret_rows, 0, pgs * sizeof(*ret_rows));
	moves = mdm_placement_plan(devices, count, ret_rows, pgs, seed);
	if (moves < 0)
		return moves;
	k = ash_xcalloc(pgs, sizeof(*k));
	for (uint32_t i = 0; i < pgs; i++)
		k[i].row = ret_rows[i];
	qsort(k, pgs, sizeof(*k), by_primary);
	for (uint32_t i = 0, end; i < pgs; i = end) {
		for (end = i; end < pgs && k[end].row.device[0] == k[i].row.device[0]; end++)
			;
		/* The j-th of n turns of one device comes after (j + 1/2) / n of the round. */
		for (uint32_t j = i; j < end; j++)
			k[j].key = ((2ull * (j - i) + 1) << 32) / (2ull * (end - i));
	}
	qsort(k, pgs, sizeof(*k), by_key);
	for (uint32_t i = 0; i < pgs; i++)
		ret_rows[i] = k[i].row;
	free(k);
	part_neighbours(ret_rows, pgs);
	return moves;
}
