// SPDX-License-Identifier: MIT
/* ashlar device */
#include "cli/cli.h"

static const struct cli_opt add_opts[] = {
	{.name = "sds",
	 .type = CLI_NAME,
	 .arg = "NAME",
	 .help = "that has the device",
	 .required = true},
	{.name = "pool", .type = CLI_NAME, .arg = "NAME", .help = "it joins", .required = true},
	{.name = "path",
	 .type = CLI_TEXT,
	 .arg = "PATH",
	 .help = "block device or file on that server",
	 .required = true},
	{.name = "name", .type = CLI_NAME, .arg = "NAME", .help = "default: SDS-d1, SDS-d2, ..."},
	{.name = "protection-domain", .type = CLI_NAME, .arg = "NAME", .help = "of the pool"},
	{.name = "force",
	 .type = CLI_FLAG,
	 .help = "overwrite what another program's signature on it says is there"},
	{0},
};

static int add(const struct cli_args *a)
{
	Pb__Admin admin = PB__ADMIN__INIT;
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdDeviceAdd c = PB__CMD_DEVICE_ADD__INIT;

	c.name = cli_text(a, "name");
	c.path = cli_text(a, "path");
	c.force = cli_given(a, "force");
	cmd.c_case = PB__COMMAND__C_DEVICE_ADD;
	cmd.device_add = &c;
	admin.command = &cmd;
	admin.sds = cli_text(a, "sds");
	admin.pool = cli_text(a, "pool");
	admin.domain = cli_text(a, "protection-domain");
	return cli_change(a, &admin, "device %s of SDS \"%s\" added to storage pool \"%s\"", c.path,
			  admin.sds, admin.pool);
}

static const struct cli_opt remove_opts[] = {
	{.name = "device",
	 .type = CLI_NAME,
	 .arg = "NAME",
	 .help = "as `ashlar device list` shows",
	 .required = true,
	 .alias = "name"},
	{.name = "force", .type = CLI_FLAG, .help = "although its data has one copy less then"},
	{0},
};

static int remove_device(const struct cli_args *a)
{
	Pb__Admin admin = PB__ADMIN__INIT;

	admin.device = cli_text(a, "device");
	return cli_remove(a, &admin, PB__KIND__KIND_DEVICE, cli_given(a, "force"), "device",
			  admin.device);
}

static const struct cli_col cols[] = {
	{"NAME", "name", CLI_COL_TEXT},
	{"STATE", "state", CLI_COL_TEXT},
	{"SDS", "sds", CLI_COL_TEXT},
	{"POOL", "pool", CLI_COL_TEXT},
	{"CAPACITY", "capacity_bytes", CLI_COL_SIZE},
	{"USED", "used_bytes", CLI_COL_SIZE},
	{"ERRORS", "errors", CLI_COL_NUMBER},
	{"PATH", "path", CLI_COL_TEXT},
	{0},
};

static const char *state_of(Pb__DeviceState state)
{
	switch (state) {
	case PB__DEVICE_STATE__DEVICE_ADDING:
		return "adding";
	case PB__DEVICE_STATE__DEVICE_UP:
		return "up";
	case PB__DEVICE_STATE__DEVICE_DOWN:
		return "down";
	case PB__DEVICE_STATE__DEVICE_FAILED:
		return "failed";
	case PB__DEVICE_STATE__DEVICE_REMOVING:
		return "removing";
	default:
		return "unknown";
	}
}

static const Pb__DeviceStats *stats_of(const Pb__QueryReply *status, uint64_t device)
{
	static const Pb__DeviceStats none = PB__DEVICE_STATS__INIT;

	for (size_t i = 0; i < status->n_devices; i++)
		if (status->devices[i]->device == device)
			return status->devices[i];
	return &none;
}

static json_t *row(const Pb__Map *map, const Pb__QueryReply *status, const Pb__Device *d)
{
	const Pb__DeviceStats *s = stats_of(status, d->id);

	return json_pack("{s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o}",
			 "id", cli_json_number(d->id), "name", cli_json_text(d->name), "state",
			 state_of(d->state), "sds", cli_json_text(cli_sds_name(map, d->sds)),
			 "pool", cli_json_text(cli_pool_name(map, d->pool)), "path",
			 cli_json_text(d->path), "capacity_bytes", cli_json_number(d->capacity),
			 "used_bytes", cli_json_number(s->used), "size_bytes",
			 cli_json_number(d->size), "errors",
			 cli_json_number(s->checksum_errors + s->medium_errors), "checksum_errors",
			 cli_json_number(s->checksum_errors), "medium_errors",
			 cli_json_number(s->medium_errors), "write_back", d->write_back, "uuid",
			 cli_json_uuid(&d->uuid));
}

static int list(const struct cli_args *a)
{
	struct ash_error err;
	Pb__Reply *reply = cli_query(a, "map", &err);
	Pb__Reply *status = reply ? cli_query(a, "status", &err) : NULL;
	json_t *rows;

	if (!status) {
		if (reply)
			pb__reply__free_unpacked(reply, NULL);
		return cli_fail(a, &err);
	}
	rows = json_array();
	for (size_t i = 0; i < reply->query->map->n_devices; i++)
		json_array_append_new(
			rows, row(reply->query->map, status->query, reply->query->map->devices[i]));
	pb__reply__free_unpacked(reply, NULL);
	pb__reply__free_unpacked(status, NULL);
	return cli_show_list(a, "devices", rows, cols);
}

const struct cli_verb cli_device_verbs[] = {
	{"device", "add", "Adds a disk of a data server to a storage pool",
	 "The disk is formatted: all that is on it is lost. Known signatures of file systems and\n"
	 "others are refused unless --force is given.",
	 "ashlar device add --sds sds1 --pool pool1 --path /dev/nvme0n1", add_opts, add},
	{"device", "list", "Lists devices, their state and use", NULL, "ashlar device list --json",
	 NULL, list},
	{"device", "remove", "Removes a device from its storage pool", NULL,
	 "ashlar device remove --device sds1-d1", remove_opts, remove_device},
	{0},
};
