/* SPDX-License-Identifier: MIT */
/* Control channels between processes and the simulated MDM members. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "tests/sim/mdm_int.h"

enum letter_kind { LETTER_REQUEST, LETTER_REPLY, LETTER_PUSH, LETTER_CLOSE };

struct letter {
	struct letter *next;
	struct sim_item item;
	struct link *link;
	uint64_t at;
	enum letter_kind kind;
	bool to_mdm;
	size_t bytes;
	uint8_t data[];
};

/* One direction of a connection: in order. */
struct lane {
	struct link *link;
	struct letter *first, **last;
	struct sim_event event;
	uint64_t last_at, blocked_since, held_until;
};

/* One connection. Lives until both ends are gone and nothing is on its way. */
struct link {
	struct link *next;
	struct sim_mdm *mdm;
	struct sim_ctl *ctl;   /* NULL: the client's end is gone */
	struct member *member; /* NULL: the member's end is gone */
	struct mdm_session *session;
	struct lane lane[2]; /* 0 to the client, 1 to the member */
	unsigned refs;
};

struct call {
	struct call *next;
	struct ash_timer timer; /* of the process */
	struct sim_ctl *ctl;
	uint64_t id;
	bool sent;
	void (*done)(void *arg, int result, const Pb__Reply *reply);
	void *arg;
	size_t bytes;
	uint8_t *data;
};

struct sim_ctl {
	struct ash_ctl c; /* first */
	struct sim_ctl *next;
	struct sim_mdm *mdm;
	struct sim_proc *p; /* NULL: dead */
	char role[8], name[32];
	uint8_t uuid[16], session[16];
	struct link *link;
	bool up;
	uint64_t next_id, hello_id;
	int hint; /* member that is said to lead, -1 unknown */
	uint64_t deaf_until;
	struct call *calls, **calls_end;
	struct sim_event connect_event;
};

/* ------------------------------------------------------------ letters */

static void link_put(struct link *l)
{
	struct link **at;

	if (--l->refs || l->ctl || l->member)
		return;
	for (at = &l->mdm->links; *at != l; at = &(*at)->next)
		;
	*at = l->next;
	sim_cancel(l->mdm->w, &l->lane[0].event);
	sim_cancel(l->mdm->w, &l->lane[1].event);
	free(l);
}

static void letter_free(struct letter *m)
{
	struct link *l = m->link;

	free(m);
	link_put(l);
}

static void letter_drop(struct sim_item *item)
{
	letter_free(sim_container(item, struct letter, item));
}

static void letter_run(struct sim_item *item);

static void post(struct link *l, bool to_mdm, enum letter_kind kind, size_t bytes,
		 size_t (*pack)(const void *from, uint8_t *out), const void *from)
{
	struct letter *m = malloc(sizeof(*m) + bytes);
	struct lane *lane = &l->lane[to_mdm];

	if (!m)
		abort();
	memset(m, 0, sizeof(*m));
	m->item.run = letter_run;
	m->item.drop = letter_drop;
	m->link = l;
	m->kind = kind;
	m->to_mdm = to_mdm;
	m->bytes = bytes;
	if (pack)
		pack(from, m->data);
	l->refs++;
	m->at = l->mdm->w->now + sim_latency(l->mdm->w, 100 * SIM_US);
	if (m->at <= lane->last_at)
		m->at = lane->last_at + 1;
	lane->last_at = m->at;
	*lane->last = m;
	lane->last = &m->next;
	if (lane->first == m)
		sim_at(l->mdm->w, &lane->event, m->at);
}

static size_t pack_request(const void *from, uint8_t *out)
{
	return pb__request__pack(from, out);
}

static size_t pack_reply(const void *from, uint8_t *out)
{
	return pb__reply__pack(from, out);
}

static size_t pack_push(const void *from, uint8_t *out)
{
	return pb__push__pack(from, out);
}

static bool blocked(const struct lane *lane)
{
	const struct link *l = lane->link;
	const struct sim_fabric *f = l->mdm->fabric;
	bool to_mdm = lane == &l->lane[1];
	unsigned from, to;

	if (l->mdm->unreachable_until > l->mdm->w->now)
		return true;
	if (!l->ctl || !l->member)
		return false;
	from = l->ctl->p->host->index;
	to = l->member->host.index;
	return to_mdm ? f->cut[from][to] : f->cut[to][from];
}

static void break_link(struct link *l);

static void on_lane_event(struct sim_event *event)
{
	struct lane *lane = sim_container(event, struct lane, event);
	struct link *l = lane->link;
	struct sim_world *w = l->mdm->w;
	struct letter *m;

	if (lane->held_until > w->now) {
		sim_at(w, &lane->event, lane->held_until);
		return;
	}
	/* That a connection is over is found out at each end, without a message. */
	if (blocked(lane) && lane->first && lane->first->kind != LETTER_CLOSE) {
		if (!lane->blocked_since)
			lane->blocked_since = w->now;
		if (w->now - lane->blocked_since > 4 * SIM_S)
			break_link(l);
		else
			sim_in(w, &lane->event, 20 * SIM_MS);
		return;
	}
	lane->blocked_since = 0;
	l->refs++;
	while ((m = lane->first) && m->at <= w->now) {
		lane->first = m->next;
		if (!lane->first)
			lane->last = &lane->first;
		if (m->to_mdm && l->member)
			sim_proc_push(l->member->p, &m->item);
		else if (!m->to_mdm && l->ctl)
			sim_proc_push(l->ctl->p, &m->item);
		else
			letter_free(m);
	}
	if (lane->first)
		sim_at(w, &lane->event, lane->first->at);
	link_put(l);
}

static void drop_lane(struct lane *lane)
{
	struct letter *m;

	while ((m = lane->first)) {
		lane->first = m->next;
		letter_free(m);
	}
	lane->last = &lane->first;
}

/* ------------------------------------------------------------ ends */

static void reconnect_in(struct sim_ctl *ctl, uint64_t ns)
{
	if (ctl->p)
		sim_in(ctl->mdm->w, &ctl->connect_event, ns);
}

/* Calls that were sent may have been carried out or not. */
static void fail_sent_calls(struct sim_ctl *ctl)
{
	struct call **at = &ctl->calls, *k, *failed = NULL;

	while ((k = *at)) {
		if (!k->sent) {
			at = &k->next;
			continue;
		}
		*at = k->next;
		k->next = failed;
		failed = k;
	}
	ctl->calls_end = at;
	while ((k = failed)) {
		failed = k->next;
		ash_timer_cancel(&ctl->p->timers, &k->timer);
		k->done(k->arg, -ECONNRESET, NULL);
		free(k->data);
		free(k);
	}
}

/* The client's end closes; in its turn. */
static void client_closes(struct sim_ctl *ctl, bool tell)
{
	struct link *l = ctl->link;
	bool was_up = ctl->up;

	if (!l)
		return;
	l->refs++;
	ctl->link = NULL;
	ctl->up = false;
	l->ctl = NULL;
	drop_lane(&l->lane[0]);
	if (l->member)
		post(l, true, LETTER_CLOSE, 0, NULL, NULL);
	link_put(l);
	if (!tell)
		return;
	fail_sent_calls(ctl);
	if (was_up)
		ctl->c.events->on_session(ctl->c.owner, false);
	reconnect_in(ctl, 1 + sim_below(ctl->mdm->w, 100 * SIM_MS));
}

static void member_closes(struct link *l, bool tell_client)
{
	if (!l->member)
		return;
	l->refs++;
	if (l->session)
		mdm_session_free(l->session);
	l->session = NULL;
	l->member = NULL;
	drop_lane(&l->lane[1]);
	if (l->ctl && tell_client)
		post(l, false, LETTER_CLOSE, 0, NULL, NULL);
	link_put(l);
}

/* Both ends hear that it is over, each in its own time. */
static void break_link(struct link *l)
{
	l->refs++;
	drop_lane(&l->lane[0]);
	drop_lane(&l->lane[1]);
	if (l->ctl) {
		post(l, false, LETTER_CLOSE, 0, NULL, NULL);
		l->lane[0].first->at += sim_below(l->mdm->w, 2 * SIM_S);
	}
	if (l->member) {
		post(l, true, LETTER_CLOSE, 0, NULL, NULL);
		l->lane[1].first->at += sim_below(l->mdm->w, 2 * SIM_S);
	}
	link_put(l);
}

void sim_ctl_closed_by_mdm(void *shell)
{
	struct link *l = shell;

	/* Not from inside of the service: as if the connection had broken just now. */
	if (l->member)
		post(l, true, LETTER_CLOSE, 0, NULL, NULL);
	if (l->ctl)
		post(l, false, LETTER_CLOSE, 0, NULL, NULL);
}

void sim_ctl_member_died(struct sim_mdm *mdm, struct member *m)
{
	struct link *l, *next;

	for (l = mdm->links; l; l = next) {
		next = l->next;
		if (l->member == m)
			member_closes(l, true);
	}
}

/* ------------------------------------------------------------ requests and answers */

void sim_ctl_reply(void *shell, const Pb__Reply *reply)
{
	post(shell, false, LETTER_REPLY, pb__reply__get_packed_size(reply), pack_reply, reply);
}

void sim_ctl_push(void *shell, const Pb__Push *push)
{
	post(shell, false, LETTER_PUSH, pb__push__get_packed_size(push), pack_push, push);
}

static void send_call(struct sim_ctl *ctl, struct call *k)
{
	Pb__Request *req = pb__request__unpack(NULL, k->bytes, k->data);

	k->sent = true;
	req->id = k->id;
	post(ctl->link, true, LETTER_REQUEST, pb__request__get_packed_size(req), pack_request, req);
	pb__request__free_unpacked(req, NULL);
}

static void finish_call(struct sim_ctl *ctl, struct call *k, int result, const Pb__Reply *reply)
{
	struct call **at = &ctl->calls;

	while (*at != k)
		at = &(*at)->next;
	*at = k->next;
	if (!k->next)
		ctl->calls_end = at;
	ash_timer_cancel(&ctl->p->timers, &k->timer);
	k->done(k->arg, result, reply);
	free(k->data);
	free(k);
}

static void on_call_timeout(struct ash_timer *timer)
{
	struct call *k = sim_container(timer, struct call, timer);

	finish_call(k->ctl, k, -ETIMEDOUT, NULL);
}

static void ctl_call(struct ash_ctl *c, const Pb__Request *req, uint32_t timeout_ms,
		     void (*done)(void *arg, int result, const Pb__Reply *reply), void *arg)
{
	struct sim_ctl *ctl = (struct sim_ctl *)c;
	struct call *k = calloc(1, sizeof(*k));

	if (!k)
		abort();
	k->ctl = ctl;
	k->id = ++ctl->next_id;
	k->done = done;
	k->arg = arg;
	k->bytes = pb__request__get_packed_size(req);
	k->data = malloc(k->bytes + 1);
	if (!k->data)
		abort();
	pb__request__pack(req, k->data);
	k->timer.fn = on_call_timeout;
	*ctl->calls_end = k;
	ctl->calls_end = &k->next;
	ash_timer_set(&ctl->p->timers, &k->timer,
		      ctl->p->port.now_ns(&ctl->p->port) + timeout_ms * SIM_MS);
	if (ctl->up)
		send_call(ctl, k);
	if (!ctl->p->in_turn)
		sim_proc_kick(ctl->p);
}

static const struct ash_ctl_ops ctl_ops = {.call = ctl_call};

static void learn_leader(struct sim_ctl *ctl, const char *address)
{
	ctl->hint = -1;
	for (unsigned i = 0; address && i < ctl->mdm->members; i++)
		if (!strcmp(address, ctl->mdm->member[i].address))
			ctl->hint = (int)i;
}

static void client_hello(struct sim_ctl *ctl, const Pb__Reply *reply)
{
	if (reply->error && reply->error->code) {
		sim_trace(ctl->mdm->w, "event=hello_refused by=%s text=\"%s\"", ctl->name,
			  reply->error->message);
		client_closes(ctl, true);
		return;
	}
	if (reply->r_case != PB__REPLY__R_HELLO || !reply->hello->leader) {
		learn_leader(ctl, reply->r_case == PB__REPLY__R_HELLO ? reply->hello->leader_address
								      : NULL);
		client_closes(ctl, true);
		return;
	}
	ctl->up = true;
	ctl->c.events->on_session(ctl->c.owner, true);
	for (struct call *k = ctl->calls; k && ctl->up; k = k->next)
		if (!k->sent)
			send_call(ctl, k);
}

static void client_reply(struct sim_ctl *ctl, const Pb__Reply *reply)
{
	struct call *k;

	if (reply->id == ctl->hello_id) {
		client_hello(ctl, reply);
		return;
	}
	for (k = ctl->calls; k && k->id != reply->id; k = k->next)
		;
	if (!k || !k->sent)
		return; /* timed out meanwhile */
	if (reply->error && reply->error->code == ASH_E_NOT_LEADER) {
		k->sent = false; /* not carried out: may be sent again */
		learn_leader(ctl, reply->leader_address);
		client_closes(ctl, true);
		return;
	}
	finish_call(ctl, k, 0, reply);
}

static void client_letter(struct sim_ctl *ctl, struct letter *m)
{
	Pb__Reply *reply;
	Pb__Push *push;

	if (m->kind == LETTER_CLOSE) {
		client_closes(ctl, true);
		return;
	}
	if (m->kind == LETTER_PUSH) {
		push = pb__push__unpack(NULL, m->bytes, m->data);
		if (push && push->p_case == PB__PUSH__P_LEADER_ADDRESS)
			learn_leader(ctl, push->leader_address);
		if (push && ctl->up && ctl->c.events->on_push)
			ctl->c.events->on_push(ctl->c.owner, push);
		pb__push__free_unpacked(push, NULL);
		return;
	}
	reply = pb__reply__unpack(NULL, m->bytes, m->data);
	if (reply)
		client_reply(ctl, reply);
	pb__reply__free_unpacked(reply, NULL);
}

static void member_letter(struct link *l, struct letter *m)
{
	Pb__Request *req;

	if (m->kind == LETTER_CLOSE) {
		member_closes(l, true);
		return;
	}
	if (!l->session)
		l->session = mdm_session_new(l->member->svc, l);
	req = pb__request__unpack(NULL, m->bytes, m->data);
	if (req)
		mdm_service_request(l->member->svc, l->session, req);
	pb__request__free_unpacked(req, NULL);
}

static void letter_run(struct sim_item *item)
{
	struct letter *m = sim_container(item, struct letter, item);
	struct link *l = m->link;

	if (m->to_mdm && l->member)
		member_letter(l, m);
	else if (!m->to_mdm && l->ctl && l->ctl->link == l)
		client_letter(l->ctl, m);
	letter_free(m);
}

/* ------------------------------------------------------------ connecting */

static void init_lane(struct link *l, struct lane *lane, uint64_t held_until)
{
	lane->link = l;
	lane->held_until = held_until;
	lane->last = &lane->first;
	lane->event.fn = on_lane_event;
}

static void send_hello(struct sim_ctl *ctl)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__Hello hello = PB__HELLO__INIT;

	hello.version_min = hello.version_max = 1;
	hello.role = ctl->role;
	hello.name = ctl->name;
	hello.uuid.data = ctl->uuid;
	hello.uuid.len = 16;
	hello.session.data = ctl->session;
	hello.session.len = 16;
	req.id = ctl->hello_id = ++ctl->next_id;
	req.r_case = PB__REQUEST__R_HELLO;
	req.hello = &hello;
	post(ctl->link, true, LETTER_REQUEST, pb__request__get_packed_size(&req), pack_request,
	     &req);
}

static void on_connect(struct sim_event *event)
{
	struct sim_ctl *ctl = sim_container(event, struct sim_ctl, connect_event);
	struct sim_mdm *mdm = ctl->mdm;
	unsigned i =
		ctl->hint >= 0 ? (unsigned)ctl->hint : (unsigned)sim_below(mdm->w, mdm->members);
	struct member *m = &mdm->member[i];
	struct link *l;

	ctl->hint = -1;
	if (!m->alive || mdm->unreachable_until > mdm->w->now ||
	    mdm->fabric->cut[ctl->p->host->index][m->host.index] ||
	    mdm->fabric->cut[m->host.index][ctl->p->host->index]) {
		reconnect_in(ctl, 20 * SIM_MS + sim_below(mdm->w, 200 * SIM_MS));
		return;
	}
	l = calloc(1, sizeof(*l));
	if (!l)
		abort();
	l->mdm = mdm;
	l->ctl = ctl;
	l->member = m;
	init_lane(l, &l->lane[0], ctl->deaf_until);
	init_lane(l, &l->lane[1], 0);
	l->next = mdm->links;
	mdm->links = l;
	ctl->link = l;
	send_hello(ctl);
}

struct sim_ctl *sim_ctl_new(struct sim_mdm *mdm, struct sim_proc *p, const struct sim_ctl_id *id)
{
	struct sim_ctl *ctl = calloc(1, sizeof(*ctl));

	if (!ctl)
		abort();
	ctl->c.ops = &ctl_ops;
	ctl->mdm = mdm;
	ctl->p = p;
	snprintf(ctl->role, sizeof(ctl->role), "%s", id->role);
	snprintf(ctl->name, sizeof(ctl->name), "%s", id->name);
	memcpy(ctl->uuid, id->uuid, 16);
	memcpy(ctl->session, id->session, 16);
	ctl->calls_end = &ctl->calls;
	ctl->hint = -1;
	ctl->connect_event.fn = on_connect;
	ctl->next = mdm->ctls;
	mdm->ctls = ctl;
	reconnect_in(ctl, SIM_MS + sim_below(mdm->w, 5 * SIM_MS));
	return ctl;
}

struct ash_ctl *sim_ctl_port(struct sim_ctl *ctl)
{
	return &ctl->c;
}

bool sim_ctl_is_up(const struct sim_ctl *ctl)
{
	return ctl->up;
}

void sim_ctl_kill(struct sim_ctl *ctl)
{
	struct call *k;

	client_closes(ctl, false);
	sim_cancel(ctl->mdm->w, &ctl->connect_event);
	while ((k = ctl->calls)) {
		ctl->calls = k->next;
		ash_timer_cancel(&ctl->p->timers, &k->timer);
		free(k->data);
		free(k);
	}
	ctl->calls_end = &ctl->calls;
	ctl->p = NULL;
}

void sim_mdm_unreachable(struct sim_mdm *mdm, uint64_t until, bool break_now)
{
	struct link *l, *next;

	mdm->unreachable_until = until;
	mdm->w->n.mdm_unreachable++;
	for (l = mdm->links; l && break_now; l = next) {
		next = l->next;
		break_link(l);
	}
}

void sim_ctl_deafen(struct sim_ctl *ctl, uint64_t until)
{
	ctl->deaf_until = until;
	if (ctl->link)
		ctl->link->lane[0].held_until = until;
}

void sim_ctl_hold(struct sim_ctl *ctl, uint64_t until)
{
	struct link *l = ctl->link;

	if (!l)
		return;
	l->lane[1].held_until = until;
	post(l, false, LETTER_CLOSE, 0, NULL, NULL);
}

void sim_mdm_heal(struct sim_mdm *mdm)
{
	mdm->failover_armed = false;
	sim_cancel(mdm->w, &mdm->failover_event);
	mdm->unreachable_until = 0;
}

void sim_ctl_free_all(struct sim_mdm *mdm)
{
	struct sim_ctl *ctl;
	struct link *l;

	while ((ctl = mdm->ctls)) {
		mdm->ctls = ctl->next;
		if (ctl->p)
			sim_ctl_kill(ctl);
		free(ctl);
	}
	while ((l = mdm->links)) {
		l->refs++;
		l->ctl = NULL;
		l->member = NULL;
		drop_lane(&l->lane[0]);
		drop_lane(&l->lane[1]);
		link_put(l);
	}
}
