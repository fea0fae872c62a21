// SPDX-License-Identifier: MIT
/*
 * Outgoing connections to other SDSs, and requests on them. Each peer has two: one for replication
 * and resync, one for leases and liveness, so that those never wait behind bulk data.
 *
 * A new connection raises the path number of its queue; what the old one left unanswered is sent
 * again on it, in order. The receiver refuses what still arrives with a lower path.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "sds/core/sds_int.h"

static void on_up(struct ash_conn *conn);
static void on_msg(struct ash_conn *conn, struct ash_msg *msg);
static void on_down(struct ash_conn *conn, int reason);
static void link_timer(struct ash_timer *timer);

static const struct ash_conn_events events = {.on_up = on_up, .on_msg = on_msg, .on_down = on_down};

/* ------------------------------------------------------------ requests */

static void preq_transmit(struct sds_link *on, struct sds_preq *preq);
static void preq_sent(struct ash_msg *msg);
static void preq_timer(struct ash_timer *timer);

void preq_init(struct sds *s, struct sds_preq *preq, void *owner)
{
	memset(preq, 0, sizeof(*preq));
	preq->s = s;
	preq->owner = owner;
	preq->timer.fn = preq_timer;
	ash_list_init(&preq->link);
	if (s->preqs == s->preq_room) {
		s->preq_room = s->preq_room ? 2 * s->preq_room : 2048;
		s->preq = ash_xrealloc(s->preq, s->preq_room * sizeof(*s->preq));
	}
	preq->index = s->preqs;
	s->preq[s->preqs++] = preq;
}

static void link_connect(struct sds_link *link);

static void preq_queue(struct sds_link *on, struct sds_preq *preq)
{
	preq->on = on;
	if (preq->in_transport) {
		preq->state = PREQ_RETURNING;
		return;
	}
	if (on->state == LINK_UP) {
		preq_transmit(on, preq);
		return;
	}
	preq->state = PREQ_QUEUED;
	ash_list_push_back(&on->waiting, &preq->link);
	if (on->state == LINK_IDLE)
		link_connect(on);
}

void preq_send(struct sds_link *on, struct sds_preq *preq)
{
	assert(preq->state == PREQ_IDLE);
	preq_queue(on, preq);
}

static void preq_timer(struct ash_timer *timer)
{
	struct sds_preq *preq = ash_container_of(timer, struct sds_preq, timer);

	preq_queue(preq->on, preq);
}

void preq_send_later(struct sds_link *on, struct sds_preq *preq, uint64_t delay_ns)
{
	struct sds *s = preq->s;

	assert(preq->state == PREQ_IDLE);
	preq->on = on;
	preq->state = PREQ_DELAYED;
	ash_timer_set(s->port->timers, &preq->timer, sds_now(s) + delay_ns);
}

void preq_cancel(struct sds_preq *preq)
{
	ash_timer_cancel(preq->s->port->timers, &preq->timer);
	ash_list_remove(&preq->link);
	preq->state = PREQ_IDLE;
	preq->tag = 0;
}

static void preq_transmit(struct sds_link *on, struct sds_preq *preq)
{
	struct sds *s = preq->s;

	preq->tag = (uint64_t)++preq->seq << 24 | (preq->index + 1);
	preq->state = PREQ_SENT;
	preq->in_transport = true;
	preq->sent_ns = sds_now(s);
	preq->msg = (struct ash_msg){
		.h = {.path = on->path, .tag = preq->tag, .place_version = sds_place_version(s)},
		.sent = preq_sent,
		.owner = preq};
	ash_list_push_back(&on->inflight, &preq->link);
	preq->prepare(preq);
	ash_conn_send(on->conn, &preq->msg);
}

static void preq_sent(struct ash_msg *msg)
{
	struct sds_preq *preq = msg->owner;

	preq->in_transport = false;
	if (preq->state == PREQ_RETURNING)
		preq_queue(preq->on, preq);
	else if (preq->state == PREQ_IDLE && preq->idle)
		preq->idle(preq);
}

static struct sds_preq *preq_of_tag(struct sds_link *link, uint64_t tag)
{
	struct sds *s = link->peer->s;
	uint32_t index = (uint32_t)(tag & 0xffffff);
	struct sds_preq *preq = index && index <= s->preqs ? s->preq[index - 1] : NULL;

	return preq && preq->tag == tag && preq->on == link && preq->state == PREQ_SENT ? preq
											: NULL;
}

/* ------------------------------------------------------------ connecting */

static void link_init(struct sds_link *link, struct sds_peer *peer, bool control)
{
	link->peer = peer;
	link->control = control;
	link->session = peer->s->session;
	ash_list_init(&link->waiting);
	ash_list_init(&link->inflight);
	link->timer.fn = link_timer;
}

/*
 * All path numbers used: we become a new sender to the peer, whose numbers begin anew. Nothing that
 * the old one sent may begin there any more, so every PG that we lead with it gets a new generation
 * first.
 */
static bool path_left(struct sds_link *link)
{
	struct sds *s = link->peer->s;
	bool all = true;

	if (link->path < UINT16_MAX)
		return true;
	if (!link->used_up_at)
		link->used_up_at = sds_place_version(s);
	ash_list_each(l, &s->local_pgs) {
		struct sds_pg *pg = ash_container_of(l, struct sds_pg, local);

		if (pg->role != ROLE_PRIMARY || pg->row.gen > link->used_up_at)
			continue;
		for (unsigned i = 0; i < pg->row.replicas; i++)
			if (pg->row.replica[i].sds == link->peer->sds) {
				mdm_want(pg, PB__PG_ACTION__PG_BUMP, 0, 0, "path numbers used up");
				all = false;
			}
	}
	if (!all)
		return false;
	link->path = 0;
	link->used_up_at = 0;
	link->session = s->port->rand64(s->port);
	return true;
}

static void link_connect(struct sds_link *link)
{
	struct sds_peer *peer = link->peer;
	struct sds *s = peer->s;

	if (s->stopping || ash_list_empty(&link->waiting)) {
		link->state = LINK_IDLE;
		return;
	}
	if (!peer->endpoint.port || !path_left(link)) {
		link->state = LINK_BACKOFF;
		ash_timer_set(s->port->timers, &link->timer, sds_now(s) + 100 * MS);
		return;
	}
	link->state = LINK_CONNECTING;
	link->began_ns = sds_now(s);
	link->conn = ash_net_connect(s->port->net, &peer->endpoint, &events, link);
	ash_timer_set(s->port->timers, &link->timer, link->began_ns + HELLO_MS * MS);
}

static void link_timer(struct ash_timer *timer)
{
	struct sds_link *link = ash_container_of(timer, struct sds_link, timer);

	if (link->state == LINK_BACKOFF)
		link_connect(link);
	else if (link->state == LINK_CONNECTING || link->state == LINK_HELLO)
		link_close(link);
}

void link_close(struct sds_link *link)
{
	if (!link->conn || link->state == LINK_CLOSING)
		return;
	link->state = LINK_CLOSING;
	ash_timer_cancel(link->peer->s->port->timers, &link->timer);
	ash_conn_close(link->conn);
}

static void hello_sent(struct ash_msg *msg)
{
}

static void on_up(struct ash_conn *conn)
{
	struct sds_link *link = conn->owner;
	struct sds *s = link->peer->s;
	struct ash_hello hello = {
		.version_min = ASH_WIRE_VERSION_MIN,
		.version_max = ASH_WIRE_VERSION,
		.sender_kind = ASH_SENDER_SDS,
		.dr_epoch = ash_map_dr_epoch(s->map),
		.sender = s->self,
		.session = link->session,
		.features = ASH_FEATURES_KNOWN,
		.queue = (uint16_t)(s->cfg.reactor | (link->control ? CONTROL_QUEUE : 0)),
	};

	if (link->state != LINK_CONNECTING)
		return;
	conn->buf_class = ASH_BUF_PEER;
	hello.path = ++link->path;
	memcpy(hello.system, ash_map_system_uuid(s->map), 16);
	ash_hello_encode(&hello, &link->hello_wire);
	link->state = LINK_HELLO;
	link->hello = (struct ash_msg){
		.h = {.op = ASH_OP_HELLO, .path = link->path, .length = sizeof(link->hello_wire)},
		.data = (uint8_t *)&link->hello_wire,
		.data_bytes = sizeof(link->hello_wire),
		.sent = hello_sent};
	ash_conn_send(conn, &link->hello);
}

/* ------------------------------------------------------------ receiving */

static void on_hello(struct sds_link *link, struct ash_msg *msg)
{
	struct sds *s = link->peer->s;
	struct ash_hello hello;
	struct ash_list *l;

	if (msg->h.op != ASH_OP_HELLO || !(msg->h.flags & ASH_F_REPLY) ||
	    msg->h.status != ASH_ST_OK || ash_hello_decode(msg->data, msg->data_bytes, &hello) ||
	    hello.sender_kind != ASH_SENDER_SDS || hello.sender != link->peer->sds ||
	    memcmp(hello.system, ash_map_system_uuid(s->map), 16)) {
		sds_trace(s, ASH_LOG_INFO, "event=peer_hello_failed peer=%llu status=%u",
			  (unsigned long long)link->peer->sds, msg->h.status);
		mdm_want_map(s);
		link_close(link);
		return;
	}
	link->state = LINK_UP;
	link->failures = 0;
	ash_timer_cancel(s->port->timers, &link->timer);
	link->peer->heard_ns = sds_now(s);
	while ((l = ash_list_pop(&link->waiting)))
		preq_transmit(link, ash_container_of(l, struct sds_preq, link));
}

static void on_msg(struct ash_conn *conn, struct ash_msg *msg)
{
	struct sds_link *link = conn->owner;
	struct sds *s = link->peer->s;
	struct sds_preq *preq;

	if (link->state == LINK_HELLO) {
		on_hello(link, msg);
	} else if (link->state == LINK_UP && (msg->h.flags & ASH_F_REPLY)) {
		link->peer->heard_ns = sds_now(s);
		preq = preq_of_tag(link, msg->h.tag);
		if (preq && preq->msg.h.op == msg->h.op) {
			ash_list_remove(&preq->link);
			preq->state = PREQ_IDLE;
			preq->tag = 0;
			preq->answered(preq, msg);
		}
	}
	ash_msg_free(conn->net, msg);
}

/* ------------------------------------------------------------ the end of a connection */

static void end_requests(struct sds_link *link)
{
	struct ash_list ended, *l;

	ash_list_init(&ended);
	/* Unanswered requests go first, in their order. */
	while (!ash_list_empty(&link->inflight)) {
		struct sds_preq *p = ash_container_of(link->inflight.prev, struct sds_preq, link);

		assert(!p->in_transport);
		ash_list_remove(&p->link);
		if (p->once) {
			ash_list_push_front(&ended, &p->link);
			continue;
		}
		p->state = PREQ_QUEUED;
		ash_list_push_front(&link->waiting, &p->link);
	}
	/* Those that count only at once are of no use later either. */
	ash_list_each_safe(w, &link->waiting) {
		struct sds_preq *p = ash_container_of(w, struct sds_preq, link);

		if (!p->once)
			continue;
		ash_list_remove(&p->link);
		ash_list_push_back(&ended, &p->link);
	}
	while ((l = ash_list_pop(&ended))) {
		struct sds_preq *p = ash_container_of(l, struct sds_preq, link);

		p->state = PREQ_IDLE;
		p->tag = 0;
		p->answered(p, NULL);
	}
}

static void on_down(struct ash_conn *conn, int reason)
{
	struct sds_link *link = conn->owner;
	struct sds_peer *peer = link->peer;
	struct sds *s = peer->s;
	uint64_t ms = link->failures > 7 ? 1000 : 4ull << link->failures;

	sds_trace(s, ASH_LOG_INFO, "event=peer_down peer=%llu control=%d path=%u reason=%d",
		  (unsigned long long)peer->sds, link->control, link->path, reason);
	ash_timer_cancel(s->port->timers, &link->timer);
	link->conn = NULL;
	link->state = LINK_BACKOFF;
	link->failures++;
	if (!link->control)
		sync_link_down(peer);
	end_requests(link);
	if (s->stopping)
		return;
	if (ms > 500)
		ms = 500;
	ms += s->port->rand64(s->port) % (ms / 2 + 1);
	ash_timer_set(s->port->timers, &link->timer, sds_now(s) + ms * MS);
}

/* ------------------------------------------------------------ peers */

struct sds_peer *peer_find(const struct sds *s, uint64_t sds)
{
	return ash_htab_get(&s->peer_by_id, sds);
}

static void peer_address(struct sds_peer *peer)
{
	const struct ash_map_sds *o = ash_map_sds(peer->s->map, peer->sds);

	if (o && o->endpoints)
		peer->endpoint = o->endpoint[0];
}

struct sds_peer *peer_get(struct sds *s, uint64_t sds)
{
	struct sds_peer *peer = peer_find(s, sds);

	if (peer || !sds || sds == s->self)
		return peer;
	peer = ash_xcalloc(1, sizeof(*peer));
	if (ash_htab_put(&s->peer_by_id, sds, peer))
		abort(); /* one per SDS, not per I/O */
	peer->s = s;
	peer->sds = sds;
	peer->heard_ns = sds_now(s);
	link_init(&peer->data, peer, false);
	link_init(&peer->ctl, peer, true);
	lease_init_peer(peer);
	flush_init_peer(peer);
	peer->next = s->peers;
	s->peers = peer;
	peer_address(peer);
	return peer;
}

static void mark_shared(struct sds *s)
{
	for (struct sds_peer *p = s->peers; p; p = p->next)
		p->shared = false;
	ash_list_each(l, &s->local_pgs) {
		const struct sds_pg *pg = ash_container_of(l, struct sds_pg, local);

		for (unsigned i = 0; i < pg->row.replicas; i++) {
			struct sds_peer *p;

			if (i == pg->me || pg->row.replica[i].state == ASH_REPLICA_ABSENT)
				continue;
			p = peer_get(s, pg->row.replica[i].sds);
			if (p)
				p->shared = true;
		}
	}
}

void peer_refresh(struct sds *s)
{
	s->peers_stale = true;
	for (struct sds_peer *p = s->peers; p; p = p->next)
		peer_address(p);
}

void peer_tick(struct sds *s, uint64_t now)
{
	uint64_t limit = dev_deadline_ns(s);

	if (s->peers_stale) {
		s->peers_stale = false;
		mark_shared(s);
	}
	/* A connection on which nothing moves: a new one, and what it holds comes back. */
	for (struct sds_peer *p = s->peers; p; p = p->next) {
		struct sds_link *link = &p->data;

		if (link->state == LINK_UP && !ash_list_empty(&link->inflight) &&
		    now > ash_list_first(&link->inflight, struct sds_preq, link)->sent_ns + limit +
				    SEC)
			link_close(link);
	}
}

void peer_close_all(struct sds *s)
{
	for (struct sds_peer *p = s->peers; p; p = p->next) {
		link_close(&p->data);
		link_close(&p->ctl);
	}
}

void peer_free_all(struct sds *s)
{
	struct sds_peer *p;

	while ((p = s->peers)) {
		s->peers = p->next;
		ash_timer_cancel(s->port->timers, &p->data.timer);
		ash_timer_cancel(s->port->timers, &p->ctl.timer);
		for (unsigned i = 0; i < 3; i++) {
			struct sds_preq *preq = i == 0 ? &p->ask : i == 1 ? &p->rows : &p->flush;

			ash_timer_cancel(s->port->timers, &preq->timer);
		}
		free(p);
	}
}
