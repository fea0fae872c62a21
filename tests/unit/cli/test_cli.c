// SPDX-License-Identifier: MIT
/* The command line against an MDM of canned answers: what is sent, what is printed, what is
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/cli.h"
#include "common/base/clean.h"

#define MAX_SENT 32
#define GIB (1024ull * 1024 * 1024)
#define GUID "6ba7b810-9dad-41d1-80b4-00c04fd430c8"

static struct {
	Pb__Request *sent[MAX_SENT];
	char to[MAX_SENT][256];
	size_t count;
	uint32_t timeout_ms[MAX_SENT];
	struct ash_error refuse;
	bool no_leader, no_system;
	uint64_t now_ms, takes_ms; /* a request: the time passes in here only */
	uint8_t member_system[16]; /* what HELLO says */
	uint8_t took_system[16];   /* what the answer to the list says */
	size_t took_from;	   /* from this request on */
	size_t resyncs;		   /* under way, at most 2 */
} fake;

static uint8_t system_uuid[16] = {1, 2, 3};

static Pb__QueryReply *status_reply(void)
{
	static Pb__CapacityUse cap;
	static Pb__VolumeUse use;
	static Pb__VolumeUse *uses[] = {&use};
	static Pb__PgProgress progress;
	static Pb__PgProgress *progresses[] = {&progress, &progress};
	static Pb__QueryReply q;
	static char reason[] = "SDS \"sds2\" is down";
	static char *reasons[] = {reason};

	pb__capacity_use__init(&cap);
	cap.raw = 8 * GIB;
	cap.usable = 3 * GIB;
	pb__volume_use__init(&use);
	use.volume = 7;
	use.allocated = 5 << 20;
	pb__query_reply__init(&q);
	q.health = PB__HEALTH__HEALTH_DEGRADED;
	q.n_reasons = 1;
	q.reasons = reasons;
	q.capacity = &cap;
	q.n_volumes = 1;
	q.volumes = uses;
	q.pgs = 256;
	q.degraded_pgs = 3;
	pb__pg_progress__init(&progress);
	progress.done = 1 << 20;
	progress.left = 3 << 20;
	q.n_resync = fake.resyncs;
	q.resync = progresses;
	return &q;
}

static Pb__QueryReply *map_reply(void)
{
	static Pb__System sys;
	static Pb__Pool pool;
	static Pb__Policy rebuild;
	static Pb__Volume vol;
	static Pb__Device dev;
	static Pb__Map map;
	static Pb__QueryReply q;
	static Pb__Pool *pools[] = {&pool};
	static Pb__Volume *vols[] = {&vol};
	static Pb__Device *devs[] = {&dev};
	static char pool_name[] = "pool1", vol_name[] = "v1", dev_name[] = "sds1-d1";
	static char path[] = "/dev/a\x1b[2J";

	pb__system__init(&sys);
	sys.uuid = (ProtobufCBinaryData){16, system_uuid};
	pb__policy__init(&rebuild);
	rebuild.kind = PB__POLICY_KIND__POLICY_FAVOR_APP;
	rebuild.concurrent_per_device = 4;
	pb__pool__init(&pool);
	pool.id = 5;
	pool.name = pool_name;
	pool.rebuild = &rebuild;
	pb__volume__init(&vol);
	vol.id = 7;
	vol.name = vol_name;
	vol.pool = 5;
	vol.size = GIB;
	vol.thin = true;
	pb__device__init(&dev);
	dev.id = 9;
	dev.name = dev_name;
	dev.path = path;
	dev.state = PB__DEVICE_STATE__DEVICE_UP;
	pb__map__init(&map);
	map.system = fake.no_system ? NULL : &sys;
	map.pools = pools;
	map.volumes = vols;
	map.devices = devs;
	map.n_pools = map.n_volumes = map.n_devices = 1;
	pb__query_reply__init(&q);
	q.map = &map;
	return &q;
}

/* As it would come off the wire. */
static Pb__Reply *copy_reply(const Pb__Reply *reply)
{
	size_t n = pb__reply__get_packed_size(reply);
	ash_auto_free uint8_t *bytes = malloc(n + 1);

	pb__reply__pack(reply, bytes);
	return pb__reply__unpack(NULL, n, bytes);
}

static Pb__Reply *answer(const Pb__Request *req)
{
	Pb__Reply reply = PB__REPLY__INIT;
	Pb__AdminReply admin = PB__ADMIN_REPLY__INIT;
	Pb__HelloReply hello = PB__HELLO_REPLY__INIT;

	if (req->r_case == PB__REQUEST__R_QUERY) {
		reply.r_case = PB__REPLY__R_QUERY;
		reply.query = strcmp(req->query->what, "map") ? status_reply() : map_reply();
	} else if (req->r_case == PB__REQUEST__R_HELLO) {
		reply.r_case = PB__REPLY__R_HELLO;
		reply.hello = &hello;
		if (fake.member_system[0])
			hello.system = (ProtobufCBinaryData){16, fake.member_system};
	} else {
		reply.r_case = PB__REPLY__R_ADMIN;
		reply.admin = &admin;
		admin.id = 42;
		if (fake.took_system[0] && fake.count >= fake.took_from)
			admin.uuid = (ProtobufCBinaryData){16, fake.took_system};
	}
	return copy_reply(&reply);
}

static Pb__Reply *fake_call(const struct ash_mgmt_opts *opts, Pb__Request *req, bool any,
			    uint32_t timeout_ms, struct ash_error *ret_err)
{
	size_t n = pb__request__get_packed_size(req);
	ash_auto_free uint8_t *bytes = malloc(n + 1);

	assert_true(fake.count < MAX_SENT);
	assert_true(timeout_ms > 0);
	pb__request__pack(req, bytes);
	fake.timeout_ms[fake.count] = timeout_ms;
	fake.now_ms += fake.takes_ms < timeout_ms ? fake.takes_ms : timeout_ms;
	snprintf(fake.to[fake.count], sizeof(fake.to[0]), "%s", opts->mdms ? opts->mdms : "");
	fake.sent[fake.count] = pb__request__unpack(NULL, n, bytes);
	assert_non_null(fake.sent[fake.count++]);
	if (ash_failed(&fake.refuse)) {
		*ret_err = fake.refuse;
		return NULL;
	}
	if (fake.no_leader && !any) {
		fake.now_ms += timeout_ms;
		*ret_err = ash_error_make(ASH_E_UNREACHABLE, "no MDM leads: mdm1 is follower");
		return NULL;
	}
	return answer(req);
}

static uint64_t fake_now_ms(void)
{
	return fake.now_ms;
}

static int setup(void **state)
{
	memset(&fake, 0, sizeof(fake));
	cli_call = fake_call;
	cli_now_ms = fake_now_ms;
	return 0;
}

static int teardown(void **state)
{
	for (size_t i = 0; i < fake.count; i++)
		pb__request__free_unpacked(fake.sent[i], NULL);
	return 0;
}

/* Runs "ashlar <line>"; words are cut at blanks. Returns what it printed; free it. */
static char *run(const char *line, int want)
{
	char *copy = ash_xstrdup(line), *rest = copy, *word, *text = NULL;
	char *argv[64] = {(char *)"ashlar"};
	int argc = 1, code;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	while ((word = strsep(&rest, " ")) && argc < 63)
		argv[argc++] = word;
	code = cli_run(argc, argv, out);
	fclose(out);
	free(copy);
	if (code != want)
		print_error("ashlar %s: exit code %d, wanted %d\n", line, code, want);
	assert_int_equal(code, want);
	return text;
}

static json_t *run_json(const char *line)
{
	ash_auto_free char *text = run(line, 0);
	json_t *value = json_loads(text, 0, NULL);

	assert_non_null(value);
	return value;
}

static const Pb__Admin *sent_admin(size_t i)
{
	assert_true(i < fake.count);
	assert_int_equal(fake.sent[i]->r_case, PB__REQUEST__R_ADMIN);
	return fake.sent[i]->admin;
}

/* ---------------------------------------------------------------- usage */

static void test_wrong_usage_is_refused_before_anything_is_sent(void **state)
{
	static const char *const wrong[] = {
		"",
		"frob",
		"volume",
		"volume frob",
		"volume list --frob",
		"volume list --jso",
		"volume list --json=1",
		"volume list extra",
		"volume create --name v1 --pool p1",
		"volume create --name v1 --pool p1 --size",
		"volume create --name v1 --pool p1 --size 3x",
		"volume create --name v1 --pool p1 --size -1",
		"volume create --name v1 --name v2 --pool p1 --size 1GiB",
		"volume create --name .v1 --pool p1 --size 1GiB",
		"volume create --name v1 --pool p1 --size 1GiB --thick=yes",
		"volume resize --volume v1 --size 0",
		"pool create --protection-domain pd1 --name p --spare 101%",
		"pool create --protection-domain pd1 --name p --pg-count 8",
		"pool set --pool pool1",
		"pool set --pool pool1 --rebuild-policy fast",
		"sdc add --name s --guid 123",
		"status --timeout 0",
		"status --mdm ",
		"event list --limit 0",
		"system create --name s",
		"system create --name s --mdm mdm1",
		"system create --name s --mdm mdm1=10.0.0.1:6611",
		"system create --name s --mdm =10.0.0.1:1/10.0.0.1:2",
		"system create --name s --mdm a=10.0.0.1/10.0.0.1:2",
		"nbd --socket /x",
		"help frob",
		"version --frob",
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		free(run(wrong[i], 2));
	assert_int_equal(fake.count, 0);
}

static void test_errors_name_the_option(void **state)
{
	char *argv[] = {(char *)"volume", (char *)"--size", (char *)"3x"};
	char *unknown[] = {(char *)"volume", (char *)"--frob=1"};
	const struct cli_verb *create = &cli_volume_verbs[0];
	struct cli_args args = {0};
	struct ash_error err = cli_parse(create, 3, argv, &args);

	assert_int_equal(err.code, ASH_E_USAGE);
	assert_non_null(strstr(err.message, "--size 3x"));
	assert_non_null(strstr(err.message, "16GiB"));
	err = cli_parse(create, 2, unknown, &args);
	assert_non_null(strstr(err.message, "--frob"));
	assert_null(strstr(err.message, "=1"));
	err = cli_parse(create, 1, argv, &args);
	assert_non_null(strstr(err.message, "--name"));
}

static void test_help_is_there_for_every_verb(void **state)
{
	for (size_t i = 0; cli_nouns[i]; i++)
		for (const struct cli_verb *v = cli_nouns[i]; v->noun; v++) {
			char line[80];
			char *text;

			snprintf(line, sizeof(line), "%s%s%s --help", v->noun, *v->verb ? " " : "",
				 v->verb);
			text = run(line, 0);
			assert_non_null(strstr(text, v->help));
			for (const struct cli_opt *o = v->opts; o && o->name; o++)
				assert_non_null(strstr(text, o->name));
			free(text);
		}
	free(run("--help", 0));
	free(run("help volume create", 0));
	free(run("volume --help", 0));
	assert_int_equal(fake.count, 0);
}

/* ---------------------------------------------------------------- changes */

static void test_volume_create_sends_what_was_given(void **state)
{
	char *text = run("volume create --pool pool1 --name v1 --size 1.5GiB", 0);
	const Pb__Admin *a = sent_admin(0);

	assert_string_equal(text, "volume \"v1\" created, 1.5 GiB, thin\n");
	free(text);
	assert_int_equal(a->command->c_case, PB__COMMAND__C_VOLUME_ADD);
	assert_string_equal(a->command->volume_add->name, "v1");
	assert_true(a->command->volume_add->size == 3 * GIB / 2);
	assert_true(a->command->volume_add->thin);
	assert_string_equal(a->pool, "pool1");
	free(run("--mdm h:1 volume create --pool p --name v --size 1M --thick --json", 0));
	assert_false(sent_admin(1)->command->volume_add->thin);
	assert_string_equal(fake.to[1], "h:1");
}

static void test_removal_names_the_object(void **state)
{
	free(run("volume delete --name v1 --force", 0));
	assert_int_equal(sent_admin(0)->command->remove->kind, PB__KIND__KIND_VOLUME);
	assert_true(sent_admin(0)->command->remove->force);
	assert_string_equal(sent_admin(0)->volume, "v1");
	free(run("device remove --device sds1-d1", 0));
	assert_int_equal(sent_admin(1)->command->remove->kind, PB__KIND__KIND_DEVICE);
	assert_false(sent_admin(1)->command->remove->force);
	assert_string_equal(sent_admin(1)->device, "sds1-d1");
}

static void test_sdc_guid_is_sent_as_bytes(void **state)
{
	free(run("sdc add --name sdc1 --guid " GUID, 0));
	assert_int_equal(sent_admin(0)->command->sdc_add->guid.len, 16);
	assert_int_equal(sent_admin(0)->command->sdc_add->guid.data[0], 0x6b);
	assert_int_equal(sent_admin(0)->command->sdc_add->guid.data[15], 0xc8);
}

static void test_pool_set_keeps_what_is_not_given(void **state)
{
	const Pb__CmdPoolSet *c;

	free(run("pool set --pool pool1 --rebuild-concurrent 9 --spare 0%", 0));
	c = sent_admin(1)->command->pool_set;
	assert_true(c->pool == 5);
	assert_true(c->has_spare && !c->spare_pct && !c->has_zero_padding);
	assert_int_equal(c->rebuild->kind, PB__POLICY_KIND__POLICY_FAVOR_APP);
	assert_int_equal(c->rebuild->concurrent_per_device, 9);
	assert_null(c->rebalance);
	free(run("pool set --pool other --spare 0%", 1));
}

static void test_exit_codes(void **state)
{
	json_t *value;
	char *text;

	fake.refuse = ash_error_make(ASH_E_IN_USE, "volume \"v1\" is mapped");
	text = run("volume delete --volume v1 --json", 1);
	value = json_loads(text, 0, NULL);
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(value, "error"), "code")),
		"in-use");
	json_decref(value);
	free(text);
	fake.refuse = ash_error_make(ASH_E_UNREACHABLE, "no MDM");
	free(run("status", 3));
	fake.refuse = ash_error_make(ASH_E_INTERNAL, "bug");
	free(run("volume list", 4));
}

/* ---------------------------------------------------------------- time */

static void test_the_timeout_is_that_of_the_whole_command(void **state)
{
	fake.takes_ms = 4000;
	free(run("device list --timeout 10", 0));
	assert_int_equal(fake.count, 2);
	assert_int_equal(fake.timeout_ms[0], 10000);
	assert_int_equal(fake.timeout_ms[1], 6000);
	fake.takes_ms = 60000;
	free(run("device list --timeout 10", 3)); /* nothing is asked when no time is left */
	assert_int_equal(fake.count, 3);
}

static void test_system_create_gives_up_in_time(void **state)
{
	uint64_t asked = 0;

	fake.no_system = true;
	fake.takes_ms = 1000;
	free(run("system create --name dev --mdm a=10.0.0.1:6611/10.0.0.1:9011 --timeout 4", 3));
	assert_int_equal(fake.now_ms, 4000);
	for (size_t i = 0; i < fake.count; i++) {
		assert_true(fake.timeout_ms[i] <= 4000 - asked);
		asked += 1000;
	}
	assert_int_equal(asked, 4000);
}

static void test_status_without_a_leader(void **state)
{
	json_t *value;
	char *text;

	fake.no_leader = true;
	text = run("status --json", 3);
	value = json_loads(text, 0, NULL);
	assert_non_null(value);
	assert_string_equal(json_string_value(json_object_get(value, "health")), "degraded");
	assert_int_equal(json_integer_value(json_object_get(value, "pgs")), 256);
	assert_non_null(json_object_get(value, "error"));
	assert_true(json_is_null(json_object_get(json_object_get(value, "capacity"), "used")));
	assert_non_null(strstr(text, "no MDM leads"));
	json_decref(value);
	free(text);
	assert_int_equal(fake.timeout_ms[0], 5000);
	text = run("status --timeout 4", 3);
	assert_int_equal(fake.timeout_ms[2], 2000);
	assert_int_equal(fake.timeout_ms[3], 2000);
	assert_non_null(strstr(text, "SDS \"sds2\" is down"));
	assert_non_null(strstr(text, "no MDM leads"));
	free(text);
	free(run("volume list", 3)); /* what may be out of date is shown by nobody else */
	assert_int_equal(fake.count, 5);
}

static void test_status_does_not_ask_twice_when_nobody_is_there(void **state)
{
	fake.refuse = ash_error_make(ASH_E_UNREACHABLE, "connection refused");
	free(run("status", 3));
	assert_int_equal(fake.count, 1);
}

/* ---------------------------------------------------------------- system create */

static void test_system_create_tells_every_member_the_same(void **state)
{
	const Pb__CmdSystemCreate *first, *last;

	free(run("system create --name dev --mdm mdm1=10.0.0.1:6611/10.0.0.1:9011 --tb "
		 "tb1=10.0.0.3:6611/10.0.0.3:9011 --mdm mdm2=10.0.0.2:6611/10.0.0.2:9011 --json",
		 0));
	assert_int_equal(fake.count,
			 7); /* three greeted, three told, one asked whether it is there */
	first = sent_admin(3)->command->system_create;
	last = sent_admin(5)->command->system_create;
	assert_string_equal(fake.to[3], "10.0.0.1:6611");
	assert_string_equal(fake.to[5], "10.0.0.3:6611");
	assert_string_equal(fake.to[6], "10.0.0.1:6611,10.0.0.2:6611,10.0.0.3:6611");
	assert_int_equal(first->n_mdms, 3);
	assert_int_equal(first->uuid.len, 16);
	assert_memory_equal(first->uuid.data, last->uuid.data, 16);
	assert_string_equal(first->mdms[2]->name, "tb1");
	assert_string_equal(first->mdms[2]->raft_address, "10.0.0.3:9011");
	assert_int_equal(first->mdms[2]->role, PB__MDM_ROLE__MDM_TIE_BREAKER);
	assert_int_equal(first->mdms[2]->id, 3);
}

static void test_interrupted_creation_keeps_its_uuid(void **state)
{
	memset(fake.member_system, 0x5a, 16);
	free(run("system create --name dev --mdm mdm1=10.0.0.1:6611/10.0.0.1:9011", 0));
	assert_memory_equal(sent_admin(1)->command->system_create->uuid.data, fake.member_system,
			    16);
}

static void test_creations_are_not_mixed(void **state)
{
	static const char line[] = "system create --name dev --mdm a=10.0.0.1:6611/10.0.0.1:9011 "
				   "--mdm b=10.0.0.2:6611/10.0.0.2:9011";

	memset(fake.took_system, 0x5a, 16);
	free(run(line, 0)); /* the first had it already: the second gets the same */
	assert_memory_equal(sent_admin(3)->command->system_create->uuid.data, fake.took_system, 16);
	fake.took_from = fake.count + 4;
	free(run(line, 1)); /* only the second had it */
}

/* ---------------------------------------------------------------- output */

static void test_volume_list(void **state)
{
	json_t *value = run_json("volume list --json");
	json_t *v = json_array_get(json_object_get(value, "volumes"), 0);
	char *text;

	assert_string_equal(json_string_value(json_object_get(v, "name")), "v1");
	assert_true(json_integer_value(json_object_get(v, "size_bytes")) == (json_int_t)GIB);
	assert_int_equal(json_integer_value(json_object_get(v, "allocated_bytes")), 5 << 20);
	json_decref(value);
	text = run("volume list", 0);
	assert_string_equal(text, "NAME  POOL    SIZE  ALLOCATED  TYPE  MAPPED TO\n"
				  "v1    pool1  1 GiB      5 MiB  thin  -\n");
	free(text);
	text = run("volume list --names", 0);
	assert_string_equal(text, "v1\n");
	free(text);
	value = run_json("volume list --names --json");
	assert_string_equal(json_string_value(json_array_get(json_object_get(value, "volumes"), 0)),
			    "v1");
	json_decref(value);
	free(run("volume show --volume v1", 0));
	free(run("volume show --volume v2", 1));
}

static void test_device_list_cannot_steer_the_terminal(void **state)
{
	json_t *value = run_json("device list --json");
	json_t *d = json_array_get(json_object_get(value, "devices"), 0);
	char *text = run("device list", 0);

	assert_string_equal(json_string_value(json_object_get(d, "state")), "up");
	assert_string_equal(json_string_value(json_object_get(d, "name")), "sds1-d1");
	json_decref(value);
	assert_non_null(strstr(text, "/dev/a?[2J"));
	assert_null(strchr(text, 0x1b));
	free(text);
}

static void test_status(void **state)
{
	json_t *value = run_json("status --json");
	json_t *capacity = json_object_get(value, "capacity");
	static const char *const keys[] = {"raw", "spare", "used", "usable", "free", "provisioned"};
	char *text;

	assert_string_equal(json_string_value(json_object_get(value, "health")), "degraded");
	assert_int_equal(json_integer_value(json_object_get(value, "pgs")), 256);
	assert_int_equal(json_integer_value(json_object_get(value, "degraded_pgs")), 3);
	assert_true(json_is_integer(json_object_get(value, "failed_pgs")));
	assert_int_equal(json_array_size(json_object_get(value, "reasons")), 1);
	for (size_t i = 0; i < 6; i++)
		assert_true(json_is_integer(json_object_get(capacity, keys[i])));
	assert_true(json_integer_value(json_object_get(capacity, "raw")) == (json_int_t)(8 * GIB));
	json_decref(value);
	text = run("status", 0);
	assert_non_null(strstr(text, "degraded"));
	assert_non_null(strstr(text, "SDS \"sds2\" is down"));
	assert_null(strstr(text, "resync"));
	free(text);
}

static void test_status_shows_how_far_a_resync_is(void **state)
{
	json_t *value, *resync;
	char *text;

	fake.resyncs = 2;
	value = run_json("status --json");
	resync = json_object_get(value, "resync");
	assert_int_equal(json_integer_value(json_object_get(resync, "pgs")), 2);
	assert_int_equal(json_integer_value(json_object_get(resync, "left")), 6 << 20);
	json_decref(value);
	text = run("status", 0);
	assert_non_null(strstr(text, "Being resynced    2\n"));
	assert_non_null(strstr(text, "  done            2 MiB\n"));
	assert_non_null(strstr(text, "  left            6 MiB\n"));
	free(text);
}

static void test_every_list_prints_both_ways(void **state)
{
	static const char *const lists[] = {
		"protection-domain", "fault-set", "sds",  "device", "pool", "volume", "sdc",
		"mapping",	     "mdm",	  "event"};
	char line[64];

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		snprintf(line, sizeof(line), "%s list", lists[i]);
		free(run(line, 0));
		snprintf(line, sizeof(line), "--json %s list", lists[i]);
		json_decref(run_json(line));
	}
	json_decref(run_json("system show --json"));
	json_decref(run_json("version --json"));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_wrong_usage_is_refused_before_anything_is_sent),
		T(test_errors_name_the_option),
		T(test_help_is_there_for_every_verb),
		T(test_volume_create_sends_what_was_given),
		T(test_removal_names_the_object),
		T(test_sdc_guid_is_sent_as_bytes),
		T(test_pool_set_keeps_what_is_not_given),
		T(test_exit_codes),
		T(test_the_timeout_is_that_of_the_whole_command),
		T(test_system_create_gives_up_in_time),
		T(test_status_without_a_leader),
		T(test_status_does_not_ask_twice_when_nobody_is_there),
		T(test_system_create_tells_every_member_the_same),
		T(test_interrupted_creation_keeps_its_uuid),
		T(test_creations_are_not_mixed),
		T(test_volume_list),
		T(test_device_list_cannot_steer_the_terminal),
		T(test_status),
		T(test_status_shows_how_far_a_resync_is),
		T(test_every_list_prints_both_ways),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
