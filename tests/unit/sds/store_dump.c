// SPDX-License-Identifier: MIT
/*
 * What a device holds: one line for each block that is not absent, "node chunk block state hash",
 * read from the medium and checked. Opens the store as a server would (recovery included, the
 * incarnation rises): run it on a copy of the file.
 *
 *   ashlar-store-dump FILE
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/base/hash.h"
#include "filedisk.h"

#define SCAN 256

struct dump {
	struct filedisk f; /* first */
	struct sds_store_op op;
	uint8_t *data;
	uint32_t crc[ASH_CHUNK_BLOCKS];
	uint8_t state[ASH_CHUNK_BLOCKS];
};

static void op_done(struct sds_store_op *op, int status)
{
	filedisk_on_result(op->owner, status);
}

static void print_chunk(const struct dump *d, const struct sds_chunk_info *c)
{
	for (unsigned b = 0; b < ASH_CHUNK_BLOCKS; b++) {
		uint64_t hash = 0;

		if (d->state[b] == ASH_BLK_INHERIT)
			continue;
		if (d->state[b] == ASH_BLK_DATA)
			hash = ash_hash64(d->data + (size_t)b * ASH_BLOCK_BYTES, ASH_BLOCK_BYTES);
		printf("%llu %llu %u %u %016llx\n", (unsigned long long)c->node,
		       (unsigned long long)c->chunk, b, d->state[b], (unsigned long long)hash);
	}
}

static int read_chunk(struct dump *d, const struct sds_chunk_info *c)
{
	memset(&d->op, 0, offsetof(struct sds_store_op, priv));
	d->op.kind = SDS_STORE_READ;
	d->op.node = c->node;
	d->op.chunk = c->chunk;
	d->op.blocks = ASH_CHUNK_BLOCKS;
	d->op.data = d->data;
	d->op.crc = d->crc;
	d->op.state = d->state;
	d->op.buf_index = -1;
	d->op.done = op_done;
	d->op.owner = &d->f;
	sds_store_submit(d->f.store, &d->op);
	return filedisk_wait(&d->f);
}

static int dump_all(struct dump *d)
{
	struct sds_chunk_info info[SCAN];
	uint64_t cursor = 0;

	do {
		unsigned n = sds_store_scan(d->f.store, cursor, info, SCAN, &cursor);

		for (unsigned i = 0; i < n; i++) {
			int err = read_chunk(d, &info[i]);

			if (err) {
				fprintf(stderr, "node %llu chunk %llu block %u: %s\n",
					(unsigned long long)info[i].node,
					(unsigned long long)info[i].chunk, d->op.bad_block,
					strerror(-err));
				return 1;
			}
			print_chunk(d, &info[i]);
		}
	} while (cursor);
	return 0;
}

int main(int argc, char **argv)
{
	struct dump *d = ash_xcalloc(1, sizeof(*d));
	int err;

	if (argc != 2) {
		fprintf(stderr, "usage: ashlar-store-dump FILE\n");
		return 2;
	}
	d->data = aligned_alloc(ASH_BLOCK_BYTES, ASH_CHUNK_BYTES);
	if (!d->data)
		return 1;
	err = filedisk_init(&d->f, argv[1], 0, true);
	if (!err)
		err = filedisk_open_store(&d->f);
	if (err) {
		fprintf(stderr, "%s: %s\n", argv[1], strerror(-err));
		return 1;
	}
	err = dump_all(d);
	filedisk_forget(&d->f);
	filedisk_done(&d->f);
	free(d->data);
	free(d);
	return err;
}
