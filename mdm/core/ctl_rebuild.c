/* SPDX-License-Identifier: MIT */
/*
 * Forward rebuild: a copy that does not come back is made again on another device. The placement
 * planner says where each one belongs, so that what one device held is spread over all others;
 * where that device cannot take it, another fault unit's emptiest does.
 *
 * The row keeps the lost copy until two are in sync: it may return, and be up to date sooner.
 */
#include <stdlib.h>

#include "common/base/clean.h"
#include "common/shared/chunk_pg.h"
#include "mdm/core/repair_int.h"

static uint64_t grace_ns(const struct repair *r)
{
	return r->pool->rebuild_grace_ms * SVC_MS;
}

bool rebuild_lost(const struct repair *r, uint64_t device)
{
	const Pb__Device *dev = mdm_device(r->svc->st, device);
	const struct svc_dev *known = ash_htab_get(&r->svc->devs, device);

	if (!dev || dev->state == PB__DEVICE_STATE__DEVICE_FAILED)
		return true;
	if (!known)
		return false;
	if (!known->usable)
		return r->now - known->gone_ns >= grace_ns(r);
	return known->readd_ns > r->now + grace_ns(r);
}

/* ---------------------------------------------------------------- where */

static bool may_hold(const struct repair *r, const Pb__Device *dev)
{
	return dev->pool == r->pool->id && dev->state != PB__DEVICE_STATE__DEVICE_ADDING &&
	       dev->state != PB__DEVICE_STATE__DEVICE_REMOVING && !rebuild_lost(r, dev->id);
}

/* The two copies that count; those on lost devices are the holes. */
static void row_as_it_is(const struct repair *r, const struct mdm_row *row,
			 struct mdm_place_row *to)
{
	static const uint8_t order[] = {ASH_REPLICA_IN_SYNC, ASH_REPLICA_BUILDING,
					ASH_REPLICA_ABSENT};
	unsigned n = 0;

	*to = (struct mdm_place_row){{0}};
	if (row->primary)
		to->device[n++] = row->replica[row->primary - 1].device;
	for (unsigned k = 0; k < sizeof(order); k++)
		for (unsigned i = 0; i < row->replicas && n < 2; i++)
			if (row->replica[i].state == order[k] && i + 1 != row->primary &&
			    !rebuild_lost(r, row->replica[i].device))
				to->device[n++] = row->replica[i].device;
}

/* Made anew when the devices that may hold copies are others than at the last one. */
static void make_plan(struct repair *r, const struct mdm_rows *rows)
{
	const struct mdm_state *st = r->svc->st;
	struct svc_pool *p = svc_pool(r->svc, r->pool->id);
	struct mdm_place_device *list =
		ash_xcalloc(st->table[PB__KIND__KIND_DEVICE].count, sizeof(*list));
	uint64_t hash = 2;
	size_t n = 0;

	MDM_EACH(st, PB__KIND__KIND_DEVICE, Pb__Device, dev) {
		if (!may_hold(r, dev))
			continue;
		list[n] = (struct mdm_place_device){
			.id = dev->id, .unit = mdm_unit_of(st, dev->id), .capacity = dev->capacity};
		hash = ash_mix64(hash ^ dev->id) + ash_mix64(dev->capacity ^ list[n].unit) * 3;
		n++;
	}
	if (hash != p->devices_hash) {
		p->devices_hash = hash;
		p->pgs = rows->pg_count;
		if (!p->target)
			p->target = ash_xcalloc(p->pgs, sizeof(*p->target));
		for (uint32_t pg = 0; pg < p->pgs; pg++)
			row_as_it_is(r, &rows->row[pg], &p->target[pg]);
		p->planned = mdm_placement_plan(list, n, p->target, p->pgs, r->pool->id) >= 0;
	}
	free(list);
}

static void weigh(struct repair *r, const struct mdm_rows *rows)
{
	bool known;

	if (r->weighed)
		return;
	r->weighed = true;
	MDM_EACH(r->svc->st, PB__KIND__KIND_DEVICE, Pb__Device, dev)
		if (dev->pool == r->pool->id) {
			struct svc_dev *d = svc_dev(r->svc, dev->id);

			d->copies = d->filling = 0;
		}
	for (uint32_t pg = 0; pg < rows->pg_count; pg++)
		for (unsigned i = 0; i < rows->row[pg].replicas; i++) {
			const struct mdm_replica *c = &rows->row[pg].replica[i];
			struct svc_dev *d = ash_htab_get(&r->svc->devs, c->device);

			if (!d || c->state == ASH_REPLICA_ABSENT)
				continue;
			d->copies++;
			d->filling += c->state == ASH_REPLICA_BUILDING && !c->left_gen;
		}
	r->copy_bytes = ctl_pool_used(r->svc, r->pool->id, &known) / rows->pg_count;
	make_plan(r, rows);
}

static bool unit_taken(const struct repair *r, const struct mdm_row *row, uint64_t unit)
{
	for (unsigned i = 0; i < row->replicas; i++)
		if (row->replica[i].state != ASH_REPLICA_ABSENT &&
		    mdm_unit_of(r->svc->st, row->replica[i].device) == unit)
			return true;
	return false;
}

/* NULL unless the device can take a copy of this group besides all it is about to take. */
static struct svc_dev *taker(const struct repair *r, const struct mdm_row *row, uint64_t device)
{
	const Pb__Device *dev = mdm_device(r->svc->st, device);
	struct svc_dev *d = ash_htab_get(&r->svc->devs, device);

	if (!dev || !d || !d->usable || !may_hold(r, dev) || r->now < d->readd_ns ||
	    mdm_row_find(row, device) >= 0 || unit_taken(r, row, mdm_unit_of(r->svc->st, device)))
		return NULL;
	if (d->reported && d->stats.free < (d->filling + 1) * r->copy_bytes)
		return NULL;
	return d;
}

static struct svc_dev *emptiest(const struct repair *r, const struct mdm_row *row)
{
	struct svc_dev *best = NULL;
	uint64_t best_capacity = 0;

	MDM_EACH(r->svc->st, PB__KIND__KIND_DEVICE, Pb__Device, dev) {
		struct svc_dev *d = dev->pool == r->pool->id ? taker(r, row, dev->id) : NULL;
		uint64_t mib = (dev->capacity >> 20) + 1;

		if (!d || (best && d->copies * best_capacity >= best->copies * mib))
			continue;
		best = d;
		best_capacity = mib;
	}
	return best;
}

static struct svc_dev *choose(struct repair *r, const struct mdm_rows *rows, uint32_t pg)
{
	const struct svc_pool *p;
	struct svc_dev *d = NULL;

	weigh(r, rows);
	p = svc_pool(r->svc, r->pool->id);
	for (unsigned i = 0; i < 2 && p->planned && !d; i++)
		d = taker(r, &rows->row[pg], p->target[pg].device[i]);
	return d ? d : emptiest(r, &rows->row[pg]);
}

/* ---------------------------------------------------------------- proposals */

/* The absent copy whose loss matters least: one that never was in sync, else the oldest. */
static uint64_t worst_absent(const struct mdm_row *row)
{
	const struct mdm_replica *worst = NULL;

	for (unsigned i = 0; i < row->replicas; i++) {
		const struct mdm_replica *c = &row->replica[i];

		if (c->state == ASH_REPLICA_ABSENT && (!worst || c->left_gen < worst->left_gen))
			worst = c;
	}
	return worst ? worst->device : 0;
}

void rebuild_replace(struct repair *r, const struct mdm_rows *rows, uint32_t pg)
{
	const struct mdm_row *row = &rows->row[pg];
	struct svc_dev *d;

	/* One that never was in sync saves nothing by its return. */
	for (unsigned i = 0; i < row->replicas; i++) {
		const struct mdm_replica *c = &row->replica[i];

		if (c->state == ASH_REPLICA_ABSENT && c->left_gen &&
		    repair_beside_primary(r, row, c->device) && !rebuild_lost(r, c->device)) {
			r->waiting = true;
			r->waits++;
			return;
		}
	}
	d = choose(r, rows, pg);
	if (!d) {
		r->stuck++;
		r->waiting = true; /* for room */
	} else if (row->replicas == ASH_ROW_REPLICAS_MAX) {
		repair_add(r, rows, pg, PB__PG_ACTION__PG_FORGET, worst_absent(row));
	} else {
		d->copies++;
		d->filling++;
		repair_add(r, rows, pg, PB__PG_ACTION__PG_REPLACE, d->id);
	}
}

/* By the last heartbeat of the primary. */
static bool mostly_done(const struct repair *r, const struct mdm_rows *rows, uint32_t pg)
{
	const struct mdm_row *row = &rows->row[pg];
	const Pb__Device *dev = mdm_device(r->svc->st, row->replica[row->primary - 1].device);
	const struct svc_sds *sds = ash_htab_get(&r->svc->sdss, dev->sds);

	for (size_t i = 0; sds && i < sds->resyncs; i++)
		if (sds->resync[i]->pool == rows->pool && sds->resync[i]->pg == pg)
			return sds->resync[i]->done > sds->resync[i]->left;
	return false;
}

bool rebuild_yield(struct repair *r, const struct mdm_rows *rows, uint32_t pg)
{
	const struct mdm_row *row = &rows->row[pg];
	uint64_t fresh = 0;
	bool back = false;

	for (unsigned i = 0; i < row->replicas; i++) {
		const struct mdm_replica *c = &row->replica[i];
		const struct svc_dev *d = repair_usable(r, c->device);

		if (c->state == ASH_REPLICA_BUILDING && !c->left_gen)
			fresh = c->device;
		/* One that was accused lately may soon be away again. */
		back |= c->state == ASH_REPLICA_ABSENT && c->left_gen && d && !d->readd_ms &&
			repair_beside_primary(r, row, c->device);
	}
	if (!fresh || !back || mostly_done(r, rows, pg))
		return false;
	repair_add(r, rows, pg, PB__PG_ACTION__PG_FORGET, fresh);
	return true;
}
