/* SPDX-License-Identifier: MIT */
/* Shared by mdm.c (log, members) and ctl.c (channels). */
#ifndef ASHLAR_TESTS_SIM_MDM_INT_H
#define ASHLAR_TESTS_SIM_MDM_INT_H

#include "tests/sim/mdm.h"

#define sim_container(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

struct link;

struct log_entry {
	uint8_t *data;
	size_t bytes;
	uint64_t ready_at;
	uint64_t proposer; /* serial of the member's process */
	void (*done)(void *arg, int result, const struct mdm_result *res);
	void *arg;
};

struct member {
	struct mdm_port port;
	struct sim_mdm *mdm;
	struct sim_host host;
	struct sim_proc *p;
	struct mdm_state *st;
	struct mdm_service *svc;
	uint64_t applied, serial;
	unsigned index;
	char address[32];
	bool alive, cut_off, becoming_leader, apply_queued;
	int64_t wall_step_ms;
	struct sim_event apply_event, return_event;
	struct sim_item apply_item;
};

struct sim_mdm {
	struct sim_world *w;
	struct sim_fabric *fabric;
	unsigned members;
	struct member member[SIM_MDMS];
	int leader, old_leader;
	struct log_entry *log;
	uint64_t count, room, committed;
	uint64_t commit_ns, stalled_until, unreachable_until;
	struct sim_event commit_event, election_event;
	/* A fail-over that waits for the next proposal, so that it hits one in flight. */
	struct sim_event failover_event;
	bool failover_armed, failover_kills;
	void (*watch)(void *arg);
	void *watch_arg;
	struct sim_ctl *ctls;

	struct link *links;
};

/* @shell is what mdm_session_shell() gave: one connection. */
void sim_ctl_reply(void *shell, const Pb__Reply *reply);
void sim_ctl_push(void *shell, const Pb__Push *push);
void sim_ctl_closed_by_mdm(void *shell);
void sim_ctl_member_died(struct sim_mdm *mdm, struct member *m);
void sim_ctl_free_all(struct sim_mdm *mdm);

#endif
