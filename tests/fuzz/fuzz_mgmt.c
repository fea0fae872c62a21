// SPDX-License-Identifier: MIT
/* The control protocol: a stream of frames; every map in them is taken over, one after another. */
#include <errno.h>
#include <string.h>

#include "proto/mgmt/frame.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mapcheck.h"
#include "tests/fuzz/pbmutate.h"

static void on_row(void *arg, struct ash_map_pool *pool, uint32_t pg, const struct ash_row *old)
{
	FUZZ_CHECK(pg < pool->pg_count && pool->rows[pg].gen > old->gen);
}
static void on_object(void *arg, int kind, uint64_t id)
{
	FUZZ_CHECK(kind > 0);
}

static void take_map(struct ash_map *map, const Pb__Map *pb)
{
	const struct ash_map_watch watch = {on_row, on_object, on_object, NULL};
	uint64_t version = ash_map_version(map), place = ash_map_place_version(map);
	int err;

	if (!pb || fuzz_map_pgs(pb) > FUZZ_PGS_MAX)
		return;
	err = ash_map_apply(map, pb, &watch);
	FUZZ_CHECK(err == 0 || err == -EINVAL || err == -ESTALE);
	FUZZ_CHECK(ash_map_version(map) >= version && ash_map_place_version(map) >= place);
	if (err == 0)
		FUZZ_CHECK(ash_map_version(map) >= pb->version);
	else
		FUZZ_CHECK(ash_map_version(map) == version);
	fuzz_map_check(map);
}

static const ProtobufCMessageDescriptor *type_of(unsigned frame_type)
{
	switch (frame_type) {
	case ASH_FRAME_REQUEST:
		return &pb__request__descriptor;
	case ASH_FRAME_REPLY:
		return &pb__reply__descriptor;
	case ASH_FRAME_PUSH:
		return &pb__push__descriptor;
	default:
		return NULL;
	}
}

static const ProtobufCMessageDescriptor *split(const uint8_t *header, size_t left,
					       size_t *ret_bytes)
{
	struct ash_frame f;

	memcpy(&f, header, sizeof(f));
	*ret_bytes = ash_get32(f.bytes);
	return type_of(ash_get16(f.type));
}

static void join(uint8_t *header, size_t bytes)
{
	struct ash_frame f;

	memcpy(&f, header, sizeof(f));
	f.bytes = ash_put32((uint32_t)bytes);
	memcpy(header, &f, sizeof(f));
}

const struct fuzz_format fuzz_format = {
	.header = sizeof(struct ash_frame), .split = split, .join = join};

static void take_message(struct ash_map *map, unsigned type, const uint8_t *data, size_t bytes)
{
	ProtobufCMessage *m;

	if (!type_of(type))
		return;
	m = protobuf_c_message_unpack(type_of(type), NULL, bytes, data);
	if (!m)
		return;
	fuzz_pb_repacks(m);
	if (type == ASH_FRAME_PUSH && ((Pb__Push *)m)->p_case == PB__PUSH__P_MAP)
		take_map(map, ((Pb__Push *)m)->map);
	if (type == ASH_FRAME_REPLY && ((Pb__Reply *)m)->r_case == PB__REPLY__R_MAP)
		take_map(map, ((Pb__Reply *)m)->map);
	if (type == ASH_FRAME_REPLY && ((Pb__Reply *)m)->r_case == PB__REPLY__R_QUERY)
		take_map(map, ((Pb__Reply *)m)->query->map);
	protobuf_c_message_free_unpacked(m, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ash_map *map = ash_map_new();
	struct ash_frame f;

	FUZZ_CHECK(map);
	while (size >= sizeof(f)) {
		size_t bytes;

		memcpy(&f, data, sizeof(f));
		bytes = ash_get32(f.bytes);
		data += sizeof(f);
		size -= sizeof(f);
		if (ash_get32(f.magic) != ASH_FRAME_MAGIC || bytes > size)
			break;
		take_message(map, ash_get16(f.type), data, bytes);
		data += bytes;
		size -= bytes;
	}
	ash_map_free(map);
	return 0;
}
