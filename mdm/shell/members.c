// SPDX-License-Identifier: MIT
/* Members of the cluster: who they are, how they do, and changes among them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "mdm/shell/shell_int.h"

/* By the state; before the system's first command by what this MDM was told at its creation. */
static bool is_manager(struct mdm_shell *sh, uint64_t id)
{
	const Pb__MdmMember *m = mdm_find(sh->st, PB__KIND__KIND_MDM, id);

	if (m)
		return m->role == PB__MDM_ROLE__MDM_MANAGER;
	for (size_t i = 0; i < sh->who.members; i++)
		if (sh->who.member[i].id == id)
			return !sh->who.member[i].tie_breaker;
	return false;
}

const char *shell_member_address(struct mdm_shell *sh, uint64_t id)
{
	const Pb__MdmMember *m = mdm_find(sh->st, PB__KIND__KIND_MDM, id);

	if (m)
		return m->client_address;
	for (size_t i = 0; i < sh->who.members; i++)
		if (sh->who.member[i].id == id)
			return sh->who.member[i].client;
	return "";
}

static void better(struct mdm_shell *sh, uint64_t id, uint64_t *best, uint64_t *match)
{
	struct mdm_raft_peer peer;

	if (id == sh->who.id || !is_manager(sh, id) || !mdm_raft_peer(sh->raft, id, &peer) ||
	    !peer.voter || !peer.recent || (*best && peer.match <= *match))
		return;
	*best = id;
	*match = peer.match;
}

uint64_t shell_successor(struct mdm_shell *sh)
{
	uint64_t best = 0, match = 0;

	MDM_EACH(sh->st, PB__KIND__KIND_MDM, Pb__MdmMember, m)
		better(sh, m->id, &best, &match);
	for (size_t i = 0; i < sh->who.members && !sh->st->system; i++)
		better(sh, sh->who.member[i].id, &best, &match);
	return best;
}

void shell_member_status(struct mdm_port *port, Pb__MdmStatus *status)
{
	struct mdm_shell *sh = port->shell;
	const char *state =
		status->role == PB__MDM_ROLE__MDM_TIE_BREAKER ? "tie-breaker" : "follower";
	struct mdm_raft_peer peer;

	if (status->id == sh->leader)
		state = "leader";
	if (status->id == sh->who.id || status->id == sh->leader)
		status->reachable = true;
	if (mdm_raft_peer(sh->raft, status->id, &peer)) {
		status->reachable = peer.recent;
		if (status->id != sh->who.id)
			status->applied = peer.match;
		if (!peer.voter)
			state = "joining";
	}
	if (!status->reachable)
		state = sh->leads ? "unreachable" : "unknown";
	mdm_set_string(&status->state, state);
}

/* ------------------------------------------------------------ changes */

struct change {
	struct ash_timer timer; /* answers that are ready at once still come later */
	struct mdm_shell *sh;
	void (*done)(void *arg, const struct ash_error *err);
	void *arg;
	struct ash_error err;
};

static void later(struct ash_timer *timer)
{
	struct change *c = ash_container_of(timer, struct change, timer);

	c->done(c->arg, &c->err);
	free(c);
}

static void on_raft(void *arg, const struct ash_error *err)
{
	struct change *c = arg;

	c->err = *err;
	if (c->sh->svc)
		ash_timer_set(&c->sh->timers, &c->timer, c->sh->port.now_ns(&c->sh->port));
	else
		free(c);
}

static const Pb__MdmMember *find_member(struct mdm_shell *sh, const Pb__MdmMember *wanted)
{
	MDM_EACH(sh->st, PB__KIND__KIND_MDM, Pb__MdmMember, m)
		if (m->id == wanted->id || (*wanted->name && !strcmp(m->name, wanted->name)))
			return m;
	return NULL;
}

static void do_transfer(struct mdm_shell *sh, const Pb__MdmMember *m, struct change *c)
{
	uint64_t to = m ? m->id : shell_successor(sh);
	struct mdm_raft_peer peer;
	struct ash_error err;

	if (m && m->role == PB__MDM_ROLE__MDM_TIE_BREAKER)
		err = ash_error_make(ASH_E_INVALID, "\"%s\" is a tie-breaker, which cannot lead",
				     m->name);
	else if (to == sh->who.id)
		err = ash_error_ok();
	else if (!to || !mdm_raft_peer(sh->raft, to, &peer) || !peer.recent)
		err = ash_error_make(
			ASH_E_STATE,
			"%s%s%s not reachable, so it cannot take over; see 'ashlar mdm "
			"list'",
			m ? "MDM \"" : "no other MDM is", m ? m->name : "", m ? "\" is" : "");
	else {
		mdm_raft_transfer(sh->raft, to, on_raft, c);
		return;
	}
	on_raft(c, &err);
}

static void do_remove(struct mdm_shell *sh, const Pb__MdmMember *m, struct change *c)
{
	struct ash_error err;

	if (m->id == sh->who.id) {
		err = ash_error_make(
			ASH_E_IN_USE,
			"MDM \"%s\" leads; hand leadership on first: ashlar mdm transfer", m->name);
		on_raft(c, &err);
		return;
	}
	mdm_raft_remove(sh->raft, m->id, on_raft, c);
}

void shell_members(struct mdm_port *port, const Pb__MdmChange *change,
		   void (*done)(void *arg, const struct ash_error *err), void *arg)
{
	struct mdm_shell *sh = port->shell;
	struct change *c = ash_xcalloc(1, sizeof(*c));
	const Pb__MdmMember *m = change->member ? find_member(sh, change->member) : NULL;
	struct ash_error err;

	c->sh = sh;
	c->done = done;
	c->arg = arg;
	c->timer.fn = later;
	if (!strcmp(change->op, "add") && change->member && !m) {
		mdm_raft_add(sh->raft, change->member->id, change->member->raft_address, on_raft,
			     c);
		return;
	}
	if (!strcmp(change->op, "add"))
		err = ash_error_make(ASH_E_EXISTS, "MDM \"%s\" is a member already",
				     m ? m->name : "");
	else if (change->member && !m)
		err = ash_error_make(ASH_E_NOT_FOUND,
				     "there is no MDM \"%s\"; see 'ashlar mdm list'",
				     change->member->name);
	else if (!strcmp(change->op, "remove") && m) {
		do_remove(sh, m, c);
		return;
	} else if (!strcmp(change->op, "transfer")) {
		do_transfer(sh, m, c);
		return;
	} else {
		err = ash_error_make(
			ASH_E_UNSUPPORTED,
			"the MDM cluster does not know the change \"%s\"; it knows add, "
			"remove and transfer",
			change->op);
	}
	on_raft(c, &err);
}
