/* SPDX-License-Identifier: MIT */
#include "tests/sim/net.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/shared/wire_codec.h"

#define sim_container(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define MSGS_PER_SLAB 64

struct packet {
	struct packet *next;
	uint64_t at;
	uint32_t bytes, crcs, data_bytes;
	bool fin;
	int reason;
	uint8_t hdr[96];
	uint8_t payload[]; /* checksums (host order), then data */
};

enum conn_state { CONNECTING, UP, CLOSED, BROKEN };

struct sim_conn {
	struct ash_conn c; /* first */
	struct sim_item item;
	bool item_queued;
	struct sim_proc *p;
	struct sim_fabric *f;
	const struct sim_host *from, *to; /* own host, the other's */
	struct sim_conn *peer;
	struct sim_conn *next, **prev; /* of the process */
	struct sim_conn *all_next, **all_prev;
	struct sim_event connect_event, rx_event, tx_event, death_event;
	enum conn_state state;
	bool accept_due, up_due, paused, running;
	int reason;
	struct ash_msg *tx, **tx_end, *sent, **sent_end;
	struct packet *rx, **rx_end; /* on their way, then arrived and not yet delivered */
	uint64_t last_arrival, stalled_until;
	struct ash_buf_waiter waiter;
};

struct sim_net {
	struct ash_net n; /* first */
	struct sim_proc *p;
	struct sim_fabric *f;
	struct ash_msg *free_msgs;
	void *slabs;
};

/* ------------------------------------------------------------ memory */

static struct ash_msg *msg_alloc(struct ash_net *net)
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

static void msg_free(struct ash_net *net, struct ash_msg *m)
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

static struct packet *packet_new(uint32_t payload)
{
	struct packet *k = malloc(sizeof(*k) + payload);

	if (!k)
		abort();
	memset(k, 0, sizeof(*k));
	return k;
}

static void drop_packets(struct sim_conn *c)
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

static void conn_kick(struct sim_conn *c)
{
	if (c->item_queued || c->running || !c->p)
		return;
	c->item_queued = true;
	sim_proc_push(c->p, &c->item);
}

static void on_rx_event(struct sim_event *event);
static void on_tx_event(struct sim_event *event);
static void on_death_event(struct sim_event *event);
static void on_buffer(struct ash_buf_waiter *waiter);

static struct sim_conn *conn_new(struct sim_fabric *f, struct sim_proc *p,
				 const struct sim_host *to)
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
	c->tx_event.fn = on_tx_event;
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

static void conn_free(struct sim_conn *c)
{
	struct sim_world *w = c->f->w;

	sim_cancel(w, &c->connect_event);
	sim_cancel(w, &c->rx_event);
	sim_cancel(w, &c->tx_event);
	sim_cancel(w, &c->death_event);
	drop_packets(c);
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
			msg_free(c->c.net, m);
		m = next;
	}
}

/* This end learns that the connection is over. */
static void conn_break(struct sim_conn *c, int reason)
{
	if (c->state == CLOSED || c->state == BROKEN)
		return;
	c->state = BROKEN;
	c->reason = reason;
	conn_kick(c);
}

static void on_death_event(struct sim_event *event)
{
	conn_break(sim_container(event, struct sim_conn, death_event), -ECONNRESET);
}

/* The stream to @c ends after what is on its way; @lost: some of that is lost too. */
static void send_fin(struct sim_conn *c, uint64_t delay, bool lost)
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
	k = packet_new(0);
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
	conn_kick(sim_container(event, struct sim_conn, rx_event));
}

static void on_buffer(struct ash_buf_waiter *waiter)
{
	conn_kick(sim_container(waiter, struct sim_conn, waiter));
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
	struct ash_msg *m = msg_alloc(c->c.net);

	if (!m)
		return false;
	if (ash_hdr_decode(k->hdr, &m->h) ||
	    ((m->h.flags & ASH_F_RELAY) && ash_relay_decode(k->hdr + 64, &m->relay)))
		abort(); /* it was encoded by our own codec */
	if (!take_payload(c, m, k)) {
		msg_free(c->c.net, m);
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
			conn_break(c, k->reason);
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
		conn_free(c);
		return;
	}
	c->running = false;
	if (c->sent)
		conn_kick(c);
}

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
	k = packet_new((uint32_t)bytes);
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

static uint64_t travel_ns(struct sim_conn *c, uint32_t bytes)
{
	struct sim_fabric *f = c->f;
	uint64_t ns = sim_latency(f->w, f->latency_ns) + bytes; /* about 1 GB/s */

	if (f->slow_until[c->from->index] > f->w->now || f->slow_until[c->to->index] > f->w->now)
		ns += sim_below(f->w, 20 * SIM_MS);
	return ns;
}

/* The canary: a replicated write is acknowledged by the network and reaches nobody. */
static bool swallow(struct sim_conn *c, const struct ash_msg *m)
{
	struct ash_msg answer = {.h = m->h};
	struct packet *k;

	if (!c->f->canary_repl || m->h.op != ASH_OP_REPL_WRITE || (m->h.flags & ASH_F_REPLY) ||
	    !sim_chance(c->f->w, 20))
		return false;
	c->f->canary_repl = false;
	sim_trace(c->f->w, "event=canary swallowed=repl_write node=%llu offset=%llu bytes=%u",
		  (unsigned long long)m->h.node, (unsigned long long)m->h.offset, m->h.length);
	answer.h.flags |= ASH_F_REPLY;
	k = encode(c, &answer);
	k->at = c->f->w->now + 2 * travel_ns(c, 0);
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
	k->at = c->f->w->now + travel_ns(c, k->bytes);
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
	conn_kick(c);
}

static void on_tx_event(struct sim_event *event)
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
		conn_kick(c);
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
		conn_break(c, -ETIMEDOUT);
		return;
	}
	if (!there || !there->alive) {
		conn_break(c, -ECONNREFUSED);
		return;
	}
	other = conn_new(f, there, c->from);
	other->state = UP;
	other->c.up = true;
	other->accept_due = true;
	other->peer = c;
	c->peer = other;
	c->state = UP;
	c->up_due = true;
	other->last_arrival = c->last_arrival = f->w->now;
	conn_kick(other);
	conn_kick(c);
}

static struct ash_conn *net_connect(struct ash_net *net, const struct ash_endpoint *to,
				    const struct ash_conn_events *events, void *owner)
{
	struct sim_net *n = (struct sim_net *)net;
	struct sim_fabric *f = n->f;
	struct sim_host *host = to->ip[15] < SIM_HOSTS_MAX ? f->host[to->ip[15]] : NULL;
	struct sim_conn *c;
	uint64_t ns = 2 * sim_latency(f->w, f->latency_ns);

	c = conn_new(f, n->p, host ? host : n->p->host);
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
			send_fin(c->peer, travel_ns(c, 0), sim_chance(c->f->w, 300));
		else if (c->peer)
			sim_in(c->f->w, &c->peer->death_event, 1 + sim_below(c->f->w, 10 * SIM_S));
	}
	c->state = CLOSED;
	drop_packets(c);
	conn_kick(c);
}

static void net_pause(struct ash_conn *conn, bool paused)
{
	struct sim_conn *c = (struct sim_conn *)conn;

	c->paused = paused;
	if (!paused)
		conn_kick(c);
}

static const struct ash_net_ops net_ops = {
	.connect = net_connect,
	.send = net_send,
	.close = net_close,
	.pause = net_pause,
	.msg_alloc = msg_alloc,
	.msg_free = msg_free,
};

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
	n->n.ops = &net_ops;
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
			uint64_t delay = travel_ns(c, 0);

			if (power)
				delay = 100 * SIM_MS + sim_below(f->w, 12 * SIM_S);
			send_fin(c->peer, delay, sim_chance(f->w, 500));
		}
		conn_free(c);
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

/* One end hears now; what it sent before reaches the other end late, and only then the end. */
static void break_half(struct sim_conn *c)
{
	struct sim_world *w = c->f->w;
	struct sim_conn *other = c->peer;
	uint64_t delay = 5 * SIM_MS + sim_below(w, sim_chance(w, 500) ? 50 * SIM_MS : 4 * SIM_S);
	struct packet *k;

	conn_break(c, -ETIMEDOUT);
	drop_packets(c);
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
	send_fin(other, delay + 1 + sim_below(w, SIM_S), false);
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
			f->w->n.half_open++;
			break_half(c);
		} else {
			f->w->n.conn_reset++;
			drop_packets(c);
			drop_packets(c->peer);
			conn_break(c->peer, -ECONNRESET);
			conn_break(c, -ECONNRESET);
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

unsigned sim_net_conns(const struct sim_proc *p)
{
	const struct sim_conn *c;
	unsigned n = 0;

	for (c = p->conns; c; c = c->next)
		n++;
	return n;
}
