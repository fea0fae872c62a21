// SPDX-License-Identifier: MIT
/* The store's contract, case by case. Crashes at random points: store_crash.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/crc.h"
#include "tests/unit/sds/store_rig.h"

#define SMALL ((2u << 20) + (64u + 16u) * 4096u + (20u << 20))
static const struct sds_format_params params = {
	.al_capacity = 4, .journal_blocks = 64, .extents = 12};

static void fill(struct rig *r, unsigned blocks, uint8_t seed)
{
	for (unsigned b = 0; b < blocks; b++) {
		memset(r->data + (size_t)b * ASH_BLOCK_BYTES, seed + (int)b, ASH_BLOCK_BYTES);
		r->crc[b] = ash_crc32c(r->data + (size_t)b * ASH_BLOCK_BYTES, ASH_BLOCK_BYTES);
	}
}

static int put(struct rig *r, uint64_t chunk, unsigned first, unsigned blocks, uint8_t seed)
{
	fill(r, blocks, seed);
	return rig_op(r, SDS_STORE_WRITE, 1, chunk, first, blocks);
}

static void expect(struct rig *r, uint64_t chunk, unsigned first, unsigned blocks, int seed)
{
	memset(r->data, 0x5a, (size_t)blocks * ASH_BLOCK_BYTES);
	assert_int_equal(rig_op(r, SDS_STORE_READ, 1, chunk, first, blocks), 0);
	for (unsigned b = 0; b < blocks; b++) {
		const uint8_t *p = r->data + (size_t)b * ASH_BLOCK_BYTES;
		uint8_t want = seed < 0 ? 0 : (uint8_t)(seed + (int)b);

		for (unsigned i = 0; i < ASH_BLOCK_BYTES; i++)
			assert_int_equal(p[i], want);
		assert_int_equal(r->crc[b], ash_crc32c(p, ASH_BLOCK_BYTES));
		if (seed >= 0)
			assert_int_equal(r->state[b], ASH_BLK_DATA);
	}
}

static void begin(struct rig *r, bool write_back)
{
	rig_init(r, 42, SMALL, write_back);
	assert_int_equal(rig_probe(r), -ENODATA);
	assert_int_equal(rig_format(r, &params), 0);
	assert_int_equal(rig_open(r), 0);
}

static void reopen(struct rig *r)
{
	rig_cut(r);
	assert_int_equal(rig_open(r), 0);
}

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

static void bitrot_is_noticed_and_healed(void **state)
{
	struct rig r;
	uint32_t ext;

	begin(&r, false);
	assert_int_equal(put(&r, 1, 0, 4, 1), 0);
	ext = sds_index_find(r.store, 1, 1);
	simdisk_rot(r.disk, sds_data_offset(r.store, ext, 2), 12345);
	assert_int_equal(rig_op(&r, SDS_STORE_READ, 1, 1, 0, 4), -EBADMSG);
	assert_int_equal(r.op.bad_block, 2);
	expect(&r, 1, 0, 2, 1);
	expect(&r, 1, 3, 1, 4);
	assert_int_equal(put(&r, 1, 2, 1, 3), 0);
	expect(&r, 1, 0, 4, 1);
	/* after a clean close the checksums are on the disk */
	assert_int_equal(rig_close(&r), 0);
	simdisk_rot(r.disk, sds_data_offset((assert_int_equal(rig_open(&r), 0), r.store), ext, 1),
		    7);
	assert_int_equal(rig_op(&r, SDS_STORE_READ, 1, 1, 0, 4), -EBADMSG);
	assert_int_equal(r.op.bad_block, 1);
	rig_done(&r);
}

static void damaged_checksum_page_is_unknown_not_bad(void **state)
{
	struct rig r;
	uint32_t ext;

	begin(&r, false);
	assert_int_equal(put(&r, 1, 0, 4, 1), 0);
	ext = sds_index_find(r.store, 1, 1);
	assert_int_equal(rig_close(&r), 0);
	assert_int_equal(rig_open(&r), 0);
	simdisk_rot(r.disk, sds_csum_offset(r.store, ext), 2000);
	expect(&r, 1, 0, 4, 1);
	assert_true(r.op.unknown);
	expect(&r, 1, 0, 4, 1);
	assert_false(r.op.unknown);
	rig_done(&r);
}

static void unreadable_block_is_named(void **state)
{
	struct rig r;
	uint32_t ext;

	begin(&r, false);
	assert_int_equal(put(&r, 1, 0, 8, 1), 0);
	ext = sds_index_find(r.store, 1, 1);
	simdisk_medium_error(r.disk, sds_data_offset(r.store, ext, 5));
	assert_int_equal(rig_op(&r, SDS_STORE_READ, 1, 1, 0, 8), -EIO);
	assert_int_equal(r.op.bad_block, 5);
	expect(&r, 1, 0, 5, 1);
	assert_int_equal(put(&r, 1, 5, 1, 6), 0);
	expect(&r, 1, 0, 8, 1);
	rig_done(&r);
}

static int fail_data_writes(void *arg, const struct ash_disk_op *op)
{
	struct rig *r = arg;

	return op->kind == ASH_DISK_WRITE && op->offset >= r->store->label.geo.data_offset ? -EIO
											   : 0;
}

static void failed_write_is_taken_back_and_the_extent_retired(void **state)
{
	struct rig r;
	struct sds_store_stats st;

	begin(&r, false);
	assert_int_equal(put(&r, 2, 0, 1, 1), 0);
	simdisk_set_fault(r.disk, fail_data_writes, &r);
	assert_int_equal(put(&r, 1, 0, 4, 1), -EIO);
	assert_int_equal(put(&r, 2, 1, 2, 9), -EIO);
	simdisk_set_fault(r.disk, NULL, NULL);
	expect(&r, 1, 0, 4, -1);
	expect(&r, 2, 0, 1, 1);
	expect(&r, 2, 1, 2, -1);
	sds_store_stats(r.store, &st);
	assert_int_equal(st.retired, 1);
	assert_int_equal(st.used, 1);
	assert_int_equal(rig_op(&r, SDS_STORE_DROP, 1, 2, 0, 0), 0);
	reopen(&r);
	sds_store_stats(r.store, &st);
	assert_int_equal(st.retired, 2);
	for (uint64_t c = 20; c < 30; c++)
		assert_int_equal(put(&r, c, 0, 1, 3), 0);
	assert_int_equal(put(&r, 30, 0, 1, 3), -ENOSPC);
	rig_done(&r);
}

static int fail_journal_writes(void *arg, const struct ash_disk_op *op)
{
	struct rig *r = arg;
	const struct sds_geo *g = &r->store->label.geo;

	return op->kind == ASH_DISK_WRITE && op->offset >= g->journal_offset &&
			       op->offset < g->table_offset
		       ? -EIO
		       : 0;
}

static int failed_with;
static void on_failed(void *owner, int err)
{
	failed_with = err;
}

static void journal_error_fails_the_device(void **state)
{
	struct rig r;
	struct sds_store_events ev = {.failed = on_failed};

	begin(&r, false);
	sds_store_set_events(r.store, &ev);
	assert_int_equal(put(&r, 1, 0, 1, 1), 0);
	simdisk_set_fault(r.disk, fail_journal_writes, &r);
	assert_int_equal(put(&r, 2, 0, 1, 1), -ENODEV);
	assert_int_equal(failed_with, -EIO);
	assert_int_equal(put(&r, 1, 0, 1, 1), -ENODEV);
	assert_int_equal(rig_op(&r, SDS_STORE_READ, 1, 1, 0, 1), -ENODEV);
	simdisk_set_fault(r.disk, NULL, NULL);
	assert_int_equal(rig_close(&r), -EIO);
	assert_int_equal(rig_open(&r), 0);
	expect(&r, 1, 0, 1, 1);
	rig_done(&r);
}

static int fail_flush(void *arg, const struct ash_disk_op *op)
{
	return op->kind == ASH_DISK_FLUSH ? -EIO : 0;
}

static void failed_flush_is_never_forgotten(void **state)
{
	struct rig r;

	begin(&r, true);
	assert_int_equal(put(&r, 1, 0, 1, 1), 0);
	simdisk_set_fault(r.disk, fail_flush, NULL);
	assert_int_equal(rig_flush(&r), -EIO);
	simdisk_set_fault(r.disk, NULL, NULL);
	assert_int_equal(rig_flush(&r), -ENODEV);
	rig_done(&r);
}

static void damaged_table_is_refused(void **state)
{
	struct rig r;
	uint64_t at;

	begin(&r, false);
	assert_int_equal(put(&r, 1, 0, 1, 1), 0);
	at = r.store->label.geo.table_offset;
	assert_int_equal(rig_close(&r), 0);
	simdisk_rot(r.disk, at, 11 * SDS_ENTRY_BYTES * 8 + 5); /* low extents come first */
	simdisk_rot(r.disk, at, 5);
	assert_int_equal(rig_open(&r), -EBADMSG);
	rig_done(&r);
}

/* A journal block that was durable and is gone is not taken for the end of the journal. */
static void damaged_journal_is_refused(void **state)
{
	struct rig r;
	uint64_t at;

	begin(&r, false);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(put(&r, i, 0, 1, 1), 0);
	at = r.store->label.geo.journal_offset +
	     (r.store->j.durable - 2) % r.store->j.blocks * ASH_BLOCK_BYTES;
	rig_cut(&r);
	simdisk_rot(r.disk, at, 3000);
	assert_int_equal(rig_open(&r), -EBADMSG);
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

	begin(&r, true);
	for (uint64_t c = 0; c < 5; c++) {
		fill(&r, 1, 1);
		assert_int_equal(rig_op(&r, SDS_STORE_WRITE, 1, c, 0, 1), 0);
		assert_int_equal(rig_op(&r, SDS_STORE_WRITE, 2, c, 0, 1), 0);
	}
	sds_store_node_use(r.store, count_node, use);
	assert_int_equal(use[1], 5);
	assert_int_equal(rig_flush(&r), 0);
	r.flag = false;
	sds_store_drop_node(r.store, 1, on_status, &r);
	assert_true(simworld_until(&r.w, &r.flag, RIG_STEPS));
	assert_int_equal(r.result, 0);
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
		cmocka_unit_test(bitrot_is_noticed_and_healed),
		cmocka_unit_test(damaged_checksum_page_is_unknown_not_bad),
		cmocka_unit_test(unreadable_block_is_named),
		cmocka_unit_test(failed_write_is_taken_back_and_the_extent_retired),
		cmocka_unit_test(journal_error_fails_the_device),
		cmocka_unit_test(failed_flush_is_never_forgotten),
		cmocka_unit_test(damaged_table_is_refused),
		cmocka_unit_test(damaged_journal_is_refused),
		cmocka_unit_test(stamps_and_settling),
		cmocka_unit_test(dropping_a_node_takes_all_of_it),
		cmocka_unit_test(journal_goes_round),
		cmocka_unit_test(abandoned_store_goes_when_the_disk_lets_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
