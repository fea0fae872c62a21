/* SPDX-License-Identifier: MIT */
/* Shared by ctl_repair.c (what a row needs) and ctl_rebuild.c (where a lost copy is made anew). */
#ifndef ASHLAR_MDM_CORE_REPAIR_INT_H
#define ASHLAR_MDM_CORE_REPAIR_INT_H

#include "mdm/core/service_int.h"

/* One round over the rows; the changes of all pools go out in one batch. */
struct repair {
	struct mdm_service *svc;
	uint64_t now;
	Pb__PgChange *change, **list;
	size_t n;
	bool waiting; /* something will be due without a change of the map */
	/* Of the pool being looked at: */
	const Pb__Pool *pool;
	bool weighed;	     /* copies and filling of its devices are counted, its plan is made */
	uint64_t copy_bytes; /* what one copy of a group takes on average */
	uint32_t stuck;	     /* groups that no device can take a copy of */
	uint32_t waits;	     /* groups whose lost copy may still return */
};

void repair_add(struct repair *r, const struct mdm_rows *rows, uint32_t pg, Pb__PgAction action,
		uint64_t device);
/* NULL unless copies on the device can be built now. */
const struct svc_dev *repair_usable(const struct repair *r, uint64_t device);

/* Not in the fault unit of the row's primary. */
bool repair_beside_primary(const struct repair *r, const struct mdm_row *row, uint64_t device);

/* Nobody serves with what the device holds soon enough: it failed, was removed, has been away for
 * longer than the pool's grace period, or has to stay away for longer after accusations. */
bool rebuild_lost(const struct repair *r, uint64_t device);

/**
 * rebuild_replace() - propose a copy on another device, if no absent one is worth waiting for.
 * For a row that is served, by one copy only, while no absent copy can be built.
 */
void rebuild_replace(struct repair *r, const struct mdm_rows *rows, uint32_t pg);

/**
 * rebuild_yield() - a lost copy is back while another is made in its place: which is quicker?
 * Proposes that the new one is given up, unless it is more than half done.
 * Return: proposed.
 */
bool rebuild_yield(struct repair *r, const struct mdm_rows *rows, uint32_t pg);

#endif
