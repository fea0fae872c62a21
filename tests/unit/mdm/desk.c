/* SPDX-License-Identifier: MIT */
#include "desk.h"

#include "common/base/list.h"

struct desk_server desk_servers[8];
struct desk_entry desk_asked[96];
size_t desk_asked_count, desk_asked_room;

static struct desk *desk_of(struct mdm_port *port)
{
	return ash_container_of(port, struct desk, port);
}

static uint64_t port_now(struct mdm_port *port)
{
	return desk_of(port)->now;
}

static uint64_t port_unix(struct mdm_port *port)
{
	return 1750000000000ull + desk_of(port)->now / DESK_MS;
}

static uint64_t port_rand(struct mdm_port *port)
{
	return desk_of(port)->random += 0x9e3779b97f4a7c15ull;
}

static void port_trace(struct mdm_port *port, int level, const char *line)
{
	if (!strlen(line))
		fail();
}

static void port_propose(struct mdm_port *port, const uint8_t *cmd, size_t bytes,
			 void (*done)(void *arg, int result, const struct mdm_result *res),
			 void *arg)
{
	struct desk *d = desk_of(port);
	Pb__Command *copy = pb__command__unpack(NULL, bytes, cmd);

	assert_non_null(copy);
	d->proposed++;
	d->of_case[copy->c_case]++;
	pb__command__free_unpacked(copy, NULL);
	d->log = realloc(d->log, (d->entries + 1) * sizeof(*d->log));
	d->log[d->entries++] = (struct desk_entry){
		.data = malloc(bytes + 1), .bytes = bytes, .done = done, .arg = arg};
	memcpy(d->log[d->entries - 1].data, cmd, bytes);
}

static void port_reply(struct mdm_port *port, struct mdm_session *s, const Pb__Reply *reply)
{
	struct desk_client *c = mdm_session_shell(s);

	if (c->reply)
		pb__reply__free_unpacked(c->reply, NULL);
	c->reply = mdm_pb_clone(reply);
	c->replies++;
}

static void port_push(struct mdm_port *port, struct mdm_session *s, const Pb__Push *push)
{
	struct desk_client *c = mdm_session_shell(s);

	c->pushes++;
	if (push->p_case != PB__PUSH__P_MAP)
		return;
	if (c->map)
		pb__map__free_unpacked(c->map, NULL);
	c->map = mdm_pb_clone(push->map);
}

static void port_members(struct mdm_port *port, const Pb__MdmChange *change,
			 void (*done)(void *arg, const struct ash_error *err), void *arg)
{
	struct ash_error ok = ash_error_ok();

	desk_of(port)->members_asked++;
	done(arg, &ok);
}

void desk_open(struct desk *d)
{
	memset(d, 0, sizeof(*d));
	memset(desk_servers, 0, sizeof(desk_servers));
	ash_timers_init(&d->timers);
	d->now = 1000 * DESK_MS;
	new_system(&d->c);
	d->port = (struct mdm_port){.timers = &d->timers,
				    .now_ns = port_now,
				    .unix_ms = port_unix,
				    .rand64 = port_rand,
				    .trace = port_trace,
				    .propose = port_propose,
				    .reply = port_reply,
				    .push = port_push,
				    .members = port_members};
	d->svc = mdm_service_new(&d->port, d->c.st, 1, false);
	mdm_service_role(d->svc, true, "127.0.0.1:6611");
}

void desk_close(struct desk *d)
{
	for (unsigned i = 0; i < DESK_CLIENTS; i++)
		if (d->client[i].desk)
			desk_hang_up(&d->client[i]);
	mdm_service_free(d->svc);
	for (size_t i = 0; i < d->entries; i++)
		free(d->log[i].data);
	free(d->log);
	ash_timers_done(&d->timers);
	free_cluster(&d->c);
}

static void commit_first(struct desk *d)
{
	struct desk_entry e = d->log[0];
	struct mdm_result res;
	Pb__Command *cmd;

	d->entries--;
	memmove(d->log, d->log + 1, d->entries * sizeof(*d->log));
	if (d->fail_with) {
		e.done(e.arg, d->fail_with, NULL);
		free(e.data);
		return;
	}
	cmd = pb__command__unpack(NULL, e.bytes, e.data);
	mdm_apply(d->c.st, cmd, ++d->c.index, &res);
	check_state(d->c.st);
	mdm_service_applied(d->svc, cmd, &res);
	e.done(e.arg, 0, &res);
	mdm_result_done(&res);
	pb__command__free_unpacked(cmd, NULL);
	free(e.data);
}

void desk_run(struct desk *d)
{
	for (;;) {
		if (d->entries && !d->hold)
			commit_first(d);
		else if (!ash_timers_run(&d->timers, d->now))
			return;
	}
}

static void heartbeat(struct desk *d, struct desk_server *s)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__Heartbeat hb = PB__HEARTBEAT__INIT;
	Pb__PgProgress *resync = &s->resync;
	Pb__DeviceStats *stats = &s->stats;
	uint8_t process[16];

	uuid_of(s->process, process);
	if (!s->frozen && s->c->map && s->c->map->version > s->version)
		s->version = s->c->map->version;
	hb.map_version = s->version;
	hb.sds = s->id;
	hb.session.data = process;
	hb.session.len = 16;
	hb.n_resync = s->resync.left + s->resync.done ? 1 : 0;
	hb.resync = &resync;
	hb.n_devices = s->stats.device ? 1 : 0;
	hb.devices = &stats;
	req.r_case = PB__REQUEST__R_HEARTBEAT;
	req.heartbeat = &hb;
	mdm_service_request(d->svc, s->c->s, &req);
	desk_run(d);
}

void desk_pass(struct desk *d, uint64_t ms)
{
	uint64_t end = d->now + ms * DESK_MS;

	desk_run(d);
	while (d->now < end) {
		d->now += 10 * DESK_MS;
		for (unsigned i = 0; i < 8; i++) {
			struct desk_server *s = &desk_servers[i];

			if (s->c && s->alive && d->now >= s->next_ns) {
				s->next_ns = d->now + 200 * DESK_MS;
				heartbeat(d, s);
			}
		}
		desk_run(d);
	}
}

struct desk_client *desk_client(struct desk *d, const char *role, uint64_t uuid, uint64_t process)
{
	struct desk_client *c = NULL;
	Pb__Request req = PB__REQUEST__INIT;
	Pb__Hello hello = PB__HELLO__INIT;
	uint8_t u[16], p[16];

	for (unsigned i = 0; i < DESK_CLIENTS && !c; i++)
		if (!d->client[i].desk)
			c = &d->client[i];
	assert_non_null(c);
	c->desk = d;
	c->s = mdm_session_new(d->svc, c);
	uuid_of(uuid, u);
	uuid_of(process, p);
	hello.version_min = hello.version_max = 1;
	hello.role = (char *)role;
	hello.uuid.data = u;
	hello.uuid.len = 16;
	hello.session.data = p;
	hello.session.len = 16;
	req.r_case = PB__REQUEST__R_HELLO;
	req.hello = &hello;
	assert_int_equal(desk_ask(c, &req), 0);
	return c;
}

void desk_hang_up(struct desk_client *c)
{
	mdm_session_free(c->s);
	if (c->reply)
		pb__reply__free_unpacked(c->reply, NULL);
	if (c->map)
		pb__map__free_unpacked(c->map, NULL);
	memset(c, 0, sizeof(*c));
}

int desk_ask(struct desk_client *c, Pb__Request *req)
{
	static uint64_t next = 1;
	unsigned before = c->replies;

	req->id = next++;
	if (desk_asked_count < desk_asked_room) {
		struct desk_entry *e = &desk_asked[desk_asked_count++];

		e->bytes = pb__request__get_packed_size(req);
		e->data = malloc(e->bytes + 1);
		pb__request__pack(req, e->data);
	}
	mdm_service_request(c->desk->svc, c->s, req);
	desk_run(c->desk);
	if (c->replies == before)
		return -1;
	assert_int_equal(c->replies, before + 1);
	assert_int_equal(c->reply->id, req->id);
	return c->reply->error ? c->reply->error->code : 0;
}

const char *desk_error(const struct desk_client *c)
{
	return c->reply && c->reply->error ? c->reply->error->message : "";
}

int desk_admin(struct desk_client *c, const Pb__Admin *admin)
{
	Pb__Request req = PB__REQUEST__INIT;

	req.r_case = PB__REQUEST__R_ADMIN;
	req.admin = (Pb__Admin *)admin;
	return desk_ask(c, &req);
}

int desk_register(struct desk *d, struct desk_server *s)
{
	static uint8_t ip[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
	Pb__Request req = PB__REQUEST__INIT;
	Pb__SdsRegister reg = PB__SDS_REGISTER__INIT;
	Pb__Endpoint ep = PB__ENDPOINT__INIT, *list = &ep;
	uint8_t uuid[16], process[16];
	int code;

	if (!s->c)
		s->c = desk_client(d, "sds", s->uuid, s->process);
	uuid_of(s->uuid, uuid);
	uuid_of(s->process, process);
	ep.ip.data = ip;
	ep.ip.len = 16;
	ep.port = 7072 + (uint32_t)(s - desk_servers);
	ep.transport = 1;
	reg.uuid.data = uuid;
	reg.uuid.len = 16;
	reg.session.data = process;
	reg.session.len = 16;
	reg.n_endpoints = 1;
	reg.endpoints = &list;
	req.r_case = PB__REQUEST__R_SDS_REGISTER;
	req.sds_register = &reg;
	code = desk_ask(s->c, &req);
	if (!code) {
		assert_int_equal(s->c->reply->r_case, PB__REPLY__R_MAP);
		s->version = s->c->reply->map->version;
		s->alive = true;
		s->next_ns = d->now + 200 * DESK_MS;
	}
	return code;
}

int desk_open_device(struct desk *d, struct desk_server *s, uint64_t dev, uint64_t incarnation)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__DeviceOpened opened = PB__DEVICE_OPENED__INIT;
	Pb__FoundDevice f = PB__FOUND_DEVICE__INIT;
	uint8_t nonce[16];

	uuid_of(dev * 1000 + incarnation, nonce);
	f.device = dev;
	f.uuid = mdm_device(d->c.st, dev)->uuid;
	f.incarnation = incarnation;
	f.nonce.data = nonce;
	f.nonce.len = 16;
	f.capacity = 1ull << 30;
	f.size = 2ull << 30;
	f.open = true;
	opened.device = &f;
	req.r_case = PB__REQUEST__R_DEVICE_OPENED;
	req.device_opened = &opened;
	return desk_ask(s->c, &req);
}

void desk_cluster(struct desk *d, unsigned sdss)
{
	char name[16];

	desk_open(d);
	d->c.domain = add_domain(&d->c, "pd1");
	d->c.pool = add_pool(&d->c, "pool1", d->c.domain, 16);
	d->c.sdss = sdss;
	for (unsigned i = 0; i < sdss; i++) {
		struct desk_server *s = &desk_servers[i];

		snprintf(name, sizeof(name), "sds%u", i + 1);
		pb__pg_progress__init(&s->resync);
		pb__device_stats__init(&s->stats);
		s->uuid = 100 + i;
		s->process = 200 + i;
		s->id = d->c.sds[i] = add_sds(&d->c, name, d->c.domain, 0, s->uuid);
		assert_int_equal(desk_register(d, s), 0);
		d->c.dev[i] = add_device(&d->c, s->id, d->c.pool, 300 + i);
		assert_int_equal(desk_open_device(d, s, d->c.dev[i], 1), 0);
	}
	desk_pass(d, 1000);
}

void desk_volume(struct desk *d, struct desk_client **ret_sdc)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__SdcRegister reg = PB__SDC_REGISTER__INIT;
	uint8_t guid[16];
	uint64_t vol;

	assert_int_equal(add_volume(&d->c, "v1", d->c.pool, 8 << 20, true), 0);
	vol = d->c.res.id;
	assert_int_equal(add_sdc(&d->c, "sdc1", 77), 0);
	assert_int_equal(map_volume(&d->c, vol, d->c.res.id, false), 0);
	if (!ret_sdc)
		return;
	*ret_sdc = desk_client(d, "sdc", 77, 78);
	uuid_of(77, guid);
	reg.guid.data = guid;
	reg.guid.len = 16;
	req.r_case = PB__REQUEST__R_SDC_REGISTER;
	req.sdc_register = &reg;
	assert_int_equal(desk_ask(*ret_sdc, &req), 0);
}

struct mdm_row *row(struct desk *d, uint32_t pg)
{
	return &mdm_rows(d->c.st, d->c.pool)->row[pg];
}

unsigned in_state(struct desk *d, unsigned copies)
{
	unsigned n = 0;

	for (uint32_t pg = 0; pg < 16; pg++)
		n += mdm_row_in_sync(row(d, pg)) == copies;
	return n;
}

int report(struct desk *d, struct desk_server *s, Pb__PgAction action, uint32_t pg, uint64_t dev,
	   bool *ret_applied)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__PgReport rep = PB__PG_REPORT__INIT;
	Pb__PgChange change = PB__PG_CHANGE__INIT, *list = &change;
	const struct mdm_row *r = row(d, pg);
	int code;

	change.action = action;
	change.pool = d->c.pool;
	change.pg = pg;
	change.expect_gen = r->gen;
	change.device = dev;
	change.incarnation = mdm_device(d->c.st, dev)->incarnation;
	if (r->primary)
		change.proposer_incarnation = r->replica[r->primary - 1].incarnation;
	rep.n_changes = 1;
	rep.changes = &list;
	req.r_case = PB__REQUEST__R_PG_REPORT;
	req.pg_report = &rep;
	code = desk_ask(s->c, &req);
	if (!code)
		*ret_applied = s->c->reply->pg_report->answers[0]->applied;
	return code;
}

unsigned server_of(struct desk *d, uint64_t dev)
{
	for (unsigned i = 0; i < d->c.sdss; i++)
		if (d->c.dev[i] == dev)
			return i;
	fail();
	return 0;
}

int ask_open(struct desk_client *sdc, const char *name)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__OpenVolume open = PB__OPEN_VOLUME__INIT;

	open.volume = (char *)name;
	req.r_case = PB__REQUEST__R_OPEN_VOLUME;
	req.open_volume = &open;
	return desk_ask(sdc, &req);
}
