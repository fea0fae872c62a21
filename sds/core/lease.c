// SPDX-License-Identifier: MIT
/*
 * Read leases between two SDSs. The holder counts from when it asked, the granter from when it
 * received, and the granter waits half as long again: so clocks may drift apart by up to a fifth
 * each way. A grant counts only if the holder has every row that the granter acts on: a granter
 * that became primary by a newer row cannot prolong what the old primary serves.
 */
#include <errno.h>
#include <string.h>

#include "sds/core/sds_int.h"

/* ------------------------------------------------------------ arithmetic */

void lease_granted(struct sds_lease *l, uint64_t asked_ns, uint64_t duration_ns,
		   uint64_t granter_version, uint64_t own_version)
{
	uint64_t end = asked_ns + duration_ns;

	if (granter_version <= own_version || !ASH_RULE(LEASE_BOUND)) {
		if (end > l->valid_ns)
			l->valid_ns = end;
		return;
	}
	if (end > l->pending_ns) {
		l->pending_ns = end;
		l->pending_version = granter_version;
	}
}

void lease_recount(struct sds_lease *l, uint64_t own_version)
{
	if (!l->pending_ns || l->pending_version > own_version)
		return;
	if (l->pending_ns > l->valid_ns)
		l->valid_ns = l->pending_ns;
	l->pending_ns = 0;
}

bool lease_holds(const struct sds_lease *l, uint64_t now)
{
	return now < l->valid_ns;
}

void lease_book(struct sds_lease *l, uint64_t now, uint64_t duration_ns)
{
	uint64_t end = now + duration_ns + duration_ns / 2;

	if (end > l->granted_ns)
		l->granted_ns = end;
}

static uint64_t duration_ns(const struct sds *s)
{
	return ash_map_lease_ms(s->map) * MS;
}

/* ------------------------------------------------------------ asking */

static void ask_prepare(struct sds_preq *preq)
{
	struct sds_peer *peer = preq->owner;
	struct sds *s = peer->s;
	struct ash_lease ask = {.ask_id = ++peer->ask_id, .duration_ms = ash_map_lease_ms(s->map)};

	ash_lease_encode(&ask, &peer->ask_wire);
	preq->msg.h.op = ASH_OP_LEASE_ASK;
	preq->msg.h.flags = ASH_F_LEASE;
	preq->msg.h.length = sizeof(peer->ask_wire);
	/* Which rows we have for certain: the answer brings those above. */
	preq->msg.h.place_version = ash_map_place_version(s->map);
	preq->msg.data = (uint8_t *)&peer->ask_wire;
	preq->msg.data_bytes = sizeof(peer->ask_wire);
}

/* Return: were all of them usable? */
static bool take_rows(struct sds *s, const uint8_t *data, uint32_t bytes)
{
	struct ash_wire_row row;
	bool all = bytes % sizeof(row) == 0;

	for (; bytes >= sizeof(row); bytes -= sizeof(row), data += sizeof(row)) {
		memcpy(&row, data, sizeof(row));
		all &= mdm_take_row(s, &row) >= 0;
	}
	return all;
}

static void ask_answered(struct sds_preq *preq, struct ash_msg *reply)
{
	struct sds_peer *peer = preq->owner;
	struct sds *s = peer->s;
	struct ash_lease grant;
	uint64_t version;
	bool all;

	if (!reply || reply->h.status != ASH_ST_OK ||
	    ash_lease_decode(reply->data, reply->data_bytes, &grant) ||
	    grant.ask_id != peer->ask_id)
		return;
	peer->heard_ns = sds_now(s);
	version = reply->h.place_version;
	/* With the granter's newer rows here the grant counts at once. The next one needs its own:
	 * the granter may hear of rows in another order than we do. */
	all = take_rows(s, reply->data + sizeof(struct ash_wire_lease),
			reply->data_bytes - (uint32_t)sizeof(struct ash_wire_lease)) &&
	      !(reply->h.flags & ASH_F_MORE);
	if (version > ash_map_place_version(s->map))
		mdm_want_map(s);
	if (grant.duration_ms)
		lease_granted(&peer->lease, preq->sent_ns, grant.duration_ms * MS,
			      all ? 0 : version, ash_map_place_version(s->map));
	s->lease_moved = true;
}

void lease_from_ack(struct sds_peer *peer, uint64_t sent_ns, uint64_t version)
{
	struct sds *s = peer->s;

	peer->heard_ns = sds_now(s);
	lease_granted(&peer->lease, sent_ns, duration_ns(s), version,
		      ash_map_place_version(s->map));
	if (!ash_list_empty(&s->lease_wait))
		s->lease_moved = true;
}

void lease_version_moved(struct sds *s)
{
	for (struct sds_peer *p = s->peers; p; p = p->next)
		lease_recount(&p->lease, ash_map_place_version(s->map));
	s->lease_moved = true;
}

void lease_tick(struct sds *s, uint64_t now)
{
	if (s->stopping || !ash_map_lease_ms(s->map))
		return;
	for (struct sds_peer *p = s->peers; p; p = p->next) {
		if (!p->shared || now < p->asked_ns + LEASE_ASK_MS * MS)
			continue;
		if (p->ask.state != PREQ_IDLE) {
			/* A connection that brings no answer is no use; a new one may be. */
			if (now > p->asked_ns + SEC && p->ctl.state == LINK_UP) {
				p->asked_ns = now;
				link_close(&p->ctl);
			}
			continue;
		}
		if (p->ask.in_transport)
			continue;
		p->asked_ns = now;
		preq_send(&p->ctl, &p->ask);
	}
}

/* ------------------------------------------------------------ granting */

void lease_by_ack(struct sds *s, uint64_t sds)
{
	struct sds_peer *peer = peer_get(s, sds);

	if (peer)
		lease_book(&peer->lease, sds_now(s), duration_ns(s));
}

/* Rows newer than @have, as many as fit. */
static uint32_t put_rows(struct sds *s, uint64_t have, uint8_t *out, uint32_t room, bool *ret_more)
{
	const struct ash_map_pool *pool = NULL;
	uint32_t bytes = 0;
	struct ash_wire_row row;

	*ret_more = false;
	if (have >= sds_place_version(s))
		return 0;
	while ((pool = ash_map_next_pool(s->map, pool ? pool->id : 0)))
		for (uint32_t pg = 0; pg < pool->pg_count; pg++) {
			if (pool->rows[pg].gen <= have)
				continue;
			if (bytes + sizeof(row) > room) {
				*ret_more = true;
				return bytes;
			}
			ash_map_encode_row(s->map, pool, pg, &row);
			memcpy(out + bytes, &row, sizeof(row));
			bytes += (uint32_t)sizeof(row);
		}
	return bytes;
}

void lease_on_ask(struct sds_session *ses, struct ash_msg *msg)
{
	struct sds *s = ses->s;
	struct sds_peer *peer = peer_get(s, ses->sender->id);
	struct ash_wire_lease wire;
	struct ash_lease ask;
	struct ash_buf *buf;
	uint32_t bytes = sizeof(wire), room = ASH_AUX_MAX_BYTES;
	/* Bound to the map both ways: what it lacks goes along, or it would serve on for ever. */
	bool more = false,
	     behind = ASH_RULE(LEASE_BOUND) && msg->h.place_version < sds_place_version(s);

	if (!peer || ash_lease_decode(msg->data, msg->data_bytes, &ask)) {
		session_answer(ses, &msg->h, ASH_ST_INVALID, 0, 0, NULL, 0);
		return;
	}
	buf = behind ? ash_buf_get(s->port->bufs, room, ASH_BUF_PEER) : NULL;
	if (behind && !buf)
		return; /* it asks again */
	if (behind)
		bytes += put_rows(s, msg->h.place_version, buf->base + sizeof(wire),
				  room - (uint32_t)sizeof(wire), &more);
	if (msg->h.place_version > sds_place_version(s)) {
		mdm_want_map(s);
		lease_ask_rows(peer);
	}
	/* A duration that is not the system's is not ours to grant. */
	if (s->stopping || ask.duration_ms != ash_map_lease_ms(s->map))
		ask.duration_ms = 0;
	if (ask.duration_ms)
		lease_book(&peer->lease, sds_now(s), duration_ns(s));
	if (!buf) {
		session_grant(ses, &msg->h, &ask);
		return;
	}
	ash_lease_encode(&ask, &wire);
	memcpy(buf->base, &wire, sizeof(wire));
	session_answer(ses, &msg->h, ASH_ST_OK, (uint16_t)(ASH_F_LEASE | (more ? ASH_F_MORE : 0)),
		       0, buf, bytes);
}

/* ------------------------------------------------------------ rows from a peer */

static void rows_prepare(struct sds_preq *preq)
{
	struct sds_peer *peer = preq->owner;

	preq->msg.h.op = ASH_OP_ROWS;
	preq->msg.h.place_version = ash_map_place_version(peer->s->map);
}

static void rows_answered(struct sds_preq *preq, struct ash_msg *reply)
{
	struct sds_peer *peer = preq->owner;

	if (reply && reply->h.status == ASH_ST_OK)
		take_rows(peer->s, reply->data, reply->data_bytes);
}

void lease_ask_rows(struct sds_peer *peer)
{
	uint64_t now = sds_now(peer->s);

	if (preq_out(&peer->rows) || now < peer->rows_ns + 10 * MS || peer->s->stopping)
		return;
	peer->rows_ns = now;
	preq_send(&peer->ctl, &peer->rows);
}

void lease_on_rows(struct sds_session *ses, struct ash_msg *msg)
{
	struct sds *s = ses->s;
	struct ash_buf *buf = ash_buf_get(s->port->bufs, ASH_AUX_MAX_BYTES, ASH_BUF_PEER);
	uint32_t bytes;
	bool more;

	if (!buf)
		return;
	bytes = put_rows(s, msg->h.place_version, buf->base, ASH_AUX_MAX_BYTES, &more);
	session_answer(ses, &msg->h, ASH_ST_OK, more ? ASH_F_MORE : 0, 0, buf, bytes);
}

void lease_init_peer(struct sds_peer *peer)
{
	preq_init(peer->s, &peer->ask, peer);
	peer->ask.once = true;
	peer->ask.prepare = ask_prepare;
	peer->ask.answered = ask_answered;
	preq_init(peer->s, &peer->rows, peer);
	peer->rows.once = true;
	peer->rows.prepare = rows_prepare;
	peer->rows.answered = rows_answered;
}
