// SPDX-License-Identifier: MIT
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/io/reactor.h"
#include "common/io/sock.h"

static void test_parse_and_text(void **state)
{
	static const struct {
		const char *in, *out;
		bool loopback;
	} good[] = {
		{"127.0.0.1:7072", "127.0.0.1:7072", true},
		{"10.1.2.3", "10.1.2.3:6611", false},
		{"[::1]:80", "[::1]:80", true},
		{"[fe80::2]", "[fe80::2]:6611", false},
		{"::1", "[::1]:6611", true},
		{"127.9.9.9:0", "127.9.9.9:0", true},
		{"[::ffff:127.0.0.1]:5", "127.0.0.1:5", true},
	};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct ash_endpoint ep, back;
		struct ash_error err;
		struct sockaddr_storage addr;
		char text[64];

		assert_int_equal(ash_endpoint_parse_numeric(good[i].in, 6611, &ep, &err), 0);
		assert_string_equal(ash_endpoint_text(&ep, text, sizeof(text)), good[i].out);
		assert_int_equal(ash_endpoint_is_loopback(&ep), good[i].loopback);
		assert_true(ash_sock_address(&ep, &addr) > 0);
		ash_sock_endpoint(&addr, &back);
		assert_memory_equal(&ep, &back, sizeof(ep));
	}
}

static void test_refused(void **state)
{
	static const char *const bad[] = {"",	       ":80",	     "1.2.3.4:",  "1.2.3.4:65536",
					  "1.2.3.4:x", "[::1",	     "[::1]x",	  "[]:1",
					  "1.2.3:4:5", "a b c:1:2:", "1.2.3.4:-1"};
	struct ash_endpoint ep;
	struct ash_error err;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_true(ash_endpoint_parse_numeric(bad[i], 1, &ep, &err) < 0);
		assert_true(ash_failed(&err));
		assert_non_null(strstr(err.message, bad[i]));
	}
	assert_int_equal(ash_endpoint_parse_numeric("1.2.3.4", 0, &ep, &err), -EINVAL);
	/* A name is not looked up where that could block. */
	assert_true(ash_endpoint_parse_numeric("localhost:1", 0, &ep, &err) < 0);
	assert_int_equal(ash_endpoint_parse("localhost:1", 0, &ep, &err), 0);
	assert_true(ash_endpoint_is_loopback(&ep));
}

static void test_log_limit(void **state)
{
	static struct ash_log_limit limit;
	uint8_t key[16] = {1};
	unsigned passed = 0;

	assert_true(ash_log_limit_pass(&limit, key, 1000));
	assert_false(ash_log_limit_pass(&limit, key, 2000));
	assert_true(ash_log_limit_pass(&limit, key, 1000 + 60000000000ull));
	for (unsigned i = 0; i < 1000; i++) {
		key[0] = 2;
		memcpy(key + 4, &i, sizeof(i));
		passed += ash_log_limit_pass(&limit, key, 3 * 60000000000ull);
	}
	assert_int_equal(passed, 64);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse_and_text),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_log_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
