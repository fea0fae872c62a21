/* SPDX-License-Identifier: MIT */
/* Requests of data servers, and the greeting of everybody. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "mdm/core/service_int.h"

#define PROTOCOL_VERSION 1
#define SILENT_MS 400	      /* two heartbeats are missing */
#define REGISTER_WAIT_MS 2000 /* longer than it takes to be declared failed */

/* ---------------------------------------------------------------- hello */

static enum svc_role role_of(const char *role)
{
	if (!strcmp(role, "sds"))
		return SVC_SDS;
	return !strcmp(role, "sdc") ? SVC_SDC : SVC_CLI;
}

static struct ash_error check_hello(const struct mdm_state *st, const Pb__Hello *r)
{
	if (r->version_min > PROTOCOL_VERSION || r->version_max < PROTOCOL_VERSION)
		return ash_error_make(
			ASH_E_UNSUPPORTED,
			"this MDM speaks version %d of the control protocol, you speak "
			"%u to %u; update the older side",
			PROTOCOL_VERSION, r->version_min, r->version_max);
	if (r->system.len == 16 && st->system && !mdm_bytes_equal(&r->system, &st->system->uuid)) {
		static const uint8_t any[16];

		if (memcmp(r->system.data, any, 16))
			return ash_error_make(ASH_E_DENIED,
					      "this MDM is of system \"%s\", and you belong to "
					      "another one; correct the list of MDMs",
					      st->system->name);
	}
	return ash_error_ok();
}

void svc_hello(struct mdm_session *s, uint64_t id, const Pb__Hello *r)
{
	struct mdm_service *svc = s->svc;
	struct ash_error err = check_hello(svc->st, r);
	const Pb__MdmMember *self = mdm_find(svc->st, PB__KIND__KIND_MDM, svc->own_id);
	Pb__Reply reply = PB__REPLY__INIT;
	Pb__HelloReply hello = PB__HELLO_REPLY__INIT;

	if (ash_failed(&err)) {
		svc_reply_error(s, id, &err);
		return;
	}
	s->role = role_of(r->role);
	if (r->uuid.len == 16)
		memcpy(s->uuid, r->uuid.data, 16);
	if (r->session.len == 16)
		memcpy(s->process, r->session.data, 16);
	snprintf(s->name, sizeof(s->name), "%s", r->name);
	hello.version = PROTOCOL_VERSION;
	if (svc->st->system)
		hello.system = svc->st->system->uuid;
	hello.leader = svc_serves(svc);
	hello.leader_address = svc->leader && svc->tie_breaker ? (char *)"" : svc->leader_address;
	hello.mdm_name = self ? self->name : (char *)"";
	hello.state = (char *)(svc->leader	  ? "leader"
			       : svc->tie_breaker ? "tie-breaker"
						  : "follower");
	reply.r_case = PB__REPLY__R_HELLO;
	reply.hello = &hello;
	svc_reply(s, id, &reply);
}

/* ---------------------------------------------------------------- registration */

static bool is_registered(struct mdm_session *s, uint64_t id)
{
	struct ash_error err;

	if (s->role == SVC_SDS && s->sds && mdm_sds(s->svc->st, s->sds))
		return true;
	/* STALE: a session that is not (or no more) registered, which says nothing of its devices.
	 */
	err = ash_error_make(ASH_E_STALE, "register as an SDS first");
	svc_reply_error(s, id, &err);
	return false;
}

static void refused_opening(struct mdm_service *svc, void *arg, int result,
			    const struct mdm_result *res)
{
	if (!result && ash_failed(&res->err))
		svc_trace(svc, ASH_LOG_WARN, "event=opening_refused why=\"%s\"", res->err.message);
}

static void fill_opened(struct mdm_session *s, const Pb__FoundDevice *f, Pb__CmdDeviceOpened *c)
{
	c->device = f->device;
	c->uuid = f->uuid;
	c->incarnation = f->incarnation;
	c->nonce = f->nonce;
	c->boot_id = f->boot_id;
	c->capacity = f->capacity;
	c->size = f->size;
	c->write_back = f->write_back;
	c->reactor = f->reactor;
	c->sds = s->sds;
	c->session.data = s->process;
	c->session.len = 16;
	c->label_map_version = f->map_version;
	c->path = f->path;
	c->prev_incarnation = f->prev_incarnation;
	c->prev_nonce = f->prev_nonce;
}

/* Devices that are open already when the SDS registers. */
static void found_open(struct mdm_session *s, const Pb__FoundDevice *f)
{
	struct mdm_service *svc = s->svc;
	const Pb__Device *dev = f->device ? mdm_device(svc->st, f->device)
					  : mdm_find_device_uuid(svc->st, &f->uuid);
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdDeviceOpened c = PB__CMD_DEVICE_OPENED__INIT;

	if (!f->open || !dev ||
	    (dev->state == PB__DEVICE_STATE__DEVICE_UP && dev->incarnation == f->incarnation &&
	     mdm_bytes_equal(&dev->nonce, &f->nonce)))
		return;
	fill_opened(s, f, &c);
	c.device = dev->id;
	cmd.c_case = PB__COMMAND__C_DEVICE_OPENED;
	cmd.device_opened = &c;
	svc_propose(svc, &cmd, refused_opening, NULL);
}

static void register_over(struct mdm_session *s, uint64_t id, const Pb__SdsRegister *r,
			  uint64_t sds)
{
	struct mdm_service *svc = s->svc;
	struct svc_sds *known = svc_sds(svc, sds);
	Pb__Reply reply = PB__REPLY__INIT;

	s->sds = sds;
	memcpy(s->process, r->session.data, 16);
	known->heard_ns = svc_now(svc);
	known->heard = true;
	known->version = 0;
	known->failing = false;
	reply.r_case = PB__REPLY__R_MAP;
	reply.map = mdm_map_for(svc->st, MDM_FOR_SDS, sds, r->map_version);
	svc_reply(s, id, &reply);
	svc_follow(s, reply.map->version);
	pb__map__free_unpacked(reply.map, NULL);
	for (size_t i = 0; i < r->n_devices; i++)
		found_open(s, r->devices[i]);
}

static void on_registered(struct mdm_service *svc, void *arg, int result,
			  const struct mdm_result *res)
{
	struct svc_call *call = arg;
	struct ash_error err;

	/* Also if nobody hears the answer: it is up from here on. */
	if (!result && !ash_failed(&res->err)) {
		svc_sds(svc, res->id)->heard_ns = svc_now(svc);
		svc_sds(svc, res->id)->heard = true;
	}
	if (!svc_call_back(call))
		return;
	err = svc_outcome(svc, result, res);
	if (!ash_failed(&err) && call->session) {
		register_over(call->session, call->id, call->reg, res->id);
		call->session = NULL; /* has its answer */
	}
	svc_call_error(call, &err);
}

static void fill_register(const Pb__SdsRegister *r, Pb__CmdSdsRegister *c, Pb__Command *cmd)
{
	c->uuid = r->uuid;
	c->session = r->session;
	c->n_endpoints = r->n_endpoints;
	c->endpoints = r->endpoints;
	cmd->c_case = PB__COMMAND__C_SDS_REGISTER;
	cmd->sds_register = c;
}

static void propose_register(struct svc_call *call)
{
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdSdsRegister c = PB__CMD_SDS_REGISTER__INIT;

	if (!call->session) {
		/* It hung up while it waited, and may be a process that is no more. */
		struct ash_error ok = ash_error_ok();

		svc_call_error(call, &ok);
		return;
	}
	call->poll = NULL;
	call->give_up = NULL;
	fill_register(call->reg, &c, &cmd);
	svc_call_propose(call, &cmd, on_registered);
}

/*
 * An SDS that was restarted leaves its in-sync sets when it registers. If others died with it (a
 * power cut), they would be made the only holders of what both have, and their disks may never
 * come back. So while another is silent it is found out first whether that one is dead too: then
 * they fail in one step.
 */
static bool must_wait(struct mdm_service *svc, const Pb__SdsRegister *r)
{
	const Pb__Sds *self = mdm_find_sds_uuid(svc->st, &r->uuid);

	if (!self || !self->up || mdm_bytes_equal(&self->session, &r->session))
		return false;
	MDM_EACH(svc->st, PB__KIND__KIND_SDS, Pb__Sds, sds) {
		const struct svc_sds *known = svc_sds(svc, sds->id);

		if (sds != self && sds->up &&
		    (!known->heard || svc_now(svc) - known->heard_ns >= SILENT_MS * SVC_MS))
			return true;
	}
	return false;
}

static void poll_register(struct svc_call *call)
{
	if (!must_wait(call->svc, call->reg))
		propose_register(call);
}

void svc_sds_register(struct mdm_session *s, uint64_t id, const Pb__SdsRegister *r)
{
	struct mdm_service *svc = s->svc;
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdSdsRegister c = PB__CMD_SDS_REGISTER__INIT;
	struct svc_call *call;
	struct ash_error err;
	uint64_t sds;

	fill_register(r, &c, &cmd);
	s->role = SVC_SDS;
	err = mdm_check(svc->st, &cmd);
	if (ash_failed(&err)) {
		svc_reply_error(s, id, &err);
		return;
	}
	if (mdm_sds_is_registered(svc->st, &c, &sds)) {
		register_over(s, id, r, sds);
		return;
	}
	call = svc_call_new(s, id);
	call->reg = mdm_pb_clone(r);
	call->deadline_ns = svc_now(svc) + REGISTER_WAIT_MS * SVC_MS;
	call->poll = poll_register;
	call->give_up = propose_register;
	poll_register(call);
}

/* ---------------------------------------------------------------- heartbeats */

static void take_nodes(struct svc_dev *dev, const Pb__DeviceStats *from)
{
	/* The slow report has all nodes; without any a device in use sent the short one. */
	if (!from->n_nodes && from->used)
		return;
	free(dev->nodes);
	free(dev->extents);
	dev->node_count = from->n_nodes;
	dev->nodes = ash_xcalloc(from->n_nodes, sizeof(*dev->nodes));
	dev->extents = ash_xcalloc(from->n_nodes, sizeof(*dev->extents));
	for (size_t i = 0; i < from->n_nodes; i++) {
		dev->nodes[i] = from->nodes[i]->node;
		dev->extents[i] = from->nodes[i]->extents;
	}
}

static void take_stats(struct mdm_service *svc, const Pb__Heartbeat *r, uint64_t sds)
{
	struct svc_sds *known = svc_sds(svc, sds);

	for (size_t i = 0; i < r->n_devices; i++) {
		const Pb__DeviceStats *from = r->devices[i];
		const Pb__Device *dev = mdm_device(svc->st, from->device);
		struct svc_dev *d;

		if (!dev || dev->sds != sds)
			continue;
		d = svc_dev(svc, dev->id);
		take_nodes(d, from);
		d->reported = true;
		d->stats = *from;
		d->stats.n_nodes = 0;
		d->stats.nodes = NULL;
	}
	for (size_t i = 0; i < known->resyncs; i++)
		mdm_pb_free(known->resync[i]);
	known->resyncs = r->n_resync < MDM_PG_MAX ? r->n_resync : MDM_PG_MAX;
	known->resync = ash_xrealloc(known->resync, (known->resyncs + 1) * sizeof(*known->resync));
	for (size_t i = 0; i < known->resyncs; i++)
		known->resync[i] = mdm_pb_clone(r->resync[i]);
	known->worst_turn_ms = r->worst_turn_ms;
}

/* Answered at once, whatever waits for the log. */
void svc_heartbeat(struct mdm_session *s, uint64_t id, const Pb__Heartbeat *r)
{
	struct mdm_service *svc = s->svc;
	const Pb__Sds *sds = mdm_sds(svc->st, r->sds ? r->sds : s->sds);
	Pb__Reply reply = PB__REPLY__INIT;
	Pb__HeartbeatReply hb = PB__HEARTBEAT_REPLY__INIT;

	hb.map_version = svc->st->version;
	/* A process that was replaced, or declared failed, has to register again. */
	hb.registered = sds && sds->up && mdm_bytes_equal(&sds->session, &r->session);
	reply.r_case = PB__REPLY__R_HEARTBEAT;
	reply.heartbeat = &hb;
	svc_reply(s, id, &reply);
	if (!hb.registered)
		return;
	svc_sds(svc, sds->id)->heard_ns = svc_now(svc);
	svc_sds(svc, sds->id)->heard = true;
	svc_sds(svc, sds->id)->version = r->map_version;
	take_stats(svc, r, sds->id);
	svc_calls_poll(svc, svc_now(svc));
}

/* ---------------------------------------------------------------- devices */

static void answer_plain(struct mdm_service *svc, void *arg, int result,
			 const struct mdm_result *res)
{
	struct svc_call *call = arg;
	struct ash_error err;

	if (!svc_call_back(call))
		return;
	err = svc_outcome(svc, result, res);
	svc_call_error(call, &err); /* code 0 is an answer too */
}

static void check_and_propose(struct mdm_session *s, uint64_t id, Pb__Command *cmd)
{
	struct ash_error err = mdm_check(s->svc->st, cmd);

	if (ash_failed(&err))
		svc_reply_error(s, id, &err);
	else
		svc_call_propose(svc_call_new(s, id), cmd, answer_plain);
}

void svc_device_opened(struct mdm_session *s, uint64_t id, const Pb__DeviceOpened *r)
{
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdDeviceOpened c = PB__CMD_DEVICE_OPENED__INIT;

	if (!is_registered(s, id))
		return;
	if (r->device)
		fill_opened(s, r->device, &c);
	cmd.c_case = PB__COMMAND__C_DEVICE_OPENED;
	cmd.device_opened = &c;
	check_and_propose(s, id, &cmd);
}

void svc_device_failed(struct mdm_session *s, uint64_t id, const Pb__DeviceFailed *r)
{
	const Pb__Device *dev = mdm_device(s->svc->st, r->device);
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdDeviceFailed c = PB__CMD_DEVICE_FAILED__INIT;
	struct ash_error err;

	if (!is_registered(s, id))
		return;
	if (dev && dev->sds != s->sds) {
		err = ash_error_make(ASH_E_DENIED, "device \"%s\" belongs to another SDS",
				     dev->name);
		svc_reply_error(s, id, &err);
		return;
	}
	c.device = r->device;
	c.incarnation = r->incarnation;
	c.reason = r->reason;
	cmd.c_case = PB__COMMAND__C_DEVICE_FAILED;
	cmd.device_failed = &c;
	check_and_propose(s, id, &cmd);
}

/* ---------------------------------------------------------------- placement groups */

static const char *may_report(struct mdm_session *s, const Pb__PgChange *c)
{
	const struct mdm_rows *rows = mdm_rows(s->svc->st, c->pool);
	const struct mdm_row *row;
	const Pb__Device *dev;
	bool member = false, primary = false, own;

	if (c->action != PB__PG_ACTION__PG_DROP && c->action != PB__PG_ACTION__PG_JOIN &&
	    c->action != PB__PG_ACTION__PG_BUMP && c->action != PB__PG_ACTION__PG_HANDED)
		return "an SDS does not decide this";
	if (!rows || c->pg >= rows->pg_count)
		return NULL; /* apply says it */
	row = &rows->row[c->pg];
	for (unsigned i = 0; i < row->replicas; i++) {
		dev = mdm_device(s->svc->st, row->replica[i].device);
		if (dev->sds == s->sds) {
			member = true;
			primary |= row->primary == i + 1;
		}
	}
	dev = mdm_device(s->svc->st, c->device);
	own = dev && dev->sds == s->sds;
	if (c->action == PB__PG_ACTION__PG_DROP)
		return primary || (member && own) ? NULL
						  : "only the primary may accuse another copy";
	if (c->action == PB__PG_ACTION__PG_BUMP)
		return member ? NULL : "only a member may raise the generation";
	return primary ? NULL : "only the primary may say so";
}

static void answer_pgs(struct svc_call *call)
{
	Pb__Reply reply = PB__REPLY__INIT;
	Pb__PgReportReply pg = PB__PG_REPORT_REPLY__INIT;

	pg.n_answers = call->answers_count;
	pg.answers = call->answers;
	reply.r_case = PB__REPLY__R_PG_REPORT;
	reply.pg_report = &pg;
	svc_call_reply(call, &reply);
}

/* Copies that were dropped stay out for a while, once per report and device. */
static void note_accusations(struct mdm_service *svc, const struct svc_call *call,
			     const struct mdm_result *res)
{
	const Pb__CmdPgBatch *batch = call->cmd->pg_batch;
	uint64_t last = 0;

	for (size_t i = 0; i < batch->n_changes; i++) {
		const Pb__PgChange *c = batch->changes[i];

		if (c->action != PB__PG_ACTION__PG_DROP || !res->answers[i]->applied ||
		    c->device == last)
			continue;
		last = c->device;
		ctl_accused(svc, c->device);
	}
}

static void on_pgs(struct mdm_service *svc, void *arg, int result, const struct mdm_result *res)
{
	struct svc_call *call = arg;
	struct ash_error err;
	size_t next = 0;

	if (!svc_call_back(call))
		return;
	err = svc_outcome(svc, result, res);
	if (ash_failed(&err)) {
		svc_call_error(call, &err);
		return;
	}
	note_accusations(svc, call, res);
	/* Those refused here have an answer already; the rest are in order. */
	for (size_t i = 0; i < call->answers_count && next < res->answers_count; i++)
		if (!call->answers[i])
			call->answers[i] = mdm_pb_clone(res->answers[next++]);
	answer_pgs(call);
}

static Pb__PgAnswer *refuse_change(const struct mdm_state *st, const Pb__PgChange *c,
				   const char *why)
{
	const struct mdm_rows *rows = mdm_rows(st, c->pool);
	Pb__PgAnswer *a = ash_xcalloc(1, sizeof(*a));

	pb__pg_answer__init(a);
	a->action = c->action;
	mdm_set_string(&a->why, why);
	if (rows && c->pg < rows->pg_count)
		a->row = mdm_row_pb(rows, c->pg);
	return a;
}

void svc_pg_report(struct mdm_session *s, uint64_t id, const Pb__PgReport *r)
{
	struct mdm_service *svc = s->svc;
	struct svc_call *call;
	struct ash_error err;
	Pb__CmdPgBatch *batch;

	if (!is_registered(s, id))
		return;
	if (r->n_changes > MDM_PG_MAX) {
		err = ash_error_make(ASH_E_INVALID, "%zu changes in one report; %d are the limit",
				     r->n_changes, MDM_PG_MAX);
		svc_reply_error(s, id, &err);
		return;
	}
	call = svc_call_new(s, id);
	call->answers_count = r->n_changes;
	call->answers = ash_xcalloc(r->n_changes, sizeof(*call->answers));
	call->cmd = ash_xcalloc(1, sizeof(*call->cmd));
	pb__command__init(call->cmd);
	call->cmd->c_case = PB__COMMAND__C_PG_BATCH;
	call->cmd->pg_batch = batch = ash_xcalloc(1, sizeof(*batch));
	pb__cmd_pg_batch__init(batch);
	batch->changes = ash_xcalloc(r->n_changes, sizeof(*batch->changes));
	for (size_t i = 0; i < r->n_changes; i++) {
		const char *why = may_report(s, r->changes[i]);

		if (why)
			call->answers[i] = refuse_change(svc->st, r->changes[i], why);
		else
			batch->changes[batch->n_changes++] = mdm_pb_clone(r->changes[i]);
	}
	if (batch->n_changes)
		svc_call_propose(call, call->cmd, on_pgs);
	else
		answer_pgs(call);
}

/* ---------------------------------------------------------------- fences and tombstones */

static void on_confirmed(struct mdm_service *svc, void *arg, int result,
			 const struct mdm_result *res)
{
	struct svc_call *call = arg;
	struct ash_error err;

	if (!svc_call_back(call))
		return;
	err = svc_outcome(svc, result, res);
	if (err.code == ASH_E_STALE)
		err = ash_error_ok(); /* over already */
	if (ash_failed(&err) || !call->flying)
		svc_call_error(call, &err);
}

void svc_confirm(struct mdm_session *s, uint64_t id, const Pb__Confirm *r)
{
	struct svc_call *call;
	struct ash_error ok = ash_error_ok();

	if (!is_registered(s, id))
		return;
	call = svc_call_new(s, id);
	call->flying++; /* not answered before all are proposed */
	if (r->fence && mdm_fence(s->svc->st, r->fence)) {
		Pb__Command cmd = PB__COMMAND__INIT;
		Pb__CmdFenceDone c = PB__CMD_FENCE_DONE__INIT;

		c.fence = r->fence;
		c.sds = s->sds;
		cmd.c_case = PB__COMMAND__C_FENCE_DONE;
		cmd.fence_done = &c;
		svc_call_propose(call, &cmd, on_confirmed);
	}
	for (size_t i = 0; i < r->n_devices; i++) {
		const Pb__Device *dev = mdm_device(s->svc->st, r->devices[i]);
		Pb__Command cmd = PB__COMMAND__INIT;
		Pb__CmdTombstoneDone c = PB__CMD_TOMBSTONE_DONE__INIT;

		if (!dev || dev->sds != s->sds || !mdm_tombstone(s->svc->st, r->node))
			continue;
		c.node = r->node;
		c.device = dev->id;
		cmd.c_case = PB__COMMAND__C_TOMBSTONE_DONE;
		cmd.tombstone_done = &c;
		svc_call_propose(call, &cmd, on_confirmed);
	}
	if (svc_call_back(call) && !call->flying)
		svc_call_error(call, &ok);
}
