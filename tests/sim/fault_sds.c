/* SPDX-License-Identifier: MIT */
/* Processes and hosts that die or stand still. */
#include "tests/sim/faults_int.h"

static uint64_t away_ns(struct sim_world *w)
{
	switch (sim_below(w, 8)) {
	case 0:
	case 1:
		return 5 * SIM_MS + sim_below(w, 50 * SIM_MS);
	case 2:
	case 3:
		return 50 * SIM_MS + sim_below(w, 1500 * SIM_MS);
	case 4:
		return SIM_S + sim_below(w, 8 * SIM_S);
	default:
		return SIM_S + sim_below(w, 3 * SIM_S);
	}
}

static void die(struct faults *f, struct sim_sds *s, bool power, uint64_t away)
{
	bool down[SIM_SDS_MAX] = {false};

	if (!s->p || (fault_has_rot(f) && s->index == f->rot_sds))
		return;
	if (power)
		f->c->w->n.sds_power_loss++;
	else
		f->c->w->n.sds_crash++;
	down[s->index] = true;
	checks_going_down(f->checks, down, power);
	sim_sds_kill(s, power);
	sim_sds_start_in(s, away);
}

void fault_crash(struct faults *f, struct sim_sds *s, bool power, bool quick)
{
	struct sim_world *w = f->c->w;
	uint64_t away = quick ? 2 * SIM_MS + sim_below(w, 60 * SIM_MS)
			      : away_ns(w) + (power ? 200 * SIM_MS : 0);

	die(f, s, power, away);
}

void fault_all_crash(struct faults *f, bool power)
{
	struct sim_world *w = f->c->w;
	bool down[SIM_SDS_MAX];

	if (fault_has_rot(f))
		return;
	if (power)
		w->n.all_power_loss++;
	else
		w->n.all_crash++;
	for (unsigned i = 0; i < f->c->shape.sdss; i++)
		down[i] = true;
	checks_going_down(f->checks, down, power);
	for (unsigned i = 0; i < f->c->shape.sdss; i++) {
		sim_sds_kill(&f->c->sds[i], power);
		if (!loss_has(f->opts.loss, &f->c->sds[i]))
			sim_sds_start_in(&f->c->sds[i], away_ns(w));
	}
}

/* ------------------------------------------------------------ both copies in short order */

static void on_doomed(struct sim_event *event)
{
	struct doomed *d = sim_container(event, struct doomed, event);

	die(d->f, d->s, d->power, away_ns(d->f->c->w));
}

static void doom(struct faults *f, unsigned i, struct sim_sds *s, uint64_t in)
{
	f->doomed[i].s = s;
	f->doomed[i].power = sim_chance(f->c->w, 400);
	sim_in(f->c->w, &f->doomed[i].event, in);
}

/* The disk of one is slow before, so that it has less of what was under way than the other. */
void fault_pair_crash(struct faults *f, const struct subject *x)
{
	struct sim_world *w = f->c->w;
	uint64_t first = sim_below(w, 30 * SIM_MS);
	uint64_t apart = sim_below(w, sim_chance(w, 600) ? 3 * SIM_MS : 1500 * SIM_MS);
	bool p_first = sim_chance(w, 500);

	if (!x->p || !x->o || sim_scheduled(&f->doomed[0].event) ||
	    sim_scheduled(&f->doomed[1].event))
		return;
	w->n.pair_crash++;
	sim_trace(w, "event=pair_crash primary=%s other=%s", x->p->host.name, x->o->host.name);
	if (sim_chance(w, 600)) {
		struct sim_sds *slow = sim_chance(w, 700) ? x->p : x->o;

		for (unsigned d = 0; d < f->c->shape.disks; d++)
			sim_disk_slow(slow->disk[d], w->now + 200 * SIM_MS,
				      (unsigned)sim_between(w, 20, 400));
	}
	doom(f, 0, x->p, first + (p_first ? 0 : apart));
	doom(f, 1, x->o, first + (p_first ? apart : 0));
}

/* ------------------------------------------------------------ pauses */

void fault_pause(struct faults *f, struct sim_sds *s)
{
	struct sim_world *w = f->c->w;
	uint64_t ns = 20 * SIM_MS + sim_below(w, sim_chance(w, 500) ? 600 * SIM_MS : 4 * SIM_S);

	if (!s->p || s->p->paused)
		return;
	w->n.sds_pause++;
	sim_trace(w, "event=pause sds=%s ms=%llu", s->host.name, (unsigned long long)(ns / SIM_MS));
	sim_proc_pause(s->p, ns);
}

/* ------------------------------------------------------------ clients */

static void on_sdc_return(struct sim_event *event)
{
	struct faults *f = sim_container(event, struct faults, sdc_return);
	struct sim_sdc *s = f->away;

	f->away = NULL;
	sim_sdc_start(s);
	load_start(f->load, s);
}

static void on_sdc_death(struct sim_event *event)
{
	struct faults *f = sim_container(event, struct faults, sdc_death);
	struct sim_world *w = f->c->w;

	w->n.sdc_crash++;
	sim_sdc_kill(f->away);
	load_killed(f->load, f->away);
	sim_in(w, &f->sdc_return, SIM_MS + sim_below(w, SIM_S));
}

/* What a process has sent before it dies may be on its way for long. */
void fault_sdc_crash(struct faults *f)
{
	struct sim_world *w = f->c->w;
	struct sim_sdc *s = &f->c->sdc[sim_below(w, f->c->shape.sdcs)];
	uint64_t in = 0;

	if (f->away || !s->p)
		return;
	if (sim_chance(w, 600)) {
		w->n.sdc_late++;
		in = sim_below(w, 40 * SIM_MS);
		sim_net_hold(&f->c->fabric, &s->host, NULL, w->now + in + sim_below(w, 3 * SIM_S));
	}
	f->away = s;
	sim_in(w, &f->sdc_death, in);
}

/* ------------------------------------------------------------ life */

void fault_sds_init(struct faults *f)
{
	f->sdc_return.fn = on_sdc_return;
	f->sdc_death.fn = on_sdc_death;
	for (unsigned i = 0; i < 2; i++) {
		f->doomed[i].f = f;
		f->doomed[i].event.fn = on_doomed;
	}
}

void fault_sds_cancel(struct faults *f)
{
	for (unsigned i = 0; i < 2; i++)
		sim_cancel(f->c->w, &f->doomed[i].event);
	if (sim_scheduled(&f->sdc_death))
		f->away = NULL;
	sim_cancel(f->c->w, &f->sdc_death);
}
