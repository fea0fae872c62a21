// SPDX-License-Identifier: MIT
/* An open volume: what the map says of it, its end, its close. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "sdc/core/sdc_int.h"

#define LOOK_NS (5 * SEC) /* how often waiting I/O is looked at */
#define TELL_NS (10 * SEC)

struct sdc_vol *sdc_vol_new(struct sdc *sdc, const char *name)
{
	struct sdc_vol *vol = calloc(1, sizeof(*vol));

	if (!vol)
		return NULL;
	vol->sdc = sdc;
	snprintf(vol->name, sizeof(vol->name), "%s", name);
	ash_list_init(&vol->ready);
	ash_list_init(&vol->ios);
	sdc_io_init_vol(vol);
	vol->qos_timer.fn = sdc_io_qos_tick;
	vol->io_timer.fn = sdc_vol_io_tick;
	vol->renew_timer.fn = sdc_vol_renew_tick;
	ash_list_push_back(&sdc->vols, &vol->link);
	sdc->vol_count++;
	return vol;
}

void sdc_vol_free(struct sdc_vol *vol)
{
	struct ash_timers *timers = vol->sdc->port->timers;

	ash_timer_cancel(timers, &vol->qos_timer);
	ash_timer_cancel(timers, &vol->io_timer);
	ash_timer_cancel(timers, &vol->renew_timer);
	ash_list_remove(&vol->ready);
	ash_list_remove(&vol->link);
	vol->sdc->vol_count--;
	sdc_flush_done_vol(vol);
	free(vol);
}

void sdc_vol_refresh(struct sdc_vol *vol)
{
	struct sdc *sdc = vol->sdc;
	const struct ash_map_volume *v = ash_map_volume(sdc->map, vol->volume);
	const struct ash_map_mapping *m = ash_map_mapping(sdc->map, vol->node, sdc->id);
	uint64_t size = vol->size;
	bool read_only = vol->read_only;

	if (vol->dead)
		return;
	vol->pool = v ? ash_map_pool(sdc->map, v->pool) : NULL;
	if (v)
		vol->first_pg = v->first_pg;
	vol->needs_flush = !vol->pool || sdc_flush_needed(sdc, vol->pool);
	sdc_flush_resize(vol);
	/* A map from before the open says nothing about the open. */
	if (ash_map_version(sdc->map) >= vol->epoch) {
		if (!v || !m) {
			sdc_vol_die(vol, -ESHUTDOWN,
				    "the volume is not mapped to this SDC any more");
			return;
		}
		if (m->epoch > vol->epoch && !vol->renewing) {
			sdc_vol_die(vol, -ESHUTDOWN,
				    "a newer open of this SDC has taken the volume");
			return;
		}
		vol->size = v->size;
	}
	vol->read_only = vol->asked_read_only || (m && m->read_only);
	vol->shared = !m || m->shared;
	sdc_io_set_limits(vol, m ? m->iops_limit : 0, m ? m->bw_limit : 0);
	if (vol->size != size || vol->read_only != read_only)
		vol->changed = true;
}

void sdc_vol_die(struct sdc_vol *vol, int status, const char *why)
{
	struct sdc *sdc = vol->sdc;
	struct sdc_io *io;

	if (vol->dead)
		return;
	/* First of all: from here on nothing is sent for it. */
	vol->dead = -ESHUTDOWN;
	vol->changed = true;
	sdc_trace(sdc, ASH_LOG_ERROR, "event=volume_dead volume=%s epoch=%llu why=\"%s\"",
		  vol->name, (unsigned long long)vol->epoch, why);
	ash_list_remove(&vol->ready);
	while ((io = queue_pop(&vol->qos)))
		sdc_io_complete(io, status);
	while ((io = queue_pop(&vol->queue))) {
		struct io_priv *p = io_priv(io);

		p->queued = false;
		p->cursor = io->bytes;
		p->status = p->status ? p->status : status;
		if (!p->pieces)
			sdc_io_complete(io, p->status);
	}
	/* Those in flight are not continued when their pieces end. */
	ash_list_each(l, &vol->ios) {
		struct io_priv *p = ash_container_of(l, struct io_priv, all);

		p->status = p->status ? p->status : status;
	}
	sdc_flush_fail(vol, status);
	for (uint32_t i = 0; i < sdc->reqs; i++)
		if (sdc->req[i].state != REQ_FREE && sdc->req[i].vol == vol)
			sdc_req_pull(&sdc->req[i], status);
	sdc_kick(sdc);
}

/* ------------------------------------------------------------ I/O that waits */

static const char *why_waiting(const struct sdc_vol *vol, const struct sdc_io *io,
			       uint64_t *ret_sds)
{
	const struct sdc *sdc = vol->sdc;

	*ret_sds = 0;
	for (uint32_t i = 0; i < sdc->reqs; i++) {
		const struct sdc_req *r = &sdc->req[i];

		if (r->state == REQ_FREE || r->vol != vol || (r->io && r->io != io))
			continue;
		*ret_sds = r->peer ? r->peer->sds : 0;
		switch (r->state) {
		case REQ_PARKED:
			return "no copy of its data is served; see the state of the pool";
		case REQ_WAITING:
			return "the server cannot be reached";
		case REQ_SENT:
			return "the server does not answer";
		case REQ_BACKOFF:
			return "the server cannot serve it now";
		default:
			break;
		}
	}
	return "others are before it";
}

static void tell_waiting(struct sdc_vol *vol, const struct sdc_io *io, uint64_t waited_ns)
{
	uint64_t now = sdc_now(vol->sdc), sds;
	const char *why;

	if (waited_ns < LOOK_NS || (vol->told_ns && now - vol->told_ns < TELL_NS))
		return;
	vol->told_ns = now;
	why = why_waiting(vol, io, &sds);
	sdc_trace(vol->sdc, ASH_LOG_WARN,
		  "event=io_waits volume=%s for_ms=%llu kind=%u offset=%llu sds=%llu why=\"%s\"",
		  vol->name, (unsigned long long)(waited_ns / MS), io->kind,
		  (unsigned long long)io->offset, (unsigned long long)sds, why);
}

void sdc_vol_io_tick(struct ash_timer *timer)
{
	struct sdc_vol *vol = ash_container_of(timer, struct sdc_vol, io_timer);
	uint64_t timeout = vol->sdc->cfg.io_timeout_ms * MS, now = sdc_now(vol->sdc), next;
	struct io_priv *oldest = ash_list_first(&vol->ios, struct io_priv, all);
	struct sdc_io *io;

	if (ash_list_empty(&vol->ios))
		return;
	io = io_of(oldest);
	if (timeout && now >= oldest->admitted_ns + timeout) {
		sdc_vol_die(vol, -EIO, "an I/O found no answer within io_timeout");
		return;
	}
	tell_waiting(vol, io, now - oldest->admitted_ns);
	next = now + LOOK_NS;
	if (timeout && oldest->admitted_ns + timeout < next)
		next = oldest->admitted_ns + timeout;
	ash_timer_set(vol->sdc->port->timers, timer, next);
}

/* ------------------------------------------------------------ for users */

void sdc_vol_info(const struct sdc_vol *vol, struct sdc_vol_info *ret_info)
{
	*ret_info = (struct sdc_vol_info){
		.volume = vol->volume,
		.node = vol->node,
		.size_bytes = vol->size,
		.read_only = vol->read_only,
		.needs_flush = vol->needs_flush,
		.dead = vol->dead != 0,
	};
	memcpy(ret_info->name, vol->name, sizeof(vol->name));
}

void sdc_vol_watch(struct sdc_vol *vol, void (*changed)(void *arg), void *arg)
{
	vol->watch = changed;
	vol->watch_arg = arg;
}

void sdc_close(struct sdc_vol *vol, void (*done)(void *arg), void *arg)
{
	vol->closing = true;
	vol->closed = done;
	vol->closed_arg = arg;
	sdc_kick(vol->sdc);
}

void sdc_vol_reap(struct sdc *sdc)
{
	ash_list_each_safe(l, &sdc->vols) {
		struct sdc_vol *vol = ash_container_of(l, struct sdc_vol, link);
		void (*closed)(void *) = vol->closed;
		void *arg = vol->closed_arg;

		if (!vol->closing || vol->outstanding || vol->reqs || vol->renewing)
			continue;
		sdc_vol_free(vol);
		if (closed)
			closed(arg);
	}
}
