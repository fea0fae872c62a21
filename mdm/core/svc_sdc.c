/* SPDX-License-Identifier: MIT */
/* Requests of data clients, and maps for whoever asks. */
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/base/uuid.h"
#include "mdm/core/service_int.h"

/* ---------------------------------------------------------------- registration */

void svc_sdc_register(struct mdm_session *s, uint64_t id, const Pb__SdcRegister *r)
{
	struct mdm_service *svc = s->svc;
	const Pb__Sdc *sdc = mdm_find_sdc_guid(svc->st, &r->guid);
	Pb__Reply reply = PB__REPLY__INIT;
	Pb__SdcRegisterReply body = PB__SDC_REGISTER_REPLY__INIT;
	struct ash_error err;

	s->role = SVC_SDC;
	if (!sdc) {
		char guid[ASH_UUID_TEXT] = "GUID";

		if (r->guid.len == 16)
			ash_uuid_format(r->guid.data, guid);
		err = ash_error_make(
			ASH_E_NOT_FOUND,
			"SDC %s is not known; run `ashlar sdc add --name %s --guid %s`", guid,
			*r->name ? r->name : "NAME", guid);
		svc_reply_error(s, id, &err);
		return;
	}
	s->sdc = sdc->id;
	body.sdc = sdc->id;
	reply.r_case = PB__REPLY__R_SDC_REGISTER;
	reply.sdc_register = &body;
	svc_reply(s, id, &reply);
	/* What it has may be newer than this member; then there is nothing to push for a while. */
	svc_follow(s, r->map_version);
}

/* ---------------------------------------------------------------- maps */

static const Pb__Sdc *sdc_of(const struct mdm_session *s)
{
	ProtobufCBinaryData guid = {.len = 16, .data = (uint8_t *)s->uuid};

	return s->sdc ? mdm_sdc(s->svc->st, s->sdc) : mdm_find_sdc_guid(s->svc->st, &guid);
}

static const Pb__Sds *sds_of(const struct mdm_session *s)
{
	ProtobufCBinaryData uuid = {.len = 16, .data = (uint8_t *)s->uuid};

	return s->sds ? mdm_sds(s->svc->st, s->sds) : mdm_find_sds_uuid(s->svc->st, &uuid);
}

void svc_get_map(struct mdm_session *s, uint64_t id, const Pb__GetMap *r)
{
	const struct mdm_state *st = s->svc->st;
	Pb__Reply reply = PB__REPLY__INIT;
	struct ash_error err;

	if (s->role == SVC_SDS && sds_of(s))
		reply.map = mdm_map_for(st, MDM_FOR_SDS, sds_of(s)->id, r->have_version);
	else if (s->role == SVC_SDC && sdc_of(s))
		reply.map = mdm_map_for(st, MDM_FOR_SDC, sdc_of(s)->id, r->have_version);
	else if (s->role == SVC_CLI)
		reply.map = mdm_map_for(st, MDM_FOR_ADMIN, 0, r->have_version);
	if (!reply.map) {
		err = ash_error_make(ASH_E_DENIED, "there is no map for you here: you are not part "
						   "of this system, as far as this MDM knows");
		svc_reply_error(s, id, &err);
		return;
	}
	reply.r_case = PB__REPLY__R_MAP;
	svc_reply(s, id, &reply);
	pb__map__free_unpacked(reply.map, NULL);
}

/* ---------------------------------------------------------------- open */

static const Pb__Volume *volume_named(struct mdm_service *svc, const Pb__OpenVolume *r)
{
	if (r->volume_id)
		return mdm_volume(svc->st, r->volume_id);
	return *r->volume ? mdm_find_name(svc->st, PB__KIND__KIND_VOLUME, r->volume, 0, NULL)
			  : NULL;
}

static bool knows(const struct svc_call *call, uint64_t id)
{
	const Pb__Sds *sds = mdm_sds(call->svc->st, id);

	return !sds || !sds->up || svc_sds(call->svc, id)->version >= call->epoch;
}

/* Every SDS that serves the volume knows the new epoch, so that no older open is served. What one
 * knows it does not forget, so those asked before need not be asked again. */
static bool all_know(struct svc_call *call)
{
	while (call->waited < call->wait_count && knows(call, call->wait_sds[call->waited]))
		call->waited++;
	return call->waited == call->wait_count;
}

static void answer_open(struct svc_call *call)
{
	struct mdm_service *svc = call->svc;
	const Pb__Volume *vol = mdm_volume(svc->st, call->volume);
	const Pb__Mapping *m =
		call->session ? mdm_find_mapping(svc->st, call->volume, call->session->sdc) : NULL;
	Pb__Reply reply = PB__REPLY__INIT;
	Pb__OpenVolumeReply body = PB__OPEN_VOLUME_REPLY__INIT;
	struct ash_error err;

	if (!vol || !m) {
		err = ash_error_make(ASH_E_NOT_FOUND,
				     "the volume was unmapped or removed while it was opened");
		svc_call_error(call, &err);
		return;
	}
	body.volume = vol->id;
	body.node = vol->node;
	body.size = vol->size;
	body.epoch = call->epoch;
	body.read_only = call->read_only || m->read_only;
	reply.r_case = PB__REPLY__R_OPEN_VOLUME;
	reply.open_volume = &body;
	svc_call_reply(call, &reply);
}

static void poll_open(struct svc_call *call)
{
	if (all_know(call))
		answer_open(call);
}

static void wait_for_servers(struct svc_call *call)
{
	const struct mdm_state *st = call->svc->st;
	const Pb__Volume *vol = mdm_volume(st, call->volume);

	call->wait_sds =
		ash_xcalloc(st->table[PB__KIND__KIND_DEVICE].count + 1, sizeof(*call->wait_sds));
	MDM_EACH(st, PB__KIND__KIND_DEVICE, Pb__Device, dev)
		if (vol && dev->pool == vol->pool && dev->incarnation &&
		    (!call->wait_count || call->wait_sds[call->wait_count - 1] != dev->sds))
			call->wait_sds[call->wait_count++] = dev->sds;
	call->deadline_ns = svc_now(call->svc) + SVC_OPEN_MS * SVC_MS;
	call->poll = poll_open;
	call->give_up = answer_open;
	poll_open(call);
}

static void on_opened(struct mdm_service *svc, void *arg, int result, const struct mdm_result *res)
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
	call->epoch = res->epoch;
	wait_for_servers(call);
}

void svc_open_volume(struct mdm_session *s, uint64_t id, const Pb__OpenVolume *r)
{
	struct mdm_service *svc = s->svc;
	const Pb__Volume *vol = volume_named(svc, r);
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdOpen c = PB__CMD_OPEN__INIT;
	struct ash_error err = ash_error_ok();
	struct svc_call *call;

	if (s->role != SVC_SDC || !s->sdc || (r->sdc && r->sdc != s->sdc))
		err = ash_error_make(ASH_E_STALE, "register as that SDC first");
	else if (!vol)
		err = ash_error_make(ASH_E_NOT_FOUND, "there is no volume \"%s\"", r->volume);
	c.volume = vol ? vol->id : 0;
	c.sdc = s->sdc;
	cmd.c_case = PB__COMMAND__C_OPEN;
	cmd.open = &c;
	if (!ash_failed(&err))
		err = mdm_check(svc->st, &cmd);
	if (ash_failed(&err)) {
		svc_reply_error(s, id, &err);
		return;
	}
	call = svc_call_new(s, id);
	call->volume = vol->id;
	call->read_only = r->read_only;
	svc_call_propose(call, &cmd, on_opened);
}
