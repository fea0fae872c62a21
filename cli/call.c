// SPDX-License-Identifier: MIT
/* Requests to the MDM, all within the time that the command has. */
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "common/base/uuid.h"

/* A new leader is there within seconds, or not at all. */
#define LEADER_MS 5000
#define POLL_MS 100

/* ---------------------------------------------------------------- time */

static uint64_t monotonic_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

cli_call_fn *cli_call = ash_mgmt_call_sync;
cli_clock_fn *cli_now_ms = monotonic_ms;

uint32_t cli_left_ms(const struct cli_args *a)
{
	uint64_t now = cli_now_ms();

	return a->deadline_ms > now ? (uint32_t)(a->deadline_ms - now) : 0;
}

struct cli_args cli_within(const struct cli_args *a, uint32_t ms)
{
	struct cli_args step = *a;

	if (cli_left_ms(a) > ms)
		step.deadline_ms = cli_now_ms() + ms;
	return step;
}

bool cli_pause(const struct cli_args *a)
{
	const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};

	if (cli_left_ms(a) <= POLL_MS)
		return false;
	nanosleep(&pause, NULL);
	return true;
}

/* ---------------------------------------------------------------- questions */

Pb__Reply *cli_ask(const struct cli_args *a, const char *mdms, Pb__Request *req, bool any,
		   struct ash_error *ret_err)
{
	struct ash_mgmt_opts opts = {
		.mdms = mdms ? mdms : a->mdms, .role = "cli", .name = "ashlar"};
	uint32_t left = cli_left_ms(a);

	*ret_err = ash_error_ok();
	if (left)
		return cli_call(&opts, req, any, left, ret_err);
	*ret_err = ash_error_make(ASH_E_UNREACHABLE,
				  "the %u s of --timeout are over; the last request of this "
				  "command was not sent",
				  a->timeout_ms / 1000);
	return NULL;
}

static Pb__Reply *query(const struct cli_args *a, const char *what, bool any,
			struct ash_error *ret_err)
{
	Pb__Query q = PB__QUERY__INIT;
	Pb__Request req = PB__REQUEST__INIT;
	bool map = !strcmp(what, "map"), events = !strcmp(what, "events");
	Pb__Reply *reply;

	q.what = (char *)what;
	if (events && cli_has(a, "after"))
		q.after = cli_number(a, "after");
	if (events && cli_has(a, "limit"))
		q.limit = (uint32_t)cli_number(a, "limit");
	req.r_case = PB__REQUEST__R_QUERY;
	req.query = &q;
	reply = cli_ask(a, NULL, &req, any, ret_err);
	if (!reply)
		return NULL;
	if (reply->r_case == PB__REPLY__R_QUERY && (!map || reply->query->map))
		return reply;
	*ret_err = ash_error_make(ASH_E_INTERNAL,
				  "the MDM's answer to the query \"%s\" lacks what was asked for; "
				  "is it of another version than this program?",
				  what);
	pb__reply__free_unpacked(reply, NULL);
	return NULL;
}

Pb__Reply *cli_query(const struct cli_args *a, const char *what, struct ash_error *ret_err)
{
	return query(a, what, false, ret_err);
}

Pb__Reply *cli_query_any(const struct cli_args *a, const char *what,
			 struct ash_error *ret_no_leader, struct ash_error *ret_err)
{
	uint32_t half = cli_left_ms(a) / 2;
	struct cli_args first = cli_within(a, half < LEADER_MS ? half : LEADER_MS);
	Pb__Reply *reply = query(&first, what, false, ret_err);
	struct cli_args second = cli_within(a, LEADER_MS);

	*ret_no_leader = ash_error_ok();
	/* It ends before its time when the answer is no, or when nobody is there at all. */
	if (reply || ret_err->code != ASH_E_UNREACHABLE || cli_left_ms(&first))
		return reply;
	*ret_no_leader = *ret_err;
	reply = query(&second, what, true, ret_err);
	if (reply)
		return reply;
	/* What an MDM has against answering tells more than that none leads. */
	if (ret_err->code != ASH_E_UNREACHABLE)
		ash_error_wrap(ret_err, "%.300s; ", ret_no_leader->message);
	else
		*ret_err = *ret_no_leader;
	ret_err->code = ASH_E_UNREACHABLE;
	return NULL;
}

/* ---------------------------------------------------------------- changes */

int cli_show_change(const struct cli_args *a, const Pb__Reply *reply, const char *text)
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

static void name_objects(const struct cli_args *a, Pb__Admin *admin)
{
	const struct {
		const char *option;
		char **name;
	} names[] = {
		{"protection-domain", &admin->domain},
		{"fault-set", &admin->fault_set},
		{"sds", &admin->sds},
		{"device", &admin->device},
		{"pool", &admin->pool},
		{"volume", &admin->volume},
		{"sdc", &admin->sdc},
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (cli_has(a, names[i].option))
			*names[i].name = cli_text(a, names[i].option);
}

Pb__Reply *cli_change(const struct cli_args *a, Pb__Command__CCase c_case, void *body,
		      struct ash_error *ret_err)
{
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__Admin admin = PB__ADMIN__INIT;
	Pb__Request req = PB__REQUEST__INIT;

	cmd.c_case = c_case;
	cmd.domain_add = body; /* bodies share one place */
	admin.command = &cmd;
	name_objects(a, &admin);
	req.r_case = PB__REQUEST__R_ADMIN;
	req.admin = &admin;
	return cli_ask(a, NULL, &req, false, ret_err);
}

int cli_command(const struct cli_args *a, Pb__Command__CCase c_case, void *body, const char *what,
		...)
{
	struct ash_error err;
	Pb__Reply *reply;
	char text[400];
	va_list ap;
	int code;

	va_start(ap, what);
	vsnprintf(text, sizeof(text), what, ap);
	va_end(ap);
	reply = cli_change(a, c_case, body, &err);
	if (!reply)
		return cli_fail(a, &err);
	code = cli_show_change(a, reply, text);
	pb__reply__free_unpacked(reply, NULL);
	return code;
}
