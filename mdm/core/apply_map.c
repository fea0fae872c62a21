/* SPDX-License-Identifier: MIT */
/* SDCs, mappings, opens, and the fences that an unmap leaves behind. */
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/base/htab.h"
#include "mdm/core/state.h"

#define VOLUME_NAME(st, id) mdm_name(st, PB__KIND__KIND_VOLUME, id)
#define SDC_NAME(st, id) mdm_name(st, PB__KIND__KIND_SDC, id)

/* ---------------------------------------------------------------- SDCs */

static struct ash_error sdc_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdSdcAdd *c = body;
	const Pb__Sdc *other;

	if (!mdm_is_uuid(&c->guid))
		return ash_error_make(ASH_E_INVALID,
				      "SDC \"%s\": the GUID has %zu bytes, not 16; "
				      "give --guid as the SDC prints it",
				      c->name, c->guid.len);
	if (strlen(c->address) > 255)
		return ash_error_make(
			ASH_E_INVALID,
			"SDC \"%s\": the address has %zu characters; 255 are the limit", c->name,
			strlen(c->address));
	other = mdm_find_sdc_guid(st, &c->guid);
	if (other)
		return ash_error_make(
			ASH_E_EXISTS,
			"SDC \"%s\": its GUID belongs to SDC \"%s\"; rename that instead", c->name,
			other->name);
	return mdm_check_name(st, PB__KIND__KIND_SDC, c->name, 0, 0);
}

static void sdc_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdSdcAdd *c = body;
	Pb__Sdc *sdc = ash_xcalloc(1, sizeof(*sdc));

	pb__sdc__init(sdc);
	sdc->id = res->id = mdm_new_id(st);
	sdc->approved = true;
	mdm_set_string(&sdc->name, c->name);
	mdm_set_string(&sdc->address, c->address);
	mdm_set_bytes(&sdc->guid, c->guid.data, c->guid.len);
	memcpy(res->uuid, c->guid.data, 16);
	mdm_add(st, PB__KIND__KIND_SDC, sdc);
}

const struct mdm_verb mdm_verb_sdc_add = {sdc_check, sdc_apply};

/* ---------------------------------------------------------------- map */

static struct ash_error map_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdMap *c = body;
	const Pb__Volume *vol = mdm_volume(st, c->volume);

	if (!vol)
		return mdm_no_such(PB__KIND__KIND_VOLUME, c->volume);
	if (!mdm_sdc(st, c->sdc))
		return mdm_no_such(PB__KIND__KIND_SDC, c->sdc);
	if (mdm_find_mapping(st, c->volume, c->sdc))
		return ash_error_make(ASH_E_EXISTS, "volume \"%s\" is mapped to SDC \"%s\" already",
				      vol->name, SDC_NAME(st, c->sdc));
	MDM_EACH(st, PB__KIND__KIND_MAPPING, Pb__Mapping, m)
		if (m->volume == c->volume && !c->shared)
			return ash_error_make(
				ASH_E_IN_USE,
				"volume \"%s\" is mapped to SDC \"%s\"; a second mapping needs "
				"--shared, and software on both that expects to share (live "
				"migration, a cluster file system)",
				vol->name, SDC_NAME(st, m->sdc));
	return ash_error_ok();
}

/*
 * Whoever had the volume alone has it no more, and has to know: it may not take its own writes for
 * all that a flush has to make durable.
 */
static void share_others(struct mdm_state *st, uint64_t volume)
{
	MDM_EACH(st, PB__KIND__KIND_MAPPING, Pb__Mapping, m) {
		if (m->volume != volume || m->shared)
			continue;
		m->shared = true;
		mdm_touch(st, PB__KIND__KIND_MAPPING, m);
	}
}

static void map_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdMap *c = body;
	Pb__Mapping *m = ash_xcalloc(1, sizeof(*m));

	pb__mapping__init(m);
	m->id = res->id = mdm_new_id(st);
	m->volume = c->volume;
	m->sdc = c->sdc;
	m->node = mdm_volume(st, c->volume)->node;
	m->read_only = c->read_only;
	m->shared = c->shared;
	m->created = st->making;
	if (c->shared)
		share_others(st, c->volume);
	/* Above every epoch that an open from before an earlier unmap can have. */
	m->epoch = st->making;
	mdm_add(st, PB__KIND__KIND_MAPPING, m);
}

const struct mdm_verb mdm_verb_map = {map_check, map_apply};

static struct ash_error map_set_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdMapSet *c = body;

	return mdm_mapping(st, c->mapping) ? ash_error_ok()
					   : mdm_no_such(PB__KIND__KIND_MAPPING, c->mapping);
}

static void map_set_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdMapSet *c = body;
	Pb__Mapping *m = mdm_mapping(st, c->mapping);

	res->id = m->id;
	if (m->iops_limit == c->iops_limit && m->bw_limit == c->bw_limit)
		return;
	m->iops_limit = c->iops_limit;
	m->bw_limit = c->bw_limit;
	mdm_touch(st, PB__KIND__KIND_MAPPING, m);
}

const struct mdm_verb mdm_verb_map_set = {map_set_check, map_set_apply};

/* ---------------------------------------------------------------- open */

static struct ash_error open_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdOpen *c = body;
	const Pb__Volume *vol = mdm_volume(st, c->volume);

	if (!vol)
		return mdm_no_such(PB__KIND__KIND_VOLUME, c->volume);
	if (!mdm_sdc(st, c->sdc))
		return mdm_no_such(PB__KIND__KIND_SDC, c->sdc);
	if (!mdm_find_mapping(st, c->volume, c->sdc))
		return ash_error_make(
			ASH_E_DENIED,
			"volume \"%s\" is not mapped to SDC \"%s\"; run `ashlar volume "
			"map --volume %s --sdc %s`",
			vol->name, SDC_NAME(st, c->sdc), vol->name, SDC_NAME(st, c->sdc));
	return ash_error_ok();
}

static void open_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdOpen *c = body;
	Pb__Mapping *m = mdm_find_mapping(st, c->volume, c->sdc);

	res->id = m->id;
	res->epoch = m->epoch = st->making;
	mdm_touch(st, PB__KIND__KIND_MAPPING, m);
}

const struct mdm_verb mdm_verb_open = {open_check, open_apply};

/* ---------------------------------------------------------------- unmap and its fence */

/* SDSs that may still do I/O for the mapping: each that runs a process of the volume's pool. One
 * declared failed is among them, for it may only be cut off from us. */
static void add_fence(struct mdm_state *st, const Pb__Mapping *m)
{
	const Pb__Volume *vol = mdm_volume(st, m->volume);
	struct ash_htab holders = {0};
	Pb__Fence *f = ash_xcalloc(1, sizeof(*f));

	pb__fence__init(f);
	f->id = mdm_new_id(st);
	f->node = m->node;
	f->sdc = m->sdc;
	f->pending_sds = ash_xcalloc(st->table[PB__KIND__KIND_SDS].count + 1, sizeof(uint64_t));
	MDM_EACH(st, PB__KIND__KIND_DEVICE, Pb__Device, dev)
		if (dev->pool == vol->pool && dev->incarnation &&
		    ash_htab_put(&holders, dev->sds, dev))
			abort();
	MDM_EACH(st, PB__KIND__KIND_SDS, Pb__Sds, sds)
		if (sds->session.len && ash_htab_get(&holders, sds->id))
			f->pending_sds[f->n_pending_sds++] = sds->id;
	ash_htab_done(&holders);
	if (f->n_pending_sds)
		mdm_add(st, PB__KIND__KIND_FENCE, f);
	else
		mdm_pb_free(f);
}

void mdm_apply_unmap(struct mdm_state *st, Pb__Mapping *m, bool force)
{
	if (force)
		mdm_event(st, PB__SEVERITY__SEV_WARNING, "UNMAP_FORCED", PB__KIND__KIND_VOLUME,
			  VOLUME_NAME(st, m->volume),
			  "volume \"%s\" was unmapped from SDC \"%s\" without waiting, on the "
			  "operator's word that the SDC does no more I/O",
			  VOLUME_NAME(st, m->volume), SDC_NAME(st, m->sdc));
	else if (m->epoch > m->created) /* was opened: I/O may be on its way */
		add_fence(st, m);
	mdm_remove(st, PB__KIND__KIND_MAPPING, m->id);
}

static Pb__Fence *fence_of(const struct mdm_state *st, uint64_t node, uint64_t sdc)
{
	MDM_EACH(st, PB__KIND__KIND_FENCE, Pb__Fence, f)
		if (f->node == node && f->sdc == sdc)
			return f;
	return NULL;
}

static struct ash_error unmap_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdUnmap *c = body;
	const Pb__Volume *vol = mdm_volume(st, c->volume);

	if (!vol)
		return mdm_no_such(PB__KIND__KIND_VOLUME, c->volume);
	if (!mdm_sdc(st, c->sdc))
		return mdm_no_such(PB__KIND__KIND_SDC, c->sdc);
	if (!mdm_find_mapping(st, c->volume, c->sdc) &&
	    !(c->force && fence_of(st, vol->node, c->sdc)))
		return ash_error_make(ASH_E_NOT_FOUND, "volume \"%s\" is not mapped to SDC \"%s\"",
				      vol->name, SDC_NAME(st, c->sdc));
	return ash_error_ok();
}

static void unmap_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdUnmap *c = body;
	const Pb__Volume *vol = mdm_volume(st, c->volume);
	Pb__Mapping *m = mdm_find_mapping(st, c->volume, c->sdc);
	Pb__Fence *f;

	if (m) {
		res->id = m->id;
		mdm_apply_unmap(st, m, c->force);
	}
	while (c->force && (f = fence_of(st, vol->node, c->sdc)))
		mdm_remove(st, PB__KIND__KIND_FENCE, f->id);
}

const struct mdm_verb mdm_verb_unmap = {unmap_check, unmap_apply};

void mdm_fence_drop_sds(struct mdm_state *st, Pb__Fence *f, uint64_t sds)
{
	size_t kept = 0;

	for (size_t i = 0; i < f->n_pending_sds; i++)
		if (f->pending_sds[i] != sds)
			f->pending_sds[kept++] = f->pending_sds[i];
	if (kept == f->n_pending_sds)
		return;
	f->n_pending_sds = kept;
	if (kept)
		mdm_touch(st, PB__KIND__KIND_FENCE, f);
	else
		mdm_remove(st, PB__KIND__KIND_FENCE, f->id);
}

void mdm_fences_forget_sds(struct mdm_state *st, uint64_t sds)
{
	struct mdm_table *t = &st->table[PB__KIND__KIND_FENCE];

	for (size_t i = t->count; i-- > 0;)
		mdm_fence_drop_sds(st, t->obj[i], sds);
}

static struct ash_error fence_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdFenceDone *c = body;

	if (!mdm_fence(st, c->fence))
		return ash_error_make(ASH_E_STALE, "fence %llu is over",
				      (unsigned long long)c->fence);
	return ash_error_ok();
}

static void fence_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdFenceDone *c = body;

	res->id = c->fence;
	mdm_fence_drop_sds(st, mdm_fence(st, c->fence), c->sds);
}

const struct mdm_verb mdm_verb_fence_done = {fence_check, fence_apply};
