/* SPDX-License-Identifier: MIT */
/*
 * The state machine of a placement group. Each change names the gen it was decided at; a mismatch
 * changes nothing and answers with the row as it is. Every change gives the row a new gen.
 *
 * Invariants: copies that are in sync or building are in different fault units; a copy in sync
 * belongs to the present opening of a device that is up; somebody serves exactly when a copy is in
 * sync; an accusation never empties an in-sync set.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/base/switches.h"
#include "mdm/core/state.h"

/* One change on its way through the machine. */
struct change {
	struct mdm_state *st;
	const Pb__PgChange *c;
	const Pb__Pool *pool;
	struct mdm_rows *rows;
	struct mdm_row *row;
	int at; /* of the subject in the row, -1 = not in it */
	const Pb__Device *dev;
};

static struct mdm_replica *subject(const struct change *x)
{
	return &x->row->replica[x->at];
}

/* The subject is open as the change says, and can hold a copy. */
static const char *check_open(const struct change *x)
{
	if (!x->dev || x->dev->pool != x->pool->id)
		return "the device is not part of the pool";
	if (!mdm_device_usable(x->st, x->dev))
		return "the device is not up";
	if (ASH_RULE(INCARNATION) && x->c->incarnation != x->dev->incarnation)
		return "the device was opened again meanwhile";
	return NULL;
}

static bool unit_taken(const struct change *x, uint64_t unit)
{
	for (int i = 0; i < x->row->replicas; i++) {
		const struct mdm_replica *r = &x->row->replica[i];

		if (i != x->at && r->state != ASH_REPLICA_ABSENT &&
		    mdm_unit_of(x->st, r->device) == unit)
			return true;
	}
	return false;
}

/* ---------------------------------------------------------------- first placement */

static const char *do_place(struct change *x)
{
	const Pb__PgChange *c = x->c;
	size_t n = c->n_place_devices;

	if (x->pool->had_volume)
		return "the pool has had volumes; its groups move by rebuilding only";
	if (n < 2 || n > ASH_ROW_REPLICAS_MAX)
		return "a placement names two to four devices";
	for (size_t i = 0; i < n; i++) {
		const Pb__Device *dev = mdm_device(x->st, c->place_devices[i]);

		if (!dev || dev->pool != x->pool->id || !mdm_device_usable(x->st, dev))
			return "a device of the placement is not up in this pool";
		for (size_t k = 0; k < i; k++)
			if (mdm_unit_of(x->st, c->place_devices[k]) == mdm_unit_of(x->st, dev->id))
				return "two copies would share a fault unit";
	}
	x->row->replicas = (uint8_t)n;
	memset(x->row->replica, 0, sizeof(x->row->replica));
	for (size_t i = 0; i < n; i++) {
		struct mdm_replica *r = &x->row->replica[i];

		r->device = c->place_devices[i];
		r->state = ASH_REPLICA_IN_SYNC;
		r->incarnation = mdm_device(x->st, r->device)->incarnation;
	}
	x->row->primary = 1;
	x->row->handover = x->row->last_count = 0;
	x->row->shrunk_at = 0;
	return NULL;
}

/* ---------------------------------------------------------------- leaving */

static const char *do_drop(struct change *x)
{
	if (x->at < 0)
		return "the device has no copy of this group";
	if (subject(x)->state == ASH_REPLICA_ABSENT)
		return "the copy is absent already";
	if (ASH_RULE(INCARNATION) && x->c->incarnation &&
	    x->c->incarnation != subject(x)->incarnation)
		return "the device was opened again meanwhile";
	if (subject(x)->state == ASH_REPLICA_IN_SYNC && mdm_row_in_sync(x->row) == 1)
		return "it is the last copy in sync, which no accusation can remove";
	mdm_row_lose(x->row, x->c->device, x->st->making);
	return NULL;
}

static const char *do_forget(struct change *x)
{
	if (x->at < 0)
		return "the device has no copy of this group";
	for (unsigned i = 0; i < x->row->last_count; i++)
		if (x->row->last[i] == x->c->device)
			return "it is one of the last copies in sync, and nobody serves";
	if (subject(x)->state == ASH_REPLICA_IN_SYNC) {
		if (x->row->primary == x->at + 1)
			return "the copy is the primary; hand over first";
		if (mdm_row_in_sync(x->row) < 3)
			return "two copies in sync have to stay";
	}
	mdm_row_cut(x->row, (unsigned)x->at);
	return NULL;
}

/* ---------------------------------------------------------------- coming back */

static const char *do_build(struct change *x)
{
	const char *why = check_open(x);

	if (why)
		return why;
	if (x->at < 0)
		return "the device has no copy of this group";
	if (subject(x)->state != ASH_REPLICA_ABSENT)
		return "the copy is not absent";
	if (!x->row->primary)
		return "nobody serves the group, so there is nothing to build from";
	if (unit_taken(x, mdm_unit_of(x->st, x->c->device)))
		return "another copy is in the same fault unit";
	subject(x)->state = ASH_REPLICA_BUILDING;
	subject(x)->incarnation = x->dev->incarnation;
	return NULL;
}

/* A new building copy, known to hold nothing. */
static const char *do_replace(struct change *x)
{
	const char *why = check_open(x);
	struct mdm_replica *r;

	if (why)
		return why;
	if (x->at >= 0)
		return "the device has a copy of this group already";
	if (!x->row->primary)
		return "nobody serves the group, so there is nothing to build from";
	if (x->row->replicas == ASH_ROW_REPLICAS_MAX)
		return "the group has four copies already; drop one first";
	if (unit_taken(x, mdm_unit_of(x->st, x->c->device)))
		return "another copy is in the same fault unit";
	r = &x->row->replica[x->row->replicas++];
	memset(r, 0, sizeof(*r));
	r->device = x->c->device;
	r->state = ASH_REPLICA_BUILDING;
	r->incarnation = x->dev->incarnation;
	return NULL;
}

/* The proposer is the primary, in the opening that it says. */
static const char *check_proposer(const struct change *x)
{
	const struct mdm_replica *p;
	const Pb__Device *dev;

	if (!x->row->primary)
		return "nobody serves the group";
	p = &x->row->replica[x->row->primary - 1];
	dev = mdm_device(x->st, p->device);
	if (ASH_RULE(INCARNATION) &&
	    (x->c->proposer_incarnation != p->incarnation || dev->incarnation != p->incarnation))
		return "the primary was opened again meanwhile";
	return NULL;
}

static const char *do_join(struct change *x)
{
	const char *why = check_open(x);

	if (!why)
		why = check_proposer(x);
	if (why)
		return why;
	if (x->at < 0 || subject(x)->state != ASH_REPLICA_BUILDING)
		return "the copy is not being built";
	if (ASH_RULE(INCARNATION) && subject(x)->incarnation != x->c->incarnation)
		return "the copy being built is of another opening";
	subject(x)->state = ASH_REPLICA_IN_SYNC;
	subject(x)->left_gen = 0;
	return NULL;
}

static bool in_last_set(const struct mdm_row *row, uint64_t device)
{
	for (unsigned i = 0; i < row->last_count; i++)
		if (row->last[i] == device)
			return true;
	return false;
}

/* After an outage of the whole set: it narrows to the subject before anything is served. */
static const char *do_activate(struct change *x)
{
	const char *why = check_open(x);

	if (why)
		return why;
	if (x->row->primary)
		return "the group is served";
	if (x->at < 0 || (ASH_RULE(LAST_SET) && !in_last_set(x->row, x->c->device)))
		return "the device is not one of the last copies in sync";
	for (int i = 0; i < x->row->replicas; i++)
		if (i != x->at && x->row->replica[i].state == ASH_REPLICA_BUILDING &&
		    mdm_unit_of(x->st, x->row->replica[i].device) ==
			    mdm_unit_of(x->st, x->c->device))
			x->row->replica[i].state = ASH_REPLICA_ABSENT;
	subject(x)->state = ASH_REPLICA_IN_SYNC;
	subject(x)->incarnation = x->dev->incarnation;
	subject(x)->left_gen = 0;
	x->row->primary = (uint8_t)(x->at + 1);
	x->row->last_count = 0;
	return NULL;
}

/* ---------------------------------------------------------------- roles */

static const char *do_bump(struct change *x)
{
	return x->row->gen ? NULL : "the group is not placed";
}

static const char *do_handover(struct change *x)
{
	if (x->at < 0 || subject(x)->state != ASH_REPLICA_IN_SYNC)
		return "only a copy in sync can become primary";
	if (x->row->primary == x->at + 1)
		return "the copy is the primary already";
	if (x->row->handover == x->at + 1)
		return "the hand-over is under way";
	x->row->handover = (uint8_t)(x->at + 1);
	return NULL;
}

/* The old primary has stopped and drained, so it may stay, as a secondary in sync. */
static const char *do_handed(struct change *x)
{
	const char *why = check_proposer(x);

	if (why)
		return why;
	if (x->at < 0 || x->row->handover != x->at + 1)
		return "no hand-over to this device is under way";
	if (ASH_RULE(INCARNATION) && x->c->incarnation &&
	    x->c->incarnation != subject(x)->incarnation)
		return "the device was opened again meanwhile";
	x->row->primary = x->row->handover;
	x->row->handover = 0;
	return NULL;
}

/* ---------------------------------------------------------------- batches */

static const char *do_change(struct change *x)
{
	const Pb__PgChange *c = x->c;

	if (!x->pool || c->pg >= x->rows->pg_count)
		return "there is no such placement group";
	x->row = &x->rows->row[c->pg];
	if (ASH_RULE(EXPECT_GEN) && c->expect_gen != x->row->gen)
		return "the group has another generation now";
	x->at = mdm_row_find(x->row, c->device);
	x->dev = mdm_device(x->st, c->device);
	switch (c->action) {
	case PB__PG_ACTION__PG_PLACE:
		return do_place(x);
	case PB__PG_ACTION__PG_DROP:
		return do_drop(x);
	case PB__PG_ACTION__PG_JOIN:
		return do_join(x);
	case PB__PG_ACTION__PG_BUMP:
		return do_bump(x);
	case PB__PG_ACTION__PG_BUILD:
		return do_build(x);
	case PB__PG_ACTION__PG_ACTIVATE:
		return do_activate(x);
	case PB__PG_ACTION__PG_REPLACE:
		return do_replace(x);
	case PB__PG_ACTION__PG_FORGET:
		return do_forget(x);
	case PB__PG_ACTION__PG_HANDOVER:
		return do_handover(x);
	case PB__PG_ACTION__PG_HANDED:
		return do_handed(x);
	default:
		return "the action is unknown to this MDM";
	}
}

static Pb__PgAnswer *answer(struct mdm_state *st, const Pb__PgChange *c)
{
	struct change x = {.st = st, .c = c, .pool = mdm_pool(st, c->pool), .at = -1};
	Pb__PgAnswer *a = ash_xcalloc(1, sizeof(*a));
	const char *why;

	pb__pg_answer__init(a);
	x.rows = x.pool ? mdm_rows(st, c->pool) : NULL;
	why = do_change(&x);
	a->action = c->action;
	a->applied = !why;
	mdm_set_string(&a->why, why);
	if (!why)
		mdm_row_touch(st, x.rows, c->pg);
	/* Where nobody serves nobody is in sync, and the reverse. */
	if (x.row)
		assert(!x.row->primary == !mdm_row_in_sync(x.row));
	if (x.row)
		a->row = mdm_row_pb(x.rows, c->pg);
	return a;
}

static struct ash_error batch_check(const struct mdm_state *st, const void *body)
{
	return ash_error_ok(); /* each change is judged alone, when it is applied */
}

struct tally {
	unsigned dropped, activated, replaced;
	const Pb__PgChange *drop, *activate, *replace;
};

/* One line per batch, not per group. */
static void tell(struct mdm_state *st, const struct tally *t)
{
	if (t->dropped)
		mdm_event(st, PB__SEVERITY__SEV_WARNING, "COPIES_DROPPED", PB__KIND__KIND_DEVICE,
			  mdm_name(st, PB__KIND__KIND_DEVICE, t->drop->device),
			  "%u copies were taken out of service, the first on device \"%s\": %s",
			  t->dropped, mdm_name(st, PB__KIND__KIND_DEVICE, t->drop->device),
			  *t->drop->reason ? t->drop->reason : "no reason given");
	if (t->replaced)
		mdm_event(st, PB__SEVERITY__SEV_INFO, "COPIES_REPLACED", PB__KIND__KIND_POOL,
			  mdm_name(st, PB__KIND__KIND_POOL, t->replace->pool),
			  "%u copies are made anew, the first on device \"%s\"", t->replaced,
			  mdm_name(st, PB__KIND__KIND_DEVICE, t->replace->device));
	if (t->activated)
		mdm_event(
			st, PB__SEVERITY__SEV_INFO, "GROUPS_ACTIVATED", PB__KIND__KIND_POOL,
			mdm_name(st, PB__KIND__KIND_POOL, t->activate->pool),
			"%u placement groups are served again after an outage of all their copies",
			t->activated);
}

static void batch_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdPgBatch *c = body;
	struct tally t = {0};

	res->answers_count = c->n_changes;
	res->answers = ash_xcalloc(c->n_changes, sizeof(*res->answers));
	for (size_t i = 0; i < c->n_changes; i++) {
		const Pb__PgChange *change = c->changes[i];

		res->answers[i] = answer(st, change);
		if (!res->answers[i]->applied)
			continue;
		if (change->action == PB__PG_ACTION__PG_DROP && !t.dropped++)
			t.drop = change;
		if (change->action == PB__PG_ACTION__PG_ACTIVATE && !t.activated++)
			t.activate = change;
		if (change->action == PB__PG_ACTION__PG_REPLACE && !t.replaced++)
			t.replace = change;
	}
	tell(st, &t);
}

const struct mdm_verb mdm_verb_pg_batch = {batch_check, batch_apply};
