// SPDX-License-Identifier: MIT
/* The MDM's snapshots: any bytes are refused, or restore to a state that snapshots to itself. */
#include <string.h>

#include "mdm/core/mdm.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mapcheck.h"
#include "tests/fuzz/pbmutate.h"

static const ProtobufCMessageDescriptor *split(const uint8_t *header, size_t left,
					       size_t *ret_bytes)
{
	*ret_bytes = left;
	return &pb__map__descriptor;
}
static void join(uint8_t *header, size_t bytes)
{
}
const struct fuzz_format fuzz_format = {.split = split, .join = join};

static bool unusable(const uint8_t *data, size_t size)
{
	Pb__Map *pb = pb__map__unpack(NULL, size, data);
	bool skip = pb && (fuzz_map_pgs(pb) > FUZZ_PGS_MAX || !fuzz_pb_repacks(&pb->base));

	if (pb)
		pb__map__free_unpacked(pb, NULL);
	return skip;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ash_error err = {.code = 0};
	struct mdm_state *st, *back;
	uint8_t *snap[2];
	size_t bytes[2];

	if (unusable(data, size))
		return 0;
	st = mdm_restore(data, size, &err);
	if (!st) {
		FUZZ_CHECK(err.code != 0 && err.message[0] != '\0');
		return 0;
	}
	snap[0] = mdm_snapshot(st, &bytes[0]);
	back = mdm_restore(snap[0], bytes[0], &err);
	FUZZ_CHECK(back);
	snap[1] = mdm_snapshot(back, &bytes[1]);
	FUZZ_CHECK(bytes[0] == bytes[1] && !memcmp(snap[0], snap[1], bytes[0]));
	free(snap[0]);
	free(snap[1]);
	mdm_state_free(st);
	mdm_state_free(back);
	return 0;
}
