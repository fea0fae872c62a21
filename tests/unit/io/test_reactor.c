// SPDX-License-Identifier: MIT
/* Tasks, timers, sleeping and waking. */
#include <errno.h>
#include <ev.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/list.h"
#include "common/base/timers.h"
#include "common/io/reactor.h"

struct world {
	struct ash_reactor *r;
	struct ash_port *port;
};

static void world_init(struct world *w, uint32_t spin_us)
{
	struct ash_reactor_opts opts = {.buffer_bytes = 1 << 20, .spin_us = spin_us};
	struct ash_error err;

	memset(w, 0, sizeof(*w));
	w->r = ash_reactor_new(&opts, &err);
	if (!w->r)
		fail_msg("%s", err.message);
	w->port = ash_reactor_port(w->r);
}

/* ------------------------------------------------------------ tasks */

struct task {
	struct ash_task t;
	struct world *w;
	unsigned *count;
	unsigned seen, again;
};

static void on_task(struct ash_task *t)
{
	struct task *x = ash_container_of(t, struct task, t);

	x->seen = ++*x->count;
	if (x->again > 0) {
		x->again--;
		x->w->port->post(x->w->port, t);
	} else if (x->w) {
		ash_reactor_stop(x->w->r);
	}
}

static void test_posted_tasks_run_in_order(void **state)
{
	struct world w;
	unsigned count = 0;
	struct task a = {.t.fn = on_task, .count = &count}, b = a, last = a;

	world_init(&w, 0);
	last.w = &w;
	last.again = 3;
	w.port->post(w.port, &a.t);
	w.port->post(w.port, &b.t);
	w.port->post(w.port, &last.t);
	assert_int_equal(count, 0);
	ash_reactor_run(w.r);
	assert_int_equal(a.seen, 1);
	assert_int_equal(b.seen, 2);
	assert_int_equal(last.seen, 6);
	ash_reactor_free(w.r);
}

#define SENDS 20000

struct sender {
	pthread_t thread;
	struct world *w;
	struct task task[SENDS];
	struct ash_task end;
	unsigned *left;
};

static unsigned received;
static bool in_order = true;

static void on_sent_task(struct ash_task *t)
{
	struct task *x = ash_container_of(t, struct task, t);

	/* Those of one sender come in the order sent. */
	in_order &= *x->count == x->seen;
	(*x->count)++;
	received++;
	if (received == 2 * SENDS)
		ash_reactor_stop(x->w->r);
}

static void *send_all(void *arg)
{
	struct sender *s = arg;

	for (unsigned i = 0; i < SENDS; i++)
		ash_reactor_send(s->w->r, &s->task[i].t);
	return NULL;
}

static void test_tasks_from_threads(void **state)
{
	static struct sender sender[2];
	static unsigned counts[2];
	struct world w;

	for (int spin = 0; spin < 2; spin++) {
		world_init(&w, spin ? 50 : 0);
		received = counts[0] = counts[1] = 0;
		for (int i = 0; i < 2; i++) {
			sender[i].w = &w;
			for (unsigned j = 0; j < SENDS; j++)
				sender[i].task[j] = (struct task){.t.fn = on_sent_task,
								  .w = &w,
								  .count = &counts[i],
								  .seen = j};
			pthread_create(&sender[i].thread, NULL, send_all, &sender[i]);
		}
		ash_reactor_run(w.r);
		for (int i = 0; i < 2; i++)
			pthread_join(sender[i].thread, NULL);
		assert_int_equal(received, 2 * SENDS);
		assert_true(in_order);
		ash_reactor_free(w.r);
	}
}

/* One thread made the reactor, another runs it, a third one stops it. */
static void *run(void *arg)
{
	ash_reactor_run(((struct world *)arg)->r);
	return NULL;
}

static void test_stop_from_outside(void **state)
{
	struct world w;
	pthread_t thread;

	world_init(&w, 0);
	for (int i = 0; i < 200; i++) {
		if (i % 2)
			ash_reactor_stop(w.r); /* before it runs counts too */
		if (i == 0) {
			pthread_create(&thread, NULL, run, &w);
			ash_reactor_stop(w.r);
			pthread_join(thread, NULL);
			ash_reactor_free(w.r);
			world_init(&w, 50);
		} else if (i % 2) {
			ash_reactor_run(w.r);
		}
	}
	ash_reactor_free(w.r);
}

static struct world *signalled;

static void on_alarm(int sig)
{
	ash_reactor_stop(signalled->r);
}

static void test_stop_from_a_signal(void **state)
{
	struct world w;
	struct sigaction sa = {.sa_handler = on_alarm};

	world_init(&w, 0);
	signalled = &w;
	sigaction(SIGALRM, &sa, NULL);
	ualarm(20000, 0);
	ash_reactor_run(w.r);
	ash_reactor_free(w.r);
}

/* ------------------------------------------------------------ timers */

struct alarm {
	struct ash_timer t;
	struct world *w;
	uint64_t due, late;
	unsigned left;
};

static void on_timer(struct ash_timer *t)
{
	struct alarm *a = ash_container_of(t, struct alarm, t);
	uint64_t now = a->w->port->now_ns(a->w->port);

	assert_true(now >= a->due);
	assert_true(a->w->port->turn_ns >= a->due);
	a->late += now - a->due;
	if (a->left-- == 0) {
		ash_reactor_stop(a->w->r);
		return;
	}
	a->due = now + 300000;
	ash_timer_set(a->w->port->timers, t, a->due);
}

static void test_timers_wake_the_sleeper(void **state)
{
	struct world w;
	struct alarm a = {.t.fn = on_timer, .w = &w, .left = 50}, far = {.t.fn = on_timer, .w = &w};
	struct ash_reactor_stats stats;

	world_init(&w, 0);
	a.due = w.port->now_ns(w.port) + 1000000;
	far.due = a.due + 3600000000000ull;
	ash_timer_set(w.port->timers, &far.t, far.due);
	ash_timer_set(w.port->timers, &a.t, a.due);
	ash_reactor_run(w.r);
	ash_reactor_stats(w.r, &stats);
	assert_true(stats.sleeps >= 50);
	/* Not a busy loop: a few turns for each. */
	assert_true(stats.turns < 50 * 10);
	print_message("timers of 300 us: %.0f us late on average\n", (double)a.late / 51e3);
	ash_reactor_free(w.r);
}

/* ------------------------------------------------------------ libev inside */

static struct world *ev_world;
static unsigned ev_ticks, turns;

static void on_tick(struct ev_loop *loop, ev_timer *t, int events)
{
	if (++ev_ticks == 20)
		ash_reactor_stop(ev_world->r);
}

static void on_turn(void *arg)
{
	turns++;
}

static void test_libev_inside(void **state)
{
	struct world w;
	ev_timer tick;

	world_init(&w, 50);
	ev_world = &w;
	ash_reactor_on_turn(w.r, on_turn, NULL);
	ev_timer_init(&tick, on_tick, 0.002, 0.002);
	ev_timer_start(ash_reactor_loop(w.r), &tick);
	ash_reactor_run(w.r);
	assert_int_equal(ev_ticks, 20);
	assert_true(turns >= 1);
	ev_timer_stop(ash_reactor_loop(w.r), &tick);
	ash_reactor_free(w.r);
}

static void test_port(void **state)
{
	struct world a, b;

	world_init(&a, 0);
	world_init(&b, 0);
	assert_int_not_equal(a.port->rand64(a.port), b.port->rand64(b.port));
	assert_true(a.port->now_ns(a.port) >= a.port->turn_ns);
	assert_non_null(a.port->bufs);
	assert_non_null(a.port->net);
	ash_reactor_free(a.r);
	ash_reactor_free(b.r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_posted_tasks_run_in_order),
		cmocka_unit_test(test_tasks_from_threads),
		cmocka_unit_test(test_stop_from_outside),
		cmocka_unit_test(test_stop_from_a_signal),
		cmocka_unit_test(test_timers_wake_the_sleeper),
		cmocka_unit_test(test_libev_inside),
		cmocka_unit_test(test_port),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
