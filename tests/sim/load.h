/* SPDX-License-Identifier: MIT */
/*
 * Clients of the simulated system: every SDC keeps several I/Os in flight on each volume that is
 * mapped to it, of all kinds and odd sizes, on a few hot places, and tells the history checker.
 */
#ifndef ASHLAR_TESTS_SIM_LOAD_H
#define ASHLAR_TESTS_SIM_LOAD_H

#include "tests/sim/cluster.h"

struct load;

struct load_opts {
	uint64_t ops;	   /* stop when that many have ended */
	unsigned depth;	   /* per SDC and volume */
	uint64_t think_ns; /* typical pause between two I/Os of a slot */
	bool lie;	   /* canary: one write is acknowledged to the checker and never sent */
};

struct load *load_new(struct sim_cluster *c, const struct load_opts *opts);
void load_free(struct load *load);

/* Opens the volumes of an SDC process that has just started, and begins. */
void load_start(struct load *load, struct sim_sdc *s);
/* Around sim_sdc_kill(): what was in flight may happen or not. */
void load_killed(struct load *load, struct sim_sdc *s);

/* The operator takes a volume away from a client: from here on it may hear that. */
void load_revoke(struct load *load, unsigned sdc, unsigned volume);
/* Closes it there; asked again and again until it is closed. */
bool load_revoked(struct load *load, unsigned sdc, unsigned volume);
/* It is mapped, perhaps again: opens it. */
void load_grant(struct load *load, unsigned sdc, unsigned volume);
/* Another volume has taken its place. */
void load_renew(struct load *load, unsigned volume);

/* No new I/Os; in flight ones go on. And back. */
void load_pause(struct load *load, bool paused);
bool load_idle(const struct load *load); /* nothing in flight, nothing opening */
uint64_t load_done(const struct load *load);
/* All SDCs that run have all their volumes open. */
bool load_open(const struct load *load);

/* Blocks that were damaged on a medium: an error is a right answer there. */
void load_expect_errors(struct load *load, unsigned volume, uint64_t lba, uint32_t sectors);
bool load_errors_expected(const struct load *load, unsigned volume, uint64_t lba, uint32_t sectors);
/* Writes to every chunk of the volume that is larger than the pool, until it is full; later frees
 * some of it again. Nothing happens without such a volume. Return: whether there is one. */
bool load_fill(struct load *load);
void load_drain(struct load *load);
bool load_drained(const struct load *load);

/* Starts to read every volume wholly, through one SDC each; load_idle() says when it is done. */
void load_read_all(struct load *load);
/* Closes all volumes; load_idle() says when. */
void load_close_all(struct load *load);

#endif
