// SPDX-License-Identifier: MIT
/*
 * FLUSH in rounds: one of the own devices, one of the peers that hold counted copies of what we
 * lead. Operations that come meanwhile share the next round. A copy that is flushed for somebody
 * else's primary waits for its own devices only, never for the network.
 */
#include <errno.h>
#include <string.h>

#include "sds/core/sds_int.h"

static void flush_op_over(struct sds_op *op)
{
	uint16_t status;

	if (op->of_peer) {
		op_finish(op, op->flush_failed ? ASH_ST_MEDIUM : ASH_ST_OK);
		return;
	}
	/* Opened anew meanwhile: what the old open wrote may be gone with it. */
	status = fence_open(op);
	op_finish(op, status ? status : op->flush_failed ? ASH_ST_RETRY : ASH_ST_OK);
}

static void part_over(struct sds_op *op, bool failed)
{
	op->flush_failed |= failed;
	if (--op->flush_left == 0)
		flush_op_over(op);
}

/* ------------------------------------------------------------ own devices */

static void own_over(struct sds *s)
{
	struct ash_list *l;

	while ((l = ash_list_pop(&s->flush_now)))
		part_over(ash_container_of(l, struct sds_op, link), s->flush_failed);
}

static void device_flushed(struct sds_store_op *sop, int status)
{
	struct sds_dev *dev = sop->owner;
	struct sds *s = dev->s;

	s->flush_failed |= status != 0;
	dev_op_ended(dev);
	if (--s->flush_busy == 0)
		own_over(s);
}

/* A device failed and the MDM does not know: a flush must not succeed by forgetting it. */
static bool failed_untold(const struct sds *s, const struct sds_dev *dev)
{
	const struct ash_map_device *d = ash_map_device(s->map, dev->id);

	return dev->state == DEV_FAILED && dev->write_back && d &&
	       d->state == PB__DEVICE_STATE__DEVICE_UP && d->incarnation == dev->label.incarnation;
}

static void own_begin(struct sds *s)
{
	struct ash_list *l;

	while ((l = ash_list_pop(&s->flush_next)))
		ash_list_push_back(&s->flush_now, l);
	s->flush_failed = false;
	s->flush_busy = 1; /* until all are submitted */
	ash_list_each(d, &s->devs) {
		struct sds_dev *dev = ash_container_of(d, struct sds_dev, link);

		s->flush_failed |= failed_untold(s, dev);
		if (dev->state != DEV_OPEN || !dev->write_back)
			continue;
		dev->flush = (struct sds_store_op){.kind = SDS_STORE_FLUSH,
						   .buf_index = -1,
						   .done = device_flushed,
						   .owner = dev};
		dev->ops++;
		s->flush_busy++;
		sds_store_submit(dev->store, &dev->flush);
	}
	if (--s->flush_busy == 0)
		own_over(s);
}

/* ------------------------------------------------------------ peers */

static bool is_write_back(const struct sds *s, uint64_t device)
{
	const struct ash_map_device *d = ash_map_device(s->map, device);

	return !d || d->write_back;
}

/* Marks in @ret whether the peer holds counted copies of PGs that we lead. */
static bool peer_needed(const struct sds *s, const struct sds_peer *peer)
{
	ash_list_each(l, &s->local_pgs) {
		const struct sds_pg *pg = ash_container_of(l, struct sds_pg, local);

		for (unsigned i = 0; pg->role == ROLE_PRIMARY && i < pg->row.replicas; i++)
			if (i != pg->me && pg->row.replica[i].sds == peer->sds && pg_needs(pg, i) &&
			    is_write_back(s, pg->row.replica[i].device))
				return true;
	}
	return false;
}

static void peers_over(struct sds *s)
{
	struct ash_list *l;

	while ((l = ash_list_pop(&s->pflush_now)))
		part_over(ash_container_of(l, struct sds_op, begun), s->pflush_failed);
}

static void peer_over(struct sds_peer *peer, bool failed)
{
	struct sds *s = peer->s;

	peer->flushing = false;
	s->pflush_failed |= failed;
	if (--s->pflush_busy == 0)
		peers_over(s);
}

static void flush_prepare(struct sds_preq *preq)
{
	preq->msg.h.op = ASH_OP_REPL_FLUSH;
}

static void flush_answered(struct sds_preq *preq, struct ash_msg *m)
{
	struct sds_peer *peer = preq->owner;

	if (m->h.status == ASH_ST_RETRY || m->h.status == ASH_ST_BEHIND)
		preq_send_later(&peer->data, preq, RETRY_MS * MS);
	else
		peer_over(peer, m->h.status != ASH_ST_OK);
}

void flush_init_peer(struct sds_peer *peer)
{
	preq_init(peer->s, &peer->flush, peer);
	peer->flush.prepare = flush_prepare;
	peer->flush.answered = flush_answered;
}

static void peers_begin(struct sds *s)
{
	struct ash_list *l;

	while ((l = ash_list_pop(&s->pflush_next)))
		ash_list_push_back(&s->pflush_now, l);
	s->pflush_failed = false;
	s->pflush_busy = 1;
	for (struct sds_peer *p = s->peers; p && ASH_RULE(FLUSH_PEERS); p = p->next) {
		if (!peer_needed(s, p))
			continue;
		p->flushing = true;
		p->flush_ns = sds_now(s);
		s->pflush_busy++;
		preq_send(&p->data, &p->flush);
	}
	if (--s->pflush_busy == 0)
		peers_over(s);
}

void flush_turn(struct sds *s)
{
	if (!s->flush_busy && !ash_list_empty(&s->flush_next))
		own_begin(s);
	if (!s->pflush_busy && !ash_list_empty(&s->pflush_next))
		peers_begin(s);
}

void flush_tick(struct sds *s, uint64_t now)
{
	for (struct sds_peer *p = s->peers; p; p = p->next) {
		if (!p->flushing)
			continue;
		if (!peer_needed(s, p)) {
			/* Its copies do not count any more. */
			preq_cancel(&p->flush);
			peer_over(p, false);
		} else if (now > p->flush_ns + dev_deadline_ns(s)) {
			pg_accuse(s, p->sds, 0, "does not flush in time");
		}
	}
}

/* ------------------------------------------------------------ requests */

void op_flush(struct sds_op *op)
{
	struct sds *s = op->s;
	uint16_t status = fence_open(op);

	if (status) {
		op_finish(op, status);
		return;
	}
	op->stage = OP_BEGUN;
	op->flush_left = 2;
	ash_list_push_back(&s->flush_next, &op->link);
	ash_list_push_back(&s->pflush_next, &op->begun);
}

void op_repl_flush(struct sds_op *op)
{
	if (op->h.path < op->ses->sender->path) {
		op_finish(op, ASH_ST_STALE);
		return;
	}
	op->stage = OP_BEGUN;
	op->flush_left = 1;
	ash_list_push_back(&op->s->flush_next, &op->link);
}
