// SPDX-License-Identifier: MIT
/* Labels, probing, formatting, closing, freeing. */
#include <stdlib.h>

#include "common/base/log.h"
#include "sds/core/store_int.h"

/* ------------------------------------------------------------ choosing a label */

int sds_label_choose(const uint8_t *a, int a_result, const uint8_t *b, int b_result,
		     struct sds_label_full *ret_label)
{
	struct sds_label_full la, lb;
	int ra = a_result ? a_result : sds_label_decode(a, &la);
	int rb = b_result ? b_result : sds_label_decode(b, &lb);

	if (ra == 0 && (rb != 0 || la.seq >= lb.seq)) {
		*ret_label = la;
		return 0;
	}
	if (rb == 0) {
		*ret_label = lb;
		return 0;
	}
	if (ra == -EPROTONOSUPPORT || rb == -EPROTONOSUPPORT)
		return -EPROTONOSUPPORT;
	if (ra == -ENODATA && rb == -ENODATA)
		return -ENODATA;
	if (a_result && b_result)
		return a_result;
	return -EBADMSG;
}

struct prober {
	struct ash_disk *disk;
	struct ash_disk_op op;
	uint8_t *buf;
	int result;
	void (*done)(void *arg, int result, const struct sds_label *label);
	void *arg;
};

static void simple_io(struct ash_disk *disk, struct ash_disk_op *op, unsigned kind, uint64_t offset,
		      void *data, uint64_t bytes, bool fua,
		      void (*done)(struct ash_disk_op *op, int result))
{
	op->kind = (uint8_t)kind;
	op->fua = fua;
	op->iovcnt = data ? 1 : 0;
	op->buf_index = -1;
	op->offset = offset;
	op->bytes = bytes;
	op->iov1 = (struct iovec){.iov_base = data, .iov_len = bytes};
	op->iov = &op->iov1;
	op->done = done;
	ash_disk_submit(disk, op);
}

static void probe_b_done(struct ash_disk_op *op, int result)
{
	struct prober *p = ash_container_of(op, struct prober, op);
	struct sds_label_full label;
	int err;

	memset(&label, 0, sizeof(label));
	err = sds_label_choose(p->buf, p->result, p->buf + ASH_BLOCK_BYTES, result, &label);
	p->done(p->arg, err, err ? NULL : &label.label);
	free(p->buf);
	free(p);
}

static void probe_a_done(struct ash_disk_op *op, int result)
{
	struct prober *p = ash_container_of(op, struct prober, op);

	p->result = result;
	simple_io(p->disk, op, ASH_DISK_READ, SDS_LABEL_B_OFFSET, p->buf + ASH_BLOCK_BYTES,
		  ASH_BLOCK_BYTES, false, probe_b_done);
}

void sds_store_probe(struct ash_port *port, struct ash_disk *disk,
		     void (*done)(void *arg, int result, const struct sds_label *label), void *arg)
{
	struct prober *p = calloc(1, sizeof(*p));

	assert(p);
	p->buf = sds_aligned(2 * ASH_BLOCK_BYTES);
	assert(p->buf);
	p->disk = disk;
	p->done = done;
	p->arg = arg;
	simple_io(disk, &p->op, ASH_DISK_READ, SDS_LABEL_A_OFFSET, p->buf, ASH_BLOCK_BYTES, false,
		  probe_a_done);
}

/* ------------------------------------------------------------ format */

/* Order: both labels void, table zeroed, first journal block, flush, labels. A crash in between
 * leaves a disk without a label. */
struct formatter {
	struct ash_port *port;
	struct ash_disk *disk;
	struct ash_disk_op op;
	struct ash_task task;
	struct sds_label_full label;
	uint8_t *buf;
	unsigned step;
	uint64_t at;
	int result;
	void (*done)(void *arg, int result);
	void *arg;
};

static void format_step(struct ash_disk_op *op, int result);

static void format_table(struct formatter *f)
{
	const struct sds_geo *g = &f->label.geo;
	uint64_t left = g->table_blocks * ASH_BLOCK_BYTES - f->at;
	uint64_t bytes = left < ASH_CHUNK_BYTES ? left : ASH_CHUNK_BYTES;

	memset(f->buf, 0, ASH_CHUNK_BYTES);
	f->at += bytes;
	if (bytes == left)
		f->step++;
	simple_io(f->disk, &f->op, ASH_DISK_WRITE, g->table_offset + f->at - bytes, f->buf, bytes,
		  false, format_step);
}

static void format_journal(struct formatter *f)
{
	struct sds_jhdr h = {.seq = 1, .tail = 1, .fw_first = 1};

	memcpy(h.device_uuid, f->label.label.device_uuid, 16);
	sds_jblock_encode(&h, f->buf);
	simple_io(f->disk, &f->op, ASH_DISK_WRITE,
		  f->label.geo.journal_offset +
			  h.seq % f->label.geo.journal_blocks * ASH_BLOCK_BYTES,
		  f->buf, ASH_BLOCK_BYTES, f->disk->write_back, format_step);
}

static void format_step(struct ash_disk_op *op, int result)
{
	struct formatter *f = ash_container_of(op, struct formatter, op);
	bool second = f->step == 1 || f->step == 6;

	if (result) {
		f->done(f->arg, result);
		free(f->buf);
		free(f);
		return;
	}
	switch (f->step) {
	case 0:
	case 1:
	case 5:
	case 6:
		memset(f->buf, 0, ASH_BLOCK_BYTES);
		if (f->step++ >= 5)
			sds_label_encode(&f->label, f->buf);
		simple_io(f->disk, op, ASH_DISK_WRITE,
			  second ? SDS_LABEL_B_OFFSET : SDS_LABEL_A_OFFSET, f->buf, ASH_BLOCK_BYTES,
			  f->disk->write_back, format_step);
		break;
	case 2:
		format_table(f);
		break;
	case 3:
		f->step++;
		format_journal(f);
		break;
	case 4:
		f->step++;
		simple_io(f->disk, op, ASH_DISK_FLUSH, 0, NULL, 0, false, format_step);
		break;
	default:
		f->done(f->arg, 0);
		free(f->buf);
		free(f);
		break;
	}
}

static void format_task(struct ash_task *task)
{
	struct formatter *f = ash_container_of(task, struct formatter, task);

	format_step(&f->op, f->result);
}

void sds_store_format_params(struct ash_port *port, struct ash_disk *disk,
			     const struct sds_label *label, const struct sds_format_params *params,
			     void (*done)(void *arg, int result), void *arg)
{
	struct formatter *f = calloc(1, sizeof(*f));
	struct sds_label *l;

	assert(f);
	f->buf = sds_aligned(ASH_CHUNK_BYTES);
	assert(f->buf);
	f->port = port;
	f->disk = disk;
	f->done = done;
	f->arg = arg;
	l = &f->label.label;
	memcpy(l->system, label->system, 16);
	memcpy(l->device_uuid, label->device_uuid, 16);
	l->device = label->device;
	l->pool = label->pool;
	l->longest_lease_ms = label->longest_lease_ms;
	l->dr_epoch = label->dr_epoch;
	l->map_version = label->map_version;
	l->disk_bytes = disk->bytes;
	f->label.seq = 1;
	f->result = sds_geo_compute(disk->bytes, params, &f->label.geo);
	if (!params && disk->bytes < SDS_DEVICE_MIN_BYTES)
		f->result = -EOVERFLOW;
	l->extents = f->label.geo.extents;
	f->task.fn = format_task;
	port->post(port, &f->task);
}

void sds_store_format(struct ash_port *port, struct ash_disk *disk, const struct sds_label *label,
		      void (*done)(void *arg, int result), void *arg)
{
	sds_store_format_params(port, disk, label, NULL, done, arg);
}

/* ------------------------------------------------------------ writing the label */

static void label_step_done(struct ash_disk_op *d, int result)
{
	struct sds_store *s = d->owner;

	if (sds_io_end(s, sds_io_of(d)))
		return;
	if (result)
		sds_fail(s, result, "label");
	if (!s->failed && s->label_step == 1) {
		s->label_step = 2;
		sds_io_submit(s, &s->label_io, ASH_DISK_WRITE, SDS_LABEL_B_OFFSET, s->label_buf,
			      ASH_BLOCK_BYTES, s->disk->write_back, label_step_done);
		return;
	}
	s->label_step = 0;
	if (!s->failed && s->label_again) {
		s->label_again = false;
		sds_label_write(s);
		return;
	}
	if (s->label_done)
		s->label_done(s);
	else
		sds_store_turn(s);
}

void sds_label_write(struct sds_store *s)
{
	if (s->label_step) {
		s->label_again = true;
		return;
	}
	s->label.seq++;
	s->label_step = 1;
	sds_label_encode(&s->label, s->label_buf);
	s->label_io.d.buf_index = -1;
	sds_io_submit(s, &s->label_io, ASH_DISK_WRITE, SDS_LABEL_A_OFFSET, s->label_buf,
		      ASH_BLOCK_BYTES, s->disk->write_back, label_step_done);
}

static void label_timeout(struct ash_timer *timer)
{
	struct sds_store *s = ash_container_of(timer, struct sds_store, label_timer);

	if (!s->failed && !s->closing)
		sds_label_write(s);
}

void sds_store_note_map_version(struct sds_store *s, uint64_t map_version, uint32_t lease_ms)
{
	struct sds_label *l = &s->label.label;

	if (map_version <= l->map_version && lease_ms <= l->longest_lease_ms)
		return;
	if (map_version > l->map_version)
		l->map_version = map_version;
	if (lease_ms > l->longest_lease_ms)
		l->longest_lease_ms = lease_ms;
	if (!ash_timer_is_set(&s->label_timer)) {
		s->label_timer.fn = label_timeout;
		ash_timer_set(s->port->timers, &s->label_timer, s->port->turn_ns + SDS_LABEL_NS);
	}
}

const struct sds_label *sds_store_label(const struct sds_store *s)
{
	return &s->label.label;
}

void sds_store_set_events(struct sds_store *s, const struct sds_store_events *events)
{
	s->events = *events;
}

/* ------------------------------------------------------------ close */

enum {
	CLOSE_DRAIN,
	CLOSE_COOL,  /* every chunk leaves the activity log */
	CLOSE_TABLE, /* the whole table is written */
	CLOSE_MOVED,
	CLOSE_LABEL,
	CLOSE_LAST,
	CLOSE_DISK,
};

static void disk_closed(void *arg)
{
	struct sds_store *s = arg;
	void (*done)(void *, int) = s->close_done;
	void *done_arg = s->close_arg;
	int result = s->failed;

	s->dead = true;
	if (!s->posted && !s->in_turn)
		sds_store_free(s);
	done(done_arg, result);
}

static void close_table(struct sds_store *s)
{
	struct sds_ckpt *ck = &s->ck;

	if (ck->target || s->j.records || s->j.inflight || s->j.submit_seq != s->j.next_seq)
		return;
	ck->target = s->j.next_seq;
	ck->moved = ck->flushing = false;
	ck->carry_seq = 0;
	s->close_step = CLOSE_MOVED;
	s->again = true;
}

void sds_close_run(struct sds_store *s)
{
	if (s->failed && s->close_step < CLOSE_LAST)
		s->close_step = CLOSE_LAST;
	switch (s->close_step) {
	case CLOSE_DRAIN:
		if (s->ops || s->jobs)
			return;
		s->close_step = CLOSE_COOL;
		s->again = true;
		break;
	case CLOSE_COOL:
		if (s->al.free_count == s->al.capacity) {
			s->close_step = CLOSE_TABLE;
			s->again = true;
		}
		break;
	case CLOSE_TABLE:
		close_table(s);
		break;
	case CLOSE_MOVED:
		if (s->ck.target || s->label_step)
			return;
		s->label.label.clean = true;
		s->close_step = CLOSE_LABEL;
		sds_label_write(s);
		break;
	case CLOSE_LABEL:
		if (s->label_step == 0)
			s->close_step = CLOSE_LAST;
		s->again = s->label_step == 0;
		break;
	case CLOSE_LAST:
		if (s->inflight_count || s->ops || (s->flush_want && !s->failed))
			return;
		s->close_step = CLOSE_DISK;
		ash_timer_cancel(s->port->timers, &s->j.seal_timer);
		s->disk->ops->close(s->disk, disk_closed, s);
		break;
	default:
		break;
	}
}

void sds_store_close(struct sds_store *s, void (*done)(void *arg, int result), void *arg)
{
	assert(!s->closing);
	s->closing = true;
	s->close_done = done;
	s->close_arg = arg;
	ash_timer_cancel(s->port->timers, &s->label_timer);
	sds_kick(s);
}

void sds_store_free(struct sds_store *s)
{
	sds_recovery_free(s->recovery);
	while (s->jobs) {
		struct sds_job *job = s->jobs;

		s->jobs = job->next;
		free(job);
	}
	sds_al_done(s);
	sds_pages_done(s);
	sds_ckpt_done(s);
	sds_index_done(s);
	for (unsigned i = 0; i < SDS_JBUFS; i++)
		free(s->j.b[i].buf);
	free(s->j.fw_end);
	free(s->ext);
	free(s->label_buf);
	free(s);
}
