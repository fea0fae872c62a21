// SPDX-License-Identifier: MIT
/* Life of TCP data connections. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/io/tcp_int.h"

#define MS 1000000ull
#define CONNECT_NS (3000 * MS)
#define SWEEP_NS (1000 * MS)
/* A message that holds a buffer has to be complete by then. */
#define MESSAGE_NS (10000 * MS)
#define ACCEPT_AGAIN_NS (200 * MS)
#define USER_TIMEOUT_MS 15000

struct listener {
	struct ash_list link;
	struct ash_reactor *r;
	ev_io io;
	int fd;
};

/* ------------------------------------------------------------ messages */

struct ash_msg *net_msg_alloc(struct ash_net *net)
{
	struct ash_reactor *r = ((struct ash_net_impl *)net)->r;
	struct ash_msg *m = r->msg_free;

	if (!m)
		return NULL;
	r->msg_free = m->next;
	r->msg_free_count--;
	memset(m, 0, offsetof(struct ash_msg, backend));
	return m;
}

void net_msg_free(struct ash_net *net, struct ash_msg *msg)
{
	struct ash_reactor *r = ((struct ash_net_impl *)net)->r;
	struct ash_list *l;

	if (!msg)
		return;
	ash_buf_put(msg->buf);
	msg->buf = NULL;
	msg->next = r->msg_free;
	r->msg_free = msg;
	r->msg_free_count++;
	while ((l = ash_list_pop(&r->starved)))
		ash_list_push_back(&r->resume, l);
}

struct ash_msg *net_msg_for_rx(struct conn *c)
{
	struct ash_reactor *r = c->r;
	uint32_t keep = c->c.buf_class == ASH_BUF_CLIENT ? r->msg_count / 4 : r->msg_count / 8;

	if (r->msg_free_count > keep)
		return net_msg_alloc(c->c.net);
	ash_list_remove(&c->rx_link);
	ash_list_push_back(&r->starved, &c->rx_link);
	return NULL;
}

/* ------------------------------------------------------------ connections */

static void on_buffer(struct ash_buf_waiter *waiter)
{
	struct conn *c = ash_container_of(waiter, struct conn, waiter);

	ash_list_remove(&c->rx_link);
	ash_list_push_back(&c->r->resume, &c->rx_link);
}

static struct conn *conn_new(struct ash_reactor *r, int fd)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->rx = malloc(RX_BYTES);
	if (!c->rx) {
		free(c);
		return NULL;
	}
	c->c.net = &r->net.n;
	c->r = r;
	c->fd = fd;
	c->slot = fd >= 0 ? ring_file_add(r, fd) : -1;
	c->waiter.fn = on_buffer;
	c->tx_end = &c->tx;
	ash_list_init(&c->rx_link);
	ash_list_init(&c->tx_link);
	ash_list_init(&c->end_link);
	ash_list_push_back(&r->conns, &c->link);
	if (fd >= 0)
		ash_sock_tune(fd, USER_TIMEOUT_MS);
	if (!ash_timer_is_set(&r->sweep))
		ash_timer_set(&r->own, &r->sweep, r->port.turn_ns + SWEEP_NS);
	return c;
}

void conn_end(struct conn *c, int reason)
{
	if (c->ending)
		return;
	c->ending = true;
	c->reason = reason;
	conn_list(&c->r->ending, &c->end_link);
}

void conn_end_bad(struct conn *c, int reason, const char *why)
{
	struct ash_reactor *r = c->r;
	struct ash_endpoint from;
	struct sockaddr_storage addr = {0};
	socklen_t n = sizeof(addr);
	char text[64];

	if (!c->ending && getpeername(c->fd, (struct sockaddr *)&addr, &n) == 0) {
		ash_sock_endpoint(&addr, &from);
		if (ash_log_limit_pass(&r->limit, from.ip, r->port.turn_ns))
			ash_log(ASH_LOG_WARN, "event=data_peer_closed peer=%s why=\"%s\"",
				ash_endpoint_text(&from, text, sizeof(text)), why);
	}
	conn_end(c, reason);
}

static bool in_kernel(const struct conn *c)
{
	return c->receiving || c->sending || c->connect_sent;
}

/* Makes the kernel give back what it has of this connection. */
static void end_begin(struct conn *c)
{
	struct io_uring_sqe *sqe;

	if (c->connect_sent) {
		/* A shutdown would let the pending connect start anew. */
		sqe = ring_sqe(c->r);
		if (!sqe) {
			conn_list(&c->r->ending, &c->end_link);
			return;
		}
		io_uring_prep_cancel64(sqe, (uint64_t)(uintptr_t)c | RING_CONNECT, 0);
		ring_sqe_data(sqe, NULL, RING_NONE);
	} else if (c->fd >= 0) {
		if (c->reason == 0)
			conn_tx_last(c);
		shutdown(c->fd, SHUT_RDWR);
	}
	c->end_begun = true;
	ash_timer_cancel(&c->r->own, &c->timer);
	ash_bufs_unwait(c->r->port.bufs, &c->waiter);
	ash_list_remove(&c->rx_link);
	ash_list_remove(&c->tx_link);
}

static void end_finish(struct conn *c)
{
	struct ash_reactor *r = c->r;

	conn_rx_drop(c);
	conn_tx_drop(c);
	c->c.up = false;
	if (c->c.events && c->c.events->on_down)
		c->c.events->on_down(&c->c, c->reason);
	conn_tx_drop(c); /* should on_down have sent something */
	ring_file_remove(r, c->slot);
	if (c->fd >= 0)
		close(c->fd);
	ash_list_remove(&c->link);
	ash_list_remove(&c->end_link);
	free(c->rx);
	free(c);
}

unsigned net_reap_ended(struct ash_reactor *r)
{
	struct ash_list now, *l;
	unsigned n = 0;

	ash_list_init(&now);
	while ((l = ash_list_pop(&r->ending)))
		ash_list_push_back(&now, l);
	for (; (l = ash_list_pop(&now)); n++) {
		struct conn *c = ash_container_of(l, struct conn, end_link);

		if (!c->end_begun)
			end_begin(c);
		/* Else its last completion puts it on the list again. */
		if (c->end_begun && !in_kernel(c))
			end_finish(c);
	}
	return n;
}

/* ------------------------------------------------------------ connecting */

static void on_connect_timeout(struct ash_timer *timer)
{
	conn_end(ash_container_of(timer, struct conn, timer), -ETIMEDOUT);
}

/* Room for the connection itself is the one thing that cannot be reported later. */
static struct ash_conn *net_connect(struct ash_net *net, const struct ash_endpoint *to,
				    const struct ash_conn_events *events, void *owner)
{
	struct ash_reactor *r = ((struct ash_net_impl *)net)->r;
	struct sockaddr_storage addr;
	socklen_t bytes = ash_sock_address(to, &addr);
	/* Blocking: the ring waits for a socket only if it may. */
	int fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int err = fd < 0 ? -errno : 0;
	struct conn *c = conn_new(r, fd);

	if (!c) {
		ash_log(ASH_LOG_ERROR, "event=no_memory what=connection");
		abort();
	}
	c->c.events = events;
	c->c.owner = owner;
	c->outgoing = c->connecting = true;
	c->to = *to;
	c->addr = addr;
	c->addr_bytes = bytes;
	if (err) {
		conn_end(c, err);
		return &c->c;
	}
	c->timer.fn = on_connect_timeout;
	/* The reactor may not run yet, so that the turn's clock is old. */
	ash_timer_set(&r->own, &c->timer, r->port.now_ns(&r->port) + CONNECT_NS);
	conn_list(&r->tx, &c->tx_link);
	return &c->c;
}

static void start_connect(struct conn *c)
{
	struct io_uring_sqe *sqe = ring_sqe(c->r);

	if (!sqe) {
		conn_list(&c->r->tx, &c->tx_link);
		return;
	}
	io_uring_prep_connect(sqe, c->fd, (struct sockaddr *)&c->addr, c->addr_bytes);
	ring_sqe_file(sqe, c->fd, c->slot);
	ring_sqe_data(sqe, c, RING_CONNECT);
	c->connect_sent = true;
}

void net_on_connect(void *conn, int res)
{
	struct conn *c = conn;
	struct sockaddr_storage addr = {0};
	socklen_t n = sizeof(addr);

	c->connect_sent = false;
	if (c->ending) {
		conn_list(&c->r->ending, &c->end_link);
		return;
	}
	ash_timer_cancel(&c->r->own, &c->timer);
	/* Linux lets a socket connect to itself when its own free port is the one asked for. */
	if (res == 0 && getsockname(c->fd, (struct sockaddr *)&addr, &n) == 0 &&
	    n == c->addr_bytes && memcmp(&addr, &c->addr, n) == 0)
		res = -ECONNREFUSED;
	if (res < 0) {
		conn_end(c, res);
		return;
	}
	c->connecting = false;
	c->c.up = true;
	conn_list(&c->r->rx, &c->rx_link);
	if (c->c.events->on_up)
		c->c.events->on_up(&c->c);
	if (c->tx)
		conn_list(&c->r->tx, &c->tx_link);
}

/* ------------------------------------------------------------ accepting */

static void take(struct ash_reactor *r, int fd)
{
	struct conn *c = conn_new(r, fd);

	if (!c) {
		close(fd);
		return;
	}
	c->c.up = true;
	conn_list(&r->rx, &c->rx_link);
	if (r->net.n.on_accept)
		r->net.n.on_accept(&r->net.n, &c->c);
	if (!c->c.events)
		conn_end(c, 0);
}

static void on_acceptable(struct ev_loop *loop, ev_io *io, int events)
{
	struct listener *l = ash_container_of(io, struct listener, io);
	struct ash_reactor *r = l->r;
	static const uint8_t nobody[16];

	for (int i = 0; i < 64; i++) {
		int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);

		if (fd >= 0) {
			take(r, fd);
			continue;
		}
		if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS)
			return;
		/* The pending connection keeps the socket readable: do not spin on it. */
		if (ash_log_limit_pass(&r->limit, nobody, r->port.turn_ns))
			ash_log(ASH_LOG_ERROR, "event=data_accept_failed why=\"%s\"",
				strerror(errno));
		ev_io_stop(loop, &l->io);
		ash_timer_set(&r->own, &r->accept_again, r->port.turn_ns + ACCEPT_AGAIN_NS);
		return;
	}
}

static void on_accept_again(struct ash_timer *timer)
{
	struct ash_reactor *r = ash_container_of(timer, struct ash_reactor, accept_again);

	ash_list_each(it, &r->listeners) {
		ev_io_start(r->loop, &ash_container_of(it, struct listener, link)->io);
	}
}

int ash_reactor_listen(struct ash_reactor *r, const struct ash_endpoint *at, uint16_t *ret_port,
		       struct ash_error *ret_err)
{
	struct listener *l;
	int fd = ash_sock_listen(at, ret_port, ret_err);

	if (fd < 0)
		return fd;
	l = calloc(1, sizeof(*l));
	if (!l) {
		close(fd);
		*ret_err = ash_error_make(ASH_E_INTERNAL, "no memory for a listener");
		return -ENOMEM;
	}
	l->r = r;
	l->fd = fd;
	ash_list_push_back(&r->listeners, &l->link);
	ev_io_init(&l->io, on_acceptable, fd, EV_READ);
	ev_io_start(r->loop, &l->io);
	return 0;
}

/* ------------------------------------------------------------ the rest of the interface */

static void net_close(struct ash_conn *conn)
{
	conn_end(conn_of(conn), 0);
}

static void net_pause(struct ash_conn *conn, bool paused)
{
	struct conn *c = conn_of(conn);

	if (c->paused == paused)
		return;
	c->paused = paused;
	c->cur_since_ns = c->r->port.turn_ns;
	if (paused || c->ending || c->connecting)
		return;
	ash_list_remove(&c->rx_link);
	ash_list_push_back(&c->r->resume, &c->rx_link);
}

static const struct ash_net_ops tcp_ops = {
	.connect = net_connect,
	.send = conn_send,
	.close = net_close,
	.pause = net_pause,
	.msg_alloc = net_msg_alloc,
	.msg_free = net_msg_free,
};

bool net_has_work(const struct ash_reactor *r)
{
	return !ash_list_empty(&r->resume) || !ash_list_empty(&r->ending) ||
	       !ash_list_empty(&r->rx) || !ash_list_empty(&r->tx);
}

unsigned net_resume(struct ash_reactor *r)
{
	struct ash_list now, *l;
	unsigned n = 0;

	/* Those that come back to the list while this runs wait for the next turn. */
	ash_list_init(&now);
	while ((l = ash_list_pop(&r->resume)))
		ash_list_push_back(&now, l);
	for (; (l = ash_list_pop(&now)); n++) {
		struct conn *c = ash_container_of(l, struct conn, rx_link);

		if (c->ending)
			continue;
		conn_parse(c);
	}
	return n;
}

void net_flush(struct ash_reactor *r)
{
	struct ash_list now, *l;

	ash_list_init(&now);
	while ((l = ash_list_pop(&r->rx)))
		ash_list_push_back(&now, l);
	while ((l = ash_list_pop(&now)))
		conn_rx_arm(ash_container_of(l, struct conn, rx_link));
	while ((l = ash_list_pop(&r->tx)))
		ash_list_push_back(&now, l);
	while ((l = ash_list_pop(&now))) {
		struct conn *c = ash_container_of(l, struct conn, tx_link);

		if (c->ending)
			continue;
		if (c->connecting && !c->connect_sent)
			start_connect(c);
		else if (!c->connecting)
			conn_tx_start(c);
	}
}

/* A peer that stops in the middle of a message must not keep its buffer. */
static void on_sweep(struct ash_timer *timer)
{
	struct ash_reactor *r = ash_container_of(timer, struct ash_reactor, sweep);

	ash_list_each(it, &r->conns) {
		struct conn *c = ash_container_of(it, struct conn, link);

		if (c->cur && !c->paused && !c->ending &&
		    r->port.turn_ns - c->cur_since_ns > MESSAGE_NS)
			conn_end_bad(c, -ETIMEDOUT, "a message did not come to its end");
	}
	if (!ash_list_empty(&r->conns))
		ash_timer_set(&r->own, timer, r->port.turn_ns + SWEEP_NS);
}

int net_init(struct ash_reactor *r, uint32_t messages)
{
	struct ash_list *lists[] = {&r->conns, &r->ending,  &r->resume,	  &r->rx,
				    &r->tx,    &r->starved, &r->listeners};

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		ash_list_init(lists[i]);
	r->net = (struct ash_net_impl){.n = {.ops = &tcp_ops}, .r = r};
	r->sweep.fn = on_sweep;
	r->accept_again.fn = on_accept_again;
	r->msgs = calloc(messages, sizeof(*r->msgs));
	if (!r->msgs)
		return -ENOMEM;
	r->msg_count = r->msg_free_count = messages;
	for (uint32_t i = messages; i-- > 0;) {
		r->msgs[i].next = r->msg_free;
		r->msg_free = &r->msgs[i];
	}
	return 0;
}

/* At free: the owners are gone, so nobody is told. */
void net_done(struct ash_reactor *r)
{
	struct ash_list *l;

	ash_timer_cancel(&r->own, &r->sweep);
	ash_timer_cancel(&r->own, &r->accept_again);
	while (r->listeners.next && (l = ash_list_pop(&r->listeners))) {
		struct listener *x = ash_container_of(l, struct listener, link);

		ev_io_stop(r->loop, &x->io);
		close(x->fd);
		free(x);
	}
	if (!r->conns.next)
		return;
	ash_list_each(it, &r->conns) {
		struct conn *c = ash_container_of(it, struct conn, link);

		c->c.events = NULL;
		if (!c->sending) {
			c->tx = NULL;
			c->tx_end = &c->tx;
		}
		conn_end(c, -ESHUTDOWN);
	}
}
