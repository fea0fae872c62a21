// SPDX-License-Identifier: MIT
/* Which blocks hold data: asked chunk by chunk like a read, put together at the end. */
#include <stdlib.h>

#include "common/base/bitmap.h"
#include "common/base/clean.h"
#include "sdc/core/sdc_int.h"

struct status_call {
	struct sdc_io io;
	uint64_t first_block;
	uint64_t *data; /* a bit per block */
	void (*done)(void *arg, int status, const struct sdc_extent *ext, unsigned n);
	void *arg;
};

void sdc_status_reply(struct sdc_req *req, const uint8_t *states, uint32_t blocks)
{
	struct status_call *c = ash_container_of(req->io, struct status_call, io);
	uint64_t first = req->offset / ASH_BLOCK_BYTES - c->first_block;

	for (uint32_t i = 0; i < blocks; i++)
		/* A bad block is not zeros either: who reads it shall hear of it. */
		if (states[i] == ASH_BLK_DATA || states[i] == ASH_BLK_BAD)
			ash_bit_set(c->data, first + i);
}

/* Length of the run of equal blocks from @at on, cut to the range asked for. */
static uint64_t run_bytes(const struct status_call *c, uint64_t at, bool *ret_data)
{
	uint64_t end = c->io.offset + c->io.bytes, to = at;

	*ret_data = ash_bit_get(c->data, at / ASH_BLOCK_BYTES - c->first_block);
	do {
		to = (to / ASH_BLOCK_BYTES + 1) * ASH_BLOCK_BYTES;
	} while (to < end &&
		 ash_bit_get(c->data, to / ASH_BLOCK_BYTES - c->first_block) == *ret_data);
	return (to < end ? to : end) - at;
}

static void status_done(struct sdc_io *io, int status)
{
	struct status_call *c = ash_container_of(io, struct status_call, io);
	uint64_t at = io->offset, end = io->offset + io->bytes;
	ash_auto_free struct sdc_extent *ext = NULL;
	unsigned n = 0, room = 0;

	while (!status && at < end) {
		if (n == room) {
			room = room ? 2 * room : 64;
			ext = ash_xrealloc(ext, room * sizeof(*ext));
		}
		ext[n].bytes = run_bytes(c, at, &ext[n].data);
		at += ext[n++].bytes;
	}
	c->done(c->arg, status, ext, n);
	free(c->data);
	free(c);
}

void sdc_block_status(struct sdc_vol *vol, uint64_t offset, uint64_t bytes,
		      void (*done)(void *arg, int status, const struct sdc_extent *ext, unsigned n),
		      void *arg)
{
	struct status_call *c = ash_xcalloc(1, sizeof(*c));
	uint64_t blocks = 1;

	if (bytes && bytes <= vol->size && offset <= vol->size - bytes)
		blocks = (offset + bytes - 1) / ASH_BLOCK_BYTES - offset / ASH_BLOCK_BYTES + 1;
	c->first_block = offset / ASH_BLOCK_BYTES;
	c->data = ash_xcalloc(ASH_BITMAP_WORDS(blocks), sizeof(uint64_t));
	c->done = done;
	c->arg = arg;
	c->io = (struct sdc_io){
		.kind = STATUS_INTERNAL, .offset = offset, .bytes = bytes, .done = status_done};
	sdc_submit(vol, &c->io);
}
