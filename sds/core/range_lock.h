/* SPDX-License-Identifier: MIT */
/*
 * Locks over block ranges of a chunk: one engine for client operations, replication, resync, reads.
 *
 * First come, first served: a range waits for every earlier one that overlaps it, held or waiting,
 * unless both are shared. No allocation: a range lies in its owner. A grant that had to wait is
 * told by sds_locks_run(), never from within another call. One thread.
 */
#ifndef ASHLAR_SDS_CORE_RANGE_LOCK_H
#define ASHLAR_SDS_CORE_RANGE_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"

struct sds_locks {
	struct ash_list *bucket; /* ranges in order of arrival */
	uint32_t mask;
	struct ash_list ready; /* granted, not told yet */
	uint32_t held, waiting;
};

/**
 * struct sds_range - blocks [first, end) of a chunk; end <= 256. Zeroed memory is an idle range.
 * @granted: called from sds_locks_run() when the range was not free at once.
 */
struct sds_range {
	struct ash_list in_bucket, in_ready;
	uint64_t node, chunk;
	uint16_t first, end;
	bool shared;
	uint8_t state; /* private */
	void (*granted)(struct sds_range *range);
	void *owner;
};

/* @buckets: power of two. Return: 0 or -ENOMEM. */
int sds_locks_init(struct sds_locks *locks, uint32_t buckets);
void sds_locks_done(struct sds_locks *locks);

/* Return: true the range is held now; false granted() follows. The range must be idle. */
bool sds_range_lock(struct sds_locks *locks, struct sds_range *range);
/* Releases a held range, or withdraws a waiting one (granted() will not be called). Idle: nothing.
 */
void sds_range_unlock(struct sds_locks *locks, struct sds_range *range);
bool sds_range_is_held(const struct sds_range *range);
/* Tells the grants, those that follow from them included. Return: whether there were any. */
bool sds_locks_run(struct sds_locks *locks);

#endif
