/* SPDX-License-Identifier: MIT */
/*
 * A world of one disk for tests of the device store: clock, timers, posted tasks and an in-memory
 * disk, all driven by one seed.
 *
 * Operations end in random order. A write that is in flight at a power cut leaves each 512-byte
 * sector old or new; with a volatile cache the same holds for every write not yet flushed, and the
 * cache writes back by itself at times.
 */
#ifndef ASHLAR_TESTS_UNIT_SDS_SIMDISK_H
#define ASHLAR_TESTS_UNIT_SDS_SIMDISK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/prng.h"
#include "common/port/disk.h"
#include "common/port/port.h"

struct simdisk;

struct simworld {
	struct ash_port port; /* first */
	struct ash_timers timers;
	struct ash_prng rng;
	uint64_t now_ns;
	struct ash_task *tasks, **tasks_end;
	struct simdisk *disk;
	bool trace; /* print what the store says */
};

void simworld_init(struct simworld *w, uint64_t seed);
void simworld_done(struct simworld *w);
/* Forgets posted tasks and timers. */
void simworld_reset(struct simworld *w);
/* Does one thing: a posted task, the end of a disk operation, or a timer. False: nothing is left.
 */
bool simworld_step(struct simworld *w);
/* Steps until *flag, at most @limit things. Return: whether it became true. */
bool simworld_until(struct simworld *w, const bool *flag, unsigned limit);

/* Errors to inject: each returns 0 or -errno for an operation about to end. */
typedef int (*simdisk_fault_fn)(void *arg, const struct ash_disk_op *op);

struct simdisk_counts {
	uint64_t reads, writes, flushes, fua_writes, lost_pages, torn_pages, inflight_cut;
};

struct simdisk *simdisk_new(struct simworld *w, uint64_t bytes, bool write_back);
void simdisk_free(struct simdisk *d);
struct ash_disk *simdisk_handle(struct simdisk *d);
/* Everything in flight is gone, partly done; what was volatile is lost in parts. The data of
 * operations in flight must still be there; afterwards free the store with sds_store_forget(), then
 * simworld_reset(). */
void simdisk_power_cut(struct simdisk *d);
/* The process is killed: writes in flight land as a whole or not at all, the cache stays. */
void simdisk_kill(struct simdisk *d);
void simdisk_set_fault(struct simdisk *d, simdisk_fault_fn fn, void *arg);
/* Flips one bit of what is stored at @offset. */
void simdisk_rot(struct simdisk *d, uint64_t offset, unsigned bit);
/* Reads of the 4 KiB page at @offset fail with -EIO until it is written. */
void simdisk_medium_error(struct simdisk *d, uint64_t offset);
/* Contents as a read would see them now. */
void simdisk_peek(const struct simdisk *d, uint64_t offset, uint8_t page[4096]);
void simdisk_poke(struct simdisk *d, uint64_t offset, const uint8_t page[4096]);
/* Forgets all contents: a new disk. */
void simdisk_clear(struct simdisk *d);
const struct simdisk_counts *simdisk_counts(const struct simdisk *d);

#endif
