// SPDX-License-Identifier: MIT
/* Disk operations of the store, flushes, failure, and the turn that drives everything. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "sds/core/store_int.h"

void *sds_aligned(size_t bytes)
{
	return aligned_alloc(ASH_BLOCK_BYTES, bytes);
}

void sds_store_trace(struct sds_store *s, int level, const char *fmt, ...)
{
	char line[256];
	va_list ap;
	int n = snprintf(line, sizeof(line), "device=%llu ",
			 (unsigned long long)s->label.label.device);

	va_start(ap, fmt);
	vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
	va_end(ap);
	s->port->trace(s->port, level, line);
}

void sds_io_submit(struct sds_store *s, struct sds_io *io, unsigned kind, uint64_t offset,
		   void *data, uint64_t bytes, bool fua,
		   void (*done)(struct ash_disk_op *op, int result))
{
	struct ash_disk_op *d = &io->d;

	d->kind = (uint8_t)kind;
	d->fua = fua;
	d->iovcnt = data ? 1 : 0;
	d->offset = offset;
	d->bytes = bytes;
	d->iov1.iov_base = data;
	d->iov1.iov_len = bytes;
	d->iov = &d->iov1;
	d->done = done;
	d->owner = s;
	d->next = NULL;
	ash_list_push_back(&s->inflight, &io->link);
	s->inflight_count++;
	ash_disk_submit(s->disk, d);
}

bool sds_io_end(struct sds_store *s, struct sds_io *io)
{
	ash_list_remove(&io->link);
	s->inflight_count--;
	if (!s->dead)
		return false;
	if (!s->inflight_count && !s->posted && !s->in_turn)
		sds_store_free(s);
	return true;
}

/* ------------------------------------------------------------ flush */

uint64_t sds_flush_ticket(struct sds_store *s)
{
	if (!s->disk->write_back)
		return 0;
	s->flush_want = true;
	return s->flush_started + 1;
}

static void flush_done(struct ash_disk_op *d, int result)
{
	struct sds_store *s = d->owner;

	if (sds_io_end(s, sds_io_of(d)))
		return;
	s->flush_inflight = false;
	if (result) {
		sds_fail(s, result, "flush");
	} else {
		s->flush_completed = s->flush_started;
		if (s->flush_fw > s->j.fw_flushed)
			s->j.fw_flushed = s->flush_fw;
		s->wake_flush = true;
	}
	sds_store_turn(s);
}

static void flush_run(struct sds_store *s)
{
	if (!s->flush_want || s->flush_inflight)
		return;
	s->flush_want = false;
	s->flush_inflight = true;
	s->flush_started++;
	s->flush_fw = s->j.fw_done;
	s->flush_io.d.buf_index = -1;
	sds_io_submit(s, &s->flush_io, ASH_DISK_FLUSH, 0, NULL, 0, false, flush_done);
}

/* ------------------------------------------------------------ failure */

void sds_fail(struct sds_store *s, int err, const char *what)
{
	if (s->failed)
		return;
	s->failed = err;
	s->again = true;
	sds_store_trace(s, ASH_LOG_ERROR, "event=device_failed what=%s errno=%d", what, -err);
	sds_ops_fail(s);
	sds_jobs_fail(s);
}

/* ------------------------------------------------------------ the turn */

static bool report_done(struct sds_store *s)
{
	struct sds_store_op *op = s->q_done.head;

	if (!op)
		return false;
	s->q_done.head = op->next;
	if (!op->next)
		s->q_done.tail = NULL;
	op->next = NULL;
	s->ops--;
	op->done(op, sds_opx(op)->status);
	return true;
}

static void tell_events(struct sds_store *s)
{
	if (s->failed && !s->failed_told && s->started) {
		s->failed_told = true;
		if (s->events.failed)
			s->events.failed(s->events.owner, s->failed);
	}
	if (!s->dead && s->space_asked && s->free_count > s->held) {
		s->space_asked = false;
		if (s->events.space)
			s->events.space(s->events.owner);
	}
}

static void work(struct sds_store *s)
{
	if (s->failed) {
		sds_jobs_run(s);
		return;
	}
	sds_queues_run(s);
	sds_pages_run(s);
	sds_al_run(s);
	sds_jobs_run(s);
	sds_ckpt_run(s);
	sds_journal_run(s);
	flush_run(s);
}

void sds_store_turn(struct sds_store *s)
{
	if (s->in_turn) {
		s->again = true;
		return;
	}
	s->in_turn = true;
	do {
		s->again = false;
		work(s);
		while (!s->dead && report_done(s))
			s->again = true;
		if (!s->dead)
			tell_events(s);
		if (!s->dead && s->closing)
			sds_close_run(s);
	} while (s->again && !s->dead);
	s->in_turn = false;
	if (s->dead && (s->forgotten || (!s->inflight_count && !s->posted)))
		sds_store_free(s);
}

static void turn_task(struct ash_task *task)
{
	struct sds_store *s = ash_container_of(task, struct sds_store, task);

	s->posted = false;
	if (!s->dead)
		sds_store_turn(s);
	else if (!s->inflight_count)
		sds_store_free(s);
}

void sds_post(struct sds_store *s)
{
	if (s->posted)
		return;
	s->posted = true;
	s->task.fn = turn_task;
	s->port->post(s->port, &s->task);
}

void sds_kick(struct sds_store *s)
{
	if (s->in_turn)
		s->again = true;
	else
		sds_post(s);
}

void sds_store_abandon(struct sds_store *s)
{
	if (!s)
		return;
	s->dead = true;
	ash_timer_cancel(s->port->timers, &s->j.seal_timer);
	ash_timer_cancel(s->port->timers, &s->label_timer);
	if (!s->in_turn && !s->inflight_count && !s->posted)
		sds_store_free(s);
}

void sds_store_forget(struct sds_store *s)
{
	if (!s)
		return;
	s->dead = s->forgotten = true;
	ash_timer_cancel(s->port->timers, &s->j.seal_timer);
	ash_timer_cancel(s->port->timers, &s->label_timer);
	if (!s->in_turn)
		sds_store_free(s);
}
