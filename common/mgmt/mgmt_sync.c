// SPDX-License-Identifier: MIT
/* One request, blocking, on a loop of its own. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/mgmt/mgmt_int.h"

#define CHECK_S 0.05
/* When nobody is there at all, a person need not wait for the whole time-out. */
#define GIVE_UP_ATTEMPTS 4
#define GIVE_UP_S 1.5

struct sync {
	struct ev_loop *loop;
	struct ash_mgmt *m;
	const Pb__Request *req;
	ev_tstamp started, deadline;
	ev_timer check;
	Pb__Reply *reply;
	int result;
	bool over, was_up;
};

static void finish(struct sync *s, int result)
{
	s->result = result;
	s->over = true;
	ev_break(s->loop, EVBREAK_ONE);
}

/* Reads may be repeated; for a change it would hide that the first one may have been made. */
static bool repeatable(const Pb__Request *req)
{
	return req->r_case == PB__REQUEST__R_QUERY || req->r_case == PB__REQUEST__R_GET_MAP ||
	       req->r_case == PB__REQUEST__R_HELLO;
}

static void ask(struct sync *s);

static void on_done(void *arg, int result, const Pb__Reply *reply)
{
	struct sync *s = arg;
	size_t n;
	uint8_t *copy;

	if (result == -ECONNRESET && repeatable(s->req)) {
		ask(s);
		return;
	}
	if (result == 0) {
		/* The answer is only lent to us. */
		n = pb__reply__get_packed_size(reply);
		copy = malloc(n ? n : 1);
		if (copy)
			pb__reply__pack(reply, copy);
		s->reply = copy ? pb__reply__unpack(NULL, n, copy) : NULL;
		free(copy);
		if (!s->reply)
			result = -ENOMEM;
	}
	finish(s, result);
}

static void ask(struct sync *s)
{
	double left = s->deadline - ev_now(s->loop);

	s->m->ctl.ops->call(&s->m->ctl, s->req, left > 0 ? (uint32_t)(left * 1000) + 1 : 1, on_done,
			    s);
}

static void on_session(void *owner, bool up)
{
	struct sync *s = owner;

	s->was_up |= up;
}

static void on_check(struct ev_loop *loop, ev_timer *timer, int events)
{
	struct sync *s = ash_container_of(timer, struct sync, check);

	if (s->m->session || ev_now(loop) - s->started < GIVE_UP_S)
		return;
	ash_list_each(it, &s->m->addrs) {
		struct mgmt_addr *a = ash_container_of(it, struct mgmt_addr, link);

		if (!a->hard || a->attempts < GIVE_UP_ATTEMPTS)
			return;
	}
	finish(s, -EHOSTUNREACH);
}

static struct ash_error explain(struct sync *s, uint32_t timeout_ms)
{
	char said[ASH_ERROR_TEXT - 128];
	bool sent = !ash_list_empty(&s->m->sent) || s->result == -ECONNRESET ||
		    (s->m->session && s->result == -ETIMEDOUT);
	const char *unknown =
		sent && !repeatable(s->req)
			? "; whether it was carried out is unknown, look before you repeat it"
			: "";

	mgmt_said(s->m, said, sizeof(said));
	if (s->result == -ENOMEM)
		return ash_error_make(ASH_E_INTERNAL, "no memory for the answer");
	if (s->result == -ECONNRESET)
		return ash_error_make(ASH_E_UNREACHABLE, "connection lost before the answer (%s)%s",
				      said, unknown);
	if (s->m->session)
		return ash_error_make(ASH_E_UNREACHABLE, "%s (%s) did not answer within %u ms%s",
				      s->m->session->text, s->m->session->said, timeout_ms,
				      unknown);
	return ash_error_make(ASH_E_UNREACHABLE, "no MDM leads: %s", said);
}

Pb__Reply *ash_mgmt_call_sync(const struct ash_mgmt_opts *opts, Pb__Request *req, bool any,
			      uint32_t timeout_ms, struct ash_error *ret_err)
{
	static const struct ash_ctl_events events = {.on_session = on_session};
	struct sync s = {.loop = ev_loop_new(EVFLAG_NOSIGMASK), .req = req};

	if (!s.loop) {
		*ret_err = ash_error_make(ASH_E_INTERNAL, "cannot create an event loop: %s",
					  strerror(errno));
		return NULL;
	}
	s.m = ash_mgmt_new(s.loop, opts, ret_err);
	if (!s.m) {
		ev_loop_destroy(s.loop);
		return NULL;
	}
	s.m->any = any;
	s.m->quiet = true;
	s.m->ctl.events = &events;
	s.m->ctl.owner = &s;
	s.started = ev_now(s.loop);
	s.deadline = s.started + timeout_ms / 1000.;
	ev_timer_init(&s.check, on_check, CHECK_S, CHECK_S);
	ev_timer_start(s.loop, &s.check);
	ask(&s);
	while (!s.over)
		ev_run(s.loop, EVRUN_ONCE);
	if (s.result)
		*ret_err = explain(&s, timeout_ms);
	ash_mgmt_free(s.m);
	ev_timer_stop(s.loop, &s.check);
	ev_loop_destroy(s.loop);
	if (s.reply && s.reply->error && s.reply->error->code != ASH_OK) {
		*ret_err = ash_error_make(s.reply->error->code, "%s", s.reply->error->message);
		pb__reply__free_unpacked(s.reply, NULL);
		s.reply = NULL;
	}
	return s.reply;
}
