/* SPDX-License-Identifier: MIT */
/* Parts of the crash-point test: store_crash.c drives, _work.c loads, _check.c compares. */
#ifndef ASHLAR_TESTS_UNIT_SDS_STORE_CRASH_H
#define ASHLAR_TESTS_UNIT_SDS_STORE_CRASH_H

#include "tests/unit/sds/store_model.h"
#include "tests/unit/sds/store_rig.h"

#define DISK_BYTES ((2u << 20) + (1u << 20) + (16u << 20))
#define EXTENTS 11u
#define INFLIGHT 48u
#define POINTS_PER_SEED 60u

struct flight {
	struct sds_store_op op; /* first */
	struct crash *t;
	uint8_t *data;
	uint32_t crc[ASH_CHUNK_BLOCKS];
	uint8_t state[ASH_CHUNK_BLOCKS];
	unsigned place, first, count; /* blocks of the model */
	uint32_t ver;
	uint64_t mark;
	uint32_t was_data; /* bit per block: had data when this began */
	bool used;
};

enum fault { FAULT_NONE, FAULT_DATA, FAULT_READ, FAULT_META, FAULT_FLUSH };

struct counts {
	uint64_t failed_data, failed_store, kills, points, ops, reads, inflight, changed, torn,
		second, closes, rots, nospace;
	uint64_t unknown, checkpoints, evictions, lost_pages;
};

struct crash {
	struct rig r;
	struct model m;
	struct flight f[INFLIGHT];
	unsigned inflight, depth, places, first_place;
	enum fault fault;
	unsigned fault_in; /* operations from now */
	bool fault_hit;
	unsigned weight_write, weight_clear; /* of this cycle */
	bool stamping, small_blocks;
	struct sds_chunk_info stamp_list[4];
	unsigned stamp_count;
	uint64_t stamp_gen, stamp_birth[4];
	struct counts *n;
};

static inline uint64_t below(struct crash *t, uint64_t n)
{
	return ash_prng_below(&t->r.w.rng, n);
}

/* One step of the workload: perhaps something is begun, and the world moves on. */
void crash_workload_step(struct crash *t);
/* Chooses whether, and which, operation of the disk fails in this cycle. */
void crash_plan_fault(struct crash *t);
/* The chunk, with promises that were for another extent forgotten. */
struct model_chunk *crash_promised(struct crash *t, unsigned place);
/* Reads everything and compares; @twice: it must be what was read before. */
void crash_check_all(struct crash *t, bool twice);
void crash_rot_one(struct crash *t);

#endif
