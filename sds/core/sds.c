// SPDX-License-Identifier: MIT
/* Life cycle of one SDS reactor, its turn and its tick. */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "sds/core/sds_int.h"

const struct ash_ctl_events sds_ctl_events = {.on_session = mdm_session, .on_push = mdm_push};

void sds_trace(struct sds *s, int level, const char *fmt, ...)
{
	char line[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	s->port->trace(s->port, level, line);
}

uint64_t sds_place_version(const struct sds *s)
{
	uint64_t version = ash_map_place_version(s->map);

	return s->row_gen > version ? s->row_gen : version;
}

static void stop_poll(struct sds *s);

static void on_tick(struct ash_timer *timer)
{
	struct sds *s = ash_container_of(timer, struct sds, tick);
	uint64_t now = sds_now(s);

	ash_timer_set(s->port->timers, &s->tick, now + TICK_MS * MS);
	mdm_tick(s, now);
	dev_tick(s, now);
	session_tick(s, now);
	peer_tick(s, now);
	lease_tick(s, now);
	op_tick(s, now);
	flush_tick(s, now);
	pg_tick(s, now);
	sync_tick(s, now);
}

struct sds *sds_new(struct ash_port *port, struct ash_ctl *ctl, const struct sds_cfg *cfg,
		    const struct sds_shell_ops *shell)
{
	struct sds *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->port = port;
	s->ctl = ctl;
	s->cfg = *cfg;
	s->shell = *shell;
	if (s->cfg.heartbeat_ms == 0)
		s->cfg.heartbeat_ms = 200;
	memcpy(&s->session, cfg->session, sizeof(s->session));
	s->start_ns = s->last_turn_ns = sds_now(s);
	ash_list_init(&s->devs);
	ash_list_init(&s->local_pgs);
	ash_list_init(&s->changed_pgs);
	ash_list_init(&s->sessions);
	ash_list_init(&s->senders_idle);
	ash_list_init(&s->wants);
	ash_list_init(&s->pendings);
	s->map = ash_map_new();
	s->sender_bucket = ash_xcalloc(256, sizeof(*s->sender_bucket));
	for (unsigned i = 0; i < 256; i++)
		ash_list_init(&s->sender_bucket[i]);
	if (!s->map || sds_locks_init(&s->locks, 4096) || op_init(s)) {
		sds_free(s);
		return NULL;
	}
	sync_init(s);
	s->tick.fn = on_tick;
	ash_timer_set(port->timers, &s->tick, s->start_ns + TICK_MS * MS);
	return s;
}

void sds_turn(struct sds *s)
{
	unsigned rounds = 0;
	uint64_t now = sds_now(s);
	bool more;

	if ((now - s->last_turn_ns) / MS > s->worst_turn_ms)
		s->worst_turn_ms = (uint32_t)((now - s->last_turn_ns) / MS);
	s->last_turn_ns = now;
	/* What one part does may be news for another; bounded, the rest comes in the next turn. */
	do {
		more = sds_locks_run(&s->locks);
		pg_turn(s);
		op_turn(s);
		flush_turn(s);
		session_turn(s);
		sync_turn(s);
		more |= !ash_list_empty(&s->locks.ready) || !ash_list_empty(&s->changed_pgs);
	} while (more && ++rounds < 64);
	settle_turn(s);
	stray_turn(s);
	dev_turn(s);
	pending_turn(s);
	mdm_turn(s);
	if (s->stopping)
		stop_poll(s);
}

/* ------------------------------------------------------------ the end */

static void stop_poll(struct sds *s)
{
	void (*stopped)(void *arg) = s->stopped;

	if (!stopped || s->ops_in_flight || !ash_list_empty(&s->sessions))
		return;
	dev_stop_all(s);
	if (!ash_list_empty(&s->devs))
		return;
	s->stopped = NULL;
	stopped(s->stopped_arg);
}

void sds_stop(struct sds *s, void (*done)(void *arg), void *arg)
{
	s->stopping = true;
	s->stopped = done;
	s->stopped_arg = arg;
	pg_drop_all(s);
	session_close_all(s);
	peer_close_all(s);
}

void sds_free(struct sds *s)
{
	if (!s)
		return;
	ash_timer_cancel(s->port->timers, &s->tick);
	if (s->port->bufs)
		ash_bufs_unwait(s->port->bufs, &s->buf_waiter);
	sync_free_all(s);
	op_free_all(s);
	session_free_all(s);
	peer_free_all(s);
	pending_free(s);
	pg_free_all(s);
	dev_free_all(s);
	sds_locks_done(&s->locks);
	ash_htab_done(&s->pool_by_id);
	ash_htab_done(&s->peer_by_id);
	free(s->preq);
	free(s->sender_bucket);
	if (s->map)
		ash_map_free(s->map);
	free(s);
}

/* ------------------------------------------------------------ for others to see */

void sds_stats(const struct sds *s, struct sds_stats *ret)
{
	*ret = s->stats;
	ret->ops_in_flight = s->ops_in_flight;
	ash_list_each(l, &s->devs)
		ret->devices += ash_container_of(l, struct sds_dev, link)->state == DEV_OPEN;
	ash_list_each(l, &s->sessions)
		ret->sessions++;
	for (const struct sds_peer *p = s->peers; p; p = p->next)
		ret->peers++;
	ash_list_each(l, &s->local_pgs) {
		const struct sds_pg *pg = ash_container_of(l, struct sds_pg, local);

		ret->pgs_primary += pg->role == ROLE_PRIMARY;
		ret->pgs_secondary += pg->role == ROLE_SECONDARY;
		ret->pgs_building += pg->role == ROLE_BUILDING;
	}
}

struct sds_store *sds_device_store(const struct sds *s, uint64_t device)
{
	struct sds_dev *dev = dev_by_id(s, device);

	return dev ? dev->store : NULL;
}

bool sds_serves(const struct sds *s, uint64_t pool, uint32_t at, bool *ret_reads)
{
	const struct sds_pg *pg = pg_at(s, pool, at);

	*ret_reads = false;
	if (!pg || pg->role != ROLE_PRIMARY || !pg->ready || pg->blocked)
		return false;
	*ret_reads = pg_leased(pg, sds_now(s));
	return true;
}
