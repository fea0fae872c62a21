/* SPDX-License-Identifier: MIT */
#include "cmd.h"

int run(struct cluster *c, const Pb__Command *cmd)
{
	mdm_result_done(&c->res);
	if (c->log)
		c->log(c->log_arg, cmd);
	mdm_apply(c->st, cmd, ++c->index, &c->res);
	return c->res.err.code;
}

uint64_t must(struct cluster *c, const Pb__Command *cmd)
{
	if (run(c, cmd))
		fail_msg("refused: %s", c->res.err.message);
	return c->res.id;
}

void uuid_of(uint64_t n, uint8_t out[16])
{
	memset(out, 0xa5, 16);
	memcpy(out, &n, sizeof(n));
}

#define UUID(field, n)                                                                             \
	uint8_t field##_bytes[16];                                                                 \
	uuid_of(n, field##_bytes)
#define SET_UUID(to, field)                                                                        \
	do {                                                                                       \
		(to).data = field##_bytes;                                                         \
		(to).len = 16;                                                                     \
	} while (0)

void new_system(struct cluster *c)
{
	Pb__MdmMember m = PB__MDM_MEMBER__INIT, *list = &m;
	UUID(system, 1);
	COMMAND(cmd, b, SystemCreate, SYSTEM_CREATE, CMD_SYSTEM_CREATE, system_create);

	memset(c, 0, sizeof(*c));
	c->st = mdm_state_new();
	m.id = 1;
	m.name = (char *)"mdm1";
	m.client_address = (char *)"127.0.0.1:6611";
	m.raft_address = (char *)"127.0.0.1:9011";
	SET_UUID(b.uuid, system);
	b.name = (char *)"sys";
	b.n_mdms = 1;
	b.mdms = &list;
	must(c, &cmd);
}

uint64_t add_domain(struct cluster *c, const char *name)
{
	COMMAND(cmd, b, DomainAdd, DOMAIN_ADD, CMD_DOMAIN_ADD, domain_add);

	b.name = (char *)name;
	return must(c, &cmd);
}

uint64_t add_fault_set(struct cluster *c, const char *name, uint64_t domain)
{
	COMMAND(cmd, b, FaultSetAdd, FAULT_SET_ADD, CMD_FAULT_SET_ADD, fault_set_add);

	b.name = (char *)name;
	b.domain = domain;
	return must(c, &cmd);
}

uint64_t add_pool(struct cluster *c, const char *name, uint64_t domain, uint32_t pgs)
{
	COMMAND(cmd, b, PoolAdd, POOL_ADD, CMD_POOL_ADD, pool_add);

	b.name = (char *)name;
	b.domain = domain;
	b.pg_count = pgs;
	b.zero_padding = true;
	return must(c, &cmd);
}

uint64_t add_sds(struct cluster *c, const char *name, uint64_t domain, uint64_t fault_set,
		 uint64_t uuid)
{
	UUID(u, uuid);
	COMMAND(cmd, b, SdsAdd, SDS_ADD, CMD_SDS_ADD, sds_add);

	b.name = (char *)name;
	b.domain = domain;
	b.fault_set = fault_set;
	SET_UUID(b.uuid, u);
	return must(c, &cmd);
}

int register_sds(struct cluster *c, uint64_t uuid, uint64_t session)
{
	static uint8_t ip[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
	Pb__Endpoint ep = PB__ENDPOINT__INIT, *list = &ep;
	UUID(u, uuid);
	UUID(s, session);
	COMMAND(cmd, b, SdsRegister, SDS_REGISTER, CMD_SDS_REGISTER, sds_register);

	ep.ip.data = ip;
	ep.ip.len = 16;
	ep.port = 7072;
	ep.transport = 1;
	SET_UUID(b.uuid, u);
	SET_UUID(b.session, s);
	b.n_endpoints = 1;
	b.endpoints = &list;
	return run(c, &cmd);
}

int sds_down(struct cluster *c, uint64_t sds, uint64_t session)
{
	UUID(s, session);
	COMMAND(cmd, b, SdsState, SDS_STATE, CMD_SDS_STATE, sds_state);

	b.sds = sds;
	SET_UUID(b.session, s);
	return run(c, &cmd);
}

uint64_t add_device(struct cluster *c, uint64_t sds, uint64_t pool, uint64_t uuid)
{
	char path[64];
	UUID(u, uuid);
	COMMAND(cmd, b, DeviceAdd, DEVICE_ADD, CMD_DEVICE_ADD, device_add);

	snprintf(path, sizeof(path), "/dev/disk/%llu", (unsigned long long)uuid);
	b.sds = sds;
	b.pool = pool;
	b.path = path;
	SET_UUID(b.uuid, u);
	return must(c, &cmd);
}

int open_device(struct cluster *c, uint64_t dev, uint64_t incarnation, uint64_t nonce,
		uint64_t capacity)
{
	const Pb__Device *d = mdm_device(c->st, dev);
	UUID(n, nonce);
	COMMAND(cmd, b, DeviceOpened, DEVICE_OPENED, CMD_DEVICE_OPENED, device_opened);

	b.device = dev;
	if (d)
		b.uuid = d->uuid;
	b.incarnation = incarnation;
	SET_UUID(b.nonce, n);
	b.capacity = capacity;
	b.size = capacity + (256ull << 20);
	return run(c, &cmd);
}

int fail_device(struct cluster *c, uint64_t dev, uint64_t incarnation)
{
	COMMAND(cmd, b, DeviceFailed, DEVICE_FAILED, CMD_DEVICE_FAILED, device_failed);

	b.device = dev;
	b.incarnation = incarnation;
	return run(c, &cmd);
}

int add_volume(struct cluster *c, const char *name, uint64_t pool, uint64_t size, bool thin)
{
	COMMAND(cmd, b, VolumeAdd, VOLUME_ADD, CMD_VOLUME_ADD, volume_add);

	b.name = (char *)name;
	b.pool = pool;
	b.size = size;
	b.thin = thin;
	return run(c, &cmd);
}

int add_sdc(struct cluster *c, const char *name, uint64_t guid)
{
	UUID(g, guid);
	COMMAND(cmd, b, SdcAdd, SDC_ADD, CMD_SDC_ADD, sdc_add);

	b.name = (char *)name;
	SET_UUID(b.guid, g);
	return run(c, &cmd);
}

int map_volume(struct cluster *c, uint64_t volume, uint64_t sdc, bool shared)
{
	COMMAND(cmd, b, Map, MAP, CMD_MAP, map);

	b.volume = volume;
	b.sdc = sdc;
	b.shared = shared;
	return run(c, &cmd);
}

int open_volume(struct cluster *c, uint64_t volume, uint64_t sdc)
{
	COMMAND(cmd, b, Open, OPEN, CMD_OPEN, open);

	b.volume = volume;
	b.sdc = sdc;
	return run(c, &cmd);
}

int unmap_volume(struct cluster *c, uint64_t volume, uint64_t sdc, bool force)
{
	COMMAND(cmd, b, Unmap, UNMAP, CMD_UNMAP, unmap);

	b.volume = volume;
	b.sdc = sdc;
	b.force = force;
	return run(c, &cmd);
}

int remove_object(struct cluster *c, Pb__Kind kind, uint64_t id, bool force)
{
	COMMAND(cmd, b, Remove, REMOVE, CMD_REMOVE, remove);

	b.kind = kind;
	b.id = id;
	b.force = force;
	return run(c, &cmd);
}

struct mdm_row *row_of(struct cluster *c, uint32_t pg)
{
	return &mdm_rows(c->st, c->pool)->row[pg];
}

bool change_pg_as(struct cluster *c, const Pb__PgChange *change)
{
	Pb__PgChange copy = *change, *list = &copy;
	COMMAND(cmd, b, PgBatch, PG_BATCH, CMD_PG_BATCH, pg_batch);

	b.n_changes = 1;
	b.changes = &list;
	must(c, &cmd);
	assert_int_equal(c->res.answers_count, 1);
	return c->res.answers[0]->applied;
}

bool change_pg(struct cluster *c, Pb__PgAction action, uint32_t pg, uint64_t device)
{
	const struct mdm_row *row = row_of(c, pg);
	const Pb__Device *dev = mdm_device(c->st, device);
	Pb__PgChange change = PB__PG_CHANGE__INIT;

	change.action = action;
	change.pool = c->pool;
	change.pg = pg;
	change.expect_gen = row->gen;
	change.device = device;
	change.incarnation = dev ? dev->incarnation : 0;
	if (row->primary)
		change.proposer_incarnation = row->replica[row->primary - 1].incarnation;
	return change_pg_as(c, &change);
}

bool place_pg(struct cluster *c, uint32_t pg, uint64_t primary, uint64_t secondary)
{
	uint64_t devices[2] = {primary, secondary};
	Pb__PgChange change = PB__PG_CHANGE__INIT;

	change.action = PB__PG_ACTION__PG_PLACE;
	change.pool = c->pool;
	change.pg = pg;
	change.expect_gen = row_of(c, pg)->gen;
	change.n_place_devices = 2;
	change.place_devices = devices;
	return change_pg_as(c, &change);
}

void make_cluster(struct cluster *c, unsigned sdss, uint64_t mib)
{
	char name[16];

	new_system(c);
	c->sdss = sdss;
	c->domain = add_domain(c, "pd1");
	c->pool = add_pool(c, "pool1", c->domain, 16);
	for (unsigned i = 0; i < sdss; i++) {
		snprintf(name, sizeof(name), "sds%u", i + 1);
		c->sds[i] = add_sds(c, name, c->domain, 0, 100 + i);
		assert_int_equal(register_sds(c, 100 + i, 200 + i), 0);
		c->dev[i] = add_device(c, c->sds[i], c->pool, 300 + i);
		assert_int_equal(open_device(c, c->dev[i], 1, 400 + i, mib << 20), 0);
	}
	for (uint32_t pg = 0; sdss > 1 && pg < 16; pg++)
		assert_true(place_pg(c, pg, c->dev[pg % sdss], c->dev[(pg + 1) % sdss]));
}

void free_cluster(struct cluster *c)
{
	mdm_result_done(&c->res);
	mdm_state_free(c->st);
}

/* ---------------------------------------------------------------- invariants */

static void check_row(const struct mdm_state *st, const struct mdm_rows *rows, uint32_t pg)
{
	const struct mdm_row *row = &rows->row[pg];
	unsigned in_sync = mdm_row_in_sync(row);

	assert_true(row->gen <= st->version);
	assert_int_equal(!row->primary, !in_sync);
	assert_true(row->primary <= row->replicas && row->handover <= row->replicas);
	if (row->primary) {
		assert_int_equal(row->replica[row->primary - 1].state, ASH_REPLICA_IN_SYNC);
		assert_int_equal(row->last_count, 0);
	}
	for (unsigned i = 0; i < row->replicas; i++) {
		const struct mdm_replica *r = &row->replica[i];
		const Pb__Device *dev = mdm_device(st, r->device);

		assert_non_null(dev);
		assert_int_equal(dev->pool, rows->pool);
		assert_true(r->left_gen <= row->gen);
		if (r->state == ASH_REPLICA_ABSENT) {
			assert_true(r->left_gen <= row->shrunk_at);
			continue;
		}
		/* Holds a state only by the opening that is there now. */
		assert_int_equal(r->incarnation, dev->incarnation);
		assert_true(mdm_device_usable(st, dev));
		for (unsigned k = 0; k < i; k++)
			if (row->replica[k].state != ASH_REPLICA_ABSENT)
				assert_int_not_equal(mdm_unit_of(st, row->replica[k].device),
						     mdm_unit_of(st, r->device));
	}
	for (unsigned i = 0; i < row->last_count; i++)
		assert_true(mdm_row_find(row, row->last[i]) >= 0);
}

void check_state(const struct mdm_state *st)
{
	for (size_t i = 0; i < st->rows_count; i++) {
		const struct mdm_rows *rows = st->rows[i];
		uint64_t gen = UINT64_MAX;
		size_t chained = 0, placed = 0;

		for (uint32_t pg = 0; pg < rows->pg_count; pg++) {
			placed += rows->row[pg].gen != 0;
			check_row(st, rows, pg);
		}
		for (uint32_t pg = rows->newest; pg != MDM_NO_ROW; pg = rows->row[pg].older) {
			assert_true(rows->row[pg].gen <= gen && rows->row[pg].gen);
			gen = rows->row[pg].gen;
			chained++;
		}
		assert_int_equal(chained, placed);
	}
	for (int kind = 1; kind < MDM_KINDS; kind++)
		for (size_t i = 0; i < st->table[kind].count; i++)
			assert_true(*mdm_obj_version(kind, st->table[kind].obj[i]) <= st->version);
}
