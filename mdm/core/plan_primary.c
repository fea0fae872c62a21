/* SPDX-License-Identifier: MIT */
/*
 * Which of the two copies is the primary: an orientation of the graph with devices as vertices and
 * groups as edges, in which every vertex has half of its edges going out, rounded up or down. One
 * always exists; it is found from the present one by reversing shortest paths from vertices with
 * too many to vertices with too few, level by level, so that few primaries change.
 */
#include <stdlib.h>

#include "common/base/clean.h"
#include "mdm/core/placement_int.h"

struct roles {
	struct plan *p;
	uint32_t *out;	 /* groups that the device is primary of */
	uint32_t *level; /* distance from the sources, PLAN_NONE = not reached or used up */
	uint32_t *arc;	 /* next place to look at */
	uint32_t *queue; /* devices in order of level; then the groups of a path */
	bool low;	 /* second pass: sinks have fewer than half rounded down */
};

static bool is_source(const struct roles *r, uint32_t d)
{
	uint32_t have = r->p->dev[d].have;

	return r->low ? r->out[d] > have / 2 : r->out[d] > (have + 1) / 2;
}

static bool is_sink(const struct roles *r, uint32_t d)
{
	uint32_t have = r->p->dev[d].have;

	return r->low ? r->out[d] < have / 2 : r->out[d] < (have + 1) / 2;
}

/* The other end of the group at @place, if @d is its primary. */
static uint32_t follow(const struct plan *p, uint32_t d, uint32_t place)
{
	return p->at[place & ~1u] == d ? p->at[place | 1u] : PLAN_NONE;
}

static bool find_levels(struct roles *r)
{
	const struct plan *p = r->p;
	uint32_t n = 0;
	bool found = false;

	for (uint32_t d = 0; d < p->devs; d++) {
		r->arc[d] = p->first[d];
		r->level[d] = PLAN_NONE;
		if (is_source(r, d)) {
			r->level[d] = 0;
			r->queue[n++] = d;
		}
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t d = r->queue[i];

		for (uint32_t k = p->first[d]; k < p->first[d + 1]; k++) {
			uint32_t e = follow(p, d, p->places[k]);

			if (e == PLAN_NONE || r->level[e] != PLAN_NONE)
				continue;
			r->level[e] = r->level[d] + 1;
			r->queue[n++] = e;
			found |= is_sink(r, e);
		}
	}
	return found;
}

static void reverse(struct plan *p, uint32_t pg)
{
	uint32_t d = p->at[2 * pg];

	p->at[2 * pg] = p->at[2 * pg + 1];
	p->at[2 * pg + 1] = d;
}

/* Walks from @source along rising levels to a sink and reverses the way. */
static bool augment(struct roles *r, uint32_t source)
{
	struct plan *p = r->p;
	uint32_t *path = r->queue, depth = 0, d = source;

	for (;;) {
		uint32_t e = PLAN_NONE;

		if (depth && is_sink(r, d)) {
			for (uint32_t i = 0; i < depth; i++)
				reverse(p, path[i]);
			r->out[source]--;
			r->out[d]++;
			return true;
		}
		for (; r->arc[d] < p->first[d + 1]; r->arc[d]++) {
			e = follow(p, d, p->places[r->arc[d]]);
			if (e != PLAN_NONE && r->level[e] == r->level[d] + 1)
				break;
			e = PLAN_NONE;
		}
		if (e != PLAN_NONE) {
			path[depth++] = p->places[r->arc[d]] / 2;
			d = e;
			continue;
		}
		r->level[d] = PLAN_NONE;
		if (!depth)
			return false;
		d = p->at[2 * path[--depth]];
		r->arc[d]++;
	}
}

static void balance(struct roles *r)
{
	while (find_levels(r))
		for (uint32_t d = 0; d < r->p->devs; d++)
			while (is_source(r, d) && r->level[d] == 0 && augment(r, d))
				;
}

void plan_primaries(struct plan *p)
{
	struct roles r = {.p = p};
	uint32_t size = p->devs > p->pgs ? p->devs : p->pgs;

	r.out = ash_xcalloc(p->devs, sizeof(*r.out));
	r.level = ash_xcalloc(p->devs, sizeof(*r.level));
	r.arc = ash_xcalloc(p->devs, sizeof(*r.arc));
	r.queue = ash_xcalloc(size, sizeof(*r.queue));
	for (uint32_t pg = 0; pg < p->pgs; pg++) {
		/* A copy that has the data serves rather than one that has to be made. */
		if (p->fresh[2 * pg] && !p->fresh[2 * pg + 1]) {
			reverse(p, pg);
			p->fresh[2 * pg] = false;
			p->fresh[2 * pg + 1] = true;
		}
		r.out[p->at[2 * pg]]++;
	}
	plan_index_places(p);
	balance(&r);
	r.low = true;
	balance(&r);
	free(r.out);
	free(r.level);
	free(r.arc);
	free(r.queue);
}
