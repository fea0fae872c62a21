/* SPDX-License-Identifier: MIT */
/* What goes wrong, when, and for how long: drawn from the seed. */
#ifndef ASHLAR_TESTS_SIM_FAULTS_H
#define ASHLAR_TESTS_SIM_FAULTS_H

#include "tests/sim/change.h"
#include "tests/sim/checks.h"
#include "tests/sim/loss.h"

enum fault_kind {
	FAULT_SDS_CRASH,
	FAULT_SDS_POWER,
	FAULT_LOSS,
	FAULT_ALL_CRASH,
	FAULT_ALL_POWER,
	FAULT_PAIR_CRASH,
	FAULT_PAUSE,
	FAULT_CONN_RESET,
	FAULT_HALF_OPEN,
	FAULT_NET_SLOW,
	FAULT_HOLD,
	FAULT_SLOW_DISK,
	FAULT_STUCK_DISK,
	FAULT_MEDIUM_ERROR,
	FAULT_BITROT,
	FAULT_MDM_UNREACHABLE,
	FAULT_MDM_STALL,
	FAULT_MDM_FAILOVER,
	FAULT_MDM_SNAPSHOT,
	FAULT_ROWS_LATE,
	FAULT_REPORTS_LATE,
	FAULT_WALL_STEP,
	FAULT_SDC_CRASH,
	FAULT_PARTITION,
	FAULT_SPLIT,
	FAULT_FULL_POOL,
	FAULT_DRAIN_POOL,
	FAULT_HAND_OVER,
	FAULT_REPLACE,
	FAULT_KINDS,
};

struct faults;

struct fault_opts {
	unsigned count;	   /* how many happen */
	uint64_t gap_ns;   /* typical pause between two */
	uint64_t kinds;	   /* bit per fault_kind */
	struct loss *loss; /* of FAULT_LOSS; NULL = none in this seed */
};

struct faults *faults_new(struct sim_cluster *c, struct load *load, struct checks *checks,
			  struct change *change, const struct fault_opts *opts);
void faults_free(struct faults *f);
bool faults_over(const struct faults *f); /* the last one was started */
/* Ends what still lasts: everything but a lost SDS is started, healed, fast again. */
void faults_heal(struct faults *f);

/* "sds_crash" and so on; -1 unknown. */
int fault_find(const char *name);
const char *fault_name(enum fault_kind kind);

#endif
