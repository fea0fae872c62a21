/* SPDX-License-Identifier: MIT */
#include "mdm/core/state.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"

struct mdm_state *mdm_state_new(void)
{
	struct mdm_state *st = ash_xcalloc(1, sizeof(*st));

	st->next_id = 1;
	st->next_event = 1;
	return st;
}

void mdm_state_free(struct mdm_state *st)
{
	if (!st)
		return;
	for (int kind = 0; kind < MDM_KINDS; kind++) {
		for (size_t i = 0; i < st->table[kind].count; i++)
			mdm_pb_free(st->table[kind].obj[i]);
		free(st->table[kind].obj);
	}
	for (size_t i = 0; i < st->rows_count; i++)
		mdm_rows_free(st->rows[i]);
	free(st->rows);
	for (size_t i = 0; i < st->events_count; i++)
		mdm_pb_free(st->events[i]);
	free(st->events);
	for (size_t i = 0; i < st->removed_count; i++)
		mdm_pb_free(st->removed[i]);
	free(st->removed);
	if (st->system)
		mdm_pb_free(st->system);
	free(st);
}

uint64_t mdm_state_version(const struct mdm_state *st)
{
	return st->version;
}

uint64_t mdm_state_applied(const struct mdm_state *st)
{
	return st->applied;
}

const char *mdm_name(const struct mdm_state *st, int kind, uint64_t id)
{
	const char *name = mdm_obj_name(kind, mdm_find(st, kind, id));

	return *name ? name : "?";
}

/* Domain that an object's name is unique in; 0 = the whole system. */
static uint64_t name_scope(int kind, const void *obj)
{
	if (kind == PB__KIND__KIND_FAULT_SET)
		return ((const Pb__FaultSet *)obj)->domain;
	if (kind == PB__KIND__KIND_POOL)
		return ((const Pb__Pool *)obj)->domain;
	return 0;
}

void *mdm_find_name(const struct mdm_state *st, int kind, const char *name, uint64_t domain,
		    bool *ret_many)
{
	const struct mdm_table *t = &st->table[kind];
	void *found = NULL;

	if (ret_many)
		*ret_many = false;
	for (size_t i = 0; i < t->count; i++) {
		uint64_t scope = name_scope(kind, t->obj[i]);

		if ((domain && scope && scope != domain) ||
		    strcmp(mdm_obj_name(kind, t->obj[i]), name))
			continue;
		if (found && ret_many)
			*ret_many = true;
		if (!found)
			found = t->obj[i];
	}
	return found;
}

Pb__Mapping *mdm_find_mapping(const struct mdm_state *st, uint64_t volume, uint64_t sdc)
{
	MDM_EACH(st, PB__KIND__KIND_MAPPING, Pb__Mapping, m)
		if (m->volume == volume && m->sdc == sdc)
			return m;
	return NULL;
}

Pb__Sdc *mdm_find_sdc_guid(const struct mdm_state *st, const ProtobufCBinaryData *guid)
{
	MDM_EACH(st, PB__KIND__KIND_SDC, Pb__Sdc, sdc)
		if (guid->len && mdm_bytes_equal(&sdc->guid, guid))
			return sdc;
	return NULL;
}

Pb__Sds *mdm_find_sds_uuid(const struct mdm_state *st, const ProtobufCBinaryData *uuid)
{
	MDM_EACH(st, PB__KIND__KIND_SDS, Pb__Sds, sds)
		if (uuid->len && mdm_bytes_equal(&sds->uuid, uuid))
			return sds;
	return NULL;
}

Pb__Device *mdm_find_device_uuid(const struct mdm_state *st, const ProtobufCBinaryData *uuid)
{
	MDM_EACH(st, PB__KIND__KIND_DEVICE, Pb__Device, dev)
		if (uuid->len && mdm_bytes_equal(&dev->uuid, uuid))
			return dev;
	return NULL;
}

uint64_t mdm_unit_of_sds(const Pb__Sds *sds)
{
	return sds->fault_set ? sds->fault_set : sds->id;
}

uint64_t mdm_unit_of(const struct mdm_state *st, uint64_t device)
{
	const Pb__Device *dev = mdm_device(st, device);
	const Pb__Sds *sds = dev ? mdm_sds(st, dev->sds) : NULL;

	return sds ? mdm_unit_of_sds(sds) : 0;
}

bool mdm_device_usable(const struct mdm_state *st, const Pb__Device *dev)
{
	const Pb__Sds *sds = dev ? mdm_sds(st, dev->sds) : NULL;

	return sds && sds->up && dev->state == PB__DEVICE_STATE__DEVICE_UP;
}

/* ---------------------------------------------------------------- changes, in apply only */

uint64_t mdm_new_id(struct mdm_state *st)
{
	return st->next_id++;
}

void mdm_touch(struct mdm_state *st, int kind, void *obj)
{
	*mdm_obj_version(kind, obj) = st->making;
	st->changed = true;
}

void mdm_add(struct mdm_state *st, int kind, void *obj)
{
	mdm_touch(st, kind, obj);
	mdm_table_put(&st->table[kind], obj);
}

static void record_removal(struct mdm_state *st, int kind, uint64_t id)
{
	Pb__Removed *r = ash_xcalloc(1, sizeof(*r));
	size_t drop = 0;

	pb__removed__init(r);
	r->kind = (Pb__Kind)kind;
	r->id = id;
	r->version = st->making;
	st->removed = mdm_list_grow(st->removed, st->removed_count);
	st->removed[st->removed_count++] = r;
	if (st->removed_count <= MDM_REMOVED_MAX)
		return;
	/* A quarter at once; all of one version go together, or a delta would miss some. */
	st->removed_floor = st->removed[MDM_REMOVED_MAX / 4]->version;
	while (drop < st->removed_count && st->removed[drop]->version <= st->removed_floor)
		mdm_pb_free(st->removed[drop++]);
	st->removed_count -= drop;
	memmove(st->removed, st->removed + drop, st->removed_count * sizeof(*st->removed));
}

void mdm_remove(struct mdm_state *st, int kind, uint64_t id)
{
	void *obj = mdm_table_take(&st->table[kind], id);

	assert(obj);
	mdm_pb_free(obj);
	record_removal(st, kind, id);
	st->changed = true;
}

void mdm_event(struct mdm_state *st, Pb__Severity severity, const char *code, int kind,
	       const char *name, const char *fmt, ...)
{
	const struct mdm_kind_info *info = mdm_kind_info(kind);
	char object[128], text[512];
	Pb__Event *e = ash_xcalloc(1, sizeof(*e));
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(object, sizeof(object), "%s:%s", info ? info->tag : "system", name);
	pb__event__init(e);
	e->seq = st->next_event++;
	e->unix_ms = st->unix_ms;
	e->severity = severity;
	mdm_set_string(&e->code, code);
	mdm_set_string(&e->object, object);
	mdm_set_string(&e->message, text);
	if (st->events_count == MDM_EVENTS_MAX) {
		mdm_pb_free(st->events[0]);
		memmove(st->events, st->events + 1, (MDM_EVENTS_MAX - 1) * sizeof(*st->events));
		st->events_count--;
	}
	st->events = mdm_list_grow(st->events, st->events_count);
	st->events[st->events_count++] = e;
}
