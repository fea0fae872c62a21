/* SPDX-License-Identifier: MIT */
/* What a simulated disk holds: on the medium, and in its volatile cache. */
#ifndef ASHLAR_TESTS_SIM_MEDIUM_H
#define ASHLAR_TESTS_SIM_MEDIUM_H

#include "tests/sim/world.h"

#define SIM_PAGE 4096u

struct medium_group;
struct medium_record;

struct sim_medium {
	struct sim_world *w;
	bool write_back;
	struct medium_group **groups;
	uint64_t group_count;
	uint64_t seq; /* of the last completed write; the owner counts */
	struct medium_record *oldest, **newest, *free_records;
	unsigned volatile_count;
};

void medium_init(struct sim_medium *m, struct sim_world *w, uint64_t bytes, bool write_back);
void medium_done(struct sim_medium *m);

/* A completed write of one page, part of write number m->seq. @fua: durable at once. */
void medium_write(struct sim_medium *m, uint64_t index, const uint8_t *data, bool fua);
/* Zeros where nothing was written. False: the page cannot be read. */
bool medium_read(const struct sim_medium *m, uint64_t index, uint8_t *page);
/* All writes up to number @seq are durable. */
void medium_flush(struct sim_medium *m, uint64_t seq);

/* A write of a page that was in flight when the power went: each sector is old or new. */
void medium_tear(struct sim_medium *m, uint64_t index, const uint8_t *data);
/* The cache is gone but for what it had written back, in whatever order. Return: records lost. */
unsigned medium_lose_cache(struct sim_medium *m);

/* A random written page that @wanted likes; UINT64_MAX if none was found. */
uint64_t medium_pick(struct sim_medium *m, bool (*wanted)(void *arg, const uint8_t page[SIM_PAGE]),
		     void *arg);
void medium_rot(struct sim_medium *m, uint64_t index);	 /* flips one bit */
void medium_spoil(struct sim_medium *m, uint64_t index); /* unreadable until overwritten */

#endif
