// SPDX-License-Identifier: MIT
/* Disks of the reactor: files with O_DIRECT, files in memory, a loop device where there is one. */
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/list.h"
#include "common/base/prng.h"
#include "common/io/reactor.h"

#define DISK_BYTES (8u << 20)
#define BLOCKS (DISK_BYTES / 4096)
#define OPS 64
#define PIECES 8
#define ANY_NAME                                                                                   \
	"XX"                                                                                       \
	"XX"                                                                                       \
	"XX" /* for mkstemp() */

struct world;

struct op {
	struct ash_disk_op o;
	struct world *w;
	struct iovec iov[PIECES];
	struct ash_buf *buf;
	uint32_t first, blocks;
	bool busy;
	uint64_t value;
};

struct world {
	struct ash_reactor *r;
	struct ash_port *port;
	struct ash_disk *disk;
	struct ash_prng rng;
	struct op op[OPS];
	uint64_t model[BLOCKS]; /* what the first word of each block holds */
	bool locked[BLOCKS];
	unsigned started, ended, goal;
	bool closed;
	int result;
	char path[128];
};

static void world_init(struct world *w, const char *dir)
{
	struct ash_reactor_opts opts = {.buffer_bytes = 16u << 20, .ring_entries = 16};
	struct ash_error err;
	int fd;

	memset(w, 0, sizeof(*w));
	w->r = ash_reactor_new(&opts, &err);
	if (!w->r)
		fail_msg("%s", err.message);
	w->port = ash_reactor_port(w->r);
	ash_prng_seed(&w->rng, 3);
	snprintf(w->path, sizeof(w->path), "%s/ashlar-test-disk-" ANY_NAME, dir);
	fd = mkstemp(w->path);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, DISK_BYTES + 100), 0); /* an odd end is not used */
	close(fd);
}

static void open_disk(struct world *w, const char *path)
{
	struct ash_error err;

	if (ash_reactor_disk_open(w->r, path, 1000, -1, &w->disk, &err))
		fail_msg("%s", err.message);
	assert_int_equal(w->disk->bytes, DISK_BYTES);
}

static void on_closed(void *arg)
{
	struct world *w = arg;

	w->closed = true;
	ash_reactor_stop(w->r);
}

static void world_done(struct world *w)
{
	if (w->disk) {
		w->disk->ops->close(w->disk, on_closed, w);
		assert_false(w->closed);
		ash_reactor_run(w->r);
		assert_true(w->closed);
	}
	assert_int_equal(ash_bufs_in_use(w->port->bufs), 0);
	ash_reactor_free(w->r);
	unlink(w->path);
}

/* ------------------------------------------------------------ a disk is what was written to it */

static void on_op(struct ash_disk_op *o, int result);

/* Cuts the buffer into pieces of whole blocks. */
static void cut(struct world *w, struct op *op)
{
	uint32_t left = op->blocks;
	uint8_t *at = op->buf->base;

	op->o.iovcnt = 0;
	while (left > 0) {
		uint32_t n = op->o.iovcnt == PIECES - 1
				     ? left
				     : 1 + (uint32_t)ash_prng_below(&w->rng, left);

		op->iov[op->o.iovcnt++] = (struct iovec){at, n * 4096ul};
		at += n * 4096ul;
		left -= n;
	}
	op->o.iov = op->iov;
}

static bool take_range(struct world *w, struct op *op)
{
	op->blocks = 1 + (uint32_t)ash_prng_below(&w->rng, 1u << ash_prng_below(&w->rng, 9));
	op->first = (uint32_t)ash_prng_below(&w->rng, BLOCKS - op->blocks + 1);
	for (uint32_t i = 0; i < op->blocks; i++)
		if (w->locked[op->first + i])
			return false;
	for (uint32_t i = 0; i < op->blocks; i++)
		w->locked[op->first + i] = true;
	return true;
}

static void start(struct world *w, struct op *op)
{
	uint64_t dice = ash_prng_below(&w->rng, 100);

	op->w = w;
	op->o = (struct ash_disk_op){.done = on_op, .buf_index = -1, .kind = ASH_DISK_FLUSH};
	if (dice < 5) {
		op->blocks = 0;
	} else {
		if (!take_range(w, op))
			return;
		op->buf = ash_buf_get(w->port->bufs, op->blocks * 4096ul, ASH_BUF_PEER);
		if (!op->buf) {
			for (uint32_t i = 0; i < op->blocks; i++)
				w->locked[op->first + i] = false;
			return;
		}
		op->o.kind = dice < 50 ? ASH_DISK_READ : ASH_DISK_WRITE;
		op->o.fua = dice > 90;
		op->o.buf_index = dice % 2 ? op->buf->index : -1;
		op->o.offset = op->first * 4096ull;
		op->o.bytes = op->blocks * 4096ull;
		cut(w, op);
		op->value = ash_prng_next(&w->rng);
		for (uint32_t i = 0; op->o.kind == ASH_DISK_WRITE && i < op->blocks; i++) {
			w->model[op->first + i] = op->value + i;
			memcpy(op->buf->base + i * 4096ul, &w->model[op->first + i], 8);
		}
	}
	op->busy = true;
	w->started++;
	ash_disk_submit(w->disk, &op->o);
	assert_true(op->busy);
}

static void fill_up(struct world *w)
{
	for (unsigned i = 0; i < OPS && w->started < w->goal; i++)
		if (!w->op[i].busy)
			start(w, &w->op[i]);
}

static void on_op(struct ash_disk_op *o, int result)
{
	struct op *op = ash_container_of(o, struct op, o);
	struct world *w = op->w;

	assert_int_equal(result, 0);
	for (uint32_t i = 0; i < op->blocks; i++) {
		w->locked[op->first + i] = false;
		if (o->kind == ASH_DISK_READ)
			assert_memory_equal(op->buf->base + i * 4096ul, &w->model[op->first + i],
					    8);
	}
	ash_buf_put(op->buf);
	op->buf = NULL;
	op->busy = false;
	w->ended++;
	fill_up(w);
	if (w->ended == w->goal)
		ash_reactor_stop(w->r);
}

static void model_check(struct world *w, const char *path, unsigned ops)
{
	open_disk(w, path);
	w->goal = ops;
	fill_up(w);
	assert_int_equal(w->disk->inflight, w->started);
	ash_reactor_run(w->r);
	assert_int_equal(w->ended, ops);
	assert_int_equal(w->disk->inflight, 0);
}

static void test_model_file(void **state)
{
	static struct world w;

	world_init(&w, "/tmp");
	model_check(&w, w.path, 3000);
	assert_true(w.disk->write_back);
	world_done(&w);
}

static void test_model_in_memory(void **state)
{
	static struct world w;

	world_init(&w, "/dev/shm");
	model_check(&w, w.path, 10000);
	assert_true(w.disk->write_back);
	world_done(&w);
}

/* The first free loop device on the file, or -1 where that is not allowed. */
static int loop_open(const char *path, char *ret_name, size_t room)
{
	int ctl = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	int n = ctl >= 0 ? ioctl(ctl, LOOP_CTL_GET_FREE) : -1;
	int fd, file;

	if (ctl >= 0)
		close(ctl);
	snprintf(ret_name, room, "/dev/loop%d", n);
	fd = n >= 0 ? open(ret_name, O_RDWR | O_CLOEXEC) : -1;
	if (fd < 0)
		return -1;
	file = open(path, O_RDWR | O_CLOEXEC);
	if (ioctl(fd, LOOP_SET_FD, file)) {
		close(fd);
		fd = -1;
	}
	close(file);
	return fd;
}

static void test_model_block_device(void **state)
{
	static struct world w;
	struct ash_disk *again;
	struct ash_error err;
	char name[32];
	int fd;

	world_init(&w, "/tmp");
	fd = loop_open(w.path, name, sizeof(name));
	if (fd < 0) {
		world_done(&w);
		skip();
	}
	model_check(&w, name, 2000);
	/* Held: nobody else gets it, not even we ourselves. */
	assert_int_equal(ash_reactor_disk_open(w.r, name, 20, 1, &again, &err), -EBUSY);
	assert_int_equal(err.code, ASH_E_IN_USE);
	world_done(&w);
	ioctl(fd, LOOP_CLR_FD, 0);
	close(fd);
}

/* ------------------------------------------------------------ single operations */

static void on_single(struct ash_disk_op *o, int result)
{
	struct world *w = o->owner;

	w->result = result;
	ash_reactor_stop(w->r);
}

static int single(struct world *w, uint8_t kind, uint64_t offset, struct ash_buf *buf,
		  uint64_t bytes)
{
	struct ash_disk_op o = {.kind = kind,
				.offset = offset,
				.bytes = bytes,
				.buf_index = buf ? buf->index : -1,
				.done = on_single,
				.owner = w};

	if (buf) {
		o.iov1 = (struct iovec){buf->base, bytes};
		o.iov = &o.iov1;
		o.iovcnt = 1;
	}
	w->result = 1;
	ash_disk_submit(w->disk, &o);
	assert_int_equal(w->result, 1);
	ash_reactor_run(w->r);
	return w->result;
}

static void single_ops(const char *dir)
{
	static struct world w;
	struct ash_buf *buf;

	world_init(&w, dir);
	open_disk(&w, w.path);
	buf = ash_buf_get(w.port->bufs, 1 << 20, ASH_BUF_PEER);
	memset(buf->base, 7, 1 << 20);
	assert_int_equal(single(&w, ASH_DISK_WRITE, 4096, buf, 1 << 20), 0);
	assert_int_equal(single(&w, ASH_DISK_FLUSH, 0, NULL, 0), 0);
	assert_int_equal(single(&w, ASH_DISK_PUNCH, 1 << 20, NULL, 1 << 20), 0);
	assert_int_equal(single(&w, ASH_DISK_WRITE, 1 << 20, buf, 4096), 0);
	memset(buf->base, 0, 4096);
	assert_int_equal(single(&w, ASH_DISK_READ, 1 << 20, buf, 4096), 0);
	assert_int_equal(buf->base[4095], 7);
	/* Somebody cuts the file off under us: an error, never made-up data. */
	assert_int_equal(truncate(w.path, 6144), 0);
	assert_int_equal(single(&w, ASH_DISK_READ, 4096, buf, 1 << 20), -EIO);
	assert_int_equal(single(&w, ASH_DISK_READ, 4u << 20, buf, 4096), -EIO);
	ash_buf_put(buf);
	world_done(&w);
}

static void test_single_ops(void **state)
{
	single_ops("/tmp");
	single_ops("/dev/shm");
}

/* A limit on the size of files stands in for a full file system. */
static void no_space(const char *dir)
{
	static struct world w;
	struct ash_buf *buf;
	struct rlimit old, lim;

	world_init(&w, dir);
	open_disk(&w, w.path);
	buf = ash_buf_get(w.port->bufs, 4096, ASH_BUF_PEER);
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	lim = old;
	lim.rlim_cur = 1 << 20;
	setrlimit(RLIMIT_FSIZE, &lim);
	assert_int_equal(single(&w, ASH_DISK_WRITE, 2 << 20, buf, 4096), -ENOSPC);
	setrlimit(RLIMIT_FSIZE, &old);
	assert_int_equal(single(&w, ASH_DISK_WRITE, 2 << 20, buf, 4096), 0);
	ash_buf_put(buf);
	world_done(&w);
}

static void test_no_space(void **state)
{
	no_space("/tmp");
	no_space("/dev/shm");
}

/* A file system in memory that is really full, in a mount namespace of its own. */
static int full_tmpfs(void)
{
	static struct world w;
	char dir[] = "/tmp/ashlar-test-full-" ANY_NAME;
	struct ash_buf *buf;
	unsigned failed = 0;

	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    !mkdtemp(dir) || mount("none", dir, "tmpfs", 0, "size=1m"))
		return 77;
	world_init(&w, dir);
	open_disk(&w, w.path);
	buf = ash_buf_get(w.port->bufs, 65536, ASH_BUF_PEER);
	for (uint64_t at = 0; at < DISK_BYTES; at += 65536) {
		int result = single(&w, ASH_DISK_WRITE, at, buf, 65536);

		if (result != 0 && result != -ENOSPC)
			return 1;
		failed += result != 0;
	}
	if (failed < 100 || failed == DISK_BYTES / 65536)
		return 2;
	/* What is freed can be used again. */
	if (single(&w, ASH_DISK_PUNCH, 0, NULL, 131072) ||
	    single(&w, ASH_DISK_WRITE, 4 << 20, buf, 65536))
		return 3;
	ash_buf_put(buf);
	world_done(&w);
	umount(dir);
	rmdir(dir);
	return 0;
}

static void test_full_file_system(void **state)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(full_tmpfs());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* ------------------------------------------------------------ opening */

static void test_held_by_another_process(void **state)
{
	static struct world w;
	struct ash_error err;
	int ready[2], status, fd;
	char c;
	pid_t pid;

	world_init(&w, "/tmp");
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		fd = open(w.path, O_RDWR);
		flock(fd, LOCK_EX);
		(void)!write(ready[1], "x", 1);
		pause();
		_exit(0);
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	assert_int_equal(ash_reactor_disk_open(w.r, w.path, 30, -1, &w.disk, &err), -EBUSY);
	assert_int_equal(err.code, ASH_E_IN_USE);
	assert_non_null(strstr(err.message, w.path));
	/* Its lock goes with it, perhaps a moment later. */
	kill(pid, SIGKILL);
	if (ash_reactor_disk_open(w.r, w.path, 60000, 0, &w.disk, &err))
		fail_msg("%s", err.message);
	assert_false(w.disk->write_back);
	waitpid(pid, &status, 0);
	close(ready[0]);
	close(ready[1]);
	world_done(&w);
}

static void test_not_a_disk(void **state)
{
	static struct world w;
	struct ash_error err;
	struct ash_disk *disk;

	world_init(&w, "/tmp");
	assert_int_equal(ash_reactor_disk_open(w.r, "/tmp/no/such", 0, -1, &disk, &err), -ENOENT);
	assert_int_equal(err.code, ASH_E_NOT_FOUND);
	assert_int_equal(ash_reactor_disk_open(w.r, "/tmp", 0, -1, &disk, &err), -ENOTBLK);
	assert_int_equal(ash_reactor_disk_open(w.r, "/dev/null", 0, -1, &disk, &err), -ENOTBLK);
	assert_int_equal(truncate(w.path, 4095), 0);
	assert_int_equal(ash_reactor_disk_open(w.r, w.path, 0, -1, &disk, &err), -EINVAL);
	assert_int_equal(err.code, ASH_E_INVALID);
	world_done(&w);
}

/* Close is heard of after the last operation, and the lock is free then. */
static bool write_over;

static void on_last_write(struct ash_disk_op *o, int result)
{
	write_over = true;
}

static void on_closed_after(void *arg)
{
	assert_true(write_over);
	on_closed(arg);
}

static void test_close_waits(void **state)
{
	static struct world w;
	struct ash_buf *buf;
	struct ash_disk_op o = {.kind = ASH_DISK_WRITE, .bytes = 1 << 20, .buf_index = -1};

	world_init(&w, "/tmp");
	open_disk(&w, w.path);
	buf = ash_buf_get(w.port->bufs, 1 << 20, ASH_BUF_PEER);
	o.iov1 = (struct iovec){buf->base, 1 << 20};
	o.iov = &o.iov1;
	o.iovcnt = 1;
	o.done = on_last_write;
	ash_disk_submit(w.disk, &o);
	w.disk->ops->close(w.disk, on_closed_after, &w);
	ash_reactor_run(w.r);
	assert_true(w.closed);
	w.closed = false;
	open_disk(&w, w.path);
	ash_buf_put(buf);
	world_done(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model_file),
		cmocka_unit_test(test_model_in_memory),
		cmocka_unit_test(test_model_block_device),
		cmocka_unit_test(test_single_ops),
		cmocka_unit_test(test_no_space),
		cmocka_unit_test(test_full_file_system),
		cmocka_unit_test(test_held_by_another_process),
		cmocka_unit_test(test_not_a_disk),
		cmocka_unit_test(test_close_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
