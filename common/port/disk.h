/* SPDX-License-Identifier: MIT */
/* Asynchronous access to one disk (block device or file). See port.h for the rules of callbacks. */
#ifndef ASHLAR_COMMON_PORT_DISK_H
#define ASHLAR_COMMON_PORT_DISK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

enum ash_disk_kind {
	ASH_DISK_READ = 1,
	ASH_DISK_WRITE = 2,
	ASH_DISK_FLUSH = 3, /* every write completed before this call is durable at done(0) */
	ASH_DISK_PUNCH = 4, /* hint: the range is not needed; contents undefined until written */
};

struct ash_disk;

/**
 * struct ash_disk_op - one operation; the caller's memory, held until done.
 * @offset, iov: 4 KiB aligned (offset, every base and length). At most 64 iovecs, 4 MiB in all.
 * @fua:   WRITE: durable at done(0).
 * @done:  result 0 or -errno (-EIO medium, -ENOSPC file system below full, -ENODEV device gone,
 *         -ETIMEDOUT never). Short transfers are continued by the backend. A write that failed or
 *         was in flight at a crash leaves each 512-byte sector old or new.
 * @buf_index: registered buffer index or -1 (hint).
 * @backend: scratch of the backend.
 */
struct ash_disk_op {
	uint8_t kind;
	bool fua;
	uint16_t iovcnt;
	int32_t buf_index;
	uint64_t offset;
	uint64_t bytes;	   /* PUNCH: length; READ and WRITE: sum of iov, set by the caller */
	struct iovec *iov; /* held until done */
	struct iovec iov1; /* convenience: iov = &iov1 for one piece */
	void (*done)(struct ash_disk_op *op, int result);
	void *owner;
	struct ash_disk_op *next;
	uint64_t submitted_ns; /* set by the backend; for deadlines */
	uint64_t backend[6];
};

struct ash_disk_ops {
	void (*submit)(struct ash_disk *disk, struct ash_disk_op *op);
	/* Closes the descriptor after all operations ended; then calls done once. */
	void (*close)(struct ash_disk *disk, void (*done)(void *arg), void *arg);
};

/**
 * struct ash_disk - an open disk.
 * @bytes:      size.
 * @write_back: volatile cache: only FLUSH or FUA make a write durable.
 * @inflight:   operations submitted and not done (kept by the backend).
 */
struct ash_disk {
	const struct ash_disk_ops *ops;
	uint64_t bytes;
	bool write_back;
	uint32_t inflight;
};

static inline void ash_disk_submit(struct ash_disk *disk, struct ash_disk_op *op)
{
	disk->ops->submit(disk, op);
}

#endif
