/* SPDX-License-Identifier: MIT */
/* What a pool can hold, from the capacities of its devices and the sizes of its volumes. */
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "mdm/core/state.h"

struct unit {
	uint64_t id, bytes;
};

/* Two copies in different fault units: one unit larger than all others cannot be filled. */
static uint64_t mirrored(const struct unit *units, size_t count, uint32_t spare_pct)
{
	uint64_t total = 0, largest = 0;

	for (size_t i = 0; i < count; i++) {
		total += units[i].bytes;
		if (units[i].bytes > largest)
			largest = units[i].bytes;
	}
	if (largest > total - largest)
		total = 2 * (total - largest);
	return total / 2 / 100 * (100 - spare_pct);
}

void mdm_capacity(const struct mdm_state *st, const Pb__Pool *pool, uint32_t spare_pct,
		  struct mdm_capacity *ret_cap)
{
	struct mdm_capacity cap = {0};
	struct unit *units = ash_xcalloc(st->table[PB__KIND__KIND_SDS].count + 1, sizeof(*units));
	size_t count = 0;

	MDM_EACH(st, PB__KIND__KIND_DEVICE, Pb__Device, dev) {
		uint64_t unit = mdm_unit_of(st, dev->id);
		size_t i;

		/* A device that is down for a while keeps counting: what it holds is promised. */
		if (dev->pool != pool->id || dev->state == PB__DEVICE_STATE__DEVICE_ADDING ||
		    dev->state == PB__DEVICE_STATE__DEVICE_FAILED)
			continue;
		for (i = 0; i < count && units[i].id != unit; i++)
			;
		if (i == count)
			units[count++].id = unit;
		units[i].bytes += dev->capacity;
		if (units[i].bytes > cap.largest_unit)
			cap.largest_unit = units[i].bytes;
		cap.raw += dev->capacity;
		cap.devices++;
	}
	cap.units = (uint32_t)count;
	/* Exactly: else the share of one of four equal units comes out below a quarter of all. */
	cap.spare = cap.raw / 100 * spare_pct + cap.raw % 100 * spare_pct / 100;
	cap.usable = mirrored(units, count, spare_pct);
	free(units);
	MDM_EACH(st, PB__KIND__KIND_VOLUME, Pb__Volume, vol) {
		if (vol->pool != pool->id)
			continue;
		if (vol->thin)
			cap.thin += vol->size;
		else
			cap.thick += vol->size;
	}
	*ret_cap = cap;
}
