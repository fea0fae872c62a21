// SPDX-License-Identifier: MIT
#include "common/io/ctl_stream.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/base/clean.h"
#include "common/base/crc.h"
#include "common/base/list.h"
#include "common/io/sock.h"

#define RX_FIRST 4096u
#define RX_KEEP 262144u
#define READ_MAX 262144u
#define TX_VECS 32
#define USER_TIMEOUT_MS 10000

struct ash_ctl_chunk {
	struct ash_ctl_chunk *next;
	size_t bytes, done;
	uint8_t data[];
};

static void on_readable(struct ev_loop *loop, ev_io *io, int events);
static void on_writable(struct ev_loop *loop, ev_io *io, int events);

static void on_end(struct ev_loop *loop, ev_timer *timer, int events)
{
	struct ash_ctl_stream *s = ash_container_of(timer, struct ash_ctl_stream, end);

	ev_timer_stop(loop, timer);
	s->events->on_end(s);
}

void ash_ctl_stream_init(struct ash_ctl_stream *s, struct ev_loop *loop, int fd, bool connecting,
			 const struct ash_ctl_stream_events *events)
{
	memset(s, 0, sizeof(*s));
	s->events = events;
	s->loop = loop;
	s->fd = fd;
	s->connecting = connecting;
	s->rx_max = ASH_FRAME_MAX_BYTES;
	s->queue_max = 256u << 20;
	s->tx_end = &s->tx;
	ash_sock_tune(fd, USER_TIMEOUT_MS);
	ev_io_init(&s->rd, on_readable, fd, EV_READ);
	ev_io_init(&s->wr, on_writable, fd, EV_WRITE);
	ev_timer_init(&s->end, on_end, 0., 0.);
	if (connecting)
		ev_io_start(loop, &s->wr);
	else
		ev_io_start(loop, &s->rd);
}

int ash_ctl_stream_connect(struct ash_ctl_stream *s, struct ev_loop *loop,
			   const struct ash_endpoint *to,
			   const struct ash_ctl_stream_events *events)
{
	struct sockaddr_storage addr;
	socklen_t bytes = ash_sock_address(to, &addr);
	int fd = socket(addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int err;

	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&addr, bytes) && errno != EINPROGRESS) {
		err = errno;
		close(fd);
		return -err;
	}
	ash_ctl_stream_init(s, loop, fd, true, events);
	return 0;
}

void ash_ctl_stream_end(struct ash_ctl_stream *s, int reason, const char *why)
{
	if (s->ending)
		return;
	s->ending = true;
	s->reason = reason;
	snprintf(s->why, sizeof(s->why), "%s", why);
	ev_io_stop(s->loop, &s->rd);
	ev_io_stop(s->loop, &s->wr);
	ev_timer_start(s->loop, &s->end);
}

static void end_bad(struct ash_ctl_stream *s, const char *why)
{
	s->bad = true;
	ash_ctl_stream_end(s, -EBADMSG, why);
}

static void end_errno(struct ash_ctl_stream *s, int err)
{
	ash_ctl_stream_end(s, -err, strerror(err));
}

void ash_ctl_stream_done(struct ash_ctl_stream *s)
{
	struct ash_ctl_chunk *c;

	ev_io_stop(s->loop, &s->rd);
	ev_io_stop(s->loop, &s->wr);
	ev_timer_stop(s->loop, &s->end);
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	free(s->rx);
	s->rx = NULL;
	while ((c = s->tx)) {
		s->tx = c->next;
		free(c);
	}
	s->tx_end = &s->tx;
}

/* ------------------------------------------------------------ sending */

static void tx_advance(struct ash_ctl_stream *s, size_t n)
{
	struct ash_ctl_chunk *c;

	s->queued -= n;
	while (n > 0) {
		size_t left;

		c = s->tx;
		left = c->bytes - c->done;
		if (n < left) {
			c->done += n;
			return;
		}
		n -= left;
		s->tx = c->next;
		if (!s->tx)
			s->tx_end = &s->tx;
		free(c);
	}
}

static void tx_write(struct ash_ctl_stream *s)
{
	struct iovec vec[TX_VECS];
	struct msghdr m = {.msg_iov = vec};
	ssize_t n;

	while (s->tx) {
		m.msg_iovlen = 0;
		for (struct ash_ctl_chunk *c = s->tx; c && m.msg_iovlen < TX_VECS; c = c->next)
			vec[m.msg_iovlen++] = (struct iovec){c->data + c->done, c->bytes - c->done};
		n = sendmsg(s->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0) {
			if (errno == EINTR)
				continue;
			if (errno == EAGAIN)
				ev_io_start(s->loop, &s->wr);
			else
				end_errno(s, errno);
			return;
		}
		tx_advance(s, (size_t)n);
	}
	ev_io_stop(s->loop, &s->wr);
}

/* A chunk with room for the message, not queued yet; NULL with the reason in *ret_err. */
static struct ash_ctl_chunk *chunk_new(struct ash_ctl_stream *s, size_t body, int *ret_err)
{
	struct ash_ctl_chunk *c;

	*ret_err = s->ending ? -ESHUTDOWN : body > ASH_FRAME_MAX_BYTES ? -EMSGSIZE : 0;
	if (*ret_err)
		return NULL;
	if (s->queued + body > s->queue_max) {
		ash_ctl_stream_end(s, -ENOBUFS, "it does not read what it is sent");
		*ret_err = -ESHUTDOWN;
		return NULL;
	}
	c = ash_xcalloc(1, sizeof(*c) + sizeof(struct ash_frame) + body);
	c->bytes = sizeof(struct ash_frame) + body;
	return c;
}

static void chunk_queue(struct ash_ctl_stream *s, struct ash_ctl_chunk *c, int type)
{
	size_t body = c->bytes - sizeof(struct ash_frame);
	struct ash_frame f = {.magic = ash_put32(ASH_FRAME_MAGIC),
			      .version = ash_put16(ASH_FRAME_VERSION),
			      .type = ash_put16((uint16_t)type),
			      .bytes = ash_put32((uint32_t)body),
			      .crc = ash_put32(ash_crc32c(c->data + sizeof(f), body))};
	bool idle = s->tx == NULL;

	memcpy(c->data, &f, sizeof(f));
	s->queued += c->bytes;
	*s->tx_end = c;
	s->tx_end = &c->next;
	if (idle && !s->connecting)
		tx_write(s);
}

int ash_ctl_stream_send(struct ash_ctl_stream *s, int type, const ProtobufCMessage *msg)
{
	int err;
	struct ash_ctl_chunk *c = chunk_new(s, protobuf_c_message_get_packed_size(msg), &err);

	if (!c)
		return err;
	protobuf_c_message_pack(msg, c->data + sizeof(struct ash_frame));
	chunk_queue(s, c, type);
	return 0;
}

int ash_ctl_stream_send_packed(struct ash_ctl_stream *s, int type, const void *body, size_t bytes)
{
	int err;
	struct ash_ctl_chunk *c = chunk_new(s, bytes, &err);

	if (!c)
		return err;
	memcpy(c->data + sizeof(struct ash_frame), body, bytes);
	chunk_queue(s, c, type);
	return 0;
}

static void on_writable(struct ev_loop *loop, ev_io *io, int events)
{
	struct ash_ctl_stream *s = ash_container_of(io, struct ash_ctl_stream, wr);
	int err = 0;
	socklen_t n = sizeof(err);

	if (s->connecting) {
		if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &err, &n))
			err = errno;
		if (err) {
			end_errno(s, err);
			return;
		}
		s->connecting = false;
		ev_io_stop(loop, &s->wr);
		ev_io_start(loop, &s->rd);
		s->events->on_up(s);
		if (s->ending)
			return;
	}
	tx_write(s);
}

/* ------------------------------------------------------------ receiving */

/* Bytes of the frame at the start of the buffer (0: not known yet), or -1 after a bad header. */
static int64_t frame_bytes(struct ash_ctl_stream *s, size_t at, struct ash_frame *f)
{
	if (s->rx_bytes - at < sizeof(*f))
		return 0;
	memcpy(f, s->rx + at, sizeof(*f));
	if (ash_get32(f->magic) != ASH_FRAME_MAGIC)
		end_bad(s, "it does not speak the control protocol");
	else if (ash_get16(f->version) != ASH_FRAME_VERSION)
		end_bad(s, "unknown version of the control protocol");
	else if (ash_get32(f->bytes) > s->rx_max)
		end_bad(s, "a message is too large");
	else
		return (int64_t)sizeof(*f) + ash_get32(f->bytes);
	return -1;
}

/* Delivers whole frames. Returns how much room the frame that is not complete needs. */
static size_t deliver(struct ash_ctl_stream *s)
{
	struct ash_frame f;
	size_t at = 0;
	int64_t n;

	while ((n = frame_bytes(s, at, &f)) > 0 && (size_t)n <= s->rx_bytes - at) {
		const uint8_t *body = s->rx + at + sizeof(f);
		size_t bytes = (size_t)n - sizeof(f);

		if (ash_crc32c(body, bytes) != ash_get32(f.crc)) {
			end_bad(s, "a message does not match its checksum");
			return 0;
		}
		at += (size_t)n;
		s->events->on_frame(s, ash_get16(f.type), body, bytes);
		if (s->ending)
			return 0;
	}
	s->rx_bytes -= at;
	memmove(s->rx, s->rx + at, s->rx_bytes);
	return n > 0 ? (size_t)n : sizeof(f);
}

/* Room grows with what has really come, not with what a header promises. */
static void rx_make_room(struct ash_ctl_stream *s, size_t need)
{
	size_t room = s->rx_room;

	if (s->rx_bytes == 0 && room > RX_KEEP)
		room = RX_FIRST;
	else if (s->rx_bytes == room || room == 0)
		room = room ? room * 2 : RX_FIRST;
	if (room > RX_KEEP && room > need && need > s->rx_bytes)
		room = need;
	if (room != s->rx_room) {
		s->rx = ash_xrealloc(s->rx, room);
		s->rx_room = room;
	}
}

static void on_readable(struct ev_loop *loop, ev_io *io, int events)
{
	struct ash_ctl_stream *s = ash_container_of(io, struct ash_ctl_stream, rd);
	size_t taken = 0, need = 0;

	while (taken < READ_MAX && !s->ending) {
		ssize_t n;
		size_t asked;

		rx_make_room(s, need);
		asked = s->rx_room - s->rx_bytes;
		n = recv(s->fd, s->rx + s->rx_bytes, asked, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			end_errno(s, errno);
			return;
		}
		if (n == 0) {
			ash_ctl_stream_end(s, -ECONNRESET, "connection closed");
			return;
		}
		s->rx_bytes += (size_t)n;
		taken += (size_t)n;
		need = deliver(s);
		if ((size_t)n < asked)
			return;
	}
}
