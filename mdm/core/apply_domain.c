/* SPDX-License-Identifier: MIT */
/* Protection domains and fault sets; removing and renaming of everything. */
#include <stdio.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/base/name.h"
#include "mdm/core/state.h"

static struct ash_error domain_check(const struct mdm_state *st, const void *body)
{
	return mdm_check_name(st, PB__KIND__KIND_DOMAIN, ((const Pb__CmdDomainAdd *)body)->name, 0,
			      0);
}

static void domain_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdDomainAdd *c = body;
	Pb__Domain *d = ash_xcalloc(1, sizeof(*d));

	pb__domain__init(d);
	d->id = res->id = mdm_new_id(st);
	mdm_set_string(&d->name, c->name);
	mdm_add(st, PB__KIND__KIND_DOMAIN, d);
}

const struct mdm_verb mdm_verb_domain_add = {domain_check, domain_apply};

static struct ash_error fault_set_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdFaultSetAdd *c = body;

	if (!mdm_domain(st, c->domain))
		return mdm_no_such(PB__KIND__KIND_DOMAIN, c->domain);
	return mdm_check_name(st, PB__KIND__KIND_FAULT_SET, c->name, c->domain, 0);
}

static void fault_set_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdFaultSetAdd *c = body;
	Pb__FaultSet *fs = ash_xcalloc(1, sizeof(*fs));

	pb__fault_set__init(fs);
	fs->id = res->id = mdm_new_id(st);
	fs->domain = c->domain;
	mdm_set_string(&fs->name, c->name);
	mdm_add(st, PB__KIND__KIND_FAULT_SET, fs);
}

const struct mdm_verb mdm_verb_fault_set_add = {fault_set_check, fault_set_apply};

/* ---------------------------------------------------------------- remove */

/* First object of @kind for which the u64 field at @at equals @id; its name, or NULL. */
static const char *user_of(const struct mdm_state *st, int kind, size_t at, uint64_t id)
{
	const struct mdm_table *t = &st->table[kind];

	for (size_t i = 0; i < t->count; i++)
		if (*(const uint64_t *)(const void *)((const char *)t->obj[i] + at) == id)
			return mdm_obj_name(kind, t->obj[i]);
	return NULL;
}

struct user {
	int owner, kind;
	size_t at;
};

/* What must be gone before its owner can go. */
static const struct user users[] = {
	{PB__KIND__KIND_DOMAIN, PB__KIND__KIND_SDS, offsetof(Pb__Sds, domain)},
	{PB__KIND__KIND_DOMAIN, PB__KIND__KIND_POOL, offsetof(Pb__Pool, domain)},
	{PB__KIND__KIND_DOMAIN, PB__KIND__KIND_FAULT_SET, offsetof(Pb__FaultSet, domain)},
	{PB__KIND__KIND_FAULT_SET, PB__KIND__KIND_SDS, offsetof(Pb__Sds, fault_set)},
	{PB__KIND__KIND_SDS, PB__KIND__KIND_DEVICE, offsetof(Pb__Device, sds)},
	{PB__KIND__KIND_POOL, PB__KIND__KIND_VOLUME, offsetof(Pb__Volume, pool)},
	{PB__KIND__KIND_POOL, PB__KIND__KIND_DEVICE, offsetof(Pb__Device, pool)},
};

static struct ash_error check_unused(const struct mdm_state *st, int kind, uint64_t id)
{
	for (size_t i = 0; i < sizeof(users) / sizeof(users[0]); i++) {
		const char *user;

		if (users[i].owner != kind)
			continue;
		user = user_of(st, users[i].kind, users[i].at, id);
		if (user)
			return ash_error_make(ASH_E_IN_USE,
					      "%s \"%s\" still has %s \"%s\"; remove that first",
					      mdm_kind_info(kind)->noun, mdm_name(st, kind, id),
					      mdm_kind_info(users[i].kind)->noun, user);
	}
	return ash_error_ok();
}

static struct ash_error check_remove_sdc(const struct mdm_state *st, const Pb__CmdRemove *c)
{
	MDM_EACH(st, PB__KIND__KIND_MAPPING, Pb__Mapping, m)
		if (m->sdc == c->id && !c->force)
			return ash_error_make(
				ASH_E_IN_USE,
				"SDC \"%s\" still has volume \"%s\" mapped; unmap it or give --force",
				mdm_name(st, PB__KIND__KIND_SDC, c->id),
				mdm_name(st, PB__KIND__KIND_VOLUME, m->volume));
	return ash_error_ok();
}

static struct ash_error remove_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdRemove *c = body;

	if (!mdm_kind_info((int)c->kind) || c->kind == PB__KIND__KIND_MDM ||
	    c->kind == PB__KIND__KIND_TOMBSTONE)
		return ash_error_make(ASH_E_INVALID,
				      "objects of kind %d cannot be removed this way",
				      (int)c->kind);
	if (!mdm_find(st, (int)c->kind, c->id))
		return mdm_no_such((int)c->kind, c->id);
	switch (c->kind) {
	case PB__KIND__KIND_DEVICE:
		return mdm_check_remove_device(st, c);
	case PB__KIND__KIND_VOLUME:
		return mdm_check_remove_volume(st, c);
	case PB__KIND__KIND_SDC:
		return check_remove_sdc(st, c);
	case PB__KIND__KIND_FENCE:
		if (!c->force)
			return ash_error_make(
				ASH_E_IN_USE,
				"a fence ends by itself when all its SDSs have confirmed; --force "
				"takes your word that they can no longer do I/O");
		return ash_error_ok();
	default:
		return check_unused(st, (int)c->kind, c->id);
	}
}

static void remove_pool(struct mdm_state *st, const Pb__Pool *pool)
{
	struct mdm_table *t = &st->table[PB__KIND__KIND_TOMBSTONE];
	Pb__Domain *domain = mdm_domain(st, pool->domain);
	uint64_t id = pool->id;

	for (size_t i = t->count; i-- > 0;) {
		const Pb__Tombstone *stone = t->obj[i];

		if (stone->pool == id)
			mdm_remove(st, PB__KIND__KIND_TOMBSTONE, stone->node);
	}
	mdm_rows_remove(st, id);
	mdm_touch(st, PB__KIND__KIND_DOMAIN, domain); /* keeps the place version from falling */
	mdm_remove(st, PB__KIND__KIND_POOL, id);
}

static void remove_sdc(struct mdm_state *st, uint64_t sdc, bool force)
{
	struct mdm_table *t = &st->table[PB__KIND__KIND_MAPPING];

	for (size_t i = t->count; i-- > 0;) {
		Pb__Mapping *m = t->obj[i];

		if (m->sdc == sdc)
			mdm_apply_unmap(st, m, false);
	}
	mdm_remove(st, PB__KIND__KIND_SDC, sdc);
}

static void remove_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdRemove *c = body;
	void *obj = mdm_find(st, (int)c->kind, c->id);
	char name[64];

	snprintf(name, sizeof(name), "%s", mdm_obj_name((int)c->kind, obj));
	res->id = c->id;
	switch (c->kind) {
	case PB__KIND__KIND_DEVICE:
		mdm_apply_remove_device(st, obj);
		break;
	case PB__KIND__KIND_VOLUME:
		mdm_apply_remove_volume(st, obj, c->force);
		break;
	case PB__KIND__KIND_MAPPING:
		mdm_apply_unmap(st, obj, c->force);
		break;
	case PB__KIND__KIND_POOL:
		remove_pool(st, obj);
		break;
	case PB__KIND__KIND_SDC:
		remove_sdc(st, c->id, c->force);
		break;
	case PB__KIND__KIND_SDS:
		mdm_fences_forget_sds(st, c->id);
		mdm_remove(st, PB__KIND__KIND_SDS, c->id);
		break;
	default:
		mdm_remove(st, (int)c->kind, c->id);
		break;
	}
	if (*name)
		mdm_event(st, PB__SEVERITY__SEV_INFO, "REMOVED", (int)c->kind, name,
			  "%s \"%s\" was removed", mdm_kind_info((int)c->kind)->noun, name);
}

const struct mdm_verb mdm_verb_remove = {remove_check, remove_apply};

/* ---------------------------------------------------------------- rename */

static struct ash_error rename_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdRename *c = body;
	const struct mdm_kind_info *info = mdm_kind_info((int)c->kind);
	const void *obj;
	uint64_t domain = 0;

	if (c->kind == PB__KIND__KIND_NONE)
		return ash_name_check("system", c->name);
	if (!info || !info->name_at || c->kind == PB__KIND__KIND_MDM)
		return ash_error_make(ASH_E_INVALID, "objects of kind %d have no name to change",
				      (int)c->kind);
	obj = mdm_find(st, (int)c->kind, c->id);
	if (!obj)
		return mdm_no_such((int)c->kind, c->id);
	if (c->kind == PB__KIND__KIND_FAULT_SET)
		domain = ((const Pb__FaultSet *)obj)->domain;
	if (c->kind == PB__KIND__KIND_POOL)
		domain = ((const Pb__Pool *)obj)->domain;
	return mdm_check_name(st, (int)c->kind, c->name, domain, c->id);
}

static void rename_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdRename *c = body;
	void *obj;

	if (c->kind == PB__KIND__KIND_NONE) {
		mdm_set_string(&st->system->name, c->name);
		st->system->version = st->making;
		st->changed = true;
		return;
	}
	res->id = c->id;
	obj = mdm_find(st, (int)c->kind, c->id);
	if (!strcmp(mdm_obj_name((int)c->kind, obj), c->name))
		return;
	mdm_set_string((char **)(void *)((char *)obj + mdm_kind_info((int)c->kind)->name_at),
		       c->name);
	mdm_touch(st, (int)c->kind, obj);
}

const struct mdm_verb mdm_verb_rename = {rename_check, rename_apply};
