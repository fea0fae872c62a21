// SPDX-License-Identifier: MIT
/*
 * What we ask the MDM to change about PGs. Each request gets a definite answer, applied or the row
 * as it is; without one it is repeated as long as the row is what it was decided on.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/base/err.h"
#include "sds/core/sds_int.h"

void mdm_want(struct sds_pg *pg, Pb__PgAction action, uint64_t device, uint64_t incarnation,
	      const char *reason)
{
	struct sds *s = pg->s;
	struct sds_want *w = &pg->want;

	if (w->action && w->gen == pg->row.gen) {
		bool same = w->action == action && w->device == device;

		/* Removing a copy goes before everything else; a bump before a join. */
		if (same || w->action == PB__PG_ACTION__PG_DROP ||
		    (w->action == PB__PG_ACTION__PG_BUMP && action != PB__PG_ACTION__PG_DROP))
			return;
	}
	sds_trace(s, ASH_LOG_NOTICE,
		  "event=pg_want pool=%llu pg=%u gen=%llu action=%d device=%llu why=\"%s\"",
		  (unsigned long long)pg->pool->id, pg->pg, (unsigned long long)pg->row.gen, action,
		  (unsigned long long)device, reason);
	*w = (struct sds_want){.action = (uint8_t)action,
			       .device = device,
			       .incarnation = incarnation,
			       .gen = pg->row.gen,
			       .reason = reason};
	if (ash_list_empty(&pg->want_link))
		ash_list_push_back(&s->wants, &pg->want_link);
}

void mdm_unwant(struct sds_pg *pg)
{
	pg->want.action = 0;
	ash_list_remove(&pg->want_link);
}

/* ------------------------------------------------------------ answers */

struct asked {
	uint64_t pool;
	uint32_t pg;
	struct sds_want want;
};

struct report {
	struct sds *s;
	unsigned count;
	struct asked asked[];
};

static void row_to_wire(const struct sds *s, const Pb__Row *r, struct ash_wire_row *w)
{
	memset(w, 0, sizeof(*w));
	w->pool = ash_put64(r->pool);
	w->gen = ash_put64(r->gen);
	w->shrunk_at = ash_put64(r->shrunk_at);
	w->pg = ash_put32(r->pg);
	w->replicas = (uint8_t)r->n_replicas;
	w->primary = r->primary ? (uint8_t)(r->primary - 1) : ASH_NO_PRIMARY;
	for (size_t i = 0; i < r->n_replicas && i < ASH_ROW_REPLICAS_MAX; i++) {
		const Pb__Replica *from = r->replicas[i];
		const struct ash_map_device *d = ash_map_device(s->map, from->device);
		const struct ash_map_sds *o = d ? ash_map_sds(s->map, d->sds) : NULL;
		struct ash_wire_replica *to = &w->replica[i];

		to->device = ash_put64(from->device);
		to->incarnation = ash_put64(from->incarnation);
		to->left_gen = ash_put64(from->left_gen);
		to->state = (uint8_t)from->state;
		if (!o)
			continue;
		to->sds = ash_put64(o->id);
		if (d->reactor >= o->endpoints)
			continue;
		memcpy(to->endpoint.ip, o->endpoint[d->reactor].ip, 16);
		to->endpoint.port = ash_put16(o->endpoint[d->reactor].port);
		to->endpoint.transport = o->endpoint[d->reactor].transport;
	}
}

/* Refused at the very row that it was decided on. */
static void refused(struct sds_pg *pg, const struct sds_want *w, const char *why)
{
	struct sds *s = pg->s;

	sds_trace(s, ASH_LOG_WARN,
		  "event=pg_refused pool=%llu pg=%u gen=%llu action=%d device=%llu why=\"%s\"",
		  (unsigned long long)pg->pool->id, pg->pg, (unsigned long long)w->gen, w->action,
		  (unsigned long long)w->device, why);
	mdm_unwant(pg);
	s->report_ns = sds_now(s) + 100 * MS;
	if (w->action == PB__PG_ACTION__PG_JOIN)
		/* The promise ends by a newer gen only. */
		mdm_want(pg, PB__PG_ACTION__PG_BUMP, 0, 0, "the join was refused");
	if (w->action == PB__PG_ACTION__PG_DROP && pg->blocked && pg->dev &&
	    pg->dev->id == w->device) {
		/* We are the last copy: better with bad blocks than not at all. */
		pg->blocked = false;
		pg_touch(pg);
	}
}

static void answered(struct sds *s, const struct asked *a, const Pb__PgAnswer *answer)
{
	struct sds_pg *pg = pg_at(s, a->pool, a->pg);
	struct ash_wire_row row;

	if (!pg)
		return;
	if (answer->row && answer->row->pool == a->pool && answer->row->pg == a->pg &&
	    answer->row->gen > pg->row.gen) {
		row_to_wire(s, answer->row, &row);
		mdm_take_row(s, &row);
	}
	if (pg->row.gen != a->want.gen || pg->want.gen != a->want.gen ||
	    pg->want.action != a->want.action || pg->want.device != a->want.device)
		return;
	pg->want.in_flight = false;
	if (!answer->applied && answer->row && answer->row->gen == a->want.gen)
		refused(pg, &a->want, answer->why ? answer->why : "");
}

static void report_done(void *arg, int result, const Pb__Reply *reply)
{
	struct report *r = arg;
	struct sds *s = r->s;
	const Pb__PgReportReply *pg = NULL;

	s->reporting = false;
	if (!result && reply->r_case == PB__REPLY__R_PG_REPORT)
		pg = reply->pg_report;
	else
		s->report_ns = sds_now(s) + 50 * MS;
	for (unsigned i = 0; i < r->count; i++) {
		struct sds_pg *p = pg_at(s, r->asked[i].pool, r->asked[i].pg);

		if (p && p->want.gen == r->asked[i].want.gen)
			p->want.in_flight = false; /* repeated, unless answered */
		if (pg && i < pg->n_answers)
			answered(s, &r->asked[i], pg->answers[i]);
	}
	free(r);
}

/* ------------------------------------------------------------ asking */

static void fill(const struct sds_pg *pg, Pb__PgChange *c)
{
	pb__pg_change__init(c);
	c->action = pg->want.action;
	c->pool = pg->pool->id;
	c->pg = pg->pg;
	c->expect_gen = pg->want.gen;
	c->device = pg->want.device;
	c->incarnation = pg->want.incarnation;
	if (pg->dev)
		c->proposer_incarnation = pg->dev->label.incarnation;
	c->reason = (char *)pg->want.reason;
}

void mdm_report(struct sds *s)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__PgReport report = PB__PG_REPORT__INIT;
	Pb__PgChange *change, **list;
	struct report *r;
	unsigned n = 0;

	if (s->reporting || !s->registered || ash_list_empty(&s->wants) ||
	    sds_now(s) < s->report_ns)
		return;
	r = ash_xcalloc(1, sizeof(*r) + REPORT_MAX * sizeof(r->asked[0]));
	change = ash_xcalloc(REPORT_MAX, sizeof(*change));
	list = ash_xcalloc(REPORT_MAX, sizeof(*list));
	ash_list_each(l, &s->wants) {
		struct sds_pg *pg = ash_container_of(l, struct sds_pg, want_link);

		if (n == REPORT_MAX)
			break;
		if (pg->want.in_flight || pg->want.gen != pg->row.gen)
			continue;
		pg->want.in_flight = true;
		fill(pg, &change[n]);
		list[n] = &change[n];
		r->asked[n++] =
			(struct asked){.pool = pg->pool->id, .pg = pg->pg, .want = pg->want};
	}
	if (n) {
		r->s = s;
		r->count = n;
		report.n_changes = n;
		report.changes = list;
		req.r_case = PB__REQUEST__R_PG_REPORT;
		req.pg_report = &report;
		s->reporting = true;
		s->ctl->ops->call(s->ctl, &req, 1000, report_done, r);
		s->report_ns = sds_now(s) + 10 * MS;
	} else {
		free(r);
	}
	free(change);
	free(list);
}
