// SPDX-License-Identifier: MIT
/*
 * Incoming connections: HELLO, who sends, and where messages go. The highest path of each sender's
 * queue is kept beyond its connections, so that a late one cannot bring back what was superseded.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/shared/chunk_pg.h"
#include "sds/core/sds_int.h"

static void on_msg(struct ash_conn *conn, struct ash_msg *msg);
static void on_down(struct ash_conn *conn, int reason);
static void on_up(struct ash_conn *conn)
{
}

static const struct ash_conn_events events = {.on_up = on_up, .on_msg = on_msg, .on_down = on_down};

/* ------------------------------------------------------------ senders */

static struct sds_sender *sender_get(struct sds *s, const struct ash_hello *h)
{
	uint64_t key = ash_mix64(h->session ^ ash_mix64(h->sender) ^ h->queue);
	struct ash_list *bucket = &s->sender_bucket[key & 255];
	struct sds_sender *x;

	ash_list_each(l, bucket) {
		x = ash_container_of(l, struct sds_sender, in_bucket);
		if (x->kind != h->sender_kind || x->id != h->sender || x->session != h->session ||
		    x->queue != h->queue)
			continue;
		if (!x->refs++) {
			ash_list_remove(&x->idle);
			s->senders_idle_count--;
		}
		return x;
	}
	x = ash_xcalloc(1, sizeof(*x));
	x->kind = h->sender_kind;
	x->id = h->sender;
	x->session = h->session;
	x->queue = h->queue;
	x->refs = 1;
	ash_list_init(&x->idle);
	ash_list_push_back(bucket, &x->in_bucket);
	return x;
}

static void sender_put(struct sds *s, struct sds_sender *x)
{
	struct ash_list *l;

	if (!x || --x->refs)
		return;
	ash_list_push_back(&s->senders_idle, &x->idle);
	if (++s->senders_idle_count <= SENDERS_IDLE_MAX)
		return;
	l = ash_list_pop(&s->senders_idle);
	x = ash_container_of(l, struct sds_sender, idle);
	s->senders_idle_count--;
	ash_list_remove(&x->in_bucket);
	free(x);
}

/* ------------------------------------------------------------ answers without an operation */

static void answer_sent(struct ash_msg *msg)
{
	ash_msg_free(msg->owner, msg);
}

void session_answer(struct sds_session *ses, const struct ash_hdr *req, uint16_t status,
		    uint16_t flags, uint64_t offset, struct ash_buf *buf, uint32_t bytes)
{
	struct sds *s = ses->s;
	struct ash_msg *m = ses->conn && !ses->closing ? ash_msg_alloc(s->port->net) : NULL;

	if (!m) {
		ash_buf_put(buf); /* it asks again */
		return;
	}
	m->h = *req;
	m->h.flags = (uint16_t)(flags | ASH_F_REPLY);
	m->h.status = status;
	m->h.offset = offset;
	m->h.length = bytes;
	m->h.place_version = sds_place_version(s);
	m->h.mark = 0;
	m->buf = buf;
	m->data = buf ? buf->base : NULL;
	m->data_bytes = bytes;
	m->sent = answer_sent;
	m->owner = s->port->net;
	ash_conn_send(ses->conn, m);
}

static void grant_sent(struct ash_msg *msg)
{
	struct sds_session *ses = msg->owner;

	ses->grant_out = false;
	session_put(ses);
}

void session_grant(struct sds_session *ses, const struct ash_hdr *req, const struct ash_lease *l)
{
	if (ses->grant_out || !ses->conn || ses->closing)
		return;
	ash_lease_encode(l, &ses->grant_wire);
	ses->grant = (struct ash_msg){.h = *req, .sent = grant_sent, .owner = ses};
	ses->grant.h.flags = ASH_F_REPLY | ASH_F_LEASE;
	ses->grant.h.status = ASH_ST_OK;
	ses->grant.h.length = sizeof(ses->grant_wire);
	ses->grant.h.place_version = sds_place_version(ses->s);
	ses->grant.data = (uint8_t *)&ses->grant_wire;
	ses->grant.data_bytes = sizeof(ses->grant_wire);
	ses->grant_out = true;
	ses->refs++;
	ash_conn_send(ses->conn, &ses->grant);
}

/* ------------------------------------------------------------ HELLO */

static const char *check_hello(struct sds *s, const struct ash_msg *msg, struct ash_hello *h)
{
	int err;

	if (msg->h.op != ASH_OP_HELLO || (msg->h.flags & ASH_F_REPLY))
		return "the first message has to be HELLO";
	err = ash_hello_decode(msg->data, msg->data_bytes, h);
	if (err)
		return err == -EPROTONOSUPPORT ? "no common version of the protocol"
					       : "malformed HELLO";
	if (!s->self || s->stopping)
		return s->stopping ? "this SDS is stopping"
				   : "this SDS is not part of a system yet";
	if (memcmp(h->system, ash_map_system_uuid(s->map), 16))
		return "this SDS is part of another system";
	if (h->auth_kind || h->auth_bytes)
		return "this SDS knows no kind of authentication";
	if (h->sender_kind != ASH_SENDER_SDC && h->sender_kind != ASH_SENDER_SDS)
		return "unknown kind of sender";
	if (h->reactor != s->cfg.reactor)
		return "another reactor was meant";
	if (h->sender_kind == ASH_SENDER_SDS && !ash_map_sds(s->map, h->sender)) {
		mdm_want_map(s);
		return "the sending SDS is not in our map";
	}
	return NULL;
}

static void refuse(struct sds_session *ses, struct ash_msg *msg, const char *why)
{
	struct sds *s = ses->s;
	struct ash_buf *buf = ash_buf_get(s->port->bufs, 4096, ASH_BUF_PEER);

	sds_trace(s, ASH_LOG_INFO, "event=hello_refused why=\"%s\"", why);
	if (buf) {
		memcpy(buf->base, why, strlen(why));
		session_answer(ses, &msg->h, ASH_ST_REFUSED, 0, 0, buf, (uint32_t)strlen(why));
	}
	/* It reads the reason and closes; if it goes on instead, we do. */
	ses->refused = true;
}

static void on_hello(struct sds_session *ses, struct ash_msg *msg)
{
	struct sds *s = ses->s;
	struct ash_hello h;
	const char *why = check_hello(s, msg, &h);
	struct ash_wire_hello wire;
	struct ash_buf *buf;

	if (why) {
		refuse(ses, msg, why);
		return;
	}
	ses->sender = sender_get(s, &h);
	if (h.path < ses->sender->path) {
		refuse(ses, msg, "a newer connection of this sender exists");
		return;
	}
	ses->sender->path = h.path;
	if (h.sender_kind == ASH_SENDER_SDS)
		ses->conn->buf_class = ASH_BUF_PEER;
	buf = ash_buf_get(s->port->bufs, 4096, ASH_BUF_PEER);
	if (!buf) {
		ses->closing = true;
		ash_conn_close(ses->conn);
		return;
	}
	h = (struct ash_hello){.version_min = ASH_WIRE_VERSION_MIN,
			       .version_max = ASH_WIRE_VERSION,
			       .sender_kind = ASH_SENDER_SDS,
			       .dr_epoch = ash_map_dr_epoch(s->map),
			       .sender = s->self,
			       .session = s->session,
			       .features = h.features & ASH_FEATURES_KNOWN,
			       .queue = s->cfg.reactor,
			       .reactor = h.reactor,
			       .path = h.path};
	memcpy(h.system, ash_map_system_uuid(s->map), 16);
	ash_hello_encode(&h, &wire);
	memcpy(buf->base, &wire, sizeof(wire));
	session_answer(ses, &msg->h, ASH_ST_OK, 0, 0, buf, sizeof(wire));
}

/* ------------------------------------------------------------ messages */

static void of_client(struct sds_session *ses, struct ash_msg *msg)
{
	struct sds_op *op;

	if (msg->h.flags & ASH_F_RELAY) {
		session_answer(ses, &msg->h, ASH_ST_NO_ROUTE, 0, msg->h.offset, NULL, 0);
		ash_msg_free(ses->s->port->net, msg);
		return;
	}
	op = op_of_message(ses, msg, false);
	if (!op)
		return; /* kept in the backlog */
	switch (op->h.op) {
	case ASH_OP_READ:
		op_read(op);
		break;
	case ASH_OP_STATUS:
		op_status(op);
		break;
	case ASH_OP_WRITE:
		op_write(op);
		break;
	case ASH_OP_FLUSH:
		op_flush(op);
		break;
	case ASH_OP_DISCARD:
	case ASH_OP_WRITE_ZEROES:
		op_discard(op);
		break;
	default:
		op_finish(op, ASH_ST_INVALID);
		break;
	}
}

static void of_peer(struct sds_session *ses, struct ash_msg *msg)
{
	struct sds *s = ses->s;

	switch (msg->h.op) {
	case ASH_OP_LEASE_ASK:
		lease_on_ask(ses, msg);
		break;
	case ASH_OP_ROWS:
		lease_on_rows(ses, msg);
		break;
	case ASH_OP_PING:
		session_answer(ses, &msg->h, ASH_ST_OK, 0, 0, NULL, 0);
		break;
	case ASH_OP_SYNC_BEGIN:
	case ASH_OP_INVENTORY:
		sync_message(ses, msg);
		break;
	default:
		repl_message(ses, msg);
		return;
	}
	ash_msg_free(s->port->net, msg);
}

void session_message(struct sds_session *ses, struct ash_msg *msg)
{
	if (msg->h.path > ses->sender->path)
		ses->sender->path = msg->h.path;
	if (ses->sender->kind == ASH_SENDER_SDC && msg->h.op < ASH_OP_REPL_WRITE)
		of_client(ses, msg);
	else if (ses->sender->kind == ASH_SENDER_SDS && msg->h.op >= ASH_OP_REPL_WRITE)
		of_peer(ses, msg);
	else {
		session_answer(ses, &msg->h, ASH_ST_INVALID, 0, 0, NULL, 0);
		ash_msg_free(ses->s->port->net, msg);
	}
}

static void on_msg(struct ash_conn *conn, struct ash_msg *msg)
{
	struct sds_session *ses = conn->owner;

	if (ses->refused && !ses->closing) {
		ses->closing = true;
		ash_conn_close(conn);
	}
	if (ses->closing || (msg->h.flags & ASH_F_REPLY)) {
		ash_msg_free(conn->net, msg);
		return;
	}
	if (!ses->sender) {
		on_hello(ses, msg);
		ash_msg_free(conn->net, msg);
		return;
	}
	if (ses->backlog) {
		msg->next = NULL;
		*ses->backlog_end = msg;
		ses->backlog_end = &msg->next;
		return;
	}
	session_message(ses, msg);
}

/* Messages for which there was no operation left; in order. */
void session_turn(struct sds *s)
{
	if (!s->backlog_due)
		return;
	s->backlog_due = false;
	ash_list_each_safe(l, &s->sessions) {
		struct sds_session *ses = ash_container_of(l, struct sds_session, link);
		struct ash_msg *msg = ses->backlog, *next;

		if (!msg || ses->closing)
			continue;
		ses->backlog = NULL;
		ses->backlog_end = &ses->backlog;
		for (; msg; msg = next) {
			next = msg->next;
			msg->next = NULL;
			if (ses->backlog) {
				*ses->backlog_end = msg;
				ses->backlog_end = &msg->next;
			} else {
				session_message(ses, msg);
			}
		}
		if (!ses->backlog && ses->paused && ses->conn) {
			ses->paused = false;
			ses->conn->net->ops->pause(ses->conn, false);
		}
	}
}

/* ------------------------------------------------------------ life */

void sds_on_accept(struct ash_net *net, struct ash_conn *conn)
{
	struct sds *s = net->owner;
	struct sds_session *ses = ash_xcalloc(1, sizeof(*ses));

	ses->s = s;
	ses->conn = conn;
	ses->refs = 1;
	ses->since_ns = sds_now(s);
	ses->backlog_end = &ses->backlog;
	conn->events = &events;
	conn->owner = ses;
	conn->buf_class = ASH_BUF_CLIENT;
	ash_list_push_back(&s->sessions, &ses->link);
	if (s->stopping) {
		ses->closing = true;
		ash_conn_close(conn);
	}
}

/* Each holds a descriptor. Without an end to that, whoever connects and says nothing would keep
 * clients and other SDSs out in the end. */
void session_tick(struct sds *s, uint64_t now)
{
	if (now < s->strangers_ns)
		return;
	s->strangers_ns = now + SEC;
	ash_list_each(l, &s->sessions) {
		struct sds_session *ses = ash_container_of(l, struct sds_session, link);

		if ((ses->sender && !ses->refused) || ses->closing || !ses->conn ||
		    now < ses->since_ns + STRANGER_MS * MS)
			continue;
		ses->closing = true;
		ash_conn_close(ses->conn);
	}
}

void session_put(struct sds_session *ses)
{
	struct sds *s = ses->s;

	if (--ses->refs)
		return;
	sender_put(s, ses->sender);
	ash_list_remove(&ses->link);
	free(ses);
}

static void drop_backlog(struct sds_session *ses)
{
	struct ash_msg *msg;

	while ((msg = ses->backlog)) {
		ses->backlog = msg->next;
		ash_msg_free(ses->s->port->net, msg);
	}
	ses->backlog_end = &ses->backlog;
}

static void on_down(struct ash_conn *conn, int reason)
{
	struct sds_session *ses = conn->owner;

	ses->conn = NULL;
	ses->closing = true;
	drop_backlog(ses);
	op_session_gone(ses);
	session_put(ses);
}

void session_close_all(struct sds *s)
{
	ash_list_each(l, &s->sessions) {
		struct sds_session *ses = ash_container_of(l, struct sds_session, link);

		if (ses->conn && !ses->closing) {
			ses->closing = true;
			ash_conn_close(ses->conn);
		}
	}
}

void session_free_all(struct sds *s)
{
	struct ash_list *l;

	while ((l = ash_list_pop(&s->sessions)))
		free(ash_container_of(l, struct sds_session, link));
	for (unsigned i = 0; s->sender_bucket && i < 256; i++)
		while ((l = ash_list_pop(&s->sender_bucket[i])))
			free(ash_container_of(l, struct sds_sender, in_bucket));
}
