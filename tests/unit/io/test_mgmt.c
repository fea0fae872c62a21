// SPDX-License-Identifier: MIT
/* The client against MDMs that lead, follow, change their mind, say nothing, and die. */
#include <errno.h>
#include <ev.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/err.h"
#include "common/base/list.h"
#include "common/io/ctl_server.h"
#include "common/io/reactor.h"
#include "common/io/sock.h"
#include "common/mgmt/mgmt.h"

#define MDMS 3

/* ------------------------------------------------------------ MDMs */

struct mdm {
	struct ev_loop *loop;
	struct ash_ctl_server *srv;
	struct ash_endpoint at;
	struct ash_ctl_peer *peer[64];
	unsigned peers, hellos, requests;
	bool leader, mute, drop, refuse, busy_not_leader;
	char hint[64], name[16], address[64];
};

static void *on_open(void *arg, struct ash_ctl_peer *peer)
{
	struct mdm *m = arg;

	assert_true(m->peers < 64);
	m->peer[m->peers++] = peer;
	return m;
}

static void on_close(void *arg, struct ash_ctl_peer *peer)
{
	struct mdm *m = arg;
	unsigned i = 0;

	while (m->peer[i] != peer)
		i++;
	m->peer[i] = m->peer[--m->peers];
}

static void answer_hello(struct mdm *m, struct ash_ctl_peer *peer, const Pb__Request *req)
{
	Pb__Reply reply = PB__REPLY__INIT;
	Pb__HelloReply hello = PB__HELLO_REPLY__INIT;
	Pb__Error error = PB__ERROR__INIT;

	m->hellos++;
	reply.id = req->id;
	if (m->refuse) {
		error.code = ASH_E_DENIED;
		error.message = "system: this is another one";
		reply.error = &error;
	} else {
		hello.version = 1;
		hello.leader = m->leader;
		hello.leader_address = m->hint;
		hello.mdm_name = m->name;
		hello.state = m->leader ? "leader" : "follower";
		reply.r_case = PB__REPLY__R_HELLO;
		reply.hello = &hello;
	}
	ash_ctl_peer_reply(peer, &reply);
}

static void on_request(void *arg, struct ash_ctl_peer *peer, const Pb__Request *req)
{
	struct mdm *m = arg;
	Pb__Reply reply = PB__REPLY__INIT;
	Pb__AdminReply admin = PB__ADMIN_REPLY__INIT;
	Pb__Error error = PB__ERROR__INIT;

	if (req->r_case == PB__REQUEST__R_HELLO) {
		if (!m->mute)
			answer_hello(m, peer, req);
		return;
	}
	m->requests++;
	if (m->mute)
		return;
	if (m->drop) {
		ash_ctl_peer_close(peer);
		return;
	}
	reply.id = req->id;
	if (!m->leader || m->busy_not_leader) {
		error.code = ASH_E_NOT_LEADER;
		error.message = "not the leader";
		reply.error = &error;
		reply.leader_address = m->hint;
	} else {
		admin.note = m->name;
		reply.r_case = PB__REPLY__R_ADMIN;
		reply.admin = &admin;
	}
	ash_ctl_peer_reply(peer, &reply);
}

static const struct ash_ctl_server_events mdm_events = {on_open, on_request, on_close};

static void mdm_start(struct mdm *m, struct ev_loop *loop)
{
	struct ash_error err;

	m->loop = loop;
	m->srv = ash_ctl_server_new(loop, &m->at, &mdm_events, m, &err);
	if (!m->srv)
		fail_msg("%s", err.message);
	m->at.port = ash_ctl_server_port(m->srv);
	ash_endpoint_text(&m->at, m->address, sizeof(m->address));
}

static void mdm_stop(struct mdm *m)
{
	ash_ctl_server_free(m->srv);
	m->srv = NULL;
}

/* ------------------------------------------------------------ a client and three MDMs */

struct world {
	struct ev_loop *loop;
	struct mdm mdm[MDMS];
	char list[256];
	struct ash_mgmt *m;
	struct ash_ctl *ctl;
	unsigned ups, downs, pushes;
	bool up;
};

struct answer {
	struct world *w;
	bool came;
	int result;
	int code;
	char note[32];
};

static void on_session(void *owner, bool up)
{
	struct world *w = owner;

	assert_int_not_equal(w->up, up);
	w->up = up;
	if (up)
		w->ups++;
	else
		w->downs++;
}

static void on_push(void *owner, const Pb__Push *push)
{
	((struct world *)owner)->pushes++;
}

static const struct ash_ctl_events ctl_events = {on_session, on_push};

static void world_mdms(struct world *w, struct ev_loop *loop)
{
	struct ash_error err;

	memset(w, 0, sizeof(*w));
	w->loop = loop;
	for (int i = 0; i < MDMS; i++) {
		snprintf(w->mdm[i].name, sizeof(w->mdm[i].name), "mdm%d", i + 1);
		assert_int_equal(ash_endpoint_parse("127.0.0.1:0", 0, &w->mdm[i].at, &err), 0);
		mdm_start(&w->mdm[i], loop);
		snprintf(w->list + strlen(w->list), sizeof(w->list) - strlen(w->list), "%s%s",
			 i ? "," : "", w->mdm[i].address);
	}
}

static void world_init(struct world *w)
{
	struct ash_mgmt_opts opts = {.role = "cli", .name = "test"};
	struct ash_error err;

	world_mdms(w, ev_loop_new(0));
	opts.mdms = w->list;
	w->m = ash_mgmt_new(w->loop, &opts, &err);
	assert_non_null(w->m);
	w->ctl = ash_mgmt_ctl(w->m);
	w->ctl->events = &ctl_events;
	w->ctl->owner = w;
}

static void world_done(struct world *w)
{
	ash_mgmt_free(w->m);
	for (int i = 0; i < MDMS; i++)
		mdm_stop(&w->mdm[i]);
	ev_loop_destroy(w->loop);
}

static void lead(struct world *w, int leader)
{
	for (int i = 0; i < MDMS; i++) {
		w->mdm[i].leader = i == leader;
		snprintf(w->mdm[i].hint, sizeof(w->mdm[i].hint), "%s",
			 leader < 0 ? "" : w->mdm[leader].address);
	}
}

#define UNTIL(w, cond)                                                                             \
	while (!(cond))                                                                            \
	ev_run((w)->loop, EVRUN_ONCE)

static void on_done(void *arg, int result, const Pb__Reply *reply)
{
	struct answer *a = arg;

	assert_false(a->came);
	a->came = true;
	a->result = result;
	assert_int_equal(reply != NULL, result == 0);
	if (reply && reply->error)
		a->code = reply->error->code;
	else if (reply)
		snprintf(a->note, sizeof(a->note), "%s", reply->admin->note);
}

static void ask(struct world *w, struct answer *a, uint32_t timeout_ms)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__Query query = PB__QUERY__INIT;

	memset(a, 0, sizeof(*a));
	req.r_case = PB__REQUEST__R_QUERY;
	req.query = &query;
	w->ctl->ops->call(w->ctl, &req, timeout_ms, on_done, a);
	assert_false(a->came);
}

static void test_finds_the_leader(void **state)
{
	struct world w;
	struct answer a[3];

	for (int leader = 0; leader < MDMS; leader++) {
		world_init(&w);
		lead(&w, leader);
		for (int i = 0; i < 3; i++) /* before there is a session */
			ask(&w, &a[i], 60000);
		UNTIL(&w, a[0].came && a[1].came && a[2].came);
		assert_int_equal(a[0].result, 0);
		assert_string_equal(a[2].note, w.mdm[leader].name);
		assert_int_equal(w.ups, 1);
		world_done(&w);
	}
}

static void test_follows_a_change(void **state)
{
	struct world w;
	struct answer a;
	Pb__Push push = PB__PUSH__INIT;

	world_init(&w);
	lead(&w, 0);
	UNTIL(&w, w.up);
	lead(&w, 1);
	ask(&w, &a, 60000); /* the answer is "not the leader": the next one gets it */
	UNTIL(&w, a.came);
	assert_string_equal(a.note, "mdm2");
	assert_int_equal(w.ups, 2);
	/* A leader that knows better says so by a push. */
	lead(&w, 2);
	push.p_case = PB__PUSH__P_LEADER_ADDRESS;
	push.leader_address = w.mdm[2].address;
	for (unsigned i = 0; i < w.mdm[1].peers; i++)
		ash_ctl_peer_push(w.mdm[1].peer[i], &push);
	UNTIL(&w, w.ups == 3);
	ask(&w, &a, 60000);
	UNTIL(&w, a.came);
	assert_string_equal(a.note, "mdm3");
	assert_int_equal(w.pushes, 0);
	world_done(&w);
}

static void test_pushes_arrive(void **state)
{
	struct world w;
	Pb__Push push = PB__PUSH__INIT;
	Pb__Map map = PB__MAP__INIT;

	world_init(&w);
	lead(&w, 0);
	UNTIL(&w, w.up);
	push.p_case = PB__PUSH__P_MAP;
	push.map = &map;
	ash_ctl_peer_push(w.mdm[0].peer[0], &push);
	UNTIL(&w, w.pushes == 1);
	world_done(&w);
}

static void test_leader_dies(void **state)
{
	struct world w;
	struct answer lost, waits;

	world_init(&w);
	lead(&w, 0);
	UNTIL(&w, w.up);
	w.mdm[0].mute = true;
	ask(&w, &lost, 60000);
	UNTIL(&w, w.mdm[0].requests == 1);
	mdm_stop(&w.mdm[0]); /* it got the request, nobody knows what became of it */
	UNTIL(&w, lost.came);
	assert_int_equal(lost.result, -ECONNRESET);
	assert_false(w.up);
	lead(&w, -1);
	ask(&w, &waits, 60000);
	lead(&w, 1);
	UNTIL(&w, waits.came);
	assert_string_equal(waits.note, "mdm2");
	mdm_start(&w.mdm[0], w.loop);
	world_done(&w);
}

/* Its host hangs: no reset ever comes, and another one leads. */
static void test_leader_falls_silent(void **state)
{
	struct world w;
	struct answer a;

	world_init(&w);
	lead(&w, 0);
	UNTIL(&w, w.up);
	w.mdm[0].mute = true;
	lead(&w, 2);
	ask(&w, &a, 60000);
	UNTIL(&w, w.ups == 2);
	assert_true(a.came);
	assert_int_equal(a.result, -ECONNRESET);
	ask(&w, &a, 60000);
	UNTIL(&w, a.came);
	assert_string_equal(a.note, "mdm3");
	world_done(&w);
}

static void test_timeout_and_refusal(void **state)
{
	struct world w;
	struct answer a, b;

	world_init(&w);
	lead(&w, -1);
	ask(&w, &a, 30);
	UNTIL(&w, a.came);
	assert_int_equal(a.result, -ETIMEDOUT);
	for (int i = 0; i < MDMS; i++)
		w.mdm[i].refuse = true;
	ask(&w, &b, 700);
	UNTIL(&w, b.came);
	assert_int_equal(b.result, -ETIMEDOUT);
	assert_int_equal(w.ups, 0);
	/* Backing off, not hammering. */
	assert_true(w.mdm[0].hellos < 30);
	world_done(&w);
}

/* All of them say that somebody else leads, in a ring. */
static void test_hints_in_a_ring(void **state)
{
	struct world w;
	struct answer a;

	world_init(&w);
	lead(&w, -1);
	for (int i = 0; i < MDMS; i++)
		snprintf(w.mdm[i].hint, sizeof(w.mdm[i].hint), "%s", w.mdm[(i + 1) % MDMS].address);
	ask(&w, &a, 500);
	UNTIL(&w, a.came);
	assert_int_equal(a.result, -ETIMEDOUT);
	assert_true(w.mdm[0].hellos < 40);
	world_done(&w);
}

static void test_learned_address(void **state)
{
	struct world w;
	struct ash_mgmt_opts opts = {.role = "sds"};
	struct ash_error err;

	world_init(&w);
	ash_mgmt_free(w.m);
	lead(&w, 1);
	w.mdm[0].hint[0] = '\0';
	opts.mdms = w.mdm[0].address;
	w.m = ash_mgmt_new(w.loop, &opts, &err);
	w.ctl = ash_mgmt_ctl(w.m);
	w.ctl->events = &ctl_events;
	w.ctl->owner = &w;
	ash_mgmt_learn(w.m, "no.such.name.invalid:1");
	ash_mgmt_learn(w.m, w.mdm[1].address);
	UNTIL(&w, w.up);
	world_done(&w);
}

static void test_no_address(void **state)
{
	struct ash_mgmt_opts opts = {.mdms = "127.0.0.1:99999", .role = "cli"};
	struct ash_error err;
	struct ev_loop *loop = ev_loop_new(0);

	assert_null(ash_mgmt_new(loop, &opts, &err));
	assert_non_null(strstr(err.message, "127.0.0.1:99999"));
	ev_loop_destroy(loop);
}

/* ------------------------------------------------------------ the blocking variant */

struct threaded {
	struct world w;
	pthread_t thread;
	ev_async stop;
};

static void on_stop(struct ev_loop *loop, ev_async *a, int events)
{
	ev_break(loop, EVBREAK_ALL);
}

static void *serve(void *arg)
{
	struct threaded *t = arg;

	ev_run(t->w.loop, 0);
	return NULL;
}

static void threaded_start(struct threaded *t, int leader)
{
	world_mdms(&t->w, ev_loop_new(0));
	lead(&t->w, leader);
	ev_async_init(&t->stop, on_stop);
	ev_async_start(t->w.loop, &t->stop);
}

static void threaded_run(struct threaded *t)
{
	assert_int_equal(pthread_create(&t->thread, NULL, serve, t), 0);
}

static void threaded_end(struct threaded *t)
{
	ev_async_send(t->w.loop, &t->stop);
	pthread_join(t->thread, NULL);
	for (int i = 0; i < MDMS; i++)
		mdm_stop(&t->w.mdm[i]);
	ev_async_stop(t->w.loop, &t->stop);
	ev_loop_destroy(t->w.loop);
}

static Pb__Reply *call_sync(const char *mdms, bool change, bool any, uint32_t ms,
			    struct ash_error *err)
{
	struct ash_mgmt_opts opts = {.mdms = mdms, .role = "cli"};
	Pb__Request req = PB__REQUEST__INIT;
	Pb__Query query = PB__QUERY__INIT;
	Pb__Admin admin = PB__ADMIN__INIT;

	*err = ash_error_ok();
	req.r_case = change ? PB__REQUEST__R_ADMIN : PB__REQUEST__R_QUERY;
	if (change)
		req.admin = &admin;
	else
		req.query = &query;
	return ash_mgmt_call_sync(&opts, &req, any, ms, err);
}

static void test_sync_works(void **state)
{
	struct threaded t;
	struct ash_error err;
	Pb__Reply *r;

	threaded_start(&t, 1);
	threaded_run(&t);
	r = call_sync(t.w.list, true, false, 60000, &err);
	assert_non_null(r);
	assert_string_equal(r->admin->note, "mdm2");
	pb__reply__free_unpacked(r, NULL);
	/* A follower is asked, says that it does not lead, and the leader gets it. */
	r = call_sync(t.w.mdm[0].address, false, true, 60000, &err);
	assert_non_null(r);
	assert_string_equal(r->admin->note, "mdm2");
	pb__reply__free_unpacked(r, NULL);
	threaded_end(&t);
}

static void test_sync_nobody_there(void **state)
{
	struct ash_error err;
	struct ash_endpoint at;
	uint16_t port;
	char list[128];
	int fd;

	assert_int_equal(ash_endpoint_parse("127.0.0.1:0", 0, &at, &err), 0);
	fd = ash_sock_listen(&at, &port, &err);
	close(fd);
	snprintf(list, sizeof(list), "127.0.0.1:%u,127.0.0.2:%u", port, port);
	assert_null(call_sync(list, false, false, 60000, &err));
	assert_int_equal(err.code, ASH_E_UNREACHABLE);
	assert_non_null(strstr(err.message, "127.0.0.2:"));
	assert_non_null(strstr(err.message, "refused"));
}

static void test_sync_no_leader(void **state)
{
	struct threaded t;
	struct ash_error err;

	threaded_start(&t, -1);
	t.w.mdm[2].refuse = true;
	threaded_run(&t);
	assert_null(call_sync(t.w.list, true, false, 500, &err));
	assert_int_equal(err.code, ASH_E_UNREACHABLE);
	assert_non_null(strstr(err.message, "mdm1 is follower"));
	assert_non_null(strstr(err.message, "this is another one"));
	threaded_end(&t);
}

static void test_sync_outcome_unknown(void **state)
{
	struct threaded t;
	struct ash_error err;

	threaded_start(&t, 0);
	t.w.mdm[0].drop = true;
	threaded_run(&t);
	assert_null(call_sync(t.w.list, true, false, 60000, &err));
	assert_int_equal(err.code, ASH_E_UNREACHABLE);
	assert_non_null(strstr(err.message, "unknown"));
	threaded_end(&t);
	assert_int_equal(t.w.mdm[0].requests, 1); /* never repeated */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_finds_the_leader),
		cmocka_unit_test(test_follows_a_change),
		cmocka_unit_test(test_pushes_arrive),
		cmocka_unit_test(test_leader_dies),
		cmocka_unit_test(test_leader_falls_silent),
		cmocka_unit_test(test_timeout_and_refusal),
		cmocka_unit_test(test_hints_in_a_ring),
		cmocka_unit_test(test_learned_address),
		cmocka_unit_test(test_no_address),
		cmocka_unit_test(test_sync_works),
		cmocka_unit_test(test_sync_nobody_there),
		cmocka_unit_test(test_sync_no_leader),
		cmocka_unit_test(test_sync_outcome_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
