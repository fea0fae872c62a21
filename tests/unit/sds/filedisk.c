// SPDX-License-Identifier: MIT
#include "filedisk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "common/base/list.h"

uint64_t filedisk_clock_ns(struct ash_port *port)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static uint64_t random64(struct ash_port *port)
{
	return ash_prng_next(&((struct filedisk *)(void *)port)->rng);
}

static void trace(struct ash_port *port, int level, const char *line)
{
	if (level < 2)
		fprintf(stderr, "%s\n", line);
}

static void post(struct ash_port *port, struct ash_task *task)
{
	struct filedisk *f = (struct filedisk *)(void *)port;

	task->next = NULL;
	*f->tasks_end = task;
	f->tasks_end = &task->next;
}

static void submit(struct ash_disk *disk, struct ash_disk_op *op)
{
	struct filedisk *f = ash_container_of(disk, struct filedisk, disk);

	op->next = NULL;
	op->submitted_ns = f->port.turn_ns;
	disk->inflight++;
	*f->queue_end = op;
	f->queue_end = &op->next;
}

static void close_disk(struct ash_disk *disk, void (*done)(void *arg), void *arg)
{
	done(arg);
}

static const struct ash_disk_ops ops = {.submit = submit, .close = close_disk};

static int perform(struct filedisk *f, struct ash_disk_op *op)
{
	ssize_t n = (ssize_t)op->bytes;

	if (op->kind == ASH_DISK_READ)
		n = preadv(f->fd, op->iov, op->iovcnt, (off_t)op->offset);
	else if (op->kind == ASH_DISK_WRITE)
		n = pwritev(f->fd, op->iov, op->iovcnt, (off_t)op->offset);
	if (op->kind == ASH_DISK_FLUSH || op->fua) {
		f->disk_flushes++;
		if (fdatasync(f->fd))
			return -EIO;
	}
	f->disk_ops++;
	return n == (ssize_t)op->bytes || op->kind > ASH_DISK_WRITE ? 0 : -EIO;
}

void filedisk_turn(struct filedisk *f)
{
	struct ash_disk_op *op = f->queue;
	struct ash_task *task;

	f->queue = NULL;
	f->queue_end = &f->queue;
	f->port.turn_ns = filedisk_clock_ns(&f->port);
	ash_timers_run(&f->timers, f->port.turn_ns);
	while (op) {
		struct ash_disk_op *next = op->next;

		f->disk.inflight--;
		op->done(op, perform(f, op));
		op = next;
	}
	task = f->tasks;
	f->tasks = NULL;
	f->tasks_end = &f->tasks;
	while (task) {
		struct ash_task *next = task->next;

		task->fn(task);
		task = next;
	}
}

void filedisk_on_result(void *arg, int result)
{
	struct filedisk *f = arg;

	f->flag = true;
	f->result = result;
}

static void on_open(void *arg, int result, struct sds_store *store)
{
	((struct filedisk *)arg)->store = store;
	filedisk_on_result(arg, result);
}

int filedisk_wait(struct filedisk *f)
{
	while (!f->flag)
		filedisk_turn(f);
	f->flag = false;
	return f->result;
}

int filedisk_open_store(struct filedisk *f)
{
	static const uint8_t boot[16] = {1};

	sds_store_open(&f->port, &f->disk, boot, on_open, f);
	return filedisk_wait(f);
}

static void forget_queues(struct filedisk *f)
{
	f->tasks = NULL;
	f->tasks_end = &f->tasks;
	f->queue = NULL;
	f->queue_end = &f->queue;
	f->disk.inflight = 0;
}

void filedisk_forget(struct filedisk *f)
{
	sds_store_forget(f->store);
	forget_queues(f);
}

int filedisk_init(struct filedisk *f, const char *path, uint64_t bytes, bool write_back)
{
	struct stat st;

	*f = (struct filedisk){.disk = {.ops = &ops, .write_back = write_back}};
	ash_timers_init(&f->timers);
	ash_prng_seed(&f->rng, 1);
	forget_queues(f);
	f->port = (struct ash_port){.timers = &f->timers,
				    .now_ns = filedisk_clock_ns,
				    .rand64 = random64,
				    .trace = trace,
				    .post = post,
				    .turn_ns = filedisk_clock_ns(NULL)};
	f->fd = open(path, bytes ? O_RDWR | O_CREAT : O_RDWR, 0600);
	if (f->fd < 0 || (bytes && ftruncate(f->fd, (off_t)bytes)) || fstat(f->fd, &st))
		return -errno;
	f->disk.bytes = (uint64_t)st.st_size;
	return 0;
}

void filedisk_done(struct filedisk *f)
{
	ash_timers_done(&f->timers);
	close(f->fd);
}
