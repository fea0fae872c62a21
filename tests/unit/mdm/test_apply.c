/* SPDX-License-Identifier: MIT */
/* The state: determinism, snapshots, deltas, and what is refused. */
#include "random.h"

#include "common/map/map.h"

static void assert_same(const struct mdm_state *a, const struct mdm_state *b)
{
	size_t na, nb;
	uint8_t *x = mdm_snapshot(a, &na), *y = mdm_snapshot(b, &nb);

	assert_int_equal(na, nb);
	assert_memory_equal(x, y, na);
	free(x);
	free(y);
}

/* ---------------------------------------------------------------- determinism */

struct twin {
	struct mdm_state *st;
	uint64_t index;
};

/* The twin gets every command as bytes, as a member of the cluster does. */
static void feed(void *arg, const Pb__Command *cmd)
{
	struct twin *t = arg;
	size_t n = pb__command__get_packed_size(cmd);
	uint8_t *data = malloc(n + 1);
	struct mdm_result res;
	Pb__Command *copy;

	pb__command__pack(cmd, data);
	copy = pb__command__unpack(NULL, n, data);
	assert_non_null(copy);
	mdm_apply(t->st, copy, ++t->index, &res);
	mdm_result_done(&res);
	pb__command__free_unpacked(copy, NULL);
	free(data);
}

static void through_snapshot(struct twin *t)
{
	struct ash_error err;
	size_t n;
	uint8_t *data = mdm_snapshot(t->st, &n);
	struct mdm_state *st = mdm_restore(data, n, &err);

	if (!st)
		fail_msg("%s", err.message);
	free(data);
	mdm_state_free(t->st);
	t->st = st;
}

static void copy_state(struct twin *t, const struct cluster *c)
{
	struct ash_error err;
	size_t n;
	uint8_t *data = mdm_snapshot(c->st, &n);

	t->st = mdm_restore(data, n, &err);
	t->index = c->index;
	free(data);
}

static void random_commands_same_everywhere(void **state)
{
	for (uint64_t seed = 1; seed <= 30; seed++) {
		struct random_run r;
		struct twin twin;

		random_start(&r, seed);
		copy_state(&twin, &r.c);
		r.c.log = feed;
		r.c.log_arg = &twin;
		for (unsigned i = 0; i < 1500; i++) {
			uint64_t before = r.c.st->version;

			random_step(&r);
			assert_true(r.c.st->version >= before);
			check_state(r.c.st);
			if (!ash_prng_below(&r.rng, 100))
				through_snapshot(&twin);
			if (!ash_prng_below(&r.rng, 50))
				assert_same(r.c.st, twin.st);
		}
		assert_same(r.c.st, twin.st);
		assert_true(r.applied > 300); /* or the run shows nothing */
		mdm_state_free(twin.st);
		free_cluster(&r.c);
	}
}

static void check_agrees_with_apply(void **state)
{
	/* A command that check refuses changes nothing but the index. */
	struct cluster c;
	size_t na, nb;
	uint8_t *before, *after;

	make_cluster(&c, 3, 1024);
	c.st->applied = 0;
	before = mdm_snapshot(c.st, &na);
	for (unsigned i = 0; i < 20; i++) {
		c.index = UINT64_MAX; /* ++ makes 0: not recorded */
		add_volume(&c, "v", c.pool, 1000 + i, true);
		assert_int_equal(c.res.err.code, ASH_E_INVALID);
	}
	after = mdm_snapshot(c.st, &nb);
	assert_int_equal(na, nb);
	assert_memory_equal(before, after, na);
	free(before);
	free(after);
	free_cluster(&c);
}

static void repeated_index_is_skipped(void **state)
{
	struct cluster c;
	COMMAND(cmd, b, DomainAdd, DOMAIN_ADD, CMD_DOMAIN_ADD, domain_add);

	new_system(&c);
	b.name = (char *)"pd";
	must(&c, &cmd);
	b.name = (char *)"pd2";
	c.index--;
	assert_int_equal(run(&c, &cmd), ASH_E_STALE);
	assert_int_equal(c.st->table[PB__KIND__KIND_DOMAIN].count, 1);
	free_cluster(&c);
}

static void garbage_is_no_snapshot(void **state)
{
	struct ash_prng rng;
	struct ash_error err;
	struct cluster c;
	size_t n;
	uint8_t *data;

	make_cluster(&c, 4, 1024);
	data = mdm_snapshot(c.st, &n);
	ash_prng_seed(&rng, 7);
	for (unsigned i = 0; i < 3000; i++) {
		size_t at = ash_prng_below(&rng, n);
		uint8_t old = data[at];
		struct mdm_state *st;

		data[at] ^= (uint8_t)(1 + ash_prng_below(&rng, 255));
		st = mdm_restore(data, i % 3 ? n : at, &err);
		if (st)
			mdm_state_free(st);
		else
			assert_true(*err.message);
		data[at] = old;
	}
	free(data);
	free_cluster(&c);
}

/* ---------------------------------------------------------------- deltas */

/* A receiver that knows objects by kind and id, as packed bytes; rows by pool and pg. */
struct known {
	uint64_t kind, id, sub;
	size_t n;
	uint8_t *data;
};
struct receiver {
	enum mdm_audience audience;
	uint64_t id, version;
	struct known *k;
	size_t count;
	struct ash_map *map; /* how SDSs and SDCs take it in; may be NULL */
};

#define KIND_SYSTEM 100
#define KIND_ROW 101

static struct known *know(struct receiver *r, uint64_t kind, uint64_t id, uint64_t sub)
{
	for (size_t i = 0; i < r->count; i++)
		if (r->k[i].kind == kind && r->k[i].id == id && r->k[i].sub == sub)
			return &r->k[i];
	return NULL;
}

static void forget_known(struct receiver *r, struct known *k)
{
	free(k->data);
	*k = r->k[--r->count];
}

static void learn(struct receiver *r, uint64_t kind, uint64_t id, uint64_t sub, const void *message)
{
	struct known *k = know(r, kind, id, sub);

	if (!k) {
		r->k = realloc(r->k, (r->count + 1) * sizeof(*r->k));
		k = &r->k[r->count++];
		*k = (struct known){.kind = kind, .id = id, .sub = sub};
	}
	free(k->data);
	k->n = protobuf_c_message_get_packed_size(message);
	k->data = malloc(k->n + 1);
	protobuf_c_message_pack(message, k->data);
}

static void receive(struct receiver *r, const Pb__Map *map)
{
	if (r->map)
		assert_int_equal(ash_map_apply(r->map, map, NULL), 0);
	if (!map->base_version)
		while (r->count)
			forget_known(r, &r->k[0]);
	else
		assert_true(map->base_version <= r->version);
	for (size_t i = 0; i < map->n_removed; i++) {
		struct known *k = know(r, map->removed[i]->kind, map->removed[i]->id, 0);

		if (k)
			forget_known(r, k);
		for (size_t j = 0; map->removed[i]->kind == PB__KIND__KIND_POOL && j < r->count;)
			if (r->k[j].kind == KIND_ROW && r->k[j].id == map->removed[i]->id)
				forget_known(r, &r->k[j]);
			else
				j++;
	}
#define LEARN(field, KIND_NAME)                                                                    \
	for (size_t i = 0; i < map->n_##field; i++)                                                \
	learn(r, PB__KIND__KIND_##KIND_NAME, mdm_obj_id(map->field[i]), 0, map->field[i])
	LEARN(domains, DOMAIN);
	LEARN(fault_sets, FAULT_SET);
	LEARN(sdss, SDS);
	LEARN(devices, DEVICE);
	LEARN(pools, POOL);
	LEARN(volumes, VOLUME);
	LEARN(sdcs, SDC);
	LEARN(mappings, MAPPING);
	LEARN(fences, FENCE);
	LEARN(tombstones, TOMBSTONE);
	LEARN(mdms, MDM);
	for (size_t i = 0; i < map->n_rows; i++)
		learn(r, KIND_ROW, map->rows[i]->pool, map->rows[i]->pg, map->rows[i]);
	if (map->system)
		learn(r, KIND_SYSTEM, 0, 0, map->system);
	r->version = map->version;
}

static void forget_all(struct receiver *r)
{
	while (r->count)
		forget_known(r, &r->k[0]);
	free(r->k);
	r->k = NULL;
	ash_map_free(r->map);
}

/* Rows of the receiver's own map are those of the state. */
static void compare_rows(struct receiver *r, const struct mdm_state *st)
{
	struct ash_map_pool *pool = NULL;

	assert_int_equal(ash_map_version(r->map), st->version);
	while ((pool = ash_map_next_pool(r->map, pool ? pool->id : 0))) {
		const struct mdm_rows *rows = mdm_rows(st, pool->id);

		/* An SDC may keep a pool that it no longer needs. */
		for (uint32_t pg = 0; rows && r->audience != MDM_FOR_SDC && pg < pool->pg_count;
		     pg++) {
			assert_int_equal(pool->rows[pg].gen, rows->row[pg].gen);
			assert_int_equal(pool->rows[pg].replicas, rows->row[pg].replicas);
			if (rows->row[pg].gen)
				assert_int_equal((uint8_t)(pool->rows[pg].primary + 1),
						 rows->row[pg].primary);
		}
	}
}

/* What a full map says is what the receiver of deltas knows; @exact: and nothing else. */
static void compare_full(struct receiver *r, const struct mdm_state *st, bool exact)
{
	struct receiver full = {.audience = r->audience, .id = r->id};
	Pb__Map *map = mdm_map_for(st, r->audience, r->id, 0);

	receive(&full, map);
	pb__map__free_unpacked(map, NULL);
	if (r->map)
		compare_rows(r, st);
	for (size_t i = 0; i < full.count; i++) {
		struct known *k = know(r, full.k[i].kind, full.k[i].id, full.k[i].sub);

		if (!k)
			fail_msg("kind %llu id %llu sub %llu never came",
				 (unsigned long long)full.k[i].kind,
				 (unsigned long long)full.k[i].id,
				 (unsigned long long)full.k[i].sub);
		assert_int_equal(k->n, full.k[i].n);
		assert_memory_equal(k->data, full.k[i].data, k->n);
	}
	if (exact)
		assert_int_equal(r->count, full.count);
	forget_all(&full);
}

static void deltas_add_up(void **state)
{
	for (uint64_t seed = 1; seed <= 12; seed++) {
		struct random_run r;
		struct receiver rec[4];
		uint64_t sdc;

		random_start(&r, seed + 500);
		assert_int_equal(add_sdc(&r.c, "sdc1", 77), 0);
		sdc = r.c.res.id;
		rec[0] = (struct receiver){.audience = MDM_FOR_ADMIN};
		rec[1] = (struct receiver){
			.audience = MDM_FOR_SDS,
			.id = mdm_obj_id(r.c.st->table[PB__KIND__KIND_SDS].obj[0])};
		rec[2] = (struct receiver){.audience = MDM_FOR_SDC, .id = sdc};
		rec[3] = (struct receiver){.audience = MDM_FOR_SDS, .id = UINT64_MAX - 1};
		for (unsigned k = 0; k < 3; k++)
			rec[k].map = ash_map_new();
		for (unsigned i = 0; i < 1200; i++) {
			random_step(&r);
			for (unsigned k = 0; k < 4; k++) {
				Pb__Map *map;

				if (ash_prng_below(&r.rng, 6 * (k + 1)))
					continue;
				map = mdm_map_for(r.c.st, rec[k].audience, rec[k].id,
						  rec[k].version);
				assert_int_equal(map->version, r.c.st->version);
				receive(&rec[k], map);
				pb__map__free_unpacked(map, NULL);
				/* A removed SDS keeps what it had; an SDC too. */
				if (k != 1 || mdm_sds(r.c.st, rec[1].id))
					compare_full(&rec[k], r.c.st, k == 0);
			}
		}
		for (unsigned k = 0; k < 4; k++)
			forget_all(&rec[k]);
		free_cluster(&r.c);
	}
}

static void removal_log_is_bounded(void **state)
{
	struct receiver rec = {.audience = MDM_FOR_ADMIN};
	struct cluster c;
	Pb__Map *map;

	make_cluster(&c, 2, 1024);
	assert_int_equal(add_volume(&c, "v", c.pool, 1 << 20, true), 0);
	assert_int_equal(add_sdc(&c, "s", 5), 0);
	receive(&rec, map = mdm_map_for(c.st, MDM_FOR_ADMIN, 0, 0));
	pb__map__free_unpacked(map, NULL);
	for (unsigned i = 0; i < MDM_REMOVED_MAX + 10; i++) {
		uint64_t vol = mdm_obj_id(c.st->table[PB__KIND__KIND_VOLUME].obj[0]);
		uint64_t sdc = mdm_obj_id(c.st->table[PB__KIND__KIND_SDC].obj[0]);

		assert_int_equal(map_volume(&c, vol, sdc, false), 0);
		assert_int_equal(unmap_volume(&c, vol, sdc, false), 0);
	}
	assert_true(c.st->removed_count <= MDM_REMOVED_MAX);
	assert_true(c.st->removed_floor > rec.version);
	map = mdm_map_for(c.st, MDM_FOR_ADMIN, 0, rec.version);
	assert_int_equal(map->base_version, 0);
	receive(&rec, map);
	pb__map__free_unpacked(map, NULL);
	compare_full(&rec, c.st, true);
	forget_all(&rec);
	free_cluster(&c);
}

static void an_sdc_sees_only_its_own(void **state)
{
	struct cluster c;
	uint64_t v1, v2, s1, s2;
	Pb__Map *map;

	make_cluster(&c, 2, 1024);
	add_volume(&c, "v1", c.pool, 1 << 20, true);
	v1 = c.res.id;
	add_volume(&c, "v2", c.pool, 1 << 20, true);
	v2 = c.res.id;
	add_sdc(&c, "s1", 5);
	s1 = c.res.id;
	add_sdc(&c, "s2", 6);
	s2 = c.res.id;
	map_volume(&c, v1, s1, false);
	map_volume(&c, v2, s2, false);
	map = mdm_map_for(c.st, MDM_FOR_SDC, s1, 0);
	assert_int_equal(map->n_volumes, 1);
	assert_int_equal(map->volumes[0]->id, v1);
	assert_int_equal(map->n_mappings, 1);
	assert_int_equal(map->n_sdcs, 1);
	assert_int_equal(map->n_rows, 16);
	assert_int_equal(map->n_sdss, 2);
	pb__map__free_unpacked(map, NULL);
	/* A mapping to a pool it has not seen brings all of the pool. */
	add_sdc(&c, "s3", 7);
	{
		uint64_t s3 = c.res.id, have = c.st->version;

		map_volume(&c, v1, s3, true);
		map = mdm_map_for(c.st, MDM_FOR_SDC, s3, have);
		assert_int_equal(map->base_version, have);
		assert_int_equal(map->n_rows, 16);
		assert_int_equal(map->n_pools, 1);
		assert_int_equal(map->n_devices, 2);
		assert_int_equal(map->n_sdss, 2);
		pb__map__free_unpacked(map, NULL);
		have = c.st->version;
		open_volume(&c, v1, s3);
		map = mdm_map_for(c.st, MDM_FOR_SDC, s3, have);
		assert_int_equal(map->n_rows, 0);
		assert_int_equal(map->n_mappings, 1);
		pb__map__free_unpacked(map, NULL);
	}
	free_cluster(&c);
}

/* ---------------------------------------------------------------- refusals */

#define REFUSED(c, call, code_, text)                                                              \
	do {                                                                                       \
		assert_int_equal(call, code_);                                                     \
		if (!strstr((c)->res.err.message, text))                                           \
			fail_msg("\"%s\" does not say \"%s\"", (c)->res.err.message, text);        \
	} while (0)

static void volumes_refused(void **state)
{
	struct cluster c;
	uint64_t empty;

	make_cluster(&c, 2, 1024); /* 2 x 1 GiB: 1 GiB usable */
	empty = add_pool(&c, "pool2", c.domain, 16);
	REFUSED(&c, add_volume(&c, "v", c.pool, (1 << 20) + 512, true), ASH_E_INVALID, "1 MiB");
	REFUSED(&c, add_volume(&c, "v", c.pool, 0, true), ASH_E_INVALID, "1 MiB");
	REFUSED(&c, add_volume(&c, "", c.pool, 1 << 20, true), ASH_E_INVALID, "volume");
	REFUSED(&c, add_volume(&c, "v/1", c.pool, 1 << 20, true), ASH_E_INVALID, "v/1");
	REFUSED(&c, add_volume(&c, "v", 999, 1 << 20, true), ASH_E_NOT_FOUND, "999");
	REFUSED(&c, add_volume(&c, "v", c.pool, 1ull << 51, true), ASH_E_INVALID, "1 PiB");
	REFUSED(&c, add_volume(&c, "v", empty, 1 << 20, true), ASH_E_CAPACITY, "two");
	REFUSED(&c, add_volume(&c, "v", c.pool, 2ull << 30, false), ASH_E_CAPACITY, "pool1");
	assert_int_equal(add_volume(&c, "v", c.pool, 600ull << 20, false), 0);
	REFUSED(&c, add_volume(&c, "v", c.pool, 1 << 20, true), ASH_E_EXISTS, "v");
	REFUSED(&c, add_volume(&c, "w", c.pool, 600ull << 20, false), ASH_E_CAPACITY, "thin");
	assert_int_equal(add_volume(&c, "w", c.pool, 5ull << 30, true), 0);
	REFUSED(&c, add_volume(&c, "x", c.pool, 6ull << 30, true), ASH_E_CAPACITY, "10 times");
	free_cluster(&c);
}

static void volume_can_only_grow(void **state)
{
	struct cluster c;
	COMMAND(cmd, b, VolumeSet, VOLUME_SET, CMD_VOLUME_SET, volume_set);

	make_cluster(&c, 2, 1024);
	assert_int_equal(add_volume(&c, "v", c.pool, 8 << 20, false), 0);
	b.volume = c.res.id;
	b.size = 4 << 20;
	REFUSED(&c, run(&c, &cmd), ASH_E_INVALID, "grow");
	b.size = 2ull << 30;
	REFUSED(&c, run(&c, &cmd), ASH_E_CAPACITY, "usable");
	b.size = 16 << 20;
	assert_int_equal(run(&c, &cmd), 0);
	assert_int_equal(mdm_volume(c.st, b.volume)->size, 16 << 20);
	free_cluster(&c);
}

static void unplaced_pool_takes_no_volume(void **state)
{
	struct cluster c;
	uint64_t pool, dev;

	make_cluster(&c, 2, 1024);
	pool = add_pool(&c, "pool2", c.domain, 16);
	for (unsigned i = 0; i < 2; i++) {
		dev = add_device(&c, c.sds[i], pool, 700 + i);
		assert_int_equal(open_device(&c, dev, 1, 5, 1ull << 30), 0);
	}
	REFUSED(&c, add_volume(&c, "v", pool, 1 << 20, true), ASH_E_STATE, "placed");
	free_cluster(&c);
}

static void things_in_use_stay(void **state)
{
	struct cluster c;
	uint64_t vol, sdc;

	make_cluster(&c, 3, 1024);
	add_volume(&c, "v", c.pool, 1 << 20, true);
	vol = c.res.id;
	add_sdc(&c, "sdc1", 5);
	sdc = c.res.id;
	map_volume(&c, vol, sdc, false);
	REFUSED(&c, remove_object(&c, PB__KIND__KIND_VOLUME, vol, false), ASH_E_IN_USE, "sdc1");
	REFUSED(&c, remove_object(&c, PB__KIND__KIND_SDC, sdc, false), ASH_E_IN_USE, "\"v\"");
	REFUSED(&c, remove_object(&c, PB__KIND__KIND_POOL, c.pool, true), ASH_E_IN_USE, "\"v\"");
	REFUSED(&c, remove_object(&c, PB__KIND__KIND_DOMAIN, c.domain, true), ASH_E_IN_USE, "sds1");
	REFUSED(&c, remove_object(&c, PB__KIND__KIND_SDS, c.sds[0], true), ASH_E_IN_USE, "sds1-d1");
	REFUSED(&c, remove_object(&c, PB__KIND__KIND_DEVICE, c.dev[0], false), ASH_E_IN_USE,
		"--force");
	REFUSED(&c, map_volume(&c, vol, sdc, false), ASH_E_EXISTS, "already");
	add_sdc(&c, "sdc2", 6);
	REFUSED(&c, map_volume(&c, vol, c.res.id, false), ASH_E_IN_USE, "--shared");
	/* With force the copies go, but never the last one. */
	assert_int_equal(remove_object(&c, PB__KIND__KIND_DEVICE, c.dev[0], true), 0);
	check_state(c.st);
	REFUSED(&c, remove_object(&c, PB__KIND__KIND_DEVICE, c.dev[1], true), ASH_E_IN_USE, "only");
	free_cluster(&c);
}

static void device_openings_are_identities(void **state)
{
	struct cluster c;
	struct mdm_row *row;

	make_cluster(&c, 2, 1024);
	row = row_of(&c, 0);
	assert_int_equal(row->primary, 1);
	REFUSED(&c, open_device(&c, c.dev[0], 1, 999, 1 << 30), ASH_E_DENIED, "nonce");
	assert_int_equal(open_device(&c, c.dev[0], 5, 1, 1 << 30), 0);
	/* In the same step it lost what it held: the other serves alone. */
	assert_int_equal(row->replica[row->primary - 1].device, c.dev[1]);
	assert_int_equal(mdm_row_in_sync(row), 1);
	assert_int_equal(row->gen, c.st->version);
	assert_int_equal(row->shrunk_at, row->gen);
	REFUSED(&c, open_device(&c, c.dev[0], 4, 1, 1 << 30), ASH_E_STALE, "below 5");
	{
		uint64_t version = c.st->version;

		assert_int_equal(open_device(&c, c.dev[0], 5, 1, 1 << 30), 0);
		assert_int_equal(c.st->version, version); /* a repeat changes nothing */
	}
	REFUSED(&c, fail_device(&c, c.dev[0], 4), ASH_E_STALE, "again");
	REFUSED(&c, open_device(&c, 999, 5, 1, 1 << 30), ASH_E_NOT_FOUND, "device");
	free_cluster(&c);
}

/* Each try to open a disk raises its label, so the incarnation alone catches up with any other. */
static void device_from_the_past_stays_refused(void **state)
{
	uint8_t nonce[16] = {7}, prev[16] = {0};
	struct cluster c;
	COMMAND(cmd, b, DeviceOpened, DEVICE_OPENED, CMD_DEVICE_OPENED, device_opened);

	make_cluster(&c, 2, 1024);
	assert_int_equal(open_device(&c, c.dev[0], 5, 1, 1 << 30), 0);
	memcpy(prev, mdm_device(c.st, c.dev[0])->nonce.data, 16);
	b.device = c.dev[0];
	b.uuid = mdm_device(c.st, c.dev[0])->uuid;
	b.nonce = (ProtobufCBinaryData){16, nonce};
	b.prev_nonce = (ProtobufCBinaryData){16, prev};
	b.capacity = 1 << 30;
	/* Tried once more than it was behind. */
	b.incarnation = 6;
	b.prev_incarnation = 4;
	REFUSED(&c, run(&c, &cmd), ASH_E_DENIED, "rolled back");
	/* As often as the known one, but another. */
	b.prev_incarnation = 5;
	prev[15] ^= 1;
	REFUSED(&c, run(&c, &cmd), ASH_E_DENIED, "is a copy");
	assert_int_equal(mdm_device(c.st, c.dev[0])->incarnation, 5);
	/* From the known one; from one after it that was never admitted. */
	prev[15] ^= 1;
	assert_int_equal(run(&c, &cmd), 0);
	assert_int_equal(run(&c, &cmd), 0); /* a repeat */
	b.incarnation = 8;
	b.prev_incarnation = 7;
	assert_int_equal(run(&c, &cmd), 0);
	assert_int_equal(mdm_device(c.st, c.dev[0])->incarnation, 8);
	free_cluster(&c);
}

static void device_ahead_of_the_mdm_is_refused(void **state)
{
	uint8_t nonce[16] = {1};
	struct cluster c;
	COMMAND(cmd, b, DeviceOpened, DEVICE_OPENED, CMD_DEVICE_OPENED, device_opened);

	make_cluster(&c, 2, 1024);
	b.device = c.dev[0];
	b.uuid = mdm_device(c.st, c.dev[0])->uuid;
	b.incarnation = 2;
	b.nonce.data = nonce;
	b.nonce.len = 16;
	b.capacity = 1 << 30;
	b.label_map_version = c.st->version + 1;
	REFUSED(&c, run(&c, &cmd), ASH_E_STATE, "backup");
	b.label_map_version = c.st->version;
	assert_int_equal(run(&c, &cmd), 0);
	b.incarnation = 3;
	b.size = 255 << 20;
	REFUSED(&c, run(&c, &cmd), ASH_E_INVALID, "256 MiB");
	free_cluster(&c);
}

static void admission_by_address(void **state)
{
	struct cluster c;
	uint64_t sds;
	COMMAND(cmd, b, SdsAdd, SDS_ADD, CMD_SDS_ADD, sds_add);

	new_system(&c);
	c.domain = add_domain(&c, "pd1");
	REFUSED(&c, register_sds(&c, 9, 1), ASH_E_NOT_FOUND, "10.0.0.1:7072");
	b.name = (char *)"sds1";
	b.domain = c.domain;
	REFUSED(&c, run(&c, &cmd), ASH_E_INVALID, "--address");
	b.control_address = (char *)"10.0.0.1"; /* the default port is meant */
	sds = must(&c, &cmd);
	b.name = (char *)"sds2";
	REFUSED(&c, run(&c, &cmd), ASH_E_EXISTS, "sds1");
	assert_int_equal(register_sds(&c, 9, 1), 0);
	assert_int_equal(c.res.id, sds);
	assert_true(mdm_sds(c.st, sds)->up);
	/* The address belongs to that UUID now. */
	REFUSED(&c, register_sds(&c, 10, 1), ASH_E_NOT_FOUND, "sds add");
	free_cluster(&c);
}

static void names_are_unique_and_found(void **state)
{
	struct cluster c;
	COMMAND(cmd, b, Rename, RENAME, CMD_RENAME, rename);
	COMMAND(pool, p, PoolAdd, POOL_ADD, CMD_POOL_ADD, pool_add);

	make_cluster(&c, 2, 1024);
	b.kind = PB__KIND__KIND_SDS;
	b.id = c.sds[0];
	b.name = (char *)"sds2";
	REFUSED(&c, run(&c, &cmd), ASH_E_EXISTS, "sds2");
	b.name = (char *)"server-1";
	assert_int_equal(run(&c, &cmd), 0);
	assert_string_equal(mdm_sds(c.st, c.sds[0])->name, "server-1");
	p.domain = add_domain(&c, "pd2");
	p.name = (char *)"pool1"; /* pools are named within their domain */
	p.pg_count = 48;
	REFUSED(&c, run(&c, &pool), ASH_E_INVALID, "power of two");
	p.pg_count = 131072;
	REFUSED(&c, run(&c, &pool), ASH_E_INVALID, "65536");
	p.pg_count = 0;
	p.spare_pct = 91;
	REFUSED(&c, run(&c, &pool), ASH_E_INVALID, "90");
	p.spare_pct = 0;
	assert_int_equal(run(&c, &pool), 0);
	assert_int_equal(mdm_pool(c.st, c.res.id)->pg_count, 4096);
	p.domain = c.domain;
	REFUSED(&c, run(&c, &pool), ASH_E_EXISTS, "pool1");
	free_cluster(&c);
}

static void no_system_no_commands(void **state)
{
	struct cluster c = {.st = mdm_state_new()};
	COMMAND(cmd, b, DomainAdd, DOMAIN_ADD, CMD_DOMAIN_ADD, domain_add);

	b.name = (char *)"pd";
	REFUSED(&c, run(&c, &cmd), ASH_E_STATE, "system create");
	cmd.c_case = PB__COMMAND__C__NOT_SET;
	cmd.domain_add = NULL;
	assert_int_equal(run(&c, &cmd), ASH_E_UNSUPPORTED);
	free_cluster(&c);
}

/* The first client was alone until then; its flushes have to cover the second one's writes now. */
static void a_second_mapping_makes_both_shared(void **state)
{
	struct cluster c;
	uint64_t vol, other, s1, s2, have;
	Pb__Map *map;

	make_cluster(&c, 2, 1024);
	add_volume(&c, "v", c.pool, 1 << 20, true);
	vol = c.res.id;
	add_volume(&c, "w", c.pool, 1 << 20, true);
	other = c.res.id;
	add_sdc(&c, "s1", 5);
	s1 = c.res.id;
	add_sdc(&c, "s2", 6);
	s2 = c.res.id;
	assert_int_equal(map_volume(&c, vol, s1, false), 0);
	assert_int_equal(map_volume(&c, other, s1, false), 0);
	have = c.st->version;
	assert_int_equal(map_volume(&c, vol, s2, true), 0);
	assert_true(mdm_find_mapping(c.st, vol, s1)->shared);
	assert_false(mdm_find_mapping(c.st, other, s1)->shared);
	map = mdm_map_for(c.st, MDM_FOR_SDC, s1, have);
	assert_int_equal(map->base_version, have);
	assert_int_equal(map->n_mappings, 1);
	assert_true(map->mappings[0]->shared);
	pb__map__free_unpacked(map, NULL);
	free_cluster(&c);
}

/* ---------------------------------------------------------------- fences and tombstones */

static void unmap_leaves_a_fence(void **state)
{
	struct cluster c;
	uint64_t vol, sdc, fence;
	Pb__Mapping *m;
	COMMAND(cmd, b, FenceDone, FENCE_DONE, CMD_FENCE_DONE, fence_done);

	make_cluster(&c, 3, 1024);
	add_volume(&c, "v", c.pool, 1 << 20, true);
	vol = c.res.id;
	add_sdc(&c, "s", 5);
	sdc = c.res.id;
	map_volume(&c, vol, sdc, false);
	assert_int_equal(unmap_volume(&c, vol, sdc, false), 0);
	assert_int_equal(c.st->table[PB__KIND__KIND_FENCE].count, 0); /* never opened */
	map_volume(&c, vol, sdc, false);
	assert_int_equal(open_volume(&c, vol, sdc), 0);
	assert_int_equal(c.res.epoch, c.st->version);
	assert_int_equal(unmap_volume(&c, vol, sdc, false), 0);
	assert_int_equal(c.st->table[PB__KIND__KIND_FENCE].count, 1);
	fence = mdm_obj_id(c.st->table[PB__KIND__KIND_FENCE].obj[0]);
	assert_int_equal(mdm_fence(c.st, fence)->n_pending_sds, 3);
	/* A new mapping is above every epoch of before. */
	map_volume(&c, vol, sdc, false);
	m = mdm_find_mapping(c.st, vol, sdc);
	assert_int_equal(m->epoch, c.st->version);
	b.fence = fence;
	b.sds = c.sds[0];
	assert_int_equal(run(&c, &cmd), 0);
	assert_int_equal(run(&c, &cmd), 0);		 /* repeats are harmless */
	assert_int_equal(register_sds(&c, 101, 999), 0); /* restarted: leaves the set */
	assert_int_equal(mdm_fence(c.st, fence)->n_pending_sds, 1);
	b.sds = c.sds[2];
	assert_int_equal(run(&c, &cmd), 0);
	assert_null(mdm_fence(c.st, fence));
	REFUSED(&c, run(&c, &cmd), ASH_E_STALE, "over");
	free_cluster(&c);
}

static void deleted_volume_leaves_a_tombstone(void **state)
{
	struct cluster c;
	uint64_t vol, node;
	COMMAND(cmd, b, TombstoneDone, TOMBSTONE_DONE, CMD_TOMBSTONE_DONE, tombstone_done);

	make_cluster(&c, 3, 1024);
	add_volume(&c, "v", c.pool, 1 << 20, true);
	vol = c.res.id;
	node = mdm_volume(c.st, vol)->node;
	assert_int_equal(sds_down(&c, c.sds[1], 201), 0); /* away, and still has the data */
	assert_int_equal(remove_object(&c, PB__KIND__KIND_VOLUME, vol, false), 0);
	assert_int_equal(mdm_tombstone(c.st, node)->n_pending_devices, 3);
	b.node = node;
	b.device = c.dev[0];
	assert_int_equal(run(&c, &cmd), 0);
	b.device = c.dev[2];
	assert_int_equal(run(&c, &cmd), 0);
	assert_non_null(mdm_tombstone(c.st, node));
	b.device = c.dev[1];
	assert_int_equal(run(&c, &cmd), 0);
	assert_null(mdm_tombstone(c.st, node));
	free_cluster(&c);
}

static void events_are_bounded(void **state)
{
	struct cluster c;
	Pb__Event e = PB__EVENT__INIT;
	COMMAND(cmd, b, Event, EVENT, CMD_EVENT, event);

	new_system(&c);
	e.code = (char *)"X";
	b.event = &e;
	for (unsigned i = 0; i < MDM_EVENTS_MAX + 50; i++)
		must(&c, &cmd);
	assert_int_equal(c.st->events_count, MDM_EVENTS_MAX);
	assert_int_equal(c.st->events[MDM_EVENTS_MAX - 1]->seq, c.st->next_event - 1);
	free_cluster(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_commands_same_everywhere),
		cmocka_unit_test(check_agrees_with_apply),
		cmocka_unit_test(repeated_index_is_skipped),
		cmocka_unit_test(garbage_is_no_snapshot),
		cmocka_unit_test(deltas_add_up),
		cmocka_unit_test(removal_log_is_bounded),
		cmocka_unit_test(an_sdc_sees_only_its_own),
		cmocka_unit_test(volumes_refused),
		cmocka_unit_test(volume_can_only_grow),
		cmocka_unit_test(unplaced_pool_takes_no_volume),
		cmocka_unit_test(things_in_use_stay),
		cmocka_unit_test(device_openings_are_identities),
		cmocka_unit_test(device_from_the_past_stays_refused),
		cmocka_unit_test(device_ahead_of_the_mdm_is_refused),
		cmocka_unit_test(admission_by_address),
		cmocka_unit_test(names_are_unique_and_found),
		cmocka_unit_test(no_system_no_commands),
		cmocka_unit_test(a_second_mapping_makes_both_shared),
		cmocka_unit_test(unmap_leaves_a_fence),
		cmocka_unit_test(deleted_volume_leaves_a_tombstone),
		cmocka_unit_test(events_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
