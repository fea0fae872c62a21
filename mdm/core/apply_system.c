/* SPDX-License-Identifier: MIT */
/* The system itself, its MDM members, events from outside. */
#include <string.h>

#include "common/base/clean.h"
#include "common/base/name.h"
#include "mdm/core/state.h"

#define LEASE_MS 600
#define LEASE_MS_MIN 100
#define LEASE_MS_MAX 10000
#define FAIL_AFTER_MS 1000
#define OP_DEADLINE_MS 2000
#define MEMBERS_MAX 5

static struct ash_error check_members(Pb__MdmMember **members, size_t count)
{
	size_t managers = 0;

	if (!count || count > MEMBERS_MAX)
		return ash_error_make(ASH_E_INVALID,
				      "%zu MDMs given; a system has 1, 3 or 5 (at most %d)", count,
				      MEMBERS_MAX);
	for (size_t i = 0; i < count; i++) {
		struct ash_error err = ash_name_check("MDM", members[i]->name);

		if (ash_failed(&err))
			return err;
		if (!members[i]->id)
			return ash_error_make(ASH_E_INVALID, "MDM \"%s\" has no id",
					      members[i]->name);
		managers += members[i]->role == PB__MDM_ROLE__MDM_MANAGER;
		for (size_t k = 0; k < i; k++) {
			if (members[k]->id == members[i]->id ||
			    !strcmp(members[k]->name, members[i]->name))
				return ash_error_make(ASH_E_EXISTS, "MDM \"%s\" is given twice",
						      members[i]->name);
			if (*members[i]->raft_address &&
			    !strcmp(members[k]->raft_address, members[i]->raft_address))
				return ash_error_make(ASH_E_EXISTS,
						      "MDMs \"%s\" and \"%s\" have one address, %s",
						      members[k]->name, members[i]->name,
						      members[i]->raft_address);
		}
	}
	if (!managers)
		return ash_error_make(ASH_E_INVALID, "only tie-breakers given; a system needs at "
						     "least one MDM that serves");
	return ash_error_ok();
}

/* ---------------------------------------------------------------- system create */

static struct ash_error create_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdSystemCreate *c = body;
	struct ash_error err;

	if (st->system)
		return ash_error_make(ASH_E_EXISTS,
				      "system \"%s\" exists here already; a second one needs MDMs "
				      "with empty state directories",
				      st->system->name);
	err = ash_name_check("system", c->name);
	if (ash_failed(&err))
		return err;
	if (!mdm_is_uuid(&c->uuid))
		return ash_error_make(ASH_E_INVALID,
				      "system \"%s\": the UUID has %zu bytes, not 16", c->name,
				      c->uuid.len);
	if (c->lease_ms && (c->lease_ms < LEASE_MS_MIN || c->lease_ms > LEASE_MS_MAX))
		return ash_error_make(ASH_E_INVALID,
				      "system \"%s\": lease of %u ms is not in %d..%d ms", c->name,
				      c->lease_ms, LEASE_MS_MIN, LEASE_MS_MAX);
	return check_members(c->mdms, c->n_mdms);
}

/* What stays keeps its place: a removal is recorded only for what goes. */
static void put_members(struct mdm_state *st, Pb__MdmMember **members, size_t count)
{
	struct mdm_table *t = &st->table[PB__KIND__KIND_MDM];

	for (size_t i = t->count; i-- > 0;) {
		uint64_t id = mdm_obj_id(t->obj[i]);
		bool stays = false;

		for (size_t k = 0; k < count; k++)
			stays |= members[k]->id == id;
		if (stays)
			mdm_pb_free(mdm_table_take(t, id));
		else
			mdm_remove(st, PB__KIND__KIND_MDM, id);
	}
	for (size_t i = 0; i < count; i++) {
		mdm_add(st, PB__KIND__KIND_MDM, mdm_pb_clone(members[i]));
		if (members[i]->id >= st->next_id)
			st->next_id = members[i]->id + 1;
	}
}

static void create_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdSystemCreate *c = body;
	Pb__System *sys = ash_xcalloc(1, sizeof(*sys));

	pb__system__init(sys);
	mdm_set_bytes(&sys->uuid, c->uuid.data, c->uuid.len);
	mdm_set_string(&sys->name, c->name);
	sys->lease_ms = c->lease_ms ? c->lease_ms : LEASE_MS;
	sys->fail_after_ms = FAIL_AFTER_MS;
	sys->op_deadline_ms = OP_DEADLINE_MS;
	sys->version = st->making;
	st->system = sys;
	st->changed = true;
	put_members(st, c->mdms, c->n_mdms);
	memcpy(res->uuid, c->uuid.data, 16);
	mdm_event(st, PB__SEVERITY__SEV_INFO, "SYSTEM_CREATED", 0, c->name,
		  "system \"%s\" was created with %zu MDMs", c->name, c->n_mdms);
}

const struct mdm_verb mdm_verb_system_create = {create_check, create_apply};

/* ---------------------------------------------------------------- members */

static struct ash_error set_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdMdmSet *c = body;

	return check_members(c->members, c->n_members);
}

static bool same_member(const Pb__MdmMember *a, const Pb__MdmMember *b)
{
	return a->role == b->role && !strcmp(a->name, b->name) &&
	       !strcmp(a->client_address, b->client_address) &&
	       !strcmp(a->raft_address, b->raft_address);
}

static void set_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdMdmSet *c = body;
	struct mdm_table *t = &st->table[PB__KIND__KIND_MDM];
	bool same = t->count == c->n_members;

	for (size_t i = 0; i < c->n_members && same; i++) {
		const Pb__MdmMember *old = mdm_table_find(t, c->members[i]->id);

		same = old && same_member(old, c->members[i]);
	}
	if (same)
		return;
	put_members(st, c->members, c->n_members);
	mdm_event(st, PB__SEVERITY__SEV_INFO, "MDM_MEMBERS_CHANGED", 0, st->system->name,
		  "the system has %zu MDMs now", c->n_members);
}

const struct mdm_verb mdm_verb_mdm_set = {set_check, set_apply};

/* ---------------------------------------------------------------- events of controllers */

static struct ash_error event_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdEvent *c = body;

	if (!c->event || !*c->event->code)
		return ash_error_make(ASH_E_INVALID, "an event without a code");
	return ash_error_ok();
}

static void event_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__Event *e = ((const Pb__CmdEvent *)body)->event;

	mdm_event(st, e->severity, e->code, 0, "", "%s", e->message);
	mdm_set_string(&st->events[st->events_count - 1]->object, e->object);
}

const struct mdm_verb mdm_verb_event = {event_check, event_apply};
