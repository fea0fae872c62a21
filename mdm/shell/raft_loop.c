// SPDX-License-Identifier: MIT
/* libuv's loop inside a libev loop, and what libraft's TCP transport leaves out. */
#include <string.h>

#include "mdm/shell/raft_int.h"

#define NODELAY_S 0.1

static void run_uv(struct mdm_raft *r)
{
	if (r->in_uv)
		return;
	r->in_uv = true;
	uv_run(&r->uv, UV_RUN_NOWAIT);
	r->in_uv = false;
}

static void on_fd(struct ev_loop *loop, ev_io *w, int revents)
{
}

static void on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
}

/* First run what is due, then ask how long libuv may sleep: the other way round it would sleep over
 * what the run has made ready. */
static void on_prepare(struct ev_loop *loop, ev_prepare *w, int revents)
{
	struct mdm_raft *r = w->data;
	int ms;

	raft_turn(r);
	run_uv(r);
	raft_turn(r);
	ms = ash_list_empty(&r->queue) ? uv_backend_timeout(&r->uv) : 0;
	ev_timer_stop(loop, &r->timer);
	if (ms >= 0) {
		ev_now_update(loop);
		ev_timer_set(&r->timer, ms / 1000., 0.);
		ev_timer_start(loop, &r->timer);
	}
}

static void on_check(struct ev_loop *loop, ev_check *w, int revents)
{
	struct mdm_raft *r = w->data;

	run_uv(r);
	raft_turn(r);
}

static void set_nodelay(uv_handle_t *h, void *arg)
{
	uv_os_fd_t fd;

	if (h->type == UV_TCP && !uv_is_closing(h) && uv_fileno(h, &fd) == 0)
		uv_tcp_nodelay((uv_tcp_t *)h, 1);
}

/* libraft makes its connections by itself and anew after each loss; Nagle's delay would cost 40 ms
 * for each small batch of entries. */
static void on_nodelay(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct mdm_raft *r = w->data;

	uv_walk(&r->uv, set_nodelay, NULL);
}

void raft_loop_soon(struct mdm_raft *r)
{
	if (r->in_uv || ev_is_active(&r->timer))
		ev_timer_stop(r->loop, &r->timer);
	ev_timer_set(&r->timer, 0., 0.);
	ev_timer_start(r->loop, &r->timer);
}

int raft_loop_start(struct mdm_raft *r)
{
	int err = uv_loop_init(&r->uv);

	if (err)
		return err;
	ev_io_init(&r->fd, on_fd, uv_backend_fd(&r->uv), EV_READ);
	ev_timer_init(&r->timer, on_timer, 0., 0.);
	ev_timer_init(&r->nodelay, on_nodelay, NODELAY_S, NODELAY_S);
	ev_prepare_init(&r->prepare, on_prepare);
	ev_check_init(&r->check, on_check);
	r->prepare.data = r->check.data = r->nodelay.data = r;
	ev_io_start(r->loop, &r->fd);
	ev_prepare_start(r->loop, &r->prepare);
	ev_check_start(r->loop, &r->check);
	ev_timer_start(r->loop, &r->nodelay);
	return 0;
}

void raft_loop_stop(struct mdm_raft *r)
{
	ev_io_stop(r->loop, &r->fd);
	ev_prepare_stop(r->loop, &r->prepare);
	ev_check_stop(r->loop, &r->check);
	ev_timer_stop(r->loop, &r->timer);
	ev_timer_stop(r->loop, &r->nodelay);
}
