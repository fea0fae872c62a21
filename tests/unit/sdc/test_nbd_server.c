// SPDX-License-Identifier: MIT
/* The NBD server judged by libnbd; and its beginning and end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/unit/sdc/nbd_rig.h"

/* ------------------------------------------------------------ libnbd */

static void test_export_is_described(void **state)
{
	struct nbd_handle *h = client("v1", true);

	assert_int_equal(nbd_get_size(h), SIZE);
	assert_int_equal(nbd_can_flush(h), 1);
	assert_int_equal(nbd_can_fua(h), 1);
	assert_int_equal(nbd_can_trim(h), 1);
	assert_int_equal(nbd_can_zero(h), 1);
	assert_int_equal(nbd_can_fast_zero(h), 1);
	assert_int_equal(nbd_can_multi_conn(h), 1);
	assert_int_equal(nbd_can_df(h), 1);
	assert_int_equal(nbd_is_read_only(h), 0);
	assert_int_equal(nbd_can_meta_context(h, LIBNBD_CONTEXT_BASE_ALLOCATION), 1);
	assert_int_equal(nbd_get_block_size(h, LIBNBD_SIZE_MINIMUM), 512);
	assert_int_equal(nbd_get_block_size(h, LIBNBD_SIZE_PREFERRED), 4096);
	assert_int_equal(nbd_get_block_size(h, LIBNBD_SIZE_MAXIMUM), 32 << 20);
	nbd_close(h);
	h = client("", false);
	assert_int_equal(nbd_get_size(h), SIZE);
	assert_int_equal(nbd_can_meta_context(h, LIBNBD_CONTEXT_BASE_ALLOCATION), 0);
	nbd_close(h);
	h = client("v3", true);
	assert_int_equal(nbd_is_read_only(h), 1);
	nbd_close(h);
}

static int on_export(void *arg, const char *name, const char *description)
{
	size_t n = strlen(arg);

	snprintf((char *)arg + n, 64 - n, "%s,", name);
	return 0;
}

static void test_exports_are_listed_and_unknown_ones_refused(void **state)
{
	struct nbd_handle *h = nbd_create();
	char names[64] = "", *text;

	nbd_set_opt_mode(h, true);
	assert_int_equal(nbd_connect_socket(h, raw_client()), 0);
	assert_int_equal(
		nbd_opt_list(h, (nbd_list_callback){.callback = on_export, .user_data = names}), 3);
	assert_string_equal(names, "v1,v2,v3,");
	nbd_set_export_name(h, "nosuch");
	assert_int_equal(nbd_opt_info(h), -1);
	nbd_set_export_name(h, "v1");
	nbd_set_full_info(h, true);
	assert_int_equal(nbd_opt_info(h), 0);
	text = nbd_get_export_description(h);
	assert_string_equal(text, "the first");
	free(text);
	nbd_set_export_name(h, "v2");
	assert_int_equal(nbd_opt_go(h), 0);
	nbd_close(h);
}

static void test_data_goes_both_ways(void **state)
{
	uint8_t *a = malloc(32 << 20), *b = malloc(32 << 20);

	random_fill(a, 32 << 20, 1);
	for (int structured = 0; structured < 2; structured++) {
		static const uint32_t sizes[] = {512, 4096, 65536 + 512, 1 << 20, 32 << 20};
		struct nbd_handle *h = client("v1", structured);

		for (size_t i = 0; i < 5; i++) {
			assert_int_equal(nbd_pwrite(h, a, sizes[i], 512 * i, 0), 0);
			memset(b, 0, sizes[i]);
			assert_int_equal(nbd_pread(h, b, sizes[i], 512 * i, 0), 0);
			assert_memory_equal(a, b, sizes[i]);
		}
		w.fua = 0;
		assert_int_equal(nbd_pwrite(h, a, 512, 0, LIBNBD_CMD_FLAG_FUA), 0);
		assert_int_equal(w.fua, 1);
		assert_int_equal(nbd_flush(h, 0), 0);
		assert_int_equal(nbd_trim(h, 4096, 0, 0), 0);
		assert_int_equal(nbd_zero(h, 4096, 4096,
					  LIBNBD_CMD_FLAG_NO_HOLE | LIBNBD_CMD_FLAG_FAST_ZERO),
				 0);
		assert_int_equal(nbd_pread(h, b, 8192, 0, structured ? LIBNBD_CMD_FLAG_DF : 0), 0);
		for (int i = 0; i < 8192; i++)
			assert_int_equal(b[i], 0);
		assert_int_equal(nbd_shutdown(h, 0), 0);
		nbd_close(h);
	}
	assert_int_equal(w.flushes, 2);
	free(a);
	free(b);
}

struct extents {
	unsigned n;
	uint32_t e[64];
};
static int on_extent(void *arg, const char *context, uint64_t offset, uint32_t *e, size_t n,
		     int *error)
{
	struct extents *x = arg;

	for (size_t i = 0; i < n && x->n < 64; i++)
		x->e[x->n++] = e[i];
	return 0;
}

static void test_block_status_tells_holes(void **state)
{
	struct nbd_handle *h = client("v1", true);
	struct extents x = {0};
	nbd_extent_callback cb = {.callback = on_extent, .user_data = &x};
	uint8_t a[8192] = {1};

	assert_int_equal(nbd_pwrite(h, a, 8192, 1 << 20, 0), 0);
	assert_int_equal(nbd_block_status(h, SIZE, 0, cb, 0), 0);
	assert_int_equal(x.n, 6);
	assert_int_equal(x.e[0], 1 << 20);
	assert_int_equal(x.e[1], LIBNBD_STATE_HOLE | LIBNBD_STATE_ZERO);
	assert_int_equal(x.e[2], 8192);
	assert_int_equal(x.e[3], 0);
	assert_int_equal(x.e[4], SIZE - (1 << 20) - 8192);
	x.n = 0;
	assert_int_equal(nbd_block_status(h, SIZE, 0, cb, LIBNBD_CMD_FLAG_REQ_ONE), 0);
	assert_int_equal(x.n, 2);
	nbd_close(h);
}

#define assert_fails(call, with)                                                                   \
	do {                                                                                       \
		assert_int_equal(call, -1);                                                        \
		assert_int_equal(nbd_get_errno(), with);                                           \
	} while (0)

static void test_errors_have_their_numbers(void **state)
{
	static uint8_t a[1 << 20];

	for (int structured = 0; structured < 2; structured++) {
		struct nbd_handle *h = client("v1", structured), *ro = client("v3", structured);

		assert_fails(nbd_pread(h, a, 512, SIZE, 0), EINVAL);
		assert_fails(nbd_pread(h, a, 1024, SIZE - 512, 0), EINVAL);
		assert_fails(nbd_pread(h, a, 100, 0, 0), EINVAL);
		assert_fails(nbd_pwrite(h, a, 512, 100, 0), EINVAL);
		assert_fails(nbd_pwrite(h, a, 1024, SIZE - 512, 0), ENOSPC);
		assert_fails(nbd_pwrite(ro, a, 512, 0, 0), EPERM);
		assert_fails(nbd_trim(ro, 512, 0, 0), EPERM);
		w.fail_with = -EROFS;
		assert_fails(nbd_pwrite(h, a, 512, 0, 0), EPERM);
		w.fail_with = -ENOSPC;
		assert_fails(nbd_pwrite(h, a, 512, 0, 0), ENOSPC);
		w.fail_with = -ESHUTDOWN;
		assert_fails(nbd_flush(h, 0), ESHUTDOWN);
		w.fail_with = -EIO;
		assert_fails(nbd_pread(h, a, 1 << 20, 0, 0), EIO);
		w.fail_with = 0;
		/* None of that has hurt the connection. */
		assert_int_equal(nbd_pread(h, a, 512, 0, 0), 0);
		assert_int_equal(nbd_pread(ro, a, 512, 0, 0), 0);
		nbd_close(h);
		nbd_close(ro);
	}
}

#define QD 64
static void test_many_in_flight_end_in_any_order(void **state)
{
	struct nbd_handle *h = client("v1", true);
	struct {
		int64_t cookie;
		bool write;
		uint8_t data[128 << 10];
	} *op = calloc(QD, sizeof(*op));
	struct ash_prng r;
	unsigned done = 0;

	ash_prng_seed(&r, 3);
	for (unsigned begun = 0; done < 4000;) {
		for (unsigned i = 0; i < QD; i++) {
			uint64_t off = (uint64_t)i << 20, n = 512 * (1 + ash_prng_below(&r, 255));

			if (!op[i].cookie && begun < 4000) {
				begun++;
				op[i].write = !op[i].write;
				if (op[i].write) {
					random_fill(op[i].data, sizeof(op[i].data), begun);
					op[i].cookie = nbd_aio_pwrite(h, op[i].data, n, off,
								      NBD_NULL_COMPLETION, 0);
				} else {
					memset(op[i].data, 0, sizeof(op[i].data));
					op[i].cookie = nbd_aio_pread(h, op[i].data, n, off,
								     NBD_NULL_COMPLETION, 0);
				}
				assert_true(op[i].cookie > 0);
				/* Remembered in the first word for the check below. */
			}
			if (op[i].cookie && nbd_aio_command_completed(h, op[i].cookie) == 1) {
				if (!op[i].write)
					assert_memory_equal(op[i].data, w.mem + off, 512);
				op[i].cookie = 0;
				done++;
			}
		}
		assert_true(nbd_poll(h, 100) >= 0);
	}
	free(op);
	nbd_close(h);
}

/* ------------------------------------------------------------ beginning and end */

static bool are_in_flight(const struct nbd_server_stats *s, unsigned n)
{
	return s->in_flight >= n;
}

static void test_stop_answers_what_was_begun(void **state)
{
	int fd = raw_client();
	uint8_t head[16], data[4096];

	raw_go(fd, "v1");
	__atomic_store_n(&w.hold, true, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < 10; i++)
		raw_request(fd, NBD_CMD_READ, i, 0, 4096);
	await_server(are_in_flight, 10, "requests do not reach the backend");
	on_server(do_stop, NULL);
	w.stopped = true;
	__atomic_store_n(&w.hold, false, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < 10; i++) {
		get(fd, head, 16);
		get(fd, data, 4096);
	}
	assert_int_equal(recv(fd, head, 1, 0), 0);
	close(fd);
}

static struct ash_error listen_error;
static void do_listen(void *arg)
{
	listen_error = nbd_server_listen_unix(w.srv, arg);
}

static int connect_fd(int fd, const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
	return connect(fd, (struct sockaddr *)&sa, sizeof(sa)) ? -errno : 0;
}

static int connect_unix(const char *path)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), err = connect_fd(fd, path);

	close(fd);
	return err;
}

static bool have_paused(const struct nbd_server_stats *s, unsigned n)
{
	return s->accept_pauses >= n;
}

/* What keeps the server from taking a client need not be a client of its own: no end of one tells
 * it when to try again. */
static void test_a_client_that_found_no_descriptor_is_served_later(void **state)
{
	char path[64];
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), last = fd, next;
	struct rlimit old, few;
	struct timeval deadline = {.tv_sec = 100};
	uint8_t hello[18];

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof(deadline));
	snprintf(path, sizeof(path), "/tmp/ashlar-nbd-%d.s", (int)getpid());
	on_server(do_listen, path);
	assert_int_equal(listen_error.code, 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	while (last < 200 && (next = dup(fd)) >= 0)
		last = next; /* no holes below the limit */
	few = (struct rlimit){(rlim_t)last + 1, old.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(connect_fd(fd, path), 0);
	await_server(have_paused, 1, "the server has taken a client without a descriptor");
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	get(fd, hello, sizeof(hello));
	assert_memory_equal(hello, "NBDMAGIC", 8);
	while (last > fd)
		close(last--);
	close(fd);
	settled(0);
}

static void test_the_socket_path_is_kept_clean(void **state)
{
	char dir[40], path[64], other[64];
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct stat st;
	int fd;

	snprintf(dir, sizeof(dir), "/tmp/ashlar-nbd-%d", (int)getpid());
	assert_int_equal(mkdir(dir, 0700), 0);
	snprintf(path, sizeof(path), "%s/s", dir);
	snprintf(other, sizeof(other), "%s/f", dir);
	/* Left behind by a server that was killed. */
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	close(fd);
	on_server(do_listen, path);
	assert_int_equal(listen_error.code, 0);
	assert_int_equal(connect_unix(path), 0);
	/* In use, and something else, are left alone. */
	on_server(do_listen, path);
	assert_int_equal(listen_error.code, ASH_E_EXISTS);
	assert_non_null(strstr(listen_error.message, "in use"));
	fclose(fopen(other, "w"));
	on_server(do_listen, other);
	assert_int_equal(listen_error.code, ASH_E_EXISTS);
	assert_int_equal(connect_unix(path), 0);
	on_server(do_stop, NULL);
	w.stopped = true;
	pthread_join(w.thread, NULL);
	nbd_rig_run();
	ev_async_send(w.loop, &w.command);
	assert_int_not_equal(stat(path, &st), 0);
	assert_int_equal(stat(other, &st), 0);
	unlink(other);
	rmdir(dir);
	on_server(was_stopped, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_export_is_described),
		RIG_TEST(test_exports_are_listed_and_unknown_ones_refused),
		RIG_TEST(test_data_goes_both_ways),
		RIG_TEST(test_block_status_tells_holes),
		RIG_TEST(test_errors_have_their_numbers),
		RIG_TEST(test_many_in_flight_end_in_any_order),
		RIG_TEST(test_stop_answers_what_was_begun),
		RIG_TEST(test_the_socket_path_is_kept_clean),
		RIG_TEST(test_a_client_that_found_no_descriptor_is_served_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
