// SPDX-License-Identifier: MIT
/*
 * Sessions to SDSs. Each new connection raises the peer's path number; what the old one left
 * unanswered is sent again on it, in order. An old message that still arrives somewhere has a lower
 * path, and is refused there.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "sdc/core/sdc_int.h"

#define RECONNECT_MAX_MS 1000u

static void on_up(struct ash_conn *conn);
static void on_msg(struct ash_conn *conn, struct ash_msg *msg);
static bool on_place(struct ash_conn *conn, const struct ash_hdr *h, uint8_t **ret_data,
		     uint32_t **ret_crc);
static void on_down(struct ash_conn *conn, int reason);
static void peer_tick(struct ash_timer *timer);

static const struct ash_conn_events events = {
	.on_up = on_up, .on_msg = on_msg, .on_place = on_place, .on_down = on_down};

struct sdc_peer *sdc_peer_of(struct sdc *sdc, uint64_t sds, uint16_t reactor,
			     const struct ash_endpoint *endpoint)
{
	uint64_t key = sds << 6 | (reactor & 63);
	struct sdc_peer *peer = ash_htab_get(&sdc->peer_by_key, key);

	if (!peer) {
		peer = calloc(1, sizeof(*peer));
		if (!peer || ash_htab_put(&sdc->peer_by_key, key, peer))
			abort(); /* one per SDS, not per I/O */
		peer->sdc = sdc;
		peer->sds = sds;
		peer->reactor = reactor;
		ash_list_init(&peer->waiting);
		ash_list_init(&peer->inflight);
		ash_list_init(&peer->returning);
		peer->timer.fn = peer_tick;
		peer->next = sdc->peers;
		sdc->peers = peer;
	}
	/* For the next connection; a live one has proved who is there. */
	peer->endpoint = *endpoint;
	return peer;
}

/* ------------------------------------------------------------ time */

void sdc_peer_timer(struct sdc_peer *peer)
{
	struct sdc *sdc = peer->sdc;
	uint64_t at = ASH_TIME_NEVER;

	switch (peer->state) {
	case PEER_CONNECTING:
	case PEER_HELLO:
		at = peer->began_ns + CONNECT_MS * MS;
		break;
	case PEER_UP:
		if (!ash_list_empty(&peer->inflight))
			at = ash_list_first(&peer->inflight, struct sdc_req, link)->sent_ns +
			     sdc->cfg.path_timeout_ms * MS;
		if (!ash_list_empty(&peer->returning)) {
			uint64_t r =
				ash_list_first(&peer->returning, struct sdc_req, link)->sent_ns +
				RETURN_MS * MS;

			at = r < at ? r : at;
		}
		break;
	default:
		return; /* BACKOFF has its own */
	}
	/* An earlier tick looks again by itself. */
	if (at != ASH_TIME_NEVER &&
	    (!ash_timer_is_set(&peer->timer) || peer->timer.deadline_ns > at))
		ash_timer_set(sdc->port->timers, &peer->timer, at);
}

static void peer_connect(struct sdc_peer *peer)
{
	struct sdc *sdc = peer->sdc;

	assert(!peer->conn);
	if (sdc->renewing || sdc->stopping || ash_list_empty(&peer->waiting)) {
		peer->state = PEER_IDLE;
		return;
	}
	if (peer->path == UINT16_MAX) {
		peer->state = PEER_IDLE;
		sdc_renew(sdc);
		return;
	}
	peer->state = PEER_CONNECTING;
	peer->began_ns = sdc_now(sdc);
	peer->conn = ash_net_connect(sdc->port->net, &peer->endpoint, &events, peer);
	sdc_peer_timer(peer);
}

static void too_slow(struct sdc_peer *peer, const char *what)
{
	sdc_trace(peer->sdc, ASH_LOG_WARN, "event=path_timeout sds=%llu path=%u what=%s",
		  (unsigned long long)peer->sds, peer->path, what);
	sdc_peer_close(peer);
}

static void peer_tick(struct ash_timer *timer)
{
	struct sdc_peer *peer = ash_container_of(timer, struct sdc_peer, timer);
	struct sdc *sdc = peer->sdc;
	uint64_t now = sdc_now(sdc);
	struct sdc_req *r;

	switch (peer->state) {
	case PEER_BACKOFF:
		peer_connect(peer);
		return;
	case PEER_CONNECTING:
	case PEER_HELLO:
		if (now >= peer->began_ns + CONNECT_MS * MS) {
			too_slow(peer, "connect");
			return;
		}
		break;
	case PEER_UP:
		r = ash_list_first(&peer->inflight, struct sdc_req, link);
		if (!ash_list_empty(&peer->inflight) &&
		    now >= r->sent_ns + sdc->cfg.path_timeout_ms * MS) {
			too_slow(peer, ash_op_text(r->op));
			return;
		}
		r = ash_list_first(&peer->returning, struct sdc_req, link);
		if (!ash_list_empty(&peer->returning) && now >= r->sent_ns + RETURN_MS * MS) {
			sdc_peer_close(peer);
			return;
		}
		break;
	default:
		return;
	}
	sdc_peer_timer(peer);
}

void sdc_peer_kick(struct sdc_peer *peer)
{
	if (peer->state == PEER_IDLE && !ash_list_empty(&peer->waiting))
		peer_connect(peer);
}

void sdc_peer_close(struct sdc_peer *peer)
{
	if (!peer->conn || peer->state == PEER_CLOSING)
		return;
	peer->state = PEER_CLOSING;
	ash_timer_cancel(peer->sdc->port->timers, &peer->timer);
	ash_conn_close(peer->conn);
}

/* ------------------------------------------------------------ sending */

static void req_sent(struct ash_msg *msg)
{
	struct sdc_req *req = msg->owner;

	req->in_transport = false;
	if (req->state == REQ_RETURNING)
		sdc_req_returned(req);
}

static void send_req(struct sdc_peer *peer, struct sdc_req *req)
{
	struct sdc *sdc = peer->sdc;
	struct ash_msg *m = &req->msg;
	bool data = req->op == ASH_OP_WRITE;

	assert(!req->in_transport && !req->placed && !req->vol->dead);
	req->tag = (uint64_t)++req->seq << 24 | (req->index + 1);
	req->state = REQ_SENT;
	req->in_transport = true;
	req->sent_ns = sdc_now(sdc);
	*m = (struct ash_msg){
		.h = {.op = req->op,
		      .flags = 0,
		      .path = peer->path,
		      .tag = req->tag,
		      .gen = req->gen,
		      .node = req->vol->node,
		      .offset = req->offset,
		      .length = req->length,
		      .place_version = ash_map_place_version(sdc->map),
		      .mark = req->vol->epoch},
		.sent = req_sent,
		.owner = req,
	};
	if (req->io && req->io->fua && req->op != ASH_OP_READ)
		m->h.flags |= ASH_F_FUA;
	if (req->op == ASH_OP_WRITE_ZEROES && req->io->no_unmap)
		m->h.flags |= ASH_F_NO_UNMAP;
	if (data) {
		m->data = req->bounce ? req->bounce->base : req->data;
		m->data_bytes = req->length;
		m->crc = req->crc;
		m->crcs = ash_pieces(req->offset, req->length);
	}
	ash_list_push_back(&peer->inflight, &req->link);
	ash_conn_send(peer->conn, m);
}

void sdc_peer_enqueue(struct sdc_peer *peer, struct sdc_req *req)
{
	req->peer = peer;
	if (peer->state == PEER_UP) {
		send_req(peer, req);
		sdc_peer_timer(peer);
		return;
	}
	req->state = REQ_WAITING;
	ash_list_push_back(&peer->waiting, &req->link);
	sdc_peer_kick(peer);
}

static void hello_sent(struct ash_msg *msg)
{
}

static void on_up(struct ash_conn *conn)
{
	struct sdc_peer *peer = conn->owner;
	struct sdc *sdc = peer->sdc;
	struct ash_hello hello = {
		.version_min = ASH_WIRE_VERSION_MIN,
		.version_max = ASH_WIRE_VERSION,
		.sender_kind = ASH_SENDER_SDC,
		.dr_epoch = ash_map_dr_epoch(sdc->map),
		.sender = sdc->id,
		.session = sdc->session,
		.features = ASH_FEATURES_KNOWN,
		.queue = sdc->cfg.queue,
		.reactor = peer->reactor,
	};

	if (peer->state != PEER_CONNECTING)
		return;
	hello.path = ++peer->path;
	memcpy(hello.system, ash_map_system_uuid(sdc->map), 16);
	ash_hello_encode(&hello, &peer->hello_wire);
	peer->state = PEER_HELLO;
	peer->hello = (struct ash_msg){
		.h = {.op = ASH_OP_HELLO, .path = peer->path, .length = sizeof(peer->hello_wire)},
		.data = (uint8_t *)&peer->hello_wire,
		.data_bytes = sizeof(peer->hello_wire),
		.sent = hello_sent,
	};
	ash_conn_send(conn, &peer->hello);
	sdc_peer_timer(peer);
}

/* ------------------------------------------------------------ receiving */

static void refuse(struct sdc_peer *peer, const char *why, int bytes)
{
	if (sdc_now(peer->sdc) - peer->told_ns > 10 * SEC || !peer->told_ns) {
		peer->told_ns = sdc_now(peer->sdc);
		sdc_trace(peer->sdc, ASH_LOG_WARN, "event=hello_failed sds=%llu why=\"%.*s\"",
			  (unsigned long long)peer->sds, bytes, why);
	}
	if (peer->failures < 8)
		peer->failures = 8; /* no point in asking again soon */
	sdc_want_map(peer->sdc);
	sdc_peer_close(peer);
}

static void on_hello(struct sdc_peer *peer, struct ash_msg *msg)
{
	struct sdc *sdc = peer->sdc;
	struct ash_hello hello;
	struct ash_list *l;

	if (msg->h.op != ASH_OP_HELLO || !(msg->h.flags & ASH_F_REPLY)) {
		refuse(peer, "not a HELLO", 32);
		return;
	}
	if (msg->h.status != ASH_ST_OK) {
		refuse(peer, (const char *)msg->data, (int)(msg->data_bytes & 255));
		return;
	}
	if (ash_hello_decode(msg->data, msg->data_bytes, &hello) ||
	    hello.sender_kind != ASH_SENDER_SDS || hello.sender != peer->sds ||
	    memcmp(hello.system, ash_map_system_uuid(sdc->map), 16)) {
		refuse(peer, "somebody else answers at this address", 64);
		return;
	}
	peer->state = PEER_UP;
	while ((l = ash_list_pop(&peer->waiting)))
		send_req(peer, ash_container_of(l, struct sdc_req, link));
	ash_timer_cancel(sdc->port->timers, &peer->timer);
	sdc_peer_timer(peer);
}

static struct sdc_req *req_of_tag(struct sdc_peer *peer, uint64_t tag)
{
	struct sdc *sdc = peer->sdc;
	uint32_t index = (uint32_t)(tag & 0xffffff);
	struct sdc_req *req = index && index <= sdc->reqs ? &sdc->req[index - 1] : NULL;

	if (!req || req->tag != tag || req->peer != peer ||
	    (req->state != REQ_SENT && req->state != REQ_RETURNING))
		return NULL;
	return req;
}

static bool on_place(struct ash_conn *conn, const struct ash_hdr *h, uint8_t **ret_data,
		     uint32_t **ret_crc)
{
	struct sdc_peer *peer = conn->owner;
	struct sdc_req *req = req_of_tag(peer, h->tag);

	if (peer->state != PEER_UP || !req || req->state != REQ_SENT)
		return false;
	return sdc_reply_place(req, h, ret_data, ret_crc);
}

static void on_answer(struct sdc_peer *peer, struct ash_msg *msg)
{
	struct sdc_req *req = req_of_tag(peer, msg->h.tag);
	int decision;

	if (msg->h.place_version > ash_map_version(peer->sdc->map))
		sdc_want_map(peer->sdc);
	if (!req)
		return; /* answered before, or given up */
	if (req->state == REQ_RETURNING) {
		req->placed = false;
		sdc_req_returned(req);
		return;
	}
	/* It has arrived: the user's memory is no longer the transport's. */
	req->placed = false;
	decision = sdc_reply_handle(req, msg);
	if (decision == -EPROTO) {
		sdc_trace(peer->sdc, ASH_LOG_ERROR, "event=bad_reply sds=%llu op=%s status=%s",
			  (unsigned long long)peer->sds, ash_op_text(msg->h.op),
			  ash_status_text(msg->h.status));
		sdc_peer_close(peer);
		return;
	}
	peer->failures = 0;
	if (req->state != REQ_SENT)
		return; /* its volume died of this answer */
	ash_list_remove(&req->link);
	sdc_req_settle(req, decision);
}

static void on_msg(struct ash_conn *conn, struct ash_msg *msg)
{
	struct sdc_peer *peer = conn->owner;

	if (peer->state == PEER_HELLO)
		on_hello(peer, msg);
	else if (peer->state == PEER_UP && (msg->h.flags & ASH_F_REPLY))
		on_answer(peer, msg);
	ash_msg_free(conn->net, msg);
}

/* ------------------------------------------------------------ the end of a connection */

static void reconnect_later(struct sdc_peer *peer)
{
	struct sdc *sdc = peer->sdc;
	uint32_t f = peer->failures++;
	uint64_t ms = f == 0 ? 1 : (f > 7 ? RECONNECT_MAX_MS : 10ull << (f - 1));

	if (sdc->stopping || sdc->renewing || ash_list_empty(&peer->waiting)) {
		peer->state = PEER_IDLE;
		return;
	}
	peer->state = PEER_BACKOFF;
	ash_timer_set(
		sdc->port->timers, &peer->timer,
		sdc_now(sdc) +
			sdc_jitter(sdc, (ms > RECONNECT_MAX_MS ? RECONNECT_MAX_MS : ms) * MS));
}

static void on_down(struct ash_conn *conn, int reason)
{
	struct sdc_peer *peer = conn->owner;
	struct sdc *sdc = peer->sdc;
	bool was_up = peer->state == PEER_UP || peer->state == PEER_CLOSING;
	struct ash_list *l;

	peer->conn = NULL;
	peer->state = PEER_BACKOFF; /* whatever is queued from here on waits with the rest */
	ash_timer_cancel(sdc->port->timers, &peer->timer);
	sdc->stats.reconnects += was_up;
	if (sdc_may_tell(sdc, &peer->down_told_ns))
		sdc_trace(sdc, was_up ? ASH_LOG_NOTICE : ASH_LOG_DEBUG,
			  "event=session_down sds=%llu path=%u reason=%d",
			  (unsigned long long)peer->sds, peer->path, reason);
	/* Unanswered requests go first, in their order. */
	while (!ash_list_empty(&peer->inflight)) {
		struct sdc_req *r = ash_container_of(peer->inflight.prev, struct sdc_req, link);

		assert(!r->in_transport);
		r->placed = false;
		r->state = REQ_WAITING;
		sdc->stats.retries++;
		ash_list_remove(&r->link);
		ash_list_push_front(&peer->waiting, &r->link);
	}
	while ((l = ash_list_pop(&peer->returning))) {
		struct sdc_req *r = ash_container_of(l, struct sdc_req, link);

		r->placed = false;
		sdc_req_returned(r);
	}
	if (!ash_list_empty(&peer->waiting) && peer->failures > 0)
		sdc_want_map(sdc); /* perhaps the MDM has moved the primaries already */
	reconnect_later(peer);
	sdc_kick(sdc);
}
