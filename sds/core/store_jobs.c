// SPDX-License-Identifier: MIT
/* Work over many chunks: stamps, dropping a node, settling; and lists and counters for others. */
#include <stdlib.h>

#include "common/base/clean.h"
#include "sds/core/store_int.h"

#define DROPS_MAX 32u
#define ENTRIES_PER_TURN 4096u

static void job_durable(struct sds_store *s, struct sds_jwait *wait)
{
	struct sds_job *job = ash_container_of(wait, struct sds_job, wait);

	job->waiting = false;
	s->again = true;
}

static struct sds_job *job_add(struct sds_store *s, void (*done)(void *arg, int status), void *arg)
{
	struct sds_job *job = ash_xcalloc(1, sizeof(*job));

	ash_list_init(&job->wait.link);
	job->wait.fn = job_durable;
	job->done = done;
	job->arg = arg;
	*s->jobs_end = job;
	s->jobs_end = &job->next;
	sds_kick(s);
	return job;
}

void sds_store_stamp(struct sds_store *s, const struct sds_chunk_info *list, unsigned count,
		     uint64_t gen, void (*done)(void *arg, int status), void *arg)
{
	struct sds_job *job = job_add(s, done, arg);

	job->list = list;
	job->count = count;
	job->gen = gen;
}

void sds_store_drop_node(struct sds_store *s, uint64_t node, void (*done)(void *arg, int status),
			 void *arg)
{
	struct sds_job *job = job_add(s, done, arg);

	job->drop = true;
	job->node = node;
}

/* Returns whether the job has made all its records. */
static bool stamp_some(struct sds_store *s, struct sds_job *job)
{
	for (; job->at < job->count; job->at++) {
		uint32_t i = sds_index_find(s, job->list[job->at].node, job->list[job->at].chunk);

		if (i == SDS_NONE)
			continue;
		if (s->ext[i].e.stamp >= job->gen) { /* but perhaps not durably yet */
			if (s->ext[i].e.seq > job->last_seq)
				job->last_seq = s->ext[i].e.seq;
			continue;
		}
		if (!sds_journal_room(s, SDS_J_PEER, sds_jrec_entry_bytes(0)))
			return false;
		s->ext[i].e.stamp = job->gen;
		/* neither opens nor closes an activity-log entry */
		job->last_seq = sds_journal_entry(s, 0, i, 0, 0, NULL, NULL);
		if (s->ext[i].slot != SDS_NONE)
			s->al.slots[s->ext[i].slot].stamp_seq = job->last_seq;
	}
	return true;
}

static void drop_done(struct sds_store_op *op, int status)
{
	struct sds_job *job = op->owner;

	job->inflight--;
	if (status)
		job->status = status;
	free(op);
}

static void drop_chunk(struct sds_store *s, struct sds_job *job, const struct sds_entry *e)
{
	struct sds_store_op *op = ash_xcalloc(1, sizeof(*op));

	op->kind = SDS_STORE_DROP;
	op->node = e->node;
	op->chunk = e->chunk;
	op->buf_index = -1;
	op->done = drop_done;
	op->owner = job;
	job->inflight++;
	sds_store_submit(s, op);
}

/* As ordinary DROP operations, a few at a time, and not too many entries looked at per turn. */
static bool drop_some(struct sds_store *s, struct sds_job *job)
{
	for (unsigned looked = 0; job->at < s->extents && job->status == 0; job->at++) {
		const struct sds_ext *ext = &s->ext[job->at];

		if (looked++ >= ENTRIES_PER_TURN) {
			sds_post(s);
			return false;
		}
		if (!(ext->e.flags & SDS_EXT_USED) || ext->e.node != job->node)
			continue;
		if (ext->io || job->inflight >= DROPS_MAX)
			return false; /* until an operation ends: that is a turn */
		drop_chunk(s, job, &ext->e);
	}
	return job->inflight == 0;
}

void sds_jobs_run(struct sds_store *s)
{
	struct sds_job *job = s->jobs;

	if (!job || job->waiting)
		return;
	if (job->drop && !drop_some(s, job))
		return;
	if (job->status == 0 && !job->drop) {
		if (!stamp_some(s, job))
			return;
		if (!sds_journal_durable(&s->j, job->last_seq)) {
			job->waiting = true;
			sds_journal_wait(s, &job->wait, job->last_seq);
			return;
		}
	}
	s->jobs = job->next;
	if (!s->jobs)
		s->jobs_end = &s->jobs;
	s->again = true;
	job->done(job->arg, job->status);
	free(job);
}

void sds_jobs_fail(struct sds_store *s)
{
	for (struct sds_job *job = s->jobs; job; job = job->next) {
		job->status = -ENODEV;
		ash_list_remove(&job->wait.link);
		job->waiting = false;
	}
}

void sds_store_settle(struct sds_store *s, uint64_t node, uint64_t chunk)
{
	uint32_t i = sds_index_find(s, node, chunk);

	if (i == SDS_NONE || s->failed || !(s->ext[i].e.flags & SDS_EXT_UNSETTLED))
		return;
	/* No journal record: until the table block is written the mark may come back, which only
	 * costs a needless comparison. */
	s->ext[i].e.flags &= ~SDS_EXT_UNSETTLED;
	s->stats.unsettled--;
	sds_table_dirty(s, i);
}

/* ------------------------------------------------------------ lists and counters */

static void info_of(const struct sds_ext *ext, struct sds_chunk_info *info)
{
	info->node = ext->e.node;
	info->chunk = ext->e.chunk;
	info->stamp = ext->e.stamp;
	info->unsettled = (ext->e.flags & SDS_EXT_UNSETTLED) || ext->slot != SDS_NONE;
}

unsigned sds_store_scan(const struct sds_store *s, uint64_t cursor, struct sds_chunk_info *out,
			unsigned room, uint64_t *ret_cursor)
{
	unsigned n = 0;

	for (; cursor < s->extents && n < room; cursor++)
		if (s->ext[cursor].e.flags & SDS_EXT_USED)
			info_of(&s->ext[cursor], &out[n++]);
	*ret_cursor = cursor < s->extents ? cursor : 0;
	return n;
}

bool sds_store_lookup(const struct sds_store *s, uint64_t node, uint64_t chunk,
		      struct sds_chunk_info *ret_info)
{
	uint32_t i = sds_index_find(s, node, chunk);

	if (i == SDS_NONE)
		return false;
	info_of(&s->ext[i], ret_info);
	return true;
}

void sds_store_stats(const struct sds_store *s, struct sds_store_stats *ret_stats)
{
	*ret_stats = s->stats;
	ret_stats->extents = s->extents;
	ret_stats->used = s->used;
	ret_stats->pending_free = s->pending_free;
	ret_stats->retired = s->retired;
	ret_stats->al_hot = s->al.capacity - s->al.free_count;
	if (!ash_list_empty(&s->inflight))
		ret_stats->oldest_op_ns =
			ash_list_first(&s->inflight, struct sds_io, link)->d.submitted_ns;
}

static int by_node(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

void sds_store_node_use(const struct sds_store *s,
			void (*fn)(void *arg, uint64_t node, uint64_t extents), void *arg)
{
	uint64_t *nodes = ash_xcalloc(s->used + 1, sizeof(*nodes)), n = 0, run;

	for (uint32_t i = 0; i < s->extents; i++)
		if (s->ext[i].e.flags & SDS_EXT_USED)
			nodes[n++] = s->ext[i].e.node;
	qsort(nodes, n, sizeof(*nodes), by_node);
	for (uint64_t i = 0; i < n; i += run) {
		for (run = 1; i + run < n && nodes[i + run] == nodes[i]; run++)
			;
		fn(arg, nodes[i], run);
	}
	free(nodes);
}
