// SPDX-License-Identifier: MIT
#include "tests/unit/sds/simdisk.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/base/switches.h"

#define PAGE 4096u
#define SECTOR 512u
#define INFLIGHT_MAX 4096u

/* @dur: what the medium holds if the cache's @cur is lost; only while dirty. */
struct page {
	uint8_t *cur, *dur;
	uint64_t write_no; /* of the last write */
	uint32_t dirty_at; /* 1 + place in the list of dirty pages, 0 = clean */
	bool bad;
};

struct flight {
	struct ash_disk_op *op;
	uint64_t flush_mark;
	uint64_t slow_until; /* count of ended operations; some take long */
};

struct simdisk {
	struct ash_disk d; /* first */
	struct simworld *w;
	struct page *pages;
	uint64_t page_count, write_no, ended;
	uint32_t *dirty, dirty_count;
	struct flight flight[INFLIGHT_MAX];
	unsigned inflight;
	simdisk_fault_fn fault;
	void *fault_arg;
	struct simdisk_counts n;
	void (*close_done)(void *arg);
	void *close_arg;
	struct ash_task close_task;
};

static uint64_t below(struct simworld *w, uint64_t n)
{
	return ash_prng_below(&w->rng, n);
}

/* ------------------------------------------------------------ world */

static uint64_t world_now(struct ash_port *port)
{
	return ((struct simworld *)(void *)port)->now_ns;
}

static uint64_t world_rand(struct ash_port *port)
{
	return ash_prng_next(&((struct simworld *)(void *)port)->rng);
}

static void world_trace(struct ash_port *port, int level, const char *line)
{
	if (((struct simworld *)(void *)port)->trace)
		fprintf(stderr, "[%d] %s\n", level, line);
}

static void world_post(struct ash_port *port, struct ash_task *task)
{
	struct simworld *w = (struct simworld *)(void *)port;

	task->next = NULL;
	*w->tasks_end = task;
	w->tasks_end = &task->next;
}

void simworld_init(struct simworld *w, uint64_t seed)
{
	memset(w, 0, sizeof(*w));
	ash_prng_seed(&w->rng, seed);
	ash_timers_init(&w->timers);
	w->tasks_end = &w->tasks;
	w->now_ns = 1000000000;
	w->port.timers = &w->timers;
	w->port.turn_ns = w->now_ns;
	w->port.now_ns = world_now;
	w->port.rand64 = world_rand;
	w->port.trace = world_trace;
	w->port.post = world_post;
}

void simworld_done(struct simworld *w)
{
	ash_timers_done(&w->timers);
}

static void run_tasks(struct simworld *w)
{
	struct ash_task *task = w->tasks;

	w->tasks = NULL;
	w->tasks_end = &w->tasks;
	while (task) {
		struct ash_task *next = task->next;

		task->fn(task);
		task = next;
	}
}

static void complete_one(struct simdisk *d, unsigned i);

bool simworld_step(struct simworld *w)
{
	w->now_ns += 1000 + below(w, 4000);
	w->port.turn_ns = w->now_ns;
	if (ash_timers_run(&w->timers, w->now_ns))
		return true;
	if (w->tasks && (!w->disk || !w->disk->inflight || below(w, 4))) {
		run_tasks(w);
		return true;
	}
	if (w->disk && w->disk->inflight) {
		w->now_ns += 20000;
		w->port.turn_ns = w->now_ns;
		complete_one(w->disk, (unsigned)below(w, w->disk->inflight));
		return true;
	}
	if (ash_timers_next(&w->timers) == ASH_TIME_NEVER)
		return false;
	w->now_ns = w->port.turn_ns = ash_timers_next(&w->timers);
	ash_timers_run(&w->timers, w->now_ns);
	return true;
}

bool simworld_until(struct simworld *w, const bool *flag, unsigned limit)
{
	while (!*flag && limit-- > 0)
		if (!simworld_step(w))
			break;
	return *flag;
}

/* ------------------------------------------------------------ medium */

static uint8_t *page_memory(uint8_t **at)
{
	if (!*at)
		*at = ash_xcalloc(1, PAGE);
	return *at;
}

static void page_clean(struct simdisk *d, struct page *pg)
{
	uint32_t at = pg->dirty_at;

	if (!at)
		return;
	d->dirty[at - 1] = d->dirty[--d->dirty_count];
	d->pages[d->dirty[at - 1]].dirty_at = at;
	pg->dirty_at = 0;
}

static void copy_some_sectors(struct simdisk *d, uint8_t *to, const uint8_t *from)
{
	for (unsigned s = 0; s < PAGE; s += SECTOR)
		if (below(d->w, 2))
			memcpy(to + s, from + s, SECTOR);
}

static void page_write(struct simdisk *d, uint64_t index, const uint8_t *data, bool fua)
{
	struct page *pg = &d->pages[index];

	pg->bad = false;
	pg->write_no = d->write_no;
	page_memory(&pg->cur);
	if (fua || !d->d.write_back) {
		page_clean(d, pg);
	} else if (!pg->dirty_at) {
		memcpy(page_memory(&pg->dur), pg->cur, PAGE);
		d->dirty[d->dirty_count++] = (uint32_t)index;
		pg->dirty_at = d->dirty_count;
	} else if (below(d->w, 4) == 0) {
		copy_some_sectors(d, pg->dur, pg->cur);
	}
	memcpy(pg->cur, data, PAGE);
}

/* The end of a flush: all writes completed before it began are on the medium. */
static void flush_done(struct simdisk *d, uint64_t mark)
{
	for (uint32_t i = d->dirty_count; i > 0; i--) {
		struct page *pg = &d->pages[d->dirty[i - 1]];

		if (pg->write_no <= mark)
			page_clean(d, pg);
		else /* written again meanwhile: at least the former contents, here the latter */
			memcpy(pg->dur, pg->cur, PAGE);
	}
}

static int do_read(struct simdisk *d, const struct ash_disk_op *op)
{
	uint64_t index = op->offset / PAGE;
	int result = 0;

	for (unsigned i = 0; i < op->iovcnt; i++)
		for (size_t at = 0; at < op->iov[i].iov_len; at += PAGE, index++) {
			uint8_t *to = (uint8_t *)op->iov[i].iov_base + at;
			struct page *pg = &d->pages[index];

			if (pg->bad)
				result = -EIO;
			if (pg->cur && !pg->bad)
				memcpy(to, pg->cur, PAGE);
			else
				memset(to, pg->bad ? 0xbb : 0, PAGE);
		}
	d->n.reads++;
	return result;
}

static void do_write(struct simdisk *d, const struct ash_disk_op *op, bool torn)
{
	uint64_t index = op->offset / PAGE;
	uint8_t mixed[PAGE];

	d->write_no++;
	for (unsigned i = 0; i < op->iovcnt; i++)
		for (size_t at = 0; at < op->iov[i].iov_len; at += PAGE, index++) {
			const uint8_t *from = (const uint8_t *)op->iov[i].iov_base + at;
			uint64_t how = torn ? below(d->w, 4) : 0;

			if (how == 1)
				continue;
			if (how > 1) {
				memcpy(mixed, page_memory(&d->pages[index].cur), PAGE);
				copy_some_sectors(d, mixed, from);
				from = mixed;
				d->n.torn_pages++;
			}
			page_write(d, index, from, op->fua || torn);
		}
}

static void complete_one(struct simdisk *d, unsigned i)
{
	struct flight f;
	struct ash_disk_op *op;
	int result;

	for (unsigned n = 0; n < d->inflight && d->flight[i].slow_until > d->ended; n++)
		i = (i + 1) % d->inflight;
	d->ended++;
	f = d->flight[i];
	op = f.op;
	result = d->fault ? d->fault(d->fault_arg, op) : 0;
	d->flight[i] = d->flight[--d->inflight];
	d->d.inflight--;
	if (op->kind == ASH_DISK_READ) {
		int r = do_read(d, op);

		result = result ? result : r;
	} else if (op->kind == ASH_DISK_WRITE) {
		do_write(d, op, result != 0);
		d->n.writes++;
		d->n.fua_writes += op->fua;
	} else if (op->kind == ASH_DISK_FLUSH && result == 0) {
		flush_done(d, f.flush_mark);
		d->n.flushes++;
	}
	op->done(op, result);
	if (d->close_done && !d->inflight && !d->close_task.fn)
		assert(!"operation submitted after close");
}

/* The store never has two operations on one place in flight if one of them writes. */
static void check_overlap(const struct simdisk *d, const struct ash_disk_op *op)
{
	for (unsigned i = 0; i < d->inflight; i++) {
		const struct ash_disk_op *o = d->flight[i].op;

		assert(!ASH_RULE(REUSE) || o->kind > ASH_DISK_WRITE || op->kind > ASH_DISK_WRITE ||
		       (o->kind == ASH_DISK_READ && op->kind == ASH_DISK_READ) ||
		       o->offset + o->bytes <= op->offset || op->offset + op->bytes <= o->offset);
	}
}

static void disk_submit(struct ash_disk *disk, struct ash_disk_op *op)
{
	struct simdisk *d = (struct simdisk *)(void *)disk;
	uint64_t sum = 0;

	assert(!d->close_done && d->inflight < INFLIGHT_MAX);
	if (op->kind <= ASH_DISK_WRITE) {
		assert(op->iovcnt > 0 && op->iovcnt <= 64);
		for (unsigned i = 0; i < op->iovcnt; i++) {
			assert((uintptr_t)op->iov[i].iov_base % PAGE == 0);
			assert(op->iov[i].iov_len % PAGE == 0 && op->iov[i].iov_len > 0);
			sum += op->iov[i].iov_len;
		}
		assert(sum == op->bytes && sum <= (4u << 20) && op->offset % PAGE == 0);
		assert(op->offset + sum <= disk->bytes);
	}
	check_overlap(d, op);
	op->submitted_ns = d->w->now_ns;
	disk->inflight++;
	d->flight[d->inflight++] = (struct flight){
		.op = op,
		.flush_mark = d->write_no,
		.slow_until = below(d->w, 24) ? 0 : d->ended + below(d->w, 400),
	};
}

static void close_run(struct ash_task *task)
{
	struct simdisk *d =
		(struct simdisk *)(void *)((char *)task - offsetof(struct simdisk, close_task));
	void (*done)(void *) = d->close_done;

	d->close_done = NULL;
	if (done)
		done(d->close_arg);
}

static void disk_close(struct ash_disk *disk, void (*done)(void *arg), void *arg)
{
	struct simdisk *d = (struct simdisk *)(void *)disk;

	assert(!d->inflight);
	d->close_done = done;
	d->close_arg = arg;
	d->close_task.fn = close_run;
	d->w->port.post(&d->w->port, &d->close_task);
}

static const struct ash_disk_ops ops = {.submit = disk_submit, .close = disk_close};

/* ------------------------------------------------------------ tests' side */

struct simdisk *simdisk_new(struct simworld *w, uint64_t bytes, bool write_back)
{
	struct simdisk *d = ash_xcalloc(1, sizeof(*d));

	d->d.ops = &ops;
	d->d.bytes = bytes;
	d->d.write_back = write_back;
	d->w = w;
	d->page_count = bytes / PAGE;
	d->pages = ash_xcalloc(d->page_count, sizeof(*d->pages));
	d->dirty = ash_xcalloc(d->page_count, sizeof(*d->dirty));
	w->disk = d;
	return d;
}

void simdisk_clear(struct simdisk *d)
{
	for (uint64_t i = 0; i < d->page_count; i++) {
		free(d->pages[i].cur);
		free(d->pages[i].dur);
	}
	memset(d->pages, 0, d->page_count * sizeof(*d->pages));
	d->dirty_count = 0;
}

void simdisk_free(struct simdisk *d)
{
	simdisk_clear(d);
	d->w->disk = NULL;
	free(d->pages);
	free(d->dirty);
	free(d);
}

struct ash_disk *simdisk_handle(struct simdisk *d)
{
	return &d->d;
}

void simdisk_power_cut(struct simdisk *d)
{
	struct simworld *w = d->w;
	uint64_t mood = below(w, 4); /* of the cache: all lost, page by page, sector by sector */

	while (d->dirty_count) {
		struct page *pg = &d->pages[d->dirty[d->dirty_count - 1]];

		if (mood == 1 || (mood == 2 && below(w, 2)))
			memcpy(pg->dur, pg->cur, PAGE);
		else if (mood == 3)
			copy_some_sectors(d, pg->dur, pg->cur);
		memcpy(pg->cur, pg->dur, PAGE);
		page_clean(d, pg);
		d->n.lost_pages++;
	}
	d->n.inflight_cut += d->inflight;
	for (unsigned i = 0; i < d->inflight; i++)
		if (d->flight[i].op->kind == ASH_DISK_WRITE && below(w, 4))
			do_write(d, d->flight[i].op, true);
	d->inflight = 0;
	d->d.inflight = 0;
	d->close_done = NULL;
	d->fault = NULL;
}

void simdisk_kill(struct simdisk *d)
{
	d->n.inflight_cut += d->inflight;
	for (unsigned i = 0; i < d->inflight; i++)
		if (d->flight[i].op->kind == ASH_DISK_WRITE && below(d->w, 2))
			do_write(d, d->flight[i].op, false);
	d->inflight = 0;
	d->d.inflight = 0;
	d->close_done = NULL;
	d->fault = NULL;
}

void simworld_reset(struct simworld *w)
{
	w->tasks = NULL;
	w->tasks_end = &w->tasks;
	ash_timers_done(&w->timers);
	ash_timers_init(&w->timers);
}

void simdisk_set_fault(struct simdisk *d, simdisk_fault_fn fn, void *arg)
{
	d->fault = fn;
	d->fault_arg = arg;
}

void simdisk_rot(struct simdisk *d, uint64_t offset, unsigned bit)
{
	struct page *pg = &d->pages[offset / PAGE];

	page_memory(&pg->cur)[bit / 8] ^= (uint8_t)(1u << (bit % 8));
	if (pg->dirty_at)
		memcpy(pg->dur, pg->cur, PAGE);
}

void simdisk_medium_error(struct simdisk *d, uint64_t offset)
{
	d->pages[offset / PAGE].bad = true;
}

void simdisk_peek(const struct simdisk *d, uint64_t offset, uint8_t page[4096])
{
	const struct page *pg = &d->pages[offset / PAGE];

	if (pg->cur)
		memcpy(page, pg->cur, PAGE);
	else
		memset(page, 0, PAGE);
}

void simdisk_poke(struct simdisk *d, uint64_t offset, const uint8_t page[4096])
{
	memcpy(page_memory(&d->pages[offset / PAGE].cur), page, PAGE);
}

const struct simdisk_counts *simdisk_counts(const struct simdisk *d)
{
	return &d->n;
}
