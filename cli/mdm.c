// SPDX-License-Identifier: MIT
/* ashlar mdm */
#include "cli/cli.h"

static const struct cli_col cols[] = {
	{"NAME", "name", CLI_COL_TEXT},
	{"ROLE", "role", CLI_COL_TEXT},
	{"STATE", "state", CLI_COL_TEXT},
	{"REACHABLE", "reachable", CLI_COL_FLAG},
	{"ADDRESS", "client_address", CLI_COL_TEXT},
	{"RAFT", "raft_address", CLI_COL_TEXT},
	{0},
};

static json_t *row(const struct cli_facts *f, const void *object)
{
	const Pb__MdmStatus *m = object;
	bool tb = m->role == PB__MDM_ROLE__MDM_TIE_BREAKER;

	return json_pack("{s:o, s:o, s:s, s:o, s:b, s:o, s:o, s:o}", "id", cli_json_number(m->id),
			 "name", cli_json_text(m->name), "role", tb ? "tie-breaker" : "manager",
			 "state", cli_json_text(m->state), "reachable", m->reachable,
			 "client_address", cli_json_text(m->client_address), "raft_address",
			 cli_json_text(m->raft_address), "applied", cli_json_number(m->applied));
}

static const struct cli_object object = {CLI_IN_REPLY("mdm", mdms), .noun = "MDM", .key = "mdms",
					 .cols = cols, .row = row};

/* ---------------------------------------------------------------- changes */

static const struct cli_opt remove_opts[] = {
	{CLI_NEW_NAME("who goes")},
	{0},
};
static const struct cli_opt transfer_opts[] = {
	{CLI_NAME_OPT("to", "who shall lead (default: the one that is most up to date)")},
	{0},
};
static const struct cli_opt add_opts[] = {
	{CLI_NEW_NAME("as it was started")},
	{.name = "address",
	 .type = CLI_TEXT,
	 .arg = "IP:PORT",
	 .help = "where its clients reach it",
	 .required = true},
	{.name = "raft",
	 .type = CLI_TEXT,
	 .arg = "IP:PORT",
	 .help = "where MDMs reach it",
	 .required = true},
	{.name = "tie-breaker", .type = CLI_FLAG, .help = "it was started as one"},
	{0},
};

static int change(const struct cli_args *a, const char *op, Pb__MdmMember *member, const char *at,
		  struct ash_error *ret_err)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__MdmChange c = PB__MDM_CHANGE__INIT;
	Pb__Reply *reply;

	c.op = (char *)op;
	c.member = member;
	req.r_case = PB__REQUEST__R_MDM_CHANGE;
	req.mdm_change = &c;
	reply = cli_ask(a, at, &req, at != NULL, ret_err);
	if (!reply)
		return -1;
	pb__reply__free_unpacked(reply, NULL);
	return 0;
}

static int said(const struct cli_args *a, const char *text)
{
	if (a->json)
		return cli_show_json(a, json_pack("{s:s}", "done", text));
	fprintf(a->out, "%s\n", text);
	return 0;
}

static int transfer(const struct cli_args *a)
{
	Pb__MdmMember m = PB__MDM_MEMBER__INIT;
	struct ash_error err;

	m.name = cli_text(a, "to");
	if (change(a, "transfer", *m.name ? &m : NULL, NULL, &err))
		return cli_fail(a, &err);
	return said(a, "leadership handed on");
}

static int remove_mdm(const struct cli_args *a)
{
	Pb__MdmMember m = PB__MDM_MEMBER__INIT;
	struct ash_error err;

	m.name = cli_text(a, "name");
	if (change(a, "remove", &m, NULL, &err))
		return cli_fail(a, &err);
	return said(a, "removed; end its process");
}

/* Above all ids in use: the MDM raises its counter over it. */
static uint64_t free_id(const Pb__Map *map)
{
	uint64_t id = map->version;

	for (size_t i = 0; i < map->n_mdms; i++)
		id = map->mdms[i]->id > id ? map->mdms[i]->id : id;
	return id + 1;
}

/* First the new one learns its id and opens an empty log, then the leader takes it in. */
static int add(const struct cli_args *a)
{
	Pb__MdmMember m = PB__MDM_MEMBER__INIT;
	struct ash_error err;
	Pb__Reply *reply = cli_query(a, "map", &err);

	if (!reply)
		return cli_fail(a, &err);
	m.id = free_id(reply->query->map);
	m.name = cli_text(a, "name");
	m.client_address = cli_text(a, "address");
	m.raft_address = cli_text(a, "raft");
	m.role = cli_given(a, "tie-breaker") ? PB__MDM_ROLE__MDM_TIE_BREAKER
					     : PB__MDM_ROLE__MDM_MANAGER;
	pb__reply__free_unpacked(reply, NULL);
	if (change(a, "enter", &m, m.client_address, &err) || change(a, "add", &m, NULL, &err))
		return cli_fail(a, &err);
	return said(a, "added");
}

const struct cli_verb cli_mdm_verbs[] = {
	{"mdm", "list", "Lists the metadata managers, and which one leads", NULL, "ashlar mdm list",
	 cli_list_opts, cli_list, &object},
	{"mdm", "add", "Takes in a running ashlar-mdm that belongs to no system", NULL,
	 "ashlar mdm add --name mdm3 --address 10.0.0.3:6611 --raft 10.0.0.3:9011", add_opts, add,
	 NULL},
	{"mdm", "remove", "Takes a metadata manager out of the system", NULL,
	 "ashlar mdm remove --name mdm3", remove_opts, remove_mdm, NULL},
	{"mdm", "transfer", "Hands leadership to another metadata manager", NULL,
	 "ashlar mdm transfer --to mdm2", transfer_opts, transfer, NULL},
	{0},
};
