/* SPDX-License-Identifier: MIT */
#include "tests/sim/checks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_EVERY (5 * SIM_MS)

/* The last in-sync set of a PG, and what became of its members since they were put into it: */
enum member_fate {
	FATE_OK,
	FATE_GONE, /* its process ended; what it had is on the disk or in the disk's cache */
	FATE_LOST, /* the cache of its disk is gone, too */
};

struct pg_track {
	uint64_t device[ASH_ROW_REPLICAS_MAX];
	enum member_fate fate[ASH_ROW_REPLICAS_MAX];
	unsigned count;
};

struct checks {
	struct sim_cluster *c;
	struct load *load;
	struct pg_track *pg;
	struct sim_event look;
};

/* ------------------------------------------------------------ lost caches */

static void lose_chunk(struct checks *k, unsigned v, uint64_t chunk)
{
	hist_lose_caches(k->c->history, k->c->volume_history[v], chunk * 2048, 2048);
}

/* When every member went down and one lost its cache, the MDM may have to go on with that one: the
 * first to return is taken for the one that was away, and leaves the set. Nor can it know that one
 * lost its cache when it takes the other out of the set. */
static bool may_have_lost(const struct pg_track *t)
{
	bool lost = false;

	for (unsigned m = 0; m < t->count; m++) {
		if (t->fate[m] == FATE_OK)
			return false;
		lost |= t->fate[m] == FATE_LOST;
	}
	return lost;
}

static void lose_group(struct checks *k, uint32_t which)
{
	struct sim_cluster *c = k->c;
	struct ash_map_pool *pool;
	uint32_t pg;

	for (unsigned v = 0; v < c->shape.volumes; v++)
		for (uint64_t chunk = 0; chunk < c->shape.volume_bytes[v] >> 20; chunk++)
			if (!ash_map_locate(c->map, c->volume_node[v], chunk, &pool, &pg) &&
			    pg == which)
				lose_chunk(k, v, chunk);
}

/* ------------------------------------------------------------ rows */

static unsigned fault_unit(const struct checks *k, uint64_t device)
{
	const struct sim_sds *s = sim_sds_of_device(k->c, device, NULL);

	return s ? k->c->shape.fault_set_of[s->index] : ~0u;
}

static void check_fault_units(struct checks *k, uint32_t pg, const struct ash_row *row)
{
	for (unsigned a = 0; a < row->replicas; a++)
		for (unsigned b = 0; b < a; b++)
			if (row->replica[a].state != ASH_REPLICA_ABSENT &&
			    row->replica[b].state != ASH_REPLICA_ABSENT &&
			    fault_unit(k, row->replica[a].device) ==
				    fault_unit(k, row->replica[b].device))
				sim_fail(k->c->w, "placement",
					 "pg %u: devices %llu and %llu are in one fault unit", pg,
					 (unsigned long long)row->replica[a].device,
					 (unsigned long long)row->replica[b].device);
}

static bool was_member(const struct ash_row *row, uint64_t device)
{
	for (unsigned i = 0; row && i < row->replicas; i++)
		if (row->replica[i].device == device)
			return row->replica[i].state == ASH_REPLICA_IN_SYNC;
	return false;
}

static void track_row(struct checks *k, uint32_t pg, const struct ash_row *row,
		      const struct ash_row *old)
{
	struct pg_track was = k->pg[pg], *now = &k->pg[pg];
	unsigned n = 0;

	for (unsigned i = 0; i < row->replicas; i++) {
		uint64_t device = row->replica[i].device;

		if (row->replica[i].state != ASH_REPLICA_IN_SYNC)
			continue;
		now->device[n] = device;
		now->fate[n] = FATE_OK;
		for (unsigned j = 0; j < was.count; j++)
			if (was.device[j] == device && was_member(old, device))
				now->fate[n] = was.fate[j];
		n++;
	}
	if (n)
		now->count = n; /* else: the last set still counts */
	if (may_have_lost(now) && !may_have_lost(&was))
		lose_group(k, pg);
}

static void on_row(void *arg, struct ash_map_pool *pool, uint32_t pg, const struct ash_row *old)
{
	struct checks *k = arg;
	const struct ash_row *row = &pool->rows[pg];

	if (pool->id != k->c->pool)
		return;
	if (old && row->gen < old->gen)
		sim_fail(k->c->w, "mdm", "pg %u: generation went back", pg);
	if (k->c->w->tracing) {
		char text[256];
		int n = 0;

		for (unsigned i = 0; i < row->replicas; i++)
			n += snprintf(text + n, sizeof(text) - (size_t)n, " %llu:%c%s",
				      (unsigned long long)row->replica[i].device,
				      "abi"[row->replica[i].state % 3],
				      row -> primary == i ? "P" : "");
		sim_trace(k->c->w, "event=row pg=%u gen=%llu%s", pg, (unsigned long long)row->gen,
			  text);
	}
	check_fault_units(k, pg, row);
	track_row(k, pg, row, old);
}

/* ------------------------------------------------------------ power loss */

void checks_going_down(struct checks *k, const bool *down, bool power)
{
	struct sim_cluster *c = k->c;

	for (uint32_t i = 0; i < c->shape.pg_count; i++)
		for (unsigned m = 0; m < k->pg[i].count; m++) {
			unsigned d;
			struct sim_sds *s = sim_sds_of_device(c, k->pg[i].device[m], &d);

			if (!s || !down[s->index])
				continue;
			if (power && c->shape.write_back[s->index][d])
				k->pg[i].fate[m] = FATE_LOST;
			else if (k->pg[i].fate[m] == FATE_OK)
				k->pg[i].fate[m] = FATE_GONE;
		}
	for (uint32_t pg = 0; pg < c->shape.pg_count; pg++)
		if (may_have_lost(&k->pg[pg]))
			lose_group(k, pg);
}

/* ------------------------------------------------------------ who serves */

static void check_servers(struct checks *k)
{
	struct sim_cluster *c = k->c;
	const struct ash_map_pool *pool = ash_map_pool(c->map, c->pool);

	for (uint32_t pg = 0; pool && pg < pool->pg_count; pg++) {
		const struct ash_row *row = &pool->rows[pg];
		const struct sim_sds *chosen = NULL, *reader = NULL;
		bool chosen_serves = false;

		if (row->primary != ASH_NO_PRIMARY)
			chosen = sim_sds_of_device(c, row->replica[row->primary].device, NULL);
		for (unsigned i = 0; i < c->shape.sdss; i++) {
			const struct sim_sds *s = &c->sds[i];
			bool reads = false, serves;

			if (!s->p || s->p->paused)
				continue;
			serves = sds_serves(s->core, c->pool, pg, &reads);
			if (s == chosen)
				chosen_serves = serves;
			if (!serves || !reads)
				continue;
			if (reader)
				sim_fail(c->w, "one_server", "pg %u: %s and %s both serve reads",
					 pg, reader->host.name, s->host.name);
			reader = s;
		}
		if (reader && chosen && chosen != reader && chosen_serves)
			sim_fail(c->w, "one_server", "pg %u: %s serves while %s still reads", pg,
				 chosen->host.name, reader->host.name);
	}
}

static void on_look(struct sim_event *event)
{
	struct checks *k = sim_container(event, struct checks, look);

	check_servers(k);
	sim_in(k->c->w, &k->look, LOOK_EVERY / 2 + sim_below(k->c->w, LOOK_EVERY));
}

/* ------------------------------------------------------------ are copies equal */

struct copy {
	struct sim_item item;
	struct sds_store_op op;
	struct sds_store *store;
	uint8_t *data;
	uint32_t crc[ASH_CHUNK_BLOCKS];
	uint8_t state[ASH_CHUNK_BLOCKS];
	unsigned *left;
	int status;
};

static void copy_read(struct sds_store_op *op, int status)
{
	struct copy *copy = sim_container(op, struct copy, op);

	copy->status = status;
	(*copy->left)--;
}

static void copy_run(struct sim_item *item)
{
	struct copy *copy = sim_container(item, struct copy, item);

	sds_store_submit(copy->store, &copy->op);
}

static void copy_drop(struct sim_item *item)
{
}

static void start_read(struct checks *k, struct copy *copy, struct sim_sds *s, uint64_t device,
		       uint64_t node, uint64_t chunk, unsigned block, unsigned blocks)
{
	memset(&copy->op, 0, sizeof(copy->op));
	copy->store = s->core ? sds_device_store(s->core, device) : NULL;
	if (!copy->store) {
		sim_fail(k->c->w, "copies", "device %llu of %s is in sync but not open",
			 (unsigned long long)device, s->host.name);
		return;
	}
	copy->op.kind = SDS_STORE_READ;
	copy->op.node = node;
	copy->op.chunk = chunk;
	copy->op.first_block = (uint16_t)block;
	copy->op.blocks = (uint16_t)blocks;
	copy->op.data = copy->data + (size_t)block * 4096;
	copy->op.crc = copy->crc + block;
	copy->op.state = copy->state + block;
	copy->op.buf_index = -1;
	copy->op.done = copy_read;
	copy->item = (struct sim_item){.run = copy_run, .drop = copy_drop};
	(*copy->left)++;
	sim_proc_push(s->p, &copy->item);
}

static void check_block(struct checks *k, unsigned v, uint64_t chunk, unsigned b,
			const struct copy *first, const struct copy *other, uint64_t dev_a,
			uint64_t dev_b)
{
	const uint8_t *a = first->data + (size_t)b * 4096, *o = other->data + (size_t)b * 4096;
	uint64_t lba = chunk * 2048 + b * 8;
	unsigned s;

	if (!memcmp(a, o, 4096) &&
	    (first->state[b] == ASH_BLK_BAD) == (other->state[b] == ASH_BLK_BAD))
		return;
	if (load_errors_expected(k->load, v, lba, 8))
		return;
	for (s = 0; s < 7 && !memcmp(a + s * 512, o + s * 512, 512); s++)
		;
	sim_fail(k->c->w, "copies",
		 "volume %u sector %llu (chunk %llu block %u): device %llu (state %u) and device "
		 "%llu (state %u) differ: %016llx %llu, %016llx %llu",
		 v, (unsigned long long)lba + s, (unsigned long long)chunk, b,
		 (unsigned long long)dev_a, first->state[b], (unsigned long long)dev_b,
		 other->state[b], *(const unsigned long long *)(const void *)(a + s * 512),
		 *(const unsigned long long *)(const void *)(a + s * 512 + 8),
		 *(const unsigned long long *)(const void *)(o + s * 512),
		 *(const unsigned long long *)(const void *)(o + s * 512 + 8));
}

static bool wait_reads(struct checks *k, const unsigned *left)
{
	uint64_t until = k->c->w->now + 30 * SIM_S;

	while (*left && k->c->w->now < until)
		if (!sim_step(k->c->w))
			return false;
	if (*left)
		sim_fail(k->c->w, "copies", "reading a copy takes for ever");
	return !*left;
}

/* No in-sync copy has an extent for the chunk. */
static bool nowhere(struct sim_cluster *c, const struct ash_row *row, uint64_t node, uint64_t chunk)
{
	struct sds_chunk_info info;

	for (unsigned i = 0; i < row->replicas; i++) {
		struct sim_sds *s = sim_sds_of_device(c, row->replica[i].device, NULL);
		struct sds_store *store;

		if (row->replica[i].state != ASH_REPLICA_IN_SYNC || !s)
			continue;
		store = s->core ? sds_device_store(s->core, row->replica[i].device) : NULL;
		if (!store || sds_store_lookup(store, node, chunk, &info))
			return false;
	}
	return true;
}

static void compare_chunk(struct checks *k, unsigned v, uint64_t chunk, struct copy *copy,
			  unsigned block, unsigned blocks)
{
	struct sim_cluster *c = k->c;
	struct ash_map_pool *pool;
	const struct ash_row *row;
	uint64_t device[ASH_ROW_REPLICAS_MAX];
	unsigned n = 0, left = 0;
	uint32_t pg;

	if (ash_map_locate(c->map, c->volume_node[v], chunk, &pool, &pg))
		return;
	row = &pool->rows[pg];
	if (nowhere(c, row, c->volume_node[v], chunk))
		return;
	for (unsigned i = 0; i < row->replicas; i++) {
		struct sim_sds *s = sim_sds_of_device(c, row->replica[i].device, NULL);

		if (row->replica[i].state != ASH_REPLICA_IN_SYNC || !s)
			continue;
		copy[n].left = &left;
		device[n] = row->replica[i].device;
		start_read(k, &copy[n], s, device[n], c->volume_node[v], chunk, block, blocks);
		if (c->w->failed)
			return;
		n++;
	}
	if (!wait_reads(k, &left))
		return;
	for (unsigned i = 0; i < n; i++) {
		/* One bad block spoils the rest of an answer: ask for each block alone. */
		if (copy[i].status && blocks > 1) {
			for (unsigned b = block; b < block + blocks && !c->w->failed; b++)
				compare_chunk(k, v, chunk, copy, b, 1);
			return;
		}
		if (copy[i].status &&
		    !load_errors_expected(k->load, v, chunk * 2048 + block * 8, 8))
			sim_fail(c->w, "copies",
				 "volume %u chunk %llu block %u: device %llu: error %d", v,
				 (unsigned long long)chunk, block, (unsigned long long)device[i],
				 copy[i].status);
	}
	for (unsigned i = 1; i < n; i++)
		for (unsigned b = block; b < block + blocks && !c->w->failed; b++)
			check_block(k, v, chunk, b, &copy[0], &copy[i], device[0], device[i]);
}

void checks_compare_copies(struct checks *k)
{
	struct sim_cluster *c = k->c;
	struct copy *copy = calloc(ASH_ROW_REPLICAS_MAX, sizeof(*copy));

	for (unsigned i = 0; i < ASH_ROW_REPLICAS_MAX; i++)
		copy[i].data = aligned_alloc(4096, ASH_CHUNK_BYTES);
	for (unsigned v = 0; v < c->shape.volumes; v++)
		for (uint64_t n = 0; n < c->shape.volume_bytes[v] >> 20 && !c->w->failed; n++)
			compare_chunk(k, v, n, copy, 0, ASH_CHUNK_BLOCKS);
	for (unsigned i = 0; i < ASH_ROW_REPLICAS_MAX; i++)
		free(copy[i].data);
	free(copy);
}

/* ------------------------------------------------------------ the rest */

size_t checks_buffers_out(const struct checks *k)
{
	size_t n = 0;

	for (unsigned i = 0; i < k->c->shape.sdss; i++)
		n += k->c->sds[i].p ? ash_bufs_in_use(k->c->sds[i].p->port.bufs) : 0;
	for (unsigned i = 0; i < k->c->shape.sdcs; i++)
		n += k->c->sdc[i].p ? ash_bufs_in_use(k->c->sdc[i].p->port.bufs) : 0;
	return n;
}

static void check_store(struct checks *k, uint64_t device, const struct sds_store *store)
{
	struct sds_chunk_info info[64];
	uint64_t cursor = 0;

	do {
		unsigned n = sds_store_scan(store, cursor, info, 64, &cursor);

		for (unsigned i = 0; i < n; i++)
			if (!ash_map_volume_by_node(k->c->map, info[i].node))
				sim_fail(k->c->w, "leftovers",
					 "device %llu holds chunk %llu of node %llu, which was "
					 "deleted",
					 (unsigned long long)device,
					 (unsigned long long)info[i].chunk,
					 (unsigned long long)info[i].node);
	} while (cursor && !k->c->w->failed);
}

void checks_leftovers(struct checks *k)
{
	for (unsigned i = 0; i < k->c->shape.sdss; i++)
		for (unsigned d = 0; d < k->c->shape.disks; d++) {
			uint64_t device = k->c->sds[i].device[d];

			check_store(k, device, sds_device_store(k->c->sds[i].core, device));
		}
}

void checks_maps(struct checks *k)
{
	struct sim_cluster *c = k->c;
	const struct mdm_state *st = sim_mdm_state(c->mdm);
	Pb__Map *full, *ours;

	sim_cluster_follow(c);
	if (!st || !sim_mdm_compare(c->mdm))
		return;
	full = mdm_map_for(st, MDM_FOR_ADMIN, 0, 0);
	ours = full;
	for (size_t i = 0; i < ours->n_rows; i++) {
		const Pb__Row *r = full->rows[i];
		const struct ash_map_pool *pool = ash_map_pool(c->map, r->pool);

		if (!pool || r->pg >= pool->pg_count || pool->rows[r->pg].gen != r->gen)
			sim_fail(c->w, "mdm", "pg %u: deltas and the full map differ", r->pg);
	}
	pb__map__free_unpacked(full, NULL);
}

struct checks *checks_new(struct sim_cluster *c, struct load *load)
{
	struct checks *k = calloc(1, sizeof(*k));
	const struct ash_map_pool *pool = ash_map_pool(c->map, c->pool);

	if (!k || !pool)
		abort();
	k->c = c;
	k->load = load;
	k->pg = calloc(c->shape.pg_count, sizeof(*k->pg));
	for (uint32_t pg = 0; pg < pool->pg_count; pg++) {
		check_fault_units(k, pg, &pool->rows[pg]);
		track_row(k, pg, &pool->rows[pg], NULL);
	}
	c->row_watch[0] = (struct sim_row_watch){on_row, k};
	k->look.fn = on_look;
	sim_in(c->w, &k->look, LOOK_EVERY);
	return k;
}

void checks_free(struct checks *k)
{
	sim_cancel(k->c->w, &k->look);
	k->c->row_watch[0] = (struct sim_row_watch){0};
	free(k->pg);
	free(k);
}
