// SPDX-License-Identifier: MIT
/*
 * Devices: those that the shell found, and those that the map orders to be added. A device is open
 * from here on only when the store has recovered it; it counts for PGs when the MDM has heard of
 * this opening. One that fails is let go when its last operation has ended.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/base/err.h"
#include "common/base/uuid.h"
#include "sds/core/sds_int.h"

static struct sds_dev *dev_new(struct sds *s, const char *path)
{
	struct sds_dev *dev = ash_xcalloc(1, sizeof(*dev));

	dev->s = s;
	dev->found_ns = sds_now(s);
	snprintf(dev->path, sizeof(dev->path), "%s", path);
	ash_list_init(&dev->space_wait);
	ash_list_init(&dev->stamping);
	ash_list_push_back(&s->devs, &dev->link);
	s->devs_due = true;
	return dev;
}

static void dev_forget(struct sds_dev *dev)
{
	dev->s->devs_due = true;
	ash_list_remove(&dev->link);
	free(dev);
}

static void disk_closed(void *arg)
{
	dev_forget(arg);
}

static void nothing(void *arg)
{
}

static void let_disk_go(struct sds_dev *dev)
{
	dev->state = DEV_CLOSING;
	dev->disk->ops->close(dev->disk, disk_closed, dev);
}

struct sds_dev *dev_by_id(const struct sds *s, uint64_t device)
{
	ash_list_each(l, &s->devs) {
		struct sds_dev *dev = ash_container_of(l, struct sds_dev, link);

		if (dev->id == device && dev->state == DEV_OPEN)
			return dev;
	}
	return NULL;
}

uint64_t dev_deadline_ns(const struct sds *s)
{
	uint32_t ms = ash_map_op_deadline_ms(s->map);

	return (ms ? ms : 2000) * MS;
}

/* ------------------------------------------------------------ opening */

static void say(struct sds_dev *dev, int level, const char *event)
{
	sds_trace(dev->s, level,
		  "event=%s path=%s device=%llu incarnation=%llu error=%d why=\"%s\"", event,
		  dev->path, (unsigned long long)dev->id,
		  (unsigned long long)dev->label.incarnation, dev->error, dev->why);
}

/* An order of the map that cannot be carried out: the MDM is told why. Kept in the list, so that
 * the order is not tried again and again. */
static void order_failed(struct sds_dev *dev, int err, const char *why)
{
	dev->error = err;
	snprintf(dev->why, sizeof(dev->why), "%s", why);
	say(dev, ASH_LOG_ERROR, "device_refused");
	dev->state = DEV_FAILED;
	dev->s->devs_due = true;
	if (dev->disk) {
		dev->disk->ops->close(dev->disk, nothing, NULL);
		dev->disk = NULL;
	}
}

static void on_failed(void *owner, int err)
{
	struct sds_dev *dev = owner;

	if (dev->state != DEV_OPEN)
		return;
	dev->error = err;
	snprintf(dev->why, sizeof(dev->why), "the disk gave error %d (%s)", -err, strerror(-err));
	dev->state = DEV_FAILED;
	dev->s->devs_due = true;
	say(dev, ASH_LOG_ERROR, "device_failed");
	pg_device_changed(dev->s, dev->id);
}

static void on_space(void *owner)
{
	op_space_again(owner);
}

static void opened(void *arg, int result, struct sds_store *store)
{
	struct sds_dev *dev = arg;
	struct sds *s = dev->s;
	struct sds_store_events events = {.failed = on_failed, .space = on_space, .owner = dev};

	dev->store = store;
	if (result) {
		char why[128];

		dev->store = NULL;
		snprintf(why, sizeof(why), "opening failed: %s", strerror(-result));
		if (dev->adding) {
			order_failed(dev, result, why);
			return;
		}
		dev->error = result;
		snprintf(dev->why, sizeof(dev->why), "%s", why);
		say(dev, ASH_LOG_ERROR, "device_not_opened");
		let_disk_go(dev);
		return;
	}
	dev->label = *sds_store_label(store);
	dev->id = dev->label.device;
	dev->state = DEV_OPEN;
	dev->adding = false;
	sds_store_set_events(store, &events);
	say(dev, ASH_LOG_NOTICE, "device_open");
	s->devs_due = true;
	stray_due(dev);
	pg_device_changed(s, dev->id);
}

static void open_store(struct sds_dev *dev)
{
	struct sds *s = dev->s;

	dev->write_back = dev->disk->write_back;
	dev->prev_incarnation = dev->label.incarnation;
	memcpy(dev->prev_nonce, dev->label.nonce, 16);
	/* What an earlier opening granted is forgotten: it has run out by then. The lock of the
	 * disk was ours from found_ns on. */
	if (dev->label.incarnation)
		dev->serve_ns = dev->found_ns + dev->label.longest_lease_ms * MS * 3 / 2;
	dev->state = DEV_OPENING;
	dev->store = sds_store_open(s->port, dev->disk, s->cfg.boot_id, opened, dev);
}

/* Ours by its label? Not before the map is here. */
static const char *not_ours(const struct sds *s, const struct sds_label *label)
{
	const struct ash_map_device *d;

	if (!ash_uuid_equal(label->system, ash_map_system_uuid(s->map)))
		return "its label names another system";
	d = ash_map_device(s->map, label->device);
	if (!d)
		return "its device was removed from the system";
	if (d->sds != s->self)
		return "its device belongs to another SDS";
	if (!ash_uuid_equal(d->uuid, label->device_uuid))
		return "its label has another UUID than the device";
	return NULL;
}

/*
 * Opening raises the incarnation in the label. A disk that was rolled back, or a copy of one, must
 * not be opened for that reason alone: after some tries its label would be as new as any.
 */
static bool is_from_the_past(const struct sds *s, const struct sds_label *label)
{
	const struct ash_map_device *d = ash_map_device(s->map, label->device);

	if (!d || !d->incarnation || !ASH_RULE(INCARNATION))
		return false;
	return label->incarnation < d->incarnation ||
	       (label->incarnation == d->incarnation && !ash_uuid_equal(label->nonce, d->nonce));
}

static void ignore(struct sds_dev *dev, int level, const char *why)
{
	snprintf(dev->why, sizeof(dev->why), "%s", why);
	say(dev, level, "disk_ignored");
	dev->id = 0;
	let_disk_go(dev);
}

/* A disk with a label; once the map is here. */
static void judge(struct sds_dev *dev)
{
	struct sds *s = dev->s;
	const char *why;

	if (!s->self && !s->stopping)
		return;
	why = s->stopping ? "the SDS is stopping" : not_ours(s, &dev->label);
	if (!why && is_from_the_past(s, &dev->label))
		why = "its label is older than what the MDM knows of it: it was rolled back or is a "
		      "copy; remove the device and add it empty";
	ash_list_each(l, &s->devs) {
		const struct sds_dev *other = ash_container_of(l, struct sds_dev, link);

		if (other != dev && other->id == dev->id && other->state != DEV_FAILED &&
		    other->state != DEV_FOUND)
			why = "another disk with its label is here already";
	}
	if (why)
		ignore(dev, ASH_LOG_WARN, why);
	else
		open_store(dev);
}

static void probed(void *arg, int result, const struct sds_label *label)
{
	struct sds_dev *dev = arg;

	dev->error = result;
	if (result) {
		ignore(dev, result == -ENODATA ? ASH_LOG_INFO : ASH_LOG_WARN,
		       result == -ENODATA ? "it has no label" : "its label cannot be read");
		return;
	}
	dev->label = *label;
	dev->id = label->device;
	dev->state = DEV_FOUND;
	dev->s->devs_due = true;
}

void sds_disk_found(struct sds *s, struct ash_disk *disk, const char *path)
{
	struct sds_dev *dev = dev_new(s, path);

	dev->disk = disk;
	dev->state = DEV_PROBING;
	sds_store_probe(s->port, disk, probed, dev);
}

/* ------------------------------------------------------------ adding by order of the map */

static const struct ash_map_device *order_of(const struct sds_dev *dev)
{
	const struct ash_map_device *d = ash_map_device(dev->s->map, dev->id);

	return d && d->sds == dev->s->self && d->state == PB__DEVICE_STATE__DEVICE_ADDING &&
			       !dev->s->stopping
		       ? d
		       : NULL;
}

static void formatted(void *arg, int result)
{
	struct sds_dev *dev = arg;

	if (!order_of(dev)) {
		let_disk_go(dev);
	} else if (result) {
		order_failed(dev, result,
			     result == -EOVERFLOW ? "smaller than 256 MiB; use a larger disk"
						  : strerror(-result));
	} else {
		dev->label.incarnation = 0;
		open_store(dev);
	}
}

static void format(struct sds_dev *dev, const struct ash_map_device *d)
{
	struct sds *s = dev->s;
	struct sds_label label = {.device = d->id,
				  .pool = d->pool,
				  .dr_epoch = ash_map_dr_epoch(s->map),
				  .longest_lease_ms = ash_map_lease_ms(s->map)};

	memcpy(label.system, ash_map_system_uuid(s->map), 16);
	memcpy(label.device_uuid, d->uuid, 16);
	dev->state = DEV_FORMATTING;
	sds_store_format(s->port, dev->disk, &label, formatted, dev);
}

static void order_probed(void *arg, int result, const struct sds_label *label)
{
	struct sds_dev *dev = arg;
	struct sds *s = dev->s;
	const struct ash_map_device *d = order_of(dev);
	bool same_system;

	if (!d) {
		let_disk_go(dev);
		return;
	}
	if (result == 0 && ash_uuid_equal(label->device_uuid, d->uuid) && label->device == d->id) {
		dev->label = *label; /* formatted already, before a restart */
		open_store(dev);
		return;
	}
	same_system = result == 0 && ash_uuid_equal(label->system, ash_map_system_uuid(s->map));
	if (result == 0 && same_system && ash_map_device(s->map, label->device))
		order_failed(dev, -EEXIST, "the disk is another device of this system");
	else if (result == 0 && !same_system && !dev->force)
		order_failed(dev, -EEXIST,
			     "the disk belongs to another Ashlar system; add it with --force to "
			     "overwrite it");
	else if (result == -EBADMSG && !dev->force)
		order_failed(dev, -EEXIST,
			     "the disk has damaged Ashlar labels; add it with --force to overwrite "
			     "it");
	else if (result == 0 || result == -ENODATA || (result == -EBADMSG && dev->force) ||
		 (result == -EPROTONOSUPPORT && dev->force))
		format(dev, d);
	else
		order_failed(dev, result, strerror(-result));
}

static void order_opened(void *arg, int result, struct ash_disk *disk, const char *message)
{
	struct sds_dev *dev = arg;

	dev->disk = disk;
	if (result == -EBUSY && ++dev->tries < 10 && order_of(dev)) {
		/* Perhaps ours, about to be let go. */
		dev->disk = NULL;
		dev->retry_ns = sds_now(dev->s) + 500 * MS;
		return;
	}
	if (result) {
		dev->disk = NULL;
		order_failed(dev, result, message ? message : strerror(-result));
		return;
	}
	dev->found_ns = sds_now(dev->s);
	dev->state = DEV_PROBING;
	sds_store_probe(dev->s->port, disk, order_probed, dev);
}

static void order_begin(struct sds_dev *dev)
{
	struct sds *s = dev->s;

	dev->retry_ns = 0;
	s->shell.open_disk(s->shell.shell, dev->path, dev->force, order_opened, dev);
}

static void take_orders(struct sds *s)
{
	const struct ash_map_device *d = NULL;

	if (!s->self || s->stopping)
		return;
	while ((d = ash_map_next_device(s->map, d ? d->id : 0))) {
		struct sds_dev *dev = NULL;
		bool known = false;

		if (d->sds != s->self || d->state != PB__DEVICE_STATE__DEVICE_ADDING ||
		    d->reactor != s->cfg.reactor)
			continue;
		ash_list_each(l, &s->devs)
			known |= ash_container_of(l, struct sds_dev, link)->id == d->id;
		if (known)
			continue;
		dev = dev_new(s, d->path);
		dev->id = d->id;
		dev->adding = true;
		dev->force = d->force;
		dev->state = DEV_ASKED;
		order_begin(dev);
	}
}

/* ------------------------------------------------------------ closing */

static void store_closed(void *arg, int result)
{
	dev_forget(arg);
}

/* The store closes the disk itself. */
static void dev_close(struct sds_dev *dev, const char *why)
{
	if (dev->state != DEV_OPEN)
		return;
	dev->state = DEV_CLOSING;
	snprintf(dev->why, sizeof(dev->why), "%s", why);
	say(dev, ASH_LOG_NOTICE, "device_closing");
	pg_device_changed(dev->s, dev->id);
	dev->s->devs_due = true;
}

void dev_stop_all(struct sds *s)
{
	ash_list_each_safe(l, &s->devs) {
		struct sds_dev *dev = ash_container_of(l, struct sds_dev, link);

		if (dev->state == DEV_OPEN)
			dev_close(dev, "the SDS is stopping");
		else if (dev->state == DEV_FOUND)
			judge(dev);
		else if (dev->state == DEV_FAILED && !dev->store)
			dev_forget(dev);
		else if (dev->state == DEV_ASKED && dev->retry_ns)
			dev_forget(dev);
	}
}

void dev_op_ended(struct sds_dev *dev)
{
	assert(dev->ops > 0);
	if (--dev->ops == 0 && dev->state != DEV_OPEN)
		dev->s->devs_due = true;
}

/* The map does not show this opening as up any more, or never did. */
static bool failure_recorded(const struct sds_dev *dev)
{
	const struct ash_map_device *d = ash_map_device(dev->s->map, dev->id);

	return !d || d->incarnation != dev->label.incarnation ||
	       d->state != PB__DEVICE_STATE__DEVICE_UP;
}

/* Closing and failed devices whose last operation has ended. */
static void let_go(struct sds_dev *dev)
{
	if (dev->ops)
		return;
	if (dev->state == DEV_CLOSING && dev->store) {
		struct sds_store *store = dev->store;

		dev->store = NULL;
		sds_store_close(store, store_closed, dev);
	} else if (dev->state == DEV_FAILED && dev->store &&
		   (failure_recorded(dev) || dev->s->stopping)) {
		sds_store_abandon(dev->store);
		dev->store = NULL;
		let_disk_go(dev);
	} else if (dev->state == DEV_FAILED && dev->adding && !order_of(dev)) {
		dev_forget(dev);
	}
}

/* ------------------------------------------------------------ reports */

void dev_fill_found(const struct sds_dev *dev, Pb__FoundDevice *f)
{
	struct sds_store_stats stats;

	f->device = dev->id;
	f->uuid.data = (uint8_t *)dev->label.device_uuid;
	f->system.data = (uint8_t *)dev->label.system;
	f->nonce.data = (uint8_t *)dev->label.nonce;
	f->boot_id.data = (uint8_t *)dev->label.boot_id;
	f->uuid.len = f->system.len = f->nonce.len = f->boot_id.len = 16;
	f->incarnation = dev->label.incarnation;
	f->reactor = dev->s->cfg.reactor;
	f->write_back = dev->write_back;
	f->map_version = dev->label.map_version;
	f->prev_incarnation = dev->prev_incarnation;
	f->prev_nonce = (ProtobufCBinaryData){16, (uint8_t *)dev->prev_nonce};
	f->path = (char *)dev->path;
	f->open = dev->state == DEV_OPEN;
	f->capacity = dev->label.extents * ASH_CHUNK_BYTES;
	f->size = dev->label.disk_bytes;
	if (dev->store && f->open) {
		sds_store_stats(dev->store, &stats);
		f->capacity = stats.extents * ASH_CHUNK_BYTES;
	}
}

bool dev_admitted(const struct sds_dev *dev)
{
	const struct ash_map_device *d = ash_map_device(dev->s->map, dev->id);

	return d && d->incarnation == dev->label.incarnation &&
	       ash_uuid_equal(d->nonce, dev->label.nonce) &&
	       (d->state == PB__DEVICE_STATE__DEVICE_UP ||
		d->state == PB__DEVICE_STATE__DEVICE_REMOVING);
}

/* Answers name the device: it may be gone by then. */
struct report {
	struct sds *s;
	uint64_t device, incarnation;
};

static struct sds_dev *reported(const struct report *r)
{
	ash_list_each(l, &r->s->devs) {
		struct sds_dev *dev = ash_container_of(l, struct sds_dev, link);

		if (dev->id == r->device && dev->label.incarnation == r->incarnation)
			return dev;
	}
	return NULL;
}

static void report_done(void *arg, int result, const Pb__Reply *reply)
{
	struct report r = *(struct report *)arg;
	struct sds_dev *dev = reported(&r);
	int code = result == 0 && reply->error ? reply->error->code : 0;

	free(arg);
	if (!dev)
		return;
	dev->reporting = false;
	dev->report_ns = sds_now(r.s) + (result || code ? 500 : 100) * MS;
	if (!code)
		return;
	snprintf(dev->why, sizeof(dev->why), "%.150s", reply->error->message);
	dev->error = code;
	say(dev, ASH_LOG_WARN, "device_report_refused");
	if (dev->state == DEV_OPEN && (code == ASH_E_DENIED || code == ASH_E_NOT_FOUND ||
				       code == ASH_E_INVALID || code == ASH_E_STATE))
		dev_close(dev, "the MDM refuses it");
}

static void call(struct sds_dev *dev, Pb__Request *req)
{
	struct sds *s = dev->s;
	struct report *r = ash_xcalloc(1, sizeof(*r));

	*r = (struct report){.s = s, .device = dev->id, .incarnation = dev->label.incarnation};
	dev->reporting = true;
	s->ctl->ops->call(s->ctl, req, 2000, report_done, r);
}

static void report_opened(struct sds_dev *dev)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__DeviceOpened opened_msg = PB__DEVICE_OPENED__INIT;
	Pb__FoundDevice found = PB__FOUND_DEVICE__INIT;

	dev_fill_found(dev, &found);
	opened_msg.device = &found;
	req.r_case = PB__REQUEST__R_DEVICE_OPENED;
	req.device_opened = &opened_msg;
	call(dev, &req);
}

static void report_failed(struct sds_dev *dev)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__DeviceFailed failed = PB__DEVICE_FAILED__INIT;

	failed.device = dev->id;
	failed.incarnation = dev->adding ? 0 : dev->label.incarnation;
	failed.reason = dev->why;
	req.r_case = PB__REQUEST__R_DEVICE_FAILED;
	req.device_failed = &failed;
	call(dev, &req);
}

static void report(struct sds_dev *dev, uint64_t now)
{
	struct sds *s = dev->s;

	if (!s->registered || dev->reporting || now < dev->report_ns || s->stopping)
		return;
	if (dev->state == DEV_OPEN && !dev_admitted(dev))
		report_opened(dev);
	else if (dev->state == DEV_FAILED && dev->id &&
		 (dev->adding ? order_of(dev) != NULL : !failure_recorded(dev)))
		report_failed(dev);
}

/* The map has something against an open device. */
static void check_open(struct sds_dev *dev)
{
	const struct ash_map_device *d = ash_map_device(dev->s->map, dev->id);
	const char *why = not_ours(dev->s, &dev->label);

	if (!why && d->state == PB__DEVICE_STATE__DEVICE_FAILED &&
	    d->incarnation == dev->label.incarnation)
		why = "it was failed";
	if (!why && d->incarnation > dev->label.incarnation)
		why = "a newer opening of it exists";
	if (why)
		dev_close(dev, why);
}

/* ------------------------------------------------------------ turn and tick */

void dev_turn(struct sds *s)
{
	uint64_t now = sds_now(s);

	if (!s->devs_due)
		return;
	s->devs_due = false;
	take_orders(s);
	ash_list_each_safe(l, &s->devs) {
		struct sds_dev *dev = ash_container_of(l, struct sds_dev, link);

		if (dev->state == DEV_FOUND)
			judge(dev);
		else if (dev->state == DEV_OPEN && s->self && !s->stopping)
			check_open(dev);
		report(dev, now);
		let_go(dev);
	}
}

/* A disk that hangs keeps its leases for ever while writes wait: its copies have to go. */
static void check_hang(struct sds_dev *dev, uint64_t now)
{
	struct sds_store_stats stats;

	sds_store_stats(dev->store, &stats);
	if (!stats.oldest_op_ns || now < stats.oldest_op_ns + dev_deadline_ns(dev->s))
		return;
	ash_list_each(l, &dev->s->local_pgs) {
		struct sds_pg *pg = ash_container_of(l, struct sds_pg, local);
		unsigned others = 0;

		for (unsigned i = 0; i < pg->row.replicas; i++)
			others += i != pg->me && pg->row.replica[i].state == ASH_REPLICA_IN_SYNC;
		if (pg->dev == dev && others)
			mdm_want(pg, PB__PG_ACTION__PG_DROP, dev->id, dev->label.incarnation,
				 "the disk does not answer in time");
	}
}

void dev_tick(struct sds *s, uint64_t now)
{
	ash_list_each_safe(l, &s->devs) {
		struct sds_dev *dev = ash_container_of(l, struct sds_dev, link);

		if (dev->state == DEV_OPEN) {
			check_hang(dev, now);
			if (!ash_list_empty(&dev->space_wait))
				op_space_again(dev);
		}
		if (dev->state == DEV_ASKED && dev->retry_ns && now >= dev->retry_ns) {
			if (order_of(dev))
				order_begin(dev);
			else
				dev_forget(dev);
			continue;
		}
		report(dev, now);
	}
}

void dev_free_all(struct sds *s)
{
	struct ash_list *l;

	while ((l = ash_list_pop(&s->devs))) {
		struct sds_dev *dev = ash_container_of(l, struct sds_dev, link);

		if (dev->store)
			sds_store_forget(dev->store);
		settle_free(dev);
		free(dev);
	}
}
