// SPDX-License-Identifier: MIT
/* What the data client does with memory and ranges: pieces, order, checksums. */
#include <errno.h>
#include <string.h>

#include "tests/unit/sdc/core_rig.h"

/* ------------------------------------------------------------ plain I/O */

static void test_write_over_chunk_borders_reads_back(void **state)
{
	assert_int_equal(wr((1 << 20) - 1536, a, 2 << 20), 0);
	assert_int_equal(rd((1 << 20) - 1536, b, 2 << 20), 0);
	assert_memory_equal(a, b, 2 << 20);
	assert_memory_equal(f.store + (1 << 20) - 1536, a, 2 << 20);
}

static void test_scattered_memory_is_gathered_and_filled(void **state)
{
	struct fake_io io = {0};

	io.iov[0] = (struct iovec){a, 512};
	io.iov[1] = (struct iovec){NULL, 0};
	io.iov[2] = (struct iovec){a + 4096, 8192 - 512};
	io.iov[3] = (struct iovec){a + 65536, 1 << 20};
	io.io.iov = io.iov;
	io.io.iovcnt = 4;
	fake_submit(vol, &io, SDC_WRITE, 512 * 1024, NULL, 8192 + (1 << 20));
	fake_run(&f, LONG, &io.done);
	assert_int_equal(io.status, 0);
	assert_memory_equal(f.store + 512 * 1024, a, 512);
	assert_memory_equal(f.store + 512 * 1024 + 512, a + 4096, 8192 - 512);
	assert_memory_equal(f.store + 512 * 1024 + 8192, a + 65536, 1 << 20);
	io.iov[0].iov_base = b;
	io.iov[2].iov_base = b + 4096;
	io.iov[3].iov_base = b + 65536;
	fake_submit(vol, &io, SDC_READ, 512 * 1024, NULL, 8192 + (1 << 20));
	fake_run(&f, LONG, &io.done);
	assert_int_equal(io.status, 0);
	assert_memory_equal(b, a, 512);
	assert_int_equal(b[512], 0xee);
	assert_memory_equal(b + 4096, a + 4096, 8192 - 512);
	assert_memory_equal(b + 65536, a + 65536, 1 << 20);
	assert_int_equal(b[65536 + (1 << 20)], 0xee);
}

static void test_impossible_ranges_are_refused(void **state)
{
	assert_int_equal(rd(0, b, 100), -EINVAL);
	assert_int_equal(rd(100, b, 512), -EINVAL);
	assert_int_equal(rd(FAKE_BYTES - 512, b, 1024), -EINVAL);
	assert_int_equal(rd(UINT64_MAX - 511, b, 512), -EINVAL);
	assert_int_equal(rd(0, b, 0), -EINVAL);
	assert_int_equal(fake_io(&f, vol, 99, 0, b, 512, LONG), -EINVAL);
	assert_int_equal(rd(FAKE_BYTES - 512, b, 512), 0);
}

static void test_discard_and_zeroes_read_as_zeros(void **state)
{
	assert_int_equal(wr(0, a, 3 << 20), 0);
	assert_int_equal(fake_io(&f, vol, SDC_DISCARD, 4096, NULL, 2 << 20, LONG), 0);
	assert_int_equal(fake_io(&f, vol, SDC_WRITE_ZEROES, (2 << 20) + 8192, NULL, 512, LONG), 0);
	assert_int_equal(rd(0, b, 3 << 20), 0);
	memset(a + 4096, 0, 2 << 20);
	memset(a + (2 << 20) + 8192, 0, 512);
	assert_memory_equal(a, b, 3 << 20);
}

/* ------------------------------------------------------------ order */

static void test_overlapping_writes_go_one_after_the_other(void **state)
{
	struct fake_io io[40] = {0};

	for (int i = 0; i < 40; i++)
		fake_submit(vol, &io[i], i % 5 == 4 ? SDC_WRITE_ZEROES : SDC_WRITE,
			    (uint64_t)(i % 7) * 512, i % 5 == 4 ? NULL : a + i * 8192, 4096);
	for (int i = 0; i < 40; i++) {
		fake_run(&f, LONG, &io[i].done);
		assert_int_equal(io[i].status, 0);
	}
	/* #39 is a zero at 4 * 512 and the last of all. */
	memset(b, 0, 4096);
	assert_memory_equal(f.store + 4 * 512, b, 4096);
	assert_true(stats().held_overlaps > 20);
}

static void test_a_big_discard_does_not_block_small_io(void **state)
{
	struct fake_io big[8] = {0}, small = {0};

	/* 8 x 8 pieces of 64 requests, all slow. */
	for (int i = 0; i < 8; i++)
		fake_submit(vol, &big[i], SDC_DISCARD, 0, NULL, FAKE_BYTES);
	fake_submit(vol, &small, SDC_READ, 0, b, 512);
	fake_run(&f, LONG, &small.done);
	assert_int_equal(small.status, 0);
	assert_false(big[7].done);
	for (int i = 0; i < 8; i++)
		fake_run(&f, LONG, &big[i].done);
}

static void test_more_io_than_requests_all_end(void **state)
{
	static struct fake_io io[1000];

	memset(io, 0, sizeof(io));
	for (int i = 0; i < 1000; i++)
		fake_submit(vol, &io[i], SDC_WRITE, (uint64_t)i * 4096, a + i * 512, 4096);
	for (int i = 0; i < 1000; i++) {
		fake_run(&f, LONG, &io[i].done);
		assert_int_equal(io[i].status, 0);
	}
	assert_true(stats().queued > 0);
	for (int i = 0; i < 1000; i++)
		assert_memory_equal(f.store + i * 4096, a + i * 512, 4096);
}

/* ------------------------------------------------------------ checksums */

static int scribbles;
static void scribble(struct fake *fk)
{
	if (scribbles-- > 0)
		a[100]++;
}

static void test_memory_that_changes_is_sent_from_a_copy(void **state)
{
	assert_int_equal(wr(0, a, 512), 0);
	scribbles = 1000;
	f.on_transmit = scribble;
	assert_int_equal(wr(0, a, 4096), 0);
	f.on_transmit = NULL;
	assert_int_equal(stats().checksum_errors, 2);
	assert_memory_equal(f.store + 200, a + 200, 4096 - 200);
}

static void test_a_damaged_read_is_repeated(void **state)
{
	assert_int_equal(wr(0, a, 1 << 20), 0);
	for (int i = 1; i < 7; i++) {
		set_hook(i, ASH_OP_READ, FAKE_ROT);
		memset(b, 0, 1 << 20);
		assert_int_equal(rd(0, b, 1 << 20), 0);
		assert_memory_equal(a, b, 1 << 20);
	}
	assert_int_equal(stats().checksum_errors, 21);
	/* Damaged for ever: an error, never the data. */
	set_hook(1 << 20, ASH_OP_READ, FAKE_ROT);
	assert_int_equal(rd(0, b, 4096), -EIO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_write_over_chunk_borders_reads_back),
		RIG_TEST(test_scattered_memory_is_gathered_and_filled),
		RIG_TEST(test_impossible_ranges_are_refused),
		RIG_TEST(test_discard_and_zeroes_read_as_zeros),
		RIG_TEST(test_overlapping_writes_go_one_after_the_other),
		RIG_TEST(test_a_big_discard_does_not_block_small_io),
		RIG_TEST(test_more_io_than_requests_all_end),
		RIG_TEST(test_memory_that_changes_is_sent_from_a_copy),
		RIG_TEST(test_a_damaged_read_is_repeated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
