// SPDX-License-Identifier: MIT
/*
 * What the store itself costs: operations per second on a file with plain pread and pwrite, one
 * thread, no ring, no network. Not a test; prints figures.
 *
 *   ashlar-store-bench FILE [--gib N] [--depth N] [--seconds S, 0: open only] [--write-through]
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clean.h"
#include "common/base/crc.h"
#include "common/base/prng.h"
#include "sds/core/store_int.h"

struct bench {
	struct ash_port port; /* first */
	struct ash_timers timers;
	struct ash_task *tasks, **tasks_end;
	struct ash_disk disk;
	struct ash_disk_op *queue, **queue_end;
	int fd;
	struct ash_prng rng;
	struct sds_store *store;
	bool flag;
	int result;
	uint64_t disk_ops, disk_flushes, extents;
};

static uint64_t clock_ns(struct ash_port *port)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static uint64_t random64(struct ash_port *port)
{
	return ash_prng_next(&((struct bench *)(void *)port)->rng);
}

static void trace(struct ash_port *port, int level, const char *line)
{
	if (level < 2)
		fprintf(stderr, "%s\n", line);
}

static void post(struct ash_port *port, struct ash_task *task)
{
	struct bench *b = (struct bench *)(void *)port;

	task->next = NULL;
	*b->tasks_end = task;
	b->tasks_end = &task->next;
}

static void submit(struct ash_disk *disk, struct ash_disk_op *op)
{
	struct bench *b = ash_container_of(disk, struct bench, disk);

	op->next = NULL;
	op->submitted_ns = b->port.turn_ns;
	disk->inflight++;
	*b->queue_end = op;
	b->queue_end = &op->next;
}

static void close_disk(struct ash_disk *disk, void (*done)(void *arg), void *arg)
{
	done(arg);
}

static const struct ash_disk_ops ops = {.submit = submit, .close = close_disk};

static int perform(struct bench *b, struct ash_disk_op *op)
{
	ssize_t n = (ssize_t)op->bytes;

	if (op->kind == ASH_DISK_READ)
		n = preadv(b->fd, op->iov, op->iovcnt, (off_t)op->offset);
	else if (op->kind == ASH_DISK_WRITE)
		n = pwritev(b->fd, op->iov, op->iovcnt, (off_t)op->offset);
	if (op->kind == ASH_DISK_FLUSH || op->fua) {
		b->disk_flushes++;
		if (fdatasync(b->fd))
			return -EIO;
	}
	b->disk_ops++;
	return n == (ssize_t)op->bytes || op->kind > ASH_DISK_WRITE ? 0 : -EIO;
}

static void turn(struct bench *b)
{
	struct ash_disk_op *op = b->queue;
	struct ash_task *task;

	b->queue = NULL;
	b->queue_end = &b->queue;
	b->port.turn_ns = clock_ns(&b->port);
	ash_timers_run(&b->timers, b->port.turn_ns);
	while (op) {
		struct ash_disk_op *next = op->next;

		b->disk.inflight--;
		op->done(op, perform(b, op));
		op = next;
	}
	task = b->tasks;
	b->tasks = NULL;
	b->tasks_end = &b->tasks;
	while (task) {
		struct ash_task *next = task->next;

		task->fn(task);
		task = next;
	}
}

static void on_result(void *arg, int result)
{
	struct bench *b = arg;

	b->flag = true;
	b->result = result;
}

static void on_open(void *arg, int result, struct sds_store *store)
{
	((struct bench *)arg)->store = store;
	on_result(arg, result);
}

static int wait_for(struct bench *b)
{
	while (!b->flag)
		turn(b);
	b->flag = false;
	return b->result;
}

/* ------------------------------------------------------------ load */

struct slot {
	struct sds_store_op op; /* first */
	struct load *load;
	uint8_t *data;
	uint32_t crc[ASH_CHUNK_BLOCKS];
	uint8_t state[ASH_CHUNK_BLOCKS];
};

struct load {
	struct bench *b;
	unsigned kind, blocks, inflight;
	uint64_t chunks, at, limit, done, errors;
	bool sequential;
	uint64_t end_ns;
};

static void next(struct slot *slot);

static void op_done(struct sds_store_op *op, int status)
{
	struct slot *slot = (struct slot *)(void *)op;

	slot->load->inflight--;
	slot->load->done++;
	slot->load->errors += status != 0;
	next(slot);
}

static void next(struct slot *slot)
{
	struct load *l = slot->load;
	struct sds_store_op *op = &slot->op;
	uint64_t places = l->chunks * (ASH_CHUNK_BLOCKS / l->blocks), place;

	if (l->at >= l->limit || l->b->port.turn_ns >= l->end_ns)
		return;
	place = l->sequential ? l->at % places : ash_prng_below(&l->b->rng, places);
	l->at++;
	memset(op, 0, offsetof(struct sds_store_op, priv));
	op->kind = (uint8_t)l->kind;
	op->node = 1;
	op->chunk = place / (ASH_CHUNK_BLOCKS / l->blocks);
	op->first_block = (uint16_t)(place % (ASH_CHUNK_BLOCKS / l->blocks) * l->blocks);
	op->blocks = (uint16_t)l->blocks;
	op->gen = 1;
	op->data = slot->data;
	op->crc = slot->crc;
	op->state = slot->state;
	op->buf_index = -1;
	op->done = op_done;
	l->inflight++;
	sds_store_submit(l->b->store, op);
}

static void run(struct bench *b, struct slot *slots, unsigned depth, const char *name,
		struct load *l, double seconds)
{
	struct sds_store_stats s0, s1;
	uint64_t start = clock_ns(&b->port), disk_ops = b->disk_ops, flushes = b->disk_flushes;
	double took;

	sds_store_stats(b->store, &s0);
	l->b = b;
	l->end_ns = start + (uint64_t)(seconds * 1e9);
	b->port.turn_ns = start;
	for (unsigned i = 0; i < depth; i++) {
		slots[i].load = l;
		next(&slots[i]);
	}
	while (l->inflight)
		turn(b);
	took = (double)(clock_ns(&b->port) - start) / 1e9;
	sds_store_stats(b->store, &s1);
	printf("%-28s %9.0f ops/s %8.1f MB/s  disk ops/op %.3f flushes/op %.4f journal "
	       "blocks/op %.4f errors %llu\n",
	       name, (double)l->done / took,
	       (double)l->done * l->blocks * ASH_BLOCK_BYTES / took / 1e6,
	       (double)(b->disk_ops - disk_ops) / (double)l->done,
	       (double)(b->disk_flushes - flushes) / (double)l->done,
	       (double)(s1.journal_blocks - s0.journal_blocks) / (double)l->done,
	       (unsigned long long)l->errors);
}

static void all_loads(struct bench *b, unsigned depth, double seconds)
{
	struct slot *slots = ash_xcalloc(depth, sizeof(*slots));
	uint64_t blocks, chunks = b->store->extents - 8;
	struct load l;

	for (unsigned i = 0; i < depth; i++) {
		slots[i].data = sds_aligned(ASH_CHUNK_BYTES);
		memset(slots[i].data, (int)i, ASH_CHUNK_BYTES);
		for (unsigned k = 0; k < ASH_CHUNK_BLOCKS; k++)
			slots[i].crc[k] = ash_crc32c(slots[i].data, ASH_BLOCK_BYTES);
	}
	blocks = chunks * ASH_CHUNK_BLOCKS;
	l = (struct load){.kind = SDS_STORE_WRITE,
			  .blocks = 1,
			  .chunks = chunks,
			  .limit = blocks / 4,
			  .sequential = true};
	run(b, slots, depth, "4k first writes, in order", &l, seconds);
	l = (struct load){.kind = SDS_STORE_WRITE,
			  .blocks = 256,
			  .chunks = chunks,
			  .limit = chunks,
			  .sequential = true};
	run(b, slots, depth, "1M writes, in order", &l, seconds * 100);
	l = (struct load){
		.kind = SDS_STORE_WRITE, .blocks = 1, .chunks = chunks, .limit = UINT64_MAX};
	run(b, slots, depth, "4k overwrites, random", &l, seconds);
	l = (struct load){
		.kind = SDS_STORE_WRITE, .blocks = 1, .chunks = chunks, .limit = UINT64_MAX};
	run(b, slots, 1, "4k overwrites, one at a time", &l, seconds);
	l = (struct load){
		.kind = SDS_STORE_READ, .blocks = 1, .chunks = chunks, .limit = UINT64_MAX};
	run(b, slots, depth, "4k reads, random", &l, seconds);
	l = (struct load){
		.kind = SDS_STORE_READ, .blocks = 256, .chunks = chunks, .limit = UINT64_MAX};
	run(b, slots, depth, "1M reads, random", &l, seconds);
	l = (struct load){.kind = SDS_STORE_DISCARD,
			  .blocks = 256,
			  .chunks = chunks,
			  .limit = chunks,
			  .sequential = true};
	run(b, slots, depth, "1M discards", &l, seconds);
	l = (struct load){
		.kind = SDS_STORE_WRITE, .blocks = 1, .chunks = chunks, .limit = UINT64_MAX};
	run(b, slots, depth, "4k first writes, random", &l, seconds);
	for (unsigned i = 0; i < depth; i++)
		free(slots[i].data);
	free(slots);
}

int main(int argc, char **argv)
{
	struct bench *b = ash_xcalloc(1, sizeof(*b));
	struct sds_label label = {.device = 1, .pool = 1};
	static const uint8_t boot[16] = {1};
	uint64_t gib = 4, start;
	unsigned depth = 32;
	double seconds = 2;

	if (argc < 2)
		return 2;
	b->disk.write_back = true;
	for (int i = 2; i < argc; i++) {
		if (!strcmp(argv[i], "--write-through"))
			b->disk.write_back = false;
		else if (!strcmp(argv[i], "--gib") && i + 1 < argc)
			gib = strtoull(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "--depth") && i + 1 < argc)
			depth = (unsigned)strtoul(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "--seconds") && i + 1 < argc)
			seconds = strtod(argv[++i], NULL);
	}
	ash_timers_init(&b->timers);
	ash_prng_seed(&b->rng, 1);
	b->tasks_end = &b->tasks;
	b->queue_end = &b->queue;
	b->port = (struct ash_port){.timers = &b->timers,
				    .now_ns = clock_ns,
				    .rand64 = random64,
				    .trace = trace,
				    .post = post,
				    .turn_ns = clock_ns(NULL)};
	b->fd = open(argv[1], O_RDWR | O_CREAT, 0600);
	if (b->fd < 0 || ftruncate(b->fd, (off_t)(gib << 30))) {
		perror(argv[1]);
		return 1;
	}
	b->disk.ops = &ops;
	b->disk.bytes = gib << 30;
	label.device_uuid[0] = 1;
	start = clock_ns(NULL);
	sds_store_format(&b->port, &b->disk, &label, on_result, b);
	if (wait_for(b))
		return 1;
	sds_store_open(&b->port, &b->disk, boot, on_open, b);
	if (wait_for(b))
		return 1;
	printf("format and first opening: %.3f s\n", (double)(clock_ns(NULL) - start) / 1e9);
	if (seconds > 0)
		all_loads(b, depth, seconds);
	start = clock_ns(NULL);
	/* a crash: what the store had under way is never heard of again */
	sds_store_forget(b->store);
	b->tasks = NULL;
	b->tasks_end = &b->tasks;
	b->queue = NULL;
	b->queue_end = &b->queue;
	b->disk.inflight = 0;
	sds_store_open(&b->port, &b->disk, boot, on_open, b);
	if (wait_for(b))
		return 1;
	printf("opening after a crash: %.3f s\n", (double)(clock_ns(NULL) - start) / 1e9);
	start = clock_ns(NULL);
	sds_store_close(b->store, on_result, b);
	wait_for(b);
	printf("clean close: %.3f s\n", (double)(clock_ns(NULL) - start) / 1e9);
	ash_timers_done(&b->timers);
	close(b->fd);
	start = (uint64_t)(b->result != 0);
	free(b);
	return (int)start;
}
