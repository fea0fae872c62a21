/* SPDX-License-Identifier: MIT */
/* The simulated network: what it promises to cores, and that it breaks things as meant. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sim/net.h"

#define MESSAGES 200

static struct sim_world w;
static struct sim_fabric fabric;
static struct sim_host host[2];
static struct sim_proc *client, *server;

struct end {
	struct ash_conn *conn;
	unsigned ups, downs, msgs, sent;
	int reason;
	uint64_t next_tag;
	bool hold; /* keeps messages, to use up buffers */
	struct ash_msg *held;
};
static struct end c_end, s_end;

static void on_up(struct ash_conn *conn)
{
	c_end.ups++;
}

static void on_msg(struct ash_conn *conn, struct ash_msg *m)
{
	struct end *e = conn->owner;

	assert_int_equal(e->downs, 0);
	assert_int_equal(m->h.tag, e->next_tag);
	e->next_tag++;
	e->msgs++;
	if (m->data_bytes) {
		assert_int_equal((uintptr_t)m->data % 4096, m->h.offset % 4096);
		for (uint32_t i = 0; i < m->data_bytes; i++)
			assert_int_equal(m->data[i], (uint8_t)m->h.tag);
		assert_int_equal(m->crc[0], m->h.tag * 3);
	}
	if (e->hold) {
		m->next = e->held;
		e->held = m;
	} else {
		ash_msg_free(conn->net, m);
	}
}

static void on_down(struct ash_conn *conn, int reason)
{
	struct end *e = conn->owner;

	e->downs++;
	e->reason = reason;
	e->conn = NULL;
}

static const struct ash_conn_events events = {.on_up = on_up, .on_msg = on_msg, .on_down = on_down};

static void on_accept(struct ash_net *net, struct ash_conn *conn)
{
	conn->events = &events;
	conn->owner = &s_end;
	s_end.conn = conn;
}

static void begin(uint64_t seed)
{
	sim_world_init(&w, seed);
	sim_fabric_init(&fabric, &w);
	memset(&c_end, 0, sizeof(c_end));
	memset(&s_end, 0, sizeof(s_end));
	for (unsigned i = 0; i < 2; i++) {
		host[i] = (struct sim_host){.w = &w, .index = 1 + i};
		snprintf(host[i].name, sizeof(host[i].name), "host%u", i);
		sim_host_boot(&host[i]);
	}
	client = sim_proc_new(&host[0], "client", 2u << 20);
	server = sim_proc_new(&host[1], "server", 2u << 20);
	sim_net_attach(&fabric, client);
	sim_net_attach(&fabric, server);
	sim_net_listen(server, on_accept, NULL);
}

static void stop(struct sim_proc **p)
{
	if (!*p)
		return;
	sim_proc_kill(*p);
	sim_net_kill(*p, false);
	sim_proc_free(*p);
	*p = NULL;
}

static void end(void)
{
	assert_false(w.failed);
	while (sim_step(&w))
		;
	stop(&client);
	stop(&server);
	sim_world_done(&w);
}

static void on_alarm(struct sim_event *event)
{
}

static void run_for(uint64_t ns)
{
	struct sim_event alarm = {.fn = on_alarm};

	sim_in(&w, &alarm, ns);
	while (sim_scheduled(&alarm) && sim_step(&w))
		;
}

static void connect_now(void)
{
	struct ash_endpoint to = sim_endpoint(&host[1]);

	c_end.conn = ash_net_connect(client->port.net, &to, &events, &c_end);
	run_for(5 * SIM_MS);
}

static void sent(struct ash_msg *m)
{
	struct sim_proc *p = m->owner;

	(p == client ? &c_end : &s_end)->sent++;
	free(m->backend[19] ? (void *)(uintptr_t)m->backend[19] : NULL);
	ash_msg_free(p->port.net, m);
}

/* Memory of the data is overwritten as soon as sent() allows it. */
static void send_one(struct sim_proc *p, struct ash_conn *conn, uint64_t tag, uint32_t bytes)
{
	struct ash_msg *m = ash_msg_alloc(p->port.net);
	uint8_t *mem = malloc(bytes + 4 * 300 + 8);

	assert_non_null(m);
	m->h.op = bytes ? ASH_OP_WRITE : ASH_OP_PING;
	m->h.tag = tag;
	m->h.offset = 512 * (tag % 16);
	m->h.length = bytes;
	m->crcs = bytes ? (uint32_t)((m->h.offset % 4096 + bytes + 4095) / 4096) : 0;
	m->crc = (uint32_t *)(void *)mem;
	for (uint32_t i = 0; i < m->crcs; i++)
		m->crc[i] = (uint32_t)tag * 3;
	m->data = mem + 1200;
	m->data_bytes = bytes;
	memset(m->data, (int)(uint8_t)tag, bytes);
	m->owner = p;
	m->sent = sent;
	m->backend[19] = (uint64_t)(uintptr_t)mem;
	ash_conn_send(conn, m);
}

static void keeps_order_and_data(void **state)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		begin(seed);
		fabric.stall_chance = 100;
		connect_now();
		assert_int_equal(c_end.ups, 1);
		for (unsigned i = 0; i < MESSAGES; i++) {
			send_one(client, c_end.conn, i, (i % 5) * 1536);
			send_one(server, s_end.conn, i, 0);
			run_for(sim_below(&w, 20 * SIM_US));
		}
		run_for(5 * SIM_S);
		assert_int_equal(s_end.msgs, MESSAGES);
		assert_int_equal(c_end.msgs, MESSAGES);
		assert_int_equal(c_end.sent, MESSAGES);
		assert_int_equal(client->msgs_out, 0);
		assert_int_equal(ash_bufs_in_use(server->port.bufs), 0);
		end();
	}
}

static void refused_without_listener(void **state)
{
	begin(1);
	stop(&server);
	connect_now();
	assert_int_equal(c_end.downs, 1);
	assert_int_equal(c_end.reason, -ECONNREFUSED);
	end();
}

static void close_tells_both_and_gives_everything_back(void **state)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		begin(seed);
		connect_now();
		for (unsigned i = 0; i < 10; i++) {
			send_one(client, c_end.conn, i, 512);
			send_one(server, s_end.conn, i, 512);
		}
		if (seed % 2)
			run_for(30 * SIM_US);
		ash_conn_close(c_end.conn);
		ash_conn_close(c_end.conn);
		run_for(SIM_S);
		assert_int_equal(c_end.downs, 1);
		assert_int_equal(c_end.reason, 0);
		assert_int_equal(s_end.downs, 1);
		assert_int_equal(s_end.reason, -ECONNRESET);
		assert_int_equal(c_end.sent, 10);
		assert_int_equal(s_end.sent, 10);
		assert_int_equal(client->msgs_out + server->msgs_out, 0);
		end();
	}
}

static void half_open_delivers_late(void **state)
{
	unsigned late = 0;

	for (uint64_t seed = 1; seed <= 50; seed++) {
		begin(seed);
		connect_now();
		while (!sim_net_break(&fabric, &host[0], &host[1], SIM_BREAK_HALF, 1))
			;
		for (unsigned i = 0; i < 10 && c_end.conn; i++) {
			send_one(client, c_end.conn, i, 512);
			run_for(12 * SIM_US);
		}
		run_for(SIM_MS);
		assert_int_equal(c_end.downs, 1);
		assert_int_equal(s_end.downs, 0);
		late -= s_end.msgs;
		run_for(20 * SIM_S);
		late += s_end.msgs;
		assert_int_equal(s_end.downs, 1);
		end();
	}
	assert_true(late > 20);
}

static void waits_for_buffers(void **state)
{
	begin(1);
	connect_now();
	s_end.hold = true;
	for (unsigned i = 0; i < 400; i++)
		send_one(client, c_end.conn, i, 64 * 1024);
	run_for(SIM_S);
	assert_true(s_end.msgs > 0 && s_end.msgs < 400);
	s_end.hold = false;
	while (s_end.held) {
		struct ash_msg *m = s_end.held;

		s_end.held = m->next;
		ash_msg_free(server->port.net, m);
	}
	run_for(SIM_S);
	assert_int_equal(s_end.msgs, 400);
	end();
}

static void pause_holds_back(void **state)
{
	begin(1);
	connect_now();
	server->port.net->ops->pause(s_end.conn, true);
	send_one(client, c_end.conn, 0, 512);
	run_for(SIM_S);
	assert_int_equal(s_end.msgs, 0);
	server->port.net->ops->pause(s_end.conn, false);
	run_for(SIM_S);
	assert_int_equal(s_end.msgs, 1);
	end();
}

static void killed_peer(void **state)
{
	begin(1);
	connect_now();
	send_one(client, c_end.conn, 0, 512);
	stop(&server);
	run_for(SIM_S);
	assert_int_equal(c_end.downs, 1);
	assert_int_equal(c_end.sent, 1);
	end();
}

static void a_cut_holds_messages_or_kills(void **state)
{
	begin(1);
	connect_now();
	sim_net_cut(&fabric, &host[0], &host[1], true);
	send_one(client, c_end.conn, 0, 512);
	run_for(500 * SIM_MS);
	assert_int_equal(s_end.msgs, 0);
	sim_net_cut(&fabric, &host[0], &host[1], false);
	run_for(SIM_S);
	assert_int_equal(s_end.msgs, 1);
	sim_net_cut(&fabric, &host[0], &host[1], true);
	run_for(15 * SIM_S);
	assert_int_equal(c_end.downs, 1);
	assert_int_equal(s_end.downs, 1);
	end();
}

static void paused_process_hears_later(void **state)
{
	begin(1);
	connect_now();
	sim_proc_pause(server, 2 * SIM_S);
	send_one(client, c_end.conn, 0, 512);
	run_for(SIM_S);
	assert_int_equal(s_end.msgs, 0);
	run_for(2 * SIM_S);
	assert_int_equal(s_end.msgs, 1);
	end();
}

static uint64_t trace_of(uint64_t seed)
{
	uint64_t hash;

	begin(seed);
	fabric.stall_chance = 50;
	connect_now();
	for (unsigned i = 0; i < MESSAGES; i++)
		send_one(client, c_end.conn, i, 512);
	run_for(SIM_S);
	hash = w.hash;
	end();
	return hash;
}

static void same_seed_same_history(void **state)
{
	assert_true(trace_of(3) == trace_of(3));
	assert_true(trace_of(3) != trace_of(4));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keeps_order_and_data),
		cmocka_unit_test(refused_without_listener),
		cmocka_unit_test(close_tells_both_and_gives_everything_back),
		cmocka_unit_test(half_open_delivers_late),
		cmocka_unit_test(waits_for_buffers),
		cmocka_unit_test(pause_holds_back),
		cmocka_unit_test(killed_peer),
		cmocka_unit_test(a_cut_holds_messages_or_kills),
		cmocka_unit_test(paused_process_hears_later),
		cmocka_unit_test(same_seed_same_history),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
