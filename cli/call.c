// SPDX-License-Identifier: MIT
/* Requests to the MDM and what their answers have in common. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/base/uuid.h"

cli_call_fn *cli_call = ash_mgmt_call_sync;

Pb__Reply *cli_ask(const struct cli_args *a, const char *mdms, Pb__Request *req, bool any,
		   struct ash_error *ret_err)
{
	struct ash_mgmt_opts opts = {
		.mdms = mdms ? mdms : a->mdms, .role = "cli", .name = "ashlar"};

	*ret_err = ash_error_ok();
	return cli_call(&opts, req, any, a->timeout_ms, ret_err);
}

static Pb__Reply *query(const struct cli_args *a, Pb__Query *q, struct ash_error *ret_err)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__Reply *reply;
	bool map = !strcmp(q->what, "map");

	req.r_case = PB__REQUEST__R_QUERY;
	req.query = q;
	reply = cli_ask(a, NULL, &req, false, ret_err);
	if (!reply)
		return NULL;
	if (reply->r_case == PB__REPLY__R_QUERY && (!map || reply->query->map))
		return reply;
	*ret_err = ash_error_make(ASH_E_INTERNAL,
				  "the MDM's answer to the query \"%s\" lacks what was asked for; "
				  "is it of another version than this program?",
				  q->what);
	pb__reply__free_unpacked(reply, NULL);
	return NULL;
}

Pb__Reply *cli_query(const struct cli_args *a, const char *what, struct ash_error *ret_err)
{
	Pb__Query q = PB__QUERY__INIT;

	q.what = (char *)what;
	return query(a, &q, ret_err);
}

Pb__Reply *cli_query_events(const struct cli_args *a, uint64_t after, uint32_t limit,
			    struct ash_error *ret_err)
{
	Pb__Query q = PB__QUERY__INIT;

	q.what = (char *)"events";
	q.after = after;
	q.limit = limit;
	return query(a, &q, ret_err);
}

/* ---------------------------------------------------------------- changes */

static int show_change(const struct cli_args *a, const Pb__Reply *reply, const char *text)
{
	static const Pb__AdminReply none = PB__ADMIN_REPLY__INIT;
	const Pb__AdminReply *r = reply->r_case == PB__REPLY__R_ADMIN ? reply->admin : &none;

	if (a->json) {
		json_t *o = json_pack("{s:o, s:o}", "id", cli_json_number(r->id), "note",
				      cli_json_text(r->note));

		if (r->uuid.len == 16 && !ash_uuid_is_zero(r->uuid.data))
			json_object_set_new(o, "uuid", cli_json_uuid(&r->uuid));
		return cli_show_json(a, o);
	}
	fprintf(a->out, "%s\n", text);
	if (*r->note)
		fprintf(a->out, "note: %s\n", r->note);
	return 0;
}

int cli_change(const struct cli_args *a, Pb__Admin *admin, const char *what, ...)
{
	Pb__Request req = PB__REQUEST__INIT;
	struct ash_error err;
	Pb__Reply *reply;
	char text[400];
	va_list ap;
	int code;

	va_start(ap, what);
	vsnprintf(text, sizeof(text), what, ap);
	va_end(ap);
	req.r_case = PB__REQUEST__R_ADMIN;
	req.admin = admin;
	reply = cli_ask(a, NULL, &req, false, &err);
	if (!reply)
		return cli_fail(a, &err);
	code = show_change(a, reply, text);
	pb__reply__free_unpacked(reply, NULL);
	return code;
}

int cli_remove(const struct cli_args *a, Pb__Admin *admin, Pb__Kind kind, bool force,
	       const char *noun, const char *name)
{
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdRemove c = PB__CMD_REMOVE__INIT;

	c.kind = kind;
	c.force = force;
	cmd.c_case = PB__COMMAND__C_REMOVE;
	cmd.remove = &c;
	admin->command = &cmd;
	return cli_change(a, admin, "%s \"%s\" removed", noun, name);
}

/* ---------------------------------------------------------------- names */

#define NAME_OF(fn, list, count)                                                                   \
	const char *fn(const Pb__Map *map, uint64_t id)                                            \
	{                                                                                          \
		for (size_t i = 0; i < map->count; i++)                                            \
			if (map->list[i]->id == id)                                                \
				return map->list[i]->name;                                         \
		return "";                                                                         \
	}

NAME_OF(cli_domain_name, domains, n_domains)
NAME_OF(cli_fault_set_name, fault_sets, n_fault_sets)
NAME_OF(cli_sds_name, sdss, n_sdss)
NAME_OF(cli_pool_name, pools, n_pools)
NAME_OF(cli_volume_name, volumes, n_volumes)
NAME_OF(cli_sdc_name, sdcs, n_sdcs)
