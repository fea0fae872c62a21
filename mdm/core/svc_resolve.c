/* SPDX-License-Identifier: MIT */
/* Names that people give, to the ids that commands carry. */
#include <stddef.h>
#include <string.h>

#include "mdm/core/service_int.h"

/* A field of a command's body that may be named instead of given. */
struct field {
	Pb__Command__CCase c_case;
	int kind;
	size_t at;
};

static const struct field fields[] = {
	{PB__COMMAND__C_FAULT_SET_ADD, PB__KIND__KIND_DOMAIN, offsetof(Pb__CmdFaultSetAdd, domain)},
	{PB__COMMAND__C_SDS_ADD, PB__KIND__KIND_DOMAIN, offsetof(Pb__CmdSdsAdd, domain)},
	{PB__COMMAND__C_SDS_ADD, PB__KIND__KIND_FAULT_SET, offsetof(Pb__CmdSdsAdd, fault_set)},
	{PB__COMMAND__C_DEVICE_ADD, PB__KIND__KIND_SDS, offsetof(Pb__CmdDeviceAdd, sds)},
	{PB__COMMAND__C_DEVICE_ADD, PB__KIND__KIND_POOL, offsetof(Pb__CmdDeviceAdd, pool)},
	{PB__COMMAND__C_DEVICE_FAILED, PB__KIND__KIND_DEVICE,
	 offsetof(Pb__CmdDeviceFailed, device)},
	{PB__COMMAND__C_POOL_ADD, PB__KIND__KIND_DOMAIN, offsetof(Pb__CmdPoolAdd, domain)},
	{PB__COMMAND__C_POOL_SET, PB__KIND__KIND_POOL, offsetof(Pb__CmdPoolSet, pool)},
	{PB__COMMAND__C_VOLUME_ADD, PB__KIND__KIND_POOL, offsetof(Pb__CmdVolumeAdd, pool)},
	{PB__COMMAND__C_VOLUME_SET, PB__KIND__KIND_VOLUME, offsetof(Pb__CmdVolumeSet, volume)},
	{PB__COMMAND__C_MAP, PB__KIND__KIND_VOLUME, offsetof(Pb__CmdMap, volume)},
	{PB__COMMAND__C_MAP, PB__KIND__KIND_SDC, offsetof(Pb__CmdMap, sdc)},
	{PB__COMMAND__C_UNMAP, PB__KIND__KIND_VOLUME, offsetof(Pb__CmdUnmap, volume)},
	{PB__COMMAND__C_UNMAP, PB__KIND__KIND_SDC, offsetof(Pb__CmdUnmap, sdc)},
	{PB__COMMAND__C_OPEN, PB__KIND__KIND_VOLUME, offsetof(Pb__CmdOpen, volume)},
	{PB__COMMAND__C_OPEN, PB__KIND__KIND_SDC, offsetof(Pb__CmdOpen, sdc)},
};

static const char *name_given(const Pb__Admin *r, int kind)
{
	switch (kind) {
	case PB__KIND__KIND_DOMAIN:
		return r->domain;
	case PB__KIND__KIND_FAULT_SET:
		return r->fault_set;
	case PB__KIND__KIND_SDS:
		return r->sds;
	case PB__KIND__KIND_DEVICE:
		return r->device;
	case PB__KIND__KIND_POOL:
		return r->pool;
	case PB__KIND__KIND_VOLUME:
		return r->volume;
	case PB__KIND__KIND_SDC:
		return r->sdc;
	default:
		return "";
	}
}

static struct ash_error look_up(struct mdm_service *svc, const Pb__Admin *r, int kind,
				const char *name, uint64_t *id)
{
	const char *noun = mdm_kind_info(kind)->noun;
	const Pb__Domain *domain = NULL;
	const Pb__Sds *sds;
	uint64_t in = 0;
	bool many;
	void *obj;

	if (*r->domain && kind != PB__KIND__KIND_DOMAIN) {
		domain = mdm_find_name(svc->st, PB__KIND__KIND_DOMAIN, r->domain, 0, NULL);
		if (!domain)
			return ash_error_make(ASH_E_NOT_FOUND,
					      "there is no protection domain \"%s\"", r->domain);
		in = domain->id;
	} else if (kind == PB__KIND__KIND_POOL && *r->sds) {
		/* A device's pool is in the domain of its SDS. */
		sds = mdm_find_name(svc->st, PB__KIND__KIND_SDS, r->sds, 0, NULL);
		in = sds ? sds->domain : 0;
	}
	obj = mdm_find_name(svc->st, kind, name, in, &many);
	if (!obj && domain)
		return ash_error_make(ASH_E_NOT_FOUND,
				      "there is no %s \"%s\" in protection domain \"%s\"", noun,
				      name, domain->name);
	if (!obj)
		return ash_error_make(ASH_E_NOT_FOUND, "there is no %s \"%s\"", noun, name);
	if (many)
		return ash_error_make(ASH_E_INVALID,
				      "%s \"%s\" exists in several protection domains; give "
				      "--protection-domain too",
				      noun, name);
	*id = mdm_obj_id(obj);
	return ash_error_ok();
}

static struct ash_error resolve_mapping(struct mdm_service *svc, const Pb__Admin *r, uint64_t *id)
{
	uint64_t volume = 0, sdc = 0;
	struct ash_error err;
	Pb__Mapping *m;

	if (!*r->volume || !*r->sdc)
		return ash_error_make(
			ASH_E_INVALID,
			"a mapping is named by volume and SDC; give --volume and --sdc");
	err = look_up(svc, r, PB__KIND__KIND_VOLUME, r->volume, &volume);
	if (!ash_failed(&err))
		err = look_up(svc, r, PB__KIND__KIND_SDC, r->sdc, &sdc);
	if (ash_failed(&err))
		return err;
	m = mdm_find_mapping(svc->st, volume, sdc);
	if (!m)
		return ash_error_make(ASH_E_NOT_FOUND, "volume \"%s\" is not mapped to SDC \"%s\"",
				      r->volume, r->sdc);
	*id = m->id;
	return ash_error_ok();
}

/* Objects of remove and rename: by the name for their kind, or the general one. */
static struct ash_error resolve_object(struct mdm_service *svc, const Pb__Admin *r, int kind,
				       uint64_t *id)
{
	const char *name = name_given(r, kind);

	if (*id || !mdm_kind_info(kind))
		return ash_error_ok();
	if (kind == PB__KIND__KIND_MAPPING)
		return resolve_mapping(svc, r, id);
	if (!mdm_kind_info(kind)->name_at)
		return ash_error_ok();
	if (!*name)
		name = r->name;
	if (!*name)
		return ash_error_make(ASH_E_INVALID, "no %s is named", mdm_kind_info(kind)->noun);
	return look_up(svc, r, kind, name, id);
}

struct ash_error svc_resolve(struct mdm_service *svc, const Pb__Admin *r, Pb__Command *cmd)
{
	struct ash_error err = ash_error_ok();

	if (!cmd->domain_add) /* any member of the oneof: no body */
		return ash_error_make(ASH_E_INVALID, "the request has no command");
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		const struct field *f = &fields[i];
		uint64_t *id = (uint64_t *)(void *)((char *)cmd->domain_add + f->at);
		const char *name = name_given(r, f->kind);

		if (f->c_case != cmd->c_case || *id || !*name)
			continue;
		err = look_up(svc, r, f->kind, name, id);
		if (ash_failed(&err))
			return err;
	}
	if (cmd->c_case == PB__COMMAND__C_REMOVE)
		return resolve_object(svc, r, (int)cmd->remove->kind, &cmd->remove->id);
	if (cmd->c_case == PB__COMMAND__C_RENAME)
		return resolve_object(svc, r, (int)cmd->rename->kind, &cmd->rename->id);
	if (cmd->c_case == PB__COMMAND__C_MAP_SET && !cmd->map_set->mapping)
		return resolve_mapping(svc, r, &cmd->map_set->mapping);
	return err;
}
