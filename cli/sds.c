// SPDX-License-Identifier: MIT
/* ashlar sds */
#include "cli/cli.h"

static const struct cli_opt add_opts[] = {
	{.name = "name",
	 .type = CLI_NAME,
	 .arg = "NAME",
	 .help = "of the data server",
	 .required = true},
	{.name = "protection-domain",
	 .type = CLI_NAME,
	 .arg = "NAME",
	 .help = "it joins",
	 .required = true},
	{.name = "fault-set",
	 .type = CLI_NAME,
	 .arg = "NAME",
	 .help = "it belongs to; without it is one of its own"},
	{.name = "address",
	 .type = CLI_TEXT,
	 .arg = "IP[:PORT]",
	 .help = "as ashlar-sds was told by --listen or --advertise (port 7072)",
	 .required = true},
	{0},
};

static int add(const struct cli_args *a)
{
	Pb__Admin admin = PB__ADMIN__INIT;
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdSdsAdd c = PB__CMD_SDS_ADD__INIT;

	c.name = cli_text(a, "name");
	c.control_address = cli_text(a, "address");
	cmd.c_case = PB__COMMAND__C_SDS_ADD;
	cmd.sds_add = &c;
	admin.command = &cmd;
	admin.domain = cli_text(a, "protection-domain");
	admin.fault_set = cli_text(a, "fault-set");
	return cli_change(a, &admin, "SDS \"%s\" added", c.name);
}

static const struct cli_opt remove_opts[] = {
	{.name = "sds",
	 .type = CLI_NAME,
	 .arg = "NAME",
	 .help = "what to remove",
	 .required = true,
	 .alias = "name"},
	{0},
};

static int remove_sds(const struct cli_args *a)
{
	Pb__Admin admin = PB__ADMIN__INIT;

	admin.sds = cli_text(a, "sds");
	return cli_remove(a, &admin, PB__KIND__KIND_SDS, false, "SDS", admin.sds);
}

static const struct cli_col cols[] = {
	{"NAME", "name", CLI_COL_TEXT},
	{"STATE", "state", CLI_COL_TEXT},
	{"PROTECTION DOMAIN", "protection_domain", CLI_COL_TEXT},
	{"FAULT SET", "fault_set", CLI_COL_TEXT},
	{"ADDRESS", "address", CLI_COL_TEXT},
	{"DEVICES", "devices", CLI_COL_NUMBER},
	{0},
};

static const char *state_of(const Pb__Sds *sds)
{
	if (sds->up)
		return "up";
	return sds->session.len ? "down" : "never-seen";
}

static json_t *row(const Pb__Map *map, const Pb__Sds *sds)
{
	json_int_t devices = 0;

	for (size_t i = 0; i < map->n_devices; i++)
		devices += map->devices[i]->sds == sds->id;
	return json_pack("{s:o, s:o, s:s, s:o, s:o, s:o, s:I, s:o}", "id", cli_json_number(sds->id),
			 "name", cli_json_text(sds->name), "state", state_of(sds),
			 "protection_domain", cli_json_text(cli_domain_name(map, sds->domain)),
			 "fault_set", cli_json_text(cli_fault_set_name(map, sds->fault_set)),
			 "address", cli_json_text(sds->control_address), "devices", devices, "uuid",
			 cli_json_uuid(&sds->uuid));
}

static int list(const struct cli_args *a)
{
	struct ash_error err;
	Pb__Reply *reply = cli_query(a, "map", &err);
	json_t *rows;
	const Pb__Map *map;

	if (!reply)
		return cli_fail(a, &err);
	rows = json_array();
	map = reply->query->map;
	for (size_t i = 0; i < map->n_sdss; i++)
		json_array_append_new(rows, row(map, map->sdss[i]));
	pb__reply__free_unpacked(reply, NULL);
	return cli_show_list(a, "sds", rows, cols);
}

const struct cli_verb cli_sds_verbs[] = {
	{"sds", "add", "Admits a data server",
	 "Start ashlar-sds on that server; it waits until it is admitted here.",
	 "ashlar sds add --name sds1 --protection-domain pd1 --fault-set rack1 --address 10.0.0.11:7072",
	 add_opts, add},
	{"sds", "list", "Lists data servers and their state", NULL, "ashlar sds list", NULL, list},
	{"sds", "remove", "Removes a data server that has no devices", NULL,
	 "ashlar sds remove --sds sds1", remove_opts, remove_sds},
	{0},
};
