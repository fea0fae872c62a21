/* SPDX-License-Identifier: MIT */
/*
 * The data client without I/O: map, sessions to SDSs, splitting, retries, epochs, end-to-end
 * checksums, QoS. Used by libashlar, the NBD server and the simulator; the kernel module follows
 * the same rules.
 *
 * Context: one thread (a reactor). No allocation per I/O: requests come from a pool fixed at
 * sdc_new; when it is empty, I/Os queue in order.
 */
#ifndef ASHLAR_SDC_CORE_SDC_H
#define ASHLAR_SDC_CORE_SDC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "common/port/ctl.h"
#include "common/port/net.h"
#include "common/port/port.h"

struct sdc;
struct sdc_vol;

struct sdc_cfg {
	uint8_t guid[16];
	char name[64];
	uint64_t session;	  /* random per process */
	uint16_t queue;		  /* this reactor's queue number */
	uint32_t requests;	  /* pool size, default 1024 */
	uint32_t io_timeout_ms;	  /* 0 = wait for ever */
	uint32_t path_timeout_ms; /* no answer: take a new path; 5000 */
};

struct sdc *sdc_new(struct ash_port *port, struct ash_ctl *ctl, const struct sdc_cfg *cfg);
extern const struct ash_ctl_events sdc_ctl_events; /* ctl->owner = sdc */
/* Once per turn of the loop, after messages, timers and tasks: I/Os are handed back from here. */
void sdc_turn(struct sdc *sdc);
/* Ends all connections, then done. All volumes must be closed, and no open may be pending. */
void sdc_stop(struct sdc *sdc, void (*done)(void *arg), void *arg);
/* After sdc_stop() is done (or before anything was opened), and after the control channel ended. */
void sdc_free(struct sdc *sdc);
/* Frees everything, open volumes and I/Os in flight included, without sending or calling back:
 * the process crashed (simulator). */
void sdc_abandon(struct sdc *sdc);

struct sdc_vol_info {
	uint64_t volume, node, size_bytes;
	char name[64];
	bool read_only;
	bool needs_flush; /* some device has a volatile cache */
	bool dead;	  /* fenced, unmapped or timed out: every I/O fails until a new open */
};

/**
 * sdc_open() - open a mapped volume: takes a new epoch at the MDM, which fences earlier opens of
 * this SDC.
 * @done: 0 and the volume; -ENOENT no such volume; -EACCES not mapped to this SDC, or the SDC is
 * not known; -EINVAL, -EBUSY other refusals; -ETIMEDOUT no MDM answered in @timeout_ms. @message:
 * for people, may be NULL; borrowed. Never before sdc_open() has returned.
 */
void sdc_open(struct sdc *sdc, const char *volume, bool read_only, uint32_t timeout_ms,
	      void (*done)(void *arg, int result, struct sdc_vol *vol, const char *message),
	      void *arg);
/* Waits for I/O in flight. */
void sdc_close(struct sdc_vol *vol, void (*done)(void *arg), void *arg);
void sdc_vol_info(const struct sdc_vol *vol, struct sdc_vol_info *ret_info);
/* Called when size or mapping changes. */
void sdc_vol_watch(struct sdc_vol *vol, void (*changed)(void *arg), void *arg);

enum sdc_io_kind {
	SDC_READ = 1,
	SDC_WRITE = 2,
	SDC_FLUSH = 3,
	SDC_DISCARD = 4,
	SDC_WRITE_ZEROES = 5,
};

/**
 * struct sdc_io - one I/O of any length; the caller's memory, held until done.
 * @offset, bytes: multiples of 512; inside the volume.
 * @iov: memory of the data, held until done (also after a time-out of the volume: done is called
 * only when nothing refers to it any more).
 * @done: 0 or -errno: -EIO, -ENOSPC, -EROFS, -EINVAL, -ESHUTDOWN (volume dead after io_timeout,
 *        fenced by a newer open, or unmapped). Those that io_timeout ends get -EIO. Called from
 *        sdc_turn(); it may submit.
 *
 * Order: I/Os in flight together have none. A read that overlaps a write in flight gives, sector by
 * sector, what was before or after. Of two overlapping writes in flight one is carried out after
 * the other, the later one submitted usually last: the core sends it only when the earlier one has
 * ended. What has ended before a submission is seen by it. FLUSH covers every write that had ended
 * when it was submitted. A write that ends with an error may have happened, wholly, in part or not.
 */
struct sdc_io {
	uint8_t kind;
	bool fua;
	bool no_unmap; /* WRITE_ZEROES */
	uint64_t offset, bytes;
	const struct iovec *iov;
	unsigned iovcnt;
	struct iovec iov1;
	void (*done)(struct sdc_io *io, int status);
	void *owner;
	struct sdc_io *next;
	uint64_t priv[12];
};
void sdc_submit(struct sdc_vol *vol, struct sdc_io *io);

/**
 * sdc_block_status() - which parts of a range hold data, from the SDSs (thin provisioning).
 * @done: extents in order, borrowed for the call; 1 MiB granularity or finer.
 */
struct sdc_extent {
	uint64_t bytes;
	bool data; /* false: reads as zeros */
};
void sdc_block_status(struct sdc_vol *vol, uint64_t offset, uint64_t bytes,
		      void (*done)(void *arg, int status, const struct sdc_extent *ext, unsigned n),
		      void *arg);

struct sdc_stats {
	uint64_t reads, writes, read_bytes, write_bytes, flushes, discards;
	uint64_t retries, stale, reconnects, checksum_errors, held_overlaps, queued;
};
void sdc_stats(const struct sdc *sdc, struct sdc_stats *ret_stats);

#endif
