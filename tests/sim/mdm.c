/* SPDX-License-Identifier: MIT */
#include "tests/sim/mdm.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/mdm_int.h"

/* ------------------------------------------------------------ the log */

static struct log_entry *entry_at(struct sim_mdm *mdm, uint64_t index)
{
	return &mdm->log[index - 1];
}

static void schedule_commit(struct sim_mdm *mdm)
{
	uint64_t at;

	if (mdm->committed == mdm->count || sim_scheduled(&mdm->commit_event))
		return;
	at = entry_at(mdm, mdm->committed + 1)->ready_at;
	if (at < mdm->stalled_until)
		at = mdm->stalled_until;
	sim_at(mdm->w, &mdm->commit_event, at);
}

static void schedule_apply(struct sim_mdm *mdm, struct member *m, uint64_t delay)
{
	if (m->alive && m->applied < mdm->committed && !sim_scheduled(&m->apply_event))
		sim_in(mdm->w, &m->apply_event, delay);
}

static void on_commit(struct sim_event *event)
{
	struct sim_mdm *mdm = sim_container(event, struct sim_mdm, commit_event);

	if (mdm->stalled_until > mdm->w->now || mdm->leader < 0) {
		if (mdm->leader >= 0)
			sim_at(mdm->w, &mdm->commit_event, mdm->stalled_until);
		return;
	}
	while (mdm->committed < mdm->count &&
	       entry_at(mdm, mdm->committed + 1)->ready_at <= mdm->w->now)
		mdm->committed++;
	for (unsigned i = 0; i < mdm->members; i++)
		schedule_apply(mdm, &mdm->member[i],
			       (int)i == mdm->leader ? 0 : sim_latency(mdm->w, SIM_MS));
	schedule_commit(mdm);
}

static void on_apply(struct sim_event *event)
{
	struct member *m = sim_container(event, struct member, apply_event);

	if (m->alive && !m->apply_queued) {
		m->apply_queued = true;
		sim_proc_push(m->p, &m->apply_item);
	}
}

static void apply_one(struct sim_mdm *mdm, struct member *m, uint64_t index)
{
	struct log_entry *e = entry_at(mdm, index);
	Pb__Command *cmd = pb__command__unpack(NULL, e->bytes, e->data);
	struct mdm_result res;

	if (!cmd) {
		sim_fail(mdm->w, "mdm", "log entry %llu is no command", (unsigned long long)index);
		m->applied = index;
		return;
	}
	memset(&res, 0, sizeof(res));
	mdm_apply(m->st, cmd, index, &res);
	m->applied = index;
	mdm_service_applied(m->svc, cmd, &res);
	if (e->done && e->proposer == m->serial) {
		void (*done)(void *, int, const struct mdm_result *) = e->done;

		e->done = NULL;
		done(e->arg, 0, &res);
	}
	if (m->index == (unsigned)mdm->leader && mdm->watch)
		mdm->watch(mdm->watch_arg);
	mdm_result_done(&res);
	pb__command__free_unpacked(cmd, NULL);
}

static void apply_run(struct sim_item *item)
{
	struct member *m = sim_container(item, struct member, apply_item);
	struct sim_mdm *mdm = m->mdm;

	m->apply_queued = false;
	while (m->alive && m->applied < mdm->committed && !mdm->w->failed)
		apply_one(mdm, m, m->applied + 1);
	if (m->becoming_leader && m->applied == mdm->committed) {
		m->becoming_leader = false;
		if (mdm->leader == (int)m->index) {
			sim_trace(mdm->w, "event=mdm_leads member=%u applied=%llu", m->index,
				  (unsigned long long)m->applied);
			mdm_service_role(m->svc, true, m->address);
		}
	}
}

static void apply_drop(struct sim_item *item)
{
	sim_container(item, struct member, apply_item)->apply_queued = false;
}

/* ------------------------------------------------------------ the port of the service */

static struct member *member_of(struct mdm_port *port)
{
	return sim_container(port, struct member, port);
}

static uint64_t port_now(struct mdm_port *port)
{
	return sim_host_clock(&member_of(port)->host);
}

static uint64_t port_unix_ms(struct mdm_port *port)
{
	struct member *m = member_of(port);

	return (uint64_t)((int64_t)(1750000000000ull + m->mdm->w->now / SIM_MS) + m->wall_step_ms);
}

static uint64_t port_rand(struct mdm_port *port)
{
	return sim_rand(member_of(port)->mdm->w);
}

static void port_trace(struct mdm_port *port, int level, const char *line)
{
	sim_trace(member_of(port)->mdm->w, "%s: %s", member_of(port)->p->name, line);
}

/* A definite or indefinite failure, told later. */
struct refusal {
	struct sim_item item;
	void (*done)(void *arg, int result, const struct mdm_result *res);
	void *arg;
	int result;
};

static void refusal_run(struct sim_item *item)
{
	struct refusal *r = sim_container(item, struct refusal, item);

	r->done(r->arg, r->result, NULL);
	free(r);
}

static void refusal_drop(struct sim_item *item)
{
	free(sim_container(item, struct refusal, item));
}

static void refuse(struct member *m, int result,
		   void (*done)(void *arg, int result, const struct mdm_result *res), void *arg)
{
	struct refusal *r = calloc(1, sizeof(*r));

	if (!r)
		abort();
	r->item.run = refusal_run;
	r->item.drop = refusal_drop;
	r->done = done;
	r->arg = arg;
	r->result = result;
	sim_proc_push(m->p, &r->item);
}

static void port_propose(struct mdm_port *port, const uint8_t *cmd, size_t bytes,
			 void (*done)(void *arg, int result, const struct mdm_result *res),
			 void *arg)
{
	struct member *m = member_of(port);
	struct sim_mdm *mdm = m->mdm;
	struct log_entry *e;
	uint64_t ready;

	if (mdm->leader != (int)m->index || m->cut_off) {
		/* It may still believe that it leads: then nobody can tell for a while. */
		if (done)
			refuse(m, m->cut_off ? -EIO : -ENOTSUP, done, arg);
		return;
	}
	if (mdm->count == mdm->room) {
		mdm->room = mdm->room ? 2 * mdm->room : 256;
		mdm->log = realloc(mdm->log, mdm->room * sizeof(*mdm->log));
		if (!mdm->log)
			abort();
	}
	ready = mdm->w->now + sim_latency(mdm->w, mdm->commit_ns);
	if (mdm->count && mdm->log[mdm->count - 1].ready_at > ready)
		ready = mdm->log[mdm->count - 1].ready_at;
	e = &mdm->log[mdm->count++];
	*e = (struct log_entry){
		.bytes = bytes, .ready_at = ready, .proposer = m->serial, .done = done, .arg = arg};
	e->data = malloc(bytes + 1);
	if (!e->data)
		abort();
	memcpy(e->data, cmd, bytes);
	schedule_commit(mdm);
	if (mdm->failover_armed) {
		mdm->failover_armed = false;
		sim_in(mdm->w, &mdm->failover_event, sim_below(mdm->w, ready - mdm->w->now + 1));
	}
}

static void port_reply(struct mdm_port *port, struct mdm_session *s, const Pb__Reply *reply)
{
	sim_ctl_reply(mdm_session_shell(s), reply);
}

static void port_push(struct mdm_port *port, struct mdm_session *s, const Pb__Push *push)
{
	sim_ctl_push(mdm_session_shell(s), push);
}

static void port_close(struct mdm_port *port, struct mdm_session *s)
{
	sim_ctl_closed_by_mdm(mdm_session_shell(s));
}

static void port_status(struct mdm_port *port, Pb__MdmStatus *status)
{
	status->reachable = true;
}

/* ------------------------------------------------------------ members */

static void member_start(struct sim_mdm *mdm, struct member *m, struct mdm_state *st)
{
	char name[32];

	snprintf(name, sizeof(name), "mdm%u", m->index + 1);
	m->p = sim_proc_new(&m->host, name, 0);
	m->serial = m->p->serial;
	m->alive = true;
	m->cut_off = m->becoming_leader = m->apply_queued = false;
	m->st = st;
	m->applied = mdm_state_applied(st);
	m->apply_item = (struct sim_item){.run = apply_run, .drop = apply_drop};
	m->apply_event.fn = on_apply;
	m->port = (struct mdm_port){.timers = &m->p->timers,
				    .now_ns = port_now,
				    .unix_ms = port_unix_ms,
				    .rand64 = port_rand,
				    .trace = port_trace,
				    .propose = port_propose,
				    .reply = port_reply,
				    .push = port_push,
				    .close = port_close,
				    .member_status = port_status};
	m->svc = mdm_service_new(&m->port, m->st, m->index + 1, false);
	sim_proc_kick(m->p);
}

static void member_stop(struct sim_mdm *mdm, struct member *m)
{
	sim_ctl_member_died(mdm, m);
	sim_cancel(mdm->w, &m->apply_event);
	m->alive = false;
	for (uint64_t i = m->applied + 1; i <= mdm->count; i++)
		if (entry_at(mdm, i)->proposer == m->serial)
			entry_at(mdm, i)->done = NULL;
	sim_proc_kill(m->p);
	mdm_service_free(m->svc);
	mdm_state_free(m->st);
	sim_proc_free(m->p);
	m->svc = NULL;
	m->st = NULL;
	m->p = NULL;
}

static void on_return(struct sim_event *event)
{
	struct member *m = sim_container(event, struct member, return_event);
	struct sim_mdm *mdm = m->mdm;

	if (m->alive)
		return;
	sim_host_boot(&m->host);
	member_start(mdm, m, mdm_state_new());
	sim_trace(mdm->w, "event=mdm_returns member=%u", m->index);
	if (mdm->leader >= 0)
		mdm_service_role(m->svc, false, mdm->member[mdm->leader].address);
	schedule_apply(mdm, m, sim_latency(mdm->w, 5 * SIM_MS));
}

/* What was not committed is kept or lost, in order; its proposer cannot know. */
static void lose_proposals(struct sim_mdm *mdm, struct member *old)
{
	uint64_t keep = mdm->committed;

	while (keep < mdm->count && sim_chance(mdm->w, 500))
		keep++;
	for (uint64_t i = mdm->committed + 1; i <= mdm->count; i++) {
		struct log_entry *e = entry_at(mdm, i);

		if (e->done && e->proposer == old->serial && old->alive)
			refuse(old, -EIO, e->done, e->arg);
		e->done = NULL;
		if (i > keep) {
			free(e->data);
			mdm->w->n.proposal_lost++;
		}
	}
	mdm->count = keep;
}

static void on_election(struct sim_event *event)
{
	struct sim_mdm *mdm = sim_container(event, struct sim_mdm, election_event);
	struct member *old = &mdm->member[mdm->old_leader], *m;
	unsigned i = (unsigned)sim_below(mdm->w, mdm->members);

	while (!mdm->member[i].alive || (int)i == mdm->old_leader)
		i = (i + 1) % mdm->members;
	m = &mdm->member[i];
	lose_proposals(mdm, old);
	mdm->leader = (int)i;
	m->becoming_leader = true;
	if (old->alive) {
		old->cut_off = false;
		mdm_service_role(old->svc, false, m->address);
		sim_proc_kick(old->p);
	}
	/* Entries kept are committed by the new leader's first own entry. */
	for (uint64_t k = mdm->committed + 1; k <= mdm->count; k++)
		entry_at(mdm, k)->ready_at = mdm->w->now;
	mdm->committed = mdm->count;
	for (unsigned k = 0; k < mdm->members; k++) {
		if (k != i && mdm->member[k].alive && (int)k != mdm->old_leader)
			mdm_service_role(mdm->member[k].svc, false, m->address);
		schedule_apply(mdm, &mdm->member[k], sim_latency(mdm->w, SIM_MS));
	}
	if (!m->apply_queued) {
		m->apply_queued = true;
		sim_proc_push(m->p, &m->apply_item);
	}
}

static void fail_over(struct sim_mdm *mdm, bool kill)
{
	struct sim_world *w = mdm->w;
	struct member *old;

	if (mdm->leader < 0 || mdm->members < 3)
		return;
	for (unsigned i = 0; i < mdm->members; i++)
		if (!mdm->member[i].alive)
			return; /* a second loss would be the end of the quorum */
	old = &mdm->member[mdm->leader];
	sim_trace(w, "event=mdm_failover member=%d kill=%d", mdm->leader, kill);
	w->n.mdm_failover++;
	mdm->old_leader = mdm->leader;
	mdm->leader = -1;
	sim_cancel(w, &mdm->commit_event);
	old->cut_off = true;
	if (kill) {
		member_stop(mdm, old);
		sim_in(w, &old->return_event, SIM_S + sim_below(w, 5 * SIM_S));
	}
	sim_in(w, &mdm->election_event, 150 * SIM_MS + sim_below(w, 850 * SIM_MS));
}

static void on_failover(struct sim_event *event)
{
	struct sim_mdm *mdm = sim_container(event, struct sim_mdm, failover_event);

	fail_over(mdm, mdm->failover_kills);
}

/* Half of them come while a proposal is on its way: left to chance that hardly ever happens. */
void sim_mdm_failover(struct sim_mdm *mdm, bool kill)
{
	if (sim_chance(mdm->w, 500)) {
		mdm->failover_kills = kill;
		mdm->failover_armed = true;
		return;
	}
	fail_over(mdm, kill);
}

void sim_mdm_install_snapshot(struct sim_mdm *mdm)
{
	struct member *from, *m;
	struct mdm_state *st;
	struct ash_error err;
	uint8_t *data;
	size_t bytes;
	unsigned i;

	if (mdm->leader < 0 || mdm->members < 3)
		return;
	from = &mdm->member[mdm->leader];
	i = (unsigned)(mdm->leader + 1 + (int)sim_below(mdm->w, 2)) % mdm->members;
	m = &mdm->member[i];
	if (!m->alive || m->applied > from->applied || m->becoming_leader)
		return;
	data = mdm_snapshot(from->st, &bytes);
	st = mdm_restore(data, bytes, &err);
	free(data);
	if (!st) {
		sim_fail(mdm->w, "mdm", "snapshot refused: %s", err.message);
		return;
	}
	mdm->w->n.mdm_snapshot++;
	mdm_service_set_state(m->svc, st);
	mdm_state_free(m->st);
	m->st = st;
	m->applied = mdm_state_applied(st);
	if (m->applied != from->applied)
		sim_fail(mdm->w, "mdm", "snapshot at %llu says it is at %llu",
			 (unsigned long long)from->applied, (unsigned long long)m->applied);
}

bool sim_mdm_compare(struct sim_mdm *mdm)
{
	uint8_t *first = NULL, *data;
	size_t first_bytes = 0, bytes;

	for (unsigned i = 0; i < mdm->members && !mdm->w->failed; i++) {
		struct member *m = &mdm->member[i];

		if (!m->alive)
			continue;
		while (m->applied < mdm->committed && !mdm->w->failed)
			apply_one(mdm, m, m->applied + 1);
		data = mdm_snapshot(m->st, &bytes);
		if (first && (bytes != first_bytes || memcmp(first, data, bytes)))
			sim_fail(mdm->w, "mdm", "members differ at index %llu",
				 (unsigned long long)m->applied);
		if (!first) {
			first = data;
			first_bytes = bytes;
		} else {
			free(data);
		}
	}
	free(first);
	return !mdm->w->failed;
}

/* ------------------------------------------------------------ life */

struct sim_mdm *sim_mdm_new(struct sim_world *w, struct sim_fabric *fabric, unsigned members)
{
	struct sim_mdm *mdm = calloc(1, sizeof(*mdm));

	if (!mdm)
		abort();
	mdm->w = w;
	mdm->fabric = fabric;
	mdm->members = members;
	mdm->commit_ns = SIM_MS;
	mdm->commit_event.fn = on_commit;
	mdm->election_event.fn = on_election;
	mdm->failover_event.fn = on_failover;
	for (unsigned i = 0; i < members; i++) {
		struct member *m = &mdm->member[i];

		m->mdm = mdm;
		m->index = i;
		m->host = (struct sim_host){.w = w, .index = i + 1};
		snprintf(m->host.name, sizeof(m->host.name), "mhost%u", i + 1);
		snprintf(m->address, sizeof(m->address), "10.0.0.%u:6611", i + 1);
		m->return_event.fn = on_return;
		fabric->host[m->host.index] = &m->host;
		sim_host_boot(&m->host);
		member_start(mdm, m, mdm_state_new());
	}
	mdm->leader = 0;
	for (unsigned i = 0; i < members; i++)
		mdm_service_role(mdm->member[i].svc, i == 0, mdm->member[0].address);
	return mdm;
}

void sim_mdm_free(struct sim_mdm *mdm)
{
	for (unsigned i = 0; i < mdm->members; i++)
		if (mdm->member[i].alive)
			member_stop(mdm, &mdm->member[i]);
	sim_ctl_free_all(mdm);
	for (uint64_t i = 0; i < mdm->count; i++)
		free(mdm->log[i].data);
	free(mdm->log);
	free(mdm);
}

const struct mdm_state *sim_mdm_state(const struct sim_mdm *mdm)
{
	return mdm->leader < 0 ? NULL : mdm->member[mdm->leader].st;
}

uint64_t sim_mdm_commits(const struct sim_mdm *mdm)
{
	return mdm->committed;
}

struct sim_host *sim_mdm_host(struct sim_mdm *mdm, unsigned member)
{
	return &mdm->member[member].host;
}

int sim_mdm_leader(const struct sim_mdm *mdm)
{
	return mdm->leader;
}

void sim_mdm_commit_latency(struct sim_mdm *mdm, uint64_t ns)
{
	mdm->commit_ns = ns;
}

void sim_mdm_stall(struct sim_mdm *mdm, uint64_t until)
{
	mdm->stalled_until = until;
}

void sim_mdm_wall_step(struct sim_mdm *mdm, int member, int64_t ms)
{
	for (int i = 0; i < (int)mdm->members; i++)
		if (member < 0 || member == i)
			mdm->member[i].wall_step_ms = ms;
	mdm->w->n.wall_steps++;
}

void sim_mdm_watch(struct sim_mdm *mdm, void (*applied)(void *arg), void *arg)
{
	mdm->watch = applied;
	mdm->watch_arg = arg;
}
