// SPDX-License-Identifier: MIT
/*
 * What the store itself costs: operations per second on a file with plain pread and pwrite, one
 * thread, no ring, no network. Not a test; prints figures.
 *
 *   ashlar-store-bench FILE [--gib N] [--depth N] [--seconds S, 0: open only] [--write-through]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/base/crc.h"
#include "common/base/prng.h"
#include "filedisk.h"
#include "sds/core/store_int.h"

/* ------------------------------------------------------------ load */

struct slot {
	struct sds_store_op op; /* first */
	struct load *load;
	uint8_t *data;
	uint32_t crc[ASH_CHUNK_BLOCKS];
	uint8_t state[ASH_CHUNK_BLOCKS];
};

struct load {
	struct filedisk *b;
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

static void run(struct filedisk *b, struct slot *slots, unsigned depth, const char *name,
		struct load *l, double seconds)
{
	struct sds_store_stats s0, s1;
	uint64_t start = filedisk_clock_ns(&b->port), disk_ops = b->disk_ops,
		 flushes = b->disk_flushes;
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
		filedisk_turn(b);
	took = (double)(filedisk_clock_ns(&b->port) - start) / 1e9;
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

static void all_loads(struct filedisk *b, unsigned depth, double seconds)
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
	struct filedisk *b = ash_xcalloc(1, sizeof(*b));
	struct sds_label label = {.device = 1, .pool = 1};
	uint64_t gib = 4, start;
	unsigned depth = 32;
	double seconds = 2;
	bool write_back = true;

	if (argc < 2)
		return 2;
	for (int i = 2; i < argc; i++) {
		if (!strcmp(argv[i], "--write-through"))
			write_back = false;
		else if (!strcmp(argv[i], "--gib") && i + 1 < argc)
			gib = strtoull(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "--depth") && i + 1 < argc)
			depth = (unsigned)strtoul(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "--seconds") && i + 1 < argc)
			seconds = strtod(argv[++i], NULL);
	}
	if (filedisk_init(b, argv[1], gib << 30, write_back)) {
		perror(argv[1]);
		return 1;
	}
	label.device_uuid[0] = 1;
	start = filedisk_clock_ns(NULL);
	sds_store_format(&b->port, &b->disk, &label, filedisk_on_result, b);
	if (filedisk_wait(b))
		return 1;
	if (filedisk_open_store(b))
		return 1;
	printf("format and first opening: %.3f s\n",
	       (double)(filedisk_clock_ns(NULL) - start) / 1e9);
	if (seconds > 0)
		all_loads(b, depth, seconds);
	start = filedisk_clock_ns(NULL);
	filedisk_forget(b);
	if (filedisk_open_store(b))
		return 1;
	printf("opening after a crash: %.3f s\n", (double)(filedisk_clock_ns(NULL) - start) / 1e9);
	start = filedisk_clock_ns(NULL);
	sds_store_close(b->store, filedisk_on_result, b);
	filedisk_wait(b);
	printf("clean close: %.3f s\n", (double)(filedisk_clock_ns(NULL) - start) / 1e9);
	filedisk_done(b);
	start = (uint64_t)(b->result != 0);
	free(b);
	return (int)start;
}
