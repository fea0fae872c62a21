// SPDX-License-Identifier: MIT
#include "common/io/ctl_server.h"

#include <errno.h>
#include <ev.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clean.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/io/ctl_stream.h"
#include "common/io/reactor.h"
#include "common/io/sock.h"

/* A request is small; the first one (HELLO) comes from somebody not known yet. */
#define REQUEST_MAX (8u << 20)
#define FIRST_MAX 65536u
#define FIRST_WITHIN_S 30.
#define SWEEP_S 5.
#define ACCEPT_PAUSE_S 0.2

struct ash_ctl_server {
	struct ev_loop *loop;
	const struct ash_ctl_server_events *events;
	void *arg;
	ev_io accept;
	ev_timer resume, sweep;
	int fd;
	struct ash_list peers;
	struct ash_log_limit limit;
};

struct ash_ctl_peer {
	struct ash_ctl_stream stream;
	struct ash_list link;
	struct ash_ctl_server *srv;
	void *owner;
	ev_tstamp since;
	bool spoke;
	struct ash_endpoint from;
	char name[64];
};

static struct ash_ctl_peer *peer_of(struct ash_ctl_stream *s)
{
	return ash_container_of(s, struct ash_ctl_peer, stream);
}

static void peer_free(struct ash_ctl_peer *peer)
{
	ash_ctl_stream_done(&peer->stream);
	ash_list_remove(&peer->link);
	free(peer);
}

static void log_end(struct ash_ctl_peer *peer)
{
	struct ash_ctl_server *srv = peer->srv;
	uint64_t now = (uint64_t)(ev_now(srv->loop) * 1e9);

	if ((peer->stream.bad || peer->stream.reason == -ENOBUFS) &&
	    ash_log_limit_pass(&srv->limit, peer->from.ip, now))
		ash_log(ASH_LOG_WARN, "event=control_peer_closed peer=%s why=\"%s\"", peer->name,
			peer->stream.why);
}

static void on_end(struct ash_ctl_stream *s)
{
	struct ash_ctl_peer *peer = peer_of(s);

	log_end(peer);
	peer->srv->events->on_close(peer->srv->arg, peer);
	peer_free(peer);
}

static void on_frame(struct ash_ctl_stream *s, int type, const uint8_t *body, size_t bytes)
{
	struct ash_ctl_peer *peer = peer_of(s);
	ProtobufCMessage *msg;

	peer->spoke = true;
	s->rx_max = REQUEST_MAX;
	if (type != ASH_FRAME_REQUEST) {
		s->bad = true;
		ash_ctl_stream_end(s, -EBADMSG, "it sends something other than requests");
		return;
	}
	msg = ash_ctl_unpack(&pb__request__descriptor, body, bytes);
	if (!msg) {
		s->bad = true;
		ash_ctl_stream_end(s, -EBADMSG, "a request cannot be decoded");
		return;
	}
	peer->srv->events->on_request(peer->srv->arg, peer, (const Pb__Request *)msg);
	protobuf_c_message_free_unpacked(msg, NULL);
}

static const struct ash_ctl_stream_events stream_events = {.on_frame = on_frame, .on_end = on_end};

static void take(struct ash_ctl_server *srv, int fd, const struct sockaddr_storage *from)
{
	struct ash_ctl_peer *peer = ash_xcalloc(1, sizeof(*peer));

	peer->srv = srv;
	peer->since = ev_now(srv->loop);
	ash_sock_endpoint(from, &peer->from);
	ash_endpoint_text(&peer->from, peer->name, sizeof(peer->name));
	ash_ctl_stream_init(&peer->stream, srv->loop, fd, false, &stream_events);
	peer->stream.rx_max = FIRST_MAX;
	ash_list_push_back(&srv->peers, &peer->link);
	peer->owner = srv->events->on_open(srv->arg, peer);
	if (!peer->owner)
		peer_free(peer);
}

static void on_acceptable(struct ev_loop *loop, ev_io *io, int events)
{
	struct ash_ctl_server *srv = ash_container_of(io, struct ash_ctl_server, accept);
	static const uint8_t nobody[16];

	for (int i = 0; i < 64; i++) {
		struct sockaddr_storage from = {0};
		socklen_t n = sizeof(from);
		int fd = accept4(srv->fd, (struct sockaddr *)&from, &n,
				 SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			take(srv, fd, &from);
			continue;
		}
		if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS)
			return; /* nothing there, or one that gave up: the loop calls again */
		/* The pending connection keeps the socket readable: do not spin on it. */
		if (ash_log_limit_pass(&srv->limit, nobody, (uint64_t)(ev_now(loop) * 1e9)))
			ash_log(ASH_LOG_ERROR, "event=control_accept_failed why=\"%s\"",
				strerror(errno));
		ev_io_stop(loop, &srv->accept);
		ev_timer_set(&srv->resume, ACCEPT_PAUSE_S, 0.);
		ev_timer_start(loop, &srv->resume);
		return;
	}
}

static void on_resume(struct ev_loop *loop, ev_timer *timer, int events)
{
	struct ash_ctl_server *srv = ash_container_of(timer, struct ash_ctl_server, resume);

	ev_io_start(loop, &srv->accept);
}

/* Who connects and says nothing must not hold a descriptor for ever. */
static void on_sweep(struct ev_loop *loop, ev_timer *timer, int events)
{
	struct ash_ctl_server *srv = ash_container_of(timer, struct ash_ctl_server, sweep);

	ash_list_each(it, &srv->peers) {
		struct ash_ctl_peer *peer = ash_container_of(it, struct ash_ctl_peer, link);

		if (!peer->spoke && ev_now(loop) - peer->since > FIRST_WITHIN_S)
			ash_ctl_stream_end(&peer->stream, -ETIMEDOUT, "it said nothing");
	}
}

struct ash_ctl_server *ash_ctl_server_new(struct ev_loop *loop, const struct ash_endpoint *at,
					  const struct ash_ctl_server_events *events, void *arg,
					  struct ash_error *ret_err)
{
	struct ash_ctl_server *srv;
	int fd = ash_sock_listen(at, NULL, ret_err);

	if (fd < 0)
		return NULL;
	srv = ash_xcalloc(1, sizeof(*srv));
	srv->loop = loop;
	srv->events = events;
	srv->arg = arg;
	srv->fd = fd;
	ash_list_init(&srv->peers);
	ev_io_init(&srv->accept, on_acceptable, fd, EV_READ);
	ev_timer_init(&srv->resume, on_resume, ACCEPT_PAUSE_S, 0.);
	ev_timer_init(&srv->sweep, on_sweep, SWEEP_S, SWEEP_S);
	ev_io_start(loop, &srv->accept);
	ev_timer_start(loop, &srv->sweep);
	return srv;
}

void ash_ctl_server_free(struct ash_ctl_server *srv)
{
	if (!srv)
		return;
	while (!ash_list_empty(&srv->peers)) {
		struct ash_ctl_peer *peer = ash_list_first(&srv->peers, struct ash_ctl_peer, link);

		srv->events->on_close(srv->arg, peer);
		peer_free(peer);
	}
	ev_io_stop(srv->loop, &srv->accept);
	ev_timer_stop(srv->loop, &srv->resume);
	ev_timer_stop(srv->loop, &srv->sweep);
	close(srv->fd);
	free(srv);
}

uint16_t ash_ctl_server_port(const struct ash_ctl_server *srv)
{
	struct sockaddr_storage addr = {0};
	socklen_t n = sizeof(addr);
	struct ash_endpoint ep;

	if (getsockname(srv->fd, (struct sockaddr *)&addr, &n))
		return 0;
	ash_sock_endpoint(&addr, &ep);
	return ep.port;
}

void *ash_ctl_peer_owner(struct ash_ctl_peer *peer)
{
	return peer->owner;
}

const char *ash_ctl_peer_name(const struct ash_ctl_peer *peer)
{
	return peer->name;
}

void ash_ctl_peer_reply(struct ash_ctl_peer *peer, const Pb__Reply *reply)
{
	Pb__Error error = PB__ERROR__INIT;
	Pb__Reply instead = PB__REPLY__INIT;

	if (ash_ctl_stream_send(&peer->stream, ASH_FRAME_REPLY, &reply->base) != -EMSGSIZE)
		return;
	error.code = ASH_E_INTERNAL;
	error.message = "the answer is larger than 64 MiB; ask for less at a time";
	instead.id = reply->id;
	instead.error = &error;
	ash_ctl_stream_send(&peer->stream, ASH_FRAME_REPLY, &instead.base);
}

void ash_ctl_peer_push(struct ash_ctl_peer *peer, const Pb__Push *push)
{
	/* Without this push it would go on with old knowledge: it has to connect and ask anew. */
	if (ash_ctl_stream_send(&peer->stream, ASH_FRAME_PUSH, &push->base) == -EMSGSIZE)
		ash_ctl_stream_end(&peer->stream, -ENOBUFS, "a push is larger than 64 MiB");
}

void ash_ctl_peer_close(struct ash_ctl_peer *peer)
{
	ash_ctl_stream_end(&peer->stream, 0, "closed");
}
