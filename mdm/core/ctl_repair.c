/* SPDX-License-Identifier: MIT */
/*
 * Gets groups back to two copies in sync: absent copies whose device is up are built again, those
 * that stay away are made anew elsewhere (ctl_rebuild.c), groups that nobody serves are activated,
 * copies that are one too many are forgotten.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/base/switches.h"
#include "mdm/core/repair_int.h"

#define BATCH_MAX 1024
#define ACTIVATE_WAIT_MS 5000 /* for the rest of a last set, once one of it is there */
#define LOOK_MS 500	      /* delays run out without a change of the map */
#define READD_MS 1000
#define READD_MAX_MS 300000
#define READD_HALF_MS 3600000 /* an hour without accusation halves the delay */

/* ---------------------------------------------------------------- delays */

static void decay(struct svc_dev *dev, uint64_t now)
{
	while (dev->readd_ms && now - dev->accused_ns >= READD_HALF_MS * SVC_MS) {
		dev->readd_ms /= 2;
		dev->accused_ns += READD_HALF_MS * SVC_MS;
		if (dev->readd_ms < READD_MS)
			dev->readd_ms = 0;
	}
}

void ctl_accused(struct mdm_service *svc, uint64_t device)
{
	struct svc_dev *dev = svc_dev(svc, device);
	uint64_t now = svc_now(svc);

	if (now < dev->readd_ns)
		return; /* the same trouble, told by somebody else */
	decay(dev, now);
	dev->readd_ms = dev->readd_ms ? 2 * dev->readd_ms : READD_MS;
	if (dev->readd_ms > READD_MAX_MS)
		dev->readd_ms = READD_MAX_MS;
	dev->accused_ns = now;
	dev->readd_ns = now + dev->readd_ms * SVC_MS;
	svc_trace(svc, ASH_LOG_WARN, "event=device_accused device=%s back_in_ms=%u",
		  mdm_name(svc->st, PB__KIND__KIND_DEVICE, device), dev->readd_ms);
}

/* ---------------------------------------------------------------- what a row needs */

void repair_add(struct repair *r, const struct mdm_rows *rows, uint32_t pg, Pb__PgAction action,
		uint64_t device)
{
	Pb__PgChange *c = &r->change[r->n];
	const Pb__Device *dev = mdm_device(r->svc->st, device);

	pb__pg_change__init(c);
	c->action = action;
	c->pool = rows->pool;
	c->pg = pg;
	c->expect_gen = rows->row[pg].gen;
	c->device = device;
	c->incarnation = dev ? dev->incarnation : 0;
	r->list[r->n++] = c;
}

const struct svc_dev *repair_usable(const struct repair *r, uint64_t device)
{
	const struct svc_dev *dev = ash_htab_get(&r->svc->devs, device);

	return dev && dev->usable ? dev : NULL;
}

bool repair_beside_primary(const struct repair *r, const struct mdm_row *row, uint64_t device)
{
	const struct mdm_state *st = r->svc->st;

	return mdm_unit_of(st, row->replica[row->primary - 1].device) != mdm_unit_of(st, device);
}

/* Opened again since it was in sync: what a volatile cache held may be gone. */
static bool restarted(const struct repair *r, const struct mdm_row *row, uint64_t device)
{
	int i = mdm_row_find(row, device);
	const Pb__Device *dev = mdm_device(r->svc->st, device);

	return i < 0 || !dev || dev->incarnation != row->replica[i].incarnation;
}

/* One that did not restart is best; of equals the old primary, which stands first. */
static void activate(struct repair *r, const struct mdm_rows *rows, uint32_t pg)
{
	const struct mdm_row *row = &rows->row[pg];
	uint64_t best = 0, since = r->now;
	bool best_restarted = true, all = true;

	if (!ASH_RULE(LAST_SET)) {
		for (unsigned i = 0; i < row->replicas; i++)
			if (repair_usable(r, row->replica[i].device))
				best = row->replica[i].device;
		if (best)
			repair_add(r, rows, pg, PB__PG_ACTION__PG_ACTIVATE, best);
		return;
	}
	for (unsigned i = 0; i < row->last_count; i++) {
		const struct svc_dev *dev = repair_usable(r, row->last[i]);
		bool again;

		if (!dev) {
			all = false;
			continue;
		}
		again = restarted(r, row, row->last[i]);
		if (!best || (best_restarted && !again)) {
			best = row->last[i];
			best_restarted = again;
		}
		if (dev->usable_since_ns < since)
			since = dev->usable_since_ns;
	}
	if (!best)
		return;
	if (all || r->now - since >= ACTIVATE_WAIT_MS * SVC_MS)
		repair_add(r, rows, pg, PB__PG_ACTION__PG_ACTIVATE, best);
	else
		r->waiting = true;
}

/* The absent copy that has least to catch up with. */
static void build(struct repair *r, const struct mdm_rows *rows, uint32_t pg)
{
	const struct mdm_row *row = &rows->row[pg];
	const struct mdm_replica *best = NULL;

	for (unsigned i = 0; i < row->replicas; i++) {
		const struct mdm_replica *c = &row->replica[i];
		const struct svc_dev *dev;

		if (c->state != ASH_REPLICA_ABSENT || !(dev = repair_usable(r, c->device)) ||
		    !repair_beside_primary(r, row, c->device))
			continue;
		if (r->now < dev->readd_ns)
			r->waiting = true;
		else if (!best || c->left_gen > best->left_gen)
			best = c;
	}
	if (best)
		repair_add(r, rows, pg, PB__PG_ACTION__PG_BUILD, best->device);
	else
		rebuild_replace(r, rows, pg);
}

static void forget_surplus(struct repair *r, const struct mdm_rows *rows, uint32_t pg)
{
	const struct mdm_row *row = &rows->row[pg];

	for (unsigned i = 0; i < row->replicas; i++)
		if (row->replica[i].state == ASH_REPLICA_ABSENT) {
			repair_add(r, rows, pg, PB__PG_ACTION__PG_FORGET, row->replica[i].device);
			return; /* one at a time: the gen moves on */
		}
}

static void look_at(struct repair *r, const struct mdm_rows *rows, uint32_t pg)
{
	const struct mdm_row *row = &rows->row[pg];
	unsigned in_sync = 0, building = 0;

	for (unsigned i = 0; i < row->replicas; i++) {
		in_sync += row->replica[i].state == ASH_REPLICA_IN_SYNC;
		building += row->replica[i].state == ASH_REPLICA_BUILDING;
	}
	if (in_sync >= 2 && row->replicas > in_sync + building)
		forget_surplus(r, rows, pg);
	else if (!row->primary && row->last_count)
		activate(r, rows, pg);
	else if (row->primary && in_sync + building < 2)
		build(r, rows, pg);
	else if (row->primary && in_sync < 2)
		rebuild_yield(r, rows, pg);
}

/* ---------------------------------------------------------------- rounds */

static void follow_devices(struct mdm_service *svc, uint64_t now)
{
	MDM_EACH(svc->st, PB__KIND__KIND_DEVICE, Pb__Device, dev) {
		struct svc_dev *d = svc_dev(svc, dev->id);
		bool can = mdm_device_usable(svc->st, dev);

		/* It may have gone and come back between two looks. */
		if (can && (!d->usable || d->incarnation != dev->incarnation))
			d->usable_since_ns = now;
		if (can)
			d->gone_ns = 0;
		else if (!d->gone_ns)
			d->gone_ns = now;
		d->usable = can;
		d->incarnation = dev->incarnation;
	}
}

static void on_repaired(struct mdm_service *svc, void *arg, int result,
			const struct mdm_result *res)
{
	size_t applied = 0;

	svc->repairing = false;
	for (size_t i = 0; !result && i < res->answers_count; i++)
		applied += res->answers[i]->applied;
	if (applied)
		svc_backoff_clear(&svc->repair_backoff);
	else
		svc_backoff_more(svc, &svc->repair_backoff);
	svc->repaired_version = UINT64_MAX; /* there may be more to do */
}

static void propose(struct repair *r)
{
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdPgBatch batch = PB__CMD_PG_BATCH__INIT;

	batch.n_changes = r->n;
	batch.changes = r->list;
	cmd.c_case = PB__COMMAND__C_PG_BATCH;
	cmd.pg_batch = &batch;
	r->svc->repairing = true;
	svc_propose(r->svc, &cmd, on_repaired, NULL);
}

static void look_at_pool(struct repair *r, const Pb__Pool *pool)
{
	const struct mdm_rows *rows = mdm_rows(r->svc->st, pool->id);

	r->pool = pool;
	r->weighed = false;
	r->stuck = r->waits = 0;
	for (uint32_t pg = 0; pg < rows->pg_count && r->n < BATCH_MAX; pg++)
		look_at(r, rows, pg);
	svc_pool(r->svc, pool->id)->stuck = r->stuck;
	svc_pool(r->svc, pool->id)->waits = r->waits;
}

void ctl_repair(struct mdm_service *svc, uint64_t now)
{
	struct repair r = {.svc = svc, .now = now};

	if (svc->repairing || now < svc->repair_backoff.until_ns ||
	    (svc->repaired_version == svc->st->version && now < svc->repair_ns))
		return;
	svc->repaired_version = svc->st->version;
	follow_devices(svc, now);
	r.change = ash_xcalloc(BATCH_MAX, sizeof(*r.change));
	r.list = ash_xcalloc(BATCH_MAX, sizeof(*r.list));
	MDM_EACH(svc->st, PB__KIND__KIND_POOL, Pb__Pool, pool)
		if (pool->had_volume)
			look_at_pool(&r, pool);
	svc->repair_ns = r.waiting ? now + LOOK_MS * SVC_MS : ASH_TIME_NEVER;
	if (r.n)
		propose(&r);
	free(r.change);
	free(r.list);
}
