/* SPDX-License-Identifier: MIT */
/* Requests of administrators. Each is answered within a bounded time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/base/uuid.h"
#include "mdm/core/service_int.h"

#define FENCE_WAIT_MS 1000

/* ---------------------------------------------------------------- answers */

static void answer(struct svc_call *call, const char *note)
{
	Pb__Reply reply = PB__REPLY__INIT;
	Pb__AdminReply body = PB__ADMIN_REPLY__INIT;

	body.id = call->result_id;
	body.uuid.data = call->result_uuid;
	body.uuid.len = 16;
	body.note = (char *)note;
	reply.r_case = PB__REPLY__R_ADMIN;
	reply.admin = &body;
	svc_call_reply(call, &reply);
}

static void give_up(struct svc_call *call)
{
	struct ash_error err = ash_error_make(
		ASH_E_UNREACHABLE,
		"no majority of the MDMs has answered within %d s; the change may still take effect, "
		"ask for the state before you repeat it",
		SVC_ADMIN_MS / 1000);

	svc_call_error(call, &err);
}

/* ---------------------------------------------------------------- unmap waits for its fence */

static const Pb__Fence *fence_of(const struct svc_call *call)
{
	return mdm_fence(call->svc->st, call->fence);
}

static void poll_fence(struct svc_call *call)
{
	if (!fence_of(call))
		answer(call, "");
}

static void fence_is_late(struct svc_call *call)
{
	const Pb__Fence *f = fence_of(call);
	char note[400];
	size_t at;

	at = (size_t)snprintf(note, sizeof(note), "pending:");
	for (size_t i = 0; f && i < f->n_pending_sds && at + 70 < sizeof(note); i++)
		at += (size_t)snprintf(
			note + at, sizeof(note) - at, " %s",
			mdm_name(call->svc->st, PB__KIND__KIND_SDS, f->pending_sds[i]));
	answer(call, note);
}

/* The newest fence of that volume and SDC. */
static uint64_t find_fence(const struct mdm_state *st, const Pb__CmdUnmap *c)
{
	const Pb__Volume *vol = mdm_volume(st, c->volume);
	uint64_t found = 0;

	MDM_EACH(st, PB__KIND__KIND_FENCE, Pb__Fence, f)
		if (vol && f->node == vol->node && f->sdc == c->sdc)
			found = f->id;
	return found;
}

/* ---------------------------------------------------------------- the common way */

static void device_note(struct svc_call *call)
{
	const Pb__Sds *sds = mdm_sds(call->svc->st, call->cmd->device_add->sds);
	char note[160] = "";

	if (sds && !sds->up)
		snprintf(note, sizeof(note),
			 "SDS \"%s\" is not up; the device is formatted when it is", sds->name);
	answer(call, note);
}

static void on_applied(struct mdm_service *svc, void *arg, int result, const struct mdm_result *res)
{
	struct svc_call *call = arg;
	struct ash_error err;

	if (!svc_call_back(call))
		return;
	err = svc_outcome(svc, result, res);
	if (ash_failed(&err)) {
		svc_call_error(call, &err);
		return;
	}
	call->result_id = res->id;
	memcpy(call->result_uuid, res->uuid, 16);
	if (call->cmd->c_case == PB__COMMAND__C_UNMAP)
		call->fence = find_fence(svc->st, call->cmd->unmap);
	if (call->fence) {
		call->deadline_ns = svc_now(svc) + FENCE_WAIT_MS * SVC_MS;
		call->poll = poll_fence;
		call->give_up = fence_is_late;
	} else if (call->cmd->c_case == PB__COMMAND__C_DEVICE_ADD) {
		device_note(call);
	} else {
		answer(call, "");
	}
}

static void check_and_propose(struct svc_call *call)
{
	struct ash_error err = mdm_check(call->svc->st, call->cmd);

	call->poll = NULL;
	call->give_up = give_up;
	if (ash_failed(&err))
		svc_call_error(call, &err);
	else
		svc_call_propose(call, call->cmd, on_applied);
}

/* The first volume of a pool comes when its groups have found their places for good. */
static void poll_first_volume(struct svc_call *call)
{
	if (ctl_place_settled(call->svc, call->cmd->volume_add->pool))
		check_and_propose(call);
}

/* Commands that administrators may give; the rest belongs to SDSs and controllers. */
static bool is_for_people(Pb__Command__CCase c)
{
	switch (c) {
	case PB__COMMAND__C_SDS_REGISTER:
	case PB__COMMAND__C_SDS_STATE:
	case PB__COMMAND__C_DEVICE_OPENED:
	case PB__COMMAND__C_OPEN:
	case PB__COMMAND__C_FENCE_DONE:
	case PB__COMMAND__C_TOMBSTONE_DONE:
	case PB__COMMAND__C_PG_BATCH:
	case PB__COMMAND__C_MDM_SET:
	case PB__COMMAND__C_EVENT:
		return false;
	default:
		return true;
	}
}

static void set_random_uuid(struct mdm_service *svc, ProtobufCBinaryData *field)
{
	uint8_t uuid[16];

	if (field->len)
		return;
	ash_uuid_from_random(svc->port->rand64(svc->port), svc->port->rand64(svc->port), uuid);
	mdm_set_bytes(field, uuid, 16);
}

/* Whatever apply must not make up by itself. */
static void stamp(struct mdm_service *svc, Pb__Command *cmd)
{
	const Pb__Device *dev;

	switch (cmd->c_case) {
	case PB__COMMAND__C_SYSTEM_CREATE:
		set_random_uuid(svc, &cmd->system_create->uuid);
		break;
	case PB__COMMAND__C_DEVICE_ADD:
		set_random_uuid(svc, &cmd->device_add->uuid);
		break;
	case PB__COMMAND__C_DEVICE_FAILED:
		/* An operator means the opening that is there now. */
		dev = mdm_device(svc->st, cmd->device_failed->device);
		if (dev && !cmd->device_failed->incarnation)
			cmd->device_failed->incarnation = dev->incarnation;
		break;
	case PB__COMMAND__C_VOLUME_ADD:
		if (!cmd->volume_add->unix_s)
			cmd->volume_add->unix_s = svc->port->unix_ms(svc->port) / 1000;
		break;
	default:
		break;
	}
}

void svc_admin(struct mdm_session *s, uint64_t id, const Pb__Admin *r)
{
	struct mdm_service *svc = s->svc;
	struct svc_call *call;
	struct ash_error err;

	if (!r->command || !is_for_people(r->command->c_case)) {
		err = ash_error_make(ASH_E_INVALID, "this is no command for administrators");
		svc_reply_error(s, id, &err);
		return;
	}
	call = svc_call_new(s, id);
	call->deadline_ns = svc_now(svc) + SVC_ADMIN_MS * SVC_MS;
	call->cmd = mdm_pb_clone(r->command);
	err = svc_resolve(svc, r, call->cmd);
	if (ash_failed(&err)) {
		svc_call_error(call, &err);
		return;
	}
	stamp(svc, call->cmd);
	err = mdm_check(svc->st, call->cmd);
	/* Only what devices on their way can mend is worth waiting for. */
	if (call->cmd->c_case == PB__COMMAND__C_VOLUME_ADD &&
	    (!ash_failed(&err) || err.code == ASH_E_STATE || err.code == ASH_E_CAPACITY) &&
	    !ctl_place_settled(svc, call->cmd->volume_add->pool)) {
		call->poll = poll_first_volume;
		call->give_up = check_and_propose; /* says what is missing */
		return;
	}
	check_and_propose(call);
}

/* ---------------------------------------------------------------- MDM members */

struct membership {
	struct svc_call *call;
	Pb__MdmChange *change;
};

static void on_members_set(struct mdm_service *svc, void *arg, int result,
			   const struct mdm_result *res)
{
	struct svc_call *call = arg;
	struct ash_error err;

	if (!svc_call_back(call))
		return;
	err = svc_outcome(svc, result, res);
	svc_call_error(call, &err);
}

/* The list of members after the change, in a new command. */
static void record_members(struct svc_call *call, const Pb__MdmChange *change)
{
	const struct mdm_table *t = &call->svc->st->table[PB__KIND__KIND_MDM];
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdMdmSet c = PB__CMD_MDM_SET__INIT;
	bool add = !strcmp(change->op, "add");

	c.members = ash_xcalloc(t->count + 1, sizeof(*c.members));
	for (size_t i = 0; i < t->count; i++) {
		Pb__MdmMember *m = t->obj[i];

		if (strcmp(m->name, change->member->name) && m->id != change->member->id)
			c.members[c.n_members++] = m;
	}
	if (add)
		c.members[c.n_members++] = change->member;
	cmd.c_case = PB__COMMAND__C_MDM_SET;
	cmd.mdm_set = &c;
	svc_call_propose(call, &cmd, on_members_set);
	free(c.members);
}

static void on_members(void *arg, const struct ash_error *err)
{
	struct membership *m = arg;
	struct svc_call *call = m->call;
	bool recorded = !strcmp(m->change->op, "add") || !strcmp(m->change->op, "remove");

	if (svc_call_back(call)) {
		if (ash_failed(err) || !recorded || !m->change->member)
			svc_call_error(call, err);
		else
			record_members(call, m->change);
	}
	mdm_pb_free(m->change);
	free(m);
}

void svc_mdm_change(struct mdm_session *s, uint64_t id, const Pb__MdmChange *r)
{
	struct mdm_service *svc = s->svc;
	struct membership *m;
	struct ash_error err;

	if (!svc->port->members) {
		err = ash_error_make(ASH_E_UNSUPPORTED,
				     "the members of this MDM cluster are fixed");
		svc_reply_error(s, id, &err);
		return;
	}
	m = ash_xcalloc(1, sizeof(*m));
	m->call = svc_call_new(s, id);
	m->call->deadline_ns = svc_now(svc) + 3 * SVC_ADMIN_MS * SVC_MS;
	m->call->give_up = give_up;
	m->call->flying++;
	m->change = mdm_pb_clone(r);
	if (m->change->member && !m->change->member->id && !strcmp(r->op, "add"))
		m->change->member->id = svc->st->next_id; /* free; recorded ids raise the counter */
	svc->port->members(svc->port, m->change, on_members, m);
}
