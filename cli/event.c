// SPDX-License-Identifier: MIT
/* ashlar event */
#include <time.h>

#include "cli/cli.h"

static const struct cli_opt list_opts[] = {
	{.name = "after",
	 .type = CLI_NUMBER,
	 .arg = "NUMBER",
	 .help = "only those with a higher number"},
	{.name = "limit",
	 .type = CLI_NUMBER,
	 .arg = "COUNT",
	 .help = "at most so many (default 100)",
	 .min = 1,
	 .max = 100000},
	{0},
};

static const struct cli_col cols[] = {
	{"NUMBER", "seq", CLI_COL_NUMBER},
	{"TIME", "time", CLI_COL_TEXT},
	{"SEVERITY", "severity", CLI_COL_TEXT},
	{"CODE", "code", CLI_COL_TEXT},
	{"OBJECT", "object", CLI_COL_TEXT},
	{"MESSAGE", "message", CLI_COL_TEXT},
	{0},
};

static const char *severity(Pb__Severity s)
{
	switch (s) {
	case PB__SEVERITY__SEV_INFO:
		return "info";
	case PB__SEVERITY__SEV_WARNING:
		return "warning";
	case PB__SEVERITY__SEV_ERROR:
		return "error";
	case PB__SEVERITY__SEV_CRITICAL:
		return "critical";
	default:
		return "unknown";
	}
}

static json_t *row(const struct cli_facts *f, const void *object)
{
	const Pb__Event *e = object;
	time_t seconds = (time_t)(e->unix_ms / 1000);
	char when[32] = "";
	struct tm tm;

	if (gmtime_r(&seconds, &tm))
		strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
	return json_pack("{s:o, s:s, s:o, s:s, s:o, s:o, s:o}", "seq", cli_json_number(e->seq),
			 "time", when, "unix_ms", cli_json_number(e->unix_ms), "severity",
			 severity(e->severity), "code", cli_json_text(e->code), "object",
			 cli_json_text(e->object), "message", cli_json_text(e->message));
}

static const struct cli_object object = {CLI_IN_REPLY("events", events), .noun = "event",
					 .key = "events", .cols = cols, .row = row};

const struct cli_verb cli_event_verbs[] = {
	{"event", "list", "Shows what happened, oldest first", NULL,
	 "ashlar event list --after 120 --json", list_opts, cli_list, &object},
	{0},
};
