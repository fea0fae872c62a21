// SPDX-License-Identifier: MIT
/* What the map says about the volume: size, limits; and what is in its blocks. */
#include <errno.h>
#include <string.h>

#include "tests/unit/sdc/core_rig.h"

static int changes;
static void on_change(void *arg)
{
	changes++;
}

static void test_resize_and_read_only_arrive_with_the_map(void **state)
{
	struct sdc_vol_info info;

	changes = 0;
	sdc_vol_watch(vol, on_change, NULL);
	f.size = 4 << 20;
	fake_commit(&f, true);
	fake_run(&f, FAKE_MS, NULL);
	assert_int_equal(changes, 1);
	assert_int_equal(wr(4 << 20, a, 512), -EINVAL);
	f.size = FAKE_BYTES;
	f.read_only = true;
	fake_commit(&f, true);
	fake_run(&f, FAKE_MS, NULL);
	assert_int_equal(changes, 2);
	sdc_vol_info(vol, &info);
	assert_int_equal(info.size_bytes, FAKE_BYTES);
	assert_true(info.read_only);
	assert_int_equal(rd(4 << 20, b, 512), 0);
	assert_int_equal(wr(4 << 20, a, 512), -EROFS);
}

/* Keeps 8 I/Os going for @ns; returns how many ended. */
static uint64_t rate_of(uint64_t ns, uint64_t bytes)
{
	struct fake_io io[8] = {0};
	uint64_t end = f.now + ns, n = 0;

	while (f.now < end) {
		for (int i = 0; i < 8; i++)
			if (io[i].done || !io[i].io.kind) {
				n += io[i].done;
				fake_submit(vol, &io[i], SDC_READ, (uint64_t)i << 20, a, bytes);
			}
		fake_run(&f, 5 * FAKE_MS, NULL);
	}
	for (int i = 0; i < 8; i++)
		fake_run(&f, LONG, &io[i].done);
	return n;
}

static void test_limits_hold_within_five_percent(void **state)
{
	uint64_t n;

	f.iops_limit = 200;
	fake_commit(&f, true);
	fake_run(&f, 20 * FAKE_SEC, NULL); /* idle time is not saved up */
	n = rate_of(20 * FAKE_SEC, 4096);
	assert_in_range(n, 3800, 4200);
	f.iops_limit = 0;
	f.bw_limit = 2 << 20;
	fake_commit(&f, true);
	n = rate_of(20 * FAKE_SEC, 65536);
	assert_in_range(n, 608, 672);
	f.bw_limit = 0;
	fake_commit(&f, true);
	n = rate_of(FAKE_SEC, 4096);
	assert_true(n > 1000);
}

struct status {
	bool done;
	int status;
	unsigned n;
	struct sdc_extent ext[16];
};

static void on_status(void *arg, int status, const struct sdc_extent *ext, unsigned n)
{
	struct status *s = arg;

	s->done = true;
	s->status = status;
	s->n = n;
	for (unsigned i = 0; i < n && i < 16; i++)
		s->ext[i] = ext[i];
}

static void test_block_status_merges_over_chunks(void **state)
{
	struct status s = {0};

	assert_int_equal(wr((1 << 20) - 8192, a, 16384), 0);
	sdc_block_status(vol, 512, (4 << 20) - 1024, on_status, &s);
	fake_run(&f, LONG, &s.done);
	assert_int_equal(s.status, 0);
	assert_int_equal(s.n, 3);
	assert_int_equal(s.ext[0].bytes, (1 << 20) - 8192 - 512);
	assert_false(s.ext[0].data);
	assert_int_equal(s.ext[1].bytes, 16384);
	assert_true(s.ext[1].data);
	assert_int_equal(s.ext[2].bytes, (4 << 20) - 512 - (1 << 20) - 8192);
	assert_false(s.ext[2].data);
	memset(&s, 0, sizeof(s));
	sdc_block_status(vol, FAKE_BYTES, 512, on_status, &s);
	fake_run(&f, LONG, &s.done);
	assert_int_equal(s.status, -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_resize_and_read_only_arrive_with_the_map),
		RIG_TEST(test_limits_hold_within_five_percent),
		RIG_TEST(test_block_status_merges_over_chunks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
