// SPDX-License-Identifier: MIT
/* Disks that fail, rot or lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "tests/unit/sds/store_cases.h"
#include "tests/unit/sds/store_fuzz.h"

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

/* Changes bytes of what lies at @offset and makes its checksum right again. */
static void mutate(struct rig *r, uint64_t offset, size_t from, size_t bytes, size_t span,
		   size_t crc_at)
{
	uint8_t block[ASH_BLOCK_BYTES];
	uint32_t crc;

	simdisk_peek(r->disk, offset, block);
	for (unsigned n = 1 + (unsigned)ash_prng_below(&r->w.rng, 3); n > 0; n--) {
		size_t at = from + ash_prng_below(&r->w.rng, span);

		block[at] = ash_prng_below(&r->w.rng, 2)
				    ? (uint8_t)ash_prng_next(&r->w.rng)
				    : block[at] ^ (uint8_t)(1u << ash_prng_below(&r->w.rng, 8));
	}
	memset(block + from + crc_at, 0, 4);
	crc = ash_crc32c(block + from, bytes);
	memcpy(block + from + crc_at, &crc, 4); /* the tests run on little-endian machines */
	simdisk_poke(r->disk, offset, block);
}

/* Journal and table whose checksums are right and whose contents are nonsense: any result but a
 * crash or a hang. */
static void nonsense_with_right_checksums_is_survived(void **state)
{
	unsigned opened = 0;

	for (unsigned n = 0; n < 600; n++) {
		struct rig r;
		const struct sds_geo *g;

		rig_init(&r, n, SMALL, n & 1);
		assert_int_equal(rig_format(&r, &params), 0);
		assert_int_equal(rig_open(&r), 0);
		for (unsigned i = 0; i < 20; i++)
			assert_int_equal(put(&r, i % 9, i * 3 % 200, 1 + i % 5, (uint8_t)i), 0);
		g = &r.store->label.geo;
		for (unsigned i = 0; i < 3; i++) {
			uint64_t seq = r.store->j.durable - ash_prng_below(&r.w.rng, 12);

			mutate(&r, g->journal_offset + seq % g->journal_blocks * ASH_BLOCK_BYTES, 0,
			       ASH_BLOCK_BYTES, ash_prng_below(&r.w.rng, 2) ? 700 : 250, 4);
		}
		if (n % 3 == 0)
			mutate(&r, g->table_offset, ash_prng_below(&r.w.rng, 12) * SDS_ENTRY_BYTES,
			       SDS_ENTRY_BYTES, SDS_ENTRY_BYTES, 60);
		rig_cut(&r);
		if (rig_open(&r) == 0) {
			opened++;
			for (unsigned i = 0; i < 12; i++) {
				rig_op(&r, SDS_STORE_READ, 1, i, 0, 256);
				rig_op(&r, SDS_STORE_DISCARD, 1, i, 0, 3);
				put(&r, i, i, 4, 1);
			}
			assert_int_equal(rig_close(&r), 0);
		}
		rig_done(&r);
	}
	assert_true(opened > 30);
}

static void fuzz_entries_take_anything(void **state)
{
	struct ash_prng rng;
	static uint8_t data[18 * ASH_BLOCK_BYTES];

	ash_prng_seed(&rng, 9);
	for (unsigned n = 0; n < 20; n++) {
		for (size_t i = 0; i < sizeof(data); i++)
			data[i] = (uint8_t)ash_prng_next(&rng);
		store_fuzz_label(data, n * 300);
		store_fuzz_journal(data, n * 300);
		store_fuzz_table(data, n * 300);
		store_fuzz_open(data, ash_prng_below(&rng, sizeof(data)));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bitrot_is_noticed_and_healed),
		cmocka_unit_test(damaged_checksum_page_is_unknown_not_bad),
		cmocka_unit_test(unreadable_block_is_named),
		cmocka_unit_test(failed_write_is_taken_back_and_the_extent_retired),
		cmocka_unit_test(journal_error_fails_the_device),
		cmocka_unit_test(failed_flush_is_never_forgotten),
		cmocka_unit_test(damaged_table_is_refused),
		cmocka_unit_test(damaged_journal_is_refused),
		cmocka_unit_test(nonsense_with_right_checksums_is_survived),
		cmocka_unit_test(fuzz_entries_take_anything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
