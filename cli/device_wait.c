// SPDX-License-Identifier: MIT
/* Waits until the SDS has formatted a device that was added, or tells why it could not. */
#include <string.h>

#include "cli/cli.h"

static const Pb__Device *find(const Pb__Map *map, uint64_t id)
{
	for (size_t i = 0; i < map->n_devices; i++)
		if (map->devices[i]->id == id)
			return map->devices[i];
	return NULL;
}

/* The newest word about the device; the map has its state only. */
static struct ash_error why_failed(const struct cli_args *a, const char *device)
{
	struct ash_error err, ret;
	Pb__Reply *reply = cli_query(a, "events", &err);
	const char *message = "its SDS could not open it; see that server's log";
	char object[80];

	snprintf(object, sizeof(object), "device:%s", device);
	for (size_t i = 0; reply && i < reply->query->n_events; i++) {
		const Pb__Event *e = reply->query->events[i];

		if (!strcmp(e->code, "DEVICE_FAILED") && !strcmp(e->object, object))
			message = e->message;
	}
	ret = ash_error_make(ASH_E_STATE,
			     "%.500s; `ashlar device remove --device %s` clears the entry", message,
			     device);
	if (reply)
		pb__reply__free_unpacked(reply, NULL);
	return ret;
}

/* True when it is decided; then *ret_err tells what. */
static bool decided(const struct cli_args *a, const Pb__Map *map, uint64_t id,
		    struct ash_error *ret_err)
{
	const Pb__Device *device = find(map, id);

	*ret_err = ash_error_ok();
	if (!device)
		*ret_err = ash_error_make(ASH_E_NOT_FOUND, "the device was removed meanwhile");
	else if (device->state == PB__DEVICE_STATE__DEVICE_FAILED)
		*ret_err = why_failed(a, device->name);
	else if (device->state == PB__DEVICE_STATE__DEVICE_ADDING)
		return false;
	return true;
}

struct ash_error cli_device_wait(const struct cli_args *a, uint64_t id)
{
	struct ash_error err;
	bool done;

	do {
		Pb__Reply *reply = cli_query(a, "map", &err);

		if (!reply)
			return err;
		done = decided(a, reply->query->map, id, &err);
		pb__reply__free_unpacked(reply, NULL);
	} while (!done && cli_pause(a));
	if (!done)
		err = ash_error_make(ASH_E_UNREACHABLE,
				     "the device is in the pool's list, but its SDS has not "
				     "formatted it after %u s; it will as soon as it runs (see "
				     "`ashlar sds list`)",
				     a->timeout_ms / 1000);
	return err;
}
