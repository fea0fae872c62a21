// SPDX-License-Identifier: MIT
/* The talk with the MDM: registration, the map, opening volumes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/log.h"
#include "sdc/core/sdc_int.h"

#define CALL_MS 5000u
#define RETRY_MS 300u
#define MAP_GAP_MS 200u /* between two questions for the map */

/* ------------------------------------------------------------ the map */

static void openings_advance(struct sdc *sdc);

static void map_changed(struct sdc *sdc)
{
	ash_list_each_safe(l, &sdc->vols) {
		sdc_vol_refresh(ash_container_of(l, struct sdc_vol, link));
	}
	sdc->rows_moved = true;
	openings_advance(sdc);
	sdc_kick(sdc);
}

static void take_map(struct sdc *sdc, const Pb__Map *map)
{
	int err;

	if (!map)
		return;
	err = ash_map_apply(sdc->map, map, NULL);
	if (err) {
		sdc_trace(sdc, err == -ESTALE ? ASH_LOG_INFO : ASH_LOG_ERROR,
			  "event=map_refused version=%llu base=%llu have=%llu error=%d",
			  (unsigned long long)map->version, (unsigned long long)map->base_version,
			  (unsigned long long)ash_map_version(sdc->map), err);
		sdc_want_map(sdc);
		return;
	}
	map_changed(sdc);
}

void sdc_apply_row(struct sdc *sdc, const struct ash_wire_row *row, int *ret_taken)
{
	*ret_taken = ash_map_apply_row(sdc->map, row, NULL);
	if (*ret_taken > 0)
		sdc->rows_moved = true;
	else if (*ret_taken < 0)
		sdc_want_map(sdc);
}

static void map_answer(void *arg, int result, const Pb__Reply *reply)
{
	struct sdc *sdc = arg;

	sdc->map_asked = false;
	if (result == 0 && reply && !(reply->error && reply->error->code) &&
	    reply->r_case == PB__REPLY__R_MAP)
		take_map(sdc, reply->map);
}

void sdc_want_map(struct sdc *sdc)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__GetMap get = PB__GET_MAP__INIT;
	uint64_t now = sdc_now(sdc), next = sdc->map_asked_ns + MAP_GAP_MS * MS;

	if (sdc->map_asked || !sdc->session_up || !sdc->id || sdc->stopping)
		return; /* a new session brings the map by itself */
	if (sdc->map_asked_ns && now < next) {
		if (!ash_timer_is_set(&sdc->map_timer))
			ash_timer_set(sdc->port->timers, &sdc->map_timer, next);
		return;
	}
	sdc->map_asked = true;
	sdc->map_asked_ns = now;
	get.have_version = ash_map_version(sdc->map);
	req.r_case = PB__REQUEST__R_GET_MAP;
	req.get_map = &get;
	sdc->ctl->ops->call(sdc->ctl, &req, CALL_MS, map_answer, sdc);
}

void sdc_map_tick(struct ash_timer *timer)
{
	sdc_want_map(ash_container_of(timer, struct sdc, map_timer));
}

static void on_push(void *owner, const Pb__Push *push)
{
	struct sdc *sdc = owner;

	if (push->p_case == PB__PUSH__P_MAP && !sdc->stopping)
		take_map(sdc, push->map);
}

/* ------------------------------------------------------------ registration */

static void openings_refused(struct sdc *sdc);

/* Answers that another try would not change. */
static bool definite(int code)
{
	return code != ASH_E_NOT_LEADER && code != ASH_E_UNREACHABLE && code != ASH_E_INTERNAL &&
	       code != ASH_E_STALE;
}

static void registered(void *arg, int result, const Pb__Reply *reply)
{
	struct sdc *sdc = arg;
	const Pb__Error *err = reply ? reply->error : NULL;

	sdc->registering = false;
	if (sdc->stopping)
		return;
	if (result == 0 && err && err->code) {
		snprintf(sdc->refusal, sizeof(sdc->refusal), "%s", err->message);
		sdc_trace(sdc, ASH_LOG_WARN, "event=register_refused why=\"%s\"", err->message);
		if (definite(err->code))
			openings_refused(sdc);
	} else if (result == 0 && reply->r_case == PB__REPLY__R_SDC_REGISTER) {
		sdc->id = reply->sdc_register->sdc;
		sdc->refusal[0] = '\0';
		sdc_trace(sdc, ASH_LOG_INFO, "event=registered sdc=%llu",
			  (unsigned long long)sdc->id);
		/* Some MDMs send the map with the answer, others push it. */
		openings_advance(sdc);
		return;
	}
	ash_timer_set(sdc->port->timers, &sdc->register_timer,
		      sdc_now(sdc) + sdc_jitter(sdc, RETRY_MS * MS));
}

static void do_register(struct sdc *sdc)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__SdcRegister reg = PB__SDC_REGISTER__INIT;
	uint8_t session[16];

	if (sdc->registering || !sdc->session_up || sdc->stopping)
		return;
	sdc->registering = true;
	memcpy(session, &sdc->cfg.session, 8);
	memcpy(session + 8, &sdc->cfg.session, 8);
	reg.guid.data = sdc->cfg.guid;
	reg.guid.len = 16;
	reg.name = sdc->cfg.name;
	reg.session.data = session;
	reg.session.len = 16;
	reg.map_version = ash_map_version(sdc->map);
	reg.all_rows = true;
	req.r_case = PB__REQUEST__R_SDC_REGISTER;
	req.sdc_register = &reg;
	sdc->ctl->ops->call(sdc->ctl, &req, CALL_MS, registered, sdc);
}

void sdc_register_tick(struct ash_timer *timer)
{
	do_register(ash_container_of(timer, struct sdc, register_timer));
}

static void on_session(void *owner, bool up)
{
	struct sdc *sdc = owner;

	sdc->session_up = up;
	sdc->map_asked = sdc->map_asked && up;
	if (up)
		do_register(sdc);
}

const struct ash_ctl_events sdc_ctl_events = {.on_session = on_session, .on_push = on_push};

/* ------------------------------------------------------------ opening */

struct sdc_opening {
	struct sdc_opening *next;
	struct sdc *sdc;
	char volume[64];
	bool read_only, calling, answered, over;
	uint32_t timeout_ms;
	uint64_t deadline_ns;
	struct ash_timer timer;
	uint64_t volume_id, node, size, epoch;
	bool answer_read_only;
	char why[256];
	void (*done)(void *arg, int result, struct sdc_vol *vol, const char *message);
	void *arg;
};

static void opening_free(struct sdc_opening *o)
{
	struct sdc_opening **at;

	for (at = &o->sdc->openings; *at != o; at = &(*at)->next)
		;
	*at = o->next;
	ash_timer_cancel(o->sdc->port->timers, &o->timer);
	free(o);
}

static void opening_end(struct sdc_opening *o, int result, struct sdc_vol *vol, const char *message)
{
	void (*done)(void *, int, struct sdc_vol *, const char *) = o->done;
	void *arg = o->arg;
	char text[512];

	snprintf(text, sizeof(text), "%s", message ? message : "");
	/* The answer to a call may still come; it must find its memory. */
	o->over = true;
	ash_timer_cancel(o->sdc->port->timers, &o->timer);
	if (!o->calling)
		opening_free(o);
	done(arg, result, vol, text[0] ? text : NULL);
}

static int open_errno(int code)
{
	switch (code) {
	case ASH_E_NOT_FOUND:
		return -ENOENT;
	case ASH_E_DENIED:
		return -EACCES;
	case ASH_E_INVALID:
	case ASH_E_USAGE:
		return -EINVAL;
	default:
		return -EBUSY;
	}
}

static void opening_call(struct sdc_opening *o);

static void opening_later(struct sdc_opening *o)
{
	uint64_t at = sdc_now(o->sdc) + sdc_jitter(o->sdc, RETRY_MS * MS);

	ash_timer_set(o->sdc->port->timers, &o->timer, at < o->deadline_ns ? at : o->deadline_ns);
}

/* The volume can be used once the map at hand knows where it lies. */
static void opening_try_end(struct sdc_opening *o)
{
	struct sdc *sdc = o->sdc;
	const struct ash_map_volume *v = ash_map_volume(sdc->map, o->volume_id);
	struct sdc_vol *vol;

	if (!v || !ash_map_pool(sdc->map, v->pool)) {
		snprintf(o->why, sizeof(o->why), "the map of volume \"%s\" has not arrived",
			 o->volume);
		sdc_want_map(sdc);
		return;
	}
	vol = sdc_vol_new(sdc, v->name);
	if (!vol) {
		opening_end(o, -ENOMEM, NULL, "out of memory");
		return;
	}
	vol->volume = o->volume_id;
	vol->node = o->node;
	vol->size = o->size;
	vol->epoch = o->epoch;
	vol->asked_read_only = o->read_only || o->answer_read_only;
	sdc_vol_refresh(vol);
	vol->changed = false;
	sdc_trace(sdc, ASH_LOG_NOTICE, "event=open volume=%s size=%llu epoch=%llu read_only=%d",
		  vol->name, (unsigned long long)vol->size, (unsigned long long)vol->epoch,
		  vol->read_only);
	opening_end(o, 0, vol, NULL);
}

static void opening_answer(void *arg, int result, const Pb__Reply *reply)
{
	struct sdc_opening *o = arg;
	const Pb__Error *err = reply ? reply->error : NULL;

	o->calling = false;
	if (o->over) {
		opening_free(o);
		return;
	}
	if (result == 0 && err && err->code) {
		snprintf(o->why, sizeof(o->why), "%s", err->message);
		if (definite(err->code))
			opening_end(o, open_errno(err->code), NULL, o->why);
		else
			opening_later(o);
		return;
	}
	if (result || reply->r_case != PB__REPLY__R_OPEN_VOLUME) {
		opening_later(o);
		return;
	}
	o->answered = true;
	o->volume_id = reply->open_volume->volume;
	o->node = reply->open_volume->node;
	o->size = reply->open_volume->size;
	o->epoch = reply->open_volume->epoch;
	o->answer_read_only = reply->open_volume->read_only;
	opening_later(o);
	opening_try_end(o);
}

static void call_open(struct sdc *sdc, const char *name, uint64_t id, bool read_only,
		      uint32_t timeout_ms,
		      void (*done)(void *arg, int result, const Pb__Reply *reply), void *arg)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__OpenVolume open = PB__OPEN_VOLUME__INIT;

	if (name)
		open.volume = (char *)name;
	open.volume_id = id;
	open.sdc = sdc->id;
	open.read_only = read_only;
	req.r_case = PB__REQUEST__R_OPEN_VOLUME;
	req.open_volume = &open;
	sdc->ctl->ops->call(sdc->ctl, &req, timeout_ms, done, arg);
}

static void opening_call(struct sdc_opening *o)
{
	uint64_t now = sdc_now(o->sdc);
	uint64_t left = o->deadline_ns > now ? (o->deadline_ns - now) / MS : 0;

	if (o->calling || o->over)
		return;
	o->calling = true;
	call_open(o->sdc, o->volume, 0, o->read_only, left < 1 ? 1 : (uint32_t)left, opening_answer,
		  o);
}

static void opening_advance(struct sdc_opening *o)
{
	if (o->over || o->calling || !o->sdc->id)
		return;
	if (o->answered)
		opening_try_end(o);
	else
		opening_call(o);
}

static void openings_advance(struct sdc *sdc)
{
	struct sdc_opening *o, *next;

	for (o = sdc->openings; o; o = next) {
		next = o->next;
		opening_advance(o);
	}
}

static void openings_refused(struct sdc *sdc)
{
	struct sdc_opening *o, *next;

	for (o = sdc->openings; o; o = next) {
		next = o->next;
		if (!o->over)
			opening_end(o, -EACCES, NULL, sdc->refusal);
	}
}

static void opening_tick(struct ash_timer *timer)
{
	struct sdc_opening *o = ash_container_of(timer, struct sdc_opening, timer);
	char text[600];

	if (sdc_now(o->sdc) < o->deadline_ns) {
		opening_later(o);
		opening_advance(o);
		return;
	}
	snprintf(text, sizeof(text),
		 "volume \"%s\" could not be opened within %u ms: %s; is a metadata manager "
		 "reachable (ASHLAR_MDM)?",
		 o->volume, o->timeout_ms,
		 o->why[0] ? o->why : (o->sdc->refusal[0] ? o->sdc->refusal : "no answer"));
	opening_end(o, -ETIMEDOUT, NULL, text);
}

void sdc_open(struct sdc *sdc, const char *volume, bool read_only, uint32_t timeout_ms,
	      void (*done)(void *arg, int result, struct sdc_vol *vol, const char *message),
	      void *arg)
{
	struct sdc_opening *o = calloc(1, sizeof(*o));

	if (!o)
		abort(); /* control plane: nothing sensible is left to do */
	o->sdc = sdc;
	snprintf(o->volume, sizeof(o->volume), "%s", volume);
	o->read_only = read_only;
	o->timeout_ms = timeout_ms;
	o->deadline_ns = sdc_now(sdc) + (uint64_t)timeout_ms * MS;
	o->done = done;
	o->arg = arg;
	o->timer.fn = opening_tick;
	o->next = sdc->openings;
	sdc->openings = o;
	/* Answers come from the loop, also the first. */
	ash_timer_set(sdc->port->timers, &o->timer, sdc_now(sdc));
	if (!sdc->id && !ash_timer_is_set(&sdc->register_timer))
		ash_timer_set(sdc->port->timers, &sdc->register_timer, sdc_now(sdc));
}

void sdc_openings_drop(struct sdc *sdc)
{
	while (sdc->openings)
		opening_free(sdc->openings);
}

/* ------------------------------------------------------------ used-up path numbers */

static void renew_answer(void *arg, int result, const Pb__Reply *reply)
{
	struct sdc_vol *vol = arg;
	struct sdc *sdc = vol->sdc;
	const Pb__Error *err = reply ? reply->error : NULL;

	if (result == 0 && err && err->code && definite(err->code)) {
		vol->renewing = false;
		sdc_vol_die(vol, -ESHUTDOWN, err->message);
	} else if (result == 0 && !(err && err->code) &&
		   reply->r_case == PB__REPLY__R_OPEN_VOLUME) {
		vol->epoch = reply->open_volume->epoch;
		vol->renewing = false;
	} else {
		ash_timer_set(sdc->port->timers, &vol->renew_timer,
			      sdc_now(sdc) + sdc_jitter(sdc, RETRY_MS * MS));
	}
	sdc_kick(sdc);
}

void sdc_vol_renew_tick(struct ash_timer *timer)
{
	struct sdc_vol *vol = ash_container_of(timer, struct sdc_vol, renew_timer);

	call_open(vol->sdc, NULL, vol->volume, vol->asked_read_only, CALL_MS, renew_answer, vol);
}

void sdc_renew(struct sdc *sdc)
{
	if (sdc->renewing)
		return;
	sdc->renewing = true;
	sdc_trace(sdc, ASH_LOG_NOTICE, "event=paths_used_up");
	for (struct sdc_peer *peer = sdc->peers; peer; peer = peer->next)
		if (peer->conn)
			sdc_peer_close(peer);
	ash_list_each(l, &sdc->vols) {
		struct sdc_vol *vol = ash_container_of(l, struct sdc_vol, link);

		if (vol->dead)
			continue;
		vol->renewing = true;
		sdc_vol_renew_tick(&vol->renew_timer);
	}
	sdc_kick(sdc);
}

/* Old messages are fenced by the new epochs only once every open has one, and no connection of the
 * old session may be left by then. */
void sdc_renew_check(struct sdc *sdc)
{
	struct sdc_peer *peer;

	ash_list_each(l, &sdc->vols) {
		if (ash_container_of(l, struct sdc_vol, link)->renewing)
			return;
	}
	for (peer = sdc->peers; peer; peer = peer->next)
		if (peer->conn)
			return;
	sdc->session = sdc->port->rand64(sdc->port);
	sdc->renewing = false;
	for (peer = sdc->peers; peer; peer = peer->next)
		peer->path = 0;
	for (peer = sdc->peers; peer; peer = peer->next)
		sdc_peer_kick(peer);
}
