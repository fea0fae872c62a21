// SPDX-License-Identifier: MIT
/* The beginning and the end of an open: refusals, timeouts, fencing, crashes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/sdc/core_rig.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_open_refusals_name_their_reason),
		RIG_TEST(test_open_without_mdm_times_out_with_a_message),
		RIG_TEST(test_unknown_sdc_is_told_so),
		RIG_TEST(test_io_timeout_ends_the_open),
		RIG_TEST(test_a_newer_open_fences_this_one),
		RIG_TEST(test_unmap_ends_the_open),
		RIG_TEST(test_second_open_of_the_same_process_takes_over),
		RIG_TEST(test_close_waits_for_io),
		RIG_TEST(test_a_crash_frees_everything_at_any_moment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
