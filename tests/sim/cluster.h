/* SPDX-License-Identifier: MIT */
/*
 * A whole simulated system: MDM cluster, SDS hosts with disks, SDC hosts, and its set-up through
 * the same commands that an operator gives.
 */
#ifndef ASHLAR_TESTS_SIM_CLUSTER_H
#define ASHLAR_TESTS_SIM_CLUSTER_H

#include "common/map/map.h"
#include "sdc/core/sdc.h"
#include "sds/core/sds.h"
#include "tests/sim/disk.h"
#include "tests/sim/history.h"
#include "tests/sim/mdm.h"

#define SIM_SDS_MAX 6
#define SIM_DISKS_MAX 2
#define SIM_SDC_MAX 3
#define SIM_VOLUMES_MAX 5
#define SIM_FAULT_SETS_MAX 4

/* Where clients write: at a few places, all at one, or all over larger volumes. */
enum sim_style { STYLE_PLACES, STYLE_PINNED, STYLE_WIDE };

/* What a seed draws before anything happens; see sim_shape(). */
struct sim_shape {
	unsigned mdms, sdss, fault_sets, disks, sdcs, volumes, pg_count;
	unsigned fault_set_of[SIM_SDS_MAX]; /* index */
	uint64_t disk_bytes;
	bool write_back[SIM_SDS_MAX][SIM_DISKS_MAX];
	bool any_write_back;
	uint64_t volume_bytes[SIM_VOLUMES_MAX];
	bool sparse[SIM_VOLUMES_MAX];	     /* larger than the pool: to fill it up */
	bool shared[SIM_VOLUMES_MAX];	     /* else mapped to one SDC */
	unsigned mapped_to[SIM_VOLUMES_MAX]; /* that one */
	enum sim_style style;
	uint32_t lease_ms;
	unsigned drift_pct; /* clocks run up to that much fast or slow */
};

struct sim_sds {
	struct sim_cluster *c;
	struct sim_host host;
	unsigned index;
	uint64_t id; /* given by the MDM */
	uint8_t uuid[16], boot_id[16];
	struct sim_disk *disk[SIM_DISKS_MAX];
	uint64_t device[SIM_DISKS_MAX];
	struct sim_proc *p; /* NULL: not running */
	struct sds *core;
	struct sim_ctl *ctl;
	struct sim_event start_event;
};

struct sim_sdc {
	struct sim_cluster *c;
	struct sim_host host;
	unsigned index;
	uint64_t id;
	uint8_t guid[16];
	struct sim_proc *p;
	struct sdc *core;
	struct sim_ctl *ctl;
	unsigned lives;
};

struct sim_cluster {
	struct sim_world *w;
	struct sim_shape shape;
	struct sim_fabric fabric;
	struct sim_mdm *mdm;
	struct sim_sds sds[SIM_SDS_MAX];
	struct sim_sdc sdc[SIM_SDC_MAX];
	struct history *history;
	uint64_t domain, pool, fault_set[SIM_FAULT_SETS_MAX];
	char volume_name[SIM_VOLUMES_MAX][16];
	unsigned volume_history[SIM_VOLUMES_MAX];
	uint64_t volume_node[SIM_VOLUMES_MAX];
	/* the operator */
	struct sim_host desk;
	struct sim_proc *operator_proc;
	struct sim_ctl *operator_ctl;
	/* what the leading MDM has committed, as an administrator gets it */
	struct ash_map *map;
	struct sim_row_watch {
		void (*changed)(void *arg, struct ash_map_pool *pool, uint32_t pg,
				const struct ash_row *old);
		void *arg;
	} row_watch[2]; /* of the checks, of the faults */
};

void sim_draw_shape(struct sim_world *w, struct sim_shape *shape);

/* Builds hosts and disks, starts everything, and sets the system up until all PGs are placed and
 * the volumes mapped. NULL and sim_fail() when that does not come about. */
struct sim_cluster *sim_cluster_new(struct sim_world *w, const struct sim_shape *shape);
/* Kills what still runs and frees everything. */
void sim_cluster_free(struct sim_cluster *c);

/* Of setup.c: gives the commands and waits for what they bring about. */
bool sim_set_up(struct sim_cluster *c);
void sim_draw_bytes(struct sim_world *w, uint8_t *to, size_t n);

/* Starts an SDS process now. @sim_sds_kill: power = the whole host, with what its disks cached. */
void sim_sds_start(struct sim_sds *s);
void sim_sds_kill(struct sim_sds *s, bool power);
void sim_sds_start_in(struct sim_sds *s, uint64_t ns);
/* The SDS's shell scans for disks again. */
void sim_sds_scan(struct sim_sds *s);

void sim_sdc_start(struct sim_sdc *s);
void sim_sdc_kill(struct sim_sdc *s);

/* operator.c */
void sim_operator_start(struct sim_cluster *c);
/* One command of the operator, waited for. Return: its id (or 1), 0 after sim_fail() or a refusal
 * (then *ret_refused is set, if given). */
uint64_t sim_admin(struct sim_cluster *c, Pb__Command *cmd, bool *ret_refused);

/* The same from inside of an event. @done: @code of the answer (0 = done; ASH_E_UNREACHABLE: nobody
 * knows whether it was) and the id of what was made. */
void sim_admin_ask(struct sim_cluster *c, Pb__Command *cmd,
		   void (*done)(void *arg, int code, uint64_t id), void *arg);

/* Runs the world until @ready says so. False after @most_ns, or when a check failed. */
bool sim_run_until(struct sim_cluster *c, bool (*ready)(struct sim_cluster *c), uint64_t most_ns);

/* Follows the leader's state; called on every commit. */
void sim_cluster_follow(struct sim_cluster *c);
/* Every PG is served and has two copies in sync. */
bool sim_all_in_sync(struct sim_cluster *c);
struct sim_sds *sim_sds_of_device(struct sim_cluster *c, uint64_t device, unsigned *ret_disk);

#endif
