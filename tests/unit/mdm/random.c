/* SPDX-License-Identifier: MIT */
#include "random.h"

static uint64_t below(struct random_run *r, uint64_t n)
{
	return ash_prng_below(&r->rng, n);
}

/* An id of that kind; now and then one that does not exist. 0 if there is none. */
static uint64_t pick(struct random_run *r, int kind)
{
	const struct mdm_table *t = &r->c.st->table[kind];

	if (!t->count || !below(r, 30))
		return below(r, 50);
	return mdm_obj_id(t->obj[below(r, t->count)]);
}

static const char *name(struct random_run *r, char *buf)
{
	if (!below(r, 40))
		return "not a name";
	snprintf(buf, 32, "n%llu", (unsigned long long)below(r, 400));
	return buf;
}

static void count(struct random_run *r, int code)
{
	r->applied += !code;
}

static void step_pool(struct random_run *r)
{
	char buf[32];
	COMMAND(cmd, b, PoolAdd, POOL_ADD, CMD_POOL_ADD, pool_add);

	b.name = (char *)name(r, buf);
	b.domain = pick(r, PB__KIND__KIND_DOMAIN);
	b.pg_count = (uint32_t)(16u << below(r, 3));
	b.spare_pct = (uint32_t)below(r, 95);
	count(r, run(&r->c, &cmd));
}

static void step_pool_set(struct random_run *r)
{
	char buf[32];
	Pb__Policy policy = PB__POLICY__INIT;
	COMMAND(cmd, b, PoolSet, POOL_SET, CMD_POOL_SET, pool_set);

	b.pool = pick(r, PB__KIND__KIND_POOL);
	b.has_spare = below(r, 2);
	b.spare_pct = (uint32_t)below(r, 95);
	if (!below(r, 4))
		b.name = (char *)name(r, buf);
	policy.concurrent_per_device = (uint32_t)below(r, 3);
	policy.kind = (Pb__PolicyKind)below(r, 5);
	if (below(r, 2))
		b.rebuild = &policy;
	count(r, run(&r->c, &cmd));
}

static void step_sds(struct random_run *r)
{
	char buf[32];
	uint8_t uuid[16];
	COMMAND(cmd, b, SdsAdd, SDS_ADD, CMD_SDS_ADD, sds_add);

	if (r->c.st->table[PB__KIND__KIND_SDS].count > 12)
		return;
	uuid_of(1000 + r->next_uuid++, uuid);
	b.name = (char *)name(r, buf);
	b.domain = pick(r, PB__KIND__KIND_DOMAIN);
	b.fault_set = below(r, 2) ? pick(r, PB__KIND__KIND_FAULT_SET) : 0;
	b.uuid.data = uuid;
	b.uuid.len = 16;
	count(r, run(&r->c, &cmd));
}

/* The number that its UUID or session was made of. */
static uint64_t number_of(const ProtobufCBinaryData *id)
{
	uint64_t n = 0;

	if (id->len == 16)
		memcpy(&n, id->data, sizeof(n));
	return n;
}

static void step_register(struct random_run *r)
{
	const Pb__Sds *sds = mdm_sds(r->c.st, pick(r, PB__KIND__KIND_SDS));

	if (!sds)
		return;
	count(r, register_sds(&r->c, number_of(&sds->uuid),
			      below(r, 2) && sds->session.len ? number_of(&sds->session)
							      : 5000 + r->sessions++));
}

static void step_down(struct random_run *r)
{
	const Pb__Sds *sds = mdm_sds(r->c.st, pick(r, PB__KIND__KIND_SDS));
	const Pb__Sds *other = mdm_sds(r->c.st, pick(r, PB__KIND__KIND_SDS));
	Pb__CmdSdsState also = PB__CMD_SDS_STATE__INIT, *list = &also;
	COMMAND(cmd, b, SdsState, SDS_STATE, CMD_SDS_STATE, sds_state);

	if (!sds)
		return;
	b.sds = sds->id;
	b.session = sds->session;
	if (other && below(r, 2)) {
		also.sds = other->id;
		also.session = other->session;
		b.n_also = 1;
		b.also = &list;
	}
	count(r, run(&r->c, &cmd));
}

static void step_device(struct random_run *r)
{
	char path[32];
	uint8_t uuid[16];
	COMMAND(cmd, b, DeviceAdd, DEVICE_ADD, CMD_DEVICE_ADD, device_add);

	if (r->c.st->table[PB__KIND__KIND_DEVICE].count > 20)
		return;
	uuid_of(9000 + r->next_uuid++, uuid);
	snprintf(path, sizeof(path), "/dev/%llu", (unsigned long long)below(r, 100));
	b.sds = pick(r, PB__KIND__KIND_SDS);
	b.pool = pick(r, PB__KIND__KIND_POOL);
	b.path = path;
	b.uuid.data = uuid;
	b.uuid.len = 16;
	count(r, run(&r->c, &cmd));
}

static void step_open(struct random_run *r)
{
	const Pb__Device *dev = mdm_device(r->c.st, pick(r, PB__KIND__KIND_DEVICE));
	uint64_t inc;

	if (!dev)
		return;
	inc = dev->incarnation + (dev->state != PB__DEVICE_STATE__DEVICE_UP || !below(r, 10));
	count(r,
	      open_device(&r->c, dev->id, inc, dev->id * 1000 + inc + !below(r, 20), 1ull << 30));
}

static void step_fail(struct random_run *r)
{
	const Pb__Device *dev = mdm_device(r->c.st, pick(r, PB__KIND__KIND_DEVICE));

	if (dev && !below(r, 3))
		count(r, fail_device(&r->c, dev->id, dev->incarnation - !below(r, 10)));
}

static uint64_t some_device_of(struct random_run *r, const struct mdm_rows *rows, uint32_t pg)
{
	const struct mdm_row *row = &rows->row[pg];

	if (row->replicas && below(r, 4))
		return row->replica[below(r, row->replicas)].device;
	return pick(r, PB__KIND__KIND_DEVICE);
}

/* What a controller or a primary would do next with that copy. */
static Pb__PgAction sensible(struct random_run *r, const struct mdm_row *row, uint64_t device)
{
	int i = mdm_row_find(row, device);

	if (i < 0)
		return PB__PG_ACTION__PG_REPLACE;
	if (row->replica[i].state == ASH_REPLICA_BUILDING)
		return PB__PG_ACTION__PG_JOIN;
	if (row->replica[i].state == ASH_REPLICA_ABSENT)
		return row->primary ? PB__PG_ACTION__PG_BUILD : PB__PG_ACTION__PG_ACTIVATE;
	return below(r, 2) ? PB__PG_ACTION__PG_DROP : PB__PG_ACTION__PG_HANDOVER;
}

static void step_pg(struct random_run *r)
{
	Pb__PgChange change[8], *list[8];
	uint64_t devices[8][2];
	size_t n = 1 + below(r, 8);
	COMMAND(cmd, b, PgBatch, PG_BATCH, CMD_PG_BATCH, pg_batch);

	if (!r->c.st->rows_count)
		return;
	for (size_t i = 0; i < n; i++) {
		const struct mdm_rows *rows = r->c.st->rows[below(r, r->c.st->rows_count)];
		uint32_t pg = (uint32_t)below(r, rows->pg_count);
		const struct mdm_row *row = &rows->row[pg];
		const Pb__Device *dev;

		pb__pg_change__init(&change[i]);
		list[i] = &change[i];
		change[i].action = (Pb__PgAction)below(r, 12);
		if (!row->replicas && below(r, 8))
			change[i].action = PB__PG_ACTION__PG_PLACE;
		change[i].pool = rows->pool;
		change[i].pg = pg;
		change[i].expect_gen = row->gen - !below(r, 20);
		change[i].device = some_device_of(r, rows, pg);
		if (row->replicas && below(r, 2))
			change[i].action = sensible(r, row, change[i].device);
		dev = mdm_device(r->c.st, change[i].device);
		change[i].incarnation = (dev ? dev->incarnation : 0) - !below(r, 20);
		if (row->primary)
			change[i].proposer_incarnation = row->replica[row->primary - 1].incarnation;
		devices[i][0] = pick(r, PB__KIND__KIND_DEVICE);
		devices[i][1] = pick(r, PB__KIND__KIND_DEVICE);
		change[i].place_devices = devices[i];
		change[i].n_place_devices = 2;
	}
	b.changes = list;
	b.n_changes = n;
	count(r, run(&r->c, &cmd));
}

static void step_volume(struct random_run *r)
{
	char buf[32];

	count(r, add_volume(&r->c, name(r, buf), pick(r, PB__KIND__KIND_POOL),
			    (1 + below(r, 900)) << 20, below(r, 2)));
}

static void step_grow(struct random_run *r)
{
	COMMAND(cmd, b, VolumeSet, VOLUME_SET, CMD_VOLUME_SET, volume_set);

	b.volume = pick(r, PB__KIND__KIND_VOLUME);
	b.size = below(r, 2000) << 20;
	count(r, run(&r->c, &cmd));
}

static void step_sdc(struct random_run *r)
{
	char buf[32];

	if (r->c.st->table[PB__KIND__KIND_SDC].count < 8)
		count(r, add_sdc(&r->c, name(r, buf), 20000 + r->next_uuid++));
}

static void step_map(struct random_run *r)
{
	uint64_t vol = pick(r, PB__KIND__KIND_VOLUME), sdc = pick(r, PB__KIND__KIND_SDC);

	switch (below(r, 5)) {
	case 0:
	case 1:
		count(r, map_volume(&r->c, vol, sdc, below(r, 2)));
		break;
	case 2:
	case 3:
		count(r, open_volume(&r->c, vol, sdc));
		break;
	default:
		count(r, unmap_volume(&r->c, vol, sdc, !below(r, 4)));
		break;
	}
}

static void step_confirm(struct random_run *r)
{
	const Pb__Fence *f = mdm_fence(r->c.st, pick(r, PB__KIND__KIND_FENCE));
	const Pb__Tombstone *t = mdm_tombstone(r->c.st, pick(r, PB__KIND__KIND_TOMBSTONE));

	if (f && f->n_pending_sds) {
		COMMAND(cmd, b, FenceDone, FENCE_DONE, CMD_FENCE_DONE, fence_done);

		b.fence = f->id;
		b.sds = f->pending_sds[below(r, f->n_pending_sds)];
		count(r, run(&r->c, &cmd));
	}
	if (t && t->n_pending_devices) {
		COMMAND(cmd, b, TombstoneDone, TOMBSTONE_DONE, CMD_TOMBSTONE_DONE, tombstone_done);

		b.node = t->node;
		b.device = t->pending_devices[below(r, t->n_pending_devices)];
		count(r, run(&r->c, &cmd));
	}
}

static void step_remove(struct random_run *r)
{
	Pb__Kind kind = (Pb__Kind)below(r, 13);

	/* What carries the rest is removed less often. */
	if (kind < 6 && below(r, 6))
		return;
	count(r, remove_object(&r->c, kind, kind ? pick(r, kind % 12) : 1, below(r, 2)));
}

static void step_rename(struct random_run *r)
{
	char buf[32];
	COMMAND(cmd, b, Rename, RENAME, CMD_RENAME, rename);

	b.kind = (Pb__Kind)below(r, 12);
	b.id = pick(r, (int)b.kind);
	b.name = (char *)name(r, buf);
	count(r, run(&r->c, &cmd));
}

static void step_layout(struct random_run *r)
{
	char buf[32];
	COMMAND(cmd, b, FaultSetAdd, FAULT_SET_ADD, CMD_FAULT_SET_ADD, fault_set_add);

	b.name = (char *)name(r, buf);
	b.domain = pick(r, PB__KIND__KIND_DOMAIN);
	if (r->c.st->table[PB__KIND__KIND_FAULT_SET].count < 8)
		count(r, run(&r->c, &cmd));
}

static void step_event(struct random_run *r)
{
	Pb__Event e = PB__EVENT__INIT;
	COMMAND(cmd, b, Event, EVENT, CMD_EVENT, event);

	e.code = (char *)"TEST";
	e.object = (char *)"pool:x";
	e.message = (char *)"%s text";
	b.event = &e;
	count(r, run(&r->c, &cmd));
}

void random_step(struct random_run *r)
{
	static void (*const steps[])(struct random_run *) = {
		step_pool,   step_pool_set, step_sds,	step_register, step_register, step_down,
		step_device, step_device,   step_open,	step_open,     step_open,     step_open,
		step_fail,   step_pg,	    step_pg,	step_pg,       step_pg,	      step_pg,
		step_pg,     step_pg,	    step_pg,	step_volume,   step_grow,     step_sdc,
		step_map,    step_map,	    step_map,	step_confirm,  step_confirm,  step_remove,
		step_rename, step_layout,   step_event,
	};

	steps[below(r, sizeof(steps) / sizeof(steps[0]))](r);
}

void random_pg_step(struct random_run *r)
{
	/* Quiet enough for rows to get far from their start between two failures. */
	switch (below(r, 100)) {
	case 0:
	case 1:
		step_register(r);
		break;
	case 2:
		step_down(r);
		break;
	case 3:
		step_fail(r);
		break;
	default:
		if (below(r, 8))
			step_pg(r);
		else
			step_open(r);
	}
}

void random_start(struct random_run *r, uint64_t seed)
{
	uint64_t fs[3];
	char text[16];

	memset(r, 0, sizeof(*r));
	ash_prng_seed(&r->rng, seed);
	r->next_uuid = 1;
	new_system(&r->c);
	r->c.domain = add_domain(&r->c, "pd1");
	add_domain(&r->c, "pd2");
	r->c.pool = add_pool(&r->c, "pool1", r->c.domain, 16);
	for (unsigned i = 0; i < 3; i++) {
		snprintf(text, sizeof(text), "fs%u", i);
		fs[i] = add_fault_set(&r->c, text, r->c.domain);
	}
	for (unsigned i = 0; i < 5; i++) {
		uint64_t uuid = 1000 + r->next_uuid++, sds, dev;

		snprintf(text, sizeof(text), "s%u", i);
		sds = add_sds(&r->c, text, r->c.domain, i < 4 ? fs[i % 3] : 0, uuid);
		assert_int_equal(register_sds(&r->c, uuid, 5000 + r->sessions++), 0);
		dev = add_device(&r->c, sds, r->c.pool, 9000 + r->next_uuid++);
		assert_int_equal(open_device(&r->c, dev, 1, dev * 1000 + 1, 1ull << 30), 0);
	}
}
