// SPDX-License-Identifier: MIT
/*
 * Sending. Messages queue up during a turn; at its end each connection gives all it has to the
 * kernel in one call. One call per connection is on its way at a time.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "common/io/tcp_int.h"

/* msg->backend: the encoded header, then the checksum list if it is short enough. */
#define SCRATCH_BYTES sizeof(((struct ash_msg *)NULL)->backend)

static uint32_t head_bytes(const struct ash_msg *m)
{
	return m->h.flags & ASH_F_RELAY ? ASH_HDR_MAX_BYTES : ASH_HDR_BYTES;
}

static bool crcs_fit(const struct ash_msg *m)
{
	return head_bytes(m) + m->crcs * 4 <= SCRATCH_BYTES;
}

static size_t msg_bytes(const struct ash_msg *m)
{
	return head_bytes(m) + (size_t)m->crcs * 4 + m->data_bytes;
}

void conn_send(struct ash_conn *conn, struct ash_msg *msg)
{
	struct conn *c = conn_of(conn);
	uint8_t *scratch = (uint8_t *)msg->backend;
	uint32_t crcs, bytes;

	/* What the receiver will expect after this header is what goes out, or the stream is lost.
	 */
	assert(ash_hdr_payload(&msg->h, &crcs, &bytes) >= 0);
	assert(crcs == msg->crcs && bytes == msg->data_bytes);
	ash_hdr_encode(&msg->h, &msg->relay, scratch);
	if (msg->crcs && crcs_fit(msg))
		memcpy(scratch + head_bytes(msg), msg->crc, msg->crcs * 4);
	msg->next = NULL;
	*c->tx_end = msg;
	c->tx_end = &msg->next;
	c->c.queued_bytes += (uint32_t)msg_bytes(msg);
	if (!c->sending && !c->ending && !c->connecting)
		conn_list(&c->r->tx, &c->tx_link);
}

/* Adds one piece, less what is out already. */
static void add_vec(struct conn *c, const void *base, size_t bytes, size_t *skip)
{
	if (*skip >= bytes) {
		*skip -= bytes;
		return;
	}
	c->tx_vec[c->tx_head.msg_iovlen++] =
		(struct iovec){(uint8_t *)(uintptr_t)base + *skip, bytes - *skip};
	*skip = 0;
}

static void fill_vec(struct conn *c)
{
	size_t skip = c->tx_done, bytes = 0;

	memset(&c->tx_head, 0, sizeof(c->tx_head));
	c->tx_head.msg_iov = c->tx_vec;
	for (struct ash_msg *m = c->tx; m && c->tx_head.msg_iovlen + 3 <= TX_VECS; m = m->next) {
		const uint8_t *scratch = (const uint8_t *)m->backend;

		if (crcs_fit(m)) {
			add_vec(c, scratch, head_bytes(m) + m->crcs * 4, &skip);
		} else {
			add_vec(c, scratch, head_bytes(m), &skip);
			add_vec(c, m->crc, (size_t)m->crcs * 4, &skip);
		}
		add_vec(c, m->data, m->data_bytes, &skip);
		bytes += msg_bytes(m);
		if (bytes >= TX_BYTES_MAX)
			break;
	}
}

void conn_tx_start(struct conn *c)
{
	struct io_uring_sqe *sqe;

	if (c->sending || !c->tx)
		return;
	sqe = ring_sqe(c->r);
	if (!sqe) {
		conn_list(&c->r->tx, &c->tx_link);
		return;
	}
	fill_vec(c);
	io_uring_prep_sendmsg(sqe, c->fd, &c->tx_head, MSG_NOSIGNAL | MSG_WAITALL);
	ring_sqe_file(sqe, c->fd, c->slot);
	ring_sqe_data(sqe, c, RING_SEND);
	c->sending = true;
}

static void give_back(struct conn *c, struct ash_msg *m)
{
	m->next = NULL;
	if (m->sent)
		m->sent(m);
	else
		net_msg_free(c->c.net, m);
}

/* @n more bytes are out. Messages that are out completely are the owner's again. */
static void tx_advance(struct conn *c, size_t n)
{
	struct ash_msg *m;

	c->r->stats.bytes_out += n;
	c->c.queued_bytes -= (uint32_t)n;
	n += c->tx_done;
	c->tx_done = 0;
	while ((m = c->tx) && n >= msg_bytes(m)) {
		n -= msg_bytes(m);
		c->tx = m->next;
		if (!c->tx)
			c->tx_end = &c->tx;
		c->r->stats.messages_out++;
		give_back(c, m);
	}
	c->tx_done = n;
	assert(c->tx || n == 0);
}

void net_on_send(void *conn, int res)
{
	struct conn *c = conn;

	c->sending = false;
	if (c->ending)
		conn_list(&c->r->ending, &c->end_link);
	if (res > 0) {
		tx_advance(c, (size_t)res);
	} else if (res != -EAGAIN && res != -EINTR && res != -ENOBUFS && res != -ENOMEM) {
		conn_end(c, res ? res : -EPIPE);
		return;
	}
	if (c->tx && !c->ending)
		conn_list(&c->r->tx, &c->tx_link);
}

void conn_tx_last(struct conn *c)
{
	ssize_t n;

	while (c->tx && !c->sending && !c->connecting) {
		fill_vec(c);
		n = sendmsg(c->fd, &c->tx_head, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n <= 0)
			return;
		tx_advance(c, (size_t)n);
	}
}

void conn_tx_drop(struct conn *c)
{
	struct ash_msg *m;

	while ((m = c->tx)) {
		c->tx = m->next;
		if (!c->tx)
			c->tx_end = &c->tx;
		give_back(c, m);
	}
	c->tx_done = 0;
	c->c.queued_bytes = 0;
}
