/* SPDX-License-Identifier: MIT */
/* Shared by faults.c (what happens when) and fault_*.c (how). */
#ifndef ASHLAR_TESTS_SIM_FAULTS_INT_H
#define ASHLAR_TESTS_SIM_FAULTS_INT_H

#include "tests/sim/faults.h"

/* What happens to the row of a placement group, and may be a bad moment for something else. */
enum row_event {
	ROW_JOINED,   /* a copy that was built is in sync */
	ROW_PROMOTED, /* another copy leads */
	ROW_LEFT,     /* a copy has left those in sync, the primary goes on */
	ROW_BUILDS,   /* a copy is to be built */
	ROW_EVENTS,
	ROW_NOTHING = ROW_EVENTS,
};

/* Whom a fault hits: the SDS of a group's primary, and that of another copy (may be NULL). */
struct subject {
	struct sim_sds *p, *o;
};

/* One half of a pair that dies in short order. */
struct doomed {
	struct sim_event event;
	struct faults *f;
	struct sim_sds *s;
	bool power;
};

struct faults {
	struct sim_cluster *c;
	struct load *load;
	struct checks *checks;
	struct change *change;
	struct fault_opts opts;
	unsigned left;
	unsigned rot_sds; /* keeps its power and its process, so that its checksums are known */
	struct sim_event next, heal_cut;
	/* A client that dies, and returns. */
	struct sim_event sdc_death, sdc_return;
	struct sim_sdc *away;
	struct doomed doomed[2];
	/* A second fault that waits for what the system makes of the first. */
	enum row_event waits_for; /* ROW_NOTHING: there is none */
	enum fault_kind second;
	struct subject subject;
	struct sim_event second_event, second_over;
};

/* faults.c */
bool fault_has_rot(const struct faults *f);
struct sim_sds *fault_any_sds(struct faults *f);
struct sim_disk *fault_any_disk(struct faults *f);

/* fault_sds.c: processes and hosts. @quick: back at once. */
void fault_sds_init(struct faults *f);
void fault_sds_cancel(struct faults *f);
void fault_crash(struct faults *f, struct sim_sds *s, bool power, bool quick);
void fault_all_crash(struct faults *f, bool power);
void fault_pair_crash(struct faults *f, const struct subject *x);
void fault_pause(struct faults *f, struct sim_sds *s);
void fault_sdc_crash(struct faults *f);

/* fault_net.c */
void fault_net_init(struct faults *f);
void fault_net_heal(struct faults *f);
void fault_partition(struct faults *f);
void fault_split(struct faults *f, const struct subject *x);
void fault_slow_network(struct faults *f);
void fault_hold(struct faults *f, const struct subject *x);
void fault_rows_late(struct faults *f, struct sim_sds *s);
void fault_reports_late(struct faults *f, struct sim_sds *s);

/* fault_disk.c */
void fault_medium_error(struct faults *f);
void fault_bitrot(struct faults *f);
void fault_slow_disk(struct faults *f, struct sim_disk *disk);
void fault_stuck_disk(struct faults *f, struct sim_disk *disk);

#endif
