// SPDX-License-Identifier: MIT
/*
 * How an MDM comes to belong to a system. `ashlar system create` gives the same list of members to
 * each of them; each writes it down, then opens a log whose first configuration is that list. They
 * elect a leader, and that one proposes the system itself: nobody else has to be alive by then.
 * A repetition with the same list is answered with success, so that an interrupted creation is
 * finished by giving the command again. An MDM that is added later gets its id and no list: it
 * opens an empty log and waits for the leader to add it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/base/log.h"
#include "common/base/name.h"
#include "common/io/reactor.h"
#include "common/io/sock.h"
#include "mdm/shell/shell_int.h"

void shell_reply_error(struct shell_peer *p, uint64_t id, const struct ash_error *err)
{
	Pb__Reply reply = PB__REPLY__INIT;
	Pb__Error e = PB__ERROR__INIT;

	e.code = err->code;
	e.message = (char *)err->message;
	reply.id = id;
	reply.error = &e;
	ash_ctl_peer_reply(p->peer, &reply);
}

static void reply_done(struct shell_peer *p, uint64_t id)
{
	Pb__Reply reply = PB__REPLY__INIT;
	Pb__AdminReply body = PB__ADMIN_REPLY__INIT;

	reply.id = id;
	reply.r_case = PB__REPLY__R_ADMIN;
	reply.admin = &body;
	body.id = p->sh->who.id;
	body.uuid = (ProtobufCBinaryData){16, p->sh->who.system};
	ash_ctl_peer_reply(p->peer, &reply);
}

static void reply_hello(struct mdm_shell *sh, struct shell_peer *p, uint64_t id)
{
	Pb__Reply reply = PB__REPLY__INIT;
	Pb__HelloReply hello = PB__HELLO_REPLY__INIT;

	hello.version = 1;
	hello.mdm_name = sh->name;
	hello.state = (char *)"uninitialised";
	reply.id = id;
	reply.r_case = PB__REPLY__R_HELLO;
	reply.hello = &hello;
	ash_ctl_peer_reply(p->peer, &reply);
}

static const Pb__CmdSystemCreate *create_of(const Pb__Request *req)
{
	if (req->r_case != PB__REQUEST__R_ADMIN || !req->admin->command ||
	    req->admin->command->c_case != PB__COMMAND__C_SYSTEM_CREATE)
		return NULL;
	return req->admin->command->system_create;
}

/* ------------------------------------------------------------ checks */

static struct ash_error check_member(const Pb__MdmMember *m)
{
	struct ash_error err = ash_name_check("MDM", m->name);
	struct ash_endpoint ep;
	char text[64];

	if (!ash_failed(&err))
		ash_endpoint_parse_numeric(m->client_address, 6611, &ep, &err);
	if (!ash_failed(&err))
		ash_endpoint_parse_numeric(m->raft_address, 9011, &ep, &err);
	/* The log's transport knows IPv4 only. */
	if (!ash_failed(&err) &&
	    (ash_endpoint_text(&ep, text, sizeof(text))[0] == '[' || strcmp(text, m->raft_address)))
		err = ash_error_make(
			ASH_E_INVALID,
			"MDM \"%s\": Raft address %.60s is not an IPv4 address with a port",
			m->name, m->raft_address);
	if (!ash_failed(&err) && strlen(m->client_address) > 63)
		err = ash_error_make(ASH_E_INVALID, "MDM \"%s\": address too long", m->name);
	return err;
}

static struct ash_error check_self(struct mdm_shell *sh, const Pb__MdmMember *m)
{
	if (strcmp(m->raft_address, sh->raft_text))
		return ash_error_make(
			ASH_E_INVALID,
			"MDM \"%s\" was started with --raft %s, not %s; give the same "
			"address here",
			sh->name, sh->raft_text, m->raft_address);
	if ((m->role == PB__MDM_ROLE__MDM_TIE_BREAKER) != sh->opts.tie_breaker)
		return ash_error_make(
			ASH_E_INVALID,
			"\"%s\" was started %s --tie-breaker; name it with %s, or start "
			"it otherwise",
			sh->name, sh->opts.tie_breaker ? "with" : "without",
			sh->opts.tie_breaker ? "--tb" : "--mdm");
	return ash_error_ok();
}

static struct ash_error take_list(struct mdm_shell *sh, const Pb__CmdSystemCreate *c,
				  struct mdm_identity *who)
{
	Pb__Command cmd = PB__COMMAND__INIT;
	struct ash_error err;

	/* What apply would refuse later must not become a configuration. */
	cmd.c_case = PB__COMMAND__C_SYSTEM_CREATE;
	cmd.system_create = (Pb__CmdSystemCreate *)c;
	err = mdm_check(sh->st, &cmd);
	for (size_t i = 0; i < c->n_mdms && !ash_failed(&err); i++) {
		const Pb__MdmMember *m = c->mdms[i];
		struct mdm_first_member *f = &who->member[i];

		err = check_member(m);
		if (ash_failed(&err))
			break;
		f->id = m->id;
		f->tie_breaker = m->role == PB__MDM_ROLE__MDM_TIE_BREAKER;
		snprintf(f->name, sizeof(f->name), "%s", m->name);
		snprintf(f->client, sizeof(f->client), "%s", m->client_address);
		snprintf(f->raft, sizeof(f->raft), "%s", m->raft_address);
		if (strcmp(m->name, sh->name))
			continue;
		who->id = m->id;
		err = check_self(sh, m);
	}
	if (!ash_failed(&err) && !who->id)
		err = ash_error_make(
			ASH_E_INVALID,
			"the MDM at %s is called \"%s\", which the list does not name; "
			"give --mdm %s=... or start it with another --name",
			sh->listen_text, sh->name, sh->name);
	who->members = c->n_mdms;
	return err;
}

/* ------------------------------------------------------------ creation */

static void join(struct mdm_shell *sh, struct shell_peer *p, uint64_t id,
		 const struct mdm_identity *who)
{
	struct ash_error err = mdm_identity_save(who, sh->state_dir);

	if (!ash_failed(&err)) {
		sh->who = *who;
		err = shell_start_log(sh);
		if (ash_failed(&err))
			sh->who.id = 0;
	}
	if (ash_failed(&err)) {
		ash_log(ASH_LOG_ERROR, "event=join_failed why=\"%s\"", err.message);
		shell_reply_error(p, id, &err);
		return;
	}
	reply_done(p, id);
	ash_log(ASH_LOG_NOTICE, "event=joined id=%llu system=%s members=%zu",
		(unsigned long long)who->id, who->system_name, who->members);
	/* The others said their HELLO to somebody who knew no system. */
	ash_list_each(it, &sh->peers) {
		struct shell_peer *other = ash_container_of(it, struct shell_peer, node);

		if (other != p && !other->closing) {
			other->closing = true;
			ash_ctl_peer_close(other->peer);
		}
	}
}

static void create(struct mdm_shell *sh, struct shell_peer *p, uint64_t id,
		   const Pb__CmdSystemCreate *c)
{
	struct mdm_identity who = sh->who;
	struct ash_error err;

	memset(who.member, 0, sizeof(who.member));
	who.members = 0;
	who.id = 0;
	err = take_list(sh, c, &who);
	if (ash_failed(&err)) {
		shell_reply_error(p, id, &err);
		return;
	}
	memcpy(who.system, c->uuid.data, 16);
	snprintf(who.system_name, sizeof(who.system_name), "%s", c->name);
	join(sh, p, id, &who);
}

/* The leader of an existing system wants this one: id in the member, the system's UUID and name in
 * its own command. */
static void enter(struct mdm_shell *sh, struct shell_peer *p, uint64_t id,
		  const Pb__MdmChange *change)
{
	struct mdm_identity who = sh->who;
	struct ash_error err = check_member(change->member);

	if (!ash_failed(&err))
		err = check_self(sh, change->member);
	if (!ash_failed(&err) && !change->member->id)
		err = ash_error_make(ASH_E_INVALID, "no id given");
	if (ash_failed(&err)) {
		shell_reply_error(p, id, &err);
		return;
	}
	who.id = change->member->id;
	who.members = 0;
	join(sh, p, id, &who);
}

void shell_unjoined_request(struct mdm_shell *sh, struct shell_peer *p, const Pb__Request *req)
{
	const Pb__CmdSystemCreate *c = create_of(req);
	struct ash_error err;

	if (req->r_case == PB__REQUEST__R_HELLO) {
		reply_hello(sh, p, req->id);
	} else if (c) {
		create(sh, p, req->id, c);
	} else if (req->r_case == PB__REQUEST__R_MDM_CHANGE && req->mdm_change->member &&
		   !strcmp(req->mdm_change->op, "enter")) {
		enter(sh, p, req->id, req->mdm_change);
	} else {
		err = ash_error_make(ASH_E_STATE,
				     "MDM \"%s\" belongs to no system yet; create one with: ashlar "
				     "system create --name NAME --mdm %s=%s/%s",
				     sh->name, sh->name, sh->listen_text, sh->raft_text);
		shell_reply_error(p, req->id, &err);
	}
}

/* ------------------------------------------------------------ again */

static bool same_list(const struct mdm_identity *who, const Pb__CmdSystemCreate *c)
{
	if (strcmp(who->system_name, c->name) || who->members != c->n_mdms)
		return false;
	for (size_t i = 0; i < c->n_mdms; i++)
		if (who->member[i].id != c->mdms[i]->id ||
		    strcmp(who->member[i].name, c->mdms[i]->name) ||
		    strcmp(who->member[i].raft, c->mdms[i]->raft_address))
			return false;
	return true;
}

bool shell_create_again(struct mdm_shell *sh, struct shell_peer *p, const Pb__Request *req)
{
	const Pb__CmdSystemCreate *c = create_of(req);
	struct ash_error err;

	if (!c)
		return false;
	if (same_list(&sh->who, c)) {
		reply_done(p, req->id);
		return true;
	}
	err = ash_error_make(
		ASH_E_EXISTS,
		"MDM \"%s\" belongs to system \"%s\" already; a second system needs MDMs "
		"with empty state directories",
		sh->name, sh->who.system_name);
	shell_reply_error(p, req->id, &err);
	return true;
}
