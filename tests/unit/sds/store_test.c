// SPDX-License-Identifier: MIT
/* The store's contract, case by case. Damage: store_damage_test.c; crashes at random points:
 * store_crash.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "tests/unit/sds/store_cases.h"

static void write_read_overwrite(void **state)
{
	for (unsigned wb = 0; wb < 2; wb++) {
		struct rig r;

		begin(&r, wb);
		expect(&r, 5, 0, 256, -1);
		assert_int_equal(put(&r, 5, 10, 3, 1), 0);
		assert_false(r.op.existed);
		assert_true(r.op.first_only);
		expect(&r, 5, 10, 3, 1);
		expect(&r, 5, 13, 200, -1);
		assert_int_equal(put(&r, 5, 11, 1, 90), 0);
		assert_true(r.op.existed);
		assert_false(r.op.first_only);
		expect(&r, 5, 11, 1, 90);
		expect(&r, 5, 12, 1, 3);
		assert_int_equal(put(&r, 5, 0, 256, 7), 0);
		expect(&r, 5, 0, 256, 7);
		rig_done(&r);
	}
}

static void acknowledged_survives_a_cut(void **state)
{
	for (unsigned wb = 0; wb < 2; wb++) {
		struct rig r;
		struct sds_chunk_info info;

		begin(&r, wb);
		assert_int_equal(put(&r, 1, 0, 8, 1), 0);
		assert_int_equal(put(&r, 1, 2, 2, 50), 0);
		assert_int_equal(put(&r, 2, 255, 1, 60), 0);
		assert_int_equal(rig_flush(&r), 0);
		reopen(&r);
		expect(&r, 1, 0, 2, 1);
		expect(&r, 1, 2, 2, 50);
		expect(&r, 1, 4, 4, 5);
		expect(&r, 2, 255, 1, 60);
		assert_true(sds_store_lookup(r.store, 1, 1, &info));
		assert_true(info.unsettled);
		rig_done(&r);
	}
}

static void label_counts_openings(void **state)
{
	struct rig r;
	uint64_t inc;

	begin(&r, true);
	inc = sds_store_label(r.store)->incarnation;
	assert_int_equal(inc, 1);
	sds_store_note_map_version(r.store, 77, 900);
	for (unsigned i = 0; i < 40; i++)
		simworld_step(&r.w);
	assert_int_equal(rig_close(&r), 0);
	assert_int_equal(rig_probe(&r), 0);
	assert_true(r.label.clean);
	assert_int_equal(r.label.map_version, 77);
	assert_int_equal(r.label.longest_lease_ms, 900);
	assert_int_equal(rig_open(&r), 0);
	assert_int_equal(sds_store_label(r.store)->incarnation, 2);
	rig_cut(&r);
	assert_int_equal(rig_probe(&r), 0);
	assert_false(r.label.clean);
	/* the first copy gone: the second serves */
	memset(r.data, 0, ASH_BLOCK_BYTES);
	simdisk_poke(r.disk, SDS_LABEL_A_OFFSET, r.data);
	assert_int_equal(rig_open(&r), 0);
	assert_int_equal(sds_store_label(r.store)->incarnation, 3);
	rig_cut(&r);
	simdisk_rot(r.disk, SDS_LABEL_A_OFFSET, 900);
	simdisk_rot(r.disk, SDS_LABEL_B_OFFSET, 900);
	assert_int_equal(rig_open(&r), -EBADMSG);
	rig_done(&r);
}

static void discard_frees_and_reads_zero(void **state)
{
	struct rig r;
	struct sds_store_stats st;

	begin(&r, false);
	assert_int_equal(put(&r, 1, 0, 4, 1), 0);
	assert_int_equal(rig_op(&r, SDS_STORE_DISCARD, 1, 1, 1, 2), 0);
	expect(&r, 1, 0, 1, 1);
	expect(&r, 1, 1, 2, -1);
	sds_store_stats(r.store, &st);
	assert_int_equal(st.used, 1);
	assert_int_equal(rig_op(&r, SDS_STORE_DISCARD, 1, 1, 0, 256), 0);
	sds_store_stats(r.store, &st);
	assert_int_equal(st.used, 0);
	assert_int_equal(st.pending_free, 0);
	expect(&r, 1, 0, 8, -1);
	/* zero marks keep the extent, bad marks read as such */
	assert_int_equal(rig_op(&r, SDS_STORE_ZERO, 1, 3, 0, 4), 0);
	expect(&r, 3, 0, 8, -1);
	assert_int_equal(r.state[0], ASH_BLK_ZERO);
	assert_int_equal(r.state[4], ASH_BLK_INHERIT);
	assert_int_equal(rig_op(&r, SDS_STORE_BAD, 1, 3, 2, 1), 0);
	assert_int_equal(rig_op(&r, SDS_STORE_READ, 1, 3, 0, 4), -ENODATA);
	assert_int_equal(r.op.bad_block, 2);
	reopen(&r);
	assert_int_equal(rig_op(&r, SDS_STORE_READ, 1, 3, 0, 4), -ENODATA);
	assert_int_equal(put(&r, 3, 2, 1, 9), 0);
	expect(&r, 3, 2, 1, 9);
	assert_int_equal(rig_op(&r, SDS_STORE_UNDO, 1, 3, 2, 1), 0);
	expect(&r, 3, 2, 1, -1);
	assert_int_equal(rig_op(&r, SDS_STORE_DROP, 1, 3, 0, 0), 0);
	sds_store_stats(r.store, &st);
	assert_int_equal(st.used, 0);
	rig_done(&r);
}

static void full_device_says_so(void **state)
{
	struct rig r;
	struct sds_store_stats st;

	begin(&r, false);
	for (uint64_t c = 0; c < 12; c++)
		assert_int_equal(put(&r, c, 0, 1, (uint8_t)c), 0);
	assert_int_equal(put(&r, 99, 0, 1, 1), -ENOSPC);
	assert_int_equal(sds_store_reserve(r.store, 1, 99, false), -ENOSPC);
	assert_int_equal(sds_store_reserve(r.store, 1, 3, false), 1);
	assert_int_equal(put(&r, 3, 0, 1, 77), 0); /* overwrites go on */
	assert_int_equal(rig_op(&r, SDS_STORE_DROP, 1, 4, 0, 0), 0);
	assert_int_equal(sds_store_reserve(r.store, 1, 99, false), 0);
	assert_int_equal(put(&r, 98, 0, 1, 1), -ENOSPC); /* kept for the other */
	assert_int_equal(put(&r, 99, 0, 1, 1), 0);
	assert_int_equal(rig_op(&r, SDS_STORE_DROP, 1, 5, 0, 0), 0);
	assert_int_equal(sds_store_reserve(r.store, 1, 98, false), 0);
	sds_store_unreserve(r.store, 1, 98);
	assert_int_equal(put(&r, 97, 0, 1, 1), 0);
	sds_store_stats(r.store, &st);
	assert_int_equal(st.used, 12);
	rig_done(&r);
}

static void on_status(void *arg, int status)
{
	struct rig *r = arg;

	r->flag = true;
	r->result = status;
}

static void stamps_and_settling(void **state)
{
	struct rig r;
	struct sds_chunk_info info[12], one;
	uint64_t cursor;
	unsigned n;

	begin(&r, false);
	for (uint64_t c = 0; c < 8; c++)
		assert_int_equal(put(&r, c, 0, 1, 1), 0);
	r.gen = 9;
	r.shrunk_at = 8;
	assert_int_equal(put(&r, 2, 0, 1, 1), 0); /* hot or not: stamped once */
	r.gen = 10;
	assert_int_equal(put(&r, 2, 0, 1, 1), 0);
	reopen(&r);
	assert_true(sds_store_lookup(r.store, 1, 2, &one));
	assert_int_equal(one.stamp, 9);
	n = sds_store_scan(r.store, 0, info, 5, &cursor);
	assert_int_equal(n, 5);
	n += sds_store_scan(r.store, cursor, info + 5, 7, &cursor);
	assert_int_equal(n, 8);
	assert_int_equal(cursor, 0);
	r.flag = false;
	sds_store_stamp(r.store, info, n, 20, on_status, &r);
	assert_true(simworld_until(&r.w, &r.flag, RIG_STEPS));
	assert_int_equal(r.result, 0);
	for (uint64_t c = 0; c < 8; c++) {
		assert_true(sds_store_lookup(r.store, 1, c, &one));
		assert_int_equal(one.stamp, 20);
		assert_true(one.unsettled);
		sds_store_settle(r.store, 1, c);
		assert_true(sds_store_lookup(r.store, 1, c, &one));
		assert_false(one.unsettled);
	}
	assert_int_equal(put(&r, 3, 0, 1, 1), 0);
	assert_true(sds_store_lookup(r.store, 1, 3, &one));
	assert_true(one.unsettled);
	assert_int_equal(rig_close(&r), 0);
	assert_int_equal(rig_open(&r), 0);
	for (uint64_t c = 0; c < 8; c++) {
		assert_true(sds_store_lookup(r.store, 1, c, &one));
		assert_int_equal(one.stamp, 20);
		assert_int_equal(one.unsettled, c == 3);
	}
	rig_done(&r);
}

static void note_end(struct sds_store_op *op, int status)
{
	assert_int_equal(status, 0);
	op->owner = NULL;
}

static void count_node(void *arg, uint64_t node, uint64_t extents)
{
	uint64_t *sum = arg;

	sum[node] += extents;
}

static void dropping_a_node_takes_all_of_it(void **state)
{
	struct rig r;
	uint64_t use[4] = {0};
	struct sds_store_stats st;
	uint32_t crc;
	struct sds_store_op op = {.kind = SDS_STORE_READ,
				  .node = 1,
				  .chunk = 3,
				  .blocks = 1,
				  .crc = &crc,
				  .buf_index = -1,
				  .done = note_end,
				  .owner = &r};

	begin(&r, true);
	for (uint64_t c = 0; c < 5; c++) {
		fill(&r, 1, 1);
		assert_int_equal(rig_op(&r, SDS_STORE_WRITE, 1, c, 0, 1), 0);
		assert_int_equal(rig_op(&r, SDS_STORE_WRITE, 2, c, 0, 1), 0);
	}
	sds_store_node_use(r.store, count_node, use);
	assert_int_equal(use[1], 5);
	assert_int_equal(rig_flush(&r), 0);
	/* with a read in flight, which the drop waits for */
	op.data = sds_aligned(ASH_BLOCK_BYTES);
	sds_store_submit(r.store, &op);
	r.flag = false;
	sds_store_drop_node(r.store, 1, on_status, &r);
	assert_true(simworld_until(&r.w, &r.flag, RIG_STEPS));
	assert_int_equal(r.result, 0);
	assert_true(op.owner == NULL);
	free(op.data);
	reopen(&r);
	memset(use, 0, sizeof(use));
	sds_store_node_use(r.store, count_node, use);
	assert_int_equal(use[1], 0);
	assert_int_equal(use[2], 5);
	sds_store_stats(r.store, &st);
	assert_int_equal(st.used, 5);
	expect(&r, 2, 0, 4, -1);
	rig_done(&r);
}

/* Far more records than the ring holds: checkpoints keep it going, and nothing is lost. */
static void journal_goes_round(void **state)
{
	for (unsigned wb = 0; wb < 2; wb++) {
		struct rig r;
		struct sds_store_stats st;

		begin(&r, wb);
		for (unsigned i = 0; i < 1500; i++) {
			uint64_t c = i % 11;

			if (i % 7 == 3)
				assert_int_equal(rig_op(&r, SDS_STORE_DROP, 1, c, 0, 0), 0);
			assert_int_equal(put(&r, c, i / 11 % 200, 2, (uint8_t)i), 0);
			if (i % 500 == 250) {
				assert_int_equal(rig_flush(&r), 0);
				reopen(&r);
			}
			expect(&r, c, i / 11 % 200, 2, (uint8_t)i);
		}
		sds_store_stats(r.store, &st);
		assert_true(st.checkpoints > 3);
		assert_true(st.al_evictions > 100);
		rig_done(&r);
	}
}

static void abandoned_store_goes_when_the_disk_lets_it(void **state)
{
	struct rig r;

	begin(&r, false);
	fill(&r, 1, 1);
	r.op = (struct sds_store_op){.kind = SDS_STORE_WRITE,
				     .node = 1,
				     .chunk = 1,
				     .blocks = 1,
				     .data = r.data,
				     .crc = r.crc,
				     .buf_index = -1,
				     .owner = &r};
	sds_store_submit(r.store, &r.op); /* no done: it must not be called */
	sds_store_abandon(r.store);
	r.store = NULL;
	while (simworld_step(&r.w))
		;
	assert_int_equal(simdisk_handle(r.disk)->inflight, 0);
	rig_done(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(write_read_overwrite),
		cmocka_unit_test(acknowledged_survives_a_cut),
		cmocka_unit_test(label_counts_openings),
		cmocka_unit_test(discard_frees_and_reads_zero),
		cmocka_unit_test(full_device_says_so),
		cmocka_unit_test(stamps_and_settling),
		cmocka_unit_test(dropping_a_node_takes_all_of_it),
		cmocka_unit_test(journal_goes_round),
		cmocka_unit_test(abandoned_store_goes_when_the_disk_lets_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
