/* SPDX-License-Identifier: MIT */
/*
 * History checker: are the answers that clients got those of a disk?
 *
 * Each 512-byte sector of each volume is a register. Every write carries a value of its own (its
 * number, and where it belongs), so a read says which write it saw. For each value the checker
 * keeps the earliest moment at which it must have been in place (f: its write, or a read of it, had
 * ended) and the latest at which it cannot have been replaced yet (s: the latest start of its write
 * or of a read of it). A history of such a register is that of a disk exactly if no two values each
 * were in place before the other was last seen: f1 < s2 and f2 < s1. That covers lost writes, stale
 * reads, reads that change their mind, and writes that come to life late.
 *
 * Zeros (never written, discarded, zeroed) are values that look alike: a read of zeros is charged
 * to one of them only if no other could explain it.
 *
 * A write that failed, or whose client died, may or may not happen, up to a deadline once one is
 * known. After a loss of caches, any value that was not certainly replaced by a flushed one may
 * come back; then the answers must be stable again.
 */
#ifndef ASHLAR_TESTS_SIM_HISTORY_H
#define ASHLAR_TESTS_SIM_HISTORY_H

#include "tests/sim/world.h"

#define SIM_SECTOR 512u

struct history;

enum hist_kind {
	HIST_READ = 1,
	HIST_WRITE = 2,
	HIST_ZERO = 3, /* discard, write-zeroes */
	HIST_FLUSH = 4,
};

struct hist_op {
	struct hist_op *next, **prev; /* in flight, oldest first */
	uint64_t id, lba, start, end;
	uint32_t sectors;
	uint16_t volume, client;
	uint8_t kind;
	bool fua, in_flight, uncertain;
	int status;
};

struct history *hist_new(struct sim_world *w);
void hist_free(struct history *h);
/* @shared: other clients may write it too; then a write in flight, which its client may send again,
 * may be carried out more than once until it is answered.
 * @write_back: unflushed writes may be lost when hist_lose_caches() says so. Return: its index. */
unsigned hist_add_volume(struct history *h, const char *name, uint64_t sectors, bool write_back,
			 bool shared);
uint64_t hist_sectors(const struct history *h, unsigned volume);
unsigned hist_volumes(const struct history *h);

struct hist_op *hist_begin(struct history *h, enum hist_kind kind, unsigned volume, unsigned client,
			   uint64_t lba, uint32_t sectors, bool fua);
/* The data that a write op carries, all its sectors. */
void hist_fill(const struct history *h, const struct hist_op *op, uint8_t *data);
/**
 * hist_end() - the answer.
 * @status: 0 or -errno. @data: of a successful read.
 * @later: of a failed write: it may still be carried out after this.
 */
void hist_end(struct history *h, struct hist_op *op, int status, const uint8_t *data, bool later);

/* The client died: what it had in flight may happen or not. */
void hist_client_died(struct history *h, unsigned client);
/* A new open of that client is served, or it was fenced off: nothing that it has begun so far can
 * happen any more. */
void hist_client_fenced(struct history *h, unsigned client, unsigned volume);
/* Copies of [lba, lba + sectors) lost their caches all at once. */
void hist_lose_caches(struct history *h, unsigned volume, uint64_t lba, uint64_t sectors);

/* Does the page look like client data? Where does it belong? */
bool hist_recognise(const struct history *h, const uint8_t *sector, unsigned *ret_volume,
		    uint64_t *ret_lba);
unsigned hist_in_flight(const struct history *h);
uint64_t hist_ops(const struct history *h);
/* Oldest operation in flight, NULL if none. */
const struct hist_op *hist_oldest(const struct history *h);

#endif
