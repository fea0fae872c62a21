// SPDX-License-Identifier: MIT
/* Listening, exports, memory, the end. */
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/clean.h"
#include "common/base/log.h"
#include "sdc/nbd/server_int.h"

/* ------------------------------------------------------------ memory */

static int class_of(uint32_t bytes)
{
	int cls = 0;

	while ((4096u << cls) < bytes)
		cls++;
	return cls;
}

uint8_t *nbd_srv_mem_get(struct nbd_server *srv, uint32_t bytes, int *ret_class)
{
	int cls = class_of(bytes);
	struct nbd_mem *m = srv->cache[cls];

	assert(cls < MEM_CLASSES);
	*ret_class = cls;
	if (m) {
		srv->cache[cls] = m->next;
		srv->cached -= 4096u << cls;
	} else {
		m = aligned_alloc(4096, 4096u << cls);
	}
	if (m)
		srv->mem += 4096u << cls;
	return (uint8_t *)m;
}

void nbd_srv_mem_put(struct nbd_server *srv, uint8_t *mem, int cls)
{
	struct nbd_mem *m = (struct nbd_mem *)(void *)mem;

	if (!m)
		return;
	srv->mem -= 4096u << cls;
	if (srv->cached + (4096u << cls) > MEM_KEEP) {
		free(m);
		return;
	}
	m->next = srv->cache[cls];
	srv->cache[cls] = m;
	srv->cached += 4096u << cls;
}

struct nbd_req *nbd_srv_req_get(struct nbd_conn *c)
{
	struct nbd_server *srv = c->srv;
	struct ash_list *l = ash_list_pop(&srv->free_reqs);
	struct nbd_req *req =
		l ? ash_container_of(l, struct nbd_req, link) : ash_xcalloc(1, sizeof(*req));

	/* At most REQS_CONN per connection are ever made. */
	ash_list_init(&req->link);
	req->conn = c;
	req->mem = NULL;
	req->mem_bytes = req->data_bytes = req->head_bytes = 0;
	c->reqs++;
	return req;
}

void nbd_srv_req_put(struct nbd_req *req)
{
	struct nbd_conn *c = req->conn;

	c->reqs--;
	if (req->mem) {
		c->mem -= 4096u << req->mem_class;
		nbd_srv_mem_put(c->srv, req->mem, req->mem_class);
	}
	req->mem = NULL;
	ash_list_push_front(&c->srv->free_reqs, &req->link);
}

/* ------------------------------------------------------------ exports */

void nbd_server_add(struct nbd_server *srv, struct nbd_export *exp)
{
	exp->next = NULL;
	*srv->exports_end = exp;
	srv->exports_end = &exp->next;
}

struct nbd_export *nbd_srv_export(struct nbd_server *srv, const char *name, size_t bytes)
{
	if (!bytes)
		return srv->exports;
	for (struct nbd_export *e = srv->exports; e; e = e->next)
		if (strlen(e->name) == bytes && !memcmp(e->name, name, bytes))
			return e;
	return NULL;
}

/* ------------------------------------------------------------ listening */

/* At most a line a minute of each kind. */
static bool may_complain(struct nbd_server *srv, const char *kind)
{
	uint8_t key[16] = {0};

	memcpy(key, kind, strnlen(kind, sizeof(key)));
	return ash_log_limit_pass(&srv->limit, key, (uint64_t)(ev_now(srv->loop) * 1e9));
}

/* A host that is gone says nothing: without this its connections would count for ever. A client
 * that is only stopped is kept, its kernel answers. */
static void notice_death(int fd)
{
	int on = 1, idle = 30, interval = 5, count = 3;

	/* All fail on UNIX sockets, whose ends cannot vanish. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

void nbd_server_accept(struct nbd_server *srv, int fd)
{
	if (srv->stopping || srv->stats.open >= CONNS_MAX) {
		if (!srv->stopping && may_complain(srv, "full"))
			ash_log(ASH_LOG_ERROR,
				"event=nbd_connection_refused open=%u note=\"%u are the limit; end "
				"clients that are not needed\"",
				srv->stats.open, CONNS_MAX);
		close(fd);
		return;
	}
	notice_death(fd);
	nbd_conn_new(srv, fd);
}

static void on_accept(struct ev_loop *loop, ev_io *w, int revents)
{
	struct nbd_listener *l = ash_container_of(w, struct nbd_listener, io);
	struct nbd_server *srv = w->data;

	for (;;) {
		int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			nbd_server_accept(srv, fd);
			continue;
		}
		if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS)
			return;
		/* The pending connection keeps the socket readable: do not spin on it. */
		if (may_complain(srv, "accept"))
			ash_log(ASH_LOG_ERROR, "event=nbd_accept_failed open=%u why=\"%s\"",
				srv->stats.open, strerror(errno));
		ev_io_stop(loop, w);
		srv->accept_paused = true;
		srv->stats.accept_pauses++;
		ev_timer_set(&srv->accept_again, ACCEPT_PAUSE_S, 0.);
		ev_timer_start(loop, &srv->accept_again);
		return;
	}
}

static void watch_listeners(struct nbd_server *srv)
{
	for (struct nbd_listener *l = srv->listeners; l; l = l->next) {
		if (srv->paused)
			ev_io_stop(srv->loop, &l->io);
		else
			ev_io_start(srv->loop, &l->io);
	}
}

void nbd_server_pause(struct nbd_server *srv, bool paused)
{
	srv->paused = paused;
	watch_listeners(srv);
}

void nbd_srv_accept_again(struct nbd_server *srv)
{
	if (!srv->accept_paused)
		return;
	srv->accept_paused = false;
	ev_timer_stop(srv->loop, &srv->accept_again);
	watch_listeners(srv);
}

static void on_accept_again(struct ev_loop *loop, ev_timer *w, int revents)
{
	nbd_srv_accept_again(w->data);
}

/* Takes the listening socket over. */
static void listen_on(struct nbd_server *srv, int fd)
{
	struct nbd_listener *l = ash_xcalloc(1, sizeof(*l));

	l->fd = fd;
	l->next = srv->listeners;
	srv->listeners = l;
	ev_io_init(&l->io, on_accept, fd, EV_READ);
	l->io.data = srv;
	watch_listeners(srv);
}

/* A socket whose server was killed is in the way of the next one; one in use is not to be taken. */
static struct ash_error clear_path(const struct sockaddr_un *sa)
{
	struct stat st;
	int fd, err;

	if (lstat(sa->sun_path, &st))
		return ash_error_ok();
	if (!S_ISSOCK(st.st_mode))
		return ash_error_make(ASH_E_EXISTS, "%s exists and is no socket", sa->sun_path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	err = fd < 0 || connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) ? errno : 0;
	if (fd >= 0)
		close(fd);
	if (err != ECONNREFUSED)
		return ash_error_make(ASH_E_EXISTS,
				      "%s is in use by another server; stop it, or choose another "
				      "--socket",
				      sa->sun_path);
	unlink(sa->sun_path);
	return ash_error_ok();
}

struct ash_error nbd_server_listen_unix(struct nbd_server *srv, const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct ash_error err;
	int fd;

	if (strlen(path) >= sizeof(sa.sun_path))
		return ash_error_make(ASH_E_INVALID, "%s: a socket's path has at most %zu bytes",
				      path, sizeof(sa.sun_path) - 1);
	memcpy(sa.sun_path, path, strlen(path) + 1);
	err = clear_path(&sa);
	if (ash_failed(&err))
		return err;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return ash_error_make(ASH_E_INTERNAL, "no socket: %s", strerror(errno));
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) || listen(fd, 64)) {
		err = ash_error_make(ASH_E_INVALID, "cannot listen on %s: %s", path,
				     strerror(errno));
		close(fd);
		return err;
	}
	listen_on(srv, fd);
	memcpy(srv->socket_path, path, strlen(path) + 1);
	return ash_error_ok();
}

struct ash_error nbd_server_listen_tcp(struct nbd_server *srv, const struct ash_endpoint *at)
{
	struct ash_error err = ash_error_ok();
	int fd = ash_sock_listen(at, NULL, &err);

	if (fd >= 0)
		listen_on(srv, fd);
	return err;
}

/* ------------------------------------------------------------ life */

struct nbd_server *nbd_server_new(struct ev_loop *loop)
{
	struct nbd_server *srv = ash_xcalloc(1, sizeof(*srv));

	srv->loop = loop;
	srv->exports_end = &srv->exports;
	ash_list_init(&srv->conns);
	ash_list_init(&srv->dirty);
	ash_list_init(&srv->free_reqs);
	ev_timer_init(&srv->accept_again, on_accept_again, 0., 0.);
	srv->accept_again.data = srv;
	return srv;
}

static void drop_listeners(struct nbd_server *srv)
{
	struct nbd_listener *l;

	ev_timer_stop(srv->loop, &srv->accept_again);
	while ((l = srv->listeners)) {
		srv->listeners = l->next;
		ev_io_stop(srv->loop, &l->io);
		close(l->fd);
		free(l);
	}
	if (srv->socket_path[0])
		unlink(srv->socket_path);
	srv->socket_path[0] = '\0';
}

static void flush_dirty(struct nbd_server *srv)
{
	struct ash_list *l;

	while ((l = ash_list_pop(&srv->dirty)))
		nbd_conn_flush(ash_container_of(l, struct nbd_conn, dirty));
}

void nbd_server_flush(struct nbd_server *srv)
{
	flush_dirty(srv);
	if (srv->stalled) {
		ash_list_each_safe(l, &srv->conns) {
			nbd_conn_resume(ash_container_of(l, struct nbd_conn, link));
		}
		flush_dirty(srv);
	}
	if (srv->stopping && ash_list_empty(&srv->conns) && srv->stopped) {
		void (*done)(void *) = srv->stopped;

		srv->stopped = NULL;
		done(srv->stopped_arg);
	}
}

void nbd_server_stop(struct nbd_server *srv, void (*done)(void *arg), void *arg)
{
	srv->stopping = true;
	srv->stopped = done;
	srv->stopped_arg = arg;
	drop_listeners(srv);
	ash_list_each(l, &srv->conns) {
		nbd_conn_end(ash_container_of(l, struct nbd_conn, link));
	}
}

void nbd_server_free(struct nbd_server *srv)
{
	struct ash_list *l;

	if (!srv)
		return;
	assert(ash_list_empty(&srv->conns));
	drop_listeners(srv);
	while ((l = ash_list_pop(&srv->free_reqs)))
		free(ash_container_of(l, struct nbd_req, link));
	for (int i = 0; i < MEM_CLASSES; i++) {
		struct nbd_mem *m;

		while ((m = srv->cache[i])) {
			srv->cache[i] = m->next;
			free(m);
		}
	}
	free(srv);
}

void nbd_server_stats(const struct nbd_server *srv, struct nbd_server_stats *ret_stats)
{
	*ret_stats = srv->stats;
	ret_stats->bytes_held = srv->mem;
}
