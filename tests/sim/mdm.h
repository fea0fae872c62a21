/* SPDX-License-Identifier: MIT */
/*
 * The simulated MDM cluster and the control channels to it.
 *
 * The replicated log is one list with a commit index, which stands for any correct consensus: an
 * entry that was committed is never lost, one that was not may be, in order. Each member applies
 * the committed entries to a state of its own, at its own pace, through the real service; members
 * are compared by their snapshots. A new leader has applied everything committed before it leads.
 */
#ifndef ASHLAR_TESTS_SIM_MDM_H
#define ASHLAR_TESTS_SIM_MDM_H

#include "common/port/ctl.h"
#include "mdm/core/mdm.h"
#include "tests/sim/net.h"

#define SIM_MDMS 3

struct sim_mdm;
struct sim_ctl;

/* @members: 1 or 3. Member 0 leads first. */
struct sim_mdm *sim_mdm_new(struct sim_world *w, struct sim_fabric *fabric, unsigned members);
void sim_mdm_free(struct sim_mdm *mdm);

/* What the leader has applied; the truth that invariants are checked against. */
const struct mdm_state *sim_mdm_state(const struct sim_mdm *mdm);
uint64_t sim_mdm_commits(const struct sim_mdm *mdm);
struct sim_host *sim_mdm_host(struct sim_mdm *mdm, unsigned member);
int sim_mdm_leader(const struct sim_mdm *mdm); /* -1 none now */

/* Typical time until an entry is committed. */
void sim_mdm_commit_latency(struct sim_mdm *mdm, uint64_t ns);
/* Nothing is committed before @until (a stalled disk, a lost quorum). */
void sim_mdm_stall(struct sim_mdm *mdm, uint64_t until);
/* No control channel works before @until; @break_now: those that are up end. */
void sim_mdm_unreachable(struct sim_mdm *mdm, uint64_t until, bool break_now);
/* The wall clock of a member, or of all (-1), is wrong by that much from now on. */
void sim_mdm_wall_step(struct sim_mdm *mdm, int member, int64_t ms);
/* The leader is lost: killed (it returns after a while), or only cut off from the others. */
void sim_mdm_failover(struct sim_mdm *mdm, bool kill);
/* Channels work again; whatever lasted is over. */
void sim_mdm_heal(struct sim_mdm *mdm);
/* A follower takes over a snapshot of the leader in place of its own state. */
void sim_mdm_install_snapshot(struct sim_mdm *mdm);
/* All members that live apply all that is committed; false and sim_fail() if their states differ.
 */
bool sim_mdm_compare(struct sim_mdm *mdm);

/* Called on each command that the leader applied. */
void sim_mdm_watch(struct sim_mdm *mdm, void (*applied)(void *arg), void *arg);

/* ------------------------------------------------------------ control channels */

struct sim_ctl_id {
	const char *role, *name;
	uint8_t uuid[16], session[16];
};

/* A channel of process @p; it connects by itself. Set events and owner before the next event. */
struct sim_ctl *sim_ctl_new(struct sim_mdm *mdm, struct sim_proc *p, const struct sim_ctl_id *id);
struct ash_ctl *sim_ctl_port(struct sim_ctl *ctl);
/* The process died or ends; the core must not be called any more. */
void sim_ctl_kill(struct sim_ctl *ctl);
bool sim_ctl_is_up(const struct sim_ctl *ctl);
/* What the MDMs send to it arrives after @until, on later connections too. */
void sim_ctl_deafen(struct sim_ctl *ctl, uint64_t until);
/* The connection breaks for this end; what it sent, or still sends before it hears of that, arrives
 * after @until. */
void sim_ctl_hold(struct sim_ctl *ctl, uint64_t until);

#endif
