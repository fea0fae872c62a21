/* SPDX-License-Identifier: MIT */
/* Data network and control channels: who does not hear whom, and what comes late. */
#include <string.h>

#include "tests/sim/faults_int.h"

/* ------------------------------------------------------------ cuts */

static void on_heal_cut(struct sim_event *event)
{
	struct faults *f = sim_container(event, struct faults, heal_cut);

	for (unsigned a = 0; a < SIM_HOSTS_MAX; a++)
		for (unsigned b = 0; b < SIM_HOSTS_MAX; b++)
			if (f->c->fabric.cut[a][b])
				sim_net_cut(&f->c->fabric, f->c->fabric.host[a],
					    f->c->fabric.host[b], false);
}

/* @way 0: @b does not reach @a, 1: @a does not reach @b, 2: neither. */
static void cut(struct faults *f, struct sim_host *a, struct sim_host *b, unsigned way)
{
	sim_trace(f->c->w, "event=cut a=%s b=%s way=%u", a->name, b->name, way);
	if (way != 0)
		sim_net_cut(&f->c->fabric, a, b, true);
	if (way != 1)
		sim_net_cut(&f->c->fabric, b, a, true);
}

/* One host against some of the others, in one or both directions. */
void fault_partition(struct faults *f)
{
	struct sim_world *w = f->c->w;
	struct sim_host *one = &fault_any_sds(f)->host;
	unsigned way = (unsigned)sim_below(w, 3), share = sim_chance(w, 400) ? 1000 : 400;

	if (sim_scheduled(&f->heal_cut))
		return;
	w->n.partition++;
	for (unsigned i = 1; i < SIM_HOSTS_MAX; i++) {
		struct sim_host *other = f->c->fabric.host[i];

		if (other && other != one && sim_chance(w, share))
			cut(f, one, other, way);
	}
	sim_in(w, &f->heal_cut, 100 * SIM_MS + sim_below(w, 8 * SIM_S));
}

/* Who stands on the primary's side. */
enum split_kind {
	SPLIT_CLIENTS, /* some clients, against everybody else */
	SPLIT_MDM,     /* it does not reach the MDMs */
	SPLIT_PAIR,    /* two SDSs do not reach each other */
	SPLIT_SDC,     /* it does not reach the clients */
	SPLIT_ANY,
};

static enum split_kind draw_split(struct sim_world *w)
{
	unsigned r = (unsigned)sim_below(w, 100);

	return r < 40	? SPLIT_CLIENTS
	       : r < 60 ? SPLIT_MDM
	       : r < 80 ? SPLIT_PAIR
	       : r < 88 ? SPLIT_SDC
			: SPLIT_ANY;
}

static bool is_sds(const struct faults *f, const struct sim_host *h)
{
	for (unsigned i = 0; i < f->c->shape.sdss; i++)
		if (&f->c->sds[i].host == h)
			return true;
	return false;
}

static bool is_sdc(const struct faults *f, const struct sim_host *h)
{
	for (unsigned i = 0; i < f->c->shape.sdcs; i++)
		if (&f->c->sdc[i].host == h)
			return true;
	return false;
}

static bool draw_side(struct faults *f, enum split_kind kind, const struct sim_host *h)
{
	if (kind == SPLIT_ANY)
		return sim_chance(f->c->w, 500);
	return kind == SPLIT_CLIENTS && is_sdc(f, h) && sim_chance(f->c->w, 600);
}

/* Does the split stand between the two? One of them is on the primary's side. */
static bool parts(struct faults *f, enum split_kind kind, const struct sim_host *other,
		  const struct subject *x)
{
	switch (kind) {
	case SPLIT_MDM:
		return !is_sds(f, other) && !is_sdc(f, other);
	case SPLIT_PAIR:
		return x->o ? other == &x->o->host : is_sds(f, other);
	case SPLIT_SDC:
		return is_sdc(f, other);
	default:
		return true;
	}
}

static uint64_t split_ns(struct sim_world *w)
{
	unsigned r = (unsigned)sim_below(w, 100);

	if (r < 20)
		return 20 * SIM_MS + sim_below(w, 800 * SIM_MS);
	return r < 75 ? 1500 * SIM_MS + sim_below(w, 3 * SIM_S) : SIM_S + sim_below(w, 9 * SIM_S);
}

void fault_split(struct faults *f, const struct subject *x)
{
	struct sim_world *w = f->c->w;
	struct sim_host **host = f->c->fabric.host;
	enum split_kind kind = draw_split(w);
	unsigned way = sim_chance(w, 600) ? 2 : (unsigned)sim_below(w, 2);
	bool side[SIM_HOSTS_MAX] = {false};

	if (sim_scheduled(&f->heal_cut) || !x->p)
		return;
	w->n.split++;
	for (unsigned i = 1; i < SIM_HOSTS_MAX; i++)
		side[i] = host[i] && (host[i] == &x->p->host || draw_side(f, kind, host[i]));
	for (unsigned a = 1; a < SIM_HOSTS_MAX; a++)
		for (unsigned b = 1; b < SIM_HOSTS_MAX; b++)
			if (host[b] && side[a] && !side[b] && parts(f, kind, host[b], x))
				cut(f, host[a], host[b], way);
	sim_in(w, &f->heal_cut, split_ns(w));
}

/* ------------------------------------------------------------ slow, late */

void fault_slow_network(struct faults *f)
{
	struct sim_world *w = f->c->w;

	f->c->fabric.slow_until[fault_any_sds(f)->host.index] = w->now + sim_below(w, 2 * SIM_S);
	w->n.net_stall++;
}

static uint64_t late_ns(struct sim_world *w)
{
	return sim_chance(w, 500) ? SIM_MS + sim_below(w, 200 * SIM_MS)
				  : 100 * SIM_MS + sim_below(w, 5 * SIM_S);
}

/* Of a client or an SDS, to all or to one. */
void fault_hold(struct faults *f, const struct subject *x)
{
	struct sim_world *w = f->c->w;
	struct sim_sdc *sdc = &f->c->sdc[sim_below(w, f->c->shape.sdcs)];
	struct sim_host *from = x->p && sim_chance(w, 500) ? &x->p->host : &sdc->host;
	struct sim_host *to = x->o && sim_chance(w, 400) ? &x->o->host : NULL;
	uint64_t ns = late_ns(w);

	sim_trace(w, "event=hold from=%s to=%s ms=%llu", from->name, to ? to->name : "all",
		  (unsigned long long)(ns / SIM_MS));
	sim_net_hold(&f->c->fabric, from, to, w->now + ns);
}

void fault_rows_late(struct faults *f, struct sim_sds *s)
{
	struct sim_world *w = f->c->w;
	uint64_t ns = 5 * SIM_MS + sim_below(w, sim_chance(w, 500) ? 200 * SIM_MS : 2 * SIM_S);

	if (!s->ctl)
		return;
	w->n.rows_late++;
	sim_trace(w, "event=rows_late sds=%s ms=%llu", s->host.name,
		  (unsigned long long)(ns / SIM_MS));
	sim_ctl_deafen(s->ctl, w->now + ns);
}

void fault_reports_late(struct faults *f, struct sim_sds *s)
{
	struct sim_world *w = f->c->w;
	uint64_t ns = late_ns(w);

	if (!s->ctl || !sim_ctl_is_up(s->ctl))
		return;
	w->n.reports_late++;
	sim_trace(w, "event=reports_late sds=%s ms=%llu", s->host.name,
		  (unsigned long long)(ns / SIM_MS));
	sim_ctl_hold(s->ctl, w->now + ns);
}

/* ------------------------------------------------------------ life */

void fault_net_init(struct faults *f)
{
	f->heal_cut.fn = on_heal_cut;
}

void fault_net_heal(struct faults *f)
{
	on_heal_cut(&f->heal_cut);
	sim_cancel(f->c->w, &f->heal_cut);
	memset(f->c->fabric.slow_until, 0, sizeof(f->c->fabric.slow_until));
}
