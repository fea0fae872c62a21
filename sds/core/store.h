/* SPDX-License-Identifier: MIT */
/*
 * Device store: extents of 1 MiB on one disk, with block states, checksums, a metadata journal and
 * an activity log. Knows nothing of PGs, peers, or the network; docs/disk-format.md has the layout.
 *
 * Context: core, the owning reactor's thread. All memory of the I/O path is taken at open. The
 * caller holds a range lock over the blocks of every operation: two operations on overlapping
 * blocks are never in flight together (sds/core/range_lock.h).
 */
#ifndef ASHLAR_SDS_CORE_STORE_H
#define ASHLAR_SDS_CORE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/port/disk.h"
#include "common/port/port.h"
#include "proto/wire/wire.h"

#define SDS_DEVICE_MIN_BYTES (256ull << 20)

struct sds_store; /* private: store_int.h */

/* Contents of the label that others see. All ids 0 on a disk without one. */
struct sds_label {
	uint8_t system[16], device_uuid[16];
	uint64_t device, pool; /* ids given by the MDM */
	uint64_t incarnation;  /* raised by every opening */
	uint8_t nonce[16];     /* random, of that opening */
	uint8_t boot_id[16];   /* host boot of that opening */
	uint32_t dr_epoch;
	uint64_t map_version; /* highest seen, written lazily */
	uint32_t longest_lease_ms;
	bool clean;		      /* closed cleanly */
	uint64_t incompat, ro_compat; /* feature bits */
	uint64_t extents;	      /* data extents */
	uint64_t disk_bytes;	      /* size at format; a larger disk can be adopted */
};

/**
 * sds_store_probe() - read the labels of a disk.
 * @done: result 0 and the label; -ENODATA no label of ours; -EBADMSG both copies damaged;
 *        -EPROTONOSUPPORT incompatible feature bits; -errno of the disk.
 */
void sds_store_probe(struct ash_port *port, struct ash_disk *disk,
		     void (*done)(void *arg, int result, const struct sds_label *label), void *arg);

/**
 * sds_store_format() - write labels, an empty journal and an empty extent table.
 * @label: system, device_uuid, device, pool, longest_lease_ms, dr_epoch are used; incarnation 0.
 * Foreign signatures are the shell's business (libblkid) before it comes here.
 * @done: 0; -EOVERFLOW smaller than SDS_DEVICE_MIN_BYTES; -errno.
 */
void sds_store_format(struct ash_port *port, struct ash_disk *disk, const struct sds_label *label,
		      void (*done)(void *arg, int result), void *arg);

/**
 * sds_store_open() - read the label, raise the incarnation, recover.
 * @boot_id: of this host. The nonce is drawn from port->rand64.
 * @done: 0 and the store (the disk now belongs to it until sds_store_close); -errno as probe
 *        (-EBADMSG also: table or journal damaged), the disk stays the caller's. Recovery replays
 * the journal, rolls back unsealed first writes whose data is not there, marks what was hot as
 * unsettled, starts an empty activity log.
 *
 * Return: the store, not to be used before done; only for sds_store_forget() if the world ends
 * meanwhile. It is freed before a done that reports an error.
 */
struct sds_store *sds_store_open(struct ash_port *port, struct ash_disk *disk,
				 const uint8_t boot_id[16],
				 void (*done)(void *arg, int result, struct sds_store *store),
				 void *arg);

/* Waits for operations in flight, checkpoints, writes the clean mark, closes the disk, frees. */
void sds_store_close(struct sds_store *store, void (*done)(void *arg, int result), void *arg);
/* Forgets everything without touching the disk (device failed). The caller closes the disk when its
 * last operation ended, and keeps the memory of all operations not done, and their data buffers,
 * until then: the disk may still use both. No callback of the store runs afterwards; the store's
 * own memory goes when the last disk operation has ended. */
void sds_store_abandon(struct sds_store *store);
/* Frees everything at once. Only for a simulated crash: no operation of the disk in flight, no
 * timer and no posted task of this store's world will ever be run. Also in place of abandon. */
void sds_store_forget(struct sds_store *store);

const struct sds_label *sds_store_label(const struct sds_store *store);
/* Lazily raises map_version and longest_lease_ms in the label. */
void sds_store_note_map_version(struct sds_store *store, uint64_t map_version, uint32_t lease_ms);

enum sds_store_kind {
	SDS_STORE_READ = 1,
	SDS_STORE_WRITE = 2,
	SDS_STORE_DISCARD =
		3,	    /* blocks -> inherit (reads as zeros); extent freed when nothing left */
	SDS_STORE_ZERO = 4, /* blocks -> zero, extent stays allocated (allocates if need be) */
	SDS_STORE_UNDO = 5, /* blocks of a first write that failed elsewhere -> inherit, at once */
	SDS_STORE_BAD = 6,  /* blocks -> bad (rebuild copies bad marks; last copy unreadable) */
	SDS_STORE_DROP = 7, /* whole chunk freed whatever it holds (resync, tombstones) */
	SDS_STORE_FLUSH = 8, /* everything done so far on this store is durable at done(0) */
};

/**
 * struct sds_store_op - one operation; the caller's memory, held until done.
 * @node, chunk, first_block, blocks: where; first_block + blocks <= 256.
 * @gen, shrunk_at: of the PG; a change is journalled with stamp := gen if the chunk's stamp is
 *          below shrunk_at (that list drives resync). Rebuild passes the survivor's stamp instead:
 *          @stamp_exact.
 * @data:   4 KiB aligned. READ: filled, blocks * 4096 (blocks not DATA are zeroed). WRITE:
 * borrowed.
 * @crc:    READ: filled, one per block (that of zeros for blocks not DATA). WRITE: given; the store
 *          trusts them (the caller has verified).
 * @state:  READ: filled, enum ash_block_state per block. May be NULL.
 * @unknown: READ: set if any block's checksum was unknown and therefore taken from the data.
 * @fua:    durable (on write-back disks: flushed) before done.
 * @rebuild: WRITE, ZERO, BAD: may not use space that pending frees would give; runs in the reserve.
 * @done:   status 0;
 *          -ENOSPC no extent left (nothing was changed);
 *          -EBADMSG READ: a checksum did not match; @bad_block says the first; data and other
 *                   blocks are as read, state/crc valid for the rest;
 *          -EIO medium error reported by the disk; @bad_block the first block concerned;
 *          -ENODATA READ: a block is marked bad (@bad_block);
 *          -ENODEV the store has failed (see sds_store_failed).
 */
struct sds_store_op {
	uint8_t kind;
	bool fua;
	bool rebuild;
	bool stamp_exact;
	bool unknown;
	bool existed;	 /* out: the chunk had an extent before this operation */
	bool first_only; /* out: WRITE/ZERO: all blocks were INHERIT before */
	uint64_t node, chunk;
	uint16_t first_block, blocks;
	uint16_t bad_block;
	uint64_t gen, shrunk_at;
	uint8_t *data;
	uint32_t *crc;
	uint8_t *state;
	int32_t buf_index; /* registered buffer of @data or -1 */
	void (*done)(struct sds_store_op *op, int status);
	void *owner;
	struct sds_store_op *next;
	uint64_t priv[44]; /* the store's, so that no allocation is needed */
};

void sds_store_submit(struct sds_store *store, struct sds_store_op *op);

/**
 * sds_store_reserve() - make sure a write to (node, chunk) will find an extent.
 * The primary calls it before it sends to the secondary. The reservation is used up by the next
 * WRITE/ZERO to that chunk, or given back with sds_store_unreserve().
 * Return: 1 chunk has an extent, nothing reserved; 0 reserved; -EAGAIN frees are pending: flush and
 * ask again (sds_store_on_space); -ENOSPC.
 */
int sds_store_reserve(struct sds_store *store, uint64_t node, uint64_t chunk, bool rebuild);
void sds_store_unreserve(struct sds_store *store, uint64_t node, uint64_t chunk);

/* One chunk as the resync sees it. */
struct sds_chunk_info {
	uint64_t node, chunk, stamp;
	bool unsettled; /* U mark, or hot in the activity log */
};
/**
 * sds_store_scan() - list chunks on the device, in table order.
 * @cursor: 0 first; @ret_cursor is where to go on, 0 = the end.
 * Return: number of entries filled (<= room). Chunks that come or go meanwhile may be missed or
 * seen; the caller covers that by its own rules (writes during a resync go to both sides).
 */
unsigned sds_store_scan(const struct sds_store *store, uint64_t cursor, struct sds_chunk_info *out,
			unsigned room, uint64_t *ret_cursor);
bool sds_store_lookup(const struct sds_store *store, uint64_t node, uint64_t chunk,
		      struct sds_chunk_info *ret_info);

/**
 * sds_store_stamp() - journal stamp := gen for a list of chunks in one batch (sole survivor
 * adopts).
 * @list: held until done. Chunks no longer there are skipped.
 */
void sds_store_stamp(struct sds_store *store, const struct sds_chunk_info *list, unsigned count,
		     uint64_t gen, void (*done)(void *arg, int status), void *arg);
/* Clears U for chunks that are now equal on every copy (after resync). Lazy, never fails. A chunk
 * that is hot stays hot. */
void sds_store_settle(struct sds_store *store, uint64_t node, uint64_t chunk);
/* Frees every chunk of a node, a bounded number per turn; done once all frees are durable. */
void sds_store_drop_node(struct sds_store *store, uint64_t node,
			 void (*done)(void *arg, int status), void *arg);

struct sds_store_stats {
	uint64_t extents, used, pending_free, retired;
	uint64_t reads, writes, read_bytes, write_bytes;
	uint64_t checksum_errors, medium_errors, csum_page_reads;
	uint64_t journal_blocks, checkpoints, al_hot, al_evictions, unsettled, first_writes,
		cold_overwrites;
	uint64_t oldest_op_ns; /* submit time of the oldest disk operation in flight, 0 = none */
};
void sds_store_stats(const struct sds_store *store, struct sds_store_stats *ret_stats);
/* Per node extents: calls fn for each node with extents on this device. */
void sds_store_node_use(const struct sds_store *store,
			void (*fn)(void *arg, uint64_t node, uint64_t extents), void *arg);

/* Upcalls, set once after open. */
struct sds_store_events {
	void (*failed)(void *owner,
		       int err);    /* journal or label cannot be written: the device is out */
	void (*space)(void *owner); /* extents became free after -EAGAIN */
	void *owner;
};
void sds_store_set_events(struct sds_store *store, const struct sds_store_events *events);

#endif
