/* SPDX-License-Identifier: MIT */
/*
 * Data connections: whole messages, in order, at most once per connection. The transport checks
 * length, header crc and version before a core sees a message, and verifies nothing of the data
 * checksums (the cores do). See port.h for the rules of callbacks.
 */
#ifndef ASHLAR_COMMON_PORT_NET_H
#define ASHLAR_COMMON_PORT_NET_H

#include <stdbool.h>
#include <stdint.h>

#include "common/port/buf.h"
#include "common/shared/wire_codec.h"
#include "proto/wire/wire.h"

struct ash_conn;
struct ash_net;

struct ash_endpoint {
	uint8_t ip[16];
	uint16_t port;
	uint8_t transport;
};

/**
 * struct ash_msg - a message to send, or one received.
 * @buf:   buffer that holds the payload; one reference belongs to the message. NULL: no payload.
 * @data:  payload data inside @buf. Received data of a range starts at base + offset % 4096, so
 * that whole blocks lie on block borders. To send: any memory that stays valid until @sent (a
 * user's buffer; then @buf may be NULL).
 * @crc:   host-order checksums, one per piece (see wire.h), @crcs of them; inside buf->crc or
 *         the caller's memory that lives until @sent.
 * @sent:  called once when the transport no longer needs the message (written out, or the
 *         connection is gone); then the message is the caller's again. It must give back @buf.
 *         Never says that the peer received anything. Received messages: the receiving core owns
 * the message in on_msg until it calls ash_msg_free().
 */
struct ash_msg {
	struct ash_hdr h;
	struct ash_relay relay; /* valid if ASH_F_RELAY */
	struct ash_buf *buf;
	uint8_t *data;
	uint32_t data_bytes;
	uint32_t crcs;
	uint32_t *crc;
	struct ash_msg *next;
	void (*sent)(struct ash_msg *msg);
	void *owner;
	uint64_t backend[20]; /* encoded header, iovec state */
};

/**
 * struct ash_conn_events - what a core hears about a connection.
 * @on_up:   connect succeeded (outgoing only); HELLO is the core's business.
 * @on_msg:  a message; the core takes it and calls ash_msg_free() when done.
 * @on_place: optional. Asked before the payload of a data-carrying reply is received: true and
 * where data (h->length bytes) and checksums go, so that a client's read lands in the user's memory
 * without a copy. The memory must stay valid until on_msg of that message or on_down. Backends may
 * ask only for large payloads; then msg->buf is NULL, msg->data the memory named.
 * @on_down: the connection ended (reason: -errno) or never came up; the last callback. Messages
 *           queued were given back through sent() before. The core then calls nothing on it.
 */
struct ash_conn_events {
	void (*on_up)(struct ash_conn *conn);
	void (*on_msg)(struct ash_conn *conn, struct ash_msg *msg);
	bool (*on_place)(struct ash_conn *conn, const struct ash_hdr *h, uint8_t **ret_data,
			 uint32_t **ret_crc);
	void (*on_down)(struct ash_conn *conn, int reason);
};

/* The part of a connection that cores see; backends embed it first. */
struct ash_conn {
	struct ash_net *net;
	const struct ash_conn_events *events; /* set by the core (accept: in on_accept) */
	void *owner;			      /* the core's */
	enum ash_buf_class buf_class;	      /* receive buffers; CLIENT until the core sets PEER */
	bool up;
	uint32_t
		queued_bytes; /* not yet handed to the network; cores may hold back above a limit */
};

struct ash_net_ops {
	struct ash_conn *(*connect)(struct ash_net *net, const struct ash_endpoint *to,
				    const struct ash_conn_events *events, void *owner);
	void (*send)(struct ash_conn *conn, struct ash_msg *msg);
	/* Ends it; on_down follows from the loop (reason 0). Idempotent. */
	void (*close)(struct ash_conn *conn);
	/* Stop and go on delivering messages (back-pressure). */
	void (*pause)(struct ash_conn *conn, bool paused);
	struct ash_msg *(*msg_alloc)(struct ash_net *net); /* zeroed; NULL when none is left */
	void (*msg_free)(struct ash_net *net, struct ash_msg *msg); /* also puts msg->buf */
};

/**
 * struct ash_net - the network of one reactor.
 * @on_accept: an incoming connection; the core sets events and owner, or closes it.
 */
struct ash_net {
	const struct ash_net_ops *ops;
	void (*on_accept)(struct ash_net *net, struct ash_conn *conn);
	void *owner;
};

static inline struct ash_conn *ash_net_connect(struct ash_net *net, const struct ash_endpoint *to,
					       const struct ash_conn_events *ev, void *owner)
{
	return net->ops->connect(net, to, ev, owner);
}
static inline void ash_conn_send(struct ash_conn *conn, struct ash_msg *msg)
{
	conn->net->ops->send(conn, msg);
}
static inline void ash_conn_close(struct ash_conn *conn)
{
	conn->net->ops->close(conn);
}
static inline struct ash_msg *ash_msg_alloc(struct ash_net *net)
{
	return net->ops->msg_alloc(net);
}
static inline void ash_msg_free(struct ash_net *net, struct ash_msg *msg)
{
	net->ops->msg_free(net, msg);
}

#endif
