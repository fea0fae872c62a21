// SPDX-License-Identifier: MIT
/* The data path: a stream of messages, decoded as a connection does, rows taken over. */
#include <string.h>

#include "common/base/crc.h"
#include "common/shared/wire_codec.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mapcheck.h"

static void check_header(const struct ash_hdr *h)
{
	struct ash_relay relay = {.sdc = 1};
	struct ash_hdr again;
	uint8_t raw[2][ASH_HDR_MAX_BYTES];

	ash_hdr_encode(h, &relay, raw[0]);
	FUZZ_CHECK(ash_hdr_decode(raw[0], &again) == 0);
	ash_hdr_encode(&again, &relay, raw[1]);
	FUZZ_CHECK(!memcmp(raw[0], raw[1], ASH_HDR_BYTES));
	FUZZ_CHECK(ash_op_text(h->op)[0] != '?');
	FUZZ_CHECK(ash_status_text(h->status) != NULL && ash_status_errno(h->status) <= 0);
}

static void take_rows(const uint8_t *data, size_t bytes, struct ash_map *map)
{
	struct ash_wire_row row;

	for (; bytes >= sizeof(row); data += sizeof(row), bytes -= sizeof(row)) {
		memcpy(&row, data, sizeof(row));
		ash_map_apply_row(map, &row, NULL);
	}
}

static void take_hello(const uint8_t *data, size_t bytes)
{
	struct ash_hello h, again;
	struct ash_wire_hello w;

	if (ash_hello_decode(data, bytes, &h))
		return;
	FUZZ_CHECK(sizeof(w) + h.auth_bytes <= bytes);
	h.auth_bytes = 0;
	ash_hello_encode(&h, &w);
	FUZZ_CHECK(ash_hello_decode(&w, sizeof(w), &again) == 0);
	FUZZ_CHECK(again.sender == h.sender && again.session == h.session && again.path == h.path);
}

static void take_inventory(const uint8_t *data, size_t bytes)
{
	struct ash_wire_inv w, again;
	struct ash_inv e;

	for (; bytes >= sizeof(w); data += sizeof(w), bytes -= sizeof(w)) {
		memcpy(&w, data, sizeof(w));
		if (ash_inv_decode(&w, &e))
			continue;
		ash_inv_encode(&e, &again);
		FUZZ_CHECK(!memcmp(&w, &again, sizeof(w)));
	}
}

static void take_hashes(const uint8_t *data, size_t bytes)
{
	struct ash_wire_blockhash w, again;
	struct ash_blockhash b;

	for (; bytes >= sizeof(w); data += sizeof(w), bytes -= sizeof(w)) {
		memcpy(&w, data, sizeof(w));
		if (ash_blockhash_decode(&w, &b))
			continue;
		ash_blockhash_encode(&b, &again);
		FUZZ_CHECK(!memcmp(&w, &again, sizeof(w)));
	}
}

static void take_payload(const struct ash_hdr *h, const uint8_t *data, uint32_t crcs,
			 uint32_t bytes, struct ash_map *map)
{
	uint32_t crc[ASH_PIECES_MAX];
	struct ash_lease lease;

	if (crcs > 0) {
		FUZZ_CHECK(crcs <= ASH_PIECES_MAX && bytes <= ASH_CHUNK_BYTES);
		memcpy(crc, data, crcs * 4);
		FUZZ_CHECK(ash_crc32c_check(data + (size_t)crcs * 4, h->offset, bytes, crc) <
			   (int)crcs);
		return;
	}
	FUZZ_CHECK(bytes <= ASH_AUX_MAX_BYTES);
	if (h->op == ASH_OP_HELLO)
		take_hello(data, bytes);
	else if (h->op == ASH_OP_LEASE_ASK)
		ash_lease_decode(data, bytes, &lease);
	else if (h->op == ASH_OP_INVENTORY)
		take_inventory(data, bytes);
	else if (h->op == ASH_OP_HASH)
		take_hashes(data, bytes);
	take_rows(data, bytes, map);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ash_map *map = fuzz_map_small();
	struct ash_hdr h;
	struct ash_relay relay;
	uint32_t crcs, bytes;

	while (size >= ASH_HDR_BYTES && ash_hdr_decode(data, &h) == 0) {
		int64_t payload = ash_hdr_payload(&h, &crcs, &bytes);

		check_header(&h);
		data += ASH_HDR_BYTES;
		size -= ASH_HDR_BYTES;
		if (payload < 0)
			break;
		FUZZ_CHECK(payload == (int64_t)crcs * 4 + bytes);
		if (h.flags & ASH_F_RELAY) {
			if (size < ASH_RELAY_BYTES || ash_relay_decode(data, &relay))
				break;
			data += ASH_RELAY_BYTES;
			size -= ASH_RELAY_BYTES;
		}
		if ((uint64_t)payload > size)
			break;
		take_payload(&h, data, crcs, bytes, map);
		data += payload;
		size -= (size_t)payload;
	}
	fuzz_map_check(map);
	ash_map_free(map);
	return 0;
}
