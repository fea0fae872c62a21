// SPDX-License-Identifier: MIT
/* The network: connections that keep order, and break. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/list.h"
#include "tests/unit/sdc/fake_int.h"

static struct ash_msg *msg_alloc(struct ash_net *net)
{
	ash_container_of(net, struct fake, net)->msgs++;
	return calloc(1, sizeof(struct ash_msg));
}
static void msg_free(struct ash_net *net, struct ash_msg *m)
{
	ash_container_of(net, struct fake, net)->msgs--;
	ash_buf_put(m->buf);
	free(m);
}

uint64_t fake_wire_delay(struct fake *f, struct fake_conn *c)
{
	uint64_t at = f->now + f->latency_ns / 2 + ash_prng_below(&f->rng, f->latency_ns + 1);

	if (at <= c->last_at)
		at = c->last_at + 1;
	c->last_at = at;
	return at - f->now;
}

static void give_back(struct fake_conn *c)
{
	struct ash_msg *m;

	while ((m = c->tx)) {
		c->tx = m->next;
		if (!c->tx)
			c->tx_end = &c->tx;
		m->next = NULL;
		m->sent(m);
	}
}

/* Only now are the messages' bytes read. */
static void transmit_event(struct fake *f, struct fake_event *e)
{
	struct fake_conn *c = e->conn;
	struct ash_msg *m;

	if (c->dead || c->closed)
		return;
	if (f->on_transmit)
		f->on_transmit(f);
	for (m = c->tx; m; m = m->next) {
		struct fake_event *k =
			fake_event_new(f, fake_wire_delay(f, c), m->data_bytes, fake_sds_event);
		uint32_t crcs, bytes;

		assert(ash_hdr_payload(&m->h, &crcs, &bytes) >= 0);
		assert(crcs == m->crcs && bytes == m->data_bytes);
		k->conn = c;
		k->sds = c->sds;
		k->h = m->h;
		k->crcs = m->crcs;
		if (m->crcs)
			memcpy(k->crc, m->crc, m->crcs * 4);
		if (m->data_bytes)
			memcpy(k->data, m->data, m->data_bytes);
	}
	give_back(c);
}

/* What is on its way over a broken connection arrives later than it would have. */
static void delay_rest(struct fake *f, struct fake_conn *c)
{
	uint64_t more = ash_prng_below(&f->rng, 20 * FAKE_MS);
	struct fake_event **at = &f->events, *e, *mine = NULL, **end = &mine;

	while ((e = *at)) {
		if (e->conn == c && e->fn == fake_sds_event) {
			*at = e->next;
			e->next = NULL;
			*end = e;
			end = &e->next;
		} else {
			at = &e->next;
		}
	}
	while ((e = mine)) {
		mine = e->next;
		e->at += more;
		for (at = &f->events; *at && (*at)->at <= e->at; at = &(*at)->next)
			;
		e->next = *at;
		*at = e;
	}
}

static void down_event(struct fake *f, struct fake_event *e)
{
	struct fake_conn *c = e->conn, **at;

	if (c->dead)
		return;
	give_back(c);
	c->dead = true;
	for (at = &f->conn_list; *at != c; at = &(*at)->next)
		;
	*at = c->next;
	c->next = f->graveyard; /* late messages still name it */
	f->graveyard = c;
	delay_rest(f, c);
	c->c.events->on_down(&c->c, c->closed ? 0 : -ECONNRESET);
}

void fake_conn_down(struct fake_conn *c)
{
	fake_event_new(c->f, 1, 0, down_event)->conn = c;
}

static void up_event(struct fake *f, struct fake_event *e)
{
	if (e->conn->dead || e->conn->closed)
		return;
	if (!f->sds[e->conn->sds].up) {
		fake_conn_down(e->conn);
		return;
	}
	e->conn->c.up = true;
	e->conn->c.events->on_up(&e->conn->c);
}

static struct ash_conn *net_connect(struct ash_net *net, const struct ash_endpoint *to,
				    const struct ash_conn_events *events, void *owner)
{
	struct fake *f = ash_container_of(net, struct fake, net);
	struct fake_conn *c = calloc(1, sizeof(*c));

	c->f = f;
	c->sds = to->ip[15];
	c->c.net = net;
	c->c.events = events;
	c->c.owner = owner;
	c->tx_end = &c->tx;
	c->next = f->conn_list;
	f->conn_list = c;
	f->conns++;
	fake_event_new(f, f->latency_ns, 0, up_event)->conn = c;
	return &c->c;
}

static void net_send(struct ash_conn *conn, struct ash_msg *m)
{
	struct fake_conn *c = (struct fake_conn *)conn;

	m->next = NULL;
	*c->tx_end = m;
	c->tx_end = &m->next;
	fake_event_new(c->f, ash_prng_below(&c->f->rng, c->f->latency_ns), 0, transmit_event)
		->conn = c;
}

static void net_close(struct ash_conn *conn)
{
	struct fake_conn *c = (struct fake_conn *)conn;

	if (c->closed)
		return;
	c->closed = true;
	fake_conn_down(c);
}

static void net_pause(struct ash_conn *conn, bool paused)
{
}

const struct ash_net_ops fake_net_ops = {.connect = net_connect,
					 .send = net_send,
					 .close = net_close,
					 .pause = net_pause,
					 .msg_alloc = msg_alloc,
					 .msg_free = msg_free};

void fake_break(struct fake *f, int sds)
{
	for (struct fake_conn *c = f->conn_list; c; c = c->next)
		if (c->sds == sds)
			fake_conn_down(c);
}

void fake_sds_kill(struct fake *f, int sds)
{
	f->sds[sds].up = false;
	fake_break(f, sds);
}

static void forget_begun(struct fake_conn *c, uint64_t tag)
{
	struct fake_event **at = &c->begun, *b;

	while ((b = *at)) {
		if (b->h.tag == tag) {
			*at = b->next;
			free(b);
		} else {
			at = &b->next;
		}
	}
}

void fake_reply_event(struct fake *f, struct fake_event *e)
{
	struct fake_conn *c = e->conn;
	struct ash_msg *m;
	uint8_t *data = NULL;
	uint32_t *crc = NULL;

	if (c->dead || c->closed)
		return;
	forget_begun(c, e->h.tag);
	m = msg_alloc(&f->net);
	m->h = e->h;
	m->data_bytes = e->bytes;
	m->crcs = e->crcs;
	if (!e->crcs || ash_prng_below(&f->rng, 100) >= f->place_chance ||
	    !c->c.events->on_place(&c->c, &m->h, &data, &crc)) {
		m->buf = e->bytes ? ash_buf_get(f->port.bufs,
						e->bytes + 4096 > 1048576 ? 1048576 : e->bytes,
						ASH_BUF_PEER)
				  : NULL;
		assert(m->buf || !e->bytes);
		data = m->buf ? m->buf->base : NULL;
		crc = m->buf ? m->buf->crc : NULL;
	}
	m->data = data;
	m->crc = crc;
	if (e->bytes)
		memcpy(data, e->data, e->bytes);
	if (e->crcs)
		memcpy(crc, e->crc, e->crcs * 4);
	c->c.events->on_msg(&c->c, m);
}
