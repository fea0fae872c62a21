// SPDX-License-Identifier: MIT
/* ashlar sdc */
#include "cli/cli.h"

static const struct cli_opt add_opts[] = {
	{.name = "name",
	 .type = CLI_NAME,
	 .arg = "NAME",
	 .help = "of the client",
	 .required = true},
	{.name = "guid",
	 .type = CLI_GUID,
	 .arg = "GUID",
	 .help = "as the client prints it",
	 .required = true},
	{.name = "address", .type = CLI_TEXT, .arg = "TEXT", .help = "where it runs, for people"},
	{0},
};

static int add(const struct cli_args *a)
{
	Pb__Admin admin = PB__ADMIN__INIT;
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdSdcAdd c = PB__CMD_SDC_ADD__INIT;

	c.name = cli_text(a, "name");
	c.address = cli_text(a, "address");
	c.guid.data = (uint8_t *)cli_value(a, "guid")->guid;
	c.guid.len = 16;
	cmd.c_case = PB__COMMAND__C_SDC_ADD;
	cmd.sdc_add = &c;
	admin.command = &cmd;
	return cli_change(a, &admin, "SDC \"%s\" added", c.name);
}

static const struct cli_opt remove_opts[] = {
	{.name = "sdc",
	 .type = CLI_NAME,
	 .arg = "NAME",
	 .help = "what to remove",
	 .required = true,
	 .alias = "name"},
	{.name = "force", .type = CLI_FLAG, .help = "although volumes are mapped to it"},
	{0},
};

static int remove_sdc(const struct cli_args *a)
{
	Pb__Admin admin = PB__ADMIN__INIT;

	admin.sdc = cli_text(a, "sdc");
	return cli_remove(a, &admin, PB__KIND__KIND_SDC, cli_given(a, "force"), "SDC", admin.sdc);
}

static const struct cli_col cols[] = {
	{"NAME", "name", CLI_COL_TEXT},
	{"GUID", "guid", CLI_COL_TEXT},
	{"VOLUMES", "volumes", CLI_COL_LIST},
	{"ADDRESS", "address", CLI_COL_TEXT},
	{0},
};

static json_t *volumes_of(const Pb__Map *map, uint64_t sdc)
{
	json_t *names = json_array();

	for (size_t i = 0; i < map->n_mappings; i++)
		if (map->mappings[i]->sdc == sdc)
			json_array_append_new(names, cli_json_text(cli_volume_name(
							     map, map->mappings[i]->volume)));
	return names;
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
	for (size_t i = 0; i < map->n_sdcs; i++) {
		const Pb__Sdc *c = map->sdcs[i];

		json_array_append_new(rows, json_pack("{s:o, s:o, s:o, s:o, s:o}", "id",
						      cli_json_number(c->id), "name",
						      cli_json_text(c->name), "guid",
						      cli_json_uuid(&c->guid), "address",
						      cli_json_text(c->address), "volumes",
						      volumes_of(map, c->id)));
	}
	pb__reply__free_unpacked(reply, NULL);
	return cli_show_list(a, "sdcs", rows, cols);
}

const struct cli_verb cli_sdc_verbs[] = {
	{"sdc", "add", "Admits a client",
	 "A client is known by its GUID; only volumes that are mapped to it can be opened by it.",
	 "ashlar sdc add --name sdc1 --guid 6ba7b810-9dad-41d1-80b4-00c04fd430c8", add_opts, add},
	{"sdc", "list", "Lists clients and what is mapped to them", NULL, "ashlar sdc list", NULL,
	 list},
	{"sdc", "remove", "Removes a client", NULL, "ashlar sdc remove --sdc sdc1", remove_opts,
	 remove_sdc},
	{0},
};
