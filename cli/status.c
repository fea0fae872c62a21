// SPDX-License-Identifier: MIT
/* ashlar status: is all well, and if not, why. */
#include <string.h>

#include "cli/cli.h"
#include "common/base/size.h"

static const char *health_name(Pb__Health health)
{
	switch (health) {
	case PB__HEALTH__HEALTH_OK:
		return "ok";
	case PB__HEALTH__HEALTH_DEGRADED:
		return "degraded";
	default:
		return "failed";
	}
}

static json_t *capacity(const Pb__CapacityUse *c)
{
	static const Pb__CapacityUse none = PB__CAPACITY_USE__INIT;

	c = c ? c : &none;
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "raw", cli_json_number(c->raw), "spare",
			 cli_json_number(c->spare), "used", cli_json_number(c->used), "usable",
			 cli_json_number(c->usable), "free", cli_json_number(c->free),
			 "provisioned", cli_json_number(c->provisioned));
}

static json_t *resync(const Pb__QueryReply *q)
{
	uint64_t done = 0, left = 0;

	for (size_t i = 0; i < q->n_resync; i++) {
		done += q->resync[i]->done;
		left += q->resync[i]->left;
	}
	return json_pack("{s:I, s:o, s:o}", "pgs", (json_int_t)q->n_resync, "done",
			 cli_json_number(done), "left", cli_json_number(left));
}

static json_t *to_json(const Pb__QueryReply *q)
{
	json_t *reasons = json_array();

	for (size_t i = 0; i < q->n_reasons; i++)
		json_array_append_new(reasons, cli_json_text(q->reasons[i]));
	return json_pack("{s:s, s:o, s:I, s:I, s:I, s:o, s:o, s:o}", "health",
			 health_name(q->health), "reasons", reasons, "pgs", (json_int_t)q->pgs,
			 "degraded_pgs", (json_int_t)q->degraded_pgs, "failed_pgs",
			 (json_int_t)q->failed_pgs, "capacity", capacity(q->capacity), "resync",
			 resync(q), "leader", cli_json_text(q->leader));
}

static const struct cli_col cols[] = {
	{"Health", "health", CLI_COL_TEXT},
	{"Leading MDM", "leader", CLI_COL_TEXT},
	{"Placement groups", "pgs", CLI_COL_NUMBER},
	{"  with one copy", "degraded_pgs", CLI_COL_NUMBER},
	{"  without any", "failed_pgs", CLI_COL_NUMBER},
	{0},
};

static const struct cli_col capacity_cols[] = {
	{"Raw capacity", "raw", CLI_COL_SIZE},
	{"  kept as spare", "spare", CLI_COL_SIZE},
	{"Usable, 2 copies", "usable", CLI_COL_SIZE},
	{"  used", "used", CLI_COL_SIZE},
	{"  free", "free", CLI_COL_SIZE},
	{"  provisioned", "provisioned", CLI_COL_SIZE},
	{0},
};

/* As wide as those above: one block for the eye. */
static const struct cli_col resync_cols[] = {
	{"Being resynced  ", "pgs", CLI_COL_NUMBER},
	{"  done", "done", CLI_COL_SIZE},
	{"  left", "left", CLI_COL_SIZE},
	{0},
};

static void for_people(const struct cli_args *a, const json_t *status)
{
	const json_t *reasons = json_object_get(status, "reasons"), *item;
	const json_t *resync = json_object_get(status, "resync");
	size_t i;

	cli_fields(a->out, status, cols);
	cli_fields(a->out, json_object_get(status, "capacity"), capacity_cols);
	if (json_integer_value(json_object_get(resync, "pgs")))
		cli_fields(a->out, resync, resync_cols);
	if (json_array_size(reasons))
		fputs("Worth knowing:\n", a->out);
	json_array_foreach(reasons, i, item) fprintf(a->out, "  - %s\n", json_string_value(item));
}

/* An MDM that does not lead hears nothing from the servers: what it has is the map. */
static void as_known_without_leader(json_t *status, const struct ash_error *no_leader)
{
	static const char *const unknown[] = {"used", "free"};
	json_t *reasons = json_object_get(status, "reasons");

	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
		json_object_set_new(json_object_get(status, "capacity"), unknown[i], json_null());
	json_object_del(status, "resync");
	if (!strcmp(json_string_value(json_object_get(status, "health")), "ok"))
		json_object_set_new(status, "health", json_string("degraded"));
	json_array_insert_new(
		reasons, 0,
		json_string(
			"no MDM leads, as far as can be seen from here: until one does, nothing "
			"can be changed and no failure of a server is acted on"));
	json_object_set_new(status, "error", cli_json_error(no_leader));
}

static int status(const struct cli_args *a)
{
	struct ash_error err, no_leader;
	Pb__Reply *reply = cli_query_any(a, "status", &no_leader, &err);
	json_t *value;
	int code;

	if (!reply)
		return cli_fail(a, &err);
	value = to_json(reply->query);
	pb__reply__free_unpacked(reply, NULL);
	if (ash_failed(&no_leader)) {
		as_known_without_leader(value, &no_leader);
		fprintf(stderr, "ashlar: %s\n", no_leader.message);
	}
	if (a->json) {
		code = cli_show_json(a, value);
	} else {
		for_people(a, value);
		json_decref(value);
		code = cli_written(a);
	}
	return code ? code : ash_code_exit(no_leader.code);
}

const struct cli_verb cli_status_verbs[] = {
	{"status", "", "Health of the system, and the reasons when it is not well",
	 "The exit code tells whether the leading MDM answered, not whether the system is well;\n"
	 "programs look at \"health\": ok, degraded or failed. When no MDM leads, any that answers\n"
	 "tells what it knows, and the exit code is 3.",
	 "ashlar status --json", NULL, status, NULL},
	{0},
};
