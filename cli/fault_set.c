// SPDX-License-Identifier: MIT
/* ashlar fault-set */
#include "cli/cli.h"

static const struct cli_opt create_opts[] = {
	{.name = "name",
	 .type = CLI_NAME,
	 .arg = "NAME",
	 .help = "of the new fault set",
	 .required = true},
	{.name = "protection-domain",
	 .type = CLI_NAME,
	 .arg = "NAME",
	 .help = "it belongs to",
	 .required = true},
	{0},
};

static int create(const struct cli_args *a)
{
	Pb__Admin admin = PB__ADMIN__INIT;
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdFaultSetAdd c = PB__CMD_FAULT_SET_ADD__INIT;

	c.name = cli_text(a, "name");
	cmd.c_case = PB__COMMAND__C_FAULT_SET_ADD;
	cmd.fault_set_add = &c;
	admin.command = &cmd;
	admin.domain = cli_text(a, "protection-domain");
	return cli_change(a, &admin, "fault set \"%s\" created", c.name);
}

static const struct cli_opt delete_opts[] = {
	{.name = "fault-set",
	 .type = CLI_NAME,
	 .arg = "NAME",
	 .help = "what to delete",
	 .required = true,
	 .alias = "name"},
	{.name = "protection-domain",
	 .type = CLI_NAME,
	 .arg = "NAME",
	 .help = "when several have one of that name"},
	{0},
};

static int delete (const struct cli_args *a)
{
	Pb__Admin admin = PB__ADMIN__INIT;

	admin.fault_set = cli_text(a, "fault-set");
	admin.domain = cli_text(a, "protection-domain");
	return cli_remove(a, &admin, PB__KIND__KIND_FAULT_SET, false, "fault set", admin.fault_set);
}

static const struct cli_col cols[] = {
	{"NAME", "name", CLI_COL_TEXT},
	{"PROTECTION DOMAIN", "protection_domain", CLI_COL_TEXT},
	{"SDS", "sds", CLI_COL_LIST},
	{0},
};

static json_t *members(const Pb__Map *map, uint64_t fault_set)
{
	json_t *names = json_array();

	for (size_t i = 0; i < map->n_sdss; i++)
		if (map->sdss[i]->fault_set == fault_set)
			json_array_append_new(names, cli_json_text(map->sdss[i]->name));
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
	for (size_t i = 0; i < map->n_fault_sets; i++) {
		const Pb__FaultSet *f = map->fault_sets[i];

		json_array_append_new(
			rows, json_pack("{s:o, s:o, s:o, s:o}", "id", cli_json_number(f->id),
					"name", cli_json_text(f->name), "protection_domain",
					cli_json_text(cli_domain_name(map, f->domain)), "sds",
					members(map, f->id)));
	}
	pb__reply__free_unpacked(reply, NULL);
	return cli_show_list(a, "fault_sets", rows, cols);
}

const struct cli_verb cli_fault_set_verbs[] = {
	{"fault-set", "create", "Creates a fault set",
	 "SDSs of one fault set may fail together (a rack, a power feed): the two copies of a block\n"
	 "never lie in one fault set.",
	 "ashlar fault-set create --protection-domain pd1 --name rack1", create_opts, create},
	{"fault-set", "list", "Lists fault sets and their SDSs", NULL, "ashlar fault-set list",
	 NULL, list},
	{"fault-set", "delete", "Deletes an empty fault set", NULL,
	 "ashlar fault-set delete --fault-set rack1", delete_opts, delete},
	{0},
};
