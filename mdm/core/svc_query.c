/* SPDX-License-Identifier: MIT */
/* Questions: state and health in numbers, events, the map. Answered by any MDM. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/base/size.h"
#include "mdm/core/service_int.h"

#define EVENTS_DEFAULT 100

struct report {
	struct mdm_service *svc;
	Pb__QueryReply *q;
};

static void add_text(char ***list, size_t *count, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void add_text(char ***list, size_t *count, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	*list = mdm_list_grow(*list, *count);
	(*list)[(*count)++] = ash_xstrdup(text);
}

static void worse(struct report *r, Pb__Health health)
{
	if (health > r->q->health)
		r->q->health = health;
}

/* ---------------------------------------------------------------- pools */

/* What the leader's last look at the rows found. */
static void tell_rebuild(struct report *r, const Pb__Pool *pool, Pb__PoolStatus *s)
{
	const struct svc_pool *p = svc_pool(r->svc, pool->id);

	if (p->waits)
		add_text(
			&s->warnings, &s->n_warnings,
			"%u placement groups wait for a lost copy to come back; it is made anew on "
			"another device after %u s (`ashlar pool set --rebuild-grace`)",
			p->waits, pool->rebuild_grace_ms / 1000);
	if (p->stuck)
		add_text(
			&s->warnings, &s->n_warnings,
			"%u placement groups have no second copy, and no device that can take one: "
			"none in another fault unit is up and has room; bring the lost devices back, "
			"add devices, or delete volumes",
			p->stuck);
}

static void count_groups(struct report *r, const Pb__Pool *pool, Pb__PoolStatus *s)
{
	const struct mdm_rows *rows = mdm_rows(r->svc->st, pool->id);
	uint32_t unplaced = 0;

	for (uint32_t pg = 0; pg < rows->pg_count; pg++) {
		const struct mdm_row *row = &rows->row[pg];
		bool building = false;

		for (unsigned i = 0; i < row->replicas; i++)
			building |= row->replica[i].state == ASH_REPLICA_BUILDING;
		if (!row->replicas || (!row->primary && !pool->had_volume))
			unplaced++;
		else if (!row->primary)
			s->failed_pgs++;
		else if (mdm_row_in_sync(row) < 2)
			s->degraded_pgs++;
		s->building_pgs += building;
	}
	s->pgs = rows->pg_count;
	if (unplaced)
		add_text(&s->warnings, &s->n_warnings,
			 "%u of %u placement groups are not placed: devices in two fault units are "
			 "needed",
			 unplaced, s->pgs);
	if (s->failed_pgs) {
		worse(r, PB__HEALTH__HEALTH_FAILED);
		add_text(&r->q->reasons, &r->q->n_reasons,
			 "storage pool \"%s\": %u placement groups have no current copy available",
			 pool->name, s->failed_pgs);
	}
	if (s->degraded_pgs) {
		worse(r, PB__HEALTH__HEALTH_DEGRADED);
		add_text(&r->q->reasons, &r->q->n_reasons,
			 "storage pool \"%s\": %u placement groups have one current copy only",
			 pool->name, s->degraded_pgs);
	}
	if (svc_serves(r->svc))
		tell_rebuild(r, pool, s);
	r->q->pgs += s->pgs;
	r->q->degraded_pgs += s->degraded_pgs;
	r->q->failed_pgs += s->failed_pgs;
}

static uint64_t percent_of(uint64_t part, uint64_t whole)
{
	return whole ? (part * 100 + whole - 1) / whole : 0;
}

static void warn_capacity(struct report *r, const Pb__Pool *pool, const struct mdm_capacity *cap,
			  Pb__PoolStatus *s)
{
	char spare[24], unit[24];

	if (cap->devices && cap->units < 2)
		add_text(&s->warnings, &s->n_warnings,
			 "all devices are in one fault unit; two copies need two");
	if (cap->units >= 3 && cap->spare < cap->largest_unit)
		add_text(&s->warnings, &s->n_warnings,
			 "spare of %s is below the share of the largest fault unit, %s: after its "
			 "loss not everything can be rebuilt; set the spare to %llu %%",
			 ash_size_format(cap->spare, spare, sizeof(spare)),
			 ash_size_format(cap->largest_unit, unit, sizeof(unit)),
			 (unsigned long long)percent_of(cap->largest_unit, cap->raw));
	if (cap->devices && 2ull * s->pgs / cap->devices < MDM_REPLICAS_GOOD)
		add_text(
			&s->warnings, &s->n_warnings,
			"%llu replicas per device are few (%d are good): devices will not be filled "
			"evenly; a pool with more placement groups would",
			(unsigned long long)(2ull * s->pgs / cap->devices), MDM_REPLICAS_GOOD);
	if (s->capacity->usable && percent_of(s->capacity->used, s->capacity->usable) >= 90)
		add_text(&s->warnings, &s->n_warnings, "%llu %% of the usable capacity is in use",
			 (unsigned long long)percent_of(s->capacity->used, s->capacity->usable));
}

static void add_capacity(Pb__CapacityUse *sum, const Pb__CapacityUse *c)
{
	sum->raw += c->raw;
	sum->spare += c->spare;
	sum->used += c->used;
	sum->usable += c->usable;
	sum->free += c->free;
	sum->provisioned += c->provisioned;
}

/* raw and spare count every byte of the devices; the rest counts one copy of the data. */
static void add_pool(struct report *r, const Pb__Pool *pool)
{
	Pb__PoolStatus *s = ash_xcalloc(1, sizeof(*s));
	struct mdm_capacity cap;
	uint64_t taken;
	bool known;

	pb__pool_status__init(s);
	s->pool = pool->id;
	mdm_set_string(&s->name, pool->name);
	count_groups(r, pool, s);
	mdm_capacity(r->svc->st, pool, pool->spare_pct, &cap);
	s->capacity = ash_xcalloc(1, sizeof(*s->capacity));
	pb__capacity_use__init(s->capacity);
	s->capacity->raw = cap.raw;
	s->capacity->spare = cap.spare;
	s->capacity->usable = cap.usable;
	s->capacity->used = ctl_pool_used(r->svc, pool->id, &known);
	s->capacity->provisioned = cap.thick + cap.thin;
	/* Thick volumes own their size, written or not. */
	taken = s->capacity->used > cap.thick ? s->capacity->used : cap.thick;
	s->capacity->free = cap.usable > taken ? cap.usable - taken : 0;
	warn_capacity(r, pool, &cap, s);
	for (size_t i = 0; i < s->n_warnings; i++)
		add_text(&r->q->reasons, &r->q->n_reasons, "storage pool \"%s\": %s", pool->name,
			 s->warnings[i]);
	add_capacity(r->q->capacity, s->capacity);
	r->q->pools = mdm_list_grow(r->q->pools, r->q->n_pools);
	r->q->pools[r->q->n_pools++] = s;
}

/* ---------------------------------------------------------------- servers, devices, volumes */

static void add_servers(struct report *r)
{
	const struct mdm_state *st = r->svc->st;

	MDM_EACH(st, PB__KIND__KIND_SDS, Pb__Sds, sds) {
		if (sds->up)
			continue;
		worse(r, PB__HEALTH__HEALTH_DEGRADED);
		add_text(&r->q->reasons, &r->q->n_reasons,
			 sds->session.len ? "SDS \"%s\" is down"
					  : "SDS \"%s\" has never registered",
			 sds->name);
	}
	MDM_EACH(st, PB__KIND__KIND_DEVICE, Pb__Device, dev) {
		const char *what = dev->state == PB__DEVICE_STATE__DEVICE_FAILED ? "has failed"
				   : dev->state == PB__DEVICE_STATE__DEVICE_DOWN ? "is not open"
										 : NULL;

		if (!what)
			continue;
		worse(r, PB__HEALTH__HEALTH_DEGRADED);
		add_text(&r->q->reasons, &r->q->n_reasons, "device \"%s\" of SDS \"%s\" %s",
			 dev->name, mdm_name(st, PB__KIND__KIND_SDS, dev->sds), what);
	}
	MDM_EACH(st, PB__KIND__KIND_FENCE, Pb__Fence, f)
		add_text(&r->q->reasons, &r->q->n_reasons,
			 "the unmap of node %llu from SDC \"%s\" is not confirmed by %zu SDSs yet",
			 (unsigned long long)f->node, mdm_name(st, PB__KIND__KIND_SDC, f->sdc),
			 f->n_pending_sds);
}

static void add_device_stats(struct report *r)
{
	MDM_EACH(r->svc->st, PB__KIND__KIND_DEVICE, Pb__Device, dev) {
		const struct svc_dev *d = ash_htab_get(&r->svc->devs, dev->id);

		if (!d || !d->reported)
			continue;
		r->q->devices = mdm_list_grow(r->q->devices, r->q->n_devices);
		r->q->devices[r->q->n_devices++] = mdm_pb_clone(&d->stats);
	}
	MDM_EACH(r->svc->st, PB__KIND__KIND_SDS, Pb__Sds, sds) {
		const struct svc_sds *known = ash_htab_get(&r->svc->sdss, sds->id);

		for (size_t i = 0; known && i < known->resyncs; i++) {
			r->q->resync = mdm_list_grow(r->q->resync, r->q->n_resync);
			r->q->resync[r->q->n_resync++] = mdm_pb_clone(known->resync[i]);
		}
	}
}

/* Allocated bytes of a volume: its extents on all devices, two of which make one chunk. */
static void add_volume_use(struct report *r)
{
	struct ash_htab by_node = {0};

	MDM_EACH(r->svc->st, PB__KIND__KIND_VOLUME, Pb__Volume, vol) {
		Pb__VolumeUse *use = ash_xcalloc(1, sizeof(*use));

		pb__volume_use__init(use);
		use->volume = vol->id;
		r->q->volumes = mdm_list_grow(r->q->volumes, r->q->n_volumes);
		r->q->volumes[r->q->n_volumes++] = use;
		if (ash_htab_put(&by_node, vol->node, use))
			abort();
	}
	MDM_EACH(r->svc->st, PB__KIND__KIND_DEVICE, Pb__Device, dev) {
		const struct svc_dev *d = ash_htab_get(&r->svc->devs, dev->id);

		for (size_t i = 0; d && i < d->node_count; i++) {
			Pb__VolumeUse *use = ash_htab_get(&by_node, d->nodes[i]);

			if (use)
				use->allocated += d->extents[i] * (ASH_CHUNK_BYTES / 2);
		}
	}
	ash_htab_done(&by_node);
}

/* ---------------------------------------------------------------- MDMs, events */

static void add_mdms(struct report *r)
{
	MDM_EACH(r->svc->st, PB__KIND__KIND_MDM, Pb__MdmMember, m) {
		Pb__MdmStatus *s = ash_xcalloc(1, sizeof(*s));
		bool self = m->id == r->svc->own_id;

		pb__mdm_status__init(s);
		s->id = m->id;
		s->role = m->role;
		mdm_set_string(&s->name, m->name);
		mdm_set_string(&s->client_address, m->client_address);
		mdm_set_string(&s->raft_address, m->raft_address);
		if (self) {
			s->applied = r->svc->st->applied;
			s->reachable = true;
		}
		if (r->svc->port->member_status)
			r->svc->port->member_status(r->svc->port, s);
		if (!*s->state)
			mdm_set_string(&s->state, self && r->svc->leader ? "leader" : "member");
		if (r->svc->leader && !s->reachable) {
			worse(r, PB__HEALTH__HEALTH_DEGRADED);
			add_text(&r->q->reasons, &r->q->n_reasons, "MDM \"%s\" is not reachable",
				 m->name);
		}
		r->q->mdms = mdm_list_grow(r->q->mdms, r->q->n_mdms);
		r->q->mdms[r->q->n_mdms++] = s;
	}
}

/* Those with a number above @after; without it the newest. */
static void add_events(struct report *r, uint64_t after, uint32_t limit)
{
	const struct mdm_state *st = r->svc->st;
	size_t from = 0;

	if (!limit)
		limit = EVENTS_DEFAULT;
	while (from < st->events_count && st->events[from]->seq <= after)
		from++;
	if (!after && st->events_count > limit)
		from = st->events_count - limit;
	for (size_t i = from; i < st->events_count && i - from < limit; i++) {
		r->q->events = mdm_list_grow(r->q->events, r->q->n_events);
		r->q->events[r->q->n_events++] = mdm_pb_clone(st->events[i]);
	}
}

static void add_status(struct report *r)
{
	r->q->capacity = ash_xcalloc(1, sizeof(*r->q->capacity));
	pb__capacity_use__init(r->q->capacity);
	MDM_EACH(r->svc->st, PB__KIND__KIND_POOL, Pb__Pool, pool)
		add_pool(r, pool);
	add_servers(r);
	add_device_stats(r);
	add_volume_use(r);
	add_mdms(r);
	if (!r->svc->leader)
		add_text(&r->q->reasons, &r->q->n_reasons,
			 "this MDM does not lead: used capacity is known to the leader (%s) only",
			 *r->svc->leader_address ? r->svc->leader_address : "none is known");
	if (r->svc->leader && r->svc->tie_breaker) {
		worse(r, PB__HEALTH__HEALTH_DEGRADED);
		add_text(
			&r->q->reasons, &r->q->n_reasons,
			"the tie-breaker leads: no MDM is up to date and reachable, so nothing can "
			"be changed");
	}
}

void svc_query(struct mdm_session *s, uint64_t id, const Pb__Query *query)
{
	struct mdm_service *svc = s->svc;
	Pb__Reply reply = PB__REPLY__INIT;
	struct report r = {.svc = svc, .q = ash_xcalloc(1, sizeof(*r.q))};
	struct ash_error err;

	pb__query_reply__init(r.q);
	mdm_set_string(&r.q->leader, svc->leader_address);
	if (!strcmp(query->what, "status") || !*query->what) {
		add_status(&r);
	} else if (!strcmp(query->what, "map")) {
		r.q->map = mdm_map_for(svc->st, MDM_FOR_ADMIN, 0, 0);
	} else if (!strcmp(query->what, "events")) {
		add_events(&r, query->after, query->limit);
	} else if (!strcmp(query->what, "mdm")) {
		add_mdms(&r);
	} else {
		err = ash_error_make(
			ASH_E_INVALID,
			"\"%s\" cannot be asked for; ask for status, map, events or mdm",
			query->what);
		svc_reply_error(s, id, &err);
		mdm_pb_free(r.q);
		return;
	}
	reply.r_case = PB__REPLY__R_QUERY;
	reply.query = r.q;
	svc_reply(s, id, &reply);
	mdm_pb_free(r.q);
}
