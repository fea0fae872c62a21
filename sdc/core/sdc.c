// SPDX-License-Identifier: MIT
#include "sdc/core/sdc.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "sdc/core/sdc_int.h"

void sdc_trace(struct sdc *sdc, int level, const char *fmt, ...)
{
	char line[400];
	va_list ap;

	if (!sdc->port->trace)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	sdc->port->trace(sdc->port, level, line);
}

bool sdc_may_tell(struct sdc *sdc, uint64_t *told_ns)
{
	uint64_t now = sdc_now(sdc);

	if (*told_ns && now - *told_ns < SEC)
		return false;
	*told_ns = now;
	return true;
}

uint64_t sdc_jitter(struct sdc *sdc, uint64_t ns)
{
	return ns / 2 + sdc->port->rand64(sdc->port) % (ns + 1);
}

static void kicked(struct ash_task *task)
{
	ash_container_of(task, struct sdc, task)->kicked = false;
}

void sdc_kick(struct sdc *sdc)
{
	if (sdc->kicked)
		return;
	sdc->kicked = true;
	sdc->port->post(sdc->port, &sdc->task);
}

static void on_buffer(struct ash_buf_waiter *waiter)
{
	sdc_kick(ash_container_of(waiter, struct sdc, buf_waiter));
}

static bool make_pool(struct sdc *sdc)
{
	uint32_t i;

	sdc->reqs = sdc->cfg.requests + FLUSH_RESERVE;
	sdc->req = calloc(sdc->reqs, sizeof(*sdc->req));
	for (sdc->buckets = 64; sdc->buckets < 2 * sdc->reqs; sdc->buckets *= 2)
		;
	sdc->bucket = calloc(sdc->buckets, sizeof(*sdc->bucket));
	if (!sdc->req || !sdc->bucket)
		return false;
	for (i = 0; i < sdc->buckets; i++)
		ash_list_init(&sdc->bucket[i]);
	for (i = 0; i < sdc->reqs; i++) {
		struct sdc_req *r = &sdc->req[i];

		r->sdc = sdc;
		r->index = i;
		r->timer.fn = sdc_req_backoff_tick;
		ash_list_init(&r->hold);
		ash_list_init(&r->link);
		ash_list_push_back(i < FLUSH_RESERVE ? &sdc->free_flush : &sdc->free, &r->link);
	}
	sdc->free_count = sdc->cfg.requests;
	return true;
}

struct sdc *sdc_new(struct ash_port *port, struct ash_ctl *ctl, const struct sdc_cfg *cfg)
{
	struct sdc *sdc = calloc(1, sizeof(*sdc));

	if (!sdc)
		return NULL;
	sdc->port = port;
	sdc->ctl = ctl;
	sdc->cfg = *cfg;
	sdc->cfg.requests = cfg->requests ? cfg->requests : 1024;
	sdc->cfg.path_timeout_ms = cfg->path_timeout_ms ? cfg->path_timeout_ms : 5000;
	sdc->session = cfg->session;
	sdc->task.fn = kicked;
	sdc->buf_waiter.fn = on_buffer;
	sdc->register_timer.fn = sdc_register_tick;
	sdc->map_timer.fn = sdc_map_tick;
	ash_list_init(&sdc->free);
	ash_list_init(&sdc->free_flush);
	ash_list_init(&sdc->parked);
	ash_list_init(&sdc->nobuf);
	ash_list_init(&sdc->vols);
	ash_list_init(&sdc->ready);
	queue_init(&sdc->done);
	sdc->map = ash_map_new();
	if (!sdc->map || !make_pool(sdc)) {
		ash_map_free(sdc->map);
		free(sdc->req);
		free(sdc->bucket);
		free(sdc);
		return NULL;
	}
	return sdc;
}

static void deliver_done(struct sdc *sdc)
{
	struct sdc_io *io = sdc->done.first, *next;

	/* Only what is there now: a callback may submit, and that may end at once. */
	queue_init(&sdc->done);
	for (; io; io = next) {
		struct sdc_vol *vol = io_priv(io)->vol;

		next = io->next;
		vol->outstanding--;
		io->done(io, io_priv(io)->status);
	}
}

static void call_watchers(struct sdc *sdc)
{
	ash_list_each_safe(l, &sdc->vols) {
		struct sdc_vol *vol = ash_container_of(l, struct sdc_vol, link);

		if (vol->changed && vol->watch && !vol->closing) {
			vol->changed = false;
			vol->watch(vol->watch_arg);
		}
	}
}

/* Rounds that had to wait for a request. */
static void feed_flushes(struct sdc *sdc)
{
	ash_list_each(l, &sdc->vols) {
		struct sdc_vol *vol = ash_container_of(l, struct sdc_vol, link);

		if (vol->flush.starved)
			sdc_flush_eval(vol);
	}
}

static void finish_stop(struct sdc *sdc)
{
	struct sdc_peer *peer;

	if (!sdc->stopping || !sdc->stopped)
		return;
	for (peer = sdc->peers; peer; peer = peer->next)
		if (peer->conn)
			return;
	sdc->stopping = false;
	sdc->stopped(sdc->stopped_arg);
}

void sdc_turn(struct sdc *sdc)
{
	if (sdc->rows_moved) {
		sdc->rows_moved = false;
		sdc_req_reroute_all(sdc);
		ash_list_each(l, &sdc->vols) {
			sdc_flush_eval(ash_container_of(l, struct sdc_vol, link));
		}
	}
	if (!ash_list_empty(&sdc->free_flush))
		feed_flushes(sdc);
	if (!ash_list_empty(&sdc->nobuf))
		sdc_req_nobuf_retry(sdc);
	if (sdc->renewing)
		sdc_renew_check(sdc);
	deliver_done(sdc);
	sdc_io_pump(sdc);
	call_watchers(sdc);
	sdc_vol_reap(sdc);
	if (sdc->done.first)
		sdc_kick(sdc);
	finish_stop(sdc); /* last: the callback may free us */
}

void sdc_stop(struct sdc *sdc, void (*done)(void *arg), void *arg)
{
	struct sdc_peer *peer;

	sdc->stopping = true;
	sdc->stopped = done;
	sdc->stopped_arg = arg;
	ash_timer_cancel(sdc->port->timers, &sdc->register_timer);
	ash_timer_cancel(sdc->port->timers, &sdc->map_timer);
	for (peer = sdc->peers; peer; peer = peer->next) {
		ash_timer_cancel(sdc->port->timers, &peer->timer);
		if (peer->conn)
			sdc_peer_close(peer);
		else
			peer->state = PEER_IDLE;
	}
	sdc_kick(sdc);
}

void sdc_abandon(struct sdc *sdc)
{
	struct sdc_peer *peer;

	if (!sdc)
		return;
	ash_timer_cancel(sdc->port->timers, &sdc->register_timer);
	ash_timer_cancel(sdc->port->timers, &sdc->map_timer);
	if (sdc->buf_waiter.queued)
		ash_bufs_unwait(sdc->port->bufs, &sdc->buf_waiter);
	for (uint32_t i = 0; i < sdc->reqs; i++) {
		ash_timer_cancel(sdc->port->timers, &sdc->req[i].timer);
		ash_buf_put(sdc->req[i].bounce);
	}
	while ((peer = sdc->peers)) {
		sdc->peers = peer->next;
		ash_timer_cancel(sdc->port->timers, &peer->timer);
		free(peer);
	}
	sdc_openings_drop(sdc);
	while (!ash_list_empty(&sdc->vols))
		sdc_vol_free(ash_list_first(&sdc->vols, struct sdc_vol, link));
	ash_htab_done(&sdc->peer_by_key);
	ash_map_free(sdc->map);
	free(sdc->req);
	free(sdc->bucket);
	free(sdc);
}

void sdc_free(struct sdc *sdc)
{
	if (!sdc)
		return;
	assert(ash_list_empty(&sdc->vols));
	for (struct sdc_peer *peer = sdc->peers; peer; peer = peer->next)
		assert(!peer->conn);
	sdc_abandon(sdc);
}

void sdc_stats(const struct sdc *sdc, struct sdc_stats *ret_stats)
{
	*ret_stats = sdc->stats;
}
