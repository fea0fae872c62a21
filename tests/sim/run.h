/* SPDX-License-Identifier: MIT */
/* One seed from beginning to end. */
#ifndef ASHLAR_TESTS_SIM_RUN_H
#define ASHLAR_TESTS_SIM_RUN_H

#include "tests/sim/faults.h"

enum sim_canary {
	SIM_CANARY_NONE,
	SIM_CANARY_LIE,	 /* the checker is told of a write that was never sent */
	SIM_CANARY_REPL, /* the network answers some replicated writes without delivering it */
};

struct sim_run_opts {
	uint64_t seed, ops;
	bool trace;
	uint64_t kinds; /* faults allowed, bit per fault_kind */
	enum sim_canary canary;
};

struct sim_outcome {
	bool failed;
	char check[64];
	char verdict[1024];
	uint64_t seed, hash, events, failed_at_ns, sim_ns;
	struct sim_counters n;
};

/* Returns false and stops half way, without freeing anything, when a check failed. */
bool sim_run(const struct sim_run_opts *opts, struct sim_outcome *ret_outcome);

#endif
