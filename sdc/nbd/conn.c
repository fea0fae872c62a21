// SPDX-License-Identifier: MIT
/*
 * One connection: bytes in and out. Small things pass through a staging buffer, so that one read
 * brings many requests; the rest of a large payload is received where it stays. Replies leave
 * together, once per turn.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/base/clean.h"
#include "common/base/log.h"
#include "sdc/nbd/server_int.h"

#define READS_PER_TURN 4 /* then others have theirs */
#define OUT_IOVS 128
#define TEXT_MAX (1u << 20)

void nbd_conn_dirty(struct nbd_conn *c)
{
	if (ash_list_empty(&c->dirty))
		ash_list_push_back(&c->srv->dirty, &c->dirty);
}

static void conn_free(struct nbd_conn *c)
{
	struct nbd_server *srv = c->srv;

	assert(c->reqs == 0 && c->mem == 0);
	ev_io_stop(srv->loop, &c->rd);
	ev_io_stop(srv->loop, &c->wr);
	ev_timer_stop(srv->loop, &c->deadline);
	ash_list_remove(&c->link);
	ash_list_remove(&c->dirty);
	srv->stats.open--;
	srv->stalled -= c->stalled;
	nbd_srv_accept_again(srv);
	close(c->fd);
	free(c->in);
	free(c->text);
	free(c);
}

void nbd_conn_end(struct nbd_conn *c)
{
	struct nbd_req *half = c->writing;

	c->state = CONN_ENDING;
	c->writing = NULL;
	ev_io_stop(c->srv->loop, &c->rd);
	ev_timer_stop(c->srv->loop, &c->deadline);
	if (half)
		nbd_srv_req_put(half);
	nbd_conn_dirty(c);
}

/* Nobody reads replies any more. */
static void broken(struct nbd_conn *c)
{
	struct ash_list *l;

	c->broken = true;
	while ((l = ash_list_pop(&c->out)))
		nbd_srv_req_put(ash_container_of(l, struct nbd_req, link));
	c->text_at = c->text_end = 0;
	nbd_conn_end(c);
}

/* ------------------------------------------------------------ out */

static unsigned fill_iov(struct nbd_conn *c, struct iovec *iov)
{
	size_t skip = c->out_sent;
	unsigned n = 0;

	if (c->text_at < c->text_end)
		iov[n++] = (struct iovec){c->text + c->text_at, c->text_end - c->text_at};
	ash_list_each(l, &c->out) {
		struct nbd_req *r = ash_container_of(l, struct nbd_req, link);

		if (n + 2 > OUT_IOVS)
			break;
		if (skip < r->head_bytes)
			iov[n++] = (struct iovec){r->head + skip, r->head_bytes - skip};
		skip = skip < r->head_bytes ? 0 : skip - r->head_bytes;
		if (r->data_bytes)
			iov[n++] = (struct iovec){r->mem + skip, r->data_bytes - skip};
		skip = 0;
	}
	return n;
}

static void took(struct nbd_conn *c, size_t sent)
{
	size_t text = c->text_end - c->text_at;

	if (sent < text) {
		c->text_at += sent;
		return;
	}
	sent -= text;
	c->text_at = c->text_end = 0;
	c->out_sent += sent;
	while (!ash_list_empty(&c->out)) {
		struct nbd_req *r = ash_list_first(&c->out, struct nbd_req, link);
		size_t whole = r->head_bytes + r->data_bytes;

		if (c->out_sent < whole)
			return;
		c->out_sent -= whole;
		ash_list_remove(&r->link);
		nbd_srv_req_put(r);
	}
}

void nbd_conn_flush(struct nbd_conn *c)
{
	struct iovec iov[OUT_IOVS];
	struct msghdr m = {.msg_iov = iov};
	ssize_t n;

	while (!c->broken && (m.msg_iovlen = fill_iov(c, iov))) {
		n = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN) {
			broken(c);
			break;
		}
		if (n < 0) {
			ev_io_start(c->srv->loop, &c->wr);
			return;
		}
		took(c, (size_t)n);
	}
	ev_io_stop(c->srv->loop, &c->wr);
	if (c->state == CONN_ENDING && c->reqs == 0)
		conn_free(c);
}

static void on_writable(struct ev_loop *loop, ev_io *w, int revents)
{
	nbd_conn_dirty(w->data);
	nbd_server_flush(((struct nbd_conn *)w->data)->srv);
}

void nbd_conn_text(struct nbd_conn *c, const void *data, size_t bytes)
{
	if (c->text_end + bytes > c->text_room) {
		c->text_room = 2 * (c->text_end + bytes);
		c->text = ash_xrealloc(c->text, c->text_room);
	}
	memcpy(c->text + c->text_end, data, bytes);
	c->text_end += bytes;
	nbd_conn_dirty(c);
	/* It asks and asks, and does not read the answers. */
	if (c->text_end - c->text_at > TEXT_MAX)
		broken(c);
}

/* ------------------------------------------------------------ in */

/* Payload that has already arrived in the staging buffer. */
static bool take_payload(struct nbd_conn *c)
{
	uint32_t have = c->in_end - c->in_at, n = c->writing->length - c->write_have;

	n = n < have ? n : have;
	memcpy(c->writing->mem + c->write_have, c->in + c->in_at, n);
	c->in_at += n;
	c->write_have += n;
	if (c->write_have < c->writing->length)
		return false;
	nbd_transmit_payload_done(c);
	return true;
}

static void take_all(struct nbd_conn *c)
{
	bool more = true;

	while (more && c->state != CONN_ENDING && !c->stalled) {
		uint32_t have = c->in_end - c->in_at;

		if (c->skip) {
			uint64_t n = c->skip < have ? c->skip : have;

			c->skip -= n;
			c->in_at += (uint32_t)n;
			more = n > 0;
		} else if (c->writing) {
			more = take_payload(c);
		} else if (c->state == CONN_TRANSMIT) {
			more = nbd_transmit_step(c);
		} else {
			more = nbd_negotiate_step(c);
		}
	}
	if (c->in_at == c->in_end) {
		c->in_at = c->in_end = 0;
	} else if (c->in_at) {
		memmove(c->in, c->in + c->in_at, c->in_end - c->in_at);
		c->in_end -= c->in_at;
		c->in_at = 0;
	}
}

/* Return: bytes received; 0 nothing now; -1 the connection is over. */
static ssize_t receive(struct nbd_conn *c)
{
	struct iovec iov[2];
	int cnt = 0;
	uint32_t direct = 0;
	ssize_t n;

	if (c->writing) {
		direct = c->writing->length - c->write_have;
		iov[cnt++] = (struct iovec){c->writing->mem + c->write_have, direct};
	}
	iov[cnt++] = (struct iovec){c->in + c->in_end, STAGING_BYTES - c->in_end};
	n = readv(c->fd, iov, cnt);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -1;
	if (n == 0)
		return -1;
	if (direct) {
		uint32_t got = (size_t)n < direct ? (uint32_t)n : direct;

		c->write_have += got;
		c->in_end += (uint32_t)(n - got);
		if (c->write_have == c->writing->length)
			nbd_transmit_payload_done(c);
	} else {
		c->in_end += (uint32_t)n;
	}
	return n;
}

static void on_readable(struct ev_loop *loop, ev_io *w, int revents)
{
	struct nbd_conn *c = w->data;
	ssize_t n = 1;

	for (int i = 0; i < READS_PER_TURN && n > 0; i++) {
		n = receive(c);
		if (n < 0) {
			nbd_conn_end(c);
			break;
		}
		take_all(c);
		if (c->state == CONN_ENDING || c->stalled)
			break;
		/* A short read has emptied the socket. */
		if (n < (ssize_t)NBD_REQUEST_BYTES * 8)
			break;
	}
}

void nbd_conn_resume(struct nbd_conn *c)
{
	if (!c->stalled || c->state == CONN_ENDING)
		return;
	c->stalled = false;
	c->srv->stalled--;
	take_all(c);
	if (!c->stalled && c->state != CONN_ENDING)
		ev_io_start(c->srv->loop, &c->rd);
}

static void on_deadline(struct ev_loop *loop, ev_timer *w, int revents)
{
	broken(w->data);
	nbd_server_flush(((struct nbd_conn *)w->data)->srv);
}

void nbd_conn_new(struct nbd_server *srv, int fd)
{
	struct nbd_conn *c = ash_xcalloc(1, sizeof(*c));
	uint8_t hello[18], *p = hello;

	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	c->srv = srv;
	c->fd = fd;
	c->in = ash_xcalloc(1, STAGING_BYTES);
	ash_list_init(&c->dirty);
	ash_list_init(&c->out);
	ash_list_push_back(&srv->conns, &c->link);
	srv->stats.open++;
	srv->stats.connections++;
	ev_io_init(&c->rd, on_readable, fd, EV_READ);
	ev_io_init(&c->wr, on_writable, fd, EV_WRITE);
	ev_timer_init(&c->deadline, on_deadline, NEGOTIATION_S, 0.);
	c->rd.data = c->wr.data = c->deadline.data = c;
	ev_io_start(srv->loop, &c->rd);
	ev_timer_start(srv->loop, &c->deadline);
	p = nbd_put64(p, NBD_MAGIC);
	p = nbd_put64(p, NBD_OPT_MAGIC);
	nbd_put16(p, NBD_F_FIXED_NEWSTYLE | NBD_F_NO_ZEROES);
	nbd_conn_text(c, hello, sizeof(hello));
}
