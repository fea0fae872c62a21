// SPDX-License-Identifier: MIT
/*
 * ashlar system. Creation gives the same list of members, with the same UUID, to each of them; they
 * elect a leader, which makes the system. Whoever belongs to a system already tells its UUID, so
 * that an interrupted creation can be given again and ends as the same system.
 */
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "cli/cli.h"
#include "common/base/name.h"
#include "common/base/uuid.h"

#define MEMBERS_MAX 5
#define STEP_MS 5000

static const struct cli_opt create_opts[] = {
	{.name = "name",
	 .type = CLI_NAME,
	 .arg = "NAME",
	 .help = "of the new system",
	 .required = true},
	{.name = "mdm",
	 .type = CLI_TEXT,
	 .arg = "NAME=IP:PORT/IP:RAFTPORT",
	 .many = true,
	 .required = true,
	 .help = "a metadata manager"},
	{.name = "tb",
	 .type = CLI_TEXT,
	 .arg = "NAME=IP:PORT/IP:RAFTPORT",
	 .many = true,
	 .help = "a tie-breaker"},
	{.name = "lease",
	 .type = CLI_NUMBER,
	 .arg = "MS",
	 .min = 100,
	 .max = 10000,
	 .help = "of replicas; fixed for ever (default 600)"},
	{0},
};

struct creation {
	Pb__MdmMember member[MEMBERS_MAX], *list[MEMBERS_MAX];
	char name[MEMBERS_MAX][ASH_NAME_MAX + 1];
	char client[MEMBERS_MAX][256];
	size_t count;
	uint8_t uuid[16];
	bool known; /* uuid is that of a system begun before */
	char all[MEMBERS_MAX * 256];
};

/* ---------------------------------------------------------------- the list */

static struct ash_error bad_member(const char *option, const char *text)
{
	return ash_error_make(ASH_E_USAGE,
			      "--%s %.200s: give NAME=IP:PORT/IP:RAFTPORT as in "
			      "mdm1=10.0.0.1:6611/10.0.0.1:9011",
			      option, text);
}

static struct ash_error add_member(struct creation *c, const char *option, Pb__MdmRole role,
				   const char *text)
{
	const char *equals = strchr(text, '='), *slash = equals ? strchr(equals, '/') : NULL;
	size_t name = equals ? (size_t)(equals - text) : 0, i = c->count;
	size_t client = slash ? (size_t)(slash - equals - 1) : 0;
	struct ash_error err;

	if (c->count == MEMBERS_MAX)
		return ash_error_make(ASH_E_USAGE, "more than %d MDMs are given", MEMBERS_MAX);
	if (!name || name > ASH_NAME_MAX || !client || client >= sizeof(c->client[0]) ||
	    !strchr(slash, ':') || !memchr(equals, ':', client))
		return bad_member(option, text);
	memcpy(c->name[i], text, name);
	memcpy(c->client[i], equals + 1, client);
	err = ash_name_check("MDM", c->name[i]);
	if (ash_failed(&err))
		return bad_member(option, text);
	pb__mdm_member__init(&c->member[i]);
	c->member[i].id = i + 1;
	c->member[i].role = role;
	c->member[i].name = c->name[i];
	c->member[i].client_address = c->client[i];
	c->member[i].raft_address = (char *)slash + 1;
	c->list[i] = &c->member[i];
	c->count++;
	snprintf(c->all + strlen(c->all), sizeof(c->all) - strlen(c->all), "%s%s", i ? "," : "",
		 c->client[i]);
	return ash_error_ok();
}

static struct ash_error read_members(const struct cli_args *a, struct creation *c)
{
	const struct cli_value *mdm = cli_value(a, "mdm"), *tb = cli_value(a, "tb");
	struct ash_error err = ash_error_ok();

	for (size_t i = 0; i < mdm->count && !ash_failed(&err); i++)
		err = add_member(c, "mdm", PB__MDM_ROLE__MDM_MANAGER, mdm->list[i]);
	for (size_t i = 0; i < tb->count && !ash_failed(&err); i++)
		err = add_member(c, "tb", PB__MDM_ROLE__MDM_TIE_BREAKER, tb->list[i]);
	return err;
}

/* ---------------------------------------------------------------- asking all */

static Pb__Reply *ask_member(const struct cli_args *a, const struct creation *c, size_t i,
			     Pb__Request *req, struct ash_error *ret_err)
{
	struct cli_args step = cli_within(a, STEP_MS);
	Pb__Reply *reply;

	reply = cli_ask(&step, c->client[i], req, true, ret_err);
	if (!reply)
		ash_error_wrap(ret_err, "MDM \"%s\": ", c->name[i]);
	return reply;
}

static struct ash_error look_at(struct creation *c, size_t i, const Pb__Reply *reply)
{
	const Pb__HelloReply *h = reply->r_case == PB__REPLY__R_HELLO ? reply->hello : NULL;

	if (!h)
		return ash_error_make(ASH_E_INTERNAL, "MDM \"%s\" did not answer HELLO with one",
				      c->name[i]);
	if (h->system.len != 16 || ash_uuid_is_zero(h->system.data))
		return ash_error_ok();
	if (c->known && !ash_uuid_equal(c->uuid, h->system.data))
		return ash_error_make(ASH_E_EXISTS,
				      "MDM \"%s\" belongs to another system than the MDMs named "
				      "before it; a new system needs MDMs with empty state "
				      "directories",
				      c->name[i]);
	memcpy(c->uuid, h->system.data, 16);
	c->known = true;
	return ash_error_ok();
}

/* All must be there before anything is begun. */
static struct ash_error look_at_all(const struct cli_args *a, struct creation *c)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__Hello hello = PB__HELLO__INIT;
	struct ash_error err = ash_error_ok();
	uint64_t random[2];

	hello.version_min = hello.version_max = 1;
	hello.role = (char *)"cli";
	req.r_case = PB__REQUEST__R_HELLO;
	req.hello = &hello;
	for (size_t i = 0; i < c->count && !ash_failed(&err); i++) {
		Pb__Reply *reply = ask_member(a, c, i, &req, &err);

		if (!reply)
			break;
		err = look_at(c, i, reply);
		pb__reply__free_unpacked(reply, NULL);
	}
	if (ash_failed(&err) || c->known)
		return err;
	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return ash_error_make(ASH_E_INTERNAL, "no random numbers: %s", strerror(errno));
	ash_uuid_from_random(random[0], random[1], c->uuid);
	return err;
}

/*
 * A member that took the list at an earlier try answers with the UUID it got then. The first one's
 * holds for those after it; two different ones cannot be mended from here.
 */
static struct ash_error compare_uuid(struct creation *c, size_t i, const Pb__Reply *reply)
{
	const Pb__AdminReply *r = reply->r_case == PB__REPLY__R_ADMIN ? reply->admin : NULL;

	if (!r || r->uuid.len != 16 || ash_uuid_is_zero(r->uuid.data) ||
	    ash_uuid_equal(r->uuid.data, c->uuid))
		return ash_error_ok();
	if (i)
		return ash_error_make(
			ASH_E_STATE,
			"MDM \"%s\" took part in another creation than the MDMs named "
			"before it; stop all of them, empty their state directories, "
			"start them and give the command again",
			c->name[i]);
	memcpy(c->uuid, r->uuid.data, 16);
	return ash_error_ok();
}

static struct ash_error tell_all(const struct cli_args *a, struct creation *c)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__Admin admin = PB__ADMIN__INIT;
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdSystemCreate create = PB__CMD_SYSTEM_CREATE__INIT;
	struct ash_error err = ash_error_ok();

	create.name = cli_text(a, "name");
	create.uuid = (ProtobufCBinaryData){16, c->uuid};
	create.lease_ms = (uint32_t)cli_number(a, "lease");
	create.mdms = c->list;
	create.n_mdms = c->count;
	cmd.c_case = PB__COMMAND__C_SYSTEM_CREATE;
	cmd.system_create = &create;
	admin.command = &cmd;
	req.r_case = PB__REQUEST__R_ADMIN;
	req.admin = &admin;
	for (size_t i = 0; i < c->count && !ash_failed(&err); i++) {
		Pb__Reply *reply = ask_member(a, c, i, &req, &err);

		if (!reply)
			break;
		err = compare_uuid(c, i, reply);
		pb__reply__free_unpacked(reply, NULL);
	}
	if (ash_failed(&err) && ash_code_exit(err.code) == 3)
		ash_error_wrap(&err, "not all MDMs have the list; give the command again: ");
	return err;
}

/* ---------------------------------------------------------------- until it is there */

/* An answer to "create" means that the list is taken, not that a leader has made the system. */
static Pb__Reply *wait_for_system(const struct cli_args *a, const struct creation *c,
				  struct ash_error *ret_err)
{
	do {
		struct cli_args step = cli_within(a, STEP_MS);
		Pb__Reply *reply;

		step.mdms = c->all;
		reply = cli_query(&step, "map", ret_err);
		if (reply && reply->query->map->system)
			return reply;
		if (reply)
			pb__reply__free_unpacked(reply, NULL);
	} while (cli_pause(a));
	if (!ash_failed(ret_err))
		*ret_err = ash_error_make(ASH_E_UNREACHABLE, "no leader has made the system");
	ash_error_wrap(ret_err,
		       "all MDMs have the list, but the system is not there after %u s; see their "
		       "logs, and give the command again: ",
		       a->timeout_ms / 1000);
	return NULL;
}

static const struct cli_col cols[] = {
	{"Name", "name", CLI_COL_TEXT},
	{"UUID", "uuid", CLI_COL_TEXT},
	{"Metadata managers", "mdms", CLI_COL_LIST},
	{"Lease (ms)", "lease_ms", CLI_COL_NUMBER},
	{"SDS fails after (ms)", "fail_after_ms", CLI_COL_NUMBER},
	{"Protection domains", "protection_domains", CLI_COL_NUMBER},
	{"SDSs", "sds", CLI_COL_NUMBER},
	{"Devices", "devices", CLI_COL_NUMBER},
	{"Volumes", "volumes", CLI_COL_NUMBER},
	{"SDCs", "sdcs", CLI_COL_NUMBER},
	{"Map version", "map_version", CLI_COL_NUMBER},
	{0},
};

static json_t *to_json(const Pb__Map *map)
{
	const Pb__System *s = map->system;
	json_t *mdms = json_array();

	for (size_t i = 0; i < map->n_mdms; i++)
		json_array_append_new(mdms, cli_json_text(map->mdms[i]->name));
	return json_pack("{s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "name",
			 cli_json_text(s->name), "uuid", cli_json_uuid(&s->uuid), "mdms", mdms,
			 "lease_ms", (json_int_t)s->lease_ms, "fail_after_ms",
			 (json_int_t)s->fail_after_ms, "protection_domains",
			 (json_int_t)map->n_domains, "sds", (json_int_t)map->n_sdss, "devices",
			 (json_int_t)map->n_devices, "volumes", (json_int_t)map->n_volumes, "sdcs",
			 (json_int_t)map->n_sdcs, "map_version", cli_json_number(map->version));
}

static int create(const struct cli_args *a)
{
	struct creation c = {0};
	struct ash_error err = read_members(a, &c);
	Pb__Reply *reply;
	int code;

	if (!ash_failed(&err))
		err = look_at_all(a, &c);
	if (!ash_failed(&err))
		err = tell_all(a, &c);
	if (ash_failed(&err))
		return cli_fail(a, &err);
	reply = wait_for_system(a, &c, &err);
	if (!reply)
		return cli_fail(a, &err);
	if (!a->json)
		fprintf(a->out, "system \"%s\" created; set ASHLAR_MDM=%s\n", cli_text(a, "name"),
			c.all);
	code = cli_show_object(a, to_json(reply->query->map), cols);
	pb__reply__free_unpacked(reply, NULL);
	return code;
}

static int show(const struct cli_args *a)
{
	struct ash_error err;
	Pb__Reply *reply = cli_query(a, "map", &err);
	int code;

	if (!reply)
		return cli_fail(a, &err);
	if (reply->query->map->system) {
		code = cli_show_object(a, to_json(reply->query->map), cols);
	} else {
		err = ash_error_make(ASH_E_STATE, "there is no system here yet; run `ashlar system "
						  "create` first");
		code = cli_fail(a, &err);
	}
	pb__reply__free_unpacked(reply, NULL);
	return code;
}

const struct cli_verb cli_system_verbs[] = {
	{"system", "create", "Makes a system out of metadata managers that were started",
	 "Start ashlar-mdm on 1, 3 or 5 servers first (a tie-breaker with --tie-breaker); they wait\n"
	 "for this. Interrupted, it can be given again.",
	 "ashlar system create --name prod --mdm mdm1=10.0.0.1:6611/10.0.0.1:9011 \\\n"
	 "    --mdm mdm2=10.0.0.2:6611/10.0.0.2:9011 --tb tb1=10.0.0.3:6611/10.0.0.3:9011",
	 create_opts, create, NULL},
	{"system", "show", "Shows the system and how much it has", NULL, "ashlar system show", NULL,
	 show, NULL},
	{0},
};
