// SPDX-License-Identifier: MIT
/* What a primary sends to the other copies, and what their answers mean. */
#include <string.h>

#include "sds/core/sds_int.h"

static void slot_prepare(struct sds_preq *preq)
{
	struct sds_slot *slot = preq->owner;
	struct sds_op *op = slot->op;
	const struct sds_step *step = &op->step[op->at];
	struct ash_msg *m = &preq->msg;

	m->h.flags = ASH_F_LEASE;
	if (slot->build)
		m->h.flags |= ASH_F_BUILD;
	if (op->h.flags & ASH_F_FUA)
		m->h.flags |= ASH_F_FUA;
	m->h.gen = op->pg->row.gen;
	m->h.node = op->h.node;
	m->h.offset = op->chunk * ASH_CHUNK_BYTES + (uint64_t)step->first * ASH_BLOCK_BYTES;
	m->h.length = step->blocks * ASH_BLOCK_BYTES;
	if (slot->undo) {
		m->h.op = ASH_OP_REPL_UNDO;
	} else if (step->kind == SDS_STORE_WRITE) {
		m->h.op = ASH_OP_REPL_WRITE;
		m->data = step->data;
		m->data_bytes = m->h.length;
		m->crc = step->crc;
		m->crcs = step->blocks;
	} else if (step->kind == SDS_STORE_ZERO) {
		m->h.op = ASH_OP_REPL_ZEROES;
		m->h.flags |= ASH_F_NO_UNMAP;
	} else {
		m->h.op = ASH_OP_REPL_DISCARD;
	}
}

/* A copy that does not count yet is not waited for: its session is over. */
static void lost(struct sds_slot *slot, uint16_t status, const char *why)
{
	if (slot->build && !slot->required) {
		slot->state = SLOT_GONE;
		sync_missed(slot->op->pg, slot->device, why);
		return;
	}
	slot->state = SLOT_REFUSED;
	slot->refused = status;
	if (status != ASH_ST_NOSPACE)
		pg_accuse(slot->op->s, slot->peer->sds, slot->device, why);
}

static void slot_answered(struct sds_preq *preq, struct ash_msg *m)
{
	struct sds_slot *slot = preq->owner;
	struct sds_op *op = slot->op;
	struct sds *s = op->s;
	struct ash_wire_row row;

	switch (m->h.status) {
	case ASH_ST_OK:
		if (m->h.flags & ASH_F_LEASE)
			lease_from_ack(slot->peer, preq->sent_ns, m->h.place_version);
		slot->state = SLOT_ACKED;
		break;
	case ASH_ST_NOT_MAPPED: /* the node is deleted: nobody will read it */
		slot->state = SLOT_ACKED;
		break;
	case ASH_ST_STALE:
		if (m->data_bytes >= sizeof(row)) {
			memcpy(&row, m->data, sizeof(row));
			mdm_take_row(s, &row);
		} else {
			mdm_want_map(s);
		}
		preq_send_later(&slot->peer->data, preq, RETRY_MS * MS);
		return;
	case ASH_ST_BEHIND:
		preq_send_later(&slot->peer->data, preq, RETRY_MS * MS);
		return;
	case ASH_ST_RETRY:
		if (slot->build && !slot->required) {
			lost(slot, m->h.status, "the copy has lost the session");
			break;
		}
		preq_send_later(&slot->peer->data, preq, RETRY_MS * MS);
		return;
	case ASH_ST_BADSUM:
		if (++slot->badsums < 8) {
			preq_send_later(&slot->peer->data, preq, 0);
			return;
		}
		lost(slot, m->h.status, "changes arrive damaged");
		break;
	case ASH_ST_NOSPACE:
		lost(slot, m->h.status, "no space");
		break;
	default:
		lost(slot, m->h.status, "cannot write");
		break;
	}
	op_check(op);
}

static struct sds_slot *slot_for(struct sds_op *op, const struct ash_replica *r)
{
	struct sds_slot *unused = NULL;

	for (unsigned i = 0; i < OTHERS_MAX; i++) {
		struct sds_slot *slot = &op->slot[i];

		if (slot->state == SLOT_FREE || slot->state == SLOT_GONE) {
			if (!unused)
				unused = slot;
		} else if (slot->device == r->device && slot->incarnation == r->incarnation) {
			return NULL; /* has it */
		}
	}
	return unused;
}

void repl_send(struct sds_op *op)
{
	struct sds_pg *pg = op->pg;

	for (unsigned i = 0; i < pg->row.replicas; i++) {
		const struct ash_replica *r = &pg->row.replica[i];
		bool build = r->state == ASH_REPLICA_BUILDING;
		struct sds_slot *slot;
		struct sds_peer *peer;

		if (i == pg->me || r->state == ASH_REPLICA_ABSENT)
			continue;
		/* One that began before the session is waited for by the session's barrier. */
		if (build && (!sync_takes(pg, r->device) || op->seq <= pg->sync->barrier))
			continue;
		peer = peer_get(op->s, r->sds);
		slot = slot_for(op, r);
		if (!slot || !peer)
			continue;
		slot->state = SLOT_OUT;
		slot->peer = peer;
		slot->device = r->device;
		slot->incarnation = r->incarnation;
		slot->build = build;
		slot->required = pg_needs(pg, i) && (ASH_RULE(ACK_NEEDS_PEER) || build);
		slot->undo = false;
		slot->badsums = 0;
		slot->preq.prepare = slot_prepare;
		slot->preq.answered = slot_answered;
		preq_send(&peer->data, &slot->preq);
	}
}

void repl_cancel(struct sds_slot *slot)
{
	if (slot->state == SLOT_FREE)
		return;
	preq_cancel(&slot->preq);
	/* A connection that does not take it gives it back when it ends. */
	if (slot->preq.in_transport)
		link_close(slot->preq.on);
	slot->state = SLOT_GONE;
}

void repl_undo(struct sds_op *op, struct sds_slot *slot)
{
	slot->undo = true;
	slot->state = SLOT_OUT;
	preq_send(&slot->peer->data, &slot->preq);
}

void repl_row_changed(struct sds_op *op, struct sds_slot *slot)
{
	struct sds_pg *pg = op->pg;
	int i;

	if (slot->state == SLOT_FREE || slot->state == SLOT_GONE)
		return;
	i = pg_replica_of(&pg->row, slot->device, slot->incarnation);
	if (i < 0 || pg->row.replica[i].state == ASH_REPLICA_ABSENT ||
	    (!ASH_RULE(RESEND) && slot->state == SLOT_OUT)) {
		repl_cancel(slot);
		return;
	}
	slot->build = pg->row.replica[i].state == ASH_REPLICA_BUILDING;
	slot->required = pg_needs(pg, (unsigned)i) && (ASH_RULE(ACK_NEEDS_PEER) || slot->build);
	if (slot->build && !sync_takes(pg, slot->device))
		repl_cancel(slot);
}
