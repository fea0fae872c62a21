/* SPDX-License-Identifier: MIT */
/* Sending, connecting, closing. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/net_int.h"

/* ------------------------------------------------------------ sending */

static struct packet *encode(struct sim_conn *c, const struct ash_msg *m)
{
	uint32_t crcs = 0, data_bytes = 0;
	int64_t bytes = ash_hdr_payload(&m->h, &crcs, &data_bytes);
	struct packet *k;

	if (bytes < 0 || (uint32_t)bytes != crcs * 4 + data_bytes || crcs != m->crcs ||
	    data_bytes != m->data_bytes) {
		sim_fail(c->f->w, "codec",
			 "%s sends op %u flags %#x status %u length %u with %u bytes and %u "
			 "checksums; the header says %lld, %u, %u",
			 c->p->name, m->h.op, m->h.flags, m->h.status, m->h.length, m->data_bytes,
			 m->crcs, (long long)bytes, data_bytes, crcs);
		bytes = 0;
		crcs = data_bytes = 0;
	}
	k = sim_packet_new((uint32_t)bytes);
	k->bytes = (uint32_t)bytes;
	k->crcs = crcs;
	k->data_bytes = data_bytes;
	ash_hdr_encode(&m->h, (m->h.flags & ASH_F_RELAY) ? &m->relay : NULL, k->hdr);
	if (crcs)
		memcpy(k->payload, m->crc, crcs * 4);
	if (data_bytes)
		memcpy(k->payload + crcs * 4, m->data, data_bytes);
	return k;
}

uint64_t sim_travel_ns(struct sim_conn *c, uint32_t bytes)
{
	struct sim_fabric *f = c->f;
	uint64_t ns = sim_latency(f->w, f->latency_ns) + bytes; /* about 1 GB/s */

	if (f->slow_until[c->from->index] > f->w->now || f->slow_until[c->to->index] > f->w->now)
		ns += sim_below(f->w, 20 * SIM_MS);
	return ns;
}

/* The canary: now and then a replicated write is acknowledged by the network and reaches nobody. */
static bool swallow(struct sim_conn *c, const struct ash_msg *m)
{
	struct ash_msg answer = {.h = m->h};
	struct packet *k;

	if (!c->f->canary_repl || m->h.op != ASH_OP_REPL_WRITE || (m->h.flags & ASH_F_REPLY) ||
	    !sim_chance(c->f->w, 20))
		return false;
	sim_trace(c->f->w, "event=canary swallowed=repl_write node=%llu offset=%llu bytes=%u",
		  (unsigned long long)m->h.node, (unsigned long long)m->h.offset, m->h.length);
	answer.h.flags |= ASH_F_REPLY;
	answer.h.length = 0;
	k = encode(c, &answer);
	k->at = c->f->w->now + 2 * sim_travel_ns(c, 0);
	if (k->at <= c->last_arrival)
		k->at = c->last_arrival + 1;
	c->last_arrival = k->at;
	*c->rx_end = k;
	c->rx_end = &k->next;
	if (c->rx == k)
		sim_at(c->f->w, &c->rx_event, k->at);
	return true;
}

static void transmit(struct sim_conn *c, const struct ash_msg *m)
{
	struct sim_conn *to = c->peer;
	struct packet *k;

	if (swallow(c, m))
		return;
	k = encode(c, m);

	if (!to || to->state == CLOSED || to->state == BROKEN) {
		free(k); /* into the void; this end hears of it later */
		return;
	}
	k->at = c->f->w->now + sim_travel_ns(c, k->bytes);
	if (c->held_until > k->at) {
		k->at = c->held_until + sim_below(c->f->w, SIM_MS);
		c->f->w->n.held_messages++;
	}
	if (k->at <= to->last_arrival)
		k->at = to->last_arrival + 1;
	to->last_arrival = k->at;
	*to->rx_end = k;
	to->rx_end = &k->next;
	if (to->rx == k)
		sim_at(c->f->w, &to->rx_event, k->at);
}

static bool may_leave(struct sim_conn *c)
{
	struct sim_fabric *f = c->f;

	if (c->state != UP || f->cut[c->from->index][c->to->index])
		return false;
	if (c->stalled_until > f->w->now)
		return false;
	if (sim_chance(f->w, f->stall_chance)) {
		c->stalled_until = f->w->now + sim_below(f->w, 5 * SIM_MS);
		f->w->n.net_stall++;
		sim_at(f->w, &c->tx_event, c->stalled_until);
		return false;
	}
	return true;
}

static void flush_conn(struct sim_conn *c)
{
	struct ash_msg *m;

	if (!c->tx || !may_leave(c))
		return;
	while ((m = c->tx)) {
		c->tx = m->next;
		m->next = NULL;
		transmit(c, m);
		*c->sent_end = m;
		c->sent_end = &m->next;
	}
	c->tx_end = &c->tx;
	c->c.queued_bytes = 0;
	sim_conn_kick(c);
	if (c->trap && --c->trap == 0)
		sim_break_half(c);
}

void sim_on_tx_event(struct sim_event *event)
{
	struct sim_conn *c = sim_container(event, struct sim_conn, tx_event);

	if (c->p && !c->p->paused)
		flush_conn(c);
}

void sim_net_flush(struct sim_proc *p)
{
	struct sim_conn *c;

	for (c = p->conns; c; c = c->next)
		if (c->tx)
			flush_conn(c);
}

static void net_send(struct ash_conn *conn, struct ash_msg *m)
{
	struct sim_conn *c = (struct sim_conn *)conn;

	m->next = NULL;
	if (c->state == CLOSED || c->state == BROKEN) {
		*c->sent_end = m;
		c->sent_end = &m->next;
		sim_conn_kick(c);
		return;
	}
	*c->tx_end = m;
	c->tx_end = &m->next;
	c->c.queued_bytes += 64 + m->data_bytes + 4 * m->crcs;
	if (!c->p->in_turn)
		sim_proc_kick(c->p);
}

/* ------------------------------------------------------------ connecting and closing */

static void on_connect_event(struct sim_event *event)
{
	struct sim_conn *c = sim_container(event, struct sim_conn, connect_event), *other;
	struct sim_fabric *f = c->f;
	struct sim_proc *there = f->listener[c->to->index];
	bool cut = f->cut[c->from->index][c->to->index] || f->cut[c->to->index][c->from->index];

	if (c->state != CONNECTING)
		return;
	if (!c->to->powered || cut) {
		sim_conn_break(c, -ETIMEDOUT);
		return;
	}
	if (!there || !there->alive) {
		sim_conn_break(c, -ECONNREFUSED);
		return;
	}
	other = sim_conn_new(f, there, c->from);
	other->state = UP;
	other->c.up = true;
	other->accept_due = true;
	other->peer = c;
	c->peer = other;
	c->state = UP;
	c->up_due = true;
	other->last_arrival = c->last_arrival = f->w->now;
	sim_conn_kick(other);
	sim_conn_kick(c);
}

static struct ash_conn *net_connect(struct ash_net *net, const struct ash_endpoint *to,
				    const struct ash_conn_events *events, void *owner)
{
	struct sim_net *n = (struct sim_net *)net;
	struct sim_fabric *f = n->f;
	struct sim_host *host = to->ip[15] < SIM_HOSTS_MAX ? f->host[to->ip[15]] : NULL;
	struct sim_conn *c;
	uint64_t ns = 2 * sim_latency(f->w, f->latency_ns);

	c = sim_conn_new(f, n->p, host ? host : n->p->host);
	c->c.events = events;
	c->c.owner = owner;
	c->state = CONNECTING;
	c->connect_event.fn = on_connect_event;
	if (!host || !host->powered || f->cut[c->from->index][c->to->index] ||
	    f->cut[c->to->index][c->from->index])
		ns = SIM_S + sim_below(f->w, 2 * SIM_S);
	sim_in(f->w, &c->connect_event, ns);
	return &c->c;
}

static void net_close(struct ash_conn *conn)
{
	struct sim_conn *c = (struct sim_conn *)conn;

	if (c->state == CLOSED)
		return;
	if (c->state != BROKEN) {
		if (c->peer && !c->f->cut[c->from->index][c->to->index])
			sim_send_fin(c->peer, sim_travel_ns(c, 0), sim_chance(c->f->w, 300));
		else if (c->peer)
			sim_in(c->f->w, &c->peer->death_event, 1 + sim_below(c->f->w, 10 * SIM_S));
	}
	c->state = CLOSED;
	sim_drop_packets(c);
	sim_conn_kick(c);
}

static void net_pause(struct ash_conn *conn, bool paused)
{
	struct sim_conn *c = (struct sim_conn *)conn;

	c->paused = paused;
	if (!paused)
		sim_conn_kick(c);
}

const struct ash_net_ops sim_net_ops = {
	.connect = net_connect,
	.send = net_send,
	.close = net_close,
	.pause = net_pause,
	.msg_alloc = sim_msg_alloc,
	.msg_free = sim_msg_free,
};
