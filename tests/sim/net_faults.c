/* SPDX-License-Identifier: MIT */
/* How connections break. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/net_int.h"

void sim_break_half(struct sim_conn *c)
{
	struct sim_world *w = c->f->w;
	struct sim_conn *other = c->peer;
	uint64_t delay = 5 * SIM_MS + sim_below(w, sim_chance(w, 500) ? 50 * SIM_MS : 4 * SIM_S);
	struct packet *k;

	w->n.half_open++;
	sim_trace(w, "event=conn_half_open from=%s to=%s", c->from->name, c->to->name);
	sim_conn_break(c, -ETIMEDOUT);
	sim_drop_packets(c);
	if (!other)
		return;
	for (k = other->rx; k; k = k->next)
		if (k->at > w->now) {
			k->at += delay;
			w->n.late_messages++;
		}
	if (other->last_arrival > w->now)
		other->last_arrival += delay;
	sim_cancel(w, &other->rx_event);
	sim_send_fin(other, delay + 1 + sim_below(w, SIM_S), false);
	sim_at(w, &other->rx_event, other->rx->at);
}

unsigned sim_net_break(struct sim_fabric *f, const struct sim_host *a, const struct sim_host *b,
		       enum sim_break how, unsigned most)
{
	struct sim_conn *c, *next;
	unsigned broken = 0;

	for (c = f->all; c && broken < most; c = next) {
		next = c->all_next;
		if (c->state != UP || !c->peer || (a && c->from != a) || (b && c->to != b) ||
		    !sim_chance(f->w, 400))
			continue;
		broken++;
		sim_trace(f->w, "event=conn_break from=%s to=%s how=%s", c->from->name, c->to->name,
			  how == SIM_BREAK_HALF ? "half" : "both");
		if (how == SIM_BREAK_HALF) {
			/* When it has something on its way. */
			c->trap = (unsigned)sim_between(f->w, 1, 3);
		} else {
			f->w->n.conn_reset++;
			sim_drop_packets(c);
			sim_drop_packets(c->peer);
			sim_conn_break(c->peer, -ECONNRESET);
			sim_conn_break(c, -ECONNRESET);
		}
	}
	return broken;
}

void sim_net_cut(struct sim_fabric *f, const struct sim_host *from, const struct sim_host *to,
		 bool cut)
{
	struct sim_conn *c;
	struct sim_world *w = f->w;

	if (f->cut[from->index][to->index] == cut)
		return;
	f->cut[from->index][to->index] = cut;
	for (c = f->all; c; c = c->all_next) {
		if (c->from != from || c->to != to || c->state != UP)
			continue;
		if (!cut) {
			sim_cancel(w, &c->death_event);
			if (c->tx && !sim_scheduled(&c->tx_event))
				sim_in(w, &c->tx_event, 1 + sim_below(w, 50 * SIM_MS));
			continue;
		}
		/* Retransmission gives up some day, at each end on its own. */
		if (!sim_scheduled(&c->death_event))
			sim_in(w, &c->death_event, SIM_S + sim_below(w, 9 * SIM_S));
		if (c->peer && !sim_scheduled(&c->peer->death_event))
			sim_in(w, &c->peer->death_event, SIM_S + sim_below(w, 9 * SIM_S));
	}
}

void sim_net_hold(struct sim_fabric *f, const struct sim_host *from, const struct sim_host *to,
		  uint64_t until)
{
	for (struct sim_conn *c = f->all; c; c = c->all_next)
		if (c->from == from && (!to || c->to == to) && c->state == UP &&
		    c->held_until < until)
			c->held_until = until;
}

unsigned sim_net_conns(const struct sim_proc *p)
{
	const struct sim_conn *c;
	unsigned n = 0;

	for (c = p->conns; c; c = c->next)
		n++;
	return n;
}
