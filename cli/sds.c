// SPDX-License-Identifier: MIT
/* ashlar sds */
#include "cli/cli.h"

static const struct cli_opt add_opts[] = {
	{CLI_NEW_NAME("of the data server")},
	{CLI_DOMAIN("it joins"), .required = true},
	{CLI_NAME_OPT("fault-set", "it belongs to; without it is one of its own")},
	{.name = "address",
	 .type = CLI_TEXT,
	 .arg = "IP[:PORT]",
	 .help = "as ashlar-sds was told by --listen or --advertise (port 7072)",
	 .required = true},
	{0},
};

static int add(const struct cli_args *a)
{
	Pb__CmdSdsAdd c = PB__CMD_SDS_ADD__INIT;

	c.name = cli_text(a, "name");
	c.control_address = cli_text(a, "address");
	return cli_command(a, PB__COMMAND__C_SDS_ADD, &c, "SDS \"%s\" added", c.name);
}

static const struct cli_opt remove_opts[] = {
	{CLI_SUBJECT("sds", "what to remove")},
	{0},
};

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

static json_t *row(const struct cli_facts *f, const void *object)
{
	const Pb__Sds *sds = object;

	return json_pack("{s:o, s:o, s:s, s:o, s:o, s:o, s:I, s:o}", "id", cli_json_number(sds->id),
			 "name", cli_json_text(sds->name), "state", state_of(sds),
			 "protection_domain", cli_json_text(cli_domain_name(f->map, sds->domain)),
			 "fault_set", cli_json_text(cli_fault_set_name(f->map, sds->fault_set)),
			 "address", cli_json_text(sds->control_address), "devices",
			 CLI_COUNT(f->map, devices, sds, sds->id), "uuid",
			 cli_json_uuid(&sds->uuid));
}

static const struct cli_object object = {
	CLI_IN_MAP(sdss), .noun = "SDS", .option = "sds", .kind = PB__KIND__KIND_SDS,
	.key = "sds",	  .cols = cols,	 .row = row,
};

const struct cli_verb cli_sds_verbs[] = {
	{"sds", "add", "Admits a data server",
	 "Start ashlar-sds on that server; it waits until it is admitted here.",
	 "ashlar sds add --name sds1 --protection-domain pd1 --fault-set rack1 --address 10.0.0.11:7072",
	 add_opts, add, NULL},
	{"sds", "list", "Lists data servers and their state", NULL, "ashlar sds list",
	 cli_list_opts, cli_list, &object},
	{"sds", "remove", "Removes a data server that has no devices", NULL,
	 "ashlar sds remove --sds sds1", remove_opts, cli_remove, &object},
	{0},
};
