/* SPDX-License-Identifier: MIT */
#ifndef ASHLAR_MDM_SHELL_RAFT_INT_H
#define ASHLAR_MDM_SHELL_RAFT_INT_H

#include <ev.h>
#include <raft.h>
#include <raft/uv.h>
#include <uv.h>

#include "common/base/list.h"
#include "mdm/shell/raft.h"

struct raft_change_op {
	struct mdm_raft *r;
	bool running;
	bool promote; /* the step after an addition */
	uint64_t id;
	mdm_raft_done done;
	void *arg;
};

struct mdm_raft {
	struct ev_loop *loop;
	const struct mdm_raft_events *events;
	void *arg;
	uv_loop_t uv;
	ev_io fd;
	ev_prepare prepare;
	ev_check check;
	ev_timer timer, nodelay;
	struct raft_uv_transport transport;
	struct raft_io io;
	struct raft_fsm fsm;
	struct raft raft;
	struct ash_list queue, flying; /* struct proposal */
	bool started, closing, closed, dead, in_uv;
	bool told, told_leads;
	uint64_t told_leader;
	/* Leadership counts once the barrier behind it was applied. */
	struct raft_barrier barrier;
	bool barrier_flying, barrier_passed;
	raft_term barrier_term;
	struct raft_change change;
	struct raft_change_op change_op, transfer_op;
	struct raft_transfer transfer;
	bool transfer_ended;
	char why[200];
};

/* raft_loop.c */
int raft_loop_start(struct mdm_raft *r);
void raft_loop_stop(struct mdm_raft *r);
void raft_loop_soon(struct mdm_raft *r);
/* raft.c */
void raft_turn(struct mdm_raft *r);

#endif
