/* SPDX-License-Identifier: MIT */
/*
 * First placement: while a pool never had a volume its groups are put where the devices that are
 * there now want them, as often as devices come and go.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/shared/chunk_pg.h"
#include "mdm/core/service_int.h"

#define CALM_MS 200 /* devices mostly come in numbers */
#define BATCH_MAX 4096

static uint64_t hash_devices(const struct mdm_state *st, uint64_t pool)
{
	uint64_t hash = 1;

	MDM_EACH(st, PB__KIND__KIND_DEVICE, Pb__Device, dev)
		if (dev->pool == pool && mdm_device_usable(st, dev))
			hash = ash_mix64(hash ^ dev->id) +
			       ash_mix64(dev->capacity ^ mdm_unit_of(st, dev->id)) * 3;
	return hash;
}

static bool make_plan(struct mdm_service *svc, struct svc_pool *p, const Pb__Pool *pool)
{
	const struct mdm_state *st = svc->st;
	struct mdm_place_device *list =
		ash_xcalloc(st->table[PB__KIND__KIND_DEVICE].count, sizeof(*list));
	size_t n = 0;

	MDM_EACH(st, PB__KIND__KIND_DEVICE, Pb__Device, dev)
		if (dev->pool == pool->id && mdm_device_usable(st, dev))
			list[n++] = (struct mdm_place_device){.id = dev->id,
							      .unit = mdm_unit_of(st, dev->id),
							      .capacity = dev->capacity};
	p->pgs = pool->pg_count;
	if (!p->target)
		p->target = ash_xcalloc(p->pgs, sizeof(*p->target));
	p->planned = mdm_placement_fresh(list, n, p->target, p->pgs, pool->id) >= 0;
	free(list);
	return p->planned;
}

static bool as_planned(const struct mdm_row *row, const struct mdm_place_row *target)
{
	return row->replicas == 2 && row->primary == 1 && !row->handover &&
	       row->replica[0].device == target->device[0] &&
	       row->replica[1].device == target->device[1] && mdm_row_in_sync(row) == 2;
}

static void on_placed(struct mdm_service *svc, void *arg, int result, const struct mdm_result *res)
{
	struct svc_pool *p = ash_htab_get(&svc->pools, (uint64_t)(uintptr_t)arg);
	size_t applied = 0;

	for (size_t i = 0; !result && i < res->answers_count; i++)
		applied += res->answers[i]->applied;
	if (applied)
		svc_backoff_clear(&svc->place_backoff);
	else
		svc_backoff_more(svc, &svc->place_backoff);
	if (p)
		p->flying = false; /* and look again */
}

/* Return: a batch is on its way. */
static bool propose_batch(struct mdm_service *svc, struct svc_pool *p, const Pb__Pool *pool)
{
	const struct mdm_rows *rows = mdm_rows(svc->st, pool->id);
	Pb__PgChange *change = ash_xcalloc(BATCH_MAX, sizeof(*change));
	Pb__PgChange **list = ash_xcalloc(BATCH_MAX, sizeof(*list));
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdPgBatch batch = PB__CMD_PG_BATCH__INIT;
	size_t n = 0;

	for (uint32_t pg = 0; pg < rows->pg_count && n < BATCH_MAX; pg++) {
		if (as_planned(&rows->row[pg], &p->target[pg]))
			continue;
		pb__pg_change__init(&change[n]);
		change[n].action = PB__PG_ACTION__PG_PLACE;
		change[n].pool = pool->id;
		change[n].pg = pg;
		change[n].expect_gen = rows->row[pg].gen;
		change[n].n_place_devices = 2;
		change[n].place_devices = p->target[pg].device;
		list[n] = &change[n];
		n++;
	}
	batch.n_changes = n;
	batch.changes = list;
	cmd.c_case = PB__COMMAND__C_PG_BATCH;
	cmd.pg_batch = &batch;
	if (n) {
		p->flying = true;
		svc_propose(svc, &cmd, on_placed, (void *)(uintptr_t)pool->id);
	}
	free(change);
	free(list);
	return n != 0;
}

static void place_pool(struct mdm_service *svc, struct svc_pool *p, const Pb__Pool *pool,
		       uint64_t now)
{
	uint64_t hash = hash_devices(svc->st, pool->id);

	if (hash != p->devices_hash) {
		p->devices_hash = hash;
		p->planned = false;
		p->calm_ns = now + CALM_MS * SVC_MS;
	}
	if (now < p->calm_ns || p->flying)
		return;
	if (!p->planned && !make_plan(svc, p, pool)) {
		p->dirty = false; /* fewer than two fault units: nothing can be done */
		return;
	}
	p->dirty = propose_batch(svc, p, pool);
}

void ctl_place(struct mdm_service *svc, uint64_t now)
{
	bool moved = svc->placed_version != svc->st->version;

	svc->placed_version = svc->st->version;
	MDM_EACH(svc->st, PB__KIND__KIND_POOL, Pb__Pool, pool) {
		struct svc_pool *p;

		if (pool->had_volume)
			continue;
		p = svc_pool(svc, pool->id);
		p->dirty |= moved;
		if (p->dirty && now >= svc->place_backoff.until_ns)
			place_pool(svc, p, pool, now);
	}
}

bool ctl_place_settled(struct mdm_service *svc, uint64_t id)
{
	const struct mdm_state *st = svc->st;
	const Pb__Pool *pool = mdm_pool(st, id);
	const struct svc_pool *p;

	if (!pool || pool->had_volume)
		return true;
	p = svc_pool(svc, id);
	if (p->dirty || p->flying || svc->placed_version != st->version)
		return false;
	MDM_EACH(st, PB__KIND__KIND_DEVICE, Pb__Device, dev) {
		const Pb__Sds *sds = mdm_sds(st, dev->sds);

		if (dev->pool == id && dev->state == PB__DEVICE_STATE__DEVICE_ADDING && sds->up)
			return false;
	}
	return true;
}
