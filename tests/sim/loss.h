/* SPDX-License-Identifier: MIT */
/*
 * An SDS that is lost for good: everything has to be in sync again without it, and when it comes
 * back after all, nothing may be left on it of what was made anew elsewhere.
 */
#ifndef ASHLAR_TESTS_SIM_LOSS_H
#define ASHLAR_TESTS_SIM_LOSS_H

#include "tests/sim/checks.h"

struct loss;

/* Gives the pool a short grace period in half of the seeds. Return: NULL in the others, and where
 * the shape leaves no place for new copies. */
struct loss *loss_new(struct sim_cluster *c, struct checks *checks);
void loss_free(struct loss *l); /* may be NULL, as in all others */

/* Kills it; at most one per seed. It comes back early when a group has nobody else to
 * serve it, or an unmap waits for its word. */
void loss_strike(struct loss *l, struct sim_sds *s, bool power);
/* This one is not to be started. */
bool loss_has(const struct loss *l, const struct sim_sds *s);

/* No group names the lost SDS, each has two copies in sync; true if none is lost. */
bool loss_made_good(const struct loss *l);
void loss_return(struct loss *l);

/* No device that is open holds chunks of groups that it has no part in. */
bool loss_no_strays(struct sim_cluster *c);

#endif
