/* SPDX-License-Identifier: MIT */
#include "tests/sim/net.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/net_int.h"

#define MSGS_PER_SLAB 64

/* ------------------------------------------------------------ memory */

struct ash_msg *sim_msg_alloc(struct ash_net *net)
{
	struct sim_net *n = (struct sim_net *)net;
	struct ash_msg *m;

	if (n->p->msgs_out >= n->p->msgs_max)
		return NULL;
	if (!n->free_msgs) {
		struct {
			void *next;
			struct ash_msg m[MSGS_PER_SLAB];
		} *slab = malloc(sizeof(*slab));

		if (!slab)
			abort();
		slab->next = n->slabs;
		n->slabs = slab;
		for (int i = 0; i < MSGS_PER_SLAB; i++) {
			slab->m[i].next = n->free_msgs;
			n->free_msgs = &slab->m[i];
		}
	}
	m = n->free_msgs;
	n->free_msgs = m->next;
	memset(m, 0, sizeof(*m));
	n->p->msgs_out++;
	return m;
}

void sim_msg_free(struct ash_net *net, struct ash_msg *m)
{
	struct sim_net *n = (struct sim_net *)net;

	if (!m)
		return;
	ash_buf_put(m->buf);
	/* Whoever still looks at it shall notice. */
	memset(m, 0x5a, sizeof(*m));
	m->next = n->free_msgs;
	n->free_msgs = m;
	n->p->msgs_out--;
}

struct packet *sim_packet_new(uint32_t payload)
{
	struct packet *k = malloc(sizeof(*k) + payload);

	if (!k)
		abort();
	memset(k, 0, sizeof(*k));
	return k;
}

void sim_drop_packets(struct sim_conn *c)
{
	struct packet *k;

	while ((k = c->rx)) {
		c->rx = k->next;
		free(k);
	}
	c->rx_end = &c->rx;
}

/* ------------------------------------------------------------ life of one end */

static void conn_run(struct sim_item *item);
static void conn_item_dropped(struct sim_item *item)
{
	sim_container(item, struct sim_conn, item)->item_queued = false;
}

void sim_conn_kick(struct sim_conn *c)
{
	if (c->item_queued || c->running || !c->p)
		return;
	c->item_queued = true;
	sim_proc_push(c->p, &c->item);
}

static void on_rx_event(struct sim_event *event);
static void on_death_event(struct sim_event *event);
static void on_buffer(struct ash_buf_waiter *waiter);

struct sim_conn *sim_conn_new(struct sim_fabric *f, struct sim_proc *p, const struct sim_host *to)
{
	struct sim_conn *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	c->c.net = &p->net->n;
	c->f = f;
	c->p = p;
	c->from = p->host;
	c->to = to;
	c->item.run = conn_run;
	c->item.drop = conn_item_dropped;
	c->tx_end = &c->tx;
	c->sent_end = &c->sent;
	c->rx_end = &c->rx;
	c->rx_event.fn = on_rx_event;
	c->tx_event.fn = sim_on_tx_event;
	c->death_event.fn = on_death_event;
	c->waiter.fn = on_buffer;
	c->next = p->conns;
	if (c->next)
		c->next->prev = &c->next;
	c->prev = &p->conns;
	p->conns = c;
	c->all_next = f->all;
	if (c->all_next)
		c->all_next->all_prev = &c->all_next;
	c->all_prev = &f->all;
	f->all = c;
	return c;
}

void sim_conn_free(struct sim_conn *c)
{
	struct sim_world *w = c->f->w;

	sim_cancel(w, &c->connect_event);
	sim_cancel(w, &c->rx_event);
	sim_cancel(w, &c->tx_event);
	sim_cancel(w, &c->death_event);
	sim_drop_packets(c);
	*c->prev = c->next;
	if (c->next)
		c->next->prev = c->prev;
	*c->all_prev = c->all_next;
	if (c->all_next)
		c->all_next->all_prev = c->all_prev;
	if (c->peer)
		c->peer->peer = NULL;
	free(c);
}

static void give_back_all(struct sim_conn *c)
{
	struct ash_msg *m;

	while ((m = c->tx)) {
		c->tx = m->next;
		m->next = NULL;
		*c->sent_end = m;
		c->sent_end = &m->next;
	}
	c->tx_end = &c->tx;
	c->c.queued_bytes = 0;
}

static void run_sent(struct sim_conn *c)
{
	struct ash_msg *m = c->sent;

	c->sent = NULL;
	c->sent_end = &c->sent;
	while (m) {
		struct ash_msg *next = m->next;

		m->next = NULL;
		if (m->sent)
			m->sent(m);
		else
			sim_msg_free(c->c.net, m);
		m = next;
	}
}

/* This end learns that the connection is over. */
void sim_conn_break(struct sim_conn *c, int reason)
{
	if (c->state == CLOSED || c->state == BROKEN)
		return;
	c->state = BROKEN;
	c->reason = reason;
	sim_conn_kick(c);
}

static void on_death_event(struct sim_event *event)
{
	sim_conn_break(sim_container(event, struct sim_conn, death_event), -ECONNRESET);
}

/* The stream to @c ends after what is on its way; @lost: some of that is lost too. */
void sim_send_fin(struct sim_conn *c, uint64_t delay, bool lost)
{
	struct packet *k, **at = &c->rx;
	struct sim_world *w = c->f->w;

	if (lost)
		while (*at && ((*at)->at <= w->now || sim_chance(w, 500)))
			at = &(*at)->next;
	while (lost && (k = *at)) {
		*at = k->next;
		free(k);
	}
	for (at = &c->rx; *at; at = &(*at)->next)
		;
	k = sim_packet_new(0);
	k->fin = true;
	k->reason = -ECONNRESET;
	k->at = w->now + delay;
	if (k->at <= c->last_arrival)
		k->at = c->last_arrival + 1;
	*at = k;
	c->rx_end = &k->next;
	if (!sim_scheduled(&c->rx_event))
		sim_at(w, &c->rx_event, c->rx->at);
}

/* ------------------------------------------------------------ receiving */

static void on_rx_event(struct sim_event *event)
{
	sim_conn_kick(sim_container(event, struct sim_conn, rx_event));
}

static void on_buffer(struct ash_buf_waiter *waiter)
{
	sim_conn_kick(sim_container(waiter, struct sim_conn, waiter));
}

static void place(struct sim_conn *c, struct ash_msg *m, const struct packet *k, uint8_t *data,
		  uint32_t *crc)
{
	m->data = data;
	m->data_bytes = k->data_bytes;
	m->crcs = k->crcs;
	m->crc = k->crcs ? crc : NULL;
	if (k->crcs)
		memcpy(crc, k->payload, k->crcs * 4);
	memcpy(data, k->payload + k->crcs * 4, k->data_bytes);
}

/* Puts the payload where the core wants it. False: no buffer now. */
static bool take_payload(struct sim_conn *c, struct ash_msg *m, const struct packet *k)
{
	uint32_t shift = k->crcs ? (uint32_t)(m->h.offset % ASH_BLOCK_BYTES) : 0;
	uint8_t *data = NULL;
	uint32_t *crc = NULL;

	if (!k->bytes)
		return true;
	if (c->c.events->on_place && (m->h.flags & ASH_F_REPLY) && k->crcs &&
	    sim_chance(c->f->w, c->f->place_chance) &&
	    c->c.events->on_place(&c->c, &m->h, &data, &crc)) {
		place(c, m, k, data, crc);
		return true;
	}
	m->buf = ash_buf_get(c->p->port.bufs, shift + k->data_bytes, c->c.buf_class);
	if (!m->buf)
		return false;
	place(c, m, k, m->buf->base + shift, m->buf->crc);
	return true;
}

static bool deliver_one(struct sim_conn *c, const struct packet *k)
{
	struct ash_msg *m = sim_msg_alloc(c->c.net);

	if (!m)
		return false;
	if (ash_hdr_decode(k->hdr, &m->h) ||
	    ((m->h.flags & ASH_F_RELAY) && ash_relay_decode(k->hdr + 64, &m->relay)))
		abort(); /* it was encoded by our own codec */
	if (!take_payload(c, m, k)) {
		sim_msg_free(c->c.net, m);
		return false;
	}
	c->c.events->on_msg(&c->c, m);
	return true;
}

static void deliver(struct sim_conn *c)
{
	struct sim_world *w = c->f->w;
	struct packet *k;

	while (c->state == UP && !c->paused && (k = c->rx) && k->at <= w->now) {
		if (k->fin) {
			sim_conn_break(c, k->reason);
			return;
		}
		/* Out of the list first: the core may close or send from inside. */
		c->rx = k->next;
		if (!c->rx)
			c->rx_end = &c->rx;
		if (!deliver_one(c, k)) {
			k->next = c->rx;
			c->rx = k;
			if (!k->next)
				c->rx_end = &k->next;
			if (c->p->msgs_out >= c->p->msgs_max)
				sim_in(w, &c->rx_event, 100 * SIM_US);
			else
				ash_bufs_wait(c->p->port.bufs, &c->waiter);
			return;
		}
		free(k);
	}
	if (c->rx && c->rx->at > w->now && !sim_scheduled(&c->rx_event))
		sim_at(w, &c->rx_event, c->rx->at);
}

/* Everything that this end has to tell its core, in order. */
static void conn_run(struct sim_item *item)
{
	struct sim_conn *c = sim_container(item, struct sim_conn, item);
	struct ash_net *net = c->c.net;

	c->item_queued = false;
	c->running = true;
	if (c->accept_due) {
		c->accept_due = false;
		net->on_accept(net, &c->c);
	}
	if (c->up_due && c->state == UP) {
		c->up_due = false;
		c->c.up = true;
		c->c.events->on_up(&c->c);
	}
	run_sent(c);
	deliver(c);
	if (c->state == CLOSED || c->state == BROKEN) {
		if (c->waiter.queued)
			ash_bufs_unwait(c->p->port.bufs, &c->waiter);
		give_back_all(c);
		run_sent(c);
		c->c.up = false;
		if (c->c.events && c->c.events->on_down)
			c->c.events->on_down(&c->c, c->state == CLOSED ? 0 : c->reason);
		sim_conn_free(c);
		return;
	}
	c->running = false;
	if (c->sent)
		sim_conn_kick(c);
}

/* ------------------------------------------------------------ set-up and faults */

void sim_fabric_init(struct sim_fabric *f, struct sim_world *w)
{
	memset(f, 0, sizeof(*f));
	f->w = w;
	f->latency_ns = 20 * SIM_US;
	f->place_chance = 500;
}

void sim_net_attach(struct sim_fabric *f, struct sim_proc *p)
{
	struct sim_net *n = calloc(1, sizeof(*n));

	if (!n)
		abort();
	n->n.ops = &sim_net_ops;
	n->p = p;
	n->f = f;
	p->net = n;
	p->port.net = &n->n;
	f->host[p->host->index] = p->host;
}

void sim_net_listen(struct sim_proc *p, void (*on_accept)(struct ash_net *, struct ash_conn *),
		    void *owner)
{
	p->net->n.on_accept = on_accept;
	p->net->n.owner = owner;
	p->net->f->listener[p->host->index] = p;
}

struct ash_endpoint sim_endpoint(const struct sim_host *host)
{
	struct ash_endpoint ep = {.port = 7072, .transport = ASH_TRANSPORT_TCP};

	ep.ip[10] = ep.ip[11] = 0xff;
	ep.ip[12] = 10;
	ep.ip[15] = (uint8_t)host->index;
	return ep;
}

void sim_net_kill(struct sim_proc *p, bool power)
{
	struct sim_net *n = p->net;
	struct sim_fabric *f = n->f;
	struct sim_conn *c;

	if (f->listener[p->host->index] == p)
		f->listener[p->host->index] = NULL;
	while ((c = p->conns)) {
		if (c->peer) {
			uint64_t delay = sim_travel_ns(c, 0);

			if (power)
				delay = 100 * SIM_MS + sim_below(f->w, 12 * SIM_S);
			sim_send_fin(c->peer, delay, sim_chance(f->w, 500));
		}
		sim_conn_free(c);
	}
	while (n->slabs) {
		void *next = *(void **)n->slabs;

		free(n->slabs);
		n->slabs = next;
	}
	free(n);
	p->net = NULL;
	p->port.net = NULL;
}
