// SPDX-License-Identifier: MIT
/* What people write and read: numbers, settings, errors, log lines. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/clean.h"
#include "common/base/conf.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/base/name.h"
#include "common/base/prng.h"
#include "common/base/size.h"

static void numbers(void **state)
{
	uint32_t pct = 0;
	uint64_t v = 0;

	assert_int_equal(ash_percent_parse("25%", &pct), 0);
	assert_int_equal(pct, 25);
	assert_int_equal(ash_percent_parse("0", &pct), 0);
	assert_int_equal(pct, 0);
	assert_int_equal(ash_percent_parse("100%", &pct), 0);
	assert_int_equal(pct, 100);
	assert_int_equal(ash_percent_parse("101", &pct), -ERANGE);
	assert_int_equal(ash_percent_parse("%", &pct), -EINVAL);
	assert_int_equal(ash_percent_parse("2%%", &pct), -EINVAL);
	assert_int_equal(ash_percent_parse("-1", &pct), -EINVAL);
	assert_int_equal(ash_percent_parse("000000000000025", &pct), -EINVAL);
	assert_int_equal(pct, 100);
	assert_int_equal(ash_u64_parse("18446744073709551615", 0, UINT64_MAX, &v), 0);
	assert_int_equal(v, UINT64_MAX);
	assert_int_equal(ash_u64_parse("18446744073709551616", 0, UINT64_MAX, &v), -ERANGE);
	assert_int_equal(ash_u64_parse("9", 10, 20, &v), -ERANGE);
	assert_int_equal(ash_u64_parse("21", 10, 20, &v), -ERANGE);
	assert_int_equal(ash_u64_parse("20 ", 10, 20, &v), -EINVAL);
	assert_int_equal(ash_u64_parse("", 10, 20, &v), -EINVAL);
	assert_int_equal(v, UINT64_MAX);
}

/* What is printed parses again to a size that is not more, and less by a tenth of a unit at most.
 */
static void sizes_print_what_they_are(void **state)
{
	struct ash_prng rng;
	char buf[16];

	ash_prng_seed(&rng, 3);
	for (int i = 0; i < 100000; i++) {
		uint64_t bytes = ash_prng_next(&rng) >> (2 + ash_prng_below(&rng, 62));
		uint64_t unit = 1, whole = bytes;
		double shown;

		ash_size_format(bytes, buf, sizeof(buf));
		for (; whole >= 1024; whole /= 1024)
			unit *= 1024;
		shown = strtod(buf, NULL) * (double)unit;
		assert_true(shown <= (double)bytes * (1 + 1e-9));
		assert_true(shown + (double)unit / 10 >= (double)bytes * (1 - 1e-9));
	}
}

static void errors_name_and_exit(void **state)
{
	struct ash_error err = ash_error_make(ASH_E_IN_USE, "volume \"%s\" is mapped", "v1");
	char longer[ASH_ERROR_TEXT * 2];

	ash_error_wrap(&err, "mdm %s: ", "mdm1");
	assert_string_equal(err.message, "mdm mdm1: volume \"v1\" is mapped");
	assert_true(ash_failed(&err));
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	ash_error_wrap(&err, "%s", longer);
	assert_int_equal(strlen(err.message), ASH_ERROR_TEXT - 1);
	err = ash_error_ok();
	assert_false(ash_failed(&err));
	for (int c = ASH_OK; c <= ASH_E_USAGE; c++)
		assert_string_not_equal(ash_code_name(c), "unknown");
	assert_string_equal(ash_code_name(-1), "unknown");
	assert_string_equal(ash_code_name(ASH_E_USAGE + 1), "unknown");
	assert_int_equal(ash_code_exit(ASH_OK), 0);
	assert_int_equal(ash_code_exit(ASH_E_CAPACITY), 1);
	assert_int_equal(ash_code_exit(ASH_E_USAGE), 2);
	assert_int_equal(ash_code_exit(ASH_E_UNREACHABLE), 3);
	assert_int_equal(ash_code_exit(ASH_E_INTERNAL), 4);
	assert_int_equal(ash_code_exit(12345), 4);
}

static void name_lengths(void **state)
{
	char name[66];
	struct ash_error err;

	memset(name, 'a', 65);
	name[63] = '\0';
	err = ash_name_check("pool", name);
	assert_false(ash_failed(&err));
	name[63] = 'a';
	name[64] = '\0';
	err = ash_name_check("pool", name);
	assert_int_equal(err.code, ASH_E_INVALID);
	assert_non_null(strstr(err.message, "64 characters"));
	err = ash_name_check("pool", "\x1b[2J");
	assert_int_equal(err.code, ASH_E_INVALID);
	assert_null(strchr(err.message, '\x1b'));
}

/* Runs ash_log with stderr in a file; returns what was written. */
static const char *logged(int level, const char *text)
{
	static char got[4096];
	int fd = memfd_create("log", MFD_CLOEXEC), saved = dup(2);
	ssize_t n;

	assert_true(fd >= 0 && saved >= 0);
	dup2(fd, 2);
	ash_log(level, "%s", text);
	dup2(saved, 2);
	close(saved);
	n = pread(fd, got, sizeof(got) - 1, 0);
	assert_true(n >= 0);
	got[n] = '\0';
	close(fd);
	return got;
}

static void log_lines(void **state)
{
	char longer[5000];
	const char *line;

	ash_log_init("prog");
	ash_log_set_level(ASH_LOG_NOTICE);
	line = logged(ASH_LOG_WARN, "event=x a=1");
	assert_non_null(strstr(line, "Z prog warn event=x a=1\n"));
	assert_string_equal(logged(ASH_LOG_INFO, "event=y"), "");
	assert_string_equal(logged(77, "event=y"), "");
	/* Nobody can forge a second line or steer a terminal. */
	line = logged(ASH_LOG_ERROR, "event=z name=a\nevent=forged\x1b[2J");
	assert_ptr_equal(strchr(line, '\n'), line + strlen(line) - 1);
	assert_null(strchr(line, '\x1b'));
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	line = logged(ASH_LOG_ERROR, longer);
	assert_true(strlen(line) <= 2048);
	assert_int_equal(line[strlen(line) - 1], '\n');
}

static const char *const known[] = {"name", "mdm", "devices", NULL};

static void conf_refuses(void **state)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{"nmae = a\n", "nmae"},
		{"name = a\nrubbish\n", "line 2"},
		{"[open\nname = a\n", "line 1"},
		{"mdm = a\nNAME = a\n", "line 2: unknown key \"NAME\""},
	};
	char longer[400] = "name = a\nmdm = ";

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ash_conf c = {0};
		struct ash_error err = ash_conf_parse(&c, cases[i].text, "f", known);

		assert_int_equal(err.code, ASH_E_USAGE);
		assert_non_null(strstr(err.message, cases[i].says));
		ash_conf_done(&c);
	}
	for (size_t n = strlen(longer); n < sizeof(longer) - 1; n++)
		longer[n] = 'x';
	for (int half = 0; half < 2; half++) {
		struct ash_conf c = {0};
		struct ash_error err = ash_conf_parse(&c, longer, "f", known);

		assert_int_equal(ash_failed(&err), half == 0);
		if (half == 0)
			assert_non_null(strstr(err.message, "line 2 has"));
		else
			assert_int_equal(strlen(ash_conf_get(&c, "mdm", "")), 184);
		ash_conf_done(&c);
		longer[9 + 190] = '\0';
	}
}

static void conf_from_files(void **state)
{
	static const char text[] = "; for people\n[sds]\nname = a ; the first\n"
				   "devices = /dev/a\ndevices = /dev/b\n";
	int fd = memfd_create("conf", MFD_CLOEXEC);
	char path[64];
	struct ash_conf c = {0};
	struct ash_error err;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	err = ash_conf_load(&c, path, known);
	assert_false(ash_failed(&err));
	assert_string_equal(ash_conf_get(&c, "name", ""), "a");
	assert_string_equal(ash_conf_nth(&c, "devices", 0), "/dev/a");
	assert_string_equal(ash_conf_nth(&c, "devices", 1), "/dev/b");
	assert_null(ash_conf_nth(&c, "devices", 2));
	assert_string_equal(ash_conf_get(&c, "devices", ""), "/dev/b");
	ash_conf_done(&c);
	/* A binary file, one that is too big, a folder, none. */
	assert_int_equal(pwrite(fd, "\0", 1, 3), 1);
	err = ash_conf_load(&c, path, known);
	assert_int_equal(err.code, ASH_E_USAGE);
	assert_int_equal(ftruncate(fd, (1 << 20) + 1), 0);
	err = ash_conf_load(&c, path, known);
	assert_int_equal(err.code, ASH_E_USAGE);
	err = ash_conf_load(&c, "/", known);
	assert_int_equal(err.code, ASH_E_USAGE);
	close(fd);
	err = ash_conf_load(&c, path, known);
	assert_non_null(strstr(err.message, "No such file"));
	assert_int_equal(c.count, 0);
}

static void cleans_up(void **state)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), copy = fd;

	{
		ash_auto_close int closes = fd;
		ash_auto_free char *text = ash_xstrdup("text");
		ash_auto_close int none = -1;

		assert_string_equal(text, "text");
		assert_true(closes >= 0 && none < 0);
	}
	assert_int_equal(fcntl(copy, F_GETFD), -1);
	assert_int_equal(errno, EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers),
		cmocka_unit_test(sizes_print_what_they_are),
		cmocka_unit_test(errors_name_and_exit),
		cmocka_unit_test(name_lengths),
		cmocka_unit_test(log_lines),
		cmocka_unit_test(conf_refuses),
		cmocka_unit_test(conf_from_files),
		cmocka_unit_test(cleans_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
