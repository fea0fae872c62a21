// SPDX-License-Identifier: MIT
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/conf.h"
#include "common/base/crc.h"
#include "common/base/hist.h"
#include "common/base/htab.h"
#include "common/base/name.h"
#include "common/base/prng.h"
#include "common/base/size.h"
#include "common/base/switches.h"
#include "common/base/timers.h"
#include "common/base/uuid.h"
#include "common/port/buf.h"

static void sizes(void **state)
{
	static const struct {
		const char *text;
		int err;
		uint64_t bytes;
	} cases[] = {
		{"1", 0, 1},
		{"16GiB", 0, 16ull << 30},
		{"16G", 0, 16ull << 30},
		{"3 KiB", 0, 3072},
		{"1.5GiB", 0, 3ull << 29},
		{"512b", 0, 512},
		{"2tib", 0, 2ull << 40},
		{"", -EINVAL, 0},
		{"-1", -EINVAL, 0},
		{"1x", -EINVAL, 0},
		{"1.GiB", -EINVAL, 0},
		{"1.3B", -EINVAL, 0},
		{"8192P", -ERANGE, 0},
		{"99999999999999999999", -ERANGE, 0},
		{"1GiBx", -EINVAL, 0},
		{"0x10", -EINVAL, 0},
	};
	char buf[16];
	uint64_t v;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(ash_size_parse(cases[i].text, &v), cases[i].err);
		if (!cases[i].err)
			assert_int_equal(v, cases[i].bytes);
	}
	assert_string_equal(ash_size_format(16ull << 30, buf, sizeof(buf)), "16 GiB");
	assert_string_equal(ash_size_format(3ull << 29, buf, sizeof(buf)), "1.5 GiB");
	assert_string_equal(ash_size_format((1ull << 30) - 1, buf, sizeof(buf)), "1023.9 MiB");
	assert_string_equal(ash_size_format(0, buf, sizeof(buf)), "0 B");
}

static void crc_vectors(void **state)
{
	static const uint8_t data[9000];
	uint32_t crc[4];

	assert_int_equal(ash_crc32c("123456789", 9), 0xe3069283u);
	assert_int_equal(ash_crc32c_zero_block(), ash_crc32c(data, 4096));
	ash_crc32c_pieces(data, 4096 - 512, 9000, crc);
	assert_int_equal(crc[0], ash_crc32c(data, 512));
	assert_int_equal(crc[1], ash_crc32c_zero_block());
	assert_int_equal(crc[3], ash_crc32c(data, 9000 - 512 - 8192));
	assert_int_equal(ash_crc32c_check(data, 4096 - 512, 9000, crc), -1);
	crc[2] ^= 1;
	assert_int_equal(ash_crc32c_check(data, 4096 - 512, 9000, crc), 2);
}

static void names(void **state)
{
	assert_int_equal(ash_name_check("volume", "v1").code, 0);
	assert_int_equal(ash_name_check("volume", "a.b_c-9").code, 0);
	assert_int_not_equal(ash_name_check("volume", "").code, 0);
	assert_int_not_equal(ash_name_check("volume", "-a").code, 0);
	assert_int_not_equal(ash_name_check("volume", "a b").code, 0);
	assert_int_not_equal(ash_name_check("volume", "a\n").code, 0);
	assert_int_not_equal(ash_name_check("volume", "\xc3\xa4").code, 0);
	assert_non_null(strstr(ash_name_check("volume", "a/b").message, "character 2"));
}

static void uuids(void **state)
{
	char text[ASH_UUID_TEXT];
	uint8_t a[16], b[16];

	ash_uuid_from_random(1, 2, a);
	ash_uuid_format(a, text);
	assert_int_equal(strlen(text), 36);
	assert_int_equal(ash_uuid_parse(text, b), 0);
	assert_true(ash_uuid_equal(a, b));
	text[8] = 'x';
	assert_int_equal(ash_uuid_parse(text, b), -EINVAL);
	assert_int_equal(ash_uuid_parse("12", b), -EINVAL);
}

/* Random puts and removes against an array. */
static void htab_model(void **state)
{
	struct ash_htab t = {0};
	struct ash_prng rng;
	void *model[512] = {0};
	size_t count = 0, cursor = 0, seen = 0;

	ash_prng_seed(&rng, 5);
	for (int i = 0; i < 20000; i++) {
		uint64_t k = ash_prng_below(&rng, 512);

		if (ash_prng_below(&rng, 2)) {
			count += !model[k];
			model[k] = (void *)(uintptr_t)(i + 1);
			assert_int_equal(ash_htab_put(&t, k * 977, model[k]), 0);
		} else {
			count -= model[k] != NULL;
			assert_ptr_equal(ash_htab_remove(&t, k * 977), model[k]);
			model[k] = NULL;
		}
		assert_int_equal(t.count, count);
		k = ash_prng_below(&rng, 512);
		assert_ptr_equal(ash_htab_get(&t, k * 977), model[k]);
	}
	while (ash_htab_next(&t, &cursor, NULL))
		seen++;
	assert_int_equal(seen, count);
	ash_htab_done(&t);
}

static uint64_t last_ran;
static unsigned ran;
static void on_timer(struct ash_timer *t)
{
	assert_true(t->deadline_ns >= last_ran);
	last_ran = t->deadline_ns;
	ran++;
}

static void timers_run_in_order(void **state)
{
	struct ash_timers ts;
	struct ash_timer t[300] = {0};
	struct ash_prng rng;
	unsigned set = 0;

	ash_timers_init(&ts);
	ash_prng_seed(&rng, 9);
	for (int i = 0; i < 2000; i++) {
		struct ash_timer *one = &t[ash_prng_below(&rng, 300)];

		one->fn = on_timer;
		if (ash_prng_below(&rng, 4) == 0)
			ash_timer_cancel(&ts, one);
		else
			ash_timer_set(&ts, one, ash_prng_below(&rng, 100000));
	}
	for (int i = 0; i < 300; i++)
		set += ash_timer_is_set(&t[i]);
	last_ran = 0;
	assert_int_equal(ash_timers_run(&ts, 50000) + ts.count, set);
	assert_true(ash_timers_next(&ts) > 50000);
	ash_timers_run(&ts, 100000);
	assert_int_equal(ran, set);
	assert_int_equal(ash_timers_next(&ts), ASH_TIME_NEVER);
	ash_timers_done(&ts);
}

static void histogram_quantiles(void **state)
{
	struct ash_hist *h = malloc(sizeof(*h));

	ash_hist_init(h);
	assert_int_equal(ash_hist_quantile(h, 500), 0);
	for (uint64_t i = 1; i <= 100000; i++)
		ash_hist_add(h, i * 1000);
	for (unsigned q = 100; q <= 990; q += 89) {
		double exact = (double)q * 100 * 1000, got = (double)ash_hist_quantile(h, q);

		assert_true(got >= exact && got <= exact * 1.02);
	}
	assert_int_equal(ash_hist_quantile(h, 1000), 100000000);
	ash_hist_add(h, UINT64_MAX);
	assert_int_equal(ash_hist_quantile(h, 1000), UINT64_MAX);
	free(h);
}

static void conf_flags_win(void **state)
{
	static const char *const known[] = {"name", "mdm", NULL};
	struct ash_conf c = {0};
	struct ash_error err;

	err = ash_conf_parse(&c, "[mdm]\nname = a\nmdm = x\nmdm = y\n", "f", known);
	assert_int_equal(err.code, 0);
	assert_string_equal(ash_conf_get(&c, "name", ""), "a");
	assert_string_equal(ash_conf_nth(&c, "mdm", 1), "y");
	ash_conf_set_flag(&c, "mdm", "z");
	assert_string_equal(ash_conf_nth(&c, "mdm", 0), "z");
	assert_null(ash_conf_nth(&c, "mdm", 1));
	assert_string_equal(ash_conf_get(&c, "none", "d"), "d");
	err = ash_conf_parse(&c, "nmae = a\n", "f", known);
	assert_int_equal(err.code, ASH_E_USAGE);
	assert_non_null(strstr(err.message, "nmae"));
	err = ash_conf_load(&c, "/nonexistent/ashlar.conf", known);
	assert_int_equal(err.code, ASH_E_USAGE);
	ash_conf_done(&c);
}

static unsigned woken;
static void on_buf(struct ash_buf_waiter *w)
{
	woken++;
}

static void buffers_keep_a_reserve(void **state)
{
	struct ash_bufs *bufs = ash_bufs_new(16 << 20);
	struct ash_buf *got[8192];
	struct ash_buf_waiter w = {.fn = on_buf}, gone = {.fn = on_buf};
	unsigned n = 0;

	while ((got[n] = ash_buf_get(bufs, 1 << 20, ASH_BUF_CLIENT)))
		n++;
	assert_non_null(got[n] = ash_buf_get(bufs, 1 << 20, ASH_BUF_PEER));
	n++;
	assert_int_equal((uintptr_t)got[0]->base % 4096, 0);
	assert_int_equal(ash_bufs_in_use(bufs), n);
	ash_bufs_wait(bufs, &w);
	ash_bufs_wait(bufs, &gone);
	ash_bufs_unwait(bufs, &gone);
	ash_buf_ref(got[0]);
	ash_buf_put(got[0]);
	assert_int_equal(woken, 0);
	while (n > 0)
		ash_buf_put(got[--n]);
	assert_int_equal(woken, 1);
	assert_int_equal(ash_bufs_in_use(bufs), 0);
	assert_null(ash_buf_get(bufs, (1 << 20) + 1, ASH_BUF_PEER));
	ash_bufs_free(bufs);
}

static void rules_have_names(void **state)
{
	assert_int_equal(ash_rule_find("SEAL"), ASH_RULE_SEAL);
	assert_int_equal(ash_rule_find("NO_SUCH"), -1);
	for (int i = 0; i < ASH_RULE_COUNT; i++)
		assert_true(strlen(ash_rule_text(i)) > 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes),
		cmocka_unit_test(crc_vectors),
		cmocka_unit_test(names),
		cmocka_unit_test(uuids),
		cmocka_unit_test(htab_model),
		cmocka_unit_test(timers_run_in_order),
		cmocka_unit_test(histogram_quantiles),
		cmocka_unit_test(conf_flags_win),
		cmocka_unit_test(buffers_keep_a_reserve),
		cmocka_unit_test(rules_have_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
