/* SPDX-License-Identifier: MIT */
/* The service, with a log and a clock that do as they are told. */
#include <errno.h>

#include "common/base/prng.h"
#include "desk.h"

/* ---------------------------------------------------------------- sessions, set-up */

static void hello_comes_first(void **state)
{
	struct desk d;
	struct desk_client *c;
	Pb__Request req = PB__REQUEST__INIT;
	Pb__Query q = PB__QUERY__INIT;
	Pb__Hello hello = PB__HELLO__INIT;
	uint8_t other[16];

	desk_open(&d);
	c = &d.client[0];
	c->desk = &d;
	c->s = mdm_session_new(d.svc, c);
	q.what = (char *)"status";
	req.r_case = PB__REQUEST__R_QUERY;
	req.query = &q;
	assert_int_equal(desk_ask(c, &req), ASH_E_STATE);
	req.r_case = PB__REQUEST__R_HELLO;
	req.hello = &hello;
	hello.version_min = hello.version_max = 9;
	assert_int_equal(desk_ask(c, &req), ASH_E_UNSUPPORTED);
	hello.version_min = 1;
	uuid_of(12345, other);
	hello.system.data = other;
	hello.system.len = 16;
	assert_int_equal(desk_ask(c, &req), ASH_E_DENIED);
	SAYS(c, "sys");
	hello.system.len = 0;
	assert_int_equal(desk_ask(c, &req), 0);
	assert_true(c->reply->hello->leader);
	assert_string_equal(c->reply->hello->mdm_name, "mdm1");
	desk_close(&d);
}

static void followers_name_the_leader(void **state)
{
	struct desk d;
	struct desk_client *c;
	Pb__Request req = PB__REQUEST__INIT;
	Pb__Query q = PB__QUERY__INIT;
	COMMAND(cmd, b, DomainAdd, DOMAIN_ADD, CMD_DOMAIN_ADD, domain_add);
	ADMIN(admin, cmd);

	desk_open(&d);
	c = desk_client(&d, "cli", 1, 1);
	mdm_service_role(d.svc, false, "10.0.0.2:6611");
	b.name = (char *)"pd";
	assert_int_equal(desk_admin(c, &admin), ASH_E_NOT_LEADER);
	assert_string_equal(c->reply->leader_address, "10.0.0.2:6611");
	SAYS(c, "10.0.0.2:6611");
	q.what = (char *)"status"; /* questions are for any */
	req.r_case = PB__REQUEST__R_QUERY;
	req.query = &q;
	assert_int_equal(desk_ask(c, &req), 0);
	assert_string_equal(c->reply->query->leader, "10.0.0.2:6611");
	assert_int_equal(d.proposed, 0);
	desk_close(&d);
}

static void names_become_ids(void **state)
{
	struct desk d;
	struct desk_client *c;
	COMMAND(fs, f, FaultSetAdd, FAULT_SET_ADD, CMD_FAULT_SET_ADD, fault_set_add);
	COMMAND(sds, s, SdsAdd, SDS_ADD, CMD_SDS_ADD, sds_add);
	COMMAND(rm, r, Remove, REMOVE, CMD_REMOVE, remove);
	ADMIN(admin, fs);

	desk_open(&d);
	c = desk_client(&d, "cli", 1, 1);
	f.name = (char *)"fs1";
	admin.domain = (char *)"pd1";
	assert_int_equal(desk_admin(c, &admin), ASH_E_NOT_FOUND);
	SAYS(c, "\"pd1\"");
	add_domain(&d.c, "pd1");
	assert_int_equal(desk_admin(c, &admin), 0);
	assert_int_equal(c->reply->admin->id,
			 mdm_obj_id(d.c.st->table[PB__KIND__KIND_FAULT_SET].obj[0]));
	admin.command = &sds;
	s.name = (char *)"sds1";
	s.control_address = (char *)"10.0.0.9:7072";
	admin.fault_set = (char *)"fs1";
	assert_int_equal(desk_admin(c, &admin), 0);
	assert_int_not_equal(mdm_sds(d.c.st, c->reply->admin->id)->fault_set, 0);
	admin.command = &rm;
	r.kind = PB__KIND__KIND_FAULT_SET;
	assert_int_equal(desk_admin(c, &admin), ASH_E_IN_USE);
	SAYS(c, "sds1");
	r.kind = PB__KIND__KIND_SDS;
	admin.name = (char *)"sds1";
	assert_int_equal(desk_admin(c, &admin), 0);
	assert_int_equal(d.c.st->table[PB__KIND__KIND_SDS].count, 0);
	desk_close(&d);
}

static void people_cannot_forge_reports(void **state)
{
	struct desk d;
	struct desk_client *c;
	COMMAND(cmd, b, PgBatch, PG_BATCH, CMD_PG_BATCH, pg_batch);
	ADMIN(admin, cmd);
	Pb__Admin empty = PB__ADMIN__INIT;

	desk_open(&d);
	c = desk_client(&d, "cli", 1, 1);
	assert_int_equal(desk_admin(c, &admin), ASH_E_INVALID);
	assert_int_equal(desk_admin(c, &empty), ASH_E_INVALID);
	assert_int_equal(d.proposed, 0);
	desk_close(&d);
}

static void first_volume_waits_for_places(void **state)
{
	struct desk d;
	struct desk_client *c;
	uint64_t dev;
	COMMAND(cmd, b, VolumeAdd, VOLUME_ADD, CMD_VOLUME_ADD, volume_add);
	ADMIN(admin, cmd);

	desk_cluster(&d, 2);
	assert_int_equal(in_state(&d, 2), 16);
	/* A third comes; the volume is asked for before it is open. */
	dev = add_device(&d.c, d.c.sds[1], d.c.pool, 399);
	c = desk_client(&d, "cli", 1, 1);
	b.name = (char *)"v";
	b.size = 1 << 20;
	b.thin = true;
	admin.pool = (char *)"pool1";
	assert_int_equal(desk_admin(c, &admin), -1);
	assert_int_equal(desk_open_device(&d, &desk_servers[1], dev, 1), 0);
	desk_pass(&d, 1000);
	assert_int_equal(c->reply->r_case, PB__REPLY__R_ADMIN);
	assert_null(c->reply->error);
	{
		unsigned on = 0;

		for (uint32_t pg = 0; pg < 16; pg++)
			on += mdm_row_find(row(&d, pg), dev) >= 0;
		assert_int_equal(on, 8); /* it took its share before the volume came */
	}
	/* What is plainly wrong is said at once. */
	b.name = (char *)"w";
	b.size = 5;
	assert_int_equal(desk_admin(c, &admin), ASH_E_INVALID);
	desk_close(&d);
}

static void waiting_for_places_is_bounded(void **state)
{
	struct desk d;
	struct desk_client *c;
	COMMAND(cmd, b, VolumeAdd, VOLUME_ADD, CMD_VOLUME_ADD, volume_add);
	ADMIN(admin, cmd);

	desk_cluster(&d, 1);
	c = desk_client(&d, "cli", 1, 1);
	add_device(&d.c, d.c.sds[0], d.c.pool, 399); /* never opens */
	b.name = (char *)"v";
	b.size = 1 << 20;
	b.pool = d.c.pool;
	assert_int_equal(desk_admin(c, &admin), -1);
	desk_pass(&d, 9000);
	assert_null(c->reply->error);
	desk_pass(&d, 1500);
	assert_int_equal(c->reply->error->code, ASH_E_CAPACITY);
	SAYS(c, "fault unit");
	desk_close(&d);
}

static void devices_in_numbers_are_placed_once(void **state)
{
	struct desk d;
	unsigned before;

	desk_cluster(&d, 3);
	before = d.of_case[PB__COMMAND__C_PG_BATCH];
	for (unsigned i = 0; i < 8; i++) {
		uint64_t dev = add_device(&d.c, d.c.sds[i % 3], d.c.pool, 390 + i);

		assert_int_equal(desk_open_device(&d, &desk_servers[i % 3], dev, 1), 0);
		desk_pass(&d, 100);
	}
	desk_pass(&d, 2000);
	assert_int_equal(d.of_case[PB__COMMAND__C_PG_BATCH], before + 1);
	desk_close(&d);
}

static void placement_comes_to_rest(void **state)
{
	struct desk d;
	unsigned before;

	desk_cluster(&d, 4);
	before = d.proposed;
	desk_pass(&d, 20000);
	assert_int_equal(d.proposed, before);
	/* The failure of one moves its groups to the others. */
	desk_servers[3].alive = false;
	desk_pass(&d, 3000);
	assert_false(mdm_sds(d.c.st, d.c.sds[3])->up);
	assert_int_equal(in_state(&d, 2), 16);
	for (uint32_t pg = 0; pg < 16; pg++)
		assert_int_equal(mdm_row_find(row(&d, pg), d.c.dev[3]), -1);
	desk_close(&d);
}

/* ---------------------------------------------------------------- the log fails */

static void failed_log_is_told(void **state)
{
	struct desk d;
	struct desk_client *c;
	COMMAND(cmd, b, DomainAdd, DOMAIN_ADD, CMD_DOMAIN_ADD, domain_add);
	ADMIN(admin, cmd);

	desk_open(&d);
	c = desk_client(&d, "cli", 1, 1);
	b.name = (char *)"pd";
	d.fail_with = -EIO;
	assert_int_equal(desk_admin(c, &admin), ASH_E_UNREACHABLE);
	SAYS(c, "not known");
	d.fail_with = -ENOTSUP;
	assert_int_equal(desk_admin(c, &admin), ASH_E_NOT_LEADER);
	d.fail_with = 0;
	d.hold = true; /* no majority: nothing is ever answered */
	assert_int_equal(desk_admin(c, &admin), -1);
	desk_pass(&d, 11000);
	assert_int_equal(c->reply->error->code, ASH_E_UNREACHABLE);
	SAYS(c, "majority");
	d.hold = false;
	desk_run(&d); /* the late outcome finds nobody, and nothing breaks */
	assert_int_equal(d.c.st->table[PB__KIND__KIND_DOMAIN].count, 1);
	desk_close(&d);
}

static void heartbeats_do_not_wait_for_the_log(void **state)
{
	struct desk d;
	unsigned before;

	desk_cluster(&d, 3);
	d.hold = true;
	before = desk_servers[1].c->replies;
	desk_servers[0].alive = false;
	desk_pass(&d, 4000);
	assert_true(desk_servers[1].c->replies >= before + 19);
	/* One proposal about the silent one, however long it takes. */
	assert_int_equal(d.of_case[PB__COMMAND__C_SDS_STATE], 1);
	desk_close(&d);
}

static void failing_proposals_are_not_repeated_hotly(void **state)
{
	struct desk d;
	unsigned before;

	desk_cluster(&d, 3);
	desk_volume(&d, NULL);
	desk_servers[0].alive = false;
	desk_pass(&d, 1300);
	desk_servers[0].process = 900;
	assert_int_equal(desk_register(&d, &desk_servers[0]), 0);
	assert_int_equal(desk_open_device(&d, &desk_servers[0], d.c.dev[0], 2), 0);
	d.fail_with = -EIO;
	desk_servers[1].alive = false;
	before = d.proposed;
	desk_pass(&d, 20000);
	assert_true(d.proposed - before > 3);
	assert_true(d.proposed - before < 60);
	d.fail_with = 0;
	desk_pass(&d, 6000);
	assert_false(mdm_sds(d.c.st, d.c.sds[1])->up);
	desk_close(&d);
}

static void everything_may_be_freed_at_any_time(void **state)
{
	struct desk d;
	struct desk_client *sdc, *c;
	Pb__Request req = PB__REQUEST__INIT;
	Pb__OpenVolume open = PB__OPEN_VOLUME__INIT;
	COMMAND(cmd, b, DomainAdd, DOMAIN_ADD, CMD_DOMAIN_ADD, domain_add);
	ADMIN(admin, cmd);

	desk_cluster(&d, 3);
	desk_volume(&d, &sdc);
	c = desk_client(&d, "cli", 1, 1);
	d.hold = true;
	b.name = (char *)"pd";
	assert_int_equal(desk_admin(c, &admin), -1);
	open.volume = (char *)"v1";
	req.r_case = PB__REQUEST__R_OPEN_VOLUME;
	req.open_volume = &open;
	assert_int_equal(desk_ask(sdc, &req), -1);
	desk_servers[0].process = 900;
	assert_int_equal(desk_register(&d, &desk_servers[0]), -1);
	desk_hang_up(c); /* with a request on its way */
	desk_close(&d);
}

/* ---------------------------------------------------------------- clients */

static void an_open_waits_until_servers_know(void **state)
{
	struct desk d;
	struct desk_client *sdc;
	uint64_t start;
	unsigned replies;

	desk_cluster(&d, 3);
	desk_volume(&d, &sdc);
	desk_pass(&d, 400);
	assert_int_equal(ask_open(sdc, "nothing"), ASH_E_NOT_FOUND);
	assert_int_equal(ask_open(sdc, "v1"), -1);
	desk_pass(&d, 450); /* two rounds of heartbeats */
	assert_int_equal(sdc->reply->r_case, PB__REPLY__R_OPEN_VOLUME);
	assert_int_equal(sdc->reply->open_volume->size, 8 << 20);
	assert_true(sdc->reply->open_volume->epoch <= d.c.st->version);
	/* One that never echoes holds it for a second only. */
	desk_servers[2].frozen = true;
	assert_int_equal(ask_open(sdc, "v1"), -1);
	start = d.now;
	while (d.now < start + 900 * DESK_MS)
		desk_pass(&d, 10);
	assert_true(sdc->reply->open_volume->epoch < d.c.st->version);
	desk_pass(&d, 200);
	assert_int_equal(sdc->reply->open_volume->epoch, d.c.st->version);
	/* One declared failed is not waited for. */
	desk_servers[2].alive = false;
	desk_pass(&d, 1500);
	replies = sdc->replies;
	assert_int_equal(ask_open(sdc, "v1"), -1);
	desk_pass(&d, 450);
	assert_int_equal(sdc->replies, replies + 1);
	desk_close(&d);
}

static void unknown_clients_hear_what_to_do(void **state)
{
	struct desk d;
	struct desk_client *c, *sdc;
	Pb__Request req = PB__REQUEST__INIT;
	Pb__SdcRegister reg = PB__SDC_REGISTER__INIT;
	Pb__GetMap get = PB__GET_MAP__INIT;
	uint8_t guid[16];

	desk_cluster(&d, 2);
	desk_volume(&d, &sdc);
	c = desk_client(&d, "sdc", 99, 1);
	uuid_of(99, guid);
	reg.guid.data = guid;
	reg.guid.len = 16;
	reg.name = (char *)"host7";
	req.r_case = PB__REQUEST__R_SDC_REGISTER;
	req.sdc_register = &reg;
	assert_int_equal(desk_ask(c, &req), ASH_E_NOT_FOUND);
	SAYS(c, "ashlar sdc add --name host7 --guid");
	assert_int_equal(ask_open(c, "v1"), ASH_E_STALE);
	req.r_case = PB__REQUEST__R_GET_MAP;
	req.get_map = &get;
	assert_int_equal(desk_ask(c, &req), ASH_E_DENIED);
	assert_int_equal(desk_ask(sdc, &req), 0);
	assert_int_equal(sdc->reply->map->n_volumes, 1);
	/* Known, but without a mapping. */
	assert_int_equal(add_sdc(&d.c, "host7", 99), 0);
	req.r_case = PB__REQUEST__R_SDC_REGISTER;
	req.sdc_register = &reg;
	assert_int_equal(desk_ask(c, &req), 0);
	assert_int_equal(ask_open(c, "v1"), ASH_E_DENIED);
	SAYS(c, "volume map");
	desk_close(&d);
}

static void pushes_come_once_per_turn(void **state)
{
	struct desk d;
	struct desk_client *sdc;
	unsigned sds_pushes, sdc_pushes;
	COMMAND(cmd, b, DomainAdd, DOMAIN_ADD, CMD_DOMAIN_ADD, domain_add);
	ADMIN(admin, cmd);
	char name[8];

	desk_cluster(&d, 2);
	desk_volume(&d, &sdc);
	desk_pass(&d, 100);
	sds_pushes = desk_servers[0].c->pushes;
	sdc_pushes = sdc->pushes;
	assert_int_equal(sdc->map->n_volumes, 1); /* the first push had all */
	/* Twenty changes that commit in one turn. */
	d.hold = true;
	for (unsigned i = 0; i < 10; i++) {
		struct desk_client *c = desk_client(&d, "cli", 1, 1);

		snprintf(name, sizeof(name), "pd%u", i + 10);
		b.name = name;
		assert_int_equal(desk_admin(c, &admin), -1);
	}
	d.hold = false;
	desk_run(&d);
	assert_int_equal(desk_servers[0].c->pushes, sds_pushes + 1);
	assert_int_equal(desk_servers[0].c->map->version, d.c.st->version);
	assert_int_equal(sdc->pushes, sdc_pushes); /* nothing of it concerns a client */
	desk_close(&d);
}

static void unmap_says_who_is_pending(void **state)
{
	struct desk d;
	struct desk_client *sdc, *c;
	Pb__Request req = PB__REQUEST__INIT;
	Pb__Confirm confirm = PB__CONFIRM__INIT;
	COMMAND(cmd, b, Unmap, UNMAP, CMD_UNMAP, unmap);
	ADMIN(admin, cmd);

	desk_cluster(&d, 2);
	desk_volume(&d, &sdc);
	assert_int_equal(ask_open(sdc, "v1"), -1);
	desk_pass(&d, 500);
	c = desk_client(&d, "cli", 1, 1);
	admin.volume = (char *)"v1";
	admin.sdc = (char *)"sdc1";
	assert_int_equal(desk_admin(c, &admin), -1);
	confirm.fence = mdm_obj_id(d.c.st->table[PB__KIND__KIND_FENCE].obj[0]);
	req.r_case = PB__REQUEST__R_CONFIRM;
	req.confirm = &confirm;
	assert_int_equal(desk_ask(desk_servers[0].c, &req), 0);
	assert_int_equal(desk_ask(desk_servers[0].c, &req), 0); /* repeats do no harm */
	desk_pass(&d, 1200);
	assert_int_equal(c->reply->r_case, PB__REPLY__R_ADMIN);
	assert_string_equal(c->reply->admin->note, "pending: sds2");
	assert_int_equal(desk_ask(desk_servers[1].c, &req), 0);
	assert_int_equal(d.c.st->table[PB__KIND__KIND_FENCE].count, 0);
	desk_close(&d);
}

/* ---------------------------------------------------------------- garbage */

static void ask_everything(struct desk *d)
{
	struct desk_client *sdc, *c;
	Pb__Request req = PB__REQUEST__INIT;
	Pb__Query q = PB__QUERY__INIT;
	Pb__DeviceFailed failed = PB__DEVICE_FAILED__INIT;
	Pb__MdmChange change = PB__MDM_CHANGE__INIT;
	Pb__MdmMember member = PB__MDM_MEMBER__INIT;
	COMMAND(cmd, b, VolumeSet, VOLUME_SET, CMD_VOLUME_SET, volume_set);
	COMMAND(rm, r, Remove, REMOVE, CMD_REMOVE, remove);
	COMMAND(pool, p, PoolSet, POOL_SET, CMD_POOL_SET, pool_set);
	ADMIN(admin, cmd);
	bool applied;

	desk_volume(d, &sdc);
	ask_open(sdc, "v1");
	report(d, &desk_servers[0], PB__PG_ACTION__PG_BUMP, 0, d->c.dev[0], &applied);
	report(d, &desk_servers[0], PB__PG_ACTION__PG_DROP, 1, d->c.dev[1], &applied);
	c = desk_client(d, "cli", 1, 1);
	b.size = 16 << 20;
	admin.volume = (char *)"v1";
	desk_admin(c, &admin);
	admin.command = &rm;
	r.kind = PB__KIND__KIND_SDS;
	admin.sds = (char *)"sds1";
	desk_admin(c, &admin);
	admin.command = &pool;
	admin.pool = (char *)"pool1";
	p.has_spare = true;
	p.spare_pct = 10;
	desk_admin(c, &admin);
	req.r_case = PB__REQUEST__R_QUERY;
	req.query = &q;
	desk_ask(c, &req);
	req.r_case = PB__REQUEST__R_DEVICE_FAILED;
	req.device_failed = &failed;
	failed.device = d->c.dev[2];
	failed.reason = (char *)"%s%n";
	desk_ask(desk_servers[2].c, &req);
	req.r_case = PB__REQUEST__R_MDM_CHANGE;
	req.mdm_change = &change;
	change.op = (char *)"add";
	change.member = &member;
	desk_ask(c, &req);
}

/* Requests bent at random, from sessions of all kinds: answered or refused, and nothing breaks. */
static void bent_requests_do_no_harm(void **state)
{
	struct desk d;
	struct ash_prng rng;
	unsigned decoded = 0;

	desk_asked_room = 96;
	desk_cluster(&d, 3);
	ask_everything(&d);
	desk_asked_room = 0;
	ash_prng_seed(&rng, 17);
	for (unsigned i = 0; i < 60000; i++) {
		struct desk_entry *e = &desk_asked[ash_prng_below(&rng, desk_asked_count)];
		struct desk_client *c = &d.client[ash_prng_below(&rng, 6)];
		uint8_t *bytes = malloc(e->bytes + 1);
		Pb__Request *req;

		memcpy(bytes, e->data, e->bytes);
		for (unsigned k = 0; e->bytes && k <= ash_prng_below(&rng, 4); k++)
			bytes[ash_prng_below(&rng, e->bytes)] = (uint8_t)ash_prng_next(&rng);
		req = pb__request__unpack(NULL, e->bytes, bytes);
		if (req && c->s) {
			decoded++;
			mdm_service_request(d.svc, c->s, req);
			desk_run(&d);
		}
		if (req)
			pb__request__free_unpacked(req, NULL);
		free(bytes);
		if (i % 64 == 0)
			desk_pass(&d, 50);
	}
	assert_true(d.proposed > 500);
	assert_true(decoded > 5000);
	check_state(d.c.st);
	for (size_t i = 0; i < desk_asked_count; i++)
		free(desk_asked[i].data);
	desk_close(&d);
}

/* ---------------------------------------------------------------- questions */

static void status_tells_health_and_capacity(void **state)
{
	struct desk d;
	struct desk_client *c;
	Pb__Request req = PB__REQUEST__INIT, hreq = PB__REQUEST__INIT;
	Pb__Query q = PB__QUERY__INIT;
	Pb__Heartbeat hb = PB__HEARTBEAT__INIT;
	Pb__DeviceStats stats = PB__DEVICE_STATS__INIT, *list = &stats;
	Pb__NodeUse use = PB__NODE_USE__INIT, *uses = &use;
	const Pb__QueryReply *r;
	uint8_t process[16];

	desk_cluster(&d, 3);
	desk_volume(&d, NULL);
	/* 100 extents on each of two devices. */
	use.node =
		mdm_volume(d.c.st, mdm_obj_id(d.c.st->table[PB__KIND__KIND_VOLUME].obj[0]))->node;
	use.extents = 100;
	stats.n_nodes = 1;
	stats.nodes = &uses;
	stats.used = 100 << 20;
	hb.n_devices = 1;
	hb.devices = &list;
	hreq.r_case = PB__REQUEST__R_HEARTBEAT;
	hreq.heartbeat = &hb;
	for (unsigned i = 0; i < 2; i++) {
		uuid_of(desk_servers[i].process, process);
		hb.session.data = process;
		hb.session.len = 16;
		stats.device = d.c.dev[i];
		assert_int_equal(desk_ask(desk_servers[i].c, &hreq), 0);
	}
	c = desk_client(&d, "cli", 1, 1);
	q.what = (char *)"status";
	req.r_case = PB__REQUEST__R_QUERY;
	req.query = &q;
	assert_int_equal(desk_ask(c, &req), 0);
	r = c->reply->query;
	assert_int_equal(r->health, PB__HEALTH__HEALTH_OK);
	assert_int_equal(r->pgs, 16);
	assert_int_equal(r->degraded_pgs, 0);
	assert_int_equal(r->capacity->raw, 3ull << 30);
	assert_int_equal(r->capacity->used, 100 << 20);
	assert_int_equal(r->volumes[0]->allocated, 100 << 20);
	assert_true(r->pools[0]->n_warnings >= 2); /* no spare, few replicas per device */
	assert_non_null(strstr(r->pools[0]->warnings[0], "spare"));
	desk_servers[0].alive = false;
	desk_pass(&d, 1500);
	assert_int_equal(desk_ask(c, &req), 0);
	r = c->reply->query;
	assert_int_equal(r->health, PB__HEALTH__HEALTH_DEGRADED);
	assert_true(r->degraded_pgs > 0);
	assert_int_equal(r->failed_pgs, 0);
	desk_servers[1].alive = false;
	desk_pass(&d, 1500);
	assert_int_equal(desk_ask(c, &req), 0);
	assert_int_equal(c->reply->query->health, PB__HEALTH__HEALTH_FAILED);
	q.what = (char *)"events";
	q.limit = 3;
	assert_int_equal(desk_ask(c, &req), 0);
	assert_int_equal(c->reply->query->n_events, 3);
	q.after = c->reply->query->events[0]->seq;
	assert_int_equal(desk_ask(c, &req), 0);
	assert_int_equal(c->reply->query->events[0]->seq, q.after + 1);
	q.what = (char *)"weather";
	assert_int_equal(desk_ask(c, &req), ASH_E_INVALID);
	desk_close(&d);
}

/* A spare of a quarter is the share of one of four equal units, to the byte. */
static void the_spare_asked_for_is_enough(void **state)
{
	struct desk d;
	struct desk_client *c;
	Pb__Request req = PB__REQUEST__INIT;
	Pb__Query q = PB__QUERY__INIT;
	COMMAND(pool, p, PoolSet, POOL_SET, CMD_POOL_SET, pool_set);
	ADMIN(admin, pool);

	desk_cluster(&d, 4);
	c = desk_client(&d, "cli", 1, 1);
	p.has_spare = true;
	p.spare_pct = 25;
	admin.pool = (char *)"pool1";
	assert_int_equal(desk_admin(c, &admin), 0);
	q.what = (char *)"status";
	req.r_case = PB__REQUEST__R_QUERY;
	req.query = &q;
	assert_int_equal(desk_ask(c, &req), 0);
	assert_int_equal(c->reply->query->capacity->raw, 4ull << 30);
	assert_int_equal(c->reply->query->capacity->spare, 1ull << 30);
	for (size_t i = 0; i < c->reply->query->pools[0]->n_warnings; i++)
		assert_null(strstr(c->reply->query->pools[0]->warnings[i], "spare"));
	desk_close(&d);
}

static void full_pools_warn_once(void **state)
{
	struct desk d;
	Pb__Request req = PB__REQUEST__INIT;
	Pb__Heartbeat hb = PB__HEARTBEAT__INIT;
	Pb__DeviceStats stats = PB__DEVICE_STATS__INIT, *list = &stats;
	uint8_t process[16];
	unsigned events;

	desk_cluster(&d, 2);
	desk_volume(&d, NULL);
	stats.used = 850 << 20;
	hb.n_devices = 1;
	hb.devices = &list;
	req.r_case = PB__REQUEST__R_HEARTBEAT;
	req.heartbeat = &hb;
	for (unsigned i = 0; i < 2; i++) {
		uuid_of(desk_servers[i].process, process);
		hb.session.data = process;
		hb.session.len = 16;
		stats.device = d.c.dev[i];
		assert_int_equal(desk_ask(desk_servers[i].c, &req), 0);
	}
	events = d.of_case[PB__COMMAND__C_EVENT];
	desk_pass(&d, 10000);
	assert_int_equal(d.of_case[PB__COMMAND__C_EVENT], events + 1);
	assert_string_equal(d.c.st->events[d.c.st->events_count - 1]->code, "POOL_HIGH");
	desk_close(&d);
}

static void tie_breaker_hands_on(void **state)
{
	struct desk d;
	struct desk_client *c;
	COMMAND(cmd, b, DomainAdd, DOMAIN_ADD, CMD_DOMAIN_ADD, domain_add);
	ADMIN(admin, cmd);

	desk_open(&d);
	mdm_service_free(d.svc);
	d.svc = mdm_service_new(&d.port, d.c.st, 1, true);
	mdm_service_role(d.svc, true, "127.0.0.1:6611");
	c = desk_client(&d, "cli", 1, 1);
	assert_false(c->reply->hello->leader);
	b.name = (char *)"pd";
	assert_int_equal(desk_admin(c, &admin), ASH_E_NOT_LEADER);
	SAYS(c, "tie-breaker");
	desk_pass(&d, 60000);
	assert_in_range(d.members_asked, 4, 10); /* again and again, ever more slowly */
	desk_close(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hello_comes_first),
		cmocka_unit_test(followers_name_the_leader),
		cmocka_unit_test(names_become_ids),
		cmocka_unit_test(people_cannot_forge_reports),
		cmocka_unit_test(first_volume_waits_for_places),
		cmocka_unit_test(waiting_for_places_is_bounded),
		cmocka_unit_test(devices_in_numbers_are_placed_once),
		cmocka_unit_test(placement_comes_to_rest),
		cmocka_unit_test(failed_log_is_told),
		cmocka_unit_test(heartbeats_do_not_wait_for_the_log),
		cmocka_unit_test(failing_proposals_are_not_repeated_hotly),
		cmocka_unit_test(everything_may_be_freed_at_any_time),
		cmocka_unit_test(an_open_waits_until_servers_know),
		cmocka_unit_test(unknown_clients_hear_what_to_do),
		cmocka_unit_test(pushes_come_once_per_turn),
		cmocka_unit_test(unmap_says_who_is_pending),
		cmocka_unit_test(bent_requests_do_no_harm),
		cmocka_unit_test(status_tells_health_and_capacity),
		cmocka_unit_test(the_spare_asked_for_is_enough),
		cmocka_unit_test(full_pools_warn_once),
		cmocka_unit_test(tie_breaker_hands_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
