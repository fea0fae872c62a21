// SPDX-License-Identifier: MIT
/* Whom the data client asks, and what it does when it is not served: statuses, rows, paths. */
#include <errno.h>
#include <string.h>

#include "common/shared/chunk_pg.h"
#include "tests/unit/sdc/core_rig.h"

/* ------------------------------------------------------------ who serves */

static void test_stale_row_is_used_at_once(void **state)
{
	uint64_t from;

	assert_int_equal(wr(0, a, 4096), 0);
	fake_move(&f, ash_chunk_pg(0, 0, 4, FAKE_PGS), 2, false);
	fake_ctl_set(&f, false);
	from = f.now;
	assert_int_equal(wr(0, a, 4096), 0);
	assert_true(f.now - from < 5 * FAKE_MS);
	assert_int_equal(stats().stale, 1);
	fake_ctl_set(&f, true);
}

static void test_a_row_that_stays_stale_is_no_hot_loop(void **state)
{
	set_hook(12, ASH_OP_WRITE, FAKE_STATUS + ASH_ST_STALE);
	assert_int_equal(wr(0, a, 4096), 0);
	assert_true(f.now > FAKE_SEC + 20 * FAKE_MS);
	assert_int_equal(stats().stale, 12);
}

static void test_behind_and_retry_are_repeated(void **state)
{
	set_hook(5, 0, FAKE_STATUS + ASH_ST_BEHIND);
	assert_int_equal(wr(0, a, 4096), 0);
	set_hook(5, 0, FAKE_STATUS + ASH_ST_RETRY);
	assert_int_equal(rd(0, b, 4096), 0);
	set_hook(3, 0, FAKE_STATUS + ASH_ST_NO_ROUTE);
	assert_int_equal(rd(0, b, 4096), 0);
	assert_int_equal(stats().retries, 13);
	assert_memory_equal(a, b, 4096);
}

static void test_final_statuses_become_errors(void **state)
{
	static const struct {
		uint16_t status;
		int err;
	} t[] = {{ASH_ST_NOSPACE, -ENOSPC},
		 {ASH_ST_MEDIUM, -EIO},
		 {ASH_ST_READ_ONLY, -EROFS},
		 {ASH_ST_INVALID, -EINVAL}};

	for (size_t i = 0; i < 4; i++) {
		set_hook(1, 0, FAKE_STATUS + t[i].status);
		assert_int_equal(wr(0, a, 2 << 20), t[i].err);
	}
	assert_int_equal(wr(0, a, 2 << 20), 0);
}

static void test_no_primary_waits_for_one(void **state)
{
	uint32_t pg = ash_chunk_pg(0, 0, 4, FAKE_PGS);
	struct fake_io io = {0};

	fake_move(&f, pg, -1, true);
	fake_run(&f, FAKE_SEC, NULL);
	fake_submit(vol, &io, SDC_WRITE, 0, a, 4096);
	fake_run(&f, 30 * FAKE_SEC, &io.done);
	assert_false(io.done);
	assert_non_null(strstr(f.last_trace, "event=io_waits"));
	fake_move(&f, pg, 1, true);
	fake_run(&f, 5 * FAKE_MS, &io.done);
	assert_true(io.done);
	assert_int_equal(io.status, 0);
}

static void test_a_silent_primary_is_left_when_the_map_moves(void **state)
{
	uint32_t pg = ash_chunk_pg(0, 0, 4, FAKE_PGS);
	struct fake_io io = {0};
	uint64_t from;

	assert_int_equal(wr(0, a, 512), 0);
	f.sds[f.row[pg].primary].mute = true;
	fake_submit(vol, &io, SDC_WRITE, 0, a, 4096);
	fake_run(&f, FAKE_SEC, &io.done);
	assert_false(io.done);
	from = f.now;
	fake_move(&f, pg, (f.row[pg].primary + 1) % FAKE_SDSS, true);
	fake_run(&f, LONG, &io.done);
	assert_int_equal(io.status, 0);
	assert_true(f.now - from < 10 * FAKE_MS);
}

/* ------------------------------------------------------------ paths */

static void test_broken_connections_are_replaced_and_all_is_sent_again(void **state)
{
	struct fake_io io[32] = {0};

	f.late_delivery = true;
	for (int i = 0; i < 32; i++)
		fake_submit(vol, &io[i], SDC_WRITE, (uint64_t)i * 65536, a + i * 65536, 65536);
	/* Each time when answers begin to come. */
	for (int k = 0; k < 4; k++) {
		fake_run(&f, LONG, &io[k * 8].done);
		assert_true(io[k * 8].done);
		for (int s = 0; s < FAKE_SDSS; s++)
			fake_break(&f, s);
	}
	for (int i = 0; i < 32; i++) {
		fake_run(&f, LONG, &io[i].done);
		assert_int_equal(io[i].status, 0);
	}
	assert_memory_equal(f.store, a, 32 * 65536);
	assert_true(stats().reconnects >= 2);
}

static void test_an_unanswered_request_takes_a_new_path(void **state)
{
	uint64_t from = f.now, hellos;

	assert_int_equal(wr(0, a, 512), 0);
	hellos = f.hellos;
	set_hook(1, 0, FAKE_LOSE);
	assert_int_equal(wr(0, a, 4096), 0);
	assert_true(f.now - from >= 5 * FAKE_SEC && f.now - from < 6 * FAKE_SEC);
	assert_int_equal(f.hellos, hellos + 1);
}

static void test_an_impostor_gets_nothing(void **state)
{
	struct fake_io io = {0};
	int sds = f.row[ash_chunk_pg(0, 0, 4, FAKE_PGS)].primary;

	f.sds[sds].wrong_identity = true;
	fake_submit(vol, &io, SDC_WRITE, 0, a, 4096);
	fake_run(&f, 3 * FAKE_SEC, &io.done);
	assert_false(io.done);
	assert_int_equal(f.sds[sds].served, 0);
	f.sds[sds].wrong_identity = false;
	fake_run(&f, 3 * FAKE_SEC, &io.done);
	assert_int_equal(io.status, 0);
}

static void test_used_up_paths_bring_new_epochs(void **state)
{
	uint64_t session = f.sds[0].session, opens = f.opens;

	f.latency_ns = 1000;
	for (int i = 0; i < 65600; i++) {
		uint64_t hellos = f.sds[0].hellos;

		assert_int_equal(wr(0, a + i, 512), 0);
		for (int s = 0; s < FAKE_SDSS; s++)
			if (f.sds[s].hellos != hellos || s)
				fake_break(&f, s);
		fake_break(&f, 0);
		fake_run(&f, 10000, NULL);
	}
	assert_int_equal(f.opens, opens + 1);
	assert_true(f.sds[0].session != session || f.sds[1].session != session ||
		    f.sds[2].session != session);
	assert_memory_equal(f.store, a + 65599, 512);
}

static void test_duplicate_answers_are_ignored(void **state)
{
	for (int i = 0; i < 50; i++) {
		set_hook(1, 0, FAKE_TWICE);
		assert_int_equal(wr(0, a + i, 8192), 0);
		set_hook(1, 0, FAKE_TWICE);
		assert_int_equal(rd(0, b, 8192), 0);
		assert_memory_equal(a + i, b, 8192);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_stale_row_is_used_at_once),
		RIG_TEST(test_a_row_that_stays_stale_is_no_hot_loop),
		RIG_TEST(test_behind_and_retry_are_repeated),
		RIG_TEST(test_final_statuses_become_errors),
		RIG_TEST(test_no_primary_waits_for_one),
		RIG_TEST(test_a_silent_primary_is_left_when_the_map_moves),
		RIG_TEST(test_broken_connections_are_replaced_and_all_is_sent_again),
		RIG_TEST(test_an_unanswered_request_takes_a_new_path),
		RIG_TEST(test_an_impostor_gets_nothing),
		RIG_TEST(test_used_up_paths_bring_new_epochs),
		RIG_TEST(test_duplicate_answers_are_ignored),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
