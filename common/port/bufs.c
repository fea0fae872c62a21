// SPDX-License-Identifier: MIT
/*
 * One slab per size class, page aligned; free buffers of a class form a stack, so that the memory
 * used last (and still in cache) is used next.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/port/buf.h"

#define CLASSES 5
#define BLOCK 4096u

static const uint32_t class_bytes[CLASSES] = {4096, 16384, 65536, 262144, 1048576};
/* Share of the memory for each class, in 1/16. */
static const uint32_t class_share[CLASSES] = {3, 2, 3, 3, 5};

struct buf_class {
	uint8_t *slab;
	size_t slab_bytes;
	uint32_t *crcs;
	struct ash_buf *bufs, *free;
	uint32_t count, free_count;
	uint32_t reserve; /* of free buffers, not for clients */
};

struct ash_bufs {
	struct buf_class cls[CLASSES];
	struct ash_buf_waiter *first, **last;
	size_t in_use;
};

static bool class_init(struct ash_bufs *bufs, unsigned i, size_t total)
{
	struct buf_class *c = &bufs->cls[i];
	uint32_t crcs = class_bytes[i] / BLOCK;
	uint32_t count = (uint32_t)(total / 16 * class_share[i] / class_bytes[i]);

	/* At least a few, or one big request would own the class. */
	c->count = count < 4 ? 4 : count;
	c->reserve = c->count / 4;
	c->slab_bytes = (size_t)c->count * class_bytes[i];
	c->slab = aligned_alloc(BLOCK, c->slab_bytes);
	c->crcs = calloc((size_t)c->count * crcs, sizeof(uint32_t));
	c->bufs = calloc(c->count, sizeof(struct ash_buf));
	if (!c->slab || !c->crcs || !c->bufs)
		return false;
	memset(c->slab, 0, c->slab_bytes); /* fault the pages in now, not in an I/O */
	for (uint32_t j = c->count; j-- > 0;) {
		struct ash_buf *b = &c->bufs[j];

		*b = (struct ash_buf){.base = c->slab + (size_t)j * class_bytes[i],
				      .crc = c->crcs + (size_t)j * crcs,
				      .bytes = class_bytes[i],
				      .index = (int32_t)i,
				      .size_class = (uint16_t)i,
				      .next = c->free,
				      .owner = bufs};
		c->free = b;
	}
	c->free_count = c->count;
	return true;
}

struct ash_bufs *ash_bufs_new(size_t total_bytes)
{
	struct ash_bufs *bufs = calloc(1, sizeof(*bufs));

	if (!bufs)
		return NULL;
	bufs->last = &bufs->first;
	for (unsigned i = 0; i < CLASSES; i++)
		if (!class_init(bufs, i, total_bytes)) {
			ash_bufs_free(bufs);
			return NULL;
		}
	return bufs;
}

void ash_bufs_free(struct ash_bufs *bufs)
{
	if (!bufs)
		return;
	for (unsigned i = 0; i < CLASSES; i++) {
		free(bufs->cls[i].slab);
		free(bufs->cls[i].crcs);
		free(bufs->cls[i].bufs);
	}
	free(bufs);
}

/* Takes from the smallest class that fits; a full class borrows from the next one, so that a
 * burst of one size does not stall while others have room. */
struct ash_buf *ash_buf_get(struct ash_bufs *bufs, size_t bytes, enum ash_buf_class cls)
{
	for (unsigned i = 0; i < CLASSES; i++) {
		struct buf_class *c = &bufs->cls[i];
		struct ash_buf *b = c->free;

		if (bytes > class_bytes[i] || !b)
			continue;
		if (cls == ASH_BUF_CLIENT && c->free_count <= c->reserve)
			continue;
		c->free = b->next;
		c->free_count--;
		bufs->in_use++;
		b->next = NULL;
		b->refs = 1;
		b->flags = 0;
		return b;
	}
	return NULL;
}

/* Calls those that wait now, once each: one that still lacks a buffer queues itself anew, behind
 * the others. Taken out one by one, so that a callback may unwait anybody. */
static void wake(struct ash_bufs *bufs)
{
	unsigned waiting = 0;

	for (struct ash_buf_waiter *w = bufs->first; w; w = w->next)
		waiting++;
	while (waiting-- > 0 && bufs->first) {
		struct ash_buf_waiter *w = bufs->first;

		ash_bufs_unwait(bufs, w);
		w->fn(w);
	}
}

void ash_buf_put(struct ash_buf *buf)
{
	struct ash_bufs *bufs;
	struct buf_class *c;

	if (!buf)
		return;
	assert(buf->refs > 0);
	if (--buf->refs > 0)
		return;
	bufs = buf->owner;
	c = &bufs->cls[buf->size_class];
	buf->next = c->free;
	c->free = buf;
	c->free_count++;
	bufs->in_use--;
	if (bufs->first)
		wake(bufs);
}

void ash_bufs_wait(struct ash_bufs *bufs, struct ash_buf_waiter *waiter)
{
	if (waiter->queued)
		return;
	waiter->queued = true;
	waiter->next = NULL;
	*bufs->last = waiter;
	bufs->last = &waiter->next;
}

void ash_bufs_unwait(struct ash_bufs *bufs, struct ash_buf_waiter *waiter)
{
	struct ash_buf_waiter **p = &bufs->first;

	if (!waiter->queued)
		return;
	while (*p != waiter)
		p = &(*p)->next;
	*p = waiter->next;
	if (!*p)
		bufs->last = p;
	waiter->queued = false;
}

size_t ash_bufs_in_use(const struct ash_bufs *bufs)
{
	return bufs->in_use;
}

size_t ash_bufs_total(const struct ash_bufs *bufs)
{
	size_t total = 0;

	for (unsigned i = 0; i < CLASSES; i++)
		total += bufs->cls[i].slab_bytes;
	return total;
}

bool ash_bufs_slab(const struct ash_bufs *bufs, unsigned i, void **ret_base, size_t *ret_bytes)
{
	if (i >= CLASSES)
		return false;
	*ret_base = bufs->cls[i].slab;
	*ret_bytes = bufs->cls[i].slab_bytes;
	return true;
}
