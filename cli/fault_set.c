// SPDX-License-Identifier: MIT
/* ashlar fault-set */
#include "cli/cli.h"

static const struct cli_opt create_opts[] = {
	{CLI_NEW_NAME("of the new fault set")},
	{CLI_DOMAIN("it belongs to"), .required = true},
	{0},
};

static int create(const struct cli_args *a)
{
	Pb__CmdFaultSetAdd c = PB__CMD_FAULT_SET_ADD__INIT;

	c.name = cli_text(a, "name");
	return cli_command(a, PB__COMMAND__C_FAULT_SET_ADD, &c, "fault set \"%s\" created", c.name);
}

static const struct cli_opt delete_opts[] = {
	{CLI_SUBJECT("fault-set", "what to delete")},
	{CLI_DOMAIN_IF_SEVERAL},
	{0},
};

static const struct cli_col cols[] = {
	{"NAME", "name", CLI_COL_TEXT},
	{"PROTECTION DOMAIN", "protection_domain", CLI_COL_TEXT},
	{"SDS", "sds", CLI_COL_LIST},
	{0},
};

static json_t *row(const struct cli_facts *f, const void *object)
{
	const Pb__FaultSet *fs = object;

	return json_pack("{s:o, s:o, s:o, s:o}", "id", cli_json_number(fs->id), "name",
			 cli_json_text(fs->name), "protection_domain",
			 cli_json_text(cli_domain_name(f->map, fs->domain)), "sds",
			 CLI_NAMES(f->map, sdss, fault_set, fs->id, cli_sds_name, id));
}

static const struct cli_object object = {
	CLI_IN_MAP(fault_sets),
	.noun = "fault set",
	.option = "fault-set",
	.kind = PB__KIND__KIND_FAULT_SET,
	.key = "fault_sets",
	.cols = cols,
	.row = row,
};

const struct cli_verb cli_fault_set_verbs[] = {
	{"fault-set", "create", "Creates a fault set",
	 "SDSs of one fault set may fail together (a rack, a power feed): the two copies of a block\n"
	 "never lie in one fault set.",
	 "ashlar fault-set create --protection-domain pd1 --name rack1", create_opts, create, NULL},
	{"fault-set", "list", "Lists fault sets and their SDSs", NULL, "ashlar fault-set list",
	 cli_list_opts, cli_list, &object},
	{"fault-set", "delete", "Deletes an empty fault set", NULL,
	 "ashlar fault-set delete --fault-set rack1", delete_opts, cli_remove, &object},
	{0},
};
