// SPDX-License-Identifier: MIT
/* ashlar protection-domain */
#include "cli/cli.h"

static const struct cli_opt create_opts[] = {
	{CLI_NEW_NAME("of the new domain")},
	{0},
};

static int create(const struct cli_args *a)
{
	Pb__CmdDomainAdd c = PB__CMD_DOMAIN_ADD__INIT;

	c.name = cli_text(a, "name");
	return cli_command(a, PB__COMMAND__C_DOMAIN_ADD, &c, "protection domain \"%s\" created",
			   c.name);
}

static const struct cli_opt delete_opts[] = {
	{CLI_SUBJECT("protection-domain", "what to delete")},
	{0},
};

static const struct cli_col cols[] = {
	{"NAME", "name", CLI_COL_TEXT},
	{"SDS", "sds", CLI_COL_NUMBER},
	{"POOLS", "pools", CLI_COL_NUMBER},
	{"FAULT SETS", "fault_sets", CLI_COL_NUMBER},
	{0},
};

static json_t *row(const struct cli_facts *f, const void *object)
{
	const Pb__Domain *d = object;

	return json_pack("{s:o, s:o, s:I, s:I, s:I}", "id", cli_json_number(d->id), "name",
			 cli_json_text(d->name), "sds", CLI_COUNT(f->map, sdss, domain, d->id),
			 "pools", CLI_COUNT(f->map, pools, domain, d->id), "fault_sets",
			 CLI_COUNT(f->map, fault_sets, domain, d->id));
}

static const struct cli_object object = {
	CLI_IN_MAP(domains),
	.noun = "protection domain",
	.option = "protection-domain",
	.kind = PB__KIND__KIND_DOMAIN,
	.key = "protection_domains",
	.cols = cols,
	.row = row,
};

const struct cli_verb cli_domain_verbs[] = {
	{"protection-domain", "create", "Creates a protection domain",
	 "Data never leaves its protection domain; SDSs, fault sets and pools belong to one.",
	 "ashlar protection-domain create --name pd1", create_opts, create, NULL},
	{"protection-domain", "list", "Lists protection domains", NULL,
	 "ashlar protection-domain list", cli_list_opts, cli_list, &object},
	{"protection-domain", "delete", "Deletes an empty protection domain", NULL,
	 "ashlar protection-domain delete --protection-domain pd1", delete_opts, cli_remove,
	 &object},
	{0},
};
