/* SPDX-License-Identifier: MIT */
/*
 * What must hold besides the clients' view: who serves, where copies lie, which copies are equal,
 * and that nothing is left over.
 */
#ifndef ASHLAR_TESTS_SIM_CHECKS_H
#define ASHLAR_TESTS_SIM_CHECKS_H

#include "tests/sim/load.h"

struct checks;

/* Watches every committed row and, from time to time, what each SDS would serve. */
struct checks *checks_new(struct sim_cluster *c, struct load *load);
void checks_free(struct checks *k);

/* Before SDSs crash, or (@power) their hosts: which data may go with the caches. @down: by index.
 */
void checks_going_down(struct checks *k, const bool *down, bool power);

/* At rest: reads all in-sync copies of every chunk of every volume and compares them. Runs the
 * world. */
void checks_compare_copies(struct checks *k);
/* Buffers that are out now; at rest there soon are none. */
size_t checks_buffers_out(const struct checks *k);
/* At rest: no device holds anything of a volume that was deleted. */
void checks_leftovers(struct checks *k);
/* The map that deltas made equals the full one; MDM members agree. */
void checks_maps(struct checks *k);

#endif
