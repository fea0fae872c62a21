// SPDX-License-Identifier: MIT
/* Options, identity, scan and the search for foreign data of ashlar-sds, on real files. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/uuid.h"
#include "sds/shell/identity.h"
#include "sds/shell/open_disk.h"
#include "sds/shell/options.h"
#include "sds/shell/scan.h"

#define SEC_NS 1000000000ull
#define MIB (1u << 20)

static char dir[64];

static const char *in_dir(const char *name)
{
	static char path[4][256];
	static unsigned turn;
	char *p = path[turn++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", dir, name);
	return p;
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static void make_disk(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 4 * MIB), 0);
	close(fd);
}

/* The magic of an ext2 superblock with just enough around it. */
static void put_ext2(const char *path)
{
	uint8_t sb[1024] = {[0] = 64, [4] = 0, [5] = 16, [0x18] = 0, [0x38] = 0x53, [0x39] = 0xef};
	int fd = open(path, O_WRONLY);

	sb[0x4c] = 1;
	memcpy(sb + 0x78, "precious", 8);
	assert_int_equal(pwrite(fd, sb, sizeof(sb), 1024), sizeof(sb));
	close(fd);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	return remove(path);
}

static int set_up(void **state)
{
	snprintf(dir, sizeof(dir),
		 "/tmp/ashlar-sds-shell-XX"
		 "XX"
		 "XX");
	return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
	return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* ------------------------------------------------------------ options */

static struct ash_error parse(struct sds_options *o, char **words)
{
	int n = 0;

	while (words[n])
		n++;
	return sds_options_read(n, words, o);
}
#define PARSE(o, ...) parse(o, (char *[]){"ashlar-sds", __VA_ARGS__, NULL})

static void options_flags_win_over_the_file(void **state)
{
	const char *conf = in_dir("sds.conf");
	struct sds_options o;
	struct ash_error err;
	char text[64];

	write_file(conf, "listen = 127.0.0.1:1\nstate-dir = /a\nrun-dir = /b\ndevices = /x*\n"
			 "devices = /y*\n");
	err = PARSE(&o, "--listen", "127.0.0.1:2", "--conf", (char *)conf, "--state-dir=/c");
	assert_string_equal(err.message, "");
	assert_string_equal(ash_endpoint_text(&o.listen, text, sizeof(text)), "127.0.0.1:2");
	assert_string_equal(ash_endpoint_text(&o.advertise, text, sizeof(text)), "127.0.0.1:2");
	assert_string_equal(o.state_dir, "/c");
	assert_string_equal(o.run_dir, "/b");
	assert_string_equal(ash_conf_nth(&o.conf, "devices", 0), "/x*");
	assert_string_equal(ash_conf_nth(&o.conf, "devices", 1), "/y*");
	assert_null(ash_conf_nth(&o.conf, "devices", 2));
	sds_options_done(&o);
}

static void expect_usage(struct ash_error err, struct sds_options *o, const char *says)
{
	assert_int_equal(err.code, ASH_E_USAGE);
	if (!strstr(err.message, says))
		fail_msg("\"%s\" does not say \"%s\"", err.message, says);
	sds_options_done(o);
}

static void options_refuse_by_name(void **state)
{
	struct sds_options o;
	const char *conf = in_dir("bad.conf");

	write_file(conf, "lisen = 127.0.0.1:1\n");
	expect_usage(PARSE(&o, "--name", "sds1"), &o, "--listen is missing");
	expect_usage(PARSE(&o, "--listne", "x"), &o, "--listne");
	expect_usage(PARSE(&o, "--listen"), &o, "needs a value");
	expect_usage(PARSE(&o, "--listen", "127.0.0.1:99999"), &o, "--listen");
	expect_usage(PARSE(&o, "--listen", "0.0.0.0:7072"), &o, "--advertise");
	expect_usage(PARSE(&o, "--listen", "[::]:7072"), &o, "--advertise");
	expect_usage(PARSE(&o, "--listen", "127.0.0.1", "more"), &o, "more");
	expect_usage(PARSE(&o, "--listen", "127.0.0.1", "--name", "a b"), &o, "a b");
	expect_usage(PARSE(&o, "--listen", "127.0.0.1", "--conf", (char *)conf), &o, "lisen");
}

static void options_any_address_with_another_to_tell(void **state)
{
	struct sds_options o;
	struct ash_error err = PARSE(&o, "--listen", "0.0.0.0", "--advertise", "127.0.0.1");
	char text[64];

	assert_string_equal(err.message, "");
	assert_string_equal(ash_endpoint_text(&o.advertise, text, sizeof(text)), "127.0.0.1:7072");
	sds_options_done(&o);
	err = PARSE(&o, "--help");
	assert_int_equal(err.code, ASH_OK);
	assert_true(o.help);
	sds_options_done(&o);
}

/* ------------------------------------------------------------ identity */

static void identity_stays(void **state)
{
	uint8_t a[16], b[16];
	struct ash_error err = sds_identity_open(in_dir("x/y/state"), a);

	assert_string_equal(err.message, "");
	assert_false(ash_uuid_is_zero(a));
	err = sds_identity_open(in_dir("x/y/state"), b);
	assert_int_equal(err.code, ASH_OK);
	assert_memory_equal(a, b, 16);
	err = sds_identity_open(in_dir("other"), b);
	assert_int_equal(err.code, ASH_OK);
	assert_memory_not_equal(a, b, 16);
}

static void identity_damaged_is_never_replaced(void **state)
{
	const char *const texts[] = {"", "nonsense\n", "00000000-0000-0000-0000-000000000000\n"};
	uint8_t uuid[16];

	mkdir(in_dir("d"), 0755);
	for (size_t i = 0; i < 3; i++) {
		struct ash_error err;
		struct stat st;

		write_file(in_dir("d/uuid"), texts[i]);
		err = sds_identity_open(in_dir("d"), uuid);
		assert_int_equal(err.code, ASH_E_STATE);
		assert_non_null(strstr(err.message, "d/uuid"));
		assert_int_equal(stat(in_dir("d/uuid"), &st), 0);
		assert_int_equal(st.st_size, strlen(texts[i]));
	}
}

static void identity_names_the_directory_and_the_way_out(void **state)
{
	struct ash_error err;
	uint8_t uuid[16];

	write_file(in_dir("file"), "x");
	err = sds_identity_open(in_dir("file/state"), uuid);
	assert_int_equal(err.code, ASH_E_STATE);
	assert_non_null(strstr(err.message, "file/state"));
	assert_non_null(strstr(err.message, "--state-dir"));
}

static void lock_is_held_once(void **state)
{
	int a = -1, b = -1;
	struct ash_error err = sds_lock_file(in_dir("run"), "p.pid", "--run-dir", 0, &a);
	char text[32] = "";

	assert_string_equal(err.message, "");
	assert_true(pread(a, text, sizeof(text) - 1, 0) > 0);
	assert_int_equal(strtol(text, NULL, 10), getpid());
	err = sds_lock_file(in_dir("run"), "p.pid", "--run-dir", 0, &b);
	assert_int_equal(err.code, ASH_E_IN_USE);
	assert_non_null(strstr(err.message, "--run-dir"));
	close(a);
	err = sds_lock_file(in_dir("run"), "p.pid", "--run-dir", 0, &b);
	assert_int_equal(err.code, ASH_OK);
	close(b);
}

static void collect(void *arg, const char *path)
{
	char *all = arg;
	size_t n = strlen(all);

	snprintf(all + n, 256 - n, "%s;", path);
}

static void paths_are_remembered_once(void **state)
{
	char all[256] = "";
	FILE *f;

	assert_int_equal(sds_paths_add(dir, "/dev/a"), 0);
	f = fopen(in_dir("devices"), "a");
	fputs("torn", f);
	fclose(f);
	assert_int_equal(sds_paths_add(dir, "/dev/b c"), 0);
	assert_int_equal(sds_paths_add(dir, "/dev/a"), 0);
	assert_int_equal(sds_paths_add(dir, "/dev/x\n/dev/y"), -EINVAL);
	sds_paths_each(dir, collect, all);
	assert_string_equal(all, "/dev/a;/dev/b c;");
}

/* ------------------------------------------------------------ foreign data */

static void empty_file_is_free(void **state)
{
	char why[256] = "";
	int fd = -1, again = -1;

	make_disk(in_dir("disk"));
	assert_int_equal(sds_foreign_check(in_dir("disk"), false, &fd, why, sizeof(why)), 0);
	/* held meanwhile */
	assert_int_equal(sds_foreign_check(in_dir("disk"), true, &again, why, sizeof(why)), -EBUSY);
	assert_non_null(strstr(why, "in use"));
	close(fd);
}

static void foreign_data_is_named_and_kept(void **state)
{
	char why[256] = "";
	uint8_t magic[2] = {0};
	int fd = -1;

	make_disk(in_dir("disk"));
	put_ext2(in_dir("disk"));
	assert_int_equal(sds_foreign_check(in_dir("disk"), false, &fd, why, sizeof(why)), -EEXIST);
	assert_non_null(strstr(why, "ext2"));
	assert_non_null(strstr(why, "precious"));
	assert_non_null(strstr(why, "--force"));
	fd = open(in_dir("disk"), O_RDONLY);
	assert_int_equal(pread(fd, magic, 2, 1024 + 0x38), 2);
	assert_int_equal(magic[0], 0x53);
	close(fd);
}

static void force_wipes(void **state)
{
	char why[256] = "";
	int fd = -1;

	make_disk(in_dir("disk"));
	put_ext2(in_dir("disk"));
	assert_int_equal(sds_foreign_check(in_dir("disk"), true, &fd, why, sizeof(why)), 0);
	close(fd);
	assert_int_equal(sds_foreign_check(in_dir("disk"), false, &fd, why, sizeof(why)), 0);
	close(fd);
}

static void what_is_no_disk_is_refused(void **state)
{
	char why[256] = "";
	int fd = -1;

	assert_int_equal(sds_foreign_check(in_dir("none"), true, &fd, why, sizeof(why)), -ENOENT);
	assert_non_null(strstr(why, "none"));
	assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
	assert_int_equal(sds_foreign_check(in_dir("pipe"), true, &fd, why, sizeof(why)), -ENOTBLK);
}

/* ------------------------------------------------------------ scan and opening, on a reactor */

struct world {
	struct ash_reactor *r;
	struct ash_disk *disk[8];
	unsigned found;
	int result;
	char message[512];
};

static struct ash_reactor *make_reactor(void)
{
	struct ash_reactor_opts opts = {.buffer_bytes = 4 * MIB};
	struct ash_error err = {0};
	struct ash_reactor *r = ash_reactor_new(&opts, &err);

	if (!r)
		fail_msg("%s", err.message);
	return r;
}

static void found(void *arg, struct ash_disk *disk, const char *path)
{
	struct world *w = arg;

	assert_true(w->found < 8);
	w->disk[w->found++] = disk;
}

static void stop(void *arg)
{
	ash_reactor_stop(((struct world *)arg)->r);
}

static void close_disk(struct world *w, unsigned i)
{
	w->disk[i]->ops->close(w->disk[i], stop, w);
	ash_reactor_run(w->r);
}

static void scan_offers_each_disk_until_it_is_kept(void **state)
{
	struct world w = {.r = make_reactor()};
	struct sds_scan *scan = sds_scan_new(w.r, found, &w);
	char why[256];
	int held = -1;

	make_disk(in_dir("disk1"));
	make_disk(in_dir("disk2"));
	make_disk(in_dir("disk3"));
	make_disk(in_dir("else"));
	assert_int_equal(sds_foreign_check(in_dir("disk3"), false, &held, why, sizeof(why)), 0);
	sds_scan_add(scan, in_dir("disk*"));
	sds_scan_add(scan, in_dir("disk1"));
	assert_int_equal(sds_scan_run(scan, 100 * SEC_NS), 1); /* disk3 is held by somebody */
	assert_int_equal(w.found, 2);
	assert_int_equal(sds_scan_run(scan, 200 * SEC_NS), 1);
	assert_int_equal(w.found, 2); /* those two are kept open */
	close(held);
	assert_int_equal(sds_scan_run(scan, 201 * SEC_NS), 0);
	assert_int_equal(w.found, 3);
	close_disk(&w, 2); /* refused: not again at once, but later */
	sds_scan_run(scan, 202 * SEC_NS);
	assert_int_equal(w.found, 3);
	sds_scan_run(scan, 204 * SEC_NS);
	assert_int_equal(w.found, 4);
	close_disk(&w, 3);
	close_disk(&w, 0);
	close_disk(&w, 1);
	sds_scan_free(scan);
	ash_reactor_free(w.r);
}

static void opened(void *arg, int result, struct ash_disk *disk, const char *message)
{
	struct world *w = arg;

	w->result = result;
	w->disk[0] = disk;
	snprintf(w->message, sizeof(w->message), "%s", message ? message : "");
	ash_reactor_stop(w->r);
}

static void open_disk_examines_first(void **state)
{
	struct world w = {.r = make_reactor(), .result = 1};
	struct sds_opener opener = {.r = w.r, .state_dir = dir};
	char all[256] = "";

	make_disk(in_dir("disk"));
	put_ext2(in_dir("disk"));
	sds_open_disk(&opener, in_dir("disk"), false, opened, &w);
	assert_int_equal(w.result, 1); /* never before the call has returned */
	ash_reactor_run(w.r);
	assert_int_equal(w.result, -EEXIST);
	assert_null(w.disk[0]);
	assert_non_null(strstr(w.message, "ext2"));
	sds_paths_each(dir, collect, all);
	assert_string_equal(all, "");
	sds_open_disk(&opener, in_dir("disk"), true, opened, &w);
	ash_reactor_run(w.r);
	assert_int_equal(w.result, 0);
	assert_int_equal(w.disk[0]->bytes, 4 * MIB);
	assert_int_equal(opener.running, 0);
	sds_paths_each(dir, collect, all);
	assert_non_null(strstr(all, "/disk;"));
	close_disk(&w, 0);
	ash_reactor_free(w.r);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(options_flags_win_over_the_file),
		TEST(options_refuse_by_name),
		TEST(options_any_address_with_another_to_tell),
		TEST(identity_stays),
		TEST(identity_damaged_is_never_replaced),
		TEST(identity_names_the_directory_and_the_way_out),
		TEST(lock_is_held_once),
		TEST(paths_are_remembered_once),
		TEST(empty_file_is_free),
		TEST(foreign_data_is_named_and_kept),
		TEST(force_wipes),
		TEST(what_is_no_disk_is_refused),
		TEST(scan_offers_each_disk_until_it_is_kept),
		TEST(open_disk_examines_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
