/* SPDX-License-Identifier: MIT */
/* Random commands, most of them sensible, some not. */
#ifndef ASHLAR_TESTS_UNIT_MDM_RANDOM_H
#define ASHLAR_TESTS_UNIT_MDM_RANDOM_H

#include "cmd.h"
#include "common/base/prng.h"

struct random_run {
	struct cluster c;
	struct ash_prng rng;
	uint64_t next_uuid, sessions;
	unsigned applied; /* commands that were not refused */
};

/* A system with a few domains, pools, SDSs and devices. */
void random_start(struct random_run *r, uint64_t seed);
void random_step(struct random_run *r);
/* A step of PG changes and failures only. */
void random_pg_step(struct random_run *r);

#endif
