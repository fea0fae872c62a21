// SPDX-License-Identifier: MIT
/* ashlar sdc */
#include "cli/cli.h"

static const struct cli_opt add_opts[] = {
	{CLI_NEW_NAME("of the client")},
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
	Pb__CmdSdcAdd c = PB__CMD_SDC_ADD__INIT;

	c.name = cli_text(a, "name");
	c.address = cli_text(a, "address");
	c.guid.data = (uint8_t *)cli_value(a, "guid")->guid;
	c.guid.len = 16;
	return cli_command(a, PB__COMMAND__C_SDC_ADD, &c, "SDC \"%s\" added", c.name);
}

static const struct cli_opt remove_opts[] = {
	{CLI_SUBJECT("sdc", "what to remove")},
	{CLI_FORCE("although volumes are mapped to it")},
	{0},
};

static const struct cli_col cols[] = {
	{"NAME", "name", CLI_COL_TEXT},
	{"GUID", "guid", CLI_COL_TEXT},
	{"VOLUMES", "volumes", CLI_COL_LIST},
	{"ADDRESS", "address", CLI_COL_TEXT},
	{0},
};

static json_t *row(const struct cli_facts *f, const void *object)
{
	const Pb__Sdc *c = object;

	return json_pack("{s:o, s:o, s:o, s:o, s:o}", "id", cli_json_number(c->id), "name",
			 cli_json_text(c->name), "guid", cli_json_uuid(&c->guid), "address",
			 cli_json_text(c->address), "volumes",
			 CLI_NAMES(f->map, mappings, sdc, c->id, cli_volume_name, volume));
}

static const struct cli_object object = {
	CLI_IN_MAP(sdcs), .noun = "SDC", .option = "sdc", .kind = PB__KIND__KIND_SDC,
	.key = "sdcs",	  .cols = cols,	 .row = row,
};

const struct cli_verb cli_sdc_verbs[] = {
	{"sdc", "add", "Admits a client",
	 "A client is known by its GUID; only volumes that are mapped to it can be opened by it.",
	 "ashlar sdc add --name sdc1 --guid 6ba7b810-9dad-41d1-80b4-00c04fd430c8", add_opts, add,
	 NULL},
	{"sdc", "list", "Lists clients and what is mapped to them", NULL, "ashlar sdc list",
	 cli_list_opts, cli_list, &object},
	{"sdc", "remove", "Removes a client", NULL, "ashlar sdc remove --sdc sdc1", remove_opts,
	 cli_remove, &object},
	{0},
};
