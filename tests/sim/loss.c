/* SPDX-License-Identifier: MIT */
#include "tests/sim/loss.h"

#include <stdlib.h>

#define LOOK_NS SIM_S
#define IN_WANT_MOST 8 /* looks at something that only the lost one can end */

struct loss {
	struct sim_cluster *c;
	struct checks *checks;
	struct sim_sds *lost;
	bool struck;
	unsigned in_want;
	struct sim_event look;
};

static bool on_lost(const struct loss *l, uint64_t device)
{
	return l->lost && sim_sds_of_device(l->c, device, NULL) == l->lost;
}

/* The last copy in sync may be on the lost one, when another died before: nothing can replace it.
 */
static bool only_it_can_serve(const struct loss *l)
{
	const struct ash_map_pool *pool = ash_map_pool(l->c->map, l->c->pool);

	for (uint32_t pg = 0; pg < pool->pg_count; pg++) {
		const struct ash_row *row = &pool->rows[pg];

		for (unsigned i = 0; i < row->replicas; i++)
			if (row->primary == ASH_NO_PRIMARY && on_lost(l, row->replica[i].device))
				return true;
	}
	return false;
}

/* An unmap without force waits for every SDS's word. */
static bool fence_waits(const struct loss *l)
{
	const struct ash_map_device *dev = ash_map_device(l->c->map, l->lost->device[0]);
	const struct ash_map_fence *f = NULL;

	while (dev && (f = ash_map_next_fence(l->c->map, f ? f->id : 0)))
		for (uint32_t i = 0; i < f->pending; i++)
			if (f->pending_sds[i] == dev->sds)
				return true;
	return false;
}

static void on_look(struct sim_event *event)
{
	struct loss *l = sim_container(event, struct loss, look);

	if (!l->lost)
		return;
	l->in_want = only_it_can_serve(l) || fence_waits(l) ? l->in_want + 1 : 0;
	if (l->in_want > IN_WANT_MOST)
		loss_return(l);
	else
		sim_in(l->c->w, &l->look, LOOK_NS);
}

static bool short_grace(struct sim_cluster *c)
{
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdPoolSet set = PB__CMD_POOL_SET__INIT;

	set.pool = c->pool;
	set.name = (char *)"";
	set.rebuild_grace_ms = (uint32_t)sim_between(c->w, 1, 40) * 100;
	cmd.c_case = PB__COMMAND__C_POOL_SET;
	cmd.pool_set = &set;
	return sim_admin(c, &cmd, NULL);
}

struct loss *loss_new(struct sim_cluster *c, struct checks *checks)
{
	bool full = false;
	struct loss *l;

	for (unsigned v = 0; v < c->shape.volumes; v++)
		full |= c->shape.sparse[v];
	if (!sim_chance(c->w, 500) || full || c->shape.fault_sets < 3 || !short_grace(c))
		return NULL;
	l = calloc(1, sizeof(*l));
	if (!l)
		abort();
	l->c = c;
	l->checks = checks;
	l->look.fn = on_look;
	return l;
}

void loss_free(struct loss *l)
{
	if (l)
		sim_cancel(l->c->w, &l->look);
	free(l);
}

void loss_strike(struct loss *l, struct sim_sds *s, bool power)
{
	bool down[SIM_SDS_MAX] = {false};

	if (!l || l->struck || !s->p)
		return;
	sim_trace(l->c->w, "event=loss sds=%s", s->host.name);
	l->c->w->n.sds_lost++;
	l->struck = true;
	l->lost = s;
	down[s->index] = true;
	checks_going_down(l->checks, down, power);
	sim_sds_kill(s, power);
	sim_in(l->c->w, &l->look, LOOK_NS);
}

bool loss_has(const struct loss *l, const struct sim_sds *s)
{
	return l && l->lost == s;
}

bool loss_made_good(const struct loss *l)
{
	const struct ash_map_pool *pool;

	if (!l || !l->lost)
		return true;
	pool = ash_map_pool(l->c->map, l->c->pool);
	for (uint32_t pg = 0; pg < pool->pg_count; pg++)
		for (unsigned i = 0; i < pool->rows[pg].replicas; i++)
			if (on_lost(l, pool->rows[pg].replica[i].device))
				return false;
	return sim_all_in_sync(l->c);
}

void loss_return(struct loss *l)
{
	if (!l || !l->lost)
		return;
	if (loss_made_good(l))
		l->c->w->n.made_good++;
	sim_trace(l->c->w, "event=loss_over sds=%s", l->lost->host.name);
	sim_sds_start_in(l->lost, sim_below(l->c->w, 100 * SIM_MS));
	l->lost = NULL;
}

static bool store_clean(struct sim_cluster *c, uint64_t device, const struct sds_store *store)
{
	struct sds_chunk_info info[64];
	uint64_t cursor = 0;

	do {
		unsigned n = sds_store_scan(store, cursor, info, 64, &cursor);

		for (unsigned i = 0; i < n; i++) {
			struct ash_map_pool *pool;
			bool part = false;
			uint32_t pg;

			if (ash_map_locate(c->map, info[i].node, info[i].chunk, &pool, &pg))
				continue; /* of a deleted volume: another check's */
			for (unsigned k = 0; k < pool->rows[pg].replicas; k++)
				part |= pool->rows[pg].replica[k].device == device;
			if (!part)
				return false;
		}
	} while (cursor);
	return true;
}

bool loss_no_strays(struct sim_cluster *c)
{
	for (unsigned i = 0; i < c->shape.sdss; i++)
		for (unsigned d = 0; d < c->shape.disks; d++) {
			uint64_t device = c->sds[i].device[d];
			struct sds_store *store =
				c->sds[i].p ? sds_device_store(c->sds[i].core, device) : NULL;

			if (store && !store_clean(c, device, store))
				return false;
		}
	return true;
}
