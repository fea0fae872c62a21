// SPDX-License-Identifier: MIT
/*
 * Frees what a device holds of groups that it has no part in any more: it was away and its place
 * was taken, or it was being filled and the lost copy came back.
 *
 * A chunk is a stray only by a row that is certain: the map knows this very opening of the device,
 * so the row is no older than it, and two other copies are in sync. Should the device get a part in
 * the group again, what is left here is compared before it counts.
 */
#include "sds/core/sds_int.h"

#define SCAN_MS 50	/* between two looks at the table */
#define AGAIN_MS 5000	/* strays that could not be freed yet are looked for again */
#define SCANS_AT_ONCE 8 /* of 256 chunks */

static bool has_part(const struct ash_row *row, uint64_t device)
{
	for (unsigned i = 0; i < row->replicas; i++)
		if (row->replica[i].device == device)
			return true;
	return false;
}

enum verdict { KEEP, LATER, FREE };

static enum verdict judge(const struct sds *s, const struct sds_dev *dev, uint64_t node,
			  uint64_t chunk)
{
	const struct sds_pg *pg = pg_of(s, node, chunk);
	unsigned in_sync = 0;

	/* Without a group the node is deleted, or news: not for us to say. */
	if (!pg || !pg_is_placed(pg) || has_part(&pg->row, dev->id))
		return KEEP;
	for (unsigned i = 0; i < pg->row.replicas; i++)
		in_sync += pg->row.replica[i].state == ASH_REPLICA_IN_SYNC;
	return in_sync >= 2 && pg->row.primary != ASH_NO_PRIMARY ? FREE : LATER;
}

static void over(struct sds *s)
{
	struct sds_op *op = s->stray.op;

	sds_range_unlock(&s->locks, &op->range);
	op->stage = OP_NEW;
	op->pg = NULL;
	op->dev = NULL;
	op_put(op);
	s->stray.op = NULL;
	s->stray.due_ns = 0; /* go on in this turn */
}

static void freed(struct sds_op *op, int status)
{
	struct sds *s = op->s;

	if (!status)
		s->stats.strays_freed++;
	over(s);
}

/* With the chunk locked: the row may be another one by now, and the device gone. */
static void begin(struct sds_op *op)
{
	struct sds *s = op->s;

	op->dev = dev_by_id(s, s->stray.device);
	op->pg = op->dev ? pg_of(s, op->h.node, op->chunk) : NULL;
	if (!op->dev || !dev_admitted(op->dev) || s->stopping ||
	    judge(s, op->dev, op->h.node, op->chunk) != FREE)
		over(s);
	else
		op_store(op, SDS_STORE_DROP, 0, ASH_CHUNK_BLOCKS, NULL, NULL, freed);
}

/* Return: an operation is out, or none can be had now. */
static bool free_chunk(struct sds *s, const struct sds_dev *dev, const struct sds_chunk_info *e)
{
	struct sds_op *op = op_get(s, true);

	if (!op)
		return true;
	s->stray.op = op;
	s->stray.device = dev->id;
	op->h = (struct ash_hdr){.op = ASH_OP_DROP_CHUNK, .node = e->node};
	op->chunk = e->chunk;
	op->first = 0;
	op->blocks = ASH_CHUNK_BLOCKS;
	op->begin = begin;
	op_lock(op, false);
	return true;
}

/* Return: something was found to do; the cursor stays in front of it. */
static bool scan(struct sds *s, struct sds_dev *dev)
{
	struct sds_chunk_info info[256];

	for (unsigned round = 0; round < SCANS_AT_ONCE; round++) {
		uint64_t next;
		unsigned n = sds_store_scan(dev->store, dev->stray_cursor, info, 256, &next);

		for (unsigned i = 0; i < n; i++)
			switch (judge(s, dev, info[i].node, info[i].chunk)) {
			case FREE:
				return free_chunk(s, dev, &info[i]);
			case LATER:
				dev->strays_later = true;
				break;
			default:
				break;
			}
		dev->stray_cursor = next;
		if (!next)
			return false;
	}
	return false;
}

static void look(struct sds *s, struct sds_dev *dev, uint64_t now)
{
	if (now < dev->stray_ns)
		return;
	if (scan(s, dev) || dev->stray_cursor)
		return;
	dev->strays_due = dev->strays_later;
	dev->strays_later = false;
	dev->stray_ns = now + AGAIN_MS * MS;
}

void stray_due(struct sds_dev *dev)
{
	dev->strays_due = true;
	dev->stray_cursor = 0;
}

void stray_turn(struct sds *s)
{
	uint64_t now;

	if (s->stray.op || s->stopping || !s->registered)
		return;
	now = sds_now(s);
	if (now < s->stray.due_ns)
		return;
	s->stray.due_ns = now + SCAN_MS * MS;
	ash_list_each(l, &s->devs) {
		struct sds_dev *dev = ash_container_of(l, struct sds_dev, link);

		if (dev->strays_due && dev->state == DEV_OPEN && dev_admitted(dev) && !s->stray.op)
			look(s, dev, now);
	}
}
