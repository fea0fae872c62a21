// SPDX-License-Identifier: MIT
/* The world itself: its clock and what is to happen in it, its beginning and its end. */
#include "tests/unit/sdc/fake.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/list.h"
#include "tests/unit/sdc/fake_int.h"

struct fake_event *fake_event_new(struct fake *f, uint64_t in, size_t bytes,
				  void (*fn)(struct fake *, struct fake_event *))
{
	struct fake_event *e = calloc(1, sizeof(*e) + bytes), **at;

	e->at = f->now + in;
	e->fn = fn;
	e->bytes = (uint32_t)bytes;
	for (at = &f->events; *at && (*at)->at <= e->at; at = &(*at)->next)
		;
	e->next = *at;
	*at = e;
	return e;
}

/* ------------------------------------------------------------ port */

static uint64_t port_now(struct ash_port *port)
{
	return ash_container_of(port, struct fake, port)->now;
}
static uint64_t port_rand(struct ash_port *port)
{
	return ash_prng_next(&ash_container_of(port, struct fake, port)->rng);
}
static void port_trace(struct ash_port *port, int level, const char *line)
{
	struct fake *f = ash_container_of(port, struct fake, port);

	f->traces++;
	snprintf(f->last_trace, sizeof(f->last_trace), "%s", line);
	if (getenv("FAKE_TRACE"))
		fprintf(stderr, "%8.3f ms  %s\n", (double)f->now / 1e6, line);
}
static void port_post(struct ash_port *port, struct ash_task *task)
{
	struct fake *f = ash_container_of(port, struct fake, port);

	task->next = NULL;
	*f->tasks_end = task;
	f->tasks_end = &task->next;
}

static void turn(struct fake *f)
{
	struct ash_task *t;

	f->port.turn_ns = f->now;
	ash_timers_run(&f->timers, f->now);
	while ((t = f->tasks)) {
		f->tasks = t->next;
		if (!f->tasks)
			f->tasks_end = &f->tasks;
		t->fn(t);
	}
	if (f->sdc)
		sdc_turn(f->sdc);
}

void fake_run(struct fake *f, uint64_t ns, const bool *flag)
{
	uint64_t end = f->now + ns;

	for (;;) {
		uint64_t next = ash_timers_next(&f->timers);

		turn(f);
		if (flag && *flag)
			return;
		if (f->tasks)
			continue;
		next = ash_timers_next(&f->timers);
		if (f->events && f->events->at < next)
			next = f->events->at;
		if (next > end)
			break;
		if (next > f->now)
			f->now = next;
		if (f->events && f->events->at <= f->now) {
			struct fake_event *e = f->events;

			f->events = e->next;
			e->fn(f, e);
			free(e);
		}
	}
	f->now = end;
	turn(f);
}

/* ------------------------------------------------------------ set-up */

void fake_init(struct fake *f, uint64_t seed)
{
	memset(f, 0, sizeof(*f));
	ash_prng_seed(&f->rng, seed);
	ash_timers_init(&f->timers);
	f->now = FAKE_SEC;
	f->tasks_end = &f->tasks;
	f->port = (struct ash_port){.timers = &f->timers,
				    .now_ns = port_now,
				    .rand64 = port_rand,
				    .trace = port_trace,
				    .post = port_post,
				    .net = &f->net,
				    .bufs = ash_bufs_new(32 << 20)};
	f->net.ops = &fake_net_ops;
	f->ctl.ops = &fake_ctl_ops;
	f->ctl.events = &sdc_ctl_events;
	f->version = 10;
	f->size = FAKE_BYTES;
	f->mapped = true;
	f->latency_ns = 50000;
	f->place_chance = 50;
	f->store = calloc(1, FAKE_BYTES);
	f->states = calloc(1, FAKE_BYTES / 4096);
	f->flushed = malloc(FAKE_BYTES / 4096);
	memset(f->flushed, 0xff, FAKE_BYTES / 4096);
	for (int i = 0; i < FAKE_SDSS; i++)
		f->sds[i].up = true;
	for (uint32_t pg = 0; pg < FAKE_PGS; pg++)
		f->row[pg] = (struct fake_row){5, (int)pg % FAKE_SDSS};
}

struct sdc *fake_sdc(struct fake *f, const struct sdc_cfg *cfg)
{
	struct sdc_cfg def = {.name = "sdc1", .session = 77, .requests = 64};

	f->sdc = sdc_new(&f->port, &f->ctl, cfg ? cfg : &def);
	assert(f->sdc);
	f->ctl.owner = f->sdc;
	fake_ctl_set(f, true);
	return f->sdc;
}

static void set_flag(void *arg)
{
	*(bool *)arg = true;
}

void fake_done(struct fake *f)
{
	bool stopped = false;
	struct fake_event *e;
	struct fake_conn *c;

	if (f->sdc) {
		sdc_stop(f->sdc, set_flag, &stopped);
		fake_run(f, 60 * FAKE_SEC, &stopped);
		assert(stopped);
		sdc_free(f->sdc);
	}
	while ((e = f->events)) {
		f->events = e->next;
		if (e->req)
			pb__request__free_unpacked(e->req, NULL);
		free(e);
	}
	while ((c = f->conn_list ? f->conn_list : f->graveyard)) {
		if (c == f->conn_list)
			f->conn_list = c->next;
		else
			f->graveyard = c->next;
		while ((e = c->begun)) {
			c->begun = e->next;
			free(e);
		}
		free(c);
	}
	assert(f->msgs == 0);
	assert(ash_bufs_in_use(f->port.bufs) == 0);
	assert(f->timers.count == 0);
	ash_bufs_free(f->port.bufs);
	ash_timers_done(&f->timers);
	free(f->store);
	free(f->states);
	free(f->flushed);
}

struct opened {
	bool done;
	int result;
	struct sdc_vol *vol;
};

static void on_open(void *arg, int result, struct sdc_vol *vol, const char *message)
{
	struct opened *o = arg;

	o->done = true;
	o->result = result;
	o->vol = vol;
}

struct sdc_vol *fake_open(struct fake *f)
{
	struct opened o = {0};

	sdc_open(f->sdc, "v1", false, 5000, on_open, &o);
	fake_run(f, 10 * FAKE_SEC, &o.done);
	assert(o.done && o.result == 0 && o.vol);
	return o.vol;
}

void fake_close(struct fake *f, struct sdc_vol *vol)
{
	bool closed = false;

	sdc_close(vol, set_flag, &closed);
	fake_run(f, 600 * FAKE_SEC, &closed);
	assert(closed);
}

static void io_done(struct sdc_io *io, int status)
{
	struct fake_io *i = ash_container_of(io, struct fake_io, io);

	assert(!i->done);
	i->done = true;
	i->status = status;
}

void fake_submit(struct sdc_vol *vol, struct fake_io *io, uint8_t kind, uint64_t offset, void *data,
		 uint64_t bytes)
{
	io->done = false;
	io->status = 1;
	io->io.kind = kind;
	io->io.offset = offset;
	io->io.bytes = bytes;
	if (data) {
		io->iov[0] = (struct iovec){data, bytes};
		io->io.iov = io->iov;
		io->io.iovcnt = 1;
	}
	io->io.done = io_done;
	sdc_submit(vol, &io->io);
}

int fake_io(struct fake *f, struct sdc_vol *vol, uint8_t kind, uint64_t offset, void *data,
	    uint64_t bytes, uint64_t ns)
{
	struct fake_io io = {0};

	fake_submit(vol, &io, kind, offset, data, bytes);
	assert(!io.done);
	fake_run(f, ns, &io.done);
	if (!io.done)
		abort(); /* its memory is on this stack */
	return io.status;
}
