// SPDX-License-Identifier: MIT
/*
 * Operations from submit to done. An operation that lacks something (journal room, a slot, a page,
 * an extent, a seal) changes nothing, waits in the queue of what it lacks, and begins again from
 * the start. Once it has begun it holds all it needs and waits only for the disk.
 */
#include "sds/core/store_int.h"

void sds_op_done(struct sds_store *s, struct sds_store_op *op, int status)
{
	struct sds_opx *x = sds_opx(op);

	x->status = status;
	ash_list_remove(&x->fw);
	ash_list_remove(&x->wait.link);
	sds_queue_add(&s->q_done, op);
	sds_kick(s);
}

static void begin_flush(struct sds_store *s, struct sds_store_op *op)
{
	struct sds_opx *x = sds_opx(op);

	x->ticket = sds_flush_ticket(s);
	if (sds_flush_passed(s, x->ticket)) {
		sds_op_done(s, op, 0);
		return;
	}
	sds_queue_add(&s->q_flush, op);
	sds_kick(s);
}

void sds_op_begin(struct sds_store *s, struct sds_store_op *op)
{
	struct sds_opx *x = sds_opx(op);

	if (s->failed) {
		sds_op_done(s, op, -ENODEV);
		return;
	}
	if (x->flags & SDS_X_FAILED)
		sds_change_undo(s, op);
	else if (op->kind == SDS_STORE_READ)
		sds_read_begin(s, op);
	else if (op->kind == SDS_STORE_FLUSH)
		begin_flush(s, op);
	else
		sds_change_begin(s, op);
}

void sds_store_submit(struct sds_store *s, struct sds_store_op *op)
{
	struct sds_opx *x = sds_opx(op);

	assert(op->kind >= SDS_STORE_READ && op->kind <= SDS_STORE_FLUSH);
	assert(op->kind == SDS_STORE_FLUSH || op->kind == SDS_STORE_DROP ||
	       (op->blocks > 0 && op->first_block + op->blocks <= ASH_CHUNK_BLOCKS));
	memset(x, 0, sizeof(*x));
	ash_list_init(&x->io.link);
	ash_list_init(&x->wait.link);
	ash_list_init(&x->fw);
	x->ext = SDS_NONE;
	x->io.d.buf_index = op->buf_index;
	op->unknown = op->existed = op->first_only = false;
	op->bad_block = 0;
	s->ops++;
	if (s->closing)
		sds_op_done(s, op, -ENODEV);
	else
		sds_op_begin(s, op);
}

/* ------------------------------------------------------------ queues */

/* Begins the waiting ones again, in order. @all: each waits for something of its own; else the
 * first that has to wait again speaks for those behind it. */
static void retry(struct sds_store *s, struct sds_queue *q, bool all)
{
	struct sds_store_op *op = q->head;

	q->head = q->tail = NULL;
	s->retrying = true;
	while (op) {
		struct sds_store_op *next = op->next;

		if (q->head && !all)
			sds_queue_add(q, op);
		else
			sds_op_begin(s, op);
		op = next;
	}
	s->retrying = false;
}

static void flushes_run(struct sds_store *s)
{
	struct sds_store_op *op = s->q_flush.head;

	s->q_flush.head = s->q_flush.tail = NULL;
	while (op) {
		struct sds_store_op *next = op->next;

		if (sds_flush_passed(s, sds_opx(op)->ticket))
			sds_op_done(s, op, 0);
		else
			sds_queue_add(&s->q_flush, op);
		op = next;
	}
}

static bool take(bool *wake, const struct sds_queue *q)
{
	bool was = *wake;

	*wake = false;
	return was && q->head;
}

void sds_queues_run(struct sds_store *s)
{
	bool journal = s->wake_journal;

	if (take(&s->wake_flush, &s->q_flush))
		flushes_run(s);
	if (take(&s->wake_seal, &s->q_seal))
		retry(s, &s->q_seal, true);
	if (take(&s->wake_journal, &s->q_journal[1]))
		retry(s, &s->q_journal[1], false);
	if (journal && s->q_journal[0].head)
		retry(s, &s->q_journal[0], false);
	if (take(&s->wake_al, &s->q_al))
		retry(s, &s->q_al, false);
	if (take(&s->wake_page, &s->q_page))
		retry(s, &s->q_page, false);
	if (take(&s->wake_space, &s->q_space))
		retry(s, &s->q_space, false);
	else if (s->q_space.head && !s->pending_free)
		retry(s, &s->q_space, true); /* nothing more will come: ENOSPC */
}

/* ------------------------------------------------------------ failure */

static void fail_queue(struct sds_store *s, struct sds_queue *q, int status)
{
	struct sds_store_op *op = q->head;

	q->head = q->tail = NULL;
	while (op) {
		struct sds_store_op *next = op->next;

		sds_op_done(s, op, status);
		op = next;
	}
}

/* The store has failed: nothing is waited for but disk operations in flight. */
void sds_ops_fail(struct sds_store *s)
{
	fail_queue(s, &s->q_journal[0], -ENODEV);
	fail_queue(s, &s->q_journal[1], -ENODEV);
	fail_queue(s, &s->q_al, -ENODEV);
	fail_queue(s, &s->q_page, -ENODEV);
	fail_queue(s, &s->q_space, -ENODEV);
	fail_queue(s, &s->q_seal, -ENODEV);
	fail_queue(s, &s->q_flush, -EIO);
	while (!ash_list_empty(&s->j.waits)) {
		struct sds_jwait *wait = ash_list_first(&s->j.waits, struct sds_jwait, link);

		ash_list_remove(&wait->link);
		wait->fn(s, wait);
	}
	while (!ash_list_empty(&s->pages.queue)) {
		struct sds_page *page =
			ash_container_of(ash_list_pop(&s->pages.queue), struct sds_page, queue);
		struct sds_store_op *op = page->readers;

		page->readers = NULL;
		while (op) {
			struct sds_store_op *next = op->next;

			sds_read_page_ready(s, op);
			op = next;
		}
	}
}
