// SPDX-License-Identifier: MIT
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/list.h"
#include "common/shared/chunk_pg.h"
#include "tests/unit/sdc/fake.h"

#define LONG (600 * FAKE_SEC)

static struct fake f;
static struct sdc_vol *vol;
static uint8_t a[4 << 20], b[4 << 20];

static int hook_count;
static enum fake_act hook_act;
static uint8_t hook_op;

/* The first hook_count requests of hook_op (0 = any) get hook_act. */
static enum fake_act first_ones(struct fake *fk, int sds, const struct ash_hdr *h)
{
	if (hook_count <= 0 || (hook_op && h->op != hook_op))
		return FAKE_SERVE;
	hook_count--;
	return hook_act;
}

static void set_hook(int count, uint8_t op, enum fake_act act)
{
	hook_count = count;
	hook_op = op;
	hook_act = act;
	f.hook = first_ones;
}

static int setup(void **state)
{
	fake_init(&f, 1);
	fake_sdc(&f, NULL);
	vol = fake_open(&f);
	for (size_t i = 0; i < sizeof(a); i++)
		a[i] = (uint8_t)ash_prng_next(&f.rng);
	memset(b, 0xee, sizeof(b));
	return 0;
}

static int teardown(void **state)
{
	assert_int_equal(f.overlaps, 0);
	if (vol)
		fake_close(&f, vol);
	vol = NULL;
	fake_done(&f);
	return 0;
}

static struct sdc_stats stats(void)
{
	struct sdc_stats s;

	sdc_stats(f.sdc, &s);
	return s;
}

static int wr(uint64_t off, void *data, uint64_t n)
{
	return fake_io(&f, vol, SDC_WRITE, off, data, n, LONG);
}
static int rd(uint64_t off, void *data, uint64_t n)
{
	return fake_io(&f, vol, SDC_READ, off, data, n, LONG);
}

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

/* ------------------------------------------------------------ opening */

struct result {
	bool done;
	int result;
	struct sdc_vol *vol;
	char message[300];
};

static void on_open(void *arg, int result, struct sdc_vol *v, const char *message)
{
	struct result *r = arg;

	*r = (struct result){.done = true, .result = result, .vol = v};
	strncpy(r->message, message ? message : "", sizeof(r->message) - 1);
}

static struct result open_volume(const char *name, uint32_t timeout_ms)
{
	struct result r = {0};

	sdc_open(f.sdc, name, false, timeout_ms, on_open, &r);
	assert_false(r.done);
	fake_run(&f, LONG, &r.done);
	assert_true(r.done);
	return r;
}

static void test_open_refusals_name_their_reason(void **state)
{
	assert_int_equal(open_volume("v2", 1000).result, -ENOENT);
	f.mapped = false;
	assert_int_equal(open_volume("v1", 1000).result, -EACCES);
	f.mapped = true;
}

static void test_open_without_mdm_times_out_with_a_message(void **state)
{
	struct result r;

	fake_ctl_set(&f, false);
	r = open_volume("v1", 700);
	assert_int_equal(r.result, -ETIMEDOUT);
	assert_non_null(strstr(r.message, "v1"));
	fake_ctl_set(&f, true);
}

static void test_unknown_sdc_is_told_so(void **state)
{
	struct fake g;
	struct result r = {0};

	fake_init(&g, 2);
	g.refuse_register = true;
	fake_sdc(&g, NULL);
	sdc_open(g.sdc, "v1", false, 5000, on_open, &r);
	fake_run(&g, LONG, &r.done);
	assert_int_equal(r.result, -EACCES);
	assert_string_equal(r.message, "no SDC has this GUID");
	/* The operator adds it: the same process can open now. */
	g.refuse_register = false;
	sdc_open(g.sdc, "v1", false, 5000, on_open, &r);
	r.done = false;
	fake_run(&g, LONG, &r.done);
	assert_int_equal(r.result, 0);
	fake_close(&g, r.vol);
	fake_done(&g);
}

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

/* ------------------------------------------------------------ the end of an open */

static void test_io_timeout_ends_the_open(void **state)
{
	struct sdc_cfg cfg = {.name = "x", .session = 5, .requests = 16, .io_timeout_ms = 2000};
	struct fake g;
	struct sdc_vol *v;
	struct fake_io io[40];
	uint64_t served = 0, from;
	uint8_t *mem = malloc(40 * 65536);

	memset(io, 0, sizeof(io));
	memset(mem, 1, 40 * 65536);
	fake_init(&g, 3);
	fake_sdc(&g, &cfg);
	v = fake_open(&g);
	assert_int_equal(fake_io(&g, v, SDC_WRITE, 0, mem, 4096, LONG), 0);
	for (int s = 0; s < FAKE_SDSS; s++)
		g.sds[s].mute = true;
	from = g.now;
	for (int i = 0; i < 40; i++)
		fake_submit(v, &io[i], i % 3 ? SDC_WRITE : SDC_READ, (uint64_t)i * 131072,
			    mem + i * 65536, 65536);
	for (int i = 0; i < 40; i++) {
		fake_run(&g, LONG, &io[i].done);
		assert_int_equal(io[i].status, -EIO);
	}
	assert_true(g.now - from >= 2 * FAKE_SEC && g.now - from < 3 * FAKE_SEC);
	free(mem); /* nothing may refer to it any more */
	for (int s = 0; s < FAKE_SDSS; s++) {
		g.sds[s].mute = false;
		served += g.sds[s].served;
	}
	assert_int_equal(fake_io(&g, v, SDC_WRITE, 0, a, 4096, LONG), -ESHUTDOWN);
	fake_run(&g, 20 * FAKE_SEC, NULL);
	for (int s = 0; s < FAKE_SDSS; s++)
		served -= g.sds[s].served;
	assert_int_equal(served, 0);
	fake_close(&g, v);
	/* A new open works. */
	v = fake_open(&g);
	assert_int_equal(fake_io(&g, v, SDC_WRITE, 0, a, 4096, LONG), 0);
	fake_close(&g, v);
	fake_done(&g);
}

static void test_a_newer_open_fences_this_one(void **state)
{
	f.epoch = f.version; /* somebody with our GUID; the SDSs know, we do not */
	f.epoch = ++f.version;
	assert_int_equal(wr(0, a, 4096), -ESHUTDOWN);
	assert_int_equal(rd(0, b, 4096), -ESHUTDOWN);
}

static void test_unmap_ends_the_open(void **state)
{
	struct fake_io io = {0};
	struct sdc_vol_info info;

	for (int s = 0; s < FAKE_SDSS; s++)
		f.sds[s].mute = true;
	fake_submit(vol, &io, SDC_WRITE, 0, a, 1 << 20);
	f.mapped = false;
	fake_commit(&f, true);
	fake_run(&f, 2 * FAKE_SEC, &io.done);
	assert_int_equal(io.status, -ESHUTDOWN);
	sdc_vol_info(vol, &info);
	assert_true(info.dead);
}

static void test_second_open_of_the_same_process_takes_over(void **state)
{
	struct sdc_vol *other = fake_open(&f);

	fake_run(&f, FAKE_SEC, NULL);
	assert_int_equal(wr(0, a, 4096), -ESHUTDOWN);
	assert_int_equal(fake_io(&f, other, SDC_WRITE, 0, a, 4096, LONG), 0);
	fake_close(&f, other);
}

static void test_close_waits_for_io(void **state)
{
	struct fake_io io[30] = {0};

	for (int i = 0; i < 30; i++)
		fake_submit(vol, &io[i], SDC_WRITE, (uint64_t)i * 65536, a, 65536);
	fake_close(&f, vol);
	vol = NULL;
	for (int i = 0; i < 30; i++)
		assert_int_equal(io[i].status, 0);
}

static void test_a_crash_frees_everything_at_any_moment(void **state)
{
	for (unsigned k = 0; k < 60; k++) {
		struct fake g;
		struct fake_io io[20];
		struct sdc_vol *v;

		memset(io, 0, sizeof(io));
		fake_init(&g, k);
		fake_sdc(&g, NULL);
		v = fake_open(&g);
		for (int i = 0; i < 20; i++)
			fake_submit(v, &io[i], i % 4 == 3 ? SDC_FLUSH : SDC_WRITE,
				    (uint64_t)i * 4096, i % 4 == 3 ? NULL : a, 16384);
		fake_run(&g, k * 20000, NULL);
		if (k % 3 == 0)
			fake_break(&g, 0);
		sdc_abandon(g.sdc);
		g.sdc = NULL;
		fake_done(&g);
	}
}

/* ------------------------------------------------------------ flush */

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
	assert_int_equal(fake_io(&f, vol, SDC_FLUSH, 0, NULL, 0, LONG), 0);
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
	assert_int_equal(fake_io(&f, vol, SDC_FLUSH, 0, NULL, 0, LONG), 0);
	assert_int_equal(flushes(), 3);
	assert_true(all_flushed());
	assert_int_equal(fake_io(&f, vol, SDC_FLUSH, 0, NULL, 0, LONG), 0);
	assert_int_equal(flushes(), 3);
	assert_int_equal(wr(0, a, 4096), 0);
	assert_int_equal(fake_io(&f, vol, SDC_FLUSH, 0, NULL, 0, LONG), 0);
	assert_int_equal(flushes(), 4);
	assert_true(all_flushed());
}

static void test_a_shared_volume_flushes_everybody_always(void **state)
{
	make_write_back(true);
	for (int i = 1; i < 4; i++) {
		assert_int_equal(fake_io(&f, vol, SDC_FLUSH, 0, NULL, 0, LONG), 0);
		assert_int_equal(flushes(), 3 * i);
	}
}

static void test_a_write_through_primary_with_a_write_back_second_is_flushed(void **state)
{
	f.write_back[1] = true; /* second copy of what SDS 0 leads */
	fake_commit(&f, true);
	fake_run(&f, FAKE_MS, NULL);
	assert_int_equal(fake_io(&f, vol, SDC_FLUSH, 0, NULL, 0, LONG), 0);
	assert_int_equal(f.sds[0].flushes, 1);
	assert_int_equal(f.sds[1].flushes, 1);
	assert_int_equal(f.sds[2].flushes, 0);
}

/* The primary of a PG moves before the SDS flushes, and nobody tells the client. */
static enum fake_act move_at_flush(struct fake *fk, int sds, const struct ash_hdr *h)
{
	uint32_t pg = ash_chunk_pg(0, 0, 4, FAKE_PGS);

	if (h->op == ASH_OP_FLUSH && fk->row[pg].primary == sds && hook_count-- > 0)
		fake_move(fk, pg, (sds + 1) % FAKE_SDSS, false);
	return FAKE_SERVE;
}

static void test_flush_follows_a_primary_that_moved_unseen(void **state)
{
	make_write_back(false);
	for (int k = 0; k < 10; k++) {
		/* After the first whole round only this PG is asked for. */
		assert_int_equal(wr(0, a, 4096), 0);
		hook_count = 1;
		f.hook = move_at_flush;
		assert_int_equal(fake_io(&f, vol, SDC_FLUSH, 0, NULL, 0, LONG), 0);
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
	assert_int_equal(fake_io(&f, vol, SDC_FLUSH, 0, NULL, 0, LONG), 0);
	assert_int_equal(wr(0, a, 4096), 0);
	set_hook(1, ASH_OP_FLUSH, FAKE_STATUS + ASH_ST_MEDIUM);
	assert_int_equal(fake_io(&f, vol, SDC_FLUSH, 0, NULL, 0, LONG), -EIO);
	assert_false(all_flushed());
	assert_int_equal(fake_io(&f, vol, SDC_FLUSH, 0, NULL, 0, LONG), 0);
	assert_true(all_flushed());
}

/* ------------------------------------------------------------ the rest */

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

/* ------------------------------------------------------------ everything at once */

static unsigned storm_chance;
static enum fake_act storm(struct fake *fk, int sds, const struct ash_hdr *h)
{
	static const enum fake_act acts[] = {FAKE_DROP,
					     FAKE_LOSE,
					     FAKE_BREAK,
					     FAKE_BREAK,
					     FAKE_ROT,
					     FAKE_TWICE,
					     FAKE_STATUS + ASH_ST_BEHIND,
					     FAKE_STATUS + ASH_ST_RETRY,
					     FAKE_STATUS + ASH_ST_NO_ROUTE,
					     FAKE_STATUS + ASH_ST_STALE};

	if (ash_prng_below(&fk->rng, 1000) < 3)
		fake_move(fk, (uint32_t)ash_prng_below(&fk->rng, FAKE_PGS),
			  (int)ash_prng_below(&fk->rng, FAKE_SDSS), ash_prng_below(&fk->rng, 2));
	if (ash_prng_below(&fk->rng, 1000) >= storm_chance)
		return FAKE_SERVE;
	return acts[ash_prng_below(&fk->rng, sizeof(acts) / sizeof(acts[0]))];
}

#define STORM_IOS 24
struct storm_io {
	struct fake_io io;
	uint64_t offset, bytes;
	uint8_t kind;
	bool busy;
	uint8_t data[256 * 1024];
};

static bool busy_range(struct storm_io *s, uint64_t off, uint64_t n)
{
	for (int i = 0; i < STORM_IOS; i++)
		if (s[i].busy && s[i].offset < off + n && off < s[i].offset + s[i].bytes)
			return true;
	return false;
}

static void storm_submit(struct fake *g, struct sdc_vol *v, struct storm_io *all,
			 struct storm_io *s)
{
	uint64_t k = ash_prng_below(&g->rng, 100);

	do {
		s->bytes = 512 * (1 + ash_prng_below(&g->rng, k < 80 ? 32 : 512));
		s->offset = 512 * ash_prng_below(&g->rng, FAKE_BYTES / 512);
		if (s->offset + s->bytes > FAKE_BYTES)
			s->offset = FAKE_BYTES - s->bytes;
	} while (busy_range(all, s->offset, s->bytes));
	s->kind = k % 10 < 5   ? SDC_WRITE
		  : k % 10 < 8 ? SDC_READ
		  : k % 10 < 9 ? SDC_DISCARD
			       : SDC_WRITE_ZEROES;
	memset(&s->io, 0, sizeof(s->io));
	for (uint64_t i = 0; i < s->bytes && s->kind == SDC_WRITE; i += 8)
		memcpy(s->data + i, (uint64_t[]){ash_prng_next(&g->rng)}, 8);
	s->busy = true;
	fake_submit(v, &s->io, s->kind, s->offset,
		    s->kind == SDC_WRITE || s->kind == SDC_READ ? s->data : NULL, s->bytes);
}

static void storm_check(struct storm_io *s, uint8_t *model)
{
	s->busy = false;
	assert_int_equal(s->io.status, 0);
	if (s->kind == SDC_READ)
		assert_memory_equal(s->data, model + s->offset, s->bytes);
	else if (s->kind == SDC_WRITE)
		memcpy(model + s->offset, s->data, s->bytes);
	else
		memset(model + s->offset, 0, s->bytes);
}

static void storm_one(uint64_t seed)
{
	static struct storm_io io[STORM_IOS];
	static uint8_t model[FAKE_BYTES];
	struct sdc_cfg cfg = {.name = "s", .session = seed + 1, .requests = 20};
	struct fake g;
	struct sdc_vol *v;

	memset(io, 0, sizeof(io));
	memset(model, 0, sizeof(model));
	fake_init(&g, seed);
	g.late_delivery = true;
	fake_sdc(&g, &cfg);
	v = fake_open(&g);
	storm_chance = 30 + (unsigned)seed % 5 * 20;
	g.hook = storm;
	for (unsigned n = 0; n < 1500;) {
		for (int i = 0; i < STORM_IOS; i++) {
			if (io[i].busy && io[i].io.done) {
				storm_check(&io[i], model);
				n++;
			}
			if (!io[i].busy)
				storm_submit(&g, v, io, &io[i]);
		}
		fake_run(&g, 300000, NULL);
	}
	for (int i = 0; i < STORM_IOS; i++) {
		fake_run(&g, LONG, &io[i].io.done);
		storm_check(&io[i], model);
	}
	assert_memory_equal(g.store, model, FAKE_BYTES);
	assert_int_equal(g.overlaps, 0);
	assert_true(g.refused_late > 0); /* the fence had something to do */
	fake_close(&g, v);
	fake_done(&g);
}

static void test_storm_of_faults_loses_and_mixes_up_nothing(void **state)
{
	for (uint64_t seed = 1; seed <= 10; seed++)
		storm_one(seed);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_write_over_chunk_borders_reads_back),
		T(test_scattered_memory_is_gathered_and_filled),
		T(test_impossible_ranges_are_refused),
		T(test_discard_and_zeroes_read_as_zeros),
		T(test_open_refusals_name_their_reason),
		T(test_open_without_mdm_times_out_with_a_message),
		T(test_unknown_sdc_is_told_so),
		T(test_stale_row_is_used_at_once),
		T(test_a_row_that_stays_stale_is_no_hot_loop),
		T(test_behind_and_retry_are_repeated),
		T(test_final_statuses_become_errors),
		T(test_no_primary_waits_for_one),
		T(test_a_silent_primary_is_left_when_the_map_moves),
		T(test_broken_connections_are_replaced_and_all_is_sent_again),
		T(test_an_unanswered_request_takes_a_new_path),
		T(test_an_impostor_gets_nothing),
		T(test_used_up_paths_bring_new_epochs),
		T(test_duplicate_answers_are_ignored),
		T(test_overlapping_writes_go_one_after_the_other),
		T(test_a_big_discard_does_not_block_small_io),
		T(test_more_io_than_requests_all_end),
		T(test_memory_that_changes_is_sent_from_a_copy),
		T(test_a_damaged_read_is_repeated),
		T(test_io_timeout_ends_the_open),
		T(test_a_newer_open_fences_this_one),
		T(test_unmap_ends_the_open),
		T(test_second_open_of_the_same_process_takes_over),
		T(test_close_waits_for_io),
		T(test_a_crash_frees_everything_at_any_moment),
		T(test_write_through_devices_get_no_flush),
		T(test_flush_reaches_each_sds_once_then_only_those_written_to),
		T(test_a_shared_volume_flushes_everybody_always),
		T(test_a_write_through_primary_with_a_write_back_second_is_flushed),
		T(test_flush_follows_a_primary_that_moved_unseen),
		T(test_flush_waits_for_a_dead_primary_until_it_is_replaced),
		T(test_a_failed_flush_is_told_and_not_forgotten),
		T(test_resize_and_read_only_arrive_with_the_map),
		T(test_limits_hold_within_five_percent),
		T(test_block_status_merges_over_chunks),
		T(test_storm_of_faults_loses_and_mixes_up_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
