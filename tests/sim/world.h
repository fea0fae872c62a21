/* SPDX-License-Identifier: MIT */
/*
 * The simulated world: one event queue, one clock, one stream of random numbers, one verdict.
 *
 * Everything that happens follows from the seed: events at the same instant run in the order in
 * which they were scheduled, and nothing here looks at an address, the wall clock or the
 * environment. The hash over the trace of two runs of a seed is therefore equal.
 */
#ifndef ASHLAR_TESTS_SIM_WORLD_H
#define ASHLAR_TESTS_SIM_WORLD_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/prng.h"

/* The structure that @ptr is the @member of. */
#define sim_container(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define SIM_US 1000ull
#define SIM_MS (1000ull * SIM_US)
#define SIM_S (1000ull * SIM_MS)

/* A moment at which something happens; embedded in its owner, zero-initialised = not scheduled. */
struct sim_event {
	uint64_t at;   /* ns */
	uint32_t slot; /* 1 + index in the heap, 0 = not scheduled */
	void (*fn)(struct sim_event *event);
};

struct sim_slot {
	uint64_t at, order;
	struct sim_event *event;
};

/* What was done to the system; printed at the end, so that a run that never met a fault is seen. */
#define SIM_COUNTERS(X)                                                                            \
	X(ops)                                                                                     \
	X(reads)                                                                                   \
	X(writes)                                                                                  \
	X(discards)                                                                                \
	X(zeroes)                                                                                  \
	X(flushes)                                                                                 \
	X(sds_crash)                                                                               \
	X(sds_lost)                                                                                \
	X(made_good)                                                                               \
	X(sds_power_loss)                                                                          \
	X(all_power_loss)                                                                          \
	X(all_crash)                                                                               \
	X(lost_writes)                                                                             \
	X(torn_writes)                                                                             \
	X(zombie_writes)                                                                           \
	X(sds_pause)                                                                               \
	X(pair_crash)                                                                              \
	X(sdc_crash)                                                                               \
	X(sdc_late)                                                                                \
	X(conn_reset)                                                                              \
	X(half_open)                                                                               \
	X(late_messages)                                                                           \
	X(net_stall)                                                                               \
	X(held_messages)                                                                           \
	X(partition)                                                                               \
	X(split)                                                                                   \
	X(rows_late)                                                                               \
	X(reports_late)                                                                            \
	X(slow_disk)                                                                               \
	X(stuck_disk)                                                                              \
	X(medium_error)                                                                            \
	X(bitrot)                                                                                  \
	X(full_pool)                                                                               \
	X(hand_over)                                                                               \
	X(volume_replaced)                                                                         \
	X(mdm_unreachable)                                                                         \
	X(mdm_failover)                                                                            \
	X(proposal_lost)                                                                           \
	X(mdm_snapshot)                                                                            \
	X(wall_steps)                                                                              \
	X(second_faults)                                                                           \
	X(errors_seen)                                                                             \
	X(nospace_seen)

struct sim_counters {
#define SIM_COUNTER_FIELD(name) uint64_t name;
	SIM_COUNTERS(SIM_COUNTER_FIELD)
#undef SIM_COUNTER_FIELD
};

struct sim_world {
	uint64_t seed, now, order, events, serial;
	struct sim_slot *heap;
	size_t count, room;
	struct ash_prng rng;
	uint64_t hash; /* over the trace */
	bool tracing;
	FILE *trace_to;
	bool failed;
	char check[64];	    /* which check found it */
	char verdict[1024]; /* first violation */
	uint64_t failed_at;
	struct sim_counters n;
};

void sim_world_init(struct sim_world *w, uint64_t seed);
void sim_world_done(struct sim_world *w);

/* Schedules, or moves, to @at (not before now). */
void sim_at(struct sim_world *w, struct sim_event *event, uint64_t at);
static inline void sim_in(struct sim_world *w, struct sim_event *event, uint64_t ns)
{
	sim_at(w, event, w->now + ns);
}
void sim_cancel(struct sim_world *w, struct sim_event *event);
static inline bool sim_scheduled(const struct sim_event *event)
{
	return event->slot != 0;
}
/* Runs the earliest event; false when none is left or a check has failed. */
bool sim_step(struct sim_world *w);

/* Random numbers. sim_below(0) is 0. */
static inline uint64_t sim_rand(struct sim_world *w)
{
	return ash_prng_next(&w->rng);
}
static inline uint64_t sim_below(struct sim_world *w, uint64_t bound)
{
	return ash_prng_below(&w->rng, bound);
}
static inline uint64_t sim_between(struct sim_world *w, uint64_t low, uint64_t high)
{
	return low + sim_below(w, high - low + 1);
}
/* True in @of_1000 of 1000 cases. */
static inline bool sim_chance(struct sim_world *w, unsigned of_1000)
{
	return sim_below(w, 1000) < of_1000;
}
/* A latency around @typical with a long tail. */
uint64_t sim_latency(struct sim_world *w, uint64_t typical);

/* Adds to the trace hash, and prints with --trace. */
void sim_trace(struct sim_world *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline void sim_hash(struct sim_world *w, uint64_t value)
{
	w->hash = (w->hash ^ value) * 0x9e3779b97f4a7c15ull;
	w->hash ^= w->hash >> 29;
}

/* The first violation counts; the run stops after the current event. */
void sim_fail(struct sim_world *w, const char *check, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
