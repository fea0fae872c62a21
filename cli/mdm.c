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

static int list(const struct cli_args *a)
{
	struct ash_error err;
	Pb__Reply *reply = cli_query(a, "mdm", &err);
	json_t *rows;

	if (!reply)
		return cli_fail(a, &err);
	rows = json_array();
	for (size_t i = 0; i < reply->query->n_mdms; i++) {
		const Pb__MdmStatus *m = reply->query->mdms[i];
		bool tb = m->role == PB__MDM_ROLE__MDM_TIE_BREAKER;

		json_array_append_new(
			rows, json_pack("{s:o, s:o, s:s, s:o, s:b, s:o, s:o, s:o}", "id",
					cli_json_number(m->id), "name", cli_json_text(m->name),
					"role", tb ? "tie-breaker" : "manager", "state",
					cli_json_text(m->state), "reachable", m->reachable,
					"client_address", cli_json_text(m->client_address),
					"raft_address", cli_json_text(m->raft_address), "applied",
					cli_json_number(m->applied)));
	}
	pb__reply__free_unpacked(reply, NULL);
	return cli_show_list(a, "mdms", rows, cols);
}

const struct cli_verb cli_mdm_verbs[] = {
	{"mdm", "list", "Lists the metadata managers, and which one leads", NULL, "ashlar mdm list",
	 NULL, list},
	{0},
};
