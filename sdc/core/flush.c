// SPDX-License-Identifier: MIT
/*
 * FLUSH in rounds, one per volume at a time. A round asks every SDS that is primary of a PG with a
 * copy on a write-back device (or of those written since the last round, if nobody else can have
 * written); flushes submitted meanwhile share the next round.
 *
 * An SDS flushes all its devices and those of its secondaries, in whatever role they are. So a
 * round is complete when each PG's primary *as of now* has answered in it. An SDS that answers with
 * a newer map than ours may have lost PGs that we still believe it leads: the round waits until our
 * map is as new as each answer, and asks those that took over.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/bitmap.h"
#include "common/base/clean.h"
#include "sdc/core/sdc_int.h"

bool sdc_flush_needed(const struct sdc *sdc, const struct ash_map_pool *pool)
{
	const struct ash_map_device *d = NULL;
	bool any = false;

	while ((d = ash_map_next_device(sdc->map, d ? d->id : 0))) {
		if (d->pool != pool->id)
			continue;
		any = true;
		if (d->write_back)
			return true;
	}
	return !any; /* not told: the safe assumption */
}

void sdc_flush_resize(struct sdc_vol *vol)
{
	struct flush *f = &vol->flush;
	uint32_t pgs = vol->pool ? vol->pool->pg_count : 0;

	if (!pgs || f->pgs == pgs)
		return;
	free(f->dirty);
	free(f->flushing);
	f->pgs = pgs;
	f->dirty = ash_xcalloc(ASH_BITMAP_WORDS(pgs), sizeof(uint64_t));
	f->flushing = ash_xcalloc(ASH_BITMAP_WORDS(pgs), sizeof(uint64_t));
	/* What the old bits meant is lost. */
	f->complete_once = false;
	f->whole = true;
}

void sdc_flush_done_vol(struct sdc_vol *vol)
{
	free(vol->flush.dirty);
	free(vol->flush.flushing);
	free(vol->flush.slot);
}

void sdc_flush_wrote(struct sdc_vol *vol, uint64_t offset)
{
	uint32_t pg;

	if (sdc_route_row(vol, offset, &pg) && pg < vol->flush.pgs)
		ash_bit_set(vol->flush.dirty, pg);
	else
		vol->flush.complete_once = false; /* not to be noted: the next asks everybody */
}

/* ------------------------------------------------------------ whom to ask */

static struct flush_slot *slot_of(struct flush *f, struct sdc_peer *peer)
{
	if (peer->slot_hint < f->slots && f->slot[peer->slot_hint].peer == peer)
		return &f->slot[peer->slot_hint];
	for (unsigned i = 0; i < f->slots; i++)
		if (f->slot[i].peer == peer) {
			peer->slot_hint = i;
			return &f->slot[i];
		}
	if (f->slots == f->room) {
		f->room = f->room ? 2 * f->room : 16;
		f->slot = ash_xrealloc(f->slot, f->room * sizeof(*f->slot));
	}
	peer->slot_hint = f->slots;
	f->slot[f->slots] = (struct flush_slot){.peer = peer, .state = SLOT_NEEDED};
	return &f->slot[f->slots++];
}

static bool write_back(const struct sdc *sdc, const struct ash_row *row)
{
	for (unsigned i = 0; i < row->replicas; i++) {
		const struct ash_map_device *d;

		if (row->replica[i].state == ASH_REPLICA_ABSENT)
			continue;
		d = ash_map_device(sdc->map, row->replica[i].device);
		if (!d || d->write_back)
			return true;
	}
	return row->replicas == 0;
}

/* Marks the slots that are needed. False: a PG is served by nobody, so the round cannot end. */
static bool mark_needed(struct sdc_vol *vol)
{
	struct flush *f = &vol->flush;
	bool served = true;

	for (unsigned i = 0; i < f->slots; i++)
		f->slot[i].needed = false;
	for (uint32_t pg = 0; pg < f->pgs; pg++) {
		const struct ash_row *row = &vol->pool->rows[pg];
		struct sdc_peer *peer;

		if (!f->whole && !ash_bit_get(f->flushing, pg)) {
			if (pg % 64 == 0 && !f->flushing[pg / 64])
				pg += 63;
			continue;
		}
		if (row->gen == 0)
			continue; /* never placed: nothing can have been written */
		peer = sdc_route_primary(vol->sdc, row);
		/* A PG without a primary names its members as absent. */
		if (peer && !write_back(vol->sdc, row))
			continue;
		if (peer)
			slot_of(f, peer)->needed = true;
		else
			served = false;
	}
	return served;
}

/* ------------------------------------------------------------ rounds */

static void round_begin(struct sdc_vol *vol);

static void slot_cancel(struct flush_slot *s)
{
	struct sdc_req *req = s->req;

	s->req = NULL;
	s->state = SLOT_NEEDED;
	if (req)
		sdc_req_pull(req, -ECANCELED);
}

static void round_end(struct sdc_vol *vol, int status)
{
	struct flush *f = &vol->flush;
	struct sdc_io *io;

	for (unsigned i = 0; i < f->slots; i++)
		if (f->slot[i].state == SLOT_OUT)
			slot_cancel(&f->slot[i]);
	for (uint32_t i = 0; i < ASH_BITMAP_WORDS(f->pgs); i++) {
		/* What was not made durable must not be forgotten. */
		f->dirty[i] |= status ? f->flushing[i] : 0;
		f->flushing[i] = 0;
	}
	if (!status && f->whole)
		f->complete_once = true;
	f->active = f->starved = false;
	while ((io = queue_pop(&f->now)))
		sdc_io_complete(io, status);
	if (f->next.first && !vol->dead)
		round_begin(vol);
}

static void slot_ask(struct sdc_vol *vol, struct flush_slot *s)
{
	struct sdc_req *req = sdc_req_new(vol, ASH_OP_FLUSH, true);

	if (!req) {
		vol->flush.starved = true;
		return;
	}
	req->peer = s->peer;
	s->req = req;
	s->state = SLOT_OUT;
	sdc_req_start(req);
}

void sdc_flush_eval(struct sdc_vol *vol)
{
	struct flush *f = &vol->flush;
	bool complete;

	if (!f->active || vol->dead || !vol->pool)
		return;
	f->starved = false;
	complete = mark_needed(vol);
	for (unsigned i = 0; i < f->slots; i++) {
		struct flush_slot *s = &f->slot[i];

		if (!s->needed && s->state == SLOT_OUT)
			slot_cancel(s); /* it leads nothing of ours any more; it may be dead */
		if (s->needed && s->state == SLOT_NEEDED)
			slot_ask(vol, s);
		if (s->needed && s->state != SLOT_DONE)
			complete = false;
	}
	if (ash_map_version(vol->sdc->map) < f->need_version) {
		sdc_want_map(vol->sdc);
		complete = false;
	}
	if (complete)
		round_end(vol, 0);
}

static void round_begin(struct sdc_vol *vol)
{
	struct flush *f = &vol->flush;

	f->now = f->next;
	if (!f->now.first)
		f->now.last = &f->now.first;
	queue_init(&f->next);
	f->active = true;
	f->slots = 0;
	f->need_version = 0;
	f->whole = vol->shared || !f->complete_once;
	for (uint32_t i = 0; i < ASH_BITMAP_WORDS(f->pgs); i++) {
		f->flushing[i] |= f->dirty[i];
		f->dirty[i] = 0;
	}
	sdc_flush_eval(vol);
}

void sdc_flush_submit(struct sdc_vol *vol, struct sdc_io *io)
{
	struct flush *f = &vol->flush;

	if (!vol->needs_flush) {
		sdc_io_complete(io, 0);
		return;
	}
	queue_push(&f->next, io);
	if (!f->active)
		round_begin(vol);
}

void sdc_flush_reply(struct sdc_req *req, int status, uint64_t place_version)
{
	struct sdc_vol *vol = req->vol;
	struct flush *f = &vol->flush;
	bool out = false;

	for (unsigned i = 0; i < f->slots; i++) {
		struct flush_slot *s = &f->slot[i];

		if (s->req != req) {
			out |= s->needed && s->state != SLOT_DONE;
			continue;
		}
		s->req = NULL;
		s->state = status ? SLOT_NEEDED : SLOT_DONE;
		if (status) {
			round_end(vol, status);
			return;
		}
	}
	if (place_version > f->need_version)
		f->need_version = place_version;
	if (!out)
		sdc_flush_eval(vol);
}

void sdc_flush_fail(struct sdc_vol *vol, int status)
{
	struct flush *f = &vol->flush;
	struct sdc_io *io;

	if (f->active)
		round_end(vol, status);
	while ((io = queue_pop(&f->next)))
		sdc_io_complete(io, status);
}
