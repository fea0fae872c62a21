/* SPDX-License-Identifier: MIT */
/* Devices: admission, openings (their identity), failure, removal. */
#include <stdio.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/base/switches.h"
#include "mdm/core/state.h"

/* ---------------------------------------------------------------- add */

static struct ash_error add_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdDeviceAdd *c = body;
	const Pb__Sds *sds = mdm_sds(st, c->sds);
	const Pb__Pool *pool = mdm_pool(st, c->pool);
	const Pb__Device *other;

	if (!sds)
		return mdm_no_such(PB__KIND__KIND_SDS, c->sds);
	if (!pool)
		return mdm_no_such(PB__KIND__KIND_POOL, c->pool);
	if (sds->domain != pool->domain)
		return ash_error_make(
			ASH_E_INVALID,
			"SDS \"%s\" is in protection domain \"%s\", storage pool \"%s\" in \"%s\"; "
			"both must be in one",
			sds->name, mdm_name(st, PB__KIND__KIND_DOMAIN, sds->domain), pool->name,
			mdm_name(st, PB__KIND__KIND_DOMAIN, pool->domain));
	if (!*c->path)
		return ash_error_make(ASH_E_INVALID,
				      "no path is given for a device of SDS \"%s\"; give --path",
				      sds->name);
	if (*c->path != '/')
		return ash_error_make(ASH_E_INVALID,
				      "device path \"%.255s\" of SDS \"%s\" does not begin with /; "
				      "give it as that server sees it from its root",
				      c->path, sds->name);
	if (strlen(c->path) >= 256)
		return ash_error_make(ASH_E_INVALID,
				      "a device path of SDS \"%s\" has %zu characters; 255 are the "
				      "limit",
				      sds->name, strlen(c->path));
	if (c->reactor >= MDM_ENDPOINTS_MAX)
		return ash_error_make(ASH_E_INVALID,
				      "device %s: reactor %u is asked for, an SDS has 0 to %d",
				      c->path, c->reactor, MDM_ENDPOINTS_MAX - 1);
	if (!mdm_is_uuid(&c->uuid))
		return ash_error_make(ASH_E_INVALID, "device %s: the UUID has %zu bytes, not 16",
				      c->path, c->uuid.len);
	other = mdm_find_device_uuid(st, &c->uuid);
	if (other)
		return ash_error_make(ASH_E_EXISTS, "device %s: its UUID belongs to device \"%s\"",
				      c->path, other->name);
	MDM_EACH(st, PB__KIND__KIND_DEVICE, Pb__Device, dev)
		if (dev->sds == c->sds && !strcmp(dev->path, c->path))
			return ash_error_make(ASH_E_EXISTS,
					      "%s of SDS \"%s\" is device \"%s\" already", c->path,
					      sds->name, dev->name);
	if (*c->name)
		return mdm_check_name(st, PB__KIND__KIND_DEVICE, c->name, 0, 0);
	return ash_error_ok();
}

/* "sds1-d3": the first number that is free. */
static void own_name(const struct mdm_state *st, const Pb__Sds *sds, char *buf, size_t room)
{
	for (unsigned i = 1;; i++) {
		snprintf(buf, room, "%.56s-d%u", sds->name, i);
		if (!mdm_find_name(st, PB__KIND__KIND_DEVICE, buf, 0, NULL))
			return;
	}
}

static void add_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdDeviceAdd *c = body;
	Pb__Device *dev = ash_xcalloc(1, sizeof(*dev));
	char name[80];

	pb__device__init(dev);
	if (*c->name)
		snprintf(name, sizeof(name), "%s", c->name);
	else
		own_name(st, mdm_sds(st, c->sds), name, sizeof(name));
	dev->id = res->id = mdm_new_id(st);
	dev->sds = c->sds;
	dev->pool = c->pool;
	dev->reactor = c->reactor;
	dev->force = c->force;
	dev->state = PB__DEVICE_STATE__DEVICE_ADDING;
	mdm_set_string(&dev->name, name);
	mdm_set_string(&dev->path, c->path);
	mdm_set_bytes(&dev->uuid, c->uuid.data, c->uuid.len);
	memcpy(res->uuid, c->uuid.data, 16);
	mdm_add(st, PB__KIND__KIND_DEVICE, dev);
	mdm_event(st, PB__SEVERITY__SEV_INFO, "DEVICE_ADDED", PB__KIND__KIND_DEVICE, name,
		  "device \"%s\" (%s of SDS \"%s\") was added to storage pool \"%s\"", name,
		  c->path, mdm_name(st, PB__KIND__KIND_SDS, c->sds),
		  mdm_name(st, PB__KIND__KIND_POOL, c->pool));
}

const struct mdm_verb mdm_verb_device_add = {add_check, add_apply};

/* ---------------------------------------------------------------- opened */

static Pb__Device *opened_device(const struct mdm_state *st, const Pb__CmdDeviceOpened *c)
{
	return c->device ? mdm_device(st, c->device) : mdm_find_device_uuid(st, &c->uuid);
}

/*
 * Each opening raises the incarnation in the label, refused or not. So what tells a disk that went
 * back in time is what the label said before: it has to come from the opening that is known, or
 * from a later one that was never admitted.
 */
static bool from_the_past(const Pb__Device *dev, const Pb__CmdDeviceOpened *c)
{
	if (!dev->incarnation || c->prev_nonce.len != 16 ||
	    (c->incarnation == dev->incarnation && mdm_bytes_equal(&dev->nonce, &c->nonce)))
		return false;
	return c->prev_incarnation < dev->incarnation ||
	       (c->prev_incarnation == dev->incarnation &&
		!mdm_bytes_equal(&dev->nonce, &c->prev_nonce));
}

/* Identity is the opening: UUID, incarnation (only grows) and nonce. */
static struct ash_error check_opening(const struct mdm_state *st, const Pb__Device *dev,
				      const Pb__CmdDeviceOpened *c)
{
	if (!mdm_bytes_equal(&dev->uuid, &c->uuid))
		return ash_error_make(ASH_E_DENIED,
				      "device \"%s\": the label holds another UUID; it is another "
				      "disk, add it as a new device",
				      dev->name);
	if (!ASH_RULE(INCARNATION))
		return ash_error_ok();
	if (c->incarnation < dev->incarnation)
		return ash_error_make(
			ASH_E_STALE,
			"device \"%s\": incarnation %llu is below %llu, which is known: the disk was "
			"rolled back, or a newer opening exists; remove the device and add it empty",
			dev->name, (unsigned long long)c->incarnation,
			(unsigned long long)dev->incarnation);
	if (from_the_past(dev, c))
		return ash_error_make(
			ASH_E_DENIED,
			"device \"%s\": its label comes from incarnation %llu, and does not know "
			"incarnation %llu: the disk was rolled back or is a copy; remove the device "
			"and add it empty",
			dev->name, (unsigned long long)c->prev_incarnation,
			(unsigned long long)dev->incarnation);
	if (c->incarnation == dev->incarnation && dev->incarnation &&
	    !mdm_bytes_equal(&dev->nonce, &c->nonce))
		return ash_error_make(
			ASH_E_DENIED,
			"device \"%s\": incarnation %llu was opened with another nonce: the disk was "
			"cloned or rolled back; remove the device and add it empty",
			dev->name, (unsigned long long)c->incarnation);
	if (c->label_map_version > st->version)
		return ash_error_make(
			ASH_E_STATE,
			"device \"%s\" has seen map version %llu, this MDM knows %llu: the MDMs were "
			"restored from an old backup, or it is the disk of another cluster",
			dev->name, (unsigned long long)c->label_map_version,
			(unsigned long long)st->version);
	return ash_error_ok();
}

static struct ash_error opened_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdDeviceOpened *c = body;
	const Pb__Device *dev = opened_device(st, c);
	const Pb__Sds *sds;

	if (!dev)
		return ash_error_make(
			ASH_E_NOT_FOUND,
			"the device opened at %s is not part of this system (removed?); "
			"add it with `ashlar device add`",
			*c->path ? c->path : "an unknown path");
	if (!c->incarnation || c->nonce.len != 16)
		return ash_error_make(ASH_E_INVALID,
				      "device \"%s\" was opened without incarnation or nonce",
				      dev->name);
	sds = mdm_sds(st, dev->sds);
	if (c->sds && c->sds != dev->sds)
		return ash_error_make(
			ASH_E_DENIED,
			"device \"%s\" belongs to SDS \"%s\" and was opened by SDS \"%s\"; "
			"put the disk back, or remove it and add it there",
			dev->name, sds->name, mdm_name(st, PB__KIND__KIND_SDS, c->sds));
	if (!sds->up || (c->session.len && !mdm_bytes_equal(&sds->session, &c->session)))
		return ash_error_make(ASH_E_STALE, "SDS \"%s\" is not registered with that session",
				      sds->name);
	if (c->reactor >= sds->n_endpoints)
		return ash_error_make(
			ASH_E_INVALID,
			"device \"%s\": reactor %u of SDS \"%s\" has no endpoint (%zu "
			"are registered)",
			dev->name, c->reactor, sds->name, sds->n_endpoints);
	if ((c->size && c->size < MDM_DEVICE_MIN) || c->capacity < ASH_CHUNK_BYTES)
		return ash_error_make(
			ASH_E_INVALID,
			"device \"%s\" has %llu MiB with room for %llu MiB of data; 256 MiB is the "
			"least, use a larger disk or file",
			dev->name, (unsigned long long)(c->size >> 20),
			(unsigned long long)(c->capacity >> 20));
	if (c->capacity > MDM_VOLUME_MAX || strlen(c->path) > 255)
		return ash_error_make(
			ASH_E_INVALID,
			"device \"%s\" reports %llu MiB and a path of %zu characters; 1 "
			"PiB and 255 are the limits",
			dev->name, (unsigned long long)(c->capacity >> 20), strlen(c->path));
	return check_opening(st, dev, c);
}

static void opened_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdDeviceOpened *c = body;
	Pb__Device *dev = opened_device(st, c);
	bool reopened = c->incarnation != dev->incarnation;

	res->id = dev->id;
	if (!reopened && dev->state != PB__DEVICE_STATE__DEVICE_DOWN)
		return;
	if (reopened && dev->incarnation) {
		if (ASH_RULE(INCARNATION))
			mdm_rows_lose(st, &dev->id, 1);
		else
			mdm_rows_adopt(st, dev->id, c->incarnation);
	}
	if (dev->state == PB__DEVICE_STATE__DEVICE_ADDING)
		mdm_event(st, PB__SEVERITY__SEV_INFO, "DEVICE_READY", PB__KIND__KIND_DEVICE,
			  dev->name, "device \"%s\" is formatted and open, %llu MiB", dev->name,
			  (unsigned long long)(c->capacity >> 20));
	else if (dev->state != PB__DEVICE_STATE__DEVICE_UP)
		mdm_event(st, PB__SEVERITY__SEV_INFO, "DEVICE_UP", PB__KIND__KIND_DEVICE, dev->name,
			  "device \"%s\" is open again", dev->name);
	dev->incarnation = c->incarnation;
	mdm_set_bytes(&dev->nonce, c->nonce.data, c->nonce.len);
	mdm_set_bytes(&dev->boot_id, c->boot_id.data, c->boot_id.len == 16 ? 16 : 0);
	dev->capacity = c->capacity;
	dev->size = c->size;
	dev->write_back = c->write_back;
	dev->reactor = c->reactor;
	dev->force = false;
	if (*c->path)
		mdm_set_string(&dev->path, c->path);
	if (dev->state != PB__DEVICE_STATE__DEVICE_REMOVING)
		dev->state = PB__DEVICE_STATE__DEVICE_UP;
	mdm_touch(st, PB__KIND__KIND_DEVICE, dev);
}

const struct mdm_verb mdm_verb_device_opened = {opened_check, opened_apply};

/* ---------------------------------------------------------------- failed */

static struct ash_error failed_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdDeviceFailed *c = body;
	const Pb__Device *dev = mdm_device(st, c->device);

	if (!dev)
		return mdm_no_such(PB__KIND__KIND_DEVICE, c->device);
	if (ASH_RULE(INCARNATION) && c->incarnation != dev->incarnation)
		return ash_error_make(ASH_E_STALE,
				      "device \"%s\" was opened again meanwhile (incarnation %llu, "
				      "the report is about %llu)",
				      dev->name, (unsigned long long)dev->incarnation,
				      (unsigned long long)c->incarnation);
	return ash_error_ok();
}

static void failed_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdDeviceFailed *c = body;
	Pb__Device *dev = mdm_device(st, c->device);

	res->id = dev->id;
	if (dev->state == PB__DEVICE_STATE__DEVICE_FAILED)
		return;
	mdm_rows_lose(st, &dev->id, 1);
	dev->state = PB__DEVICE_STATE__DEVICE_FAILED;
	mdm_touch(st, PB__KIND__KIND_DEVICE, dev);
	mdm_event(st, PB__SEVERITY__SEV_ERROR, "DEVICE_FAILED", PB__KIND__KIND_DEVICE, dev->name,
		  "device \"%s\" (%s of SDS \"%s\") failed: %s", dev->name, dev->path,
		  mdm_name(st, PB__KIND__KIND_SDS, dev->sds),
		  *c->reason ? c->reason : "no reason given");
}

const struct mdm_verb mdm_verb_device_failed = {failed_check, failed_apply};

/* ---------------------------------------------------------------- removal */

/* Does the row need this device: nobody else has (all of) its data. */
static bool row_needs(const struct mdm_row *row, uint64_t device)
{
	int i = mdm_row_find(row, device);

	if (i < 0)
		return false;
	if (row->replica[i].state == ASH_REPLICA_IN_SYNC)
		return mdm_row_in_sync(row) == 1;
	for (unsigned k = 0; k < row->last_count; k++)
		if (row->last[k] == device)
			return true;
	return false;
}

struct ash_error mdm_check_remove_device(const struct mdm_state *st, const Pb__CmdRemove *c)
{
	const Pb__Device *dev = mdm_device(st, c->id);
	const Pb__Pool *pool = mdm_pool(st, dev->pool);
	const struct mdm_rows *rows = mdm_rows(st, dev->pool);
	uint32_t holds = 0, needs = 0;

	if (!pool->had_volume)
		return ash_error_ok(); /* no data: its PGs are placed anew */
	for (uint32_t pg = 0; pg < rows->pg_count; pg++) {
		holds += mdm_row_find(&rows->row[pg], dev->id) >= 0;
		needs += row_needs(&rows->row[pg], dev->id);
	}
	if (needs)
		return ash_error_make(
			ASH_E_IN_USE,
			"device \"%s\" holds the only current copy of %u placement groups; wait until "
			"they are in sync elsewhere (`ashlar status`)",
			dev->name, needs);
	if (holds && !c->force)
		return ash_error_make(
			ASH_E_IN_USE,
			"device \"%s\" holds copies of %u placement groups, which would be left with "
			"one copy each; give --force to remove it all the same",
			dev->name, holds);
	return ash_error_ok();
}

/* The copy on this device is gone for good. */
static void forget_copy(struct mdm_state *st, struct mdm_rows *rows, uint32_t pg, uint64_t device)
{
	struct mdm_row *row = &rows->row[pg];
	int i = mdm_row_find(row, device);

	if (i < 0)
		return;
	mdm_row_cut(row, (unsigned)i);
	if (!row->replicas) {
		row->last_count = 0;
		row->shrunk_at = 0;
	}
	mdm_row_touch(st, rows, pg);
}

void mdm_apply_remove_device(struct mdm_state *st, Pb__Device *dev)
{
	struct mdm_rows *rows = mdm_rows(st, dev->pool);
	bool empty = !mdm_pool(st, dev->pool)->had_volume;
	uint64_t id = dev->id;

	mdm_rows_lose(st, &id, 1);
	for (uint32_t pg = 0; pg < rows->pg_count; pg++) {
		struct mdm_row *row = &rows->row[pg];

		if (empty && row->last_count) {
			/* Nobody serves, but there never was data: no set to wait for. */
			for (unsigned k = 0; k < row->last_count; k++)
				if (row->last[k] == id)
					row->last_count = 0;
		}
		forget_copy(st, rows, pg, id);
	}
	mdm_tombstones_forget_device(st, id);
	mdm_remove(st, PB__KIND__KIND_DEVICE, id);
}
