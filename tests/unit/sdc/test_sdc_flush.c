// SPDX-License-Identifier: MIT
/* A flush reaches every device that may hold what was written, and no other. */
#include <errno.h>

#include "common/shared/chunk_pg.h"
#include "tests/unit/sdc/core_rig.h"

static bool all_flushed(void)
{
	return fake_all_flushed(&f);
}

static uint64_t flushes(void)
{
	return f.sds[0].flushes + f.sds[1].flushes + f.sds[2].flushes;
}

static void test_write_through_devices_get_no_flush(void **state)
{
	assert_int_equal(wr(0, a, 4 << 20), 0);
	assert_int_equal(flush_all(), 0);
	assert_int_equal(flushes(), 0);
}

static void make_write_back(bool shared)
{
	for (int s = 0; s < FAKE_SDSS; s++)
		f.write_back[s] = true;
	f.shared = shared;
	fake_commit(&f, true);
	fake_run(&f, FAKE_MS, NULL);
}

static void test_flush_reaches_each_sds_once_then_only_those_written_to(void **state)
{
	make_write_back(false);
	assert_int_equal(wr(0, a, 4 << 20), 0);
	assert_int_equal(flush_all(), 0);
	assert_int_equal(flushes(), 3);
	assert_true(all_flushed());
	assert_int_equal(flush_all(), 0);
	assert_int_equal(flushes(), 3);
	assert_int_equal(wr(0, a, 4096), 0);
	assert_int_equal(flush_all(), 0);
	assert_int_equal(flushes(), 4);
	assert_true(all_flushed());
}

static void test_a_shared_volume_flushes_everybody_always(void **state)
{
	make_write_back(true);
	for (int i = 1; i < 4; i++) {
		assert_int_equal(flush_all(), 0);
		assert_int_equal(flushes(), 3 * i);
	}
}

static void test_a_write_through_primary_with_a_write_back_second_is_flushed(void **state)
{
	f.write_back[1] = true; /* second copy of what SDS 0 leads */
	fake_commit(&f, true);
	fake_run(&f, FAKE_MS, NULL);
	assert_int_equal(flush_all(), 0);
	assert_int_equal(f.sds[0].flushes, 1);
	assert_int_equal(f.sds[1].flushes, 1);
	assert_int_equal(f.sds[2].flushes, 0);
}

static int moves_left;

/* The primary of a PG moves before the SDS flushes, and nobody tells the client. */
static enum fake_act move_at_flush(struct fake *fk, int sds, const struct ash_hdr *h)
{
	uint32_t pg = ash_chunk_pg(0, 0, 4, FAKE_PGS);

	if (h->op == ASH_OP_FLUSH && fk->row[pg].primary == sds && moves_left-- > 0)
		fake_move(fk, pg, (sds + 1) % FAKE_SDSS, false);
	return FAKE_SERVE;
}

static void test_flush_follows_a_primary_that_moved_unseen(void **state)
{
	make_write_back(false);
	for (int k = 0; k < 10; k++) {
		/* After the first whole round only this PG is asked for. */
		assert_int_equal(wr(0, a, 4096), 0);
		moves_left = 1;
		f.hook = move_at_flush;
		assert_int_equal(flush_all(), 0);
		assert_true(all_flushed());
	}
}

static void test_flush_waits_for_a_dead_primary_until_it_is_replaced(void **state)
{
	uint32_t pg = ash_chunk_pg(0, 0, 4, FAKE_PGS);
	struct fake_io io = {0}, more = {0};
	int dead = f.row[pg].primary;

	make_write_back(false);
	assert_int_equal(wr(0, a, 4096), 0);
	fake_sds_kill(&f, dead);
	fake_submit(vol, &io, SDC_FLUSH, 0, NULL, 0);
	fake_run(&f, 10 * FAKE_SEC, &io.done);
	assert_false(io.done);
	fake_submit(vol, &more, SDC_FLUSH, 0, NULL, 0);
	for (uint32_t i = 0; i < FAKE_PGS; i++)
		if (f.row[i].primary == dead)
			fake_move(&f, i, (dead + 1) % FAKE_SDSS, true);
	fake_run(&f, FAKE_SEC, &io.done);
	assert_int_equal(io.status, 0);
	fake_run(&f, FAKE_SEC, &more.done);
	assert_int_equal(more.status, 0);
	assert_true(all_flushed());
}

static void test_a_failed_flush_is_told_and_not_forgotten(void **state)
{
	make_write_back(false);
	assert_int_equal(flush_all(), 0);
	assert_int_equal(wr(0, a, 4096), 0);
	set_hook(1, ASH_OP_FLUSH, FAKE_STATUS + ASH_ST_MEDIUM);
	assert_int_equal(flush_all(), -EIO);
	assert_false(all_flushed());
	assert_int_equal(flush_all(), 0);
	assert_true(all_flushed());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_write_through_devices_get_no_flush),
		RIG_TEST(test_flush_reaches_each_sds_once_then_only_those_written_to),
		RIG_TEST(test_a_shared_volume_flushes_everybody_always),
		RIG_TEST(test_a_write_through_primary_with_a_write_back_second_is_flushed),
		RIG_TEST(test_flush_follows_a_primary_that_moved_unseen),
		RIG_TEST(test_flush_waits_for_a_dead_primary_until_it_is_replaced),
		RIG_TEST(test_a_failed_flush_is_told_and_not_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
