/* SPDX-License-Identifier: MIT */
/*
 * Data buffers of a reactor: preallocated, 4 KiB aligned, reference counted, one thread.
 *
 * Sizes come in classes (4 KiB, 16 KiB, 64 KiB, 256 KiB, 1 MiB); each buffer also has room for the
 * checksums of its blocks. Reserves: clients cannot use the last part of a class, replication and
 * rebuild can (so a cluster full of client requests cannot starve replication).
 */
#ifndef ASHLAR_COMMON_PORT_BUF_H
#define ASHLAR_COMMON_PORT_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ash_buf_class {
	ASH_BUF_CLIENT = 0, /* work that a client asked for */
	ASH_BUF_PEER = 1,   /* replication, rebuild, relay: may use the reserve */
};

/**
 * struct ash_buf - one buffer.
 * @base:  4 KiB aligned memory, @bytes long.
 * @crc:   room for bytes / 4096 checksums (blocks of the buffer, in order).
 * @index: of the registered buffer for io_uring, or -1.
 */
struct ash_buf {
	uint8_t *base;
	uint32_t *crc;
	uint32_t bytes;
	int32_t index;
	uint32_t refs;
	uint16_t size_class;
	uint16_t flags;
	struct ash_buf *next;
	struct ash_bufs *owner;
};

struct ash_bufs;

/**
 * ash_bufs_new() - preallocate buffers.
 * @total_bytes: about how much memory; at least one of each class exists.
 * Return: the pool, or NULL without memory. Free with ash_bufs_free() when no buffer is out.
 */
struct ash_bufs *ash_bufs_new(size_t total_bytes);
void ash_bufs_free(struct ash_bufs *bufs);

/**
 * ash_buf_get() - take a buffer of at least @bytes (<= 1 MiB) with one reference.
 * Return: the buffer, or NULL when none is left for that class of work: the caller stops reading
 * from the connection, or queues, until ash_bufs_on_free reports.
 */
struct ash_buf *ash_buf_get(struct ash_bufs *bufs, size_t bytes, enum ash_buf_class cls);
static inline struct ash_buf *ash_buf_ref(struct ash_buf *buf)
{
	buf->refs++;
	return buf;
}
/* Gives back one reference; NULL is fine. */
void ash_buf_put(struct ash_buf *buf);

/* A waiter is called once, from ash_buf_put(), when a buffer of a class it lacked was returned. */
struct ash_buf_waiter {
	struct ash_buf_waiter *next;
	void (*fn)(struct ash_buf_waiter *waiter);
	bool queued;
};
void ash_bufs_wait(struct ash_bufs *bufs, struct ash_buf_waiter *waiter);
void ash_bufs_unwait(struct ash_bufs *bufs, struct ash_buf_waiter *waiter);

/* Buffers out now and bytes in all, for counters and leak checks. */
size_t ash_bufs_in_use(const struct ash_bufs *bufs);
size_t ash_bufs_total(const struct ash_bufs *bufs);

/* For registering with io_uring: base address and length of the i-th slab; false past the end. */
bool ash_bufs_slab(const struct ash_bufs *bufs, unsigned i, void **ret_base, size_t *ret_bytes);

#endif
