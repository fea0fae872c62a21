// SPDX-License-Identifier: MIT
#include "tests/fuzz/mapcheck.h"

#include "common/base/clean.h"
#include "tests/fuzz/fuzz.h"

/* Where values go that only had to be read. */
static volatile uint64_t fuzz_sink;

static void check_row(struct ash_map *map, struct ash_map_pool *pool, uint32_t pg)
{
	const struct ash_row *row = &pool->rows[pg];
	struct ash_wire_row wire;

	FUZZ_CHECK(row->replicas <= ASH_ROW_REPLICAS_MAX);
	FUZZ_CHECK(row->handover == ASH_NO_PRIMARY || row->handover < row->replicas);
	if (row->primary != ASH_NO_PRIMARY) {
		FUZZ_CHECK(row->primary < row->replicas);
		FUZZ_CHECK(row->replica[row->primary].state == ASH_REPLICA_IN_SYNC);
	}
	for (unsigned i = 0; i < row->replicas; i++) {
		FUZZ_CHECK(row->replica[i].device != 0);
		for (unsigned j = 0; j < i; j++)
			FUZZ_CHECK(row->replica[j].device != row->replica[i].device);
	}
	if (row->gen == 0)
		return;
	/* What we would send to a peer, a peer that knows as much takes for the same. */
	ash_map_encode_row(map, pool, pg, &wire);
	FUZZ_CHECK(ash_map_apply_row(map, &wire, NULL) == 0);
}

static void check_volumes(struct ash_map *map)
{
	const struct ash_map_volume *v = NULL;
	const struct ash_map_mapping *m = NULL;

	while ((v = ash_map_next_volume(map, v ? v->id : 0))) {
		const struct ash_map_volume *by_node = ash_map_volume_by_node(map, v->node);
		struct ash_map_pool *pool;
		uint32_t pg;

		FUZZ_CHECK(ash_map_volume(map, v->id) == v);
		FUZZ_CHECK(!by_node || by_node->node == v->node);
		FUZZ_CHECK(ash_map_volume_by_name(map, v->name) != NULL);
		if (ash_map_locate(map, v->node, v->size >> 20, &pool, &pg) == 0)
			FUZZ_CHECK(pg < pool->pg_count);
	}
	while ((m = ash_map_next_mapping(map, m ? m->id : 0))) {
		const struct ash_map_mapping *found = ash_map_mapping(map, m->node, m->sdc);

		FUZZ_CHECK(!found || (found->node == m->node && found->sdc == m->sdc));
	}
}

static void check_fences(struct ash_map *map)
{
	const struct ash_map_fence *f = NULL;
	const struct ash_map_tombstone *t = NULL;
	uint64_t sum = 0;

	while ((f = ash_map_next_fence(map, f ? f->id : 0)))
		for (uint32_t i = 0; i < f->pending; i++)
			sum += f->pending_sds[i];
	while ((t = ash_map_next_tombstone(map, t ? t->node : 0)))
		for (uint32_t i = 0; i < t->pending; i++)
			sum += t->pending_devices[i];
	fuzz_sink = sum;
}

void fuzz_map_check(struct ash_map *map)
{
	struct ash_map_pool *pool = NULL;
	const struct ash_map_device *d = NULL;
	const struct ash_map_sds *s = NULL;

	while ((pool = ash_map_next_pool(map, pool ? pool->id : 0))) {
		FUZZ_CHECK(ash_map_pool(map, pool->id) == pool);
		for (uint32_t pg = 0; pg < pool->pg_count; pg++)
			check_row(map, pool, pg);
	}
	while ((d = ash_map_next_device(map, d ? d->id : 0)))
		FUZZ_CHECK(ash_map_device(map, d->id) == d);
	while ((s = ash_map_next_sds(map, s ? s->id : 0))) {
		FUZZ_CHECK(ash_map_sds(map, s->id) == s);
		FUZZ_CHECK(ash_map_sds_by_uuid(map, s->uuid) != NULL);
	}
	check_volumes(map);
	check_fences(map);
}

uint64_t fuzz_map_pgs(const Pb__Map *pb)
{
	uint64_t pgs = 0;

	for (size_t i = 0; i < pb->n_pools; i++)
		pgs += pb->pools[i]->pg_count;
	return pgs;
}

bool fuzz_pb_repacks(const ProtobufCMessage *m)
{
	size_t bytes = protobuf_c_message_get_packed_size(m);
	ash_auto_free uint8_t *packed = ash_xcalloc(1, bytes);
	ProtobufCMessage *again;

	FUZZ_CHECK(protobuf_c_message_pack(m, packed) == bytes);
	again = protobuf_c_message_unpack(m->descriptor, NULL, bytes, packed);
	if (!again)
		return false;
	FUZZ_CHECK(protobuf_c_message_get_packed_size(again) == bytes);
	protobuf_c_message_free_unpacked(again, NULL);
	return true;
}

struct ash_map *fuzz_map_small(void)
{
	struct ash_map *map = ash_map_new();
	Pb__Map pb = PB__MAP__INIT;
	Pb__Pool pool = PB__POOL__INIT, *pools[] = {&pool};
	Pb__Device dev[2] = {PB__DEVICE__INIT, PB__DEVICE__INIT}, *devices[] = {&dev[0], &dev[1]};
	Pb__Sds sds = PB__SDS__INIT, *sdss[] = {&sds};

	FUZZ_CHECK(map);
	pool.id = 5;
	pool.pg_count = 16;
	pool.pg_shift = 4;
	dev[0].id = 20;
	dev[1].id = 21;
	dev[0].sds = dev[1].sds = sds.id = 10;
	pb.version = 1;
	pb.pools = pools;
	pb.devices = devices;
	pb.sdss = sdss;
	pb.n_pools = pb.n_sdss = 1;
	pb.n_devices = 2;
	FUZZ_CHECK(ash_map_apply(map, &pb, NULL) == 0);
	return map;
}
