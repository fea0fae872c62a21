// SPDX-License-Identifier: MIT
/*
 * Placement groups: a new row takes effect at receipt. What operations and sessions make of it
 * follows in the same turn (pg_turn), so that a row that comes with an answer does not pull the
 * ground from under who reads the answer.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "sds/core/sds_int.h"

/* ------------------------------------------------------------ look-up */

struct sds_pool *pg_pool(const struct sds *s, uint64_t pool)
{
	struct sds_pool *p = ash_htab_get(&s->pool_by_id, pool);

	return p && !p->gone ? p : NULL;
}

struct sds_pg *pg_at(const struct sds *s, uint64_t pool, uint32_t pg)
{
	struct sds_pool *p = pg_pool(s, pool);

	return p && pg < p->pgs ? &p->pg[pg] : NULL;
}

struct sds_pg *pg_of(const struct sds *s, uint64_t node, uint64_t chunk)
{
	struct ash_map_pool *pool;
	uint32_t pg;

	return ash_map_locate(s->map, node, chunk, &pool, &pg) ? NULL : pg_at(s, pool->id, pg);
}

int pg_replica_of(const struct ash_row *row, uint64_t device, uint64_t incarnation)
{
	for (unsigned i = 0; i < row->replicas; i++)
		if (row->replica[i].device == device && row->replica[i].incarnation == incarnation)
			return (int)i;
	return -1;
}

bool pg_needs(const struct sds_pg *pg, unsigned i)
{
	const struct ash_replica *r = &pg->row.replica[i];

	return r->state == ASH_REPLICA_IN_SYNC ||
	       (r->state == ASH_REPLICA_BUILDING && pg->promised == r->device &&
		ASH_RULE(JOIN_PROMISE));
}

bool pg_leased(const struct sds_pg *pg, uint64_t now)
{
	if (!ASH_RULE(LEASE_READ))
		return true;
	for (unsigned i = 0; i < pg->row.replicas; i++) {
		const struct sds_peer *peer;

		if (i == pg->me || !pg_needs(pg, i))
			continue;
		peer = peer_find(pg->s, pg->row.replica[i].sds);
		if (!peer || !lease_holds(&peer->lease, now))
			return false;
	}
	return true;
}

void pg_promise(struct sds_pg *pg, uint64_t device)
{
	pg->promised = device;
	pg->promised_ns = sds_now(pg->s);
}

/* ------------------------------------------------------------ roles */

void pg_touch(struct sds_pg *pg)
{
	if (ash_list_empty(&pg->changed))
		ash_list_push_back(&pg->s->changed_pgs, &pg->changed);
}

static void on_ready(struct ash_timer *timer)
{
	struct sds_pg *pg = ash_container_of(timer, struct sds_pg, timer);

	pg->ready = true;
	pg_touch(pg);
}

/*
 * Who may still serve the PG under a lease of ours: whoever was primary before us was in sync in
 * the row that we had, for every unplanned change of primary leaves the new one alone.
 */
static uint64_t leases_end(const struct sds_pg *pg, const struct ash_row *row, uint64_t end)
{
	for (unsigned i = 0; i < row->replicas; i++) {
		const struct sds_peer *peer = peer_find(pg->s, row->replica[i].sds);

		if (row->gen != pg->row.gen && row->replica[i].state != ASH_REPLICA_IN_SYNC)
			continue;
		if (peer && peer->lease.granted_ns > end)
			end = peer->lease.granted_ns;
	}
	return end;
}

/* Neither reads nor writes before what we granted to earlier primaries has run out. */
static void promoted(struct sds_pg *pg, const struct ash_row *old)
{
	struct sds *s = pg->s;
	uint64_t now = sds_now(s);

	pg->ready_ns = ASH_RULE(START_WAIT) ? pg->dev->serve_ns : 0;
	if (ASH_RULE(LEASE_WAIT)) {
		if (!old->gen)
			pg->leases_ns = leases_end(pg, &pg->row, pg->leases_ns);
		if (pg->leases_ns > pg->ready_ns)
			pg->ready_ns = pg->leases_ns;
	}
	pg->ready = now >= pg->ready_ns;
	if (!pg->ready)
		ash_timer_set(s->port->timers, &pg->timer, pg->ready_ns);
}

static unsigned in_sync(const struct ash_row *row)
{
	unsigned n = 0;

	for (unsigned i = 0; i < row->replicas; i++)
		n += row->replica[i].state == ASH_REPLICA_IN_SYNC;
	return n;
}

static enum sds_role find_role(const struct sds_pg *pg, unsigned *ret_me, struct sds_dev **ret_dev)
{
	if (pg->s->stopping || pg->pool->gone)
		return ROLE_NONE;
	for (unsigned i = 0; i < pg->row.replicas; i++) {
		const struct ash_replica *r = &pg->row.replica[i];
		struct sds_dev *dev =
			r->state == ASH_REPLICA_ABSENT ? NULL : dev_by_id(pg->s, r->device);

		if (!dev || dev->label.incarnation != r->incarnation)
			continue;
		*ret_me = i;
		*ret_dev = dev;
		if (r->state == ASH_REPLICA_BUILDING)
			return ROLE_BUILDING;
		return pg->row.primary == i ? ROLE_PRIMARY : ROLE_SECONDARY;
	}
	return ROLE_NONE;
}

static bool same_primary(const struct ash_row *a, const struct ash_row *b)
{
	if (a->primary == ASH_NO_PRIMARY || b->primary == ASH_NO_PRIMARY)
		return false;
	return a->replica[a->primary].device == b->replica[b->primary].device &&
	       a->replica[a->primary].incarnation == b->replica[b->primary].incarnation;
}

/* Looks at the row and our devices. @old: the row before, for what is new in this one. */
static void set_role(struct sds_pg *pg, const struct ash_row *old)
{
	struct sds *s = pg->s;
	struct sds_dev *dev = NULL, *old_dev = pg->dev;
	enum sds_role was = pg->role;
	unsigned me = 0;

	pg->role = find_role(pg, &me, &dev);
	pg->me = (uint8_t)me;
	pg->dev = dev;
	if (pg->role == ROLE_NONE)
		ash_list_remove(&pg->local);
	else if (ash_list_empty(&pg->local))
		ash_list_push_back(&s->local_pgs, &pg->local);
	if (was == ROLE_PRIMARY && (pg->role != ROLE_PRIMARY || dev != old_dev)) {
		pg->lost = true;
		pg->ready = false;
		ash_timer_cancel(s->port->timers, &pg->timer);
	}
	if (pg->role == ROLE_PRIMARY && (was != ROLE_PRIMARY || dev != old_dev))
		promoted(pg, old);
	if (pg->role == ROLE_PRIMARY && in_sync(&pg->row) == 1 &&
	    (was != ROLE_PRIMARY || in_sync(old) > 1))
		pg->stamp_due = s->stamp_due = true;
	if (pg->role != ROLE_BUILDING || !same_primary(&pg->row, old) || dev != old_dev)
		pg->sync_from = pg->sync_session = 0;
	s->peers_stale = true;
	pg_touch(pg);
}

/* Devices of ours that the row named, and names no more. */
static void out_of_row(const struct sds_pg *pg, const struct ash_row *old)
{
	for (unsigned i = 0; i < old->replicas; i++) {
		uint64_t device = old->replica[i].device;
		struct sds_dev *dev = dev_by_id(pg->s, device);
		bool stays = false;

		for (unsigned k = 0; k < pg->row.replicas; k++)
			stays |= pg->row.replica[k].device == device;
		if (dev && !stays)
			stray_due(dev);
	}
}

void pg_on_row(void *arg, struct ash_map_pool *pool, uint32_t at, const struct ash_row *unused)
{
	struct sds *s = arg;
	struct sds_pg *pg = pg_at(s, pool->id, at);
	const struct ash_row *row = &pool->rows[at];
	struct ash_row old;

	if (!pg || row->gen <= pg->row.gen)
		return;
	old = pg->row;
	pg->row = *row;
	/* Noted with every row: before we serve it may pass through some that serve nobody. */
	if (old.gen)
		pg->leases_ns = leases_end(pg, &old, pg->leases_ns);
	if (row->gen > s->row_gen)
		s->row_gen = row->gen;
	/* Promises end by a newer gen, and so does what we asked for at the old one. */
	pg->promised = 0;
	pg->proposed = pg->blocked = false;
	mdm_unwant(pg);
	out_of_row(pg, &old);
	set_role(pg, &old);
}

void pg_device_changed(struct sds *s, uint64_t device)
{
	size_t cursor = 0;
	struct sds_pool *pool;

	while ((pool = ash_htab_next(&s->pool_by_id, &cursor, NULL)))
		for (uint32_t i = 0; i < pool->pgs; i++)
			for (unsigned k = 0; k < pool->pg[i].row.replicas; k++)
				if (pool->pg[i].row.replica[k].device == device) {
					struct ash_row same = pool->pg[i].row;

					set_role(&pool->pg[i], &same);
					break;
				}
}

static void all_roles(struct sds *s, struct sds_pool *pool)
{
	for (uint32_t i = 0; i < pool->pgs; i++) {
		struct ash_row same = pool->pg[i].row;

		if (pool->pg[i].role != ROLE_NONE)
			set_role(&pool->pg[i], &same);
	}
}

void pg_drop_all(struct sds *s)
{
	size_t cursor = 0;
	struct sds_pool *pool;

	while ((pool = ash_htab_next(&s->pool_by_id, &cursor, NULL)))
		all_roles(s, pool);
}

/* ------------------------------------------------------------ pools */

void pg_pool_added(struct sds *s, uint64_t id)
{
	const struct ash_map_pool *from = ash_map_pool(s->map, id);
	struct sds_pool *pool = ash_htab_get(&s->pool_by_id, id);

	if (!from || pool)
		return;
	pool = ash_xcalloc(1, sizeof(*pool));
	pool->id = id;
	pool->pgs = from->pg_count;
	pool->pg = ash_xcalloc(pool->pgs, sizeof(*pool->pg));
	for (uint32_t i = 0; i < pool->pgs; i++) {
		struct sds_pg *pg = &pool->pg[i];

		pg->s = s;
		pg->pool = pool;
		pg->pg = i;
		pg->row.primary = ASH_NO_PRIMARY;
		pg->timer.fn = on_ready;
		ash_list_init(&pg->local);
		ash_list_init(&pg->changed);
		ash_list_init(&pg->inflight);
		ash_list_init(&pg->parked);
		ash_list_init(&pg->want_link);
	}
	if (ash_htab_put(&s->pool_by_id, id, pool))
		abort();
}

/* Operations may still point into it: the memory stays. */
void pg_pool_removed(struct sds *s, uint64_t id)
{
	struct sds_pool *pool = pg_pool(s, id);

	if (!pool)
		return;
	pool->gone = true;
	all_roles(s, pool);
}

void pg_free_all(struct sds *s)
{
	size_t cursor = 0;
	struct sds_pool *pool;

	while ((pool = ash_htab_next(&s->pool_by_id, &cursor, NULL))) {
		for (uint32_t i = 0; i < pool->pgs; i++)
			ash_timer_cancel(s->port->timers, &pool->pg[i].timer);
		free(pool->pg);
		free(pool);
	}
}

/* ------------------------------------------------------------ what follows */

static void parked_again(struct sds_pg *pg)
{
	struct ash_list waiting, *l;

	ash_list_init(&waiting);
	while ((l = ash_list_pop(&pg->parked)))
		ash_list_push_back(&waiting, l);
	while ((l = ash_list_pop(&waiting))) {
		struct sds_op *op = ash_container_of(l, struct sds_op, link);
		bool reads = op->h.op == ASH_OP_READ || op->h.op == ASH_OP_STATUS;

		op_lock(op, reads && !op->exclusive);
	}
}

void pg_turn(struct sds *s)
{
	struct ash_list *l;

	while ((l = ash_list_pop(&s->changed_pgs))) {
		struct sds_pg *pg = ash_container_of(l, struct sds_pg, changed);

		sync_row_changed(pg);
		if (pg->lost)
			op_role_lost(pg);
		pg->lost = false;
		if (pg->role == ROLE_PRIMARY)
			op_row_changed(pg);
		if (!ash_list_empty(&pg->parked))
			parked_again(pg);
		s->lease_moved = true;
	}
}

void pg_tick(struct sds *s, uint64_t now)
{
	ash_list_each(l, &s->local_pgs) {
		struct sds_pg *pg = ash_container_of(l, struct sds_pg, local);

		if (pg->role == ROLE_PRIMARY && pg->proposed &&
		    now > pg->promised_ns + BUMP_AFTER_MS * MS &&
		    pg->want.action != PB__PG_ACTION__PG_BUMP &&
		    pg->want.action != PB__PG_ACTION__PG_DROP)
			mdm_want(pg, PB__PG_ACTION__PG_BUMP, 0, 0, "a promise has no answer");
	}
}

/* ------------------------------------------------------------ accusations */

void pg_leave(struct sds_pg *pg, const char *reason)
{
	if (pg->role == ROLE_NONE)
		return;
	pg->blocked = true;
	mdm_want(pg, PB__PG_ACTION__PG_DROP, pg->dev->id, pg->dev->label.incarnation, reason);
}

void pg_accuse(struct sds *s, uint64_t sds, uint64_t device, const char *reason)
{
	ash_list_each(l, &s->local_pgs) {
		struct sds_pg *pg = ash_container_of(l, struct sds_pg, local);

		if (pg->role != ROLE_PRIMARY)
			continue;
		for (unsigned i = 0; i < pg->row.replicas; i++) {
			const struct ash_replica *r = &pg->row.replica[i];

			if (i == pg->me || r->state == ASH_REPLICA_ABSENT || r->sds != sds ||
			    (device && r->device != device))
				continue;
			mdm_want(pg, PB__PG_ACTION__PG_DROP, r->device, r->incarnation, reason);
		}
	}
}
