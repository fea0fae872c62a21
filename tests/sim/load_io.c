/* SPDX-License-Identifier: MIT */
/* The I/Os of clients: what to do, doing it, and telling the checker. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/load_int.h"

/* ------------------------------------------------------------ what to do */

static void draw_range(struct load *load, unsigned volume, uint32_t most, uint64_t *ret_lba,
		       uint32_t *ret_sectors)
{
	struct sim_world *w = load->c->w;
	uint64_t total = load_sectors(load, volume), lba;
	unsigned kind = (unsigned)sim_below(w, 100);
	uint32_t n;

	if (kind < 35)
		n = (uint32_t)sim_between(w, 1, 7);
	else if (kind < 80)
		n = 8 * (uint32_t)sim_between(w, 1, 4);
	else if (kind < 98)
		n = (uint32_t)sim_between(w, 1, 64);
	else
		n = (uint32_t)sim_between(w, 64, SLOT_SECTORS);
	if (n > most)
		n = most;
	if (load->c->shape.style == STYLE_PINNED && sim_chance(w, 850))
		lba = load->hot[volume][0] + sim_below(w, 12);
	else if (load->c->shape.style != STYLE_WIDE && sim_chance(w, 700))
		lba = load->hot[volume][sim_below(w, HOT_PLACES)] + sim_below(w, 96);
	else
		lba = sim_below(w, total);
	if (kind >= 35 && kind < 80)
		lba &= ~7ull;
	if (lba + n > total)
		lba = total - n;
	*ret_lba = lba;
	*ret_sectors = n;
}

static void set_iov(struct sim_world *w, struct slot *s, uint64_t bytes)
{
	uint64_t first = 0, second;

	s->io.iov = s->iov;
	s->io.iovcnt = 1;
	s->iov[0] = (struct iovec){s->data, bytes};
	if (bytes <= SIM_SECTOR || sim_chance(w, 700))
		return;
	first = SIM_SECTOR * sim_between(w, 1, bytes / SIM_SECTOR - 1);
	second = bytes - first;
	s->iov[0].iov_len = first;
	s->iov[1] = (struct iovec){s->data + first, second};
	s->io.iovcnt = 2;
}

static void draw_io(struct slot *s)
{
	struct load *load = s->handle->load;
	struct sim_world *w = load->c->w;
	unsigned v = s->handle->volume, kind = (unsigned)sim_below(w, 100);
	unsigned hv = load->c->volume_history[v], client = s->handle->sdc->index;
	uint64_t lba = 0;
	uint32_t n = 0;
	enum hist_kind hk;

	memset(&s->io, 0, sizeof(s->io));
	if (load->c->shape.sparse[v]) {
		/* One small write per chunk takes all the space there is; then some is freed. */
		s->io.kind = load->fill == FILL ? SDC_WRITE : SDC_DISCARD;
		hk = load->fill == FILL ? HIST_WRITE : HIST_ZERO;
	} else if (kind < 46) {
		s->io.kind = SDC_WRITE;
		s->io.fua = sim_chance(w, 120);
		hk = HIST_WRITE;
		w->n.writes++;
	} else if (kind < 82) {
		s->io.kind = SDC_READ;
		hk = HIST_READ;
		w->n.reads++;
	} else if (kind < 88) {
		s->io.kind = SDC_DISCARD;
		hk = HIST_ZERO;
		w->n.discards++;
	} else if (kind < 94) {
		s->io.kind = SDC_WRITE_ZEROES;
		s->io.no_unmap = sim_chance(w, 300);
		hk = HIST_ZERO;
		w->n.zeroes++;
	} else {
		s->io.kind = SDC_FLUSH;
		hk = HIST_FLUSH;
		w->n.flushes++;
	}
	if (load->c->shape.sparse[v]) {
		lba = load->fill_chunk * 2048;
		n = hk == HIST_WRITE ? 8 : 2048;
		load->fill_chunk += hk == HIST_WRITE ? 1 : sim_between(w, 1, 3);
	} else if (hk == HIST_ZERO && sim_chance(w, 150))
		draw_range(load, v, (uint32_t)load_sectors(load, v) / 2, &lba, &n);
	else if (hk != HIST_FLUSH)
		draw_range(load, v, SLOT_SECTORS, &lba, &n);
	s->op = hist_begin(load->c->history, hk, hv, client, lba, n, s->io.fua);
	s->io.offset = lba * SIM_SECTOR;
	s->io.bytes = (uint64_t)n * SIM_SECTOR;
	if (hk == HIST_WRITE)
		hist_fill(load->c->history, s->op, s->data);
	else if (hk == HIST_READ)
		memset(s->data, 0xee, s->io.bytes);
	if (hk == HIST_WRITE || hk == HIST_READ)
		set_iov(w, s, s->io.bytes);
}

/* ------------------------------------------------------------ doing it */

static void read_next(struct handle *h);

static bool error_is_right(struct slot *s, int status)
{
	struct load *load = s->handle->load;

	if (status == -ESHUTDOWN)
		return s->handle->revoked;
	if (status == -ENOSPC)
		return load->nospace && s->io.kind != SDC_READ && s->io.kind != SDC_FLUSH;
	if (status != -EIO)
		return false;
	return load_errors_expected(load, s->handle->volume, s->op->lba, s->op->sectors);
}

static void io_done(struct sdc_io *io, int status)
{
	struct slot *s = sim_container(io, struct slot, io);
	struct handle *h = s->handle;
	struct load *load = h->load;
	struct sim_world *w = load->c->w;

	assert(s->busy);
	s->busy = false;
	sim_trace(w, "event=io_done sdc=%s op=%llu status=%d", h->sdc->host.name,
		  (unsigned long long)s->op->id, status);
	if (status) {
		h->over |= status == -ESHUTDOWN;
		w->n.errors_seen++;
		w->n.nospace_seen += status == -ENOSPC;
		load->refused += status == -ENOSPC;
		if (!error_is_right(s, status))
			sim_fail(w, "errors",
				 "%s: %s #%llu of volume %u at sector %llu+%u: error %d",
				 h->sdc->host.name, s->op->kind == HIST_READ ? "read" : "change",
				 (unsigned long long)s->op->id, h->volume,
				 (unsigned long long)s->op->lba, s->op->sectors, status);
	}
	hist_end(load->c->history, s->op, status, s->data, status == -ESHUTDOWN);
	s->op = NULL;
	load->done += !load->c->shape.sparse[h->volume];
	w->n.ops++;
	if (s == &h->slot[load->opts.depth])
		read_next(h);
	else if (load->c->shape.sparse[h->volume] && !load->paused)
		sim_in(w, &s->think, sim_below(w, 100 * SIM_US));
	else if (!load->paused)
		sim_in(w, &s->think, load->opts.think_ns ? sim_latency(w, load->opts.think_ns) : 1);
}

static void submit(struct slot *s)
{
	struct handle *h = s->handle;
	struct load *load = h->load;

	s->busy = true;
	s->io.done = io_done;
	load->begun += !load->c->shape.sparse[h->volume];
	sim_trace(load->c->w,
		  "event=io sdc=%s op=%llu kind=%u volume=%u lba=%llu sectors=%u fua=%d",
		  h->sdc->host.name, (unsigned long long)s->op->id, s->io.kind, h->volume,
		  (unsigned long long)s->op->lba, s->op->sectors, s->io.fua);
	sdc_submit(h->vol, &s->io);
}

/* The canary: the checker is told of a write that nobody was asked to do. */
static bool lie(struct slot *s)
{
	struct load *load = s->handle->load;

	if (!load->opts.lie || load->lied || load->begun + 10 < load->opts.ops ||
	    s->io.kind != SDC_WRITE)
		return false;
	load->lied = true;
	hist_end(load->c->history, s->op, 0, NULL, false);
	s->op = NULL;
	return true;
}

/* The volume that fills the pool is at work only when told to. */
static bool may_fill(struct load *load, unsigned volume)
{
	if (load->fill_chunk >= load_sectors(load, volume) / 2048) {
		load->fill_chunk = 0;
		load->fill = load->fill == FILL ? FULL : EMPTY;
	}
	if (load->fill == FILL && load->refused > 8) {
		load->fill_chunk = 0;
		load->fill = FULL;
	}
	return load->fill == FILL || load->fill == DRAIN;
}

static bool may_begin(const struct slot *s)
{
	const struct handle *h = s->handle;

	if (h->load->c->shape.sparse[h->volume] && !may_fill(h->load, h->volume))
		return false;

	return !h->load->paused && !s->busy && h->vol && !h->closing && !h->over &&
	       (h->load->c->shape.sparse[h->volume] || h->load->begun < h->load->opts.ops);
}

void load_push_slot(struct slot *s)
{
	if (s->queued || !s->handle->sdc->p)
		return;
	s->queued = true;
	sim_proc_push(s->handle->sdc->p, &s->item);
}

static void on_think(struct sim_event *event)
{
	struct slot *s = sim_container(event, struct slot, think);

	if (may_begin(s))
		load_push_slot(s);
}

static void slot_run(struct sim_item *item)
{
	struct slot *s = sim_container(item, struct slot, item);
	struct handle *h = s->handle;

	s->queued = false;
	if (s == &h->slot[h->load->opts.depth]) {
		read_next(h);
		return;
	}
	if (!may_begin(s))
		return;
	draw_io(s);
	if (lie(s))
		sim_in(h->load->c->w, &s->think, 1);
	else
		submit(s);
}

static void slot_drop(struct sim_item *item)
{
	sim_container(item, struct slot, item)->queued = false;
}

void load_kick_slots(struct handle *h)
{
	struct sim_world *w = h->load->c->w;

	for (unsigned i = 0; i < h->load->opts.depth; i++)
		if (!h->slot[i].busy && !sim_scheduled(&h->slot[i].think))
			sim_in(w, &h->slot[i].think, sim_below(w, 2 * SIM_MS));
}

static void read_next(struct handle *h)
{
	struct load *load = h->load;
	struct slot *s = &h->slot[load->opts.depth];
	uint64_t left = load_sectors(load, h->volume) - h->read_at;
	uint32_t n = left < SLOT_SECTORS ? (uint32_t)left : SLOT_SECTORS;
	bool sparse = load->c->shape.sparse[h->volume];

	if (sparse && n)
		n = 16;

	if (!n || load->c->w->failed) {
		h->read_at = UINT64_MAX;
		return;
	}
	memset(&s->io, 0, sizeof(s->io));
	s->io.kind = SDC_READ;
	s->io.offset = h->read_at * SIM_SECTOR;
	s->io.bytes = (uint64_t)n * SIM_SECTOR;
	s->op = hist_begin(load->c->history, HIST_READ, load->c->volume_history[h->volume],
			   h->sdc->index, h->read_at, n, false);
	h->read_at += sparse ? 2048 : n;
	memset(s->data, 0xee, s->io.bytes);
	set_iov(load->c->w, s, s->io.bytes);
	submit(s);
}

void load_read_all(struct load *load)
{
	struct sim_cluster *c = load->c;

	for (unsigned v = 0; v < c->shape.volumes; v++) {
		unsigned i = c->shape.mapped_to[v];

		if (c->shape.shared[v])
			i = (unsigned)sim_below(c->w, c->shape.sdcs);
		load->handle[i][v].read_at = 0;
		load_push_slot(&load->handle[i][v].slot[load->opts.depth]);
	}
}

void load_make_slots(struct handle *h)
{
	h->slot = calloc(h->load->opts.depth + 1, sizeof(*h->slot));
	for (unsigned i = 0; i <= h->load->opts.depth; i++) {
		struct slot *s = &h->slot[i];

		s->handle = h;
		s->think.fn = on_think;
		s->item = (struct sim_item){.run = slot_run, .drop = slot_drop};
		s->data = aligned_alloc(4096, SLOT_BYTES);
		if (!s->data)
			abort();
	}
}
