/* SPDX-License-Identifier: MIT */
/*
 * What the operator does to volumes while clients use them: takes one from a client and gives it to
 * another, or deletes one and makes a new one in its place. One change at a time; a command without
 * an answer is repeated.
 */
#ifndef ASHLAR_TESTS_SIM_CHANGE_H
#define ASHLAR_TESTS_SIM_CHANGE_H

#include "tests/sim/load.h"

struct change;

struct change *change_new(struct sim_cluster *c, struct load *load);
void change_free(struct change *x);
/* Does nothing while another change is under way. */
void change_hand_over(struct change *x);
void change_replace(struct change *x);
bool change_idle(const struct change *x);

#endif
