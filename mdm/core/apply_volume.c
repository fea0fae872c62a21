/* SPDX-License-Identifier: MIT */
/* Volumes: creation, growth, deletion (a tombstone remembers whose data may be dropped). */
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/base/size.h"
#include "common/shared/chunk_pg.h"
#include "mdm/core/state.h"

static struct ash_error check_size(const char *name, uint64_t size)
{
	char text[24];

	if (!size || size % ASH_CHUNK_BYTES)
		return ash_error_make(
			ASH_E_INVALID,
			"volume \"%s\": size %llu bytes is not a multiple of 1 MiB; give "
			"--size in MiB or larger units",
			name, (unsigned long long)size);
	if (size > MDM_VOLUME_MAX)
		return ash_error_make(ASH_E_INVALID,
				      "volume \"%s\": size %s is above the limit of 1 PiB; create "
				      "several volumes",
				      name, ash_size_format(size, text, sizeof(text)));
	return ash_error_ok();
}

/* Is there room for @more bytes? Thick volumes reserve; thin ones may promise a multiple. */
static struct ash_error check_room(const struct mdm_state *st, const Pb__Pool *pool,
				   const char *name, bool thin, uint64_t more)
{
	struct mdm_capacity cap;
	char size[24], used[24], usable[24];
	uint64_t limit;

	mdm_capacity(st, pool, pool->spare_pct, &cap);
	ash_size_format(more, size, sizeof(size));
	ash_size_format(cap.usable, usable, sizeof(usable));
	if (!thin && (cap.thick > cap.usable || more > cap.usable - cap.thick)) {
		ash_size_format(cap.thick, used, sizeof(used));
		return ash_error_make(
			ASH_E_CAPACITY,
			"volume \"%s\": %s more do not fit into storage pool \"%s\": %s are usable "
			"(%u %% spare taken off) and thick volumes hold %s; add devices, or create it "
			"thin",
			name, size, pool->name, usable, pool->spare_pct, used);
	}
	limit = cap.usable * MDM_OVERPROVISION;
	if (thin && (cap.thin + cap.thick > limit || more > limit - cap.thin - cap.thick)) {
		ash_size_format(cap.thin + cap.thick, used, sizeof(used));
		return ash_error_make(
			ASH_E_CAPACITY,
			"volume \"%s\": %s more would promise over %d times what storage pool \"%s\" "
			"can hold: %s are usable, %s are promised; add devices or choose a smaller "
			"size",
			name, size, MDM_OVERPROVISION, pool->name, usable, used);
	}
	return ash_error_ok();
}

static uint32_t unplaced(const struct mdm_rows *rows)
{
	uint32_t n = 0;

	for (uint32_t pg = 0; pg < rows->pg_count; pg++)
		n += !rows->row[pg].primary || mdm_row_in_sync(&rows->row[pg]) < 2;
	return n;
}

/* ---------------------------------------------------------------- add */

static struct ash_error check_pool_ready(const struct mdm_state *st, const Pb__Pool *pool,
					 const char *name)
{
	struct mdm_capacity cap;
	uint32_t missing;

	mdm_capacity(st, pool, pool->spare_pct, &cap);
	if (cap.units < 2)
		return ash_error_make(
			ASH_E_CAPACITY,
			"volume \"%s\": storage pool \"%s\" has devices in %u fault unit%s, and the "
			"two copies of data need two; add devices of another SDS or fault set",
			name, pool->name, cap.units, cap.units == 1 ? "" : "s");
	if (pool->had_volume)
		return ash_error_ok();
	missing = unplaced(mdm_rows(st, pool->id));
	if (missing)
		return ash_error_make(
			ASH_E_STATE,
			"volume \"%s\": %u of the %u placement groups of storage pool \"%s\" are not "
			"placed yet; repeat when its devices are up (`ashlar device list`)",
			name, missing, pool->pg_count, pool->name);
	return ash_error_ok();
}

static struct ash_error add_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdVolumeAdd *c = body;
	const Pb__Pool *pool = mdm_pool(st, c->pool);
	struct ash_error err;

	if (!pool)
		return mdm_no_such(PB__KIND__KIND_POOL, c->pool);
	err = mdm_check_name(st, PB__KIND__KIND_VOLUME, c->name, 0, 0);
	if (!ash_failed(&err))
		err = check_size(c->name, c->size);
	if (!ash_failed(&err))
		err = check_pool_ready(st, pool, c->name);
	if (!ash_failed(&err))
		err = check_room(st, pool, c->name, c->thin, c->size);
	return err;
}

static void add_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdVolumeAdd *c = body;
	Pb__Pool *pool = mdm_pool(st, c->pool);
	Pb__Volume *vol = ash_xcalloc(1, sizeof(*vol));

	pb__volume__init(vol);
	vol->id = res->id = mdm_new_id(st);
	vol->vtree = mdm_new_id(st);
	vol->node = mdm_new_id(st);
	mdm_set_string(&vol->name, c->name);
	vol->pool = c->pool;
	vol->size = c->size;
	vol->thin = c->thin;
	/* Volumes start at different PGs, or the first chunks of all would share a device. */
	vol->first_pg = ash_mix64(vol->vtree) & (pool->pg_count - 1);
	vol->created_unix_s = c->unix_s ? c->unix_s : st->unix_ms / 1000;
	mdm_add(st, PB__KIND__KIND_VOLUME, vol);
	if (!pool->had_volume) {
		pool->had_volume = true;
		mdm_touch(st, PB__KIND__KIND_POOL, pool);
	}
}

const struct mdm_verb mdm_verb_volume_add = {add_check, add_apply};

/* ---------------------------------------------------------------- set */

static struct ash_error set_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdVolumeSet *c = body;
	const Pb__Volume *vol = mdm_volume(st, c->volume);
	struct ash_error err = ash_error_ok();
	char now[24], then[24];

	if (!vol)
		return mdm_no_such(PB__KIND__KIND_VOLUME, c->volume);
	if (*c->name)
		err = mdm_check_name(st, PB__KIND__KIND_VOLUME, c->name, 0, vol->id);
	if (ash_failed(&err) || !c->size || c->size == vol->size)
		return err;
	err = check_size(vol->name, c->size);
	if (ash_failed(&err))
		return err;
	if (c->size < vol->size)
		return ash_error_make(
			ASH_E_INVALID,
			"volume \"%s\" has %s and cannot shrink to %s; a volume can only "
			"grow",
			vol->name, ash_size_format(vol->size, now, sizeof(now)),
			ash_size_format(c->size, then, sizeof(then)));
	return check_room(st, mdm_pool(st, vol->pool), vol->name, vol->thin, c->size - vol->size);
}

static void set_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdVolumeSet *c = body;
	Pb__Volume *vol = mdm_volume(st, c->volume);

	res->id = vol->id;
	if (*c->name)
		mdm_set_string(&vol->name, c->name);
	if (c->size)
		vol->size = c->size;
	mdm_touch(st, PB__KIND__KIND_VOLUME, vol);
}

const struct mdm_verb mdm_verb_volume_set = {set_check, set_apply};

/* ---------------------------------------------------------------- removal */

struct ash_error mdm_check_remove_volume(const struct mdm_state *st, const Pb__CmdRemove *c)
{
	MDM_EACH(st, PB__KIND__KIND_MAPPING, Pb__Mapping, m)
		if (m->volume == c->id && !c->force)
			return ash_error_make(
				ASH_E_IN_USE,
				"volume \"%s\" is mapped to SDC \"%s\"; unmap it first, "
				"or give --force to unmap and remove it",
				mdm_name(st, PB__KIND__KIND_VOLUME, c->id),
				mdm_name(st, PB__KIND__KIND_SDC, m->sdc));
	return ash_error_ok();
}

/* Every device of the pool may hold data of the node, those that are away too. */
static void add_tombstone(struct mdm_state *st, const Pb__Volume *vol)
{
	Pb__Tombstone *stone = ash_xcalloc(1, sizeof(*stone));

	pb__tombstone__init(stone);
	stone->node = vol->node;
	stone->pool = vol->pool;
	stone->gen = st->making;
	stone->pending_devices =
		ash_xcalloc(st->table[PB__KIND__KIND_DEVICE].count + 1, sizeof(uint64_t));
	MDM_EACH(st, PB__KIND__KIND_DEVICE, Pb__Device, dev)
		if (dev->pool == vol->pool && dev->state != PB__DEVICE_STATE__DEVICE_ADDING)
			stone->pending_devices[stone->n_pending_devices++] = dev->id;
	mdm_add(st, PB__KIND__KIND_TOMBSTONE, stone);
}

void mdm_apply_remove_volume(struct mdm_state *st, Pb__Volume *vol, bool force)
{
	struct mdm_table *t = &st->table[PB__KIND__KIND_MAPPING];

	for (size_t i = t->count; i-- > 0;) {
		Pb__Mapping *m = t->obj[i];

		/* Never by the operator's word here: the fence waits, and costs nobody anything. */
		if (m->volume == vol->id)
			mdm_apply_unmap(st, m, false);
	}
	add_tombstone(st, vol);
	mdm_remove(st, PB__KIND__KIND_VOLUME, vol->id);
}

static struct ash_error stone_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdTombstoneDone *c = body;

	if (!mdm_tombstone(st, c->node))
		return ash_error_make(ASH_E_STALE, "no deletion of node %llu is pending",
				      (unsigned long long)c->node);
	return ash_error_ok();
}

static void stone_drop_device(struct mdm_state *st, Pb__Tombstone *stone, uint64_t device)
{
	size_t kept = 0;

	for (size_t i = 0; i < stone->n_pending_devices; i++)
		if (stone->pending_devices[i] != device)
			stone->pending_devices[kept++] = stone->pending_devices[i];
	if (kept == stone->n_pending_devices)
		return;
	stone->n_pending_devices = kept;
	if (kept)
		mdm_touch(st, PB__KIND__KIND_TOMBSTONE, stone);
	else
		mdm_remove(st, PB__KIND__KIND_TOMBSTONE, stone->node);
}

static void stone_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdTombstoneDone *c = body;

	res->id = c->node;
	stone_drop_device(st, mdm_tombstone(st, c->node), c->device);
}

const struct mdm_verb mdm_verb_tombstone_done = {stone_check, stone_apply};

void mdm_tombstones_forget_device(struct mdm_state *st, uint64_t device)
{
	struct mdm_table *t = &st->table[PB__KIND__KIND_TOMBSTONE];

	for (size_t i = t->count; i-- > 0;)
		stone_drop_device(st, t->obj[i], device);
}
