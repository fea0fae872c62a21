/* SPDX-License-Identifier: MIT */
/*
 * Simulated disks: common/port/disk.h over a sparse medium that outlives processes.
 *
 * Operations end in any order. With a volatile cache, a power loss keeps an arbitrary part of what
 * was not flushed; a write in flight leaves each 512-byte sector old or new; the writes of a killed
 * process may still land, and the disk stays locked until they have.
 */
#ifndef ASHLAR_TESTS_SIM_DISK_H
#define ASHLAR_TESTS_SIM_DISK_H

#include "common/port/disk.h"
#include "tests/sim/proc.h"

struct sim_disk;

/* Zeros until written. @path: what an SDS knows it by. */
struct sim_disk *sim_disk_new(struct sim_host *host, const char *path, uint64_t bytes,
			      bool write_back);
void sim_disk_free(struct sim_disk *disk);
const char *sim_disk_path(const struct sim_disk *disk);
bool sim_disk_write_back(const struct sim_disk *disk);
struct sim_disk *sim_disk_find(struct sim_disk *const *disks, unsigned count, const char *path);

/**
 * sim_disk_open() - exclusive; waits for the last writes of a killed holder.
 * @done: in a turn of @p: 0 and the disk, -EBUSY held, -ENODEV pulled.
 * @dropped: instead, when the process died before; may be NULL.
 */
void sim_disk_open(struct sim_proc *p, struct sim_disk *disk,
		   void (*done)(void *arg, int result, struct ash_disk *disk),
		   void (*dropped)(void *arg), void *arg);

/* The process died; call before its core frees the memory of operations in flight. */
void sim_disks_kill(struct sim_proc *p);
/* The host lost power, after sim_disks_kill(). Return: writes that were lost. */
unsigned sim_disk_power_loss(struct sim_disk *disk);

/* Faults. Times are of the world. */
void sim_disk_slow(struct sim_disk *disk, uint64_t until, unsigned factor);
void sim_disk_stick(struct sim_disk *disk, uint64_t until); /* nothing ends before */
void sim_disk_pull(struct sim_disk *disk, bool pulled);
/* A random written page whose contents @wanted likes; UINT64_MAX if none was found. */
uint64_t sim_disk_pick_page(struct sim_disk *disk,
			    bool (*wanted)(void *arg, const uint8_t page[4096]), void *arg);
void sim_disk_rot(struct sim_disk *disk, uint64_t offset);	    /* flips bits at rest */
void sim_disk_medium_error(struct sim_disk *disk, uint64_t offset); /* until overwritten */
/* What is on the medium now (cache included), for checks; zeros where never written. */
void sim_disk_peek(const struct sim_disk *disk, uint64_t offset, uint8_t page[4096]);
unsigned sim_disk_inflight(const struct sim_disk *disk);

#endif
