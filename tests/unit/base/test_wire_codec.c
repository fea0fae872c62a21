// SPDX-License-Identifier: MIT
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/shared/wire_codec.h"

static void header_round_trip(void **state)
{
	struct ash_hdr h = {.op = ASH_OP_WRITE,
			    .flags = ASH_F_RELAY | ASH_F_FUA,
			    .path = 7,
			    .tag = ~5ull,
			    .gen = 9,
			    .node = 11,
			    .offset = 4096 * 3 + 512,
			    .length = 8192,
			    .place_version = 1ull << 48,
			    .mark = 77},
		       back;
	struct ash_relay r = {.sdc = 3, .session = 4, .queue = 5, .hops = 1}, rback;
	uint8_t raw[ASH_HDR_MAX_BYTES];

	assert_int_equal(ash_hdr_encode(&h, &r, raw), ASH_HDR_MAX_BYTES);
	assert_int_equal(ash_hdr_decode(raw, &back), 0);
	assert_int_equal(back.tag, h.tag);
	assert_int_equal(back.offset, h.offset);
	assert_int_equal(back.mark, h.mark);
	assert_int_equal(back.flags, h.flags);
	assert_int_equal(ash_relay_decode(raw + 64, &rback), 0);
	assert_int_equal(rback.session, 4);
	/* Any single flipped bit is noticed. */
	for (unsigned bit = 0; bit < 512; bit++) {
		raw[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		assert_int_not_equal(ash_hdr_decode(raw, &back), 0);
		raw[bit / 8] ^= (uint8_t)(1u << (bit % 8));
	}
}

static void payload_follows_from_header(void **state)
{
	struct ash_hdr h = {.op = ASH_OP_WRITE, .offset = 512, .length = 4096};
	uint32_t crcs, bytes;

	assert_int_equal(ash_hdr_payload(&h, &crcs, &bytes), 4096 + 8);
	assert_int_equal(crcs, 2);
	h.length = ASH_CHUNK_BYTES; /* crosses the chunk */
	assert_int_equal(ash_hdr_payload(&h, &crcs, &bytes), -EINVAL);
	h.offset = 0;
	assert_int_equal(ash_hdr_payload(&h, &crcs, &bytes), ASH_CHUNK_BYTES + 1024);
	h.length = 100;
	assert_int_equal(ash_hdr_payload(&h, &crcs, &bytes), -EINVAL);
	h = (struct ash_hdr){.op = ASH_OP_READ, .length = 4096};
	assert_int_equal(ash_hdr_payload(&h, &crcs, &bytes), 0);
	h.flags = ASH_F_REPLY;
	assert_int_equal(ash_hdr_payload(&h, &crcs, &bytes), 4096 + 4);
	h.status = ASH_ST_STALE;
	h.length = sizeof(struct ash_wire_row);
	assert_int_equal(ash_hdr_payload(&h, &crcs, &bytes), sizeof(struct ash_wire_row));
	h.length = ASH_AUX_MAX_BYTES + 1;
	assert_int_equal(ash_hdr_payload(&h, &crcs, &bytes), -EINVAL);
	h = (struct ash_hdr){.op = ASH_OP_PING, .length = 4};
	assert_int_equal(ash_hdr_payload(&h, &crcs, &bytes), -EINVAL);
}

/* No header, however wrong, yields a payload larger than a chunk with its checksums. */
static void payload_is_bounded(void **state)
{
	struct ash_prng rng;
	uint32_t crcs, bytes;

	ash_prng_seed(&rng, 1);
	for (int i = 0; i < 200000; i++) {
		struct ash_hdr h = {.op = (uint8_t)ash_prng_below(&rng, 48),
				    .flags = (uint16_t)ash_prng_next(&rng),
				    .status = (uint16_t)ash_prng_below(&rng, 20),
				    .offset = ash_prng_below(&rng, 3)
						      ? ash_prng_below(&rng, 1 << 21)
						      : ash_prng_next(&rng),
				    .length = (uint32_t)ash_prng_below(&rng, 1 << 22)};
		int64_t n;

		if (ash_prng_below(&rng, 2)) {
			h.offset &= ~511ull;
			h.length &= ~511u;
		}
		n = ash_hdr_payload(&h, &crcs, &bytes);
		assert_true(n >= -EINVAL && n <= ASH_CHUNK_BYTES + 4 * ASH_PIECES_MAX);
		if (n >= 0)
			assert_int_equal(n, crcs * 4ll + bytes);
	}
}

static void hello_round_trip(void **state)
{
	struct ash_hello h = {.version_min = 1,
			      .version_max = 3,
			      .sender_kind = ASH_SENDER_SDS,
			      .sender = 9,
			      .session = 8,
			      .queue = 1,
			      .path = 2},
			 back;
	struct ash_wire_hello w;

	ash_hello_encode(&h, &w);
	assert_int_equal(ash_hello_decode(&w, sizeof(w), &back), 0);
	assert_int_equal(back.sender, 9);
	assert_int_equal(ash_hello_decode(&w, sizeof(w) - 1, &back), -EBADMSG);
	w.auth_bytes = ash_put32(1);
	assert_int_equal(ash_hello_decode(&w, sizeof(w), &back), -EBADMSG);
	h.version_min = 2;
	ash_hello_encode(&h, &w);
	assert_int_equal(ash_hello_decode(&w, sizeof(w), &back), -EPROTONOSUPPORT);
	w.magic = ash_put64(1);
	assert_int_equal(ash_hello_decode(&w, sizeof(w), &back), -EBADMSG);
}

static void statuses_have_texts(void **state)
{
	for (uint16_t s = 0; s <= ASH_ST_REFUSED; s++)
		assert_string_not_equal(ash_status_text(s), "?");
	assert_string_equal(ash_status_text(999), "?");
	assert_int_equal(ash_status_errno(ASH_ST_NOSPACE), -ENOSPC);
	assert_string_equal(ash_op_text(ASH_OP_XFER), "XFER");
	assert_string_equal(ash_op_text(200), "?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(header_round_trip),
		cmocka_unit_test(payload_follows_from_header),
		cmocka_unit_test(payload_is_bounded),
		cmocka_unit_test(hello_round_trip),
		cmocka_unit_test(statuses_have_texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
