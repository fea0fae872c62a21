/* SPDX-License-Identifier: MIT */
/*
 * libashlar: volumes of an Ashlar system for programs.
 *
 *     struct ash_cluster *cluster;
 *     struct ash_volume *volume;
 *     char why[ASH_MESSAGE_BYTES];
 *
 *     if (ash_connect(NULL, &cluster, why) || ash_open(cluster, "v1", 0, 10000, &volume, why))
 *             errx(1, "%s", why);
 *     ash_pwrite(volume, data, 4096, 0, ASH_FUA);
 *     ash_close(volume);
 *     ash_disconnect(cluster);
 *
 * Threads: any thread may call anything. Inside is one thread of the library's own; completion
 * callbacks run on it. They may submit more, must not block, and must not call what waits
 * (everything but ash_aio_submit(), ash_volume_info() and the inline helpers): that is refused with
 * -EDEADLK.
 *
 * Errors are negative errno. Those of I/O:
 *   -EINVAL     not multiples of 512, outside of the volume, or the memory does not add up
 *   -EROFS      opened, or mapped, read-only
 *   -ENOSPC     the pool is full
 *   -EIO        no copy can be read; or no answer within io_timeout_ms (then the open is dead)
 *   -ESHUTDOWN  the open is dead: a newer open of this SDC took the volume, it was unmapped, or
 *               an I/O timed out. Close and open again.
 * Without io_timeout_ms an I/O that nobody can serve waits until somebody can, and says so on
 * stderr.
 *
 * Order: I/Os in flight together have none. Overlapping writes in flight end up as if one had
 * followed the other, in the order of submission where they overlap. A write that has completed is
 * seen by every later read and survives the loss of any one server. It survives the power loss of
 * all servers once a flush that was submitted after its completion has completed (or with ASH_FUA).
 * A write that ended with an error may have happened wholly, in part, or not at all.
 */
#ifndef ASHLAR_SDC_LIB_ASHLAR_H
#define ASHLAR_SDC_LIB_ASHLAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ASH_MESSAGE_BYTES 512

struct ash_cluster;
struct ash_volume;

/**
 * struct ash_connect_opts - zeroed members mean the default.
 * @mdms:      "host:port,host:port"; default $ASHLAR_MDM, else 127.0.0.1:6611.
 * @guid:      GUID of this SDC, as text. Else @sdc_name is looked up at the MDM; else
 *             $ASHLAR_SDC_GUID; else the file "guid" in @state_dir, written when it is missing.
 * @sdc_name:  name of this SDC as the MDM knows it; $ASHLAR_SDC_NAME.
 * @state_dir: default /var/lib/ashlar/sdc.
 * @io_timeout_ms: 0 = wait for ever.
 * @requests:  how many pieces of I/O may be under way at once; 0 = 1024. More are queued.
 * @spin_us:   busy-wait before sleeping while there is I/O; 0 = not.
 */
struct ash_connect_opts {
	const char *mdms, *guid, *sdc_name, *state_dir;
	uint32_t io_timeout_ms, requests, spin_us;
	uint32_t reserved[5];
};

/**
 * ash_connect() - start the client. Does not wait for an MDM unless @sdc_name must be looked up.
 * @opts: NULL = all defaults. @message: for people, ASH_MESSAGE_BYTES, set on failure; may be NULL.
 * Return: 0; -EINVAL options; -ENOENT no such SDC name; -EHOSTUNREACH no MDM answered; -errno.
 */
int ash_connect(const struct ash_connect_opts *opts, struct ash_cluster **ret_cluster,
		char *message);
/* Every volume must be closed. Waits until the client has ended. */
void ash_disconnect(struct ash_cluster *cluster);

#define ASH_READ_ONLY 1u /* flag of ash_open() */

/**
 * ash_open() - open a mapped volume. Earlier opens by the same SDC (this process or another) are
 * fenced: their I/O ends with -ESHUTDOWN.
 * Return: 0; -ENOENT no such volume; -EACCES not mapped to this SDC, or the SDC is not known;
 * -ETIMEDOUT no MDM answered in time; -errno. @message as in ash_connect().
 */
int ash_open(struct ash_cluster *cluster, const char *volume, unsigned flags, uint32_t timeout_ms,
	     struct ash_volume **ret_volume, char *message);
/* Waits for the volume's I/O in flight. The volume is gone afterwards. Return: 0 or -EDEADLK. */
int ash_close(struct ash_volume *volume);

struct ash_volume_info {
	uint64_t size_bytes;
	bool read_only;
	bool needs_flush; /* some device has a volatile cache */
	bool dead;
};
void ash_volume_info(struct ash_volume *volume, struct ash_volume_info *ret_info);
/* Calls back on the library's thread whenever the info has changed. @changed NULL: no more. */
int ash_volume_watch(struct ash_volume *volume, void (*changed)(void *arg), void *arg);

enum ash_aio_kind {
	ASH_AIO_READ = 1,
	ASH_AIO_WRITE = 2,
	ASH_AIO_FLUSH = 3,
	ASH_AIO_DISCARD = 4,	  /* reads as zeros afterwards; space is freed in units of 1 MiB */
	ASH_AIO_WRITE_ZEROES = 5, /* the same; with ASH_NO_UNMAP the space stays allocated */
};
#define ASH_FUA 1u	/* durable before it completes */
#define ASH_NO_UNMAP 2u /* WRITE_ZEROES */

/**
 * struct ash_aio - one I/O. The caller's memory, zeroed before first use, untouched and kept until
 * done; so are the iovecs and the data. No allocation happens per I/O.
 * @offset, bytes: multiples of 512; FLUSH: 0. Any length.
 * @done: called once, on the library's thread, never from ash_aio_submit() itself on another
 * thread.
 */
struct ash_aio {
	uint8_t kind;
	unsigned flags;
	uint64_t offset, bytes;
	const struct iovec *iov; /* READ, WRITE: lengths add up to bytes */
	unsigned iovcnt;
	void (*done)(struct ash_aio *aio, int status);
	void *arg; /* the caller's */
	uint64_t opaque[40];
};
void ash_aio_submit(struct ash_volume *volume, struct ash_aio *aio);

/* The same, waiting for the end. Return: 0 or -errno (never a part). */
int ash_pread(struct ash_volume *volume, void *data, size_t bytes, uint64_t offset);
int ash_pwrite(struct ash_volume *volume, const void *data, size_t bytes, uint64_t offset,
	       unsigned flags);
int ash_flush(struct ash_volume *volume);
int ash_discard(struct ash_volume *volume, uint64_t offset, uint64_t bytes);
int ash_write_zeroes(struct ash_volume *volume, uint64_t offset, uint64_t bytes, unsigned flags);

struct ash_extent {
	uint64_t bytes;
	bool data; /* false: reads as zeros and takes no space */
};
/**
 * ash_block_status() - which parts of a range hold data.
 * @ret_extents: in order, together as long as the range; free() them.
 */
int ash_block_status(struct ash_volume *volume, uint64_t offset, uint64_t bytes,
		     struct ash_extent **ret_extents, size_t *ret_count);

/* Counters since ash_connect(). */
struct ash_client_stats {
	uint64_t reads, writes, read_bytes, write_bytes, flushes, discards;
	uint64_t retries, stale, reconnects, checksum_errors, held_overlaps, queued;
};
int ash_client_stats(struct ash_cluster *cluster, struct ash_client_stats *ret_stats);

#ifdef __cplusplus
}
#endif

#endif
