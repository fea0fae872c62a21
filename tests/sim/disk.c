/* SPDX-License-Identifier: MIT */
#include "tests/sim/disk.h"

#include "tests/sim/medium.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAGE SIM_PAGE
#define LOCK_WAIT (300 * SIM_MS)

struct io {
	struct io *next, **prev; /* of the disk */
	struct sim_event event;
	struct sim_item item;
	struct sim_disk *disk;
	struct sim_handle *handle; /* NULL: zombie */
	struct ash_disk_op *op;
	int result;
	uint64_t flush_mark, offset, bytes;
	bool fua;
	uint8_t *copy; /* of a zombie's data */
};

struct sim_opener {
	struct sim_opener *next; /* of the process */
	struct sim_item item;
	struct sim_event poll;
	uint64_t until;
	struct sim_proc *p;
	struct sim_disk *disk;
	void (*done)(void *arg, int result, struct ash_disk *disk);
	void (*dropped)(void *arg);
	void *arg;
	int result;
	struct sim_handle *handle;
};

struct sim_handle {
	struct ash_disk d; /* first */
	struct sim_disk *disk;
	struct sim_proc *p;
	struct sim_handle *next, **prev; /* of the process */
	struct sim_item item;
	bool closing;
	void (*closed)(void *arg);
	void *closed_arg;
};

struct sim_disk {
	struct sim_medium m;
	struct sim_world *w;
	struct sim_host *host;
	char path[64];
	uint64_t bytes;
	bool pulled;
	struct sim_handle *open;
	struct io *ios, *free_ios;
	unsigned zombies;
	uint64_t slow_until, stuck_until;
	unsigned slow_factor;
};

/* ------------------------------------------------------------ operations */

static void iov_copy(const struct ash_disk_op *op, uint8_t *flat)
{
	uint64_t at = 0;

	for (unsigned i = 0; i < op->iovcnt; i++) {
		memcpy(flat + at, op->iov[i].iov_base, op->iov[i].iov_len);
		at += op->iov[i].iov_len;
	}
}

static void do_write(struct sim_disk *disk, struct io *io)
{
	uint64_t index = io->offset / PAGE;

	disk->m.seq++;
	if (io->copy) {
		for (uint64_t at = 0; at < io->bytes; at += PAGE)
			medium_write(&disk->m, index++, io->copy + at, io->fua);
		return;
	}
	for (unsigned i = 0; i < io->op->iovcnt; i++) {
		const uint8_t *base = io->op->iov[i].iov_base;

		for (size_t at = 0; at < io->op->iov[i].iov_len; at += PAGE)
			medium_write(&disk->m, index++, base + at, io->fua);
	}
}

static int do_read(struct sim_disk *disk, struct io *io)
{
	uint64_t index = io->offset / PAGE;
	int result = 0;

	for (unsigned i = 0; i < io->op->iovcnt; i++) {
		uint8_t *base = io->op->iov[i].iov_base;

		for (size_t at = 0; at < io->op->iov[i].iov_len; at += PAGE)
			if (!medium_read(&disk->m, index++, base + at))
				result = -EIO;
	}
	return result;
}

static void io_unlink(struct io *io)
{
	*io->prev = io->next;
	if (io->next)
		io->next->prev = io->prev;
}

static void io_free(struct io *io)
{
	struct sim_disk *disk = io->disk;

	io_unlink(io);
	free(io->copy);
	io->copy = NULL;
	io->next = disk->free_ios;
	disk->free_ios = io;
}

static void io_dropped(struct sim_item *item)
{
	/* The process died with the result in its inbox: sim_disks_kill() frees the operation. */
}

static void maybe_closed(struct sim_handle *h);

static void io_done(struct sim_item *item)
{
	struct io *io = sim_container(item, struct io, item);
	struct ash_disk_op *op = io->op;
	struct sim_handle *h = io->handle;
	int result = io->result;

	io_free(io);
	h->d.inflight--;
	maybe_closed(h);
	op->done(op, result);
}

static void on_io_event(struct sim_event *event)
{
	struct io *io = sim_container(event, struct io, event);
	struct sim_disk *disk = io->disk;
	struct sim_world *w = disk->w;

	if (disk->stuck_until > w->now && !disk->pulled) {
		sim_at(w, &io->event, disk->stuck_until + sim_below(w, SIM_MS));
		return;
	}
	io->result = 0;
	if (disk->pulled)
		io->result = -ENODEV;
	else if (io->op && io->op->kind == ASH_DISK_READ)
		io->result = do_read(disk, io);
	else if (io->copy || io->op->kind == ASH_DISK_WRITE)
		do_write(disk, io);
	else if (io->op->kind == ASH_DISK_FLUSH)
		medium_flush(&disk->m, io->flush_mark);
	if (!io->handle) {
		disk->zombies--;
		io_free(io);
		return;
	}
	sim_proc_push(io->handle->p, &io->item);
}

static uint64_t io_ns(struct sim_disk *disk, const struct ash_disk_op *op)
{
	struct sim_world *w = disk->w;
	uint64_t ns = op->kind == ASH_DISK_READ	   ? 60 * SIM_US
		      : op->kind == ASH_DISK_FLUSH ? 150 * SIM_US
						   : 25 * SIM_US;

	ns = sim_latency(w, ns) + op->bytes / 2;
	if (disk->slow_until > w->now)
		ns = ns * disk->slow_factor + sim_below(w, 10 * SIM_MS);
	return ns;
}

static void disk_submit(struct ash_disk *d, struct ash_disk_op *op)
{
	struct sim_handle *h = (struct sim_handle *)d;
	struct sim_disk *disk = h->disk;
	struct io *io = disk->free_ios;
	uint64_t sum = 0;

	for (unsigned i = 0; i < op->iovcnt && op->kind <= ASH_DISK_WRITE; i++) {
		sum += op->iov[i].iov_len;
		if (((uintptr_t)op->iov[i].iov_base | op->iov[i].iov_len) % PAGE)
			sim_fail(disk->w, "disk", "%s: unaligned memory", disk->path);
	}
	if (op->kind <= ASH_DISK_WRITE &&
	    (op->offset % PAGE || op->offset + sum > disk->bytes || sum != op->bytes || !sum ||
	     sum > (4u << 20) || op->iovcnt > 64))
		sim_fail(disk->w, "disk", "%s: kind %u at %llu, %llu bytes, %u pieces", disk->path,
			 op->kind, (unsigned long long)op->offset, (unsigned long long)sum,
			 op->iovcnt);
	if (h->closing)
		sim_fail(disk->w, "disk", "%s: used after close", disk->path);
	if (io)
		disk->free_ios = io->next;
	else
		io = malloc(sizeof(*io));
	if (!io)
		abort();
	memset(io, 0, sizeof(*io));
	io->disk = disk;
	io->handle = h;
	io->op = op;
	io->offset = op->offset;
	io->bytes = op->bytes;
	io->fua = op->fua;
	io->flush_mark = disk->m.seq;
	io->event.fn = on_io_event;
	io->item.run = io_done;
	io->item.drop = io_dropped;
	io->next = disk->ios;
	if (io->next)
		io->next->prev = &io->next;
	io->prev = &disk->ios;
	disk->ios = io;
	h->d.inflight++;
	op->submitted_ns = h->p->port.now_ns(&h->p->port);
	sim_in(disk->w, &io->event, io_ns(disk, op));
}

/* ------------------------------------------------------------ opening and closing */

static void handle_free(struct sim_handle *h)
{
	*h->prev = h->next;
	if (h->next)
		h->next->prev = h->prev;
	if (h->disk->open == h)
		h->disk->open = NULL;
	free(h);
}

static void handle_closed(struct sim_item *item)
{
	struct sim_handle *h = sim_container(item, struct sim_handle, item);
	void (*closed)(void *arg) = h->closed;
	void *arg = h->closed_arg;

	handle_free(h);
	if (closed)
		closed(arg);
}

static void handle_dropped(struct sim_item *item)
{
}

static void maybe_closed(struct sim_handle *h)
{
	if (h->closing && h->d.inflight == 0)
		sim_proc_push(h->p, &h->item);
}

static void disk_close(struct ash_disk *d, void (*done)(void *arg), void *arg)
{
	struct sim_handle *h = (struct sim_handle *)d;

	if (h->closing) {
		sim_fail(h->disk->w, "disk", "%s: closed twice", h->disk->path);
		return;
	}
	h->closing = true;
	h->closed = done;
	h->closed_arg = arg;
	maybe_closed(h);
}

static const struct ash_disk_ops disk_ops = {.submit = disk_submit, .close = disk_close};

static void opener_free(struct sim_opener *o)
{
	struct sim_opener **at = &o->p->openers;

	while (*at != o)
		at = &(*at)->next;
	*at = o->next;
	sim_cancel(o->disk->w, &o->poll);
	free(o);
}

static void opener_run(struct sim_item *item)
{
	struct sim_opener *o = sim_container(item, struct sim_opener, item);
	void (*done)(void *, int, struct ash_disk *) = o->done;
	struct sim_handle *h = o->handle;
	void *arg = o->arg;
	int result = o->result;

	opener_free(o);
	done(arg, result, result ? NULL : &h->d);
}

static void opener_drop(struct sim_item *item)
{
}

static void on_opener_poll(struct sim_event *event)
{
	struct sim_opener *o = sim_container(event, struct sim_opener, poll);
	struct sim_disk *disk = o->disk;
	struct sim_handle *h;

	/* As a daemon's shell does: wait for the last holder, but not for ever for a live one. */
	if (!disk->pulled && (disk->zombies || (disk->open && disk->w->now < o->until))) {
		sim_in(disk->w, &o->poll, 5 * SIM_MS);
		return;
	}
	o->result = disk->pulled ? -ENODEV : disk->open ? -EBUSY : 0;
	if (!o->result) {
		h = calloc(1, sizeof(*h));
		if (!h)
			abort();
		h->d.ops = &disk_ops;
		h->d.bytes = disk->bytes;
		h->d.write_back = disk->m.write_back;
		h->disk = disk;
		h->p = o->p;
		h->item.run = handle_closed;
		h->item.drop = handle_dropped;
		h->next = o->p->handles;
		if (h->next)
			h->next->prev = &h->next;
		h->prev = &o->p->handles;
		o->p->handles = h;
		disk->open = h;
		o->handle = h;
	}
	sim_proc_push(o->p, &o->item);
}

void sim_disk_open(struct sim_proc *p, struct sim_disk *disk,
		   void (*done)(void *arg, int result, struct ash_disk *disk),
		   void (*dropped)(void *arg), void *arg)
{
	struct sim_opener *o = calloc(1, sizeof(*o));

	if (!o)
		abort();
	o->p = p;
	o->disk = disk;
	o->done = done;
	o->dropped = dropped;
	o->until = disk->w->now + LOCK_WAIT;
	o->arg = arg;
	o->item.run = opener_run;
	o->item.drop = opener_drop;
	o->poll.fn = on_opener_poll;
	o->next = p->openers;
	p->openers = o;
	sim_in(disk->w, &o->poll, 10 * SIM_US);
}

/* ------------------------------------------------------------ death */

/* A write whose process is gone: it may still land, whole, or was never sent. */
static void orphan(struct io *io)
{
	struct sim_disk *disk = io->disk;

	if (io->op->kind != ASH_DISK_WRITE || !sim_scheduled(&io->event) ||
	    sim_chance(disk->w, 500)) {
		sim_cancel(disk->w, &io->event);
		io_free(io);
		return;
	}
	io->copy = malloc(io->bytes);
	if (!io->copy)
		abort();
	iov_copy(io->op, io->copy);
	io->handle = NULL;
	io->op = NULL;
	disk->zombies++;
	disk->w->n.zombie_writes++;
}

void sim_disks_kill(struct sim_proc *p)
{
	struct sim_handle *h;
	struct sim_opener *o;

	while ((o = p->openers)) {
		if (o->dropped)
			o->dropped(o->arg);
		opener_free(o);
	}
	while ((h = p->handles)) {
		struct sim_disk *disk = h->disk;
		struct io *io, *next;

		for (io = disk->ios; io; io = next) {
			next = io->next;
			if (io->handle == h)
				orphan(io);
		}
		handle_free(h);
	}
}

unsigned sim_disk_power_loss(struct sim_disk *disk)
{
	struct io *io;
	unsigned lost;

	lost = medium_lose_cache(&disk->m);
	while ((io = disk->ios)) {
		assert(!io->handle);
		if (sim_chance(disk->w, 600))
			for (uint64_t at = 0; at < io->bytes; at += PAGE)
				medium_tear(&disk->m, (io->offset + at) / PAGE, io->copy + at);
		sim_cancel(disk->w, &io->event);
		io_free(io);
	}
	disk->zombies = 0;
	disk->slow_until = disk->stuck_until = 0;
	disk->w->n.lost_writes += lost;
	return lost;
}

/* ------------------------------------------------------------ the rest */

struct sim_disk *sim_disk_new(struct sim_host *host, const char *path, uint64_t bytes,
			      bool write_back)
{
	struct sim_disk *disk = calloc(1, sizeof(*disk));

	if (!disk)
		abort();
	disk->w = host->w;
	disk->host = host;
	snprintf(disk->path, sizeof(disk->path), "%s", path);
	disk->bytes = bytes;
	medium_init(&disk->m, host->w, bytes, write_back);
	return disk;
}

void sim_disk_free(struct sim_disk *disk)
{
	struct io *io;

	while (disk->ios) {
		sim_cancel(disk->w, &disk->ios->event);
		io_free(disk->ios);
	}
	while ((io = disk->free_ios)) {
		disk->free_ios = io->next;
		free(io);
	}
	medium_done(&disk->m);
	free(disk);
}

const char *sim_disk_path(const struct sim_disk *disk)
{
	return disk->path;
}

bool sim_disk_write_back(const struct sim_disk *disk)
{
	return disk->m.write_back;
}

struct sim_disk *sim_disk_find(struct sim_disk *const *disks, unsigned count, const char *path)
{
	for (unsigned i = 0; i < count; i++)
		if (!strcmp(disks[i]->path, path))
			return disks[i];
	return NULL;
}

void sim_disk_slow(struct sim_disk *disk, uint64_t until, unsigned factor)
{
	disk->slow_until = until;
	disk->slow_factor = factor;
}

void sim_disk_stick(struct sim_disk *disk, uint64_t until)
{
	disk->stuck_until = until;
}

void sim_disk_pull(struct sim_disk *disk, bool pulled)
{
	disk->pulled = pulled;
}

unsigned sim_disk_inflight(const struct sim_disk *disk)
{
	const struct io *io;
	unsigned n = 0;

	for (io = disk->ios; io; io = io->next)
		n++;
	return n;
}

uint64_t sim_disk_pick_page(struct sim_disk *disk,
			    bool (*wanted)(void *arg, const uint8_t page[4096]), void *arg)
{
	uint64_t index = medium_pick(&disk->m, wanted, arg);

	return index == UINT64_MAX ? index : index * PAGE;
}

void sim_disk_rot(struct sim_disk *disk, uint64_t offset)
{
	medium_rot(&disk->m, offset / PAGE);
}

void sim_disk_medium_error(struct sim_disk *disk, uint64_t offset)
{
	medium_spoil(&disk->m, offset / PAGE);
}

void sim_disk_peek(const struct sim_disk *disk, uint64_t offset, uint8_t page[4096])
{
	medium_read(&disk->m, offset / PAGE, page);
}
