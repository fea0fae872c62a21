/* SPDX-License-Identifier: MIT */
#include "tests/sim/world.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------ random numbers */

uint64_t sim_latency(struct sim_world *w, uint64_t typical)
{
	uint64_t r = sim_below(w, 1024), ns = typical / 2 + sim_below(w, typical);

	if (r < 8)
		ns *= 20;
	else if (r < 80)
		ns *= 4;
	return ns + 1;
}

/* ------------------------------------------------------------ event queue: a 4-ary heap */

static inline bool before(const struct sim_slot *a, const struct sim_slot *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static inline void put(struct sim_world *w, size_t i, struct sim_slot s)
{
	w->heap[i] = s;
	s.event->slot = (uint32_t)i + 1;
}

static void sift_up(struct sim_world *w, size_t i, struct sim_slot s)
{
	while (i > 0) {
		size_t up = (i - 1) / 4;

		if (!before(&s, &w->heap[up]))
			break;
		put(w, i, w->heap[up]);
		i = up;
	}
	put(w, i, s);
}

static void sift_down(struct sim_world *w, size_t i, struct sim_slot s)
{
	for (;;) {
		size_t first = i * 4 + 1, best = first, k;

		if (first >= w->count)
			break;
		for (k = first + 1; k < first + 4 && k < w->count; k++)
			if (before(&w->heap[k], &w->heap[best]))
				best = k;
		if (!before(&w->heap[best], &s))
			break;
		put(w, i, w->heap[best]);
		i = best;
	}
	put(w, i, s);
}

void sim_at(struct sim_world *w, struct sim_event *event, uint64_t at)
{
	struct sim_slot s = {.at = at < w->now ? w->now : at, .order = w->order++, .event = event};

	sim_cancel(w, event);
	if (w->count == w->room) {
		w->room = w->room ? 2 * w->room : 256;
		w->heap = realloc(w->heap, w->room * sizeof(w->heap[0]));
		if (!w->heap)
			abort();
	}
	event->at = s.at;
	w->count++;
	sift_up(w, w->count - 1, s);
}

static void take_out(struct sim_world *w, size_t i)
{
	struct sim_slot last = w->heap[--w->count];

	if (i == w->count)
		return;
	if (i > 0 && before(&last, &w->heap[(i - 1) / 4]))
		sift_up(w, i, last);
	else
		sift_down(w, i, last);
}

void sim_cancel(struct sim_world *w, struct sim_event *event)
{
	size_t i = event->slot;

	if (!i)
		return;
	event->slot = 0;
	take_out(w, i - 1);
}

bool sim_step(struct sim_world *w)
{
	struct sim_event *event;

	if (!w->count || w->failed)
		return false;
	event = w->heap[0].event;
	w->now = w->heap[0].at;
	event->slot = 0;
	take_out(w, 0);
	w->events++;
	sim_hash(w, w->now);
	event->fn(event);
	return true;
}

void sim_world_init(struct sim_world *w, uint64_t seed)
{
	memset(w, 0, sizeof(*w));
	w->seed = seed;
	w->now = SIM_S;
	w->hash = seed;
	w->trace_to = stdout;
	ash_prng_seed(&w->rng, seed);
}

void sim_world_done(struct sim_world *w)
{
	free(w->heap);
	memset(w, 0, sizeof(*w));
}

/* ------------------------------------------------------------ trace and verdict */

void sim_trace(struct sim_world *w, const char *fmt, ...)
{
	char line[1024];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (n >= (int)sizeof(line))
		n = (int)sizeof(line) - 1;
	for (int i = 0; i < n; i++)
		w->hash = (w->hash ^ (uint8_t)line[i]) * 0x100000001b3ull;
	if (w->tracing)
		fprintf(w->trace_to, "%12.6f %s\n", (double)w->now / 1e9, line);
}

void sim_fail(struct sim_world *w, const char *check, const char *fmt, ...)
{
	va_list ap;

	if (w->failed)
		return;
	w->failed = true;
	w->failed_at = w->now;
	snprintf(w->check, sizeof(w->check), "%s", check);
	va_start(ap, fmt);
	vsnprintf(w->verdict, sizeof(w->verdict), fmt, ap);
	va_end(ap);
	if (w->tracing)
		fprintf(w->trace_to, "%12.6f VIOLATION check=%s %s\n", (double)w->now / 1e9, check,
			w->verdict);
}
