/* SPDX-License-Identifier: MIT */
/*
 * Timers of one core instance: an intrusive binary heap, no allocation per timer set, no clock
 * inside. Context: the owning thread.
 */
#ifndef ASHLAR_COMMON_BASE_TIMERS_H
#define ASHLAR_COMMON_BASE_TIMERS_H

#include <stdbool.h>
#include <stdint.h>

#define ASH_TIME_NEVER UINT64_MAX

/**
 * struct ash_timer - embedded in its owner; zero-initialised means "not set".
 * @deadline_ns: absolute, the port's clock.
 * @fn: called by ash_timers_run(), after the timer was taken out; may set it again.
 */
struct ash_timer {
	uint64_t deadline_ns;
	uint64_t order; /* ties run in the order set */
	uint32_t slot;	/* 1 + index in the heap; 0 = not set */
	void (*fn)(struct ash_timer *timer);
};

struct ash_timers {
	struct ash_timer **heap;
	uint32_t count, room;
	uint64_t order;
	uint64_t running_ns; /* while ash_timers_run() is at work: its now; else 0 */
};

void ash_timers_init(struct ash_timers *timers);
/* Frees the heap; timers still set are forgotten. */
void ash_timers_done(struct ash_timers *timers);
/* Sets or moves. Aborts the process when the heap cannot grow (bounded by the objects that exist).
 */
void ash_timer_set(struct ash_timers *timers, struct ash_timer *timer, uint64_t deadline_ns);
void ash_timer_cancel(struct ash_timers *timers, struct ash_timer *timer);
static inline bool ash_timer_is_set(const struct ash_timer *timer)
{
	return timer->slot != 0;
}
/* Deadline of the earliest timer, or ASH_TIME_NEVER. */
uint64_t ash_timers_next(const struct ash_timers *timers);
/* Runs every timer with deadline <= now that was set before this call. One that a callback sets to
 * the past is due at now, behind those, in the next run: it can starve nobody. Returns how many
 * ran.
 */
unsigned ash_timers_run(struct ash_timers *timers, uint64_t now_ns);

#endif
