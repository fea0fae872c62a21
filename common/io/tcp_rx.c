// SPDX-License-Identifier: MIT
/*
 * Receiving. Small messages come many at a time into the connection's own buffer and are copied
 * from there; of large payloads only the start takes that way, the rest is received in place.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "common/io/tcp_int.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "checksum lists are used as they lie on the wire: little-endian hosts only"
#endif

/* ------------------------------------------------------------ messages */

/* Finds memory for the payload. False: none now; the connection waits. */
static bool place(struct conn *c, struct ash_msg *m, uint32_t crcs, uint32_t bytes)
{
	uint32_t shift = crcs ? (uint32_t)(m->h.offset % ASH_BLOCK_BYTES) : 0;
	uint8_t *data = NULL;
	uint32_t *crc = NULL;

	m->crcs = crcs;
	m->data_bytes = bytes;
	if (crcs + bytes == 0)
		return true;
	if (crcs && (m->h.flags & ASH_F_REPLY) && c->c.events->on_place &&
	    c->c.events->on_place(&c->c, &m->h, &data, &crc)) {
		m->data = data;
		m->crc = crc;
		return true;
	}
	if (c->ending)
		return true; /* on_place closed it; nothing is delivered any more */
	m->buf = ash_buf_get(c->r->port.bufs, shift + bytes, c->c.buf_class);
	if (!m->buf) {
		ash_bufs_wait(c->r->port.bufs, &c->waiter);
		return false;
	}
	m->data = m->buf->base + shift;
	m->crc = crcs ? m->buf->crc : NULL;
	return true;
}

/* Starts the message whose header is at the front. False: more bytes, or something else, is needed
 * (or the connection ends). */
static bool msg_begin(struct conn *c)
{
	const uint8_t *at = c->rx + c->rx_head;
	uint32_t have = c->rx_tail - c->rx_head, head = ASH_HDR_BYTES, crcs, bytes;
	struct ash_relay relay = {0};
	struct ash_hdr h;
	struct ash_msg *m;
	int64_t payload;

	if (have < head)
		return false;
	if (ash_hdr_decode(at, &h)) {
		conn_end_bad(c, -EBADMSG, "it does not speak the data protocol");
		return false;
	}
	if (h.flags & ASH_F_RELAY) {
		head = ASH_HDR_MAX_BYTES;
		if (have < head)
			return false;
		if (ash_relay_decode(at + ASH_HDR_BYTES, &relay)) {
			conn_end_bad(c, -EBADMSG, "a relay extension is damaged");
			return false;
		}
	}
	payload = ash_hdr_payload(&h, &crcs, &bytes);
	if (payload < 0) {
		conn_end_bad(c, -EBADMSG, "a message has an impossible size");
		return false;
	}
	m = net_msg_for_rx(c);
	if (!m)
		return false;
	m->h = h;
	m->relay = relay;
	if (!place(c, m, crcs, bytes)) {
		net_msg_free(c->c.net, m);
		return false;
	}
	ash_bufs_unwait(c->r->port.bufs, &c->waiter);
	c->rx_head += head;
	c->cur = m;
	c->cur_got = 0;
	c->cur_bytes = (uint32_t)payload;
	c->cur_since_ns = c->r->port.turn_ns;
	return true;
}

/* Moves what has come of the payload to its place. */
static void msg_fill(struct conn *c)
{
	struct ash_msg *m = c->cur;
	uint32_t list = m->crcs * 4, have = c->rx_tail - c->rx_head, n;

	if (c->cur_got < list && have > 0) {
		n = list - c->cur_got < have ? list - c->cur_got : have;
		memcpy((uint8_t *)m->crc + c->cur_got, c->rx + c->rx_head, n);
		c->cur_got += n;
		c->rx_head += n;
		have -= n;
	}
	if (c->cur_got >= list && have > 0 && c->cur_got < c->cur_bytes) {
		n = c->cur_bytes - c->cur_got < have ? c->cur_bytes - c->cur_got : have;
		memcpy(m->data + (c->cur_got - list), c->rx + c->rx_head, n);
		c->cur_got += n;
		c->rx_head += n;
	}
}

void conn_parse(struct conn *c)
{
	struct ash_msg *m;

	while (!c->ending && !c->paused) {
		if (!c->cur && !msg_begin(c))
			break;
		if (c->ending)
			break;
		msg_fill(c);
		if (c->cur_got < c->cur_bytes)
			break;
		m = c->cur;
		c->cur = NULL;
		c->r->stats.messages_in++;
		c->c.events->on_msg(&c->c, m);
	}
	if (c->ending || c->paused || c->waiter.queued)
		return;
	/* On the list of the starved, or already on one? */
	conn_list(&c->r->rx, &c->rx_link);
}

void conn_rx_drop(struct conn *c)
{
	if (c->cur)
		net_msg_free(c->c.net, c->cur);
	c->cur = NULL;
}

/* ------------------------------------------------------------ the kernel's side */

/* The rest of a large payload, if it is that. */
static uint32_t direct_room(struct conn *c, uint8_t **ret_at)
{
	uint32_t list, left;

	if (!c->cur || c->rx_head != c->rx_tail)
		return 0;
	list = c->cur->crcs * 4;
	left = c->cur_bytes - c->cur_got;
	if (c->cur_got < list || left < RX_DIRECT_MIN)
		return 0;
	*ret_at = c->cur->data + (c->cur_got - list);
	return left;
}

void conn_rx_arm(struct conn *c)
{
	struct io_uring_sqe *sqe;
	uint8_t *at;
	uint32_t room;

	if (c->ending || c->paused || c->receiving || c->connecting)
		return;
	sqe = ring_sqe(c->r);
	if (!sqe) {
		conn_list(&c->r->rx, &c->rx_link);
		return;
	}
	room = direct_room(c, &at);
	c->receiving_direct = room > 0;
	if (!room) {
		/* What is left of the last round is less than a header. */
		c->rx_tail -= c->rx_head;
		memmove(c->rx, c->rx + c->rx_head, c->rx_tail);
		c->rx_head = 0;
		at = c->rx + c->rx_tail;
		room = RX_BYTES - c->rx_tail;
	}
	io_uring_prep_recv(sqe, c->fd, at, room, c->receiving_direct ? MSG_WAITALL : 0);
	if (!c->sock_nonempty)
		sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
	ring_sqe_file(sqe, c->fd, c->slot);
	ring_sqe_data(sqe, c, RING_RECV);
	c->receiving = true;
}

void net_on_recv(void *conn, int res, unsigned flags)
{
	struct conn *c = conn;

	c->receiving = false;
	if (c->ending) {
		conn_list(&c->r->ending, &c->end_link);
		return;
	}
	c->sock_nonempty = flags & IORING_CQE_F_SOCK_NONEMPTY;
	if (res == -EAGAIN || res == -EINTR || res == -ENOBUFS || res == -ENOMEM) {
		conn_list(&c->r->rx, &c->rx_link);
		return;
	}
	if (res <= 0) {
		conn_end(c, res ? res : -ECONNRESET);
		return;
	}
	c->r->stats.bytes_in += (uint64_t)res;
	if (c->receiving_direct)
		c->cur_got += (uint32_t)res;
	else
		c->rx_tail += (uint32_t)res;
	conn_parse(c);
}
