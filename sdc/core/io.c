// SPDX-License-Identifier: MIT
/* I/Os: checks, limits, splitting at chunk borders, completion. */
#include <errno.h>

#include "sdc/core/sdc_int.h"

#define BURST_NS (10 * MS) /* unused rate that is kept */

void sdc_io_init_vol(struct sdc_vol *vol)
{
	queue_init(&vol->queue);
	queue_init(&vol->qos);
	queue_init(&vol->flush.next);
	queue_init(&vol->flush.now);
}

/* ------------------------------------------------------------ completion */

void sdc_io_complete(struct sdc_io *io, int status)
{
	struct io_priv *p = io_priv(io);

	ash_list_remove(&p->all);
	p->status = status;
	queue_push(&p->vol->sdc->done, io);
	sdc_kick(p->vol->sdc);
}

static uint32_t io_share(const struct sdc *sdc)
{
	return sdc->cfg.requests < 8 ? 1 : sdc->cfg.requests / 4;
}

static void enqueue(struct sdc_vol *vol, struct sdc_io *io)
{
	io_priv(io)->queued = true;
	queue_push(&vol->queue, io);
	sdc_io_make_ready(vol);
}

void sdc_io_piece_done(struct sdc_io *io, int status)
{
	struct io_priv *p = io_priv(io);

	p->pieces--;
	if (status && !p->status)
		p->status = status;
	if (p->status && !p->queued)
		p->cursor = io->bytes; /* no use in going on */
	if (p->cursor < io->bytes) {
		if (!p->queued)
			enqueue(p->vol, io);
		return;
	}
	if (!p->pieces && !p->queued)
		sdc_io_complete(io, p->status);
}

/* ------------------------------------------------------------ splitting */

static uint8_t op_of(const struct sdc_io *io)
{
	switch (io->kind) {
	case SDC_READ:
		return ASH_OP_READ;
	case SDC_WRITE:
		return ASH_OP_WRITE;
	case SDC_DISCARD:
		return ASH_OP_DISCARD;
	case SDC_WRITE_ZEROES:
		return ASH_OP_WRITE_ZEROES;
	default:
		return ASH_OP_STATUS;
	}
}

/* Where the next piece's memory is; moves the I/O's place in its iovecs on. */
static void take_memory(struct sdc_io *io, struct io_priv *p, struct sdc_req *req)
{
	size_t left = req->length;

	while (p->iov_skip == io->iov[p->iov_at].iov_len) {
		p->iov_at++;
		p->iov_skip = 0;
	}
	req->iov_at = p->iov_at;
	req->iov_skip = p->iov_skip;
	if (io->iov[p->iov_at].iov_len - p->iov_skip >= left)
		req->data = (uint8_t *)io->iov[p->iov_at].iov_base + p->iov_skip;
	while (left) {
		size_t n = io->iov[p->iov_at].iov_len - p->iov_skip;

		if (n > left) {
			p->iov_skip += left;
			return;
		}
		left -= n;
		if (left) {
			p->iov_at++;
			p->iov_skip = 0;
		} else {
			p->iov_skip += n;
		}
	}
}

static void next_piece(struct sdc_vol *vol, struct sdc_io *io, struct sdc_req *req)
{
	struct io_priv *p = io_priv(io);
	uint64_t left = io->bytes - p->cursor;
	uint64_t to_border;

	req->io = io;
	req->offset = io->offset + p->cursor;
	to_border = ASH_CHUNK_BYTES - req->offset % ASH_CHUNK_BYTES;
	req->length = (uint32_t)(left < to_border ? left : to_border);
	if (io->kind == SDC_READ || io->kind == SDC_WRITE)
		take_memory(io, p, req);
	p->cursor += req->length;
	p->pieces++;
	sdc_req_start(req);
}

/* With several volumes open, none may hold the whole pool: its servers may be away. */
static bool may_take(const struct sdc_vol *vol)
{
	const struct sdc *sdc = vol->sdc;

	return sdc->vol_count < 2 || vol->reqs < sdc->cfg.requests - sdc->cfg.requests / 4;
}

void sdc_io_make_ready(struct sdc_vol *vol)
{
	if (vol->queue.first && ash_list_empty(&vol->ready) && may_take(vol))
		ash_list_push_back(&vol->sdc->ready, &vol->ready);
}

/* A few pieces of the volume's first I/O. */
static void pump_vol(struct sdc_vol *vol)
{
	struct sdc *sdc = vol->sdc;
	struct sdc_io *io = vol->queue.first;
	struct io_priv *p = io_priv(io);
	uint32_t n = 0;

	while (n < QUANTUM && p->cursor < io->bytes && !p->status && p->pieces < io_share(sdc) &&
	       may_take(vol)) {
		struct sdc_req *req = sdc_req_new(vol, op_of(io), false);

		if (!req)
			return; /* it stays first */
		next_piece(vol, io, req);
		n++;
	}
	if (p->status)
		p->cursor = io->bytes;
	if (p->cursor < io->bytes && p->pieces < io_share(sdc) && n < QUANTUM)
		return; /* the volume's share is used up */
	/* Done with it, or others first: big ones come back when a piece ends. */
	queue_pop(&vol->queue);
	p->queued = false;
	if (p->cursor < io->bytes && p->pieces < io_share(sdc))
		enqueue(vol, io);
	else if (p->cursor >= io->bytes && !p->pieces)
		sdc_io_complete(io, p->status);
}

void sdc_io_pump(struct sdc *sdc)
{
	while (sdc->free_count > 0 && !ash_list_empty(&sdc->ready)) {
		struct sdc_vol *vol = ash_list_first(&sdc->ready, struct sdc_vol, ready);

		ash_list_remove(&vol->ready);
		if (!vol->queue.first)
			continue;
		pump_vol(vol);
		sdc_io_make_ready(vol);
	}
}

/* ------------------------------------------------------------ limits */

void sdc_io_set_limits(struct sdc_vol *vol, uint64_t iops, uint64_t bytes_per_s)
{
	bool changed = vol->limit.iops != iops || vol->limit.bytes_per_s != bytes_per_s;

	vol->limit.iops = iops;
	vol->limit.bytes_per_s = bytes_per_s;
	if (changed)
		vol->limit.iops_at = vol->limit.bytes_at = 0;
	if (changed && vol->qos.first)
		ash_timer_set(vol->sdc->port->timers, &vol->qos_timer, sdc_now(vol->sdc));
}

/* When the next I/O may begin. The I/O that uses a limit up still goes; what follows waits. */
static uint64_t allowed_at(const struct sdc_vol *vol)
{
	uint64_t at = 0;

	if (vol->limit.iops)
		at = vol->limit.iops_at;
	if (vol->limit.bytes_per_s && vol->limit.bytes_at > at)
		at = vol->limit.bytes_at;
	return at;
}

static uint64_t use_up(uint64_t at, uint64_t now, uint64_t amount, uint64_t per_s)
{
	if (at + BURST_NS < now)
		at = now - BURST_NS; /* rate unused for long is not saved up */
	return at + (uint64_t)((unsigned __int128)amount * SEC / per_s);
}

static void charge(struct sdc_vol *vol, const struct sdc_io *io, uint64_t now)
{
	bool data = io->kind == SDC_READ || io->kind == SDC_WRITE;

	if (vol->limit.iops)
		vol->limit.iops_at = use_up(vol->limit.iops_at, now, 1, vol->limit.iops);
	if (vol->limit.bytes_per_s && data)
		vol->limit.bytes_at =
			use_up(vol->limit.bytes_at, now, io->bytes, vol->limit.bytes_per_s);
}

void sdc_io_qos_tick(struct ash_timer *timer)
{
	struct sdc_vol *vol = ash_container_of(timer, struct sdc_vol, qos_timer);
	uint64_t now = sdc_now(vol->sdc);

	while (vol->qos.first && allowed_at(vol) <= now) {
		struct sdc_io *io = queue_pop(&vol->qos);

		charge(vol, io, now);
		sdc_io_admit(vol, io);
	}
	if (vol->qos.first)
		ash_timer_set(vol->sdc->port->timers, timer, allowed_at(vol));
	sdc_io_pump(vol->sdc);
}

static bool limited(struct sdc_vol *vol, struct sdc_io *io)
{
	uint64_t now;

	if ((!vol->limit.iops && !vol->limit.bytes_per_s) || io->kind == SDC_FLUSH ||
	    io->kind == STATUS_INTERNAL)
		return false;
	now = sdc_now(vol->sdc);
	if (!vol->qos.first && allowed_at(vol) <= now) {
		charge(vol, io, now);
		return false;
	}
	vol->sdc->stats.queued++;
	queue_push(&vol->qos, io);
	if (!ash_timer_is_set(&vol->qos_timer))
		ash_timer_set(vol->sdc->port->timers, &vol->qos_timer, allowed_at(vol));
	return true;
}

/* ------------------------------------------------------------ submission */

static int check(const struct sdc_vol *vol, const struct sdc_io *io)
{
	bool change = io->kind != SDC_READ && io->kind != SDC_FLUSH && io->kind != STATUS_INTERNAL;
	uint64_t in_iov = 0;

	if (vol->dead || vol->closing)
		return -ESHUTDOWN;
	if (io->kind == SDC_FLUSH)
		return 0;
	if (io->kind < SDC_READ || io->kind > STATUS_INTERNAL || !io->bytes ||
	    io->offset % ASH_SECTOR_BYTES || io->bytes % ASH_SECTOR_BYTES ||
	    io->offset > vol->size || io->bytes > vol->size - io->offset)
		return -EINVAL;
	if (io->kind == SDC_READ || io->kind == SDC_WRITE) {
		for (unsigned i = 0; i < io->iovcnt; i++)
			in_iov += io->iov[i].iov_len;
		if (in_iov != io->bytes)
			return -EINVAL;
	}
	return change && vol->read_only ? -EROFS : 0;
}

static void count(struct sdc *sdc, const struct sdc_io *io)
{
	switch (io->kind) {
	case SDC_READ:
		sdc->stats.reads++;
		sdc->stats.read_bytes += io->bytes;
		break;
	case SDC_WRITE:
		sdc->stats.writes++;
		sdc->stats.write_bytes += io->bytes;
		break;
	case SDC_FLUSH:
		sdc->stats.flushes++;
		break;
	case SDC_DISCARD:
	case SDC_WRITE_ZEROES:
		sdc->stats.discards++;
		break;
	default:
		break;
	}
}

void sdc_io_admit(struct sdc_vol *vol, struct sdc_io *io)
{
	struct io_priv *p = io_priv(io);
	uint64_t timeout = vol->sdc->cfg.io_timeout_ms * MS;

	p->admitted_ns = sdc_now(vol->sdc);
	ash_list_push_back(&vol->ios, &p->all);
	if (!ash_timer_is_set(&vol->io_timer))
		ash_timer_set(vol->sdc->port->timers, &vol->io_timer,
			      p->admitted_ns + (timeout && timeout < 5 * SEC ? timeout : 5 * SEC));
	if (io->kind == SDC_FLUSH) {
		sdc_flush_submit(vol, io);
		return;
	}
	enqueue(vol, io);
}

void sdc_submit(struct sdc_vol *vol, struct sdc_io *io)
{
	struct sdc *sdc = vol->sdc;
	struct io_priv *p = io_priv(io);
	int err = check(vol, io);

	*p = (struct io_priv){.vol = vol};
	ash_list_init(&p->all);
	vol->outstanding++;
	if (err) {
		sdc_io_complete(io, err);
		return;
	}
	count(sdc, io);
	if (limited(vol, io))
		return;
	sdc_io_admit(vol, io);
	sdc->stats.queued += sdc->free_count == 0;
	sdc_io_pump(sdc);
}
