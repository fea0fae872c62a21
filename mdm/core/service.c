/* SPDX-License-Identifier: MIT */
/* The service: sessions, proposals, pushes, and the way of a request to its handler. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "mdm/core/service_int.h"

void svc_trace(struct mdm_service *svc, int level, const char *fmt, ...)
{
	char line[700];
	va_list ap;

	if (!svc->port->trace)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	svc->port->trace(svc->port, level, line);
}

/* ---------------------------------------------------------------- what is known of objects */

#define FINDER(Type, fn, table)                                                                    \
	struct Type *fn(struct mdm_service *svc, uint64_t id)                                      \
	{                                                                                          \
		struct Type *x = ash_htab_get(&svc->table, id);                                    \
                                                                                                   \
		if (!x) {                                                                          \
			x = ash_xcalloc(1, sizeof(*x));                                            \
			x->id = id;                                                                \
			if (ash_htab_put(&svc->table, id, x))                                      \
				abort();                                                           \
		}                                                                                  \
		return x;                                                                          \
	}
static FINDER(svc_sds, known_sds, sdss) FINDER(svc_dev, svc_dev, devs)
	FINDER(svc_pool, svc_pool, pools)

		struct svc_sds *svc_sds(struct mdm_service *svc, uint64_t id)
{
	bool fresh = !ash_htab_get(&svc->sdss, id);
	struct svc_sds *known = known_sds(svc, id);

	/* Its silence counts from when we began to listen. */
	if (fresh)
		known->heard_ns = svc_now(svc);
	return known;
}

static void forget_all(struct mdm_service *svc)
{
	struct svc_pool *pool;
	struct svc_sds *sds;
	struct svc_dev *dev;
	size_t at;

	for (at = 0; (sds = ash_htab_next(&svc->sdss, &at, NULL));) {
		for (size_t i = 0; i < sds->resyncs; i++)
			mdm_pb_free(sds->resync[i]);
		free(sds->resync);
		free(sds);
	}
	for (at = 0; (dev = ash_htab_next(&svc->devs, &at, NULL));) {
		free(dev->nodes);
		free(dev->extents);
		free(dev);
	}
	for (at = 0; (pool = ash_htab_next(&svc->pools, &at, NULL));) {
		free(pool->target);
		free(pool);
	}
	ash_htab_done(&svc->sdss);
	ash_htab_done(&svc->devs);
	ash_htab_done(&svc->pools);
	memset(&svc->sdss, 0, sizeof(svc->sdss));
	memset(&svc->devs, 0, sizeof(svc->devs));
	memset(&svc->pools, 0, sizeof(svc->pools));
}

/* ---------------------------------------------------------------- proposals */

struct proposal {
	struct ash_list node;
	struct mdm_service *svc;
	svc_done done;
	void *arg;
};

static void on_proposed(void *arg, int result, const struct mdm_result *res)
{
	struct proposal *p = arg;

	ash_list_remove(&p->node);
	p->svc->flying--;
	p->done(p->svc, p->arg, result, res);
	free(p);
}

void svc_propose(struct mdm_service *svc, Pb__Command *cmd, svc_done done, void *arg)
{
	struct proposal *p = ash_xcalloc(1, sizeof(*p));
	uint8_t *data;
	size_t bytes;

	cmd->unix_ms = svc->port->unix_ms(svc->port);
	bytes = pb__command__get_packed_size(cmd);
	data = ash_xcalloc(1, bytes + 1);
	pb__command__pack(cmd, data);
	p->svc = svc;
	p->done = done;
	p->arg = arg;
	ash_list_push_back(&svc->proposals, &p->node);
	svc->flying++;
	svc->port->propose(svc->port, data, bytes, on_proposed, p);
	free(data);
}

static struct ash_error not_leader(const struct mdm_service *svc)
{
	if (svc->leader && svc->tie_breaker)
		return ash_error_make(ASH_E_NOT_LEADER,
				      "the tie-breaker leads, because no MDM is up to date or "
				      "reachable; changes wait until one is");
	if (!*svc->leader_address)
		return ash_error_make(ASH_E_NOT_LEADER,
				      "this MDM does not lead and knows no leader; start the other "
				      "MDMs (a majority is needed)");
	return ash_error_make(ASH_E_NOT_LEADER, "this MDM does not lead; ask %s",
			      svc->leader_address);
}

struct ash_error svc_outcome(struct mdm_service *svc, int result, const struct mdm_result *res)
{
	if (!result)
		return res->err;
	if (result == -ENOTSUP)
		return not_leader(svc);
	return ash_error_make(ASH_E_UNREACHABLE,
			      "it is not known whether the change will take effect: this MDM lost "
			      "its majority or its log (error %d); ask for the state, then repeat",
			      -result);
}

void svc_backoff_more(struct mdm_service *svc, struct svc_backoff *b)
{
	b->ms = b->ms ? 2 * b->ms : SVC_BACKOFF_MS;
	if (b->ms > SVC_BACKOFF_MAX_MS)
		b->ms = SVC_BACKOFF_MAX_MS;
	b->until_ns = svc_now(svc) + b->ms * SVC_MS;
}

void svc_backoff_clear(struct svc_backoff *b)
{
	b->ms = 0;
	b->until_ns = 0;
}

/* ---------------------------------------------------------------- replies */

void svc_reply(struct mdm_session *s, uint64_t id, Pb__Reply *reply)
{
	if (!s || s->svc->closing)
		return;
	reply->id = id;
	s->svc->port->reply(s->svc->port, s, reply);
}

void svc_reply_error(struct mdm_session *s, uint64_t id, const struct ash_error *err)
{
	Pb__Reply reply = PB__REPLY__INIT;
	Pb__Error e = PB__ERROR__INIT;

	e.code = err->code;
	e.message = (char *)err->message;
	reply.error = &e;
	if (s && err->code == ASH_E_NOT_LEADER && !s->svc->leader)
		reply.leader_address = s->svc->leader_address;
	svc_reply(s, id, &reply);
}

void svc_reply_ok(struct mdm_session *s, uint64_t id)
{
	Pb__Reply reply = PB__REPLY__INIT;

	svc_reply(s, id, &reply);
}

/* ---------------------------------------------------------------- calls that wait */

struct svc_call *svc_call_new(struct mdm_session *s, uint64_t id)
{
	struct svc_call *call = ash_xcalloc(1, sizeof(*call));

	call->svc = s->svc;
	call->session = s;
	call->id = id;
	call->deadline_ns = ASH_TIME_NEVER;
	ash_list_push_back(&s->svc->calls, &call->node);
	return call;
}

static void call_free(struct svc_call *call)
{
	ash_list_remove(&call->node);
	if (call->cmd)
		mdm_pb_free(call->cmd);
	for (size_t i = 0; i < call->answers_count; i++)
		if (call->answers[i])
			mdm_pb_free(call->answers[i]);
	if (call->reg)
		mdm_pb_free(call->reg);
	free(call->answers);
	free(call->wait_sds);
	free(call);
}

static void call_end(struct svc_call *call)
{
	call->answered = true;
	call->poll = NULL;
	if (!call->flying)
		call_free(call);
}

void svc_call_reply(struct svc_call *call, Pb__Reply *reply)
{
	svc_reply(call->session, call->id, reply);
	call_end(call);
}

void svc_call_error(struct svc_call *call, const struct ash_error *err)
{
	svc_reply_error(call->session, call->id, err);
	call_end(call);
}

void svc_call_propose(struct svc_call *call, Pb__Command *cmd, svc_done done)
{
	call->flying++;
	svc_propose(call->svc, cmd, done, call);
}

bool svc_call_back(struct svc_call *call)
{
	call->flying--;
	if (!call->answered)
		return true;
	if (!call->flying)
		call_free(call);
	return false;
}

void svc_calls_poll(struct mdm_service *svc, uint64_t now)
{
	ash_list_each_safe(it, &svc->calls) {
		struct svc_call *call = ash_container_of(it, struct svc_call, node);

		if (call->answered)
			continue;
		if (now >= call->deadline_ns && call->give_up)
			call->give_up(call);
		else if (call->poll)
			call->poll(call);
	}
}

/* ---------------------------------------------------------------- pushes */

void svc_push_soon(struct mdm_service *svc)
{
	if (!ash_timer_is_set(&svc->push_timer))
		ash_timer_set(svc->port->timers, &svc->push_timer, svc_now(svc));
}

void svc_follow(struct mdm_session *s, uint64_t version)
{
	s->follows = true;
	s->sent_version = version;
	svc_push_soon(s->svc);
}

/* The last delta made for an SDS; the others of its domain mostly need the same. */
struct delta {
	uint64_t domain, have;
	Pb__Map *map;
};

static void push_map(struct mdm_session *s, Pb__Map *map)
{
	Pb__Push push = PB__PUSH__INIT;

	push.p_case = PB__PUSH__P_MAP;
	push.map = map;
	s->sent_version = map->version;
	s->svc->port->push(s->svc->port, s, &push);
}

static void push_sds(struct mdm_session *s, struct delta *last)
{
	const Pb__Sds *sds = mdm_sds(s->svc->st, s->sds);
	uint64_t domain = sds ? sds->domain : 0;

	if (!last->map || last->domain != domain || last->have != s->sent_version) {
		if (last->map)
			pb__map__free_unpacked(last->map, NULL);
		last->map = mdm_map_for(s->svc->st, MDM_FOR_SDS, s->sds, s->sent_version);
		last->domain = domain;
		last->have = s->sent_version;
	}
	push_map(s, last->map);
}

/* An SDC is not told of versions that change nothing for it: its next delta covers them. */
static void push_sdc(struct mdm_session *s)
{
	Pb__Map *map = mdm_map_for(s->svc->st, MDM_FOR_SDC, s->sdc, s->sent_version);

	if (!map->base_version || map->system || map->n_sdss || map->n_devices || map->n_pools ||
	    map->n_rows || map->n_volumes || map->n_sdcs || map->n_mappings || map->n_mdms ||
	    map->n_removed)
		push_map(s, map);
	pb__map__free_unpacked(map, NULL);
}

static void on_push_timer(struct ash_timer *timer)
{
	struct mdm_service *svc = ash_container_of(timer, struct mdm_service, push_timer);
	struct delta last = {0};

	ash_list_each_safe(it, &svc->sessions) {
		struct mdm_session *s = ash_container_of(it, struct mdm_session, node);

		if (!s->follows || s->sent_version >= svc->st->version)
			continue;
		if (s->role == SVC_SDS)
			push_sds(s, &last);
		else
			push_sdc(s);
	}
	if (last.map)
		pb__map__free_unpacked(last.map, NULL);
}

static void push_leader(struct mdm_service *svc)
{
	Pb__Push push = PB__PUSH__INIT;

	push.p_case = PB__PUSH__P_LEADER_ADDRESS;
	push.leader_address = svc->leader_address;
	ash_list_each_safe(it, &svc->sessions) {
		struct mdm_session *s = ash_container_of(it, struct mdm_session, node);

		if (s->role == SVC_SDS || s->role == SVC_SDC)
			svc->port->push(svc->port, s, &push);
	}
}

/* ---------------------------------------------------------------- life */

static void on_tick(struct ash_timer *timer)
{
	struct mdm_service *svc = ash_container_of(timer, struct mdm_service, tick_timer);
	uint64_t now = svc_now(svc);

	if (!svc->leader)
		return;
	ash_timer_set(svc->port->timers, &svc->tick_timer, now + SVC_TICK_MS * SVC_MS);
	if (svc->tie_breaker) {
		ctl_hand_on(svc, now);
		return;
	}
	svc_calls_poll(svc, now);
	if (!svc->st->system)
		return;
	ctl_detect(svc, now);
	ctl_place(svc, now);
	ctl_repair(svc, now);
	ctl_watch(svc, now);
}

struct mdm_service *mdm_service_new(struct mdm_port *port, struct mdm_state *st, uint64_t own_id,
				    bool tie_breaker)
{
	struct mdm_service *svc = ash_xcalloc(1, sizeof(*svc));

	svc->port = port;
	svc->st = st;
	svc->own_id = own_id;
	svc->tie_breaker = tie_breaker;
	ash_list_init(&svc->sessions);
	ash_list_init(&svc->proposals);
	ash_list_init(&svc->calls);
	svc->push_timer.fn = on_push_timer;
	svc->tick_timer.fn = on_tick;
	return svc;
}

void mdm_service_free(struct mdm_service *svc)
{
	struct ash_list *node;

	if (!svc)
		return;
	svc->closing = true;
	ash_timer_cancel(svc->port->timers, &svc->push_timer);
	ash_timer_cancel(svc->port->timers, &svc->tick_timer);
	while (!ash_list_empty(&svc->proposals))
		on_proposed(ash_list_first(&svc->proposals, struct proposal, node), -ECANCELED,
			    NULL);
	while (!ash_list_empty(&svc->calls))
		call_free(ash_list_first(&svc->calls, struct svc_call, node));
	while ((node = ash_list_pop(&svc->sessions)))
		ash_container_of(node, struct mdm_session, node)->svc = NULL;
	forget_all(svc);
	free(svc);
}

void mdm_service_set_state(struct mdm_service *svc, struct mdm_state *st)
{
	svc->st = st;
	svc_push_soon(svc);
}

/* Who waits for a change learns that it has to ask elsewhere. */
static void end_calls(struct mdm_service *svc)
{
	struct ash_error err = not_leader(svc);

	ash_list_each_safe(it, &svc->calls) {
		struct svc_call *call = ash_container_of(it, struct svc_call, node);

		/* A proposal under way brings its own answer. */
		if (!call->answered && !call->flying)
			svc_call_error(call, &err);
	}
}

void mdm_service_role(struct mdm_service *svc, bool leader, const char *leader_address)
{
	bool was = svc->leader;

	svc->leader = leader;
	snprintf(svc->leader_address, sizeof(svc->leader_address), "%s",
		 leader_address ? leader_address : "");
	if (leader && !was) {
		forget_all(svc);
		ctl_start(svc);
		ash_timer_set(svc->port->timers, &svc->tick_timer,
			      svc_now(svc) + SVC_TICK_MS * SVC_MS);
		svc_trace(svc, ASH_LOG_NOTICE, "event=leads version=%llu applied=%llu",
			  (unsigned long long)svc->st->version,
			  (unsigned long long)svc->st->applied);
	}
	if (!leader) {
		ash_timer_cancel(svc->port->timers, &svc->tick_timer);
		if (was)
			end_calls(svc);
		if (*svc->leader_address)
			push_leader(svc);
	}
}

void mdm_service_applied(struct mdm_service *svc, const Pb__Command *cmd,
			 const struct mdm_result *res)
{
	if (res && !ash_failed(&res->err))
		svc_push_soon(svc);
}

/* ---------------------------------------------------------------- sessions */

struct mdm_session *mdm_session_new(struct mdm_service *svc, void *shell)
{
	struct mdm_session *s = ash_xcalloc(1, sizeof(*s));

	s->svc = svc;
	s->shell = shell;
	ash_list_push_back(&svc->sessions, &s->node);
	return s;
}

void *mdm_session_shell(const struct mdm_session *s)
{
	return s->shell;
}

void mdm_session_free(struct mdm_session *s)
{
	if (!s)
		return;
	if (s->svc) {
		ash_list_remove(&s->node);
		ash_list_each(it, &s->svc->calls) {
			struct svc_call *call = ash_container_of(it, struct svc_call, node);

			if (call->session == s)
				call->session = NULL;
		}
	}
	free(s);
}

/* ---------------------------------------------------------------- requests */

/* Requests that any MDM answers. */
static bool for_any(const Pb__Request *req)
{
	return req->r_case == PB__REQUEST__R_HELLO || req->r_case == PB__REQUEST__R_GET_MAP ||
	       req->r_case == PB__REQUEST__R_QUERY;
}

static void dispatch(struct mdm_session *s, const Pb__Request *req)
{
	struct ash_error err;

	switch (req->r_case) {
	case PB__REQUEST__R_HELLO:
		svc_hello(s, req->id, req->hello);
		break;
	case PB__REQUEST__R_SDS_REGISTER:
		svc_sds_register(s, req->id, req->sds_register);
		break;
	case PB__REQUEST__R_HEARTBEAT:
		svc_heartbeat(s, req->id, req->heartbeat);
		break;
	case PB__REQUEST__R_PG_REPORT:
		svc_pg_report(s, req->id, req->pg_report);
		break;
	case PB__REQUEST__R_CONFIRM:
		svc_confirm(s, req->id, req->confirm);
		break;
	case PB__REQUEST__R_DEVICE_OPENED:
		svc_device_opened(s, req->id, req->device_opened);
		break;
	case PB__REQUEST__R_DEVICE_FAILED:
		svc_device_failed(s, req->id, req->device_failed);
		break;
	case PB__REQUEST__R_SDC_REGISTER:
		svc_sdc_register(s, req->id, req->sdc_register);
		break;
	case PB__REQUEST__R_OPEN_VOLUME:
		svc_open_volume(s, req->id, req->open_volume);
		break;
	case PB__REQUEST__R_GET_MAP:
		svc_get_map(s, req->id, req->get_map);
		break;
	case PB__REQUEST__R_ADMIN:
		svc_admin(s, req->id, req->admin);
		break;
	case PB__REQUEST__R_QUERY:
		svc_query(s, req->id, req->query);
		break;
	case PB__REQUEST__R_MDM_CHANGE:
		svc_mdm_change(s, req->id, req->mdm_change);
		break;
	default:
		err = ash_error_make(ASH_E_UNSUPPORTED,
				     "this MDM does not know requests of kind %d; update it first",
				     (int)req->r_case);
		svc_reply_error(s, req->id, &err);
		break;
	}
}

void mdm_service_request(struct mdm_service *svc, struct mdm_session *s, const Pb__Request *req)
{
	struct ash_error err;

	if (s->role == SVC_NOBODY && req->r_case != PB__REQUEST__R_HELLO) {
		err = ash_error_make(ASH_E_STATE, "the first request of a connection is HELLO");
		svc_reply_error(s, req->id, &err);
		return;
	}
	if (!for_any(req) && !svc_serves(svc)) {
		err = not_leader(svc);
		svc_reply_error(s, req->id, &err);
		return;
	}
	if (!for_any(req) && req->r_case != PB__REQUEST__R_HEARTBEAT &&
	    svc->flying >= SVC_PROPOSALS_MAX) {
		err = ash_error_make(
			ASH_E_UNREACHABLE,
			"%u changes are waiting for the MDMs' log already; repeat in a "
			"moment",
			svc->flying);
		svc_reply_error(s, req->id, &err);
		return;
	}
	dispatch(s, req);
}
