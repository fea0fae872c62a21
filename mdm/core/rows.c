/* SPDX-License-Identifier: MIT */
/* Rows of placement groups: storage, order by gen, and the loss of devices. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "mdm/core/state.h"

struct mdm_rows *mdm_rows(const struct mdm_state *st, uint64_t pool)
{
	for (size_t i = 0; i < st->rows_count; i++)
		if (st->rows[i]->pool == pool)
			return st->rows[i];
	return NULL;
}

struct mdm_rows *mdm_rows_add(struct mdm_state *st, uint64_t pool, uint32_t pg_count)
{
	struct mdm_rows *rows = ash_xcalloc(1, sizeof(*rows));

	assert(!st->rows_count || st->rows[st->rows_count - 1]->pool < pool);
	rows->pool = pool;
	rows->pg_count = pg_count;
	rows->newest = MDM_NO_ROW;
	rows->row = ash_xcalloc(pg_count, sizeof(*rows->row));
	for (uint32_t pg = 0; pg < pg_count; pg++)
		rows->row[pg].newer = rows->row[pg].older = MDM_NO_ROW;
	st->rows = mdm_list_grow(st->rows, st->rows_count);
	st->rows[st->rows_count++] = rows;
	return rows;
}

void mdm_rows_free(struct mdm_rows *rows)
{
	free(rows->row);
	free(rows);
}

void mdm_rows_remove(struct mdm_state *st, uint64_t pool)
{
	for (size_t i = 0; i < st->rows_count; i++) {
		if (st->rows[i]->pool != pool)
			continue;
		mdm_rows_free(st->rows[i]);
		st->rows_count--;
		memmove(st->rows + i, st->rows + i + 1, (st->rows_count - i) * sizeof(*st->rows));
		return;
	}
}

static void chain_first(struct mdm_rows *rows, uint32_t pg)
{
	struct mdm_row *row = &rows->row[pg];

	row->newer = MDM_NO_ROW;
	row->older = rows->newest;
	if (rows->newest != MDM_NO_ROW)
		rows->row[rows->newest].newer = pg;
	rows->newest = pg;
}

void mdm_row_touch(struct mdm_state *st, struct mdm_rows *rows, uint32_t pg)
{
	struct mdm_row *row = &rows->row[pg];

	assert(row->gen <= st->making);
	if (row->gen) {
		if (row->newer != MDM_NO_ROW)
			rows->row[row->newer].older = row->older;
		else
			rows->newest = row->older;
		if (row->older != MDM_NO_ROW)
			rows->row[row->older].newer = row->newer;
	}
	row->gen = st->making;
	chain_first(rows, pg);
	st->changed = true;
}

static const struct mdm_row *sort_rows; /* qsort has no argument; one thread */

static int by_gen(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	if (sort_rows[x].gen != sort_rows[y].gen)
		return sort_rows[x].gen < sort_rows[y].gen ? -1 : 1;
	return x < y ? -1 : 1;
}

void mdm_rows_chain(struct mdm_rows *rows)
{
	uint32_t *order = ash_xcalloc(rows->pg_count, sizeof(*order)), n = 0;

	for (uint32_t pg = 0; pg < rows->pg_count; pg++)
		if (rows->row[pg].gen)
			order[n++] = pg;
	sort_rows = rows->row;
	qsort(order, n, sizeof(*order), by_gen);
	rows->newest = MDM_NO_ROW;
	for (uint32_t i = 0; i < n; i++)
		chain_first(rows, order[i]);
	free(order);
}

int mdm_row_find(const struct mdm_row *row, uint64_t device)
{
	for (int i = 0; i < row->replicas; i++)
		if (row->replica[i].device == device)
			return i;
	return -1;
}

unsigned mdm_row_in_sync(const struct mdm_row *row)
{
	unsigned n = 0;

	for (unsigned i = 0; i < row->replicas; i++)
		n += row->replica[i].state == ASH_REPLICA_IN_SYNC;
	return n;
}

static uint8_t index_after_cut(uint8_t index, unsigned cut)
{
	if (index == cut + 1)
		return 0;
	return index > cut + 1 ? (uint8_t)(index - 1) : index;
}

void mdm_row_cut(struct mdm_row *row, unsigned i)
{
	row->replicas--;
	memmove(&row->replica[i], &row->replica[i + 1],
		(row->replicas - i) * sizeof(row->replica[0]));
	memset(&row->replica[row->replicas], 0, sizeof(row->replica[0]));
	row->primary = index_after_cut(row->primary, i);
	row->handover = index_after_cut(row->handover, i);
}

Pb__Row *mdm_row_pb(const struct mdm_rows *rows, uint32_t pg)
{
	const struct mdm_row *row = &rows->row[pg];
	Pb__Row *out = ash_xcalloc(1, sizeof(*out));

	pb__row__init(out);
	out->pool = rows->pool;
	out->pg = pg;
	out->gen = row->gen;
	out->shrunk_at = row->shrunk_at;
	out->primary = row->primary;
	out->handover = row->handover;
	out->n_replicas = row->replicas;
	out->replicas = ash_xcalloc(row->replicas, sizeof(*out->replicas));
	for (unsigned i = 0; i < row->replicas; i++) {
		Pb__Replica *r = out->replicas[i] = ash_xcalloc(1, sizeof(*r));

		pb__replica__init(r);
		r->device = row->replica[i].device;
		r->state = (Pb__ReplicaState)row->replica[i].state;
		r->incarnation = row->replica[i].incarnation;
		r->left_gen = row->replica[i].left_gen;
	}
	out->n_last_in_sync = row->last_count;
	if (row->last_count) {
		out->last_in_sync = ash_xcalloc(row->last_count, sizeof(uint64_t));
		memcpy(out->last_in_sync, row->last, row->last_count * sizeof(uint64_t));
	}
	return out;
}

uint64_t mdm_place_version(const struct mdm_state *st, uint64_t domain)
{
	uint64_t version = 0;

	/* A domain's own version is raised when one of its pools goes, and with it maybe the rows
	 * with the highest gen: the place version must never go back. */
	MDM_EACH(st, PB__KIND__KIND_DOMAIN, Pb__Domain, d)
		if ((!domain || d->id == domain) && d->version > version)
			version = d->version;
	for (size_t i = 0; i < st->rows_count; i++) {
		const struct mdm_rows *rows = st->rows[i];
		const Pb__Pool *pool = mdm_pool(st, rows->pool);

		if ((domain && pool->domain != domain) || rows->newest == MDM_NO_ROW)
			continue;
		if (rows->row[rows->newest].gen > version)
			version = rows->row[rows->newest].gen;
	}
	return version;
}

/* ---------------------------------------------------------------- loss */

static bool listed(const uint64_t *devices, size_t count, uint64_t device)
{
	for (size_t i = 0; i < count; i++)
		if (devices[i] == device)
			return true;
	return false;
}

static void leave(struct mdm_replica *r, uint64_t gen)
{
	r->state = ASH_REPLICA_ABSENT;
	r->left_gen = gen;
}

/* Nobody is left in sync: remember the set, the old primary first. */
static void all_left(struct mdm_row *row, uint64_t gen)
{
	unsigned old = row->primary;

	row->last_count = 0;
	if (old)
		row->last[row->last_count++] = row->replica[old - 1].device;
	for (unsigned i = 0; i < row->replicas; i++) {
		if (row->replica[i].state != ASH_REPLICA_IN_SYNC)
			continue;
		if (i + 1 != old)
			row->last[row->last_count++] = row->replica[i].device;
		leave(&row->replica[i], gen);
	}
	row->shrunk_at = gen;
	row->primary = row->handover = 0;
}

static void some_left(struct mdm_row *row, const bool *lost, uint64_t gen)
{
	bool primary_left = row->primary && lost[row->primary - 1];

	for (unsigned i = 0; i < row->replicas; i++)
		if (lost[i] && row->replica[i].state == ASH_REPLICA_IN_SYNC)
			leave(&row->replica[i], gen);
	if (primary_left) {
		row->primary = 0;
		for (unsigned i = 0; i < row->replicas; i++) {
			if (row->replica[i].state != ASH_REPLICA_IN_SYNC)
				continue;
			if (!row->primary)
				row->primary = (uint8_t)(i + 1);
			else
				leave(&row->replica[i], gen);
		}
		row->handover = 0;
	}
	if (row->handover && row->replica[row->handover - 1].state != ASH_REPLICA_IN_SYNC)
		row->handover = 0;
	row->shrunk_at = gen;
}

static bool row_lose(struct mdm_row *row, const uint64_t *devices, size_t count, uint64_t gen)
{
	bool lost[ASH_ROW_REPLICAS_MAX] = {false}, changed = false;
	unsigned leaving = 0, in_sync = mdm_row_in_sync(row);

	for (unsigned i = 0; i < row->replicas; i++) {
		struct mdm_replica *r = &row->replica[i];

		if (r->state == ASH_REPLICA_ABSENT || !listed(devices, count, r->device))
			continue;
		lost[i] = changed = true;
		if (r->state == ASH_REPLICA_IN_SYNC)
			leaving++;
		else
			r->state = ASH_REPLICA_ABSENT; /* since when it is away has not changed */
	}
	if (leaving && leaving == in_sync)
		all_left(row, gen);
	else if (leaving)
		some_left(row, lost, gen);
	return changed;
}

void mdm_row_lose(struct mdm_row *row, uint64_t device, uint64_t gen)
{
	row_lose(row, &device, 1, gen);
}

void mdm_rows_lose(struct mdm_state *st, const uint64_t *devices, size_t count)
{
	for (size_t p = 0; p < st->rows_count && count; p++) {
		struct mdm_rows *rows = st->rows[p];
		uint64_t *here = ash_xcalloc(count, sizeof(*here));
		size_t n = 0;

		for (size_t i = 0; i < count; i++)
			if (mdm_device(st, devices[i])->pool == rows->pool)
				here[n++] = devices[i];
		for (uint32_t pg = 0; pg < rows->pg_count && n; pg++)
			if (row_lose(&rows->row[pg], here, n, st->making))
				mdm_row_touch(st, rows, pg);
		free(here);
	}
}

void mdm_rows_adopt(struct mdm_state *st, uint64_t device, uint64_t incarnation)
{
	struct mdm_rows *rows = mdm_rows(st, mdm_device(st, device)->pool);

	for (uint32_t pg = 0; pg < rows->pg_count; pg++) {
		int i = mdm_row_find(&rows->row[pg], device);

		if (i < 0)
			continue;
		rows->row[pg].replica[i].incarnation = incarnation;
		mdm_row_touch(st, rows, pg);
	}
}
