// SPDX-License-Identifier: MIT
/* Asking an address whether it leads. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/io/reactor.h"
#include "common/io/sock.h"
#include "common/mgmt/mgmt_int.h"

#define ATTEMPT_S 2.0
#define FIRST_DELAY_S 0.05
#define DELAY_MAX_S 2.0
/* Followers elect within a second: until then they are asked often. */
#define ELECTION_DELAY_MAX_S 0.2
#define ELECTION_ATTEMPTS 12
#define FOLLOWER_DELAY_MAX_S 1.0

static void start_timer(struct mgmt_addr *a, double after)
{
	ev_timer_stop(a->m->loop, &a->timer);
	ev_now_update(a->m->loop);
	ev_timer_set(&a->timer, after, 0.);
	ev_timer_start(a->m->loop, &a->timer);
}

void mgmt_addr_close(struct mgmt_addr *a)
{
	if (a->state != ADDR_IDLE)
		ash_ctl_stream_done(&a->stream);
	a->state = ADDR_IDLE;
	ev_timer_stop(a->m->loop, &a->timer);
}

/* Doubles from 50 ms, with half as much again of jitter either way, so that a thousand clients of a
 * restarted MDM do not come back in step. */
void mgmt_addr_back_off(struct mgmt_addr *a)
{
	double max = a->hard			       ? DELAY_MAX_S
		     : a->failures < ELECTION_ATTEMPTS ? ELECTION_DELAY_MAX_S
						       : FOLLOWER_DELAY_MAX_S;
	double delay = FIRST_DELAY_S * (double)(1u << (a->failures < 6 ? a->failures : 6));
	double jitter = (double)ash_prng_below(&a->m->rng, 1001) / 1000.;

	mgmt_addr_close(a);
	a->failures++;
	start_timer(a, (delay < max ? delay : max) * (0.5 + jitter));
}

static void failed(struct mgmt_addr *a, bool hard, const char *why)
{
	snprintf(a->said, sizeof(a->said), "%s", why);
	a->hard = hard;
	a->attempts++;
	mgmt_addr_back_off(a);
}

static void on_timer(struct ev_loop *loop, ev_timer *timer, int events)
{
	struct mgmt_addr *a = ash_container_of(timer, struct mgmt_addr, timer);

	if (a->state == ADDR_IDLE)
		mgmt_addr_try(a);
	else if (a->state == ADDR_CONNECTING)
		failed(a, true, "no answer to the connection attempt");
	else if (a->state == ADDR_HELLO)
		failed(a, false, "connected, but no answer to HELLO");
}

static void on_up(struct ash_ctl_stream *s)
{
	struct mgmt_addr *a = ash_container_of(s, struct mgmt_addr, stream);
	struct ash_mgmt *m = a->m;
	static const uint8_t none[16];
	Pb__Hello hello = PB__HELLO__INIT;
	Pb__Request req = PB__REQUEST__INIT;

	hello.version_min = hello.version_max = 1;
	hello.role = m->role;
	hello.name = m->name;
	hello.uuid = (ProtobufCBinaryData){16, m->uuid};
	hello.session = (ProtobufCBinaryData){16, m->session_id};
	if (memcmp(m->system, none, 16))
		hello.system = (ProtobufCBinaryData){16, m->system};
	req.r_case = PB__REQUEST__R_HELLO;
	req.hello = &hello;
	a->state = ADDR_HELLO;
	ash_ctl_stream_send(s, ASH_FRAME_REQUEST, &req.base);
}

static void follower(struct mgmt_addr *a, const Pb__HelloReply *hello)
{
	char said[256];

	snprintf(said, sizeof(said), "%.63s is %.31s%s%.79s",
		 hello->mdm_name[0] ? hello->mdm_name : "MDM",
		 hello->state[0] ? hello->state : "not the leader",
		 hello->leader_address[0] ? ", leader is " : ", knows no leader",
		 hello->leader_address);
	if (hello->leader_address[0])
		mgmt_hint(a->m, hello->leader_address);
	ash_ctl_stream_end(&a->stream, 0, said);
}

/* Answer to HELLO. The stream may not be freed here: it ends from the loop. */
static void on_hello(struct mgmt_addr *a, const Pb__Reply *reply)
{
	const Pb__HelloReply *hello = reply->r_case == PB__REPLY__R_HELLO ? reply->hello : NULL;
	bool refused = reply->error && reply->error->code != ASH_OK;

	if (refused && reply->error->code != ASH_E_NOT_LEADER) {
		if (a->failures < ELECTION_ATTEMPTS)
			a->failures = ELECTION_ATTEMPTS; /* no use in asking soon */
		ash_ctl_stream_end(&a->stream, -EACCES, reply->error->message);
	} else if (!hello && refused) {
		if (reply->leader_address[0])
			mgmt_hint(a->m, reply->leader_address);
		ash_ctl_stream_end(&a->stream, 0, reply->error->message);
	} else if (!hello) {
		ash_ctl_stream_end(&a->stream, -EBADMSG, "answers HELLO with something else");
	} else if (hello->version != 1) {
		ash_ctl_stream_end(&a->stream, -EPROTONOSUPPORT,
				   "speaks another version of the control protocol");
	} else if (hello->leader || a->m->any) {
		snprintf(a->said, sizeof(a->said), "%s, %s",
			 hello->mdm_name[0] ? hello->mdm_name : "MDM",
			 hello->leader ? "leader" : hello->state);
		a->attempts++;
		mgmt_session_begin(a);
	} else {
		follower(a, hello);
	}
}

static void on_frame(struct ash_ctl_stream *s, int type, const uint8_t *body, size_t bytes)
{
	struct mgmt_addr *a = ash_container_of(s, struct mgmt_addr, stream);
	ProtobufCMessage *msg;

	if (a->state == ADDR_SESSION) {
		mgmt_session_frame(a->m, type, body, bytes);
		return;
	}
	if (type != ASH_FRAME_REPLY)
		return; /* a push before the answer to HELLO is nothing for us */
	msg = ash_ctl_unpack(&pb__reply__descriptor, body, bytes);
	if (!msg) {
		ash_ctl_stream_end(s, -EBADMSG, "sends what cannot be decoded");
		return;
	}
	on_hello(a, (const Pb__Reply *)msg);
	protobuf_c_message_free_unpacked(msg, NULL);
}

static void on_end(struct ash_ctl_stream *s)
{
	struct mgmt_addr *a = ash_container_of(s, struct mgmt_addr, stream);
	bool was_up = a->state != ADDR_CONNECTING;
	char why[256];

	snprintf(why, sizeof(why), "%s", s->why);
	if (a->state == ADDR_SESSION)
		mgmt_session_lost(a->m, why);
	else
		failed(a, !was_up, why);
}

static const struct ash_ctl_stream_events stream_events = {
	.on_up = on_up, .on_frame = on_frame, .on_end = on_end};

void mgmt_addr_try(struct mgmt_addr *a)
{
	int err;

	if (a->state != ADDR_IDLE)
		return;
	err = ash_ctl_stream_connect(&a->stream, a->m->loop, &a->ep, &stream_events);
	if (err) {
		failed(a, true, strerror(-err));
		return;
	}
	a->state = ADDR_CONNECTING;
	start_timer(a, ATTEMPT_S);
}

struct mgmt_addr *mgmt_addr_add(struct ash_mgmt *m, const char *text, const struct ash_endpoint *ep)
{
	struct mgmt_addr *a;

	ash_list_each(it, &m->addrs) {
		a = ash_container_of(it, struct mgmt_addr, link);
		if (a->ep.port == ep->port && memcmp(a->ep.ip, ep->ip, 16) == 0)
			return a;
	}
	if (m->addr_count == MGMT_ADDRS_MAX)
		return NULL;
	a = ash_xcalloc(1, sizeof(*a));
	a->m = m;
	a->ep = *ep;
	snprintf(a->text, sizeof(a->text), "%s", text);
	snprintf(a->said, sizeof(a->said), "not asked yet");
	ev_timer_init(&a->timer, on_timer, 0., 0.);
	ash_list_push_back(&m->addrs, &a->link);
	m->addr_count++;
	return a;
}

void mgmt_addr_free(struct mgmt_addr *a)
{
	mgmt_addr_close(a);
	ash_list_remove(&a->link);
	a->m->addr_count--;
	free(a);
}

void mgmt_hint(struct ash_mgmt *m, const char *address)
{
	struct ash_error err;
	struct ash_endpoint ep;
	struct mgmt_addr *a;

	if (ash_endpoint_parse_numeric(address, MGMT_PORT, &ep, &err))
		return;
	a = mgmt_addr_add(m, address, &ep);
	if (!a || a->state != ADDR_IDLE)
		return;
	/* Two that name each other must not send us to and fro without a pause. */
	start_timer(a, a->failures ? FIRST_DELAY_S : 0.);
}

void mgmt_said(const struct ash_mgmt *m, char *buf, size_t room)
{
	size_t n = 0;

	buf[0] = '\0';
	ash_list_each(it, &m->addrs) {
		const struct mgmt_addr *a = ash_container_of(it, struct mgmt_addr, link);
		int w = snprintf(buf + n, room - n, "%s%s: %s", n ? "; " : "", a->text, a->said);

		n += w > 0 ? (size_t)w : 0;
		if (n >= room)
			return;
	}
}
