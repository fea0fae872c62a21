// SPDX-License-Identifier: MIT
/*
 * The MDM's state machine: a sequence of commands (u16 length, packed pb.Command), any content.
 * What comes out must restore from its snapshot to the same, and give maps that an SDS takes.
 */
#include <string.h>

#include "common/base/clean.h"
#include "mdm/core/state.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mapcheck.h"
#include "tests/fuzz/pbmutate.h"

static const ProtobufCMessageDescriptor *split(const uint8_t *header, size_t left,
					       size_t *ret_bytes)
{
	*ret_bytes = header[0] | (size_t)header[1] << 8;
	if (*ret_bytes > left)
		*ret_bytes = left;
	return &pb__command__descriptor;
}

static void join(uint8_t *header, size_t bytes)
{
	header[0] = (uint8_t)bytes;
	header[1] = (uint8_t)(bytes >> 8);
}

const struct fuzz_format fuzz_format = {.prefix = 1, .header = 2, .split = split, .join = join};

static void check_snapshot(const struct mdm_state *st)
{
	struct ash_error err;
	size_t bytes, again_bytes;
	ash_auto_free uint8_t *snap = mdm_snapshot(st, &bytes);
	struct mdm_state *back = mdm_restore(snap, bytes, &err);
	ash_auto_free uint8_t *again = NULL;

	FUZZ_CHECK(back);
	again = mdm_snapshot(back, &again_bytes);
	FUZZ_CHECK(bytes == again_bytes && !memcmp(snap, again, bytes));
	mdm_state_free(back);
}

static void check_map(const struct mdm_state *st, enum mdm_audience audience, uint64_t id)
{
	Pb__Map *pb = mdm_map_for(st, audience, id, 0);
	struct ash_map *map = ash_map_new();

	FUZZ_CHECK(ash_map_apply(map, pb, NULL) == 0);
	FUZZ_CHECK(ash_map_version(map) == mdm_state_version(st));
	fuzz_map_check(map);
	ash_map_free(map);
	pb__map__free_unpacked(pb, NULL);
}

static void check_maps(const struct mdm_state *st)
{
	MDM_EACH(st, PB__KIND__KIND_SDS, Pb__Sds, sds)
		check_map(st, MDM_FOR_SDS, sds->id);
	MDM_EACH(st, PB__KIND__KIND_SDC, Pb__Sdc, sdc)
		check_map(st, MDM_FOR_SDC, sdc->id);
	check_map(st, MDM_FOR_ADMIN, 0);
}

static uint64_t pgs_of(const struct mdm_state *st)
{
	uint64_t pgs = 0;

	for (size_t i = 0; i < st->rows_count; i++)
		pgs += st->rows[i]->pg_count;
	return pgs;
}

static void apply(struct mdm_state *st, const Pb__Command *cmd, uint64_t index)
{
	struct ash_error check = mdm_check(st, cmd);
	uint64_t version = mdm_state_version(st);
	struct mdm_result result;

	mdm_apply(st, cmd, index, &result);
	FUZZ_CHECK((check.code == 0) == (result.err.code == 0));
	FUZZ_CHECK(mdm_state_applied(st) == index);
	FUZZ_CHECK(mdm_state_version(st) >= version);
	if (result.err.code) {
		FUZZ_CHECK(result.err.message[0] != '\0');
		FUZZ_CHECK(mdm_state_version(st) == version);
	}
	mdm_result_done(&result);
}

static void create_system(struct mdm_state *st, uint64_t index)
{
	uint8_t uuid[16] = {1};
	Pb__MdmMember member = PB__MDM_MEMBER__INIT, *members = &member;
	Pb__CmdSystemCreate create = PB__CMD_SYSTEM_CREATE__INIT;
	Pb__Command cmd = PB__COMMAND__INIT;

	member.id = 1;
	member.name = (char *)"mdm1";
	member.client_address = (char *)"127.0.0.1:6611";
	member.raft_address = (char *)"127.0.0.1:9011";
	create.uuid = (ProtobufCBinaryData){16, uuid};
	create.name = (char *)"system1";
	create.lease_ms = 600;
	create.mdms = &members;
	create.n_mdms = 1;
	cmd.c_case = PB__COMMAND__C_SYSTEM_CREATE;
	cmd.system_create = &create;
	apply(st, &cmd, index);
	FUZZ_CHECK(st->system);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mdm_state *st = mdm_state_new();
	uint64_t index = 0;

	if (size > 0 && data[0] % 2 == 0)
		create_system(st, ++index);
	data += size > 0;
	size -= size > 0;
	while (size >= 2 && pgs_of(st) < FUZZ_PGS_MAX) {
		size_t bytes = data[0] | (size_t)data[1] << 8;
		Pb__Command *cmd;

		data += 2;
		size -= 2;
		if (bytes > size)
			bytes = size;
		cmd = pb__command__unpack(NULL, bytes, data);
		if (cmd && fuzz_pb_repacks(&cmd->base))
			apply(st, cmd, ++index);
		if (cmd)
			pb__command__free_unpacked(cmd, NULL);
		data += bytes;
		size -= bytes;
	}
	check_snapshot(st);
	check_maps(st);
	mdm_state_free(st);
	return 0;
}
