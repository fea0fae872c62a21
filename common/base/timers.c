// SPDX-License-Identifier: MIT
#include "common/base/timers.h"

#include <stdlib.h>

#include "common/base/clean.h"

void ash_timers_init(struct ash_timers *timers)
{
	*timers = (struct ash_timers){0};
}

void ash_timers_done(struct ash_timers *timers)
{
	for (uint32_t i = 0; i < timers->count; i++)
		timers->heap[i]->slot = 0;
	free(timers->heap);
	*timers = (struct ash_timers){0};
}

static bool before(const struct ash_timer *a, const struct ash_timer *b)
{
	if (a->deadline_ns != b->deadline_ns)
		return a->deadline_ns < b->deadline_ns;
	return a->order < b->order;
}

static void put(struct ash_timers *t, uint32_t i, struct ash_timer *timer)
{
	t->heap[i] = timer;
	timer->slot = i + 1;
}

static void sift_up(struct ash_timers *t, uint32_t i)
{
	struct ash_timer *timer = t->heap[i];

	while (i > 0 && before(timer, t->heap[(i - 1) / 2])) {
		put(t, i, t->heap[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	put(t, i, timer);
}

static void sift_down(struct ash_timers *t, uint32_t i)
{
	struct ash_timer *timer = t->heap[i];

	for (;;) {
		uint32_t child = 2 * i + 1;

		if (child >= t->count)
			break;
		if (child + 1 < t->count && before(t->heap[child + 1], t->heap[child]))
			child++;
		if (!before(t->heap[child], timer))
			break;
		put(t, i, t->heap[child]);
		i = child;
	}
	put(t, i, timer);
}

void ash_timer_set(struct ash_timers *timers, struct ash_timer *timer, uint64_t deadline_ns)
{
	ash_timer_cancel(timers, timer);
	if (timers->count == timers->room) {
		timers->room = timers->room ? timers->room * 2 : 64;
		timers->heap =
			ash_xrealloc(timers->heap, timers->room * sizeof(struct ash_timer *));
	}
	timer->deadline_ns = deadline_ns > timers->running_ns ? deadline_ns : timers->running_ns;
	timer->order = timers->order++;
	timers->heap[timers->count] = timer;
	sift_up(timers, timers->count++);
}

void ash_timer_cancel(struct ash_timers *timers, struct ash_timer *timer)
{
	uint32_t i = timer->slot - 1;
	struct ash_timer *last;

	if (timer->slot == 0)
		return;
	timer->slot = 0;
	last = timers->heap[--timers->count];
	if (last == timer)
		return;
	put(timers, i, last);
	sift_up(timers, i);
	sift_down(timers, last->slot - 1);
}

uint64_t ash_timers_next(const struct ash_timers *timers)
{
	return timers->count ? timers->heap[0]->deadline_ns : ASH_TIME_NEVER;
}

unsigned ash_timers_run(struct ash_timers *timers, uint64_t now_ns)
{
	/* Timers set by the callbacks get an order from here on and wait for the next run. */
	uint64_t limit = timers->order;
	unsigned ran = 0;

	timers->running_ns = now_ns;
	while (timers->count > 0) {
		struct ash_timer *first = timers->heap[0];

		if (first->deadline_ns > now_ns || first->order >= limit)
			break;
		ash_timer_cancel(timers, first);
		first->fn(first);
		ran++;
	}
	timers->running_ns = 0;
	return ran;
}
