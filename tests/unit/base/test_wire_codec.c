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

/* The bytes themselves, packed and summed by another program. */
static void header_bytes_are_golden(void **state)
{
	static const uint8_t golden[ASH_HDR_BYTES] = {
		0x02, 0x01, 0x04, 0x00, 0x07, 0x00, 0x00, 0x00, 0x88, 0x77, 0x66, 0x55, 0x44,
		0x33, 0x22, 0x11, 0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0b, 0x00,
		0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x32, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x00, 0x20, 0x00, 0x00, 0xc9, 0xe1, 0xf3, 0xeb, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x00, 0x01, 0x00, 0x4d, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
	struct ash_hdr h = {.op = ASH_OP_WRITE,
			    .flags = ASH_F_FUA,
			    .path = 7,
			    .tag = 0x1122334455667788ull,
			    .gen = 9,
			    .node = 11,
			    .offset = 0x3200,
			    .length = 8192,
			    .place_version = 1ull << 48,
			    .mark = 77};
	uint8_t raw[ASH_HDR_MAX_BYTES];

	assert_int_equal(ash_hdr_encode(&h, NULL, raw), ASH_HDR_BYTES);
	assert_memory_equal(raw, golden, sizeof(golden));
}

static void relay_is_checked(void **state)
{
	struct ash_hdr h = {.op = ASH_OP_READ, .flags = ASH_F_RELAY, .length = 512};
	struct ash_relay r = {.sdc = ~1ull, .session = ~2ull, .queue = 0xfffe, .hops = 1}, back;
	uint8_t raw[ASH_HDR_MAX_BYTES];

	ash_hdr_encode(&h, &r, raw);
	assert_int_equal(ash_relay_decode(raw + ASH_HDR_BYTES, &back), 0);
	assert_int_equal(back.sdc, r.sdc);
	assert_int_equal(back.queue, r.queue);
	assert_int_equal(back.hops, 1);
	for (unsigned bit = 0; bit < 8 * ASH_RELAY_BYTES; bit++) {
		raw[ASH_HDR_BYTES + bit / 8] ^= (uint8_t)(1u << (bit % 8));
		assert_int_equal(ash_relay_decode(raw + ASH_HDR_BYTES, &back), -EBADMSG);
		raw[ASH_HDR_BYTES + bit / 8] ^= (uint8_t)(1u << (bit % 8));
	}
}

static void ranges_have_limits(void **state)
{
	struct ash_hdr h = {.op = ASH_OP_REPL_WRITE, .offset = 4096, .length = 8192};
	uint32_t crcs, bytes;

	assert_true(ash_range_ok(0, 512));
	assert_true(ash_range_ok(ASH_CHUNK_BYTES, ASH_CHUNK_BYTES));
	assert_false(ash_range_ok(0, 0));
	assert_false(ash_range_ok(0, 513));
	assert_false(ash_range_ok(1, 512));
	assert_false(ash_range_ok(512, ASH_CHUNK_BYTES));
	/* offset + length must not wrap to something small. */
	assert_false(ash_range_ok(0ull - 4096, 4096));
	assert_false(ash_range_ok(ASH_NODE_MAX_BYTES - 4096, 4096));
	/* Between SDSs: whole blocks only. */
	assert_int_equal(ash_hdr_payload(&h, &crcs, &bytes), 8192 + 8);
	h.length = 512;
	assert_int_equal(ash_hdr_payload(&h, &crcs, &bytes), -EINVAL);
	h.op = ASH_OP_WRITE;
	assert_int_equal(ash_hdr_payload(&h, &crcs, &bytes), 512 + 4);
	h = (struct ash_hdr){.op = ASH_OP_REPL_DISCARD, .offset = 512, .length = 4096};
	assert_int_equal(ash_hdr_payload(&h, &crcs, &bytes), -EINVAL);
	/* XFER carries data for the state DATA only, and must name a state. */
	h = (struct ash_hdr){.op = ASH_OP_XFER, .status = ASH_BLK_ZERO, .length = 4096};
	assert_int_equal(ash_hdr_payload(&h, &crcs, &bytes), 0);
	h.status = ASH_BLK_DATA;
	assert_int_equal(ash_hdr_payload(&h, &crcs, &bytes), 4096 + 4);
	h.status = ASH_BLK_BAD + 1;
	assert_int_equal(ash_hdr_payload(&h, &crcs, &bytes), -EINVAL);
}

static void small_payloads_round_trip(void **state)
{
	struct ash_lease l = {.ask_id = ~7ull, .duration_ms = 600}, lback;
	struct ash_inv e = {.node = 3, .chunk = 4, .stamp = ~5ull, .flags = ASH_INV_UNSETTLED},
		       eback;
	struct ash_blockhash b = {.hash = ~9ull, .state = ASH_BLK_DATA}, bback;
	struct ash_wire_lease wl;
	struct ash_wire_inv we;
	struct ash_wire_blockhash wb;

	ash_lease_encode(&l, &wl);
	assert_int_equal(ash_lease_decode(&wl, sizeof(wl), &lback), 0);
	assert_true(lback.ask_id == l.ask_id && lback.duration_ms == 600);
	assert_int_equal(ash_lease_decode(&wl, sizeof(wl) - 1, &lback), -EBADMSG);
	wl.reserved = ash_put32(1);
	assert_int_equal(ash_lease_decode(&wl, sizeof(wl), &lback), -EBADMSG);
	ash_inv_encode(&e, &we);
	assert_int_equal(ash_inv_decode(&we, &eback), 0);
	assert_true(eback.node == 3 && eback.chunk == 4 && eback.stamp == e.stamp &&
		    eback.flags == e.flags);
	we.flags = ash_put32(2);
	assert_int_equal(ash_inv_decode(&we, &eback), -EBADMSG);
	e.chunk = ASH_NODE_MAX_BYTES / ASH_CHUNK_BYTES;
	ash_inv_encode(&e, &we);
	assert_int_equal(ash_inv_decode(&we, &eback), -EBADMSG);
	ash_blockhash_encode(&b, &wb);
	assert_int_equal(ash_blockhash_decode(&wb, &bback), 0);
	assert_true(bback.hash == b.hash && bback.state == b.state);
	wb.state = ASH_BLK_ZERO;
	assert_int_equal(ash_blockhash_decode(&wb, &bback), -EBADMSG);
	wb.state = ASH_BLK_BAD + 1;
	assert_int_equal(ash_blockhash_decode(&wb, &bback), -EBADMSG);
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
	w.version_min = 1;
	w.reserved1[59] = 1;
	assert_int_equal(ash_hello_decode(&w, sizeof(w), &back), -EBADMSG);
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
		cmocka_unit_test(header_bytes_are_golden),
		cmocka_unit_test(relay_is_checked),
		cmocka_unit_test(ranges_have_limits),
		cmocka_unit_test(small_payloads_round_trip),
		cmocka_unit_test(payload_follows_from_header),
		cmocka_unit_test(payload_is_bounded),
		cmocka_unit_test(hello_round_trip),
		cmocka_unit_test(statuses_have_texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
