/* SPDX-License-Identifier: MIT */
/* What each receiver gets of the map: its part of it, and of that what it has not. */
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/base/htab.h"
#include "mdm/core/state.h"

struct cut {
	const struct mdm_state *st;
	Pb__Map *map;
	enum mdm_audience audience;
	uint64_t id, have;
	uint64_t domain; /* SDS: its own. 0 = any */
	/* SDC: what its mappings make it need. Value: NEED_DELTA or NEED_ALL. */
	struct ash_htab pools, volumes, sdss;
	bool new_pool; /* some pool is new to it as a whole */
};

#define NO_DOMAIN UINT64_MAX
#define NEED_DELTA ((void *)1)
#define NEED_ALL ((void *)2)

/* Appends a copy of an object to a repeated field of the map. */
#define PUT(cut, field, obj)                                                                       \
	do {                                                                                       \
		(cut)->map->field = mdm_list_grow((cut)->map->field, (cut)->map->n_##field);       \
		(cut)->map->field[(cut)->map->n_##field++] = mdm_pb_clone(obj);                    \
	} while (0)

static void need(struct ash_htab *t, uint64_t id, bool all)
{
	if (all || !ash_htab_get(t, id))
		if (ash_htab_put(t, id, all ? NEED_ALL : NEED_DELTA))
			abort();
}

/* New to this receiver as a whole, or only where it changed? */
static bool wanted(const struct cut *cut, const struct ash_htab *t, uint64_t id, uint64_t version)
{
	void *n;

	if (cut->audience != MDM_FOR_SDC)
		return version > cut->have;
	n = ash_htab_get(t, id);
	return n && (n == NEED_ALL || version > cut->have);
}

static void find_needs(struct cut *cut)
{
	if (cut->audience != MDM_FOR_SDC)
		return;
	MDM_EACH(cut->st, PB__KIND__KIND_MAPPING, Pb__Mapping, m) {
		const Pb__Volume *vol = mdm_volume(cut->st, m->volume);

		if (m->sdc != cut->id)
			continue;
		need(&cut->volumes, vol->id, m->created > cut->have);
		need(&cut->pools, vol->pool, m->created > cut->have);
		cut->new_pool |= m->created > cut->have;
	}
}

static bool in_domain(const struct cut *cut, uint64_t domain)
{
	return !cut->domain || cut->domain == domain;
}

static bool pool_in_domain(const struct cut *cut, uint64_t pool)
{
	return !cut->domain || mdm_pool(cut->st, pool)->domain == cut->domain;
}

static void put_layout(struct cut *cut)
{
	const struct mdm_state *st = cut->st;

	if (st->system && st->system->version > cut->have)
		cut->map->system = mdm_pb_clone(st->system);
	MDM_EACH(st, PB__KIND__KIND_MDM, Pb__MdmMember, m)
		if (m->version > cut->have)
			PUT(cut, mdms, m);
	if (cut->audience == MDM_FOR_SDC)
		return;
	MDM_EACH(st, PB__KIND__KIND_DOMAIN, Pb__Domain, d)
		if (d->version > cut->have && in_domain(cut, d->id))
			PUT(cut, domains, d);
	MDM_EACH(st, PB__KIND__KIND_FAULT_SET, Pb__FaultSet, fs)
		if (fs->version > cut->have && in_domain(cut, fs->domain))
			PUT(cut, fault_sets, fs);
}

/* Is anything of this SDS part of what an SDC needs? */
static bool sds_needed(const struct cut *cut, uint64_t sds)
{
	MDM_EACH(cut->st, PB__KIND__KIND_DEVICE, Pb__Device, dev)
		if (dev->sds == sds && ash_htab_get(&cut->pools, dev->pool))
			return true;
	return false;
}

/* An SDC follows thousands of changes that are not its own: what did not change costs a compare. */
static void put_servers(struct cut *cut)
{
	const struct mdm_state *st = cut->st;
	bool for_sdc = cut->audience == MDM_FOR_SDC;

	MDM_EACH(st, PB__KIND__KIND_POOL, Pb__Pool, pool)
		if (in_domain(cut, pool->domain) &&
		    wanted(cut, &cut->pools, pool->id, pool->version))
			PUT(cut, pools, pool);
	MDM_EACH(st, PB__KIND__KIND_DEVICE, Pb__Device, dev) {
		if ((dev->version <= cut->have && !cut->new_pool) ||
		    !pool_in_domain(cut, dev->pool) ||
		    !wanted(cut, &cut->pools, dev->pool, dev->version))
			continue;
		PUT(cut, devices, dev);
		/* With a device that is new to it an SDC may need the SDS too. */
		if (for_sdc)
			need(&cut->sdss, dev->sds, true);
	}
	MDM_EACH(st, PB__KIND__KIND_SDS, Pb__Sds, sds)
		if (for_sdc ? ash_htab_get(&cut->sdss, sds->id) ||
				      (sds->version > cut->have && sds_needed(cut, sds->id))
			    : sds->version > cut->have && in_domain(cut, sds->domain))
			PUT(cut, sdss, sds);
}

static void put_volumes(struct cut *cut)
{
	const struct mdm_state *st = cut->st;

	MDM_EACH(st, PB__KIND__KIND_VOLUME, Pb__Volume, vol)
		if (pool_in_domain(cut, vol->pool) &&
		    wanted(cut, &cut->volumes, vol->id, vol->version))
			PUT(cut, volumes, vol);
	MDM_EACH(st, PB__KIND__KIND_MAPPING, Pb__Mapping, m)
		if (m->version > cut->have &&
		    (cut->audience == MDM_FOR_SDC
			     ? m->sdc == cut->id
			     : pool_in_domain(cut, mdm_volume(st, m->volume)->pool)))
			PUT(cut, mappings, m);
	MDM_EACH(st, PB__KIND__KIND_SDC, Pb__Sdc, sdc)
		if (sdc->version > cut->have &&
		    (cut->audience != MDM_FOR_SDC || sdc->id == cut->id))
			PUT(cut, sdcs, sdc);
}

static void put_pending(struct cut *cut)
{
	const struct mdm_state *st = cut->st;

	if (cut->audience == MDM_FOR_SDC)
		return;
	MDM_EACH(st, PB__KIND__KIND_FENCE, Pb__Fence, f)
		if (f->version > cut->have) /* of any domain: its volume may be gone */
			PUT(cut, fences, f);
	MDM_EACH(st, PB__KIND__KIND_TOMBSTONE, Pb__Tombstone, t)
		if (t->version > cut->have && pool_in_domain(cut, t->pool))
			PUT(cut, tombstones, t);
}

static void put_rows(struct cut *cut)
{
	size_t n = 0;

	for (size_t i = 0; i < cut->st->rows_count; i++)
		n += cut->st->rows[i]->pg_count;
	cut->map->rows = ash_xcalloc(n, sizeof(*cut->map->rows));
	for (size_t i = 0; i < cut->st->rows_count; i++) {
		const struct mdm_rows *rows = cut->st->rows[i];
		uint64_t have = cut->have;

		if (!pool_in_domain(cut, rows->pool))
			continue;
		if (cut->audience == MDM_FOR_SDC) {
			void *needed = ash_htab_get(&cut->pools, rows->pool);

			if (!needed)
				continue;
			have = needed == NEED_ALL ? 0 : have;
		}
		for (uint32_t pg = rows->newest; pg != MDM_NO_ROW && rows->row[pg].gen > have;
		     pg = rows->row[pg].older)
			cut->map->rows[cut->map->n_rows++] = mdm_row_pb(rows, pg);
	}
}

static void put_removed(struct cut *cut)
{
	const struct mdm_state *st = cut->st;
	size_t from = st->removed_count;

	while (from > 0 && st->removed[from - 1]->version > cut->have)
		from--;
	for (size_t i = from; cut->have && i < st->removed_count; i++)
		PUT(cut, removed, st->removed[i]);
}

Pb__Map *mdm_map_for(const struct mdm_state *st, enum mdm_audience audience, uint64_t id,
		     uint64_t have)
{
	struct cut cut = {.st = st, .audience = audience, .id = id, .have = have};
	const Pb__Sds *sds = audience == MDM_FOR_SDS ? mdm_sds(st, id) : NULL;

	cut.map = ash_xcalloc(1, sizeof(*cut.map));
	pb__map__init(cut.map);
	cut.map->version = st->version;
	if (have < st->removed_floor)
		cut.have = 0;
	if (have > st->version)
		cut.have =
			st->version; /* the receiver knows more than this member: nothing to add */
	cut.map->base_version = cut.have;
	if (audience == MDM_FOR_SDS)
		cut.domain = sds ? sds->domain : NO_DOMAIN; /* removed meanwhile: nothing is its */
	find_needs(&cut);
	put_layout(&cut);
	put_servers(&cut);
	put_volumes(&cut);
	put_pending(&cut);
	put_rows(&cut);
	put_removed(&cut);
	cut.map->place_version = mdm_place_version(st, cut.domain);
	ash_htab_done(&cut.pools);
	ash_htab_done(&cut.volumes);
	ash_htab_done(&cut.sdss);
	return cut.map;
}
