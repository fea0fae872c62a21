// SPDX-License-Identifier: MIT
/* ashlar protection-domain */
#include "cli/cli.h"

static const struct cli_opt create_opts[] = {
	{.name = "name",
	 .type = CLI_NAME,
	 .arg = "NAME",
	 .help = "of the new domain",
	 .required = true},
	{0},
};

static int create(const struct cli_args *a)
{
	Pb__Admin admin = PB__ADMIN__INIT;
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdDomainAdd c = PB__CMD_DOMAIN_ADD__INIT;

	c.name = cli_text(a, "name");
	cmd.c_case = PB__COMMAND__C_DOMAIN_ADD;
	cmd.domain_add = &c;
	admin.command = &cmd;
	return cli_change(a, &admin, "protection domain \"%s\" created", c.name);
}

static const struct cli_opt delete_opts[] = {
	{.name = "protection-domain",
	 .type = CLI_NAME,
	 .arg = "NAME",
	 .help = "what to delete",
	 .required = true,
	 .alias = "name"},
	{0},
};

static int delete (const struct cli_args *a)
{
	Pb__Admin admin = PB__ADMIN__INIT;

	admin.domain = cli_text(a, "protection-domain");
	return cli_remove(a, &admin, PB__KIND__KIND_DOMAIN, false, "protection domain",
			  admin.domain);
}

static const struct cli_col cols[] = {
	{"NAME", "name", CLI_COL_TEXT},
	{"SDS", "sds", CLI_COL_NUMBER},
	{"POOLS", "pools", CLI_COL_NUMBER},
	{"FAULT SETS", "fault_sets", CLI_COL_NUMBER},
	{0},
};

#define COUNT(list, field, id)                                                                     \
	({                                                                                         \
		json_int_t count_ = 0;                                                             \
		for (size_t i_ = 0; i_ < map->n_##list; i_++)                                      \
			count_ += map->list[i_]->field == (id);                                    \
		count_;                                                                            \
	})

static int list(const struct cli_args *a)
{
	struct ash_error err;
	Pb__Reply *reply = cli_query(a, "map", &err);
	json_t *rows = json_array();
	const Pb__Map *map;

	if (!reply) {
		json_decref(rows);
		return cli_fail(a, &err);
	}
	map = reply->query->map;
	for (size_t i = 0; i < map->n_domains; i++) {
		uint64_t id = map->domains[i]->id;

		json_array_append_new(
			rows, json_pack("{s:o, s:o, s:I, s:I, s:I}", "id", cli_json_number(id),
					"name", cli_json_text(map->domains[i]->name), "sds",
					COUNT(sdss, domain, id), "pools", COUNT(pools, domain, id),
					"fault_sets", COUNT(fault_sets, domain, id)));
	}
	pb__reply__free_unpacked(reply, NULL);
	return cli_show_list(a, "protection_domains", rows, cols);
}

const struct cli_verb cli_domain_verbs[] = {
	{"protection-domain", "create", "Creates a protection domain",
	 "Data never leaves its protection domain; SDSs, fault sets and pools belong to one.",
	 "ashlar protection-domain create --name pd1", create_opts, create},
	{"protection-domain", "list", "Lists protection domains", NULL,
	 "ashlar protection-domain list", NULL, list},
	{"protection-domain", "delete", "Deletes an empty protection domain", NULL,
	 "ashlar protection-domain delete --protection-domain pd1", delete_opts, delete},
	{0},
};
