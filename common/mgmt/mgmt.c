// SPDX-License-Identifier: MIT
#include "common/mgmt/mgmt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/base/clean.h"
#include "common/base/log.h"
#include "common/io/reactor.h"
#include "common/io/sock.h"
#include "common/mgmt/mgmt_int.h"

#define WATCH_S 0.25
/* An MDM that owes an answer for so long may have stopped leading without a word. */
#define SUSPECT_S 0.75
#define COMPLAIN_S 30.

/* ------------------------------------------------------------ calls */

static void call_end(struct mgmt_call *c, int result, const Pb__Reply *reply)
{
	void (*done)(void *arg, int result, const Pb__Reply *reply) = c->done;
	void *arg = c->arg;

	ev_timer_stop(c->m->loop, &c->timer);
	ash_list_remove(&c->link);
	free(c);
	done(arg, result, reply);
}

static void on_call_timeout(struct ev_loop *loop, ev_timer *timer, int events)
{
	call_end(ash_container_of(timer, struct mgmt_call, timer), -ETIMEDOUT, NULL);
}

static void send_waiting(struct ash_mgmt *m)
{
	while (m->session && !m->session->stream.ending && !ash_list_empty(&m->waiting)) {
		struct mgmt_call *c = ash_list_first(&m->waiting, struct mgmt_call, link);

		if (ash_ctl_stream_send_packed(&m->session->stream, ASH_FRAME_REQUEST, c->packed,
					       c->bytes))
			return; /* ends; the next session gets it */
		ash_list_remove(&c->link);
		ash_list_push_back(&m->sent, &c->link);
		c->sent_at = ev_now(m->loop);
	}
}

static void mgmt_call(struct ash_ctl *ctl, const Pb__Request *req, uint32_t timeout_ms,
		      void (*done)(void *arg, int result, const Pb__Reply *reply), void *arg)
{
	struct ash_mgmt *m = ash_container_of(ctl, struct ash_mgmt, ctl);
	Pb__Request numbered = *req;
	struct mgmt_call *c;

	numbered.id = ++m->next_id;
	c = ash_xcalloc(1, sizeof(*c) + pb__request__get_packed_size(&numbered));
	c->m = m;
	c->id = numbered.id;
	c->done = done;
	c->arg = arg;
	c->bytes = pb__request__pack(&numbered, c->packed);
	ev_now_update(m->loop);
	ev_timer_init(&c->timer, on_call_timeout, timeout_ms / 1000., 0.);
	ev_timer_start(m->loop, &c->timer);
	ash_list_push_back(&m->waiting, &c->link);
	send_waiting(m);
}

static const struct ash_ctl_ops ctl_ops = {.call = mgmt_call};

/* ------------------------------------------------------------ session */

static void tell_session(struct ash_mgmt *m, bool up)
{
	if (m->ctl.events && m->ctl.events->on_session)
		m->ctl.events->on_session(m->ctl.owner, up);
}

static void stop_other_probes(struct ash_mgmt *m)
{
	ash_list_each(it, &m->addrs) {
		struct mgmt_addr *a = ash_container_of(it, struct mgmt_addr, link);

		if (a != m->session)
			mgmt_addr_close(a);
	}
}

void mgmt_session_begin(struct mgmt_addr *a)
{
	struct ash_mgmt *m = a->m;
	struct ash_list older;

	if (m->session)
		mgmt_session_lost(m, "another MDM leads");
	m->session = a;
	a->state = ADDR_SESSION;
	a->failures = 0;
	m->suspect = false;
	m->heard = ev_now(m->loop);
	ev_timer_stop(m->loop, &a->timer);
	stop_other_probes(m);
	if (!m->quiet)
		ash_log(ASH_LOG_NOTICE, "event=mdm_session state=up address=%s who=\"%s\"", a->text,
			a->said);
	/* The owner registers first; older requests follow. */
	ash_list_init(&older);
	while (!ash_list_empty(&m->waiting))
		ash_list_push_back(&older, ash_list_pop(&m->waiting));
	tell_session(m, true);
	while (!ash_list_empty(&older))
		ash_list_push_back(&m->waiting, ash_list_pop(&older));
	send_waiting(m);
}

static void ask_all(struct ash_mgmt *m)
{
	ash_list_each(it, &m->addrs) {
		struct mgmt_addr *a = ash_container_of(it, struct mgmt_addr, link);

		if (a->state == ADDR_IDLE && !ev_is_active(&a->timer))
			mgmt_addr_try(a);
	}
}

void mgmt_session_lost(struct ash_mgmt *m, const char *why)
{
	struct mgmt_addr *a = m->session;
	uint64_t newest = m->next_id;

	m->session = NULL;
	m->suspect = false;
	if (!m->quiet)
		ash_log(ASH_LOG_NOTICE, "event=mdm_session state=lost address=%s why=\"%s\"",
			a->text, why);
	snprintf(a->said, sizeof(a->said), "session ended: %s", why);
	a->hard = false;
	mgmt_addr_back_off(a);
	tell_session(m, false);
	/* It got these; whether it carried them out is unknown. */
	while (!ash_list_empty(&m->sent)) {
		struct mgmt_call *c = ash_list_first(&m->sent, struct mgmt_call, link);

		if (c->id > newest)
			break;
		call_end(c, -ECONNRESET, NULL);
	}
	ask_all(m);
}

/* It answers that it does not lead: nothing was carried out, the next leader gets the request. */
static void not_leader(struct ash_mgmt *m, struct mgmt_call *c, const Pb__Reply *reply)
{
	ash_list_remove(&c->link);
	ash_list_push_front(&m->waiting, &c->link);
	m->any = false;
	if (reply->leader_address[0])
		mgmt_hint(m, reply->leader_address);
	ash_ctl_stream_end(&m->session->stream, -ECONNABORTED, "it does not lead any more");
}

static void on_reply(struct ash_mgmt *m, const Pb__Reply *reply)
{
	ash_list_each(it, &m->sent) {
		struct mgmt_call *c = ash_container_of(it, struct mgmt_call, link);

		if (c->id != reply->id)
			continue;
		if (reply->error && reply->error->code == ASH_E_NOT_LEADER)
			not_leader(m, c, reply);
		else
			call_end(c, 0, reply);
		return;
	}
	/* The call has timed out: nobody waits for this. */
}

static void on_push(struct ash_mgmt *m, const Pb__Push *push)
{
	struct mgmt_addr *a = m->session;
	struct ash_endpoint ep;
	struct ash_error err;

	if (push->p_case != PB__PUSH__P_LEADER_ADDRESS) {
		if (m->ctl.events && m->ctl.events->on_push)
			m->ctl.events->on_push(m->ctl.owner, push);
		return;
	}
	if (push->leader_address[0] &&
	    !ash_endpoint_parse_numeric(push->leader_address, MGMT_PORT, &ep, &err) &&
	    ep.port == a->ep.port && memcmp(ep.ip, a->ep.ip, 16) == 0)
		return; /* it is the leader itself */
	mgmt_hint(m, push->leader_address);
	ash_ctl_stream_end(&a->stream, -ECONNABORTED, "it says that another MDM leads");
}

void mgmt_session_frame(struct ash_mgmt *m, int type, const uint8_t *body, size_t bytes)
{
	bool reply = type == ASH_FRAME_REPLY;
	ProtobufCMessage *msg;

	m->heard = ev_now(m->loop);
	if (m->suspect) {
		m->suspect = false;
		stop_other_probes(m);
	}
	if (!reply && type != ASH_FRAME_PUSH)
		return; /* newer than we are; not for us */
	msg = ash_ctl_unpack(reply ? &pb__reply__descriptor : &pb__push__descriptor, body, bytes);
	if (!msg) {
		ash_ctl_stream_end(&m->session->stream, -EBADMSG,
				   "it sends what cannot be decoded");
		return;
	}
	if (reply)
		on_reply(m, (const Pb__Reply *)msg);
	else
		on_push(m, (const Pb__Push *)msg);
	protobuf_c_message_free_unpacked(msg, NULL);
}

/* ------------------------------------------------------------ watch */

static void complain(struct ash_mgmt *m)
{
	char said[ASH_ERROR_TEXT];

	if (m->quiet || ev_now(m->loop) - m->complained < COMPLAIN_S)
		return;
	m->complained = ev_now(m->loop);
	mgmt_said(m, said, sizeof(said));
	ash_log(ASH_LOG_WARN, "event=no_mdm_leads said=\"%s\"", said);
}

static void on_watch(struct ev_loop *loop, ev_timer *timer, int events)
{
	struct ash_mgmt *m = ash_container_of(timer, struct ash_mgmt, watch);
	const struct mgmt_call *oldest;

	if (!m->session) {
		complain(m);
		return;
	}
	m->complained = ev_now(loop);
	if (ash_list_empty(&m->sent))
		return;
	oldest = ash_list_first(&m->sent, struct mgmt_call, link);
	if (ev_now(loop) - oldest->sent_at > SUSPECT_S && ev_now(loop) - m->heard > SUSPECT_S) {
		m->suspect = true;
		ask_all(m);
	}
}

/* ------------------------------------------------------------ set-up */

static bool add_given(struct ash_mgmt *m, const char *list, struct ash_error *ret_err)
{
	ash_auto_free char *copy = ash_xstrdup(list);
	struct ash_error err, first = ash_error_make(ASH_E_USAGE, "no MDM address is given");
	struct ash_endpoint ep;
	char *save = NULL;

	for (char *t = strtok_r(copy, ", \t", &save); t; t = strtok_r(NULL, ", \t", &save)) {
		if (ash_endpoint_parse(t, MGMT_PORT, &ep, &err) == 0) {
			mgmt_addr_add(m, t, &ep);
			continue;
		}
		if (first.code == ASH_E_USAGE)
			first = err;
		if (!m->quiet)
			ash_log(ASH_LOG_WARN, "event=mdm_address_ignored why=\"%s\"", err.message);
	}
	if (m->addr_count > 0)
		return true;
	*ret_err = first;
	ash_error_wrap(ret_err, "MDM addresses \"%s\": ", list);
	return false;
}

struct ash_mgmt *ash_mgmt_new(struct ev_loop *loop, const struct ash_mgmt_opts *opts,
			      struct ash_error *ret_err)
{
	const char *list = opts->mdms ? opts->mdms : getenv("ASHLAR_MDM");
	struct ash_mgmt *m = ash_xcalloc(1, sizeof(*m));
	uint64_t seed = 0;

	if (getrandom(&seed, sizeof(seed), 0) < 0)
		seed = (uint64_t)(ev_time() * 1e6);
	ash_prng_seed(&m->rng, seed);
	m->ctl.ops = &ctl_ops;
	m->loop = loop;
	ash_list_init(&m->addrs);
	ash_list_init(&m->waiting);
	ash_list_init(&m->sent);
	snprintf(m->role, sizeof(m->role), "%s", opts->role);
	snprintf(m->name, sizeof(m->name), "%s", opts->name);
	m->quiet = strcmp(m->role, "cli") == 0;
	memcpy(m->uuid, opts->uuid, 16);
	memcpy(m->session_id, opts->session, 16);
	memcpy(m->system, opts->system, 16);
	ev_timer_init(&m->watch, on_watch, WATCH_S, WATCH_S);
	if (!add_given(m, list && list[0] ? list : "127.0.0.1:6611", ret_err)) {
		free(m);
		return NULL;
	}
	m->complained = ev_now(loop);
	ev_timer_start(loop, &m->watch);
	/* From the loop, so that the caller can set events and owner first. */
	ash_list_each(it, &m->addrs) {
		struct mgmt_addr *a = ash_container_of(it, struct mgmt_addr, link);

		ev_timer_start(loop, &a->timer);
	}
	return m;
}

void ash_mgmt_free(struct ash_mgmt *m)
{
	if (!m)
		return;
	ev_timer_stop(m->loop, &m->watch);
	m->session = NULL;
	while (!ash_list_empty(&m->addrs))
		mgmt_addr_free(ash_list_first(&m->addrs, struct mgmt_addr, link));
	while (!ash_list_empty(&m->sent))
		ash_list_push_back(&m->waiting, ash_list_pop(&m->sent));
	while (!ash_list_empty(&m->waiting)) {
		struct mgmt_call *c = ash_list_first(&m->waiting, struct mgmt_call, link);

		ev_timer_stop(m->loop, &c->timer);
		ash_list_remove(&c->link);
		free(c);
	}
	free(m);
}

struct ash_ctl *ash_mgmt_ctl(struct ash_mgmt *m)
{
	return &m->ctl;
}

void ash_mgmt_learn(struct ash_mgmt *m, const char *address)
{
	struct ash_endpoint ep;
	struct ash_error err;
	struct mgmt_addr *a;

	if (ash_endpoint_parse_numeric(address, MGMT_PORT, &ep, &err))
		return; /* no name server may be asked from the loop */
	a = mgmt_addr_add(m, address, &ep);
	if (a && !m->session && a->state == ADDR_IDLE && !ev_is_active(&a->timer))
		mgmt_addr_try(a);
}
