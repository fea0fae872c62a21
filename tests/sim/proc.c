/* SPDX-License-Identifier: MIT */
#include "tests/sim/proc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/port/buf.h"
#include "tests/sim/net.h"

uint64_t sim_host_clock(const struct sim_host *host)
{
	int64_t ran = (int64_t)(host->w->now - host->booted_at);

	return (uint64_t)(SIM_S + (uint64_t)(ran + ran / 1000 * host->drift_ppm / 1000));
}

/* World time at which the host's clock shows @local: never too early, so that a timer that is run
 * then is due. */
static uint64_t world_time(const struct sim_host *host, uint64_t local)
{
	unsigned __int128 ran;

	if (local <= SIM_S)
		return host->booted_at;
	ran = (unsigned __int128)(local - SIM_S) * 1000000u;
	ran = ran / (uint64_t)(1000000 + host->drift_ppm) + 2000;
	if (host->drift_ppm == 0)
		ran = local - SIM_S;
	if (ran > UINT64_MAX / 4)
		return UINT64_MAX / 2;
	return host->booted_at + (uint64_t)ran;
}

void sim_host_boot(struct sim_host *host)
{
	host->powered = true;
	host->booted_at = host->w->now;
	host->boots++;
}

/* ------------------------------------------------------------ the port */

static uint64_t port_now(struct ash_port *port)
{
	return sim_host_clock(sim_container(port, struct sim_proc, port)->host);
}

static uint64_t port_rand(struct ash_port *port)
{
	return sim_rand(sim_container(port, struct sim_proc, port)->w);
}

static void port_trace(struct ash_port *port, int level, const char *line)
{
	struct sim_proc *p = sim_container(port, struct sim_proc, port);

	sim_trace(p->w, "%s: %s", p->name, line);
}

static void kick_turn(struct sim_proc *p)
{
	uint64_t at;

	if (!p->alive || p->paused || p->in_turn || sim_scheduled(&p->turn_event))
		return;
	at = p->w->now + 1 * SIM_US + sim_below(p->w, 4 * SIM_US);
	sim_at(p->w, &p->turn_event, at < p->busy_until ? p->busy_until : at);
}

static void port_post(struct ash_port *port, struct ash_task *task)
{
	struct sim_proc *p = sim_container(port, struct sim_proc, port);

	task->next = NULL;
	*p->posts_end = task;
	p->posts_end = &task->next;
	kick_turn(p);
}

/* ------------------------------------------------------------ turns */

static void run_inbox(struct sim_proc *p, unsigned most)
{
	while (p->inbox && most-- && p->alive) {
		struct sim_item *item = p->inbox;

		p->inbox = item->next;
		if (!p->inbox)
			p->inbox_end = &p->inbox;
		item->next = NULL;
		item->run(item);
	}
}

static void run_posts(struct sim_proc *p)
{
	struct ash_task *task = p->posts;

	p->posts = NULL;
	p->posts_end = &p->posts;
	while (task && p->alive) {
		struct ash_task *next = task->next;

		task->next = NULL;
		task->fn(task);
		task = next;
	}
}

static void schedule_next(struct sim_proc *p)
{
	uint64_t next;

	if (p->inbox || p->posts) {
		kick_turn(p);
		return;
	}
	next = ash_timers_next(&p->timers);
	if (next == ASH_TIME_NEVER)
		sim_cancel(p->w, &p->wake_event);
	else if (!sim_scheduled(&p->wake_event) || p->wake_event.at != world_time(p->host, next))
		sim_at(p->w, &p->wake_event, world_time(p->host, next));
}

static void turn(struct sim_proc *p)
{
	uint64_t now = sim_host_clock(p->host);

	p->in_turn = true;
	p->turns++;
	p->port.turn_ns = now;
	run_inbox(p, 32);
	if (p->alive)
		ash_timers_run(&p->timers, now);
	if (p->alive)
		run_posts(p);
	if (p->alive && p->on_turn)
		p->on_turn(p->owner);
	if (p->alive)
		sim_net_flush(p);
	p->in_turn = false;
	p->busy_until = p->w->now + 1 * SIM_US + sim_below(p->w, 3 * SIM_US);
	if (p->alive)
		schedule_next(p);
}

static void on_turn_event(struct sim_event *event)
{
	struct sim_proc *p = sim_container(event, struct sim_proc, turn_event);

	if (p->alive && !p->paused)
		turn(p);
}

static void on_wake_event(struct sim_event *event)
{
	struct sim_proc *p = sim_container(event, struct sim_proc, wake_event);

	if (p->alive && !p->paused)
		turn(p);
}

static void on_resume_event(struct sim_event *event)
{
	struct sim_proc *p = sim_container(event, struct sim_proc, resume_event);

	p->paused = false;
	kick_turn(p);
}

void sim_proc_push(struct sim_proc *p, struct sim_item *item)
{
	if (!p->alive) {
		item->drop(item);
		return;
	}
	item->next = NULL;
	*p->inbox_end = item;
	p->inbox_end = &item->next;
	kick_turn(p);
}

void sim_proc_kick(struct sim_proc *p)
{
	kick_turn(p);
}

void sim_proc_pause(struct sim_proc *p, uint64_t for_ns)
{
	p->paused = true;
	sim_cancel(p->w, &p->turn_event);
	sim_cancel(p->w, &p->wake_event);
	sim_in(p->w, &p->resume_event, for_ns);
}

/* ------------------------------------------------------------ life and death */

struct sim_proc *sim_proc_new(struct sim_host *host, const char *name, size_t buffer_bytes)
{
	struct sim_proc *p = calloc(1, sizeof(*p));

	if (!p)
		abort();
	p->w = host->w;
	p->host = host;
	p->serial = ++host->w->serial;
	p->alive = true;
	snprintf(p->name, sizeof(p->name), "%s", name);
	p->inbox_end = &p->inbox;
	p->posts_end = &p->posts;
	p->turn_event.fn = on_turn_event;
	p->wake_event.fn = on_wake_event;
	p->resume_event.fn = on_resume_event;
	p->msgs_max = 8192;
	ash_timers_init(&p->timers);
	p->port.timers = &p->timers;
	p->port.now_ns = port_now;
	p->port.rand64 = port_rand;
	p->port.trace = port_trace;
	p->port.post = port_post;
	p->port.turn_ns = sim_host_clock(host);
	if (buffer_bytes) {
		p->port.bufs = ash_bufs_new(buffer_bytes);
		if (!p->port.bufs)
			abort();
	}
	return p;
}

void sim_proc_kill(struct sim_proc *p)
{
	struct sim_item *item;

	p->alive = false;
	sim_cancel(p->w, &p->turn_event);
	sim_cancel(p->w, &p->wake_event);
	sim_cancel(p->w, &p->resume_event);
	while ((item = p->inbox)) {
		p->inbox = item->next;
		item->drop(item);
	}
	p->inbox_end = &p->inbox;
	p->posts = NULL;
	p->posts_end = &p->posts;
	/* Now, while the memory of those that are set still exists. */
	ash_timers_done(&p->timers);
	ash_timers_init(&p->timers);
}

void sim_proc_free(struct sim_proc *p)
{
	ash_timers_done(&p->timers);
	if (p->port.bufs)
		ash_bufs_free(p->port.bufs);
	free(p);
}
