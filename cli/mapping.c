// SPDX-License-Identifier: MIT
/* ashlar mapping */
#include "cli/cli.h"

static const struct cli_col cols[] = {
	{"VOLUME", "volume", CLI_COL_TEXT},
	{"SDC", "sdc", CLI_COL_TEXT},
	{"READ-ONLY", "read_only", CLI_COL_FLAG},
	{"SHARED", "shared", CLI_COL_FLAG},
	{0},
};

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
	for (size_t i = 0; i < map->n_mappings; i++) {
		const Pb__Mapping *m = map->mappings[i];

		json_array_append_new(
			rows, json_pack("{s:o, s:o, s:o, s:b, s:b, s:o, s:o}", "id",
					cli_json_number(m->id), "volume",
					cli_json_text(cli_volume_name(map, m->volume)), "sdc",
					cli_json_text(cli_sdc_name(map, m->sdc)), "read_only",
					m->read_only, "shared", m->shared, "iops_limit",
					cli_json_number(m->iops_limit), "bandwidth_limit_bytes",
					cli_json_number(m->bw_limit)));
	}
	pb__reply__free_unpacked(reply, NULL);
	return cli_show_list(a, "mappings", rows, cols);
}

const struct cli_verb cli_mapping_verbs[] = {
	{"mapping", "list", "Lists which volume is mapped to which client", NULL,
	 "ashlar mapping list", NULL, list},
	{0},
};
