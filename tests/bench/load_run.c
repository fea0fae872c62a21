// SPDX-License-Identifier: MIT
/* The workload: what comes next, and what came of it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clean.h"
#include "tests/bench/load.h"

uint64_t load_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Greater than any of an earlier run, so that a check can tell newer from older. */
static uint64_t first_seq(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return ((uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000) << 20;
}

static void completed(struct load_slot *s, int status);

int load_init(struct load *l, const struct load_opts *o, struct load_engine *e, uint64_t bytes,
	      uint64_t ops)
{
	memset(l, 0, sizeof(*l));
	l->o = o;
	l->engine = e;
	if (o->size && o->size < bytes)
		bytes = o->size;
	l->blocks = bytes / o->bs;
	if (l->blocks < 2ull * o->qd) {
		fprintf(stderr,
			"ashlar-load: %llu blocks of %llu bytes are too few for --qd %u; use a "
			"bigger volume or smaller blocks\n",
			(unsigned long long)l->blocks, (unsigned long long)o->bs, o->qd);
		return 2;
	}
	l->next_seq = first_seq();
	ash_prng_seed(&l->rng, o->seed);
	l->slot = ash_xcalloc(o->qd, sizeof(*l->slot));
	l->last = o->verify ? ash_xcalloc(l->blocks, sizeof(*l->last)) : NULL;
	l->busy = o->verify ? ash_xcalloc(l->blocks, 1) : NULL;
	l->ack_fd = -1;
	for (int i = 0; i < 3; i++)
		ash_hist_init(&l->side[i].hist);
	for (uint32_t i = 0; i < o->qd; i++) {
		l->slot[i].load = l;
		l->slot[i].done = completed;
		l->slot[i].data = aligned_alloc(4096, (o->bs + 4095) & ~4095ull);
		if (!l->slot[i].data)
			abort();
		load_pattern(l->slot[i].data, 0, o->bs, 1 + i);
	}
	if (o->ack_log && (l->ack_fd = load_ack_open(o->ack_log, o->bs)) < 0)
		return 2;
	l->ops_left = ops;
	return 0;
}

void load_done(struct load *l)
{
	for (uint32_t i = 0; l->slot && i < l->o->qd; i++)
		free(l->slot[i].data);
	free(l->slot);
	free(l->last);
	free(l->busy);
	if (l->ack_fd > 0)
		close(l->ack_fd);
	l->slot = NULL;
	l->last = NULL;
	l->busy = NULL;
	l->ack_fd = -1;
}

static bool pick_block(struct load *l, struct load_slot *s)
{
	for (int tries = 0; tries < 64; tries++) {
		uint64_t b;

		if (l->o->random)
			b = ash_prng_below(&l->rng, l->blocks);
		else
			b = l->cursor++ % l->blocks;
		if (l->busy && l->busy[b])
			continue;
		s->block = b;
		return true;
	}
	return false;
}

static void pick_kind(struct load *l, struct load_slot *s)
{
	const struct load_opts *o = l->o;

	if (o->reads && o->writes)
		s->kind = ash_prng_below(&l->rng, 100) < o->rwmix ? LOAD_READ : LOAD_WRITE;
	else
		s->kind = o->reads ? LOAD_READ : LOAD_WRITE;
}

static void issue(struct load *l, struct load_slot *s)
{
	const struct load_opts *o = l->o;

	s->fua = false;
	if (o->flush_every && l->writes_since_flush >= o->flush_every) {
		l->writes_since_flush = 0;
		s->kind = LOAD_FLUSH;
	} else {
		pick_kind(l, s);
		/* With at least two blocks per slot a free one is found. */
		while (!pick_block(l, s))
			;
	}
	if (s->kind == LOAD_WRITE) {
		s->fua = o->fua;
		s->seq = ++l->next_seq;
		l->writes_since_flush++;
		if (o->verify || o->ack_log)
			load_pattern(s->data, s->block * o->bs, o->bs, s->seq);
	}
	l->ops_left--;
	if (l->busy && s->kind != LOAD_FLUSH)
		l->busy[s->block] = 1;
	l->in_flight++;
	s->begun_ns = load_now_ns();
	l->engine->submit(l->engine, s, s->kind == LOAD_FLUSH ? 0 : s->block * o->bs,
			  s->kind == LOAD_FLUSH ? 0 : o->bs);
}

static void start(void *arg)
{
	struct load *l = arg;

	l->start_ns = load_now_ns();
	l->end_ns = l->start_ns + l->o->runtime_s * 1000000000ull;
	for (uint32_t i = 0; i < l->o->qd && l->ops_left; i++)
		issue(l, &l->slot[i]);
}

void load_run(struct load *l)
{
	l->engine->run(l->engine, start, l);
}

static void tell_mismatch(struct load *l, const struct load_slot *s, uint64_t sector, uint64_t got)
{
	if (l->mismatches++ > 20)
		return;
	fprintf(stderr, "ashlar-load: WRONG DATA at byte %llu: found write %llu, expected %llu%s\n",
		(unsigned long long)(s->block * l->o->bs + sector * 512), (unsigned long long)got,
		(unsigned long long)l->last[s->block],
		got == UINT64_MAX ? " (damaged or misplaced)" : "");
}

static void verify(struct load *l, const struct load_slot *s)
{
	if (!l->last[s->block])
		return; /* not written by this run: nobody knows what is right; see --fill */
	for (uint64_t i = 0; i < l->o->bs / 512; i++) {
		uint64_t got = load_sector(s->data + i * 512, s->block * l->o->bs + i * 512);

		if (got != l->last[s->block])
			tell_mismatch(l, s, i, got);
	}
}

static void account(struct load *l, const struct load_slot *s, int status, uint64_t now)
{
	struct load_side *side = &l->side[s->kind];

	if (status) {
		l->errors++;
		if (!l->first_error) {
			l->first_error = status;
			fprintf(stderr, "ashlar-load: %s at byte %llu failed: %s\n",
				s->kind == LOAD_READ ? "read"
						     : (s->kind == LOAD_WRITE ? "write" : "flush"),
				(unsigned long long)(s->block * l->o->bs), strerror(-status));
		}
		return;
	}
	side->ops++;
	side->bytes += s->kind == LOAD_FLUSH ? 0 : l->o->bs;
	ash_hist_add(&side->hist, now - s->begun_ns);
}

static bool go_on(const struct load *l, uint64_t now)
{
	if ((l->stop && *l->stop) || !l->ops_left || l->errors > 100)
		return false;
	return l->ops_left < UINT64_MAX / 2 || now < l->end_ns;
}

static void completed(struct load_slot *s, int status)
{
	struct load *l = s->load;
	uint64_t now = load_now_ns();

	l->in_flight--;
	account(l, s, status, now);
	if (s->kind == LOAD_WRITE && !status && l->ack_fd >= 0)
		load_ack_put(l->ack_fd, s->block, s->seq);
	if (l->last && s->kind == LOAD_WRITE)
		l->last[s->block] = status ? 0 : s->seq;
	if (l->last && s->kind == LOAD_READ && !status)
		verify(l, s);
	if (l->busy && s->kind != LOAD_FLUSH)
		l->busy[s->block] = 0;
	if (go_on(l, now)) {
		issue(l, s);
		return;
	}
	l->stop_ns = now;
	if (l->in_flight == 0)
		l->engine->finish(l->engine);
}
