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

static json_t *row(const struct cli_facts *f, const void *object)
{
	const Pb__Mapping *m = object;

	return json_pack("{s:o, s:o, s:o, s:b, s:b, s:o, s:o}", "id", cli_json_number(m->id),
			 "volume", cli_json_text(cli_volume_name(f->map, m->volume)), "sdc",
			 cli_json_text(cli_sdc_name(f->map, m->sdc)), "read_only", m->read_only,
			 "shared", m->shared, "iops_limit", cli_json_number(m->iops_limit),
			 "bandwidth_limit_bytes", cli_json_number(m->bw_limit));
}

static const struct cli_object object = {CLI_IN_MAP(mappings), .noun = "mapping", .key = "mappings",
					 .cols = cols, .row = row};

const struct cli_verb cli_mapping_verbs[] = {
	{"mapping", "list", "Lists which volume is mapped to which client", NULL,
	 "ashlar mapping list", NULL, cli_list, &object},
	{0},
};
