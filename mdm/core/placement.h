/* SPDX-License-Identifier: MIT */
/*
 * Where the two copies of every placement group belong: a pure function of the devices and of where
 * the copies are now. Used for first placement, and by the planners of rebuild and rebalance.
 *
 * What it holds to, in this order:
 *  1. the two copies of a group are in different fault units;
 *  2. replicas per device are proportional to capacity, rounded up or down (a fault unit larger
 *     than all others together is counted as large as they are: it cannot hold more than one copy
 *     of each group);
 *  3. as few copies move as 1 and 2 allow: what a device has too much, and now and then one more
 *     to let two copies pass each other;
 *  4. the partners of each device are spread over all other fault units by their size;
 *  5. every device is primary for half of its replicas, rounded up or down. Who is primary and
 *     keeps its copy stays primary where that allows it.
 */
#ifndef ASHLAR_MDM_CORE_PLACEMENT_H
#define ASHLAR_MDM_CORE_PLACEMENT_H

#include <stddef.h>
#include <stdint.h>

struct mdm_place_device {
	uint64_t id, unit; /* not 0; ids are unique */
	uint64_t capacity; /* bytes; counted in MiB, at least one */
};

struct mdm_place_row {
	uint64_t device[2]; /* [0] is the primary; 0 = no copy, also any device that is not given */
};

/**
 * mdm_placement_plan() - change @rows, the copies as they are, to where they belong.
 * @seed: of the draws among equals; the same input gives the same plan.
 * Return: how many copies are to move or to be made; -EINVAL if the devices are in fewer than two
 * fault units (rows unchanged). About 0.15 s for 10 000 devices and 65 536 groups.
 */
int64_t mdm_placement_plan(const struct mdm_place_device *devices, size_t count,
			   struct mdm_place_row *rows, uint32_t pgs, uint64_t seed);

/**
 * mdm_placement_fresh() - a plan for groups that hold nothing yet.
 * @ret_rows: filled. Primaries of neighbouring groups are different devices where possible, and
 * follow each other evenly, so that sequential I/O uses all devices.
 */
int64_t mdm_placement_fresh(const struct mdm_place_device *devices, size_t count,
			    struct mdm_place_row *ret_rows, uint32_t pgs, uint64_t seed);

#endif
