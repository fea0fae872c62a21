// SPDX-License-Identifier: MIT
/* ashlar device */
#include "cli/cli.h"

static const struct cli_opt add_opts[] = {
	{CLI_NAME_OPT("sds", "that has the device"), .required = true},
	{CLI_NAME_OPT("pool", "it joins"), .required = true},
	{.name = "path",
	 .type = CLI_TEXT,
	 .arg = "PATH",
	 .help = "block device or file on that server",
	 .required = true},
	{CLI_NAME_OPT("name", "default: SDS-d1, SDS-d2, ...")},
	{CLI_DOMAIN("of the pool")},
	{CLI_FORCE("overwrite what another program's signature on it says is there")},
	{.name = "no-wait",
	 .type = CLI_FLAG,
	 .help = "do not wait until the data server has formatted it"},
	{0},
};

/* The device is formatted by its SDS after the MDM has answered. */
static int add(const struct cli_args *a)
{
	Pb__CmdDeviceAdd c = PB__CMD_DEVICE_ADD__INIT;
	struct ash_error err;
	Pb__Reply *reply;
	char text[400];
	int code;

	c.name = cli_text(a, "name");
	c.path = cli_text(a, "path");
	c.force = cli_given(a, "force");
	reply = cli_change(a, PB__COMMAND__C_DEVICE_ADD, &c, &err);
	if (reply && reply->r_case == PB__REPLY__R_ADMIN && !cli_given(a, "no-wait"))
		err = cli_device_wait(a, reply->admin->id);
	snprintf(text, sizeof(text), "device %s of SDS \"%s\" added to storage pool \"%s\"", c.path,
		 cli_text(a, "sds"), cli_text(a, "pool"));
	code = ash_failed(&err) ? cli_fail(a, &err) : cli_show_change(a, reply, text);
	if (reply)
		pb__reply__free_unpacked(reply, NULL);
	return code;
}

static const struct cli_opt remove_opts[] = {
	{CLI_SUBJECT("device", "as `ashlar device list` shows")},
	{CLI_FORCE("although its data has one copy less then")},
	{0},
};

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

static json_t *row(const struct cli_facts *f, const void *object)
{
	const Pb__Device *d = object;
	const Pb__DeviceStats *s = stats_of(f->status, d->id);

	return json_pack("{s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o}",
			 "id", cli_json_number(d->id), "name", cli_json_text(d->name), "state",
			 state_of(d->state), "sds", cli_json_text(cli_sds_name(f->map, d->sds)),
			 "pool", cli_json_text(cli_pool_name(f->map, d->pool)), "path",
			 cli_json_text(d->path), "capacity_bytes", cli_json_number(d->capacity),
			 "used_bytes", cli_json_number(s->used), "size_bytes",
			 cli_json_number(d->size), "errors",
			 cli_json_number(s->checksum_errors + s->medium_errors), "checksum_errors",
			 cli_json_number(s->checksum_errors), "medium_errors",
			 cli_json_number(s->medium_errors), "write_back", d->write_back, "uuid",
			 cli_json_uuid(&d->uuid));
}

static const struct cli_object object = {
	CLI_IN_MAP(devices), .noun = "device",	  .option = "device", .kind = PB__KIND__KIND_DEVICE,
	.key = "devices",    .with_status = true, .cols = cols,	      .row = row,
};

const struct cli_verb cli_device_verbs[] = {
	{"device", "add", "Adds a disk of a data server to a storage pool",
	 "The disk is formatted: all that is on it is lost. Known signatures of file systems and\n"
	 "others are refused unless --force is given.",
	 "ashlar device add --sds sds1 --pool pool1 --path /dev/nvme0n1", add_opts, add, NULL},
	{"device", "list", "Lists devices, their state and use", NULL, "ashlar device list --json",
	 cli_list_opts, cli_list, &object},
	{"device", "remove", "Removes a device from its storage pool", NULL,
	 "ashlar device remove --device sds1-d1", remove_opts, cli_remove, &object},
	{0},
};
