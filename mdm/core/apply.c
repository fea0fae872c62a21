/* SPDX-License-Identifier: MIT */
/* The way of every command: check, then change, then count. */
#include <stdlib.h>
#include <string.h>

#include "common/base/name.h"
#include "mdm/core/state.h"

#define CASE(CASE_NAME, verb) [PB__COMMAND__C_##CASE_NAME] = &mdm_verb_##verb

static const struct mdm_verb *const verbs[] = {
	CASE(SYSTEM_CREATE, system_create),
	CASE(DOMAIN_ADD, domain_add),
	CASE(FAULT_SET_ADD, fault_set_add),
	CASE(SDS_ADD, sds_add),
	CASE(SDS_REGISTER, sds_register),
	CASE(SDS_STATE, sds_state),
	CASE(DEVICE_ADD, device_add),
	CASE(DEVICE_OPENED, device_opened),
	CASE(DEVICE_FAILED, device_failed),
	CASE(POOL_ADD, pool_add),
	CASE(POOL_SET, pool_set),
	CASE(VOLUME_ADD, volume_add),
	CASE(VOLUME_SET, volume_set),
	CASE(SDC_ADD, sdc_add),
	CASE(MAP, map),
	CASE(MAP_SET, map_set),
	CASE(UNMAP, unmap),
	CASE(OPEN, open),
	CASE(FENCE_DONE, fence_done),
	CASE(TOMBSTONE_DONE, tombstone_done),
	CASE(REMOVE, remove),
	CASE(RENAME, rename),
	CASE(PG_BATCH, pg_batch),
	CASE(MDM_SET, mdm_set),
	CASE(EVENT, event),
};

static const struct mdm_verb *verb_of(const Pb__Command *cmd)
{
	unsigned c = (unsigned)cmd->c_case;

	/* All members of the oneof are pointers at the same place. */
	if (c >= sizeof(verbs) / sizeof(verbs[0]) || !cmd->domain_add)
		return NULL;
	return verbs[c];
}

struct ash_error mdm_check(const struct mdm_state *st, const Pb__Command *cmd)
{
	const struct mdm_verb *verb = verb_of(cmd);

	if (!verb)
		return ash_error_make(ASH_E_UNSUPPORTED,
				      "command %d is unknown to this MDM; update the MDMs first",
				      (int)cmd->c_case);
	if (!st->system && cmd->c_case != PB__COMMAND__C_SYSTEM_CREATE)
		return ash_error_make(ASH_E_STATE, "there is no system here yet; run `ashlar "
						   "system create` first");
	return verb->check(st, cmd->domain_add);
}

void mdm_apply(struct mdm_state *st, const Pb__Command *cmd, uint64_t index,
	       struct mdm_result *ret_result)
{
	struct mdm_result res;

	memset(&res, 0, sizeof(res));
	if (index && index <= st->applied) {
		res.err = ash_error_make(ASH_E_STALE, "log entry %llu was applied before",
					 (unsigned long long)index);
		*ret_result = res;
		return;
	}
	if (index)
		st->applied = index;
	st->unix_ms = cmd->unix_ms;
	st->changed = false;
	st->making = st->version + 1;
	res.err = mdm_check(st, cmd);
	if (!ash_failed(&res.err)) {
		verb_of(cmd)->apply(st, cmd->domain_add, &res);
		if (st->changed)
			st->version = st->making;
	}
	*ret_result = res;
}

void mdm_result_done(struct mdm_result *result)
{
	for (size_t i = 0; i < result->answers_count; i++)
		pb__pg_answer__free_unpacked(result->answers[i], NULL);
	free(result->answers);
	result->answers = NULL;
	result->answers_count = 0;
}

/* ---------------------------------------------------------------- shared checks */

struct ash_error mdm_no_such(int kind, uint64_t id)
{
	const struct mdm_kind_info *info = mdm_kind_info(kind);

	if (!id)
		return ash_error_make(ASH_E_INVALID, "no %s is named",
				      info ? info->noun : "object");
	return ash_error_make(ASH_E_NOT_FOUND, "there is no %s with id %llu",
			      info ? info->noun : "object", (unsigned long long)id);
}

struct ash_error mdm_check_name(const struct mdm_state *st, int kind, const char *name,
				uint64_t domain, uint64_t self)
{
	const char *noun = mdm_kind_info(kind)->noun;
	struct ash_error err = ash_name_check(noun, name);
	const void *other;

	if (ash_failed(&err))
		return err;
	other = mdm_find_name(st, kind, name, domain, NULL);
	if (other && mdm_obj_id(other) != self)
		return ash_error_make(ASH_E_EXISTS, "%s \"%s\" exists already; choose another name",
				      noun, name);
	return err;
}
