// SPDX-License-Identifier: MIT
/* The life of one request: order, route, repeat, end. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "common/base/crc.h"
#include "common/base/log.h"
#include "common/base/switches.h"
#include "common/shared/chunk_pg.h"
#include "sdc/core/sdc_int.h"

#define LATER_MIN_NS MS
#define LATER_MAX_NS (250 * MS)

/* ------------------------------------------------------------ the pool */

struct sdc_req *sdc_req_new(struct sdc_vol *vol, uint8_t op, bool flush)
{
	struct sdc *sdc = vol->sdc;
	struct ash_list *l = ash_list_pop(flush ? &sdc->free_flush : &sdc->free);
	struct sdc_req *req;

	if (!l)
		return NULL;
	req = ash_container_of(l, struct sdc_req, link);
	assert(req->state == REQ_FREE);
	sdc->free_count -= !flush;
	req->vol = vol;
	req->io = NULL;
	req->peer = NULL;
	req->bounce = NULL;
	req->data = NULL;
	req->offset = req->gen = 0;
	req->length = 0;
	req->tries = req->badsums = 0;
	req->op = op;
	req->state = REQ_BACKOFF; /* on no list */
	req->write_like = op == ASH_OP_WRITE || op == ASH_OP_DISCARD || op == ASH_OP_WRITE_ZEROES;
	req->prepared = req->in_transport = req->placed = false;
	vol->reqs++;
	return req;
}

static void req_free(struct sdc_req *req)
{
	struct sdc *sdc = req->sdc;
	bool flush = req->index < FLUSH_RESERVE;

	ash_buf_put(req->bounce);
	req->bounce = NULL;
	req->state = REQ_FREE;
	req->tag = 0;
	req->io = NULL;
	req->vol->reqs--;
	sdc->free_count += !flush;
	/* The one used last is still in the cache. */
	ash_list_push_front(flush ? &sdc->free_flush : &sdc->free, &req->link);
	sdc_io_make_ready(req->vol);
}

/* ------------------------------------------------------------ order of writes */

static struct ash_list *bucket_of(const struct sdc_req *req)
{
	uint64_t key = ash_mix64(req->vol->node * 0x10001 + req->offset / ASH_CHUNK_BYTES);

	return &req->sdc->bucket[key & (req->sdc->buckets - 1)];
}

static bool overlap(const struct sdc_req *a, const struct sdc_req *b)
{
	return a->vol == b->vol && a->offset < b->offset + b->length &&
	       b->offset < a->offset + a->length;
}

/* Does an earlier write that has not ended stand in the way? */
static bool must_hold(struct sdc_req *req)
{
	struct ash_list *bucket = bucket_of(req);

	if (!ASH_RULE(HOLD_OVERLAP))
		return false;
	for (struct ash_list *l = bucket->next; l != bucket && l != &req->hold; l = l->next)
		if (overlap(ash_container_of(l, struct sdc_req, hold), req))
			return true;
	return false;
}

/* A write has ended: those that waited for it may go, unless another is in their way. */
static void release_held(struct sdc_req *done)
{
	struct ash_list *bucket = bucket_of(done), *l = done->hold.next, *next;

	ash_list_remove(&done->hold);
	if (done->vol->dead)
		return; /* who ends the volume ends all of them */
	for (; l != bucket; l = next) {
		struct sdc_req *r = ash_container_of(l, struct sdc_req, hold);

		next = l->next;
		if (r->state == REQ_HELD && overlap(r, done) && !must_hold(r))
			sdc_req_dispatch(r);
	}
}

void sdc_req_start(struct sdc_req *req)
{
	if (req->write_like) {
		ash_list_push_back(bucket_of(req), &req->hold);
		if (must_hold(req)) {
			req->state = REQ_HELD;
			req->sdc->stats.held_overlaps++;
			return;
		}
	}
	sdc_req_dispatch(req);
}

/* ------------------------------------------------------------ data to send */

static void gather(struct sdc_req *req)
{
	const struct iovec *iov = &req->io->iov[req->iov_at];
	size_t skip = req->iov_skip, at = 0;

	for (; at < req->length; iov++, skip = 0) {
		size_t n = iov->iov_len - skip;

		if (n > req->length - at)
			n = req->length - at;
		if (n)
			memcpy(req->bounce->base + at, (const uint8_t *)iov->iov_base + skip, n);
		at += n;
	}
}

/* Checksums, once per request; again only after a mismatch. Memory that spans several iovecs, or
 * that keeps changing under the checksum, is copied. False: no buffer now. */
static bool prepare(struct sdc_req *req)
{
	if (req->op != ASH_OP_WRITE || req->prepared)
		return true;
	if ((!req->data || req->badsums >= 2) && !req->bounce) {
		req->bounce = ash_buf_get(req->sdc->port->bufs, req->length, ASH_BUF_CLIENT);
		if (!req->bounce)
			return false;
		gather(req);
	}
	ash_crc32c_pieces(req->bounce ? req->bounce->base : req->data, req->offset, req->length,
			  req->crc);
	req->prepared = true;
	return true;
}

void sdc_req_nobuf_retry(struct sdc *sdc)
{
	struct ash_list again, *l;

	ash_list_init(&again);
	while ((l = ash_list_pop(&sdc->nobuf)))
		ash_list_push_back(&again, l);
	while ((l = ash_list_pop(&again)))
		sdc_req_dispatch(ash_container_of(l, struct sdc_req, link));
}

/* ------------------------------------------------------------ route */

static void finish(struct sdc_req *req, int status);

void sdc_req_dispatch(struct sdc_req *req)
{
	struct sdc *sdc = req->sdc;
	struct sdc_vol *vol = req->vol;
	struct sdc_peer *peer;
	struct ash_row *row;

	if (vol->dead) {
		finish(req, vol->dead);
		return;
	}
	if (!prepare(req)) {
		req->state = REQ_NOBUF;
		ash_list_push_back(&sdc->nobuf, &req->link);
		if (!sdc->buf_waiter.queued)
			ash_bufs_wait(sdc->port->bufs, &sdc->buf_waiter);
		return;
	}
	if (req->op == ASH_OP_FLUSH) {
		sdc_peer_enqueue(req->peer, req);
		return;
	}
	row = sdc_route_row(vol, req->offset, NULL);
	peer = sdc_route_primary(sdc, row);
	if (!peer) {
		req->state = REQ_PARKED;
		req->peer = NULL;
		ash_list_push_back(&sdc->parked, &req->link);
		/* The map comes by itself; ask now and then all the same. */
		ash_timer_set(sdc->port->timers, &req->timer, sdc_now(sdc) + sdc_jitter(sdc, SEC));
		return;
	}
	req->gen = row->gen;
	sdc_peer_enqueue(peer, req);
}

void sdc_req_backoff_tick(struct ash_timer *timer)
{
	struct sdc_req *req = ash_container_of(timer, struct sdc_req, timer);

	if (req->state == REQ_PARKED) {
		sdc_want_map(req->sdc);
		ash_list_remove(&req->link);
	} else if (req->state != REQ_BACKOFF) {
		return;
	}
	sdc_req_dispatch(req);
}

static void later(struct sdc_req *req)
{
	struct sdc *sdc = req->sdc;
	uint64_t ns = LATER_MIN_NS << (req->tries < 8 ? req->tries : 8);

	if (ns > LATER_MAX_NS)
		ns = LATER_MAX_NS;
	req->tries += req->tries < UINT16_MAX;
	req->state = REQ_BACKOFF;
	ash_timer_set(sdc->port->timers, &req->timer, sdc_now(sdc) + sdc_jitter(sdc, ns));
}

/* ------------------------------------------------------------ the end of a request */

static void finish(struct sdc_req *req, int status)
{
	struct sdc_io *io = req->io;
	struct sdc_vol *vol = req->vol;

	assert(!req->in_transport && !req->placed);
	ash_timer_cancel(req->sdc->port->timers, &req->timer);
	if (req->write_like) {
		/* Even one that failed may have changed something. */
		sdc_flush_wrote(vol, req->offset);
		release_held(req);
	}
	req_free(req);
	if (io)
		sdc_io_piece_done(io, status);
}

void sdc_req_settle(struct sdc_req *req, int decision)
{
	if (req->in_transport || req->placed) {
		req->state = REQ_RETURNING;
		req->decision = decision;
		req->sent_ns = sdc_now(req->sdc);
		ash_list_push_back(&req->peer->returning, &req->link);
		sdc_peer_timer(req->peer);
		return;
	}
	if (decision == REQ_AGAIN) {
		req->sdc->stats.retries++;
		sdc_req_dispatch(req);
	} else if (decision == REQ_LATER) {
		req->sdc->stats.retries++;
		later(req);
	} else {
		finish(req, decision);
	}
}

void sdc_req_returned(struct sdc_req *req)
{
	if (req->in_transport || req->placed)
		return;
	ash_list_remove(&req->link);
	sdc_req_settle(req, req->vol->dead && req->decision > 0 ? req->vol->dead : req->decision);
}

void sdc_req_pull(struct sdc_req *req, int decision)
{
	if (req->state == REQ_RETURNING) {
		req->decision = decision;
		return;
	}
	ash_timer_cancel(req->sdc->port->timers, &req->timer);
	ash_list_remove(&req->link);
	sdc_req_settle(req, decision);
}

/* ------------------------------------------------------------ changed rows */

static void reroute(struct sdc_req *req)
{
	struct ash_row *row;
	struct sdc_peer *peer;

	if (req->op == ASH_OP_FLUSH)
		return; /* its round looks after it */
	switch (req->state) {
	case REQ_PARKED:
		ash_timer_cancel(req->sdc->port->timers, &req->timer);
		ash_list_remove(&req->link);
		sdc_req_dispatch(req);
		return;
	case REQ_WAITING:
	case REQ_SENT:
		row = sdc_route_row(req->vol, req->offset, NULL);
		peer = sdc_route_primary(req->sdc, row);
		if (peer == req->peer) {
			/* A primary that stays finishes what it has begun. */
			if (req->state == REQ_WAITING)
				req->gen = row->gen;
			return;
		}
		sdc_req_pull(req, REQ_AGAIN);
		return;
	default:
		return; /* looks at the row when its time comes */
	}
}

void sdc_req_reroute_all(struct sdc *sdc)
{
	for (uint32_t i = FLUSH_RESERVE; i < sdc->reqs; i++)
		if (sdc->req[i].state != REQ_FREE)
			reroute(&sdc->req[i]);
}
