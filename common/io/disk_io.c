// SPDX-License-Identifier: MIT
/* Disk operations: through the ring, or by plain calls where those are better. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/io/disk_int.h"

/* Passing shortage of kernel memory is not an error of the disk; a lasting one becomes EIO. */
#define RETRIES_MAX 1000
#define PLAIN_PER_TURN 64

/* op->backend[] */
enum { B_DONE = 0, B_DISK = 1, B_RETRIES = 2, B_RESULT = 3 };

static struct disk *op_disk(const struct ash_disk_op *op)
{
	return (struct disk *)(uintptr_t)op->backend[B_DISK];
}

static void append(struct ash_disk_op ***end, struct ash_disk_op *op)
{
	op->next = NULL;
	**end = op;
	*end = &op->next;
}

static struct ash_disk_op *pop(struct ash_disk_op **first, struct ash_disk_op ***end)
{
	struct ash_disk_op *op = *first;

	if (op) {
		*first = op->next;
		if (!*first)
			*end = first;
		op->next = NULL;
	}
	return op;
}

static void disk_submit(struct ash_disk *d, struct ash_disk_op *op)
{
	struct disk *k = disk_of(d);

	assert(!k->closing);
	d->inflight++;
	op->submitted_ns = k->r->port.turn_ns;
	op->backend[B_DONE] = 0;
	op->backend[B_DISK] = (uintptr_t)k;
	op->backend[B_RETRIES] = 0;
	append(&k->r->disk_queue_end, op);
}

static void disk_close(struct ash_disk *d, void (*done)(void *arg), void *arg)
{
	struct disk *k = disk_of(d);

	assert(!k->closing);
	k->closing = true;
	k->closed = done;
	k->closed_arg = arg;
	if (d->inflight == 0)
		ash_list_push_back(&k->r->closing, &k->closing_link);
}

const struct ash_disk_ops disk_ops = {.submit = disk_submit, .close = disk_close};

/* ------------------------------------------------------------ results */

static void finish(struct ash_disk_op *op, int result)
{
	struct disk *k = op_disk(op);

	assert(k->d.inflight > 0);
	k->d.inflight--;
	if (k->closing && k->d.inflight == 0)
		ash_list_push_back(&k->r->closing, &k->closing_link);
	op->done(op, result);
}

/* Callers tell three kinds of failure apart; what the kernel said is logged. */
static int map_error(struct ash_disk_op *op, int err)
{
	struct disk *k = op_disk(op);
	int mapped = -EIO;

	switch (-err) {
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		mapped = -ENOSPC;
		break;
	case ENODEV:
	case ENXIO:
	case ESHUTDOWN:
	case EBADF:
	case ENOMEDIUM:
		mapped = -ENODEV;
		break;
	}
	if (mapped != err)
		ash_log(ASH_LOG_INFO, "event=disk_error path=%s kind=%u offset=%llu error=\"%s\"",
			k->path, op->kind, (unsigned long long)op->offset, strerror(-err));
	return mapped;
}

static bool passing(int err)
{
	return err == -EAGAIN || err == -EINTR || err == -ENOMEM || err == -ENOBUFS;
}

/* Result of one system call for the operation. True: over, *ret_result says how. */
static bool settle(struct ash_disk_op *op, int res, int *ret_result)
{
	struct disk *k = op_disk(op);

	if (passing(res) && op->backend[B_RETRIES]++ < RETRIES_MAX)
		return false;
	if (op->kind == ASH_DISK_PUNCH) {
		/* A hint that cannot be taken is no error, and not given again. */
		if (res == -EOPNOTSUPP || res == -ENOTTY || res == -EINVAL)
			k->no_punch = true;
		*ret_result = res == -EIO || res == -ENODEV ? map_error(op, res) : 0;
		return true;
	}
	if (res < 0) {
		*ret_result = map_error(op, res);
		return true;
	}
	if (op->kind == ASH_DISK_FLUSH) {
		*ret_result = 0;
		return true;
	}
	op->backend[B_DONE] += (uint64_t)res;
	if (op->backend[B_DONE] < op->bytes && res > 0)
		return false;
	/* Nothing more comes: the file was cut off under us. */
	*ret_result = op->backend[B_DONE] == op->bytes ? 0 : -EIO;
	return true;
}

void disk_on_complete(struct ash_disk_op *op, int res)
{
	int result;

	if (settle(op, res, &result))
		finish(op, result);
	else
		append(&op_disk(op)->r->disk_queue_end, op);
}

/* ------------------------------------------------------------ through the ring */

/* What is left of the operation: the piece it stopped in, or all pieces from one on. */
static unsigned rest(const struct ash_disk_op *op, struct iovec *ret_piece)
{
	uint64_t done = op->backend[B_DONE];
	unsigned i = 0;

	while (i + 1u < op->iovcnt && done >= op->iov[i].iov_len)
		done -= op->iov[i++].iov_len;
	*ret_piece =
		(struct iovec){(uint8_t *)op->iov[i].iov_base + done, op->iov[i].iov_len - done};
	return done ? op->iovcnt : i;
}

static bool registered(const struct ash_reactor *r, const struct ash_disk_op *op,
		       const struct iovec *piece)
{
	const struct iovec *slab;
	const uint8_t *at = piece->iov_base;

	if (!r->fixed_bufs || op->buf_index < 0 || (unsigned)op->buf_index >= r->slabs)
		return false;
	slab = &r->slab[op->buf_index];
	return at >= (const uint8_t *)slab->iov_base &&
	       at + piece->iov_len <= (const uint8_t *)slab->iov_base + slab->iov_len;
}

static void prep_transfer(struct io_uring_sqe *sqe, struct disk *k, struct ash_disk_op *op)
{
	struct iovec piece;
	unsigned from = rest(op, &piece);
	uint64_t offset = op->offset + op->backend[B_DONE];
	bool write = op->kind == ASH_DISK_WRITE, whole = from + 1u >= op->iovcnt;

	if (!whole) {
		(write ? io_uring_prep_writev : io_uring_prep_readv)(sqe, k->fd, op->iov + from,
								     op->iovcnt - from, offset);
	} else if (registered(k->r, op, &piece)) {
		if (write)
			io_uring_prep_write_fixed(sqe, k->fd, piece.iov_base,
						  (unsigned)piece.iov_len, offset, op->buf_index);
		else
			io_uring_prep_read_fixed(sqe, k->fd, piece.iov_base,
						 (unsigned)piece.iov_len, offset, op->buf_index);
	} else if (write) {
		io_uring_prep_write(sqe, k->fd, piece.iov_base, (unsigned)piece.iov_len, offset);
	} else {
		io_uring_prep_read(sqe, k->fd, piece.iov_base, (unsigned)piece.iov_len, offset);
	}
	if (write && op->fua && k->d.write_back)
		sqe->rw_flags = RWF_DSYNC;
}

static void prep(struct io_uring_sqe *sqe, struct disk *k, struct ash_disk_op *op)
{
	switch (op->kind) {
	case ASH_DISK_READ:
	case ASH_DISK_WRITE:
		prep_transfer(sqe, k, op);
		break;
	case ASH_DISK_FLUSH:
		io_uring_prep_fsync(sqe, k->fd, IORING_FSYNC_DATASYNC);
		break;
	default:
		assert(op->kind == ASH_DISK_PUNCH);
		io_uring_prep_fallocate(sqe, k->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
					(off_t)op->offset, (off_t)op->bytes);
		break;
	}
	ring_sqe_file(sqe, k->fd, k->slot);
	ring_sqe_data(sqe, op, RING_DISK);
}

void disk_flush(struct ash_reactor *r)
{
	struct ash_disk_op *op;
	struct io_uring_sqe *sqe;

	while ((op = r->disk_queue)) {
		struct disk *k = op_disk(op);

		if (k->plain || (op->kind == ASH_DISK_PUNCH && k->no_punch)) {
			append(&r->inline_queue_end, pop(&r->disk_queue, &r->disk_queue_end));
			continue;
		}
		sqe = ring_sqe(r);
		if (!sqe)
			return;
		pop(&r->disk_queue, &r->disk_queue_end);
		prep(sqe, k, op);
	}
}

/* ------------------------------------------------------------ by plain calls */

static int plain_call(struct disk *k, struct ash_disk_op *op)
{
	struct iovec piece;
	unsigned from;
	off_t offset;
	ssize_t n;

	if (op->kind == ASH_DISK_PUNCH) {
		if (k->no_punch)
			return 0;
		return fallocate(k->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				 (off_t)op->offset, (off_t)op->bytes)
			       ? -errno
			       : 0;
	}
	if (op->kind == ASH_DISK_FLUSH)
		return 0; /* in memory there is nothing to wait for */
	offset = (off_t)(op->offset + op->backend[B_DONE]);
	from = rest(op, &piece);
	if (from + 1u < op->iovcnt)
		n = op->kind == ASH_DISK_WRITE
			    ? pwritev(k->fd, op->iov + from, (int)(op->iovcnt - from), offset)
			    : preadv(k->fd, op->iov + from, (int)(op->iovcnt - from), offset);
	else
		n = op->kind == ASH_DISK_WRITE
			    ? pwrite(k->fd, piece.iov_base, piece.iov_len, offset)
			    : pread(k->fd, piece.iov_base, piece.iov_len, offset);
	return n < 0 ? -errno : (int)n;
}

/* After the ring was told: peers work on what was sent meanwhile. */
void disk_run_inline(struct ash_reactor *r)
{
	struct ash_disk_op *op;
	int result;

	for (int i = 0;
	     i < PLAIN_PER_TURN && (op = pop(&r->inline_queue, &r->inline_queue_end)) != NULL;
	     i++) {
		while (!settle(op, plain_call(op_disk(op), op), &result))
			;
		op->backend[B_RESULT] = (uint64_t)(int64_t)result;
		append(&r->inline_done_end, op);
	}
}

unsigned disk_reap(struct ash_reactor *r)
{
	struct ash_disk_op *op = r->inline_done, *next;
	struct ash_list *l;
	unsigned n = 0;

	r->inline_done = NULL;
	r->inline_done_end = &r->inline_done;
	for (; op; op = next, n++) {
		next = op->next;
		op->next = NULL;
		finish(op, (int)(int64_t)op->backend[B_RESULT]);
	}
	for (; (l = ash_list_pop(&r->closing)); n++) {
		struct disk *k = ash_container_of(l, struct disk, closing_link);
		void (*closed)(void *arg) = k->closed;
		void *arg = k->closed_arg;

		ring_file_remove(r, k->slot);
		close(k->fd);
		ash_list_remove(&k->link);
		free(k->path);
		free(k);
		if (closed)
			closed(arg);
	}
	return n;
}

bool disk_has_work(const struct ash_reactor *r)
{
	return r->disk_queue || r->inline_queue || r->inline_done || !ash_list_empty(&r->closing);
}

void disk_init(struct ash_reactor *r)
{
	ash_list_init(&r->disks);
	ash_list_init(&r->closing);
	r->disk_queue_end = &r->disk_queue;
	r->inline_queue_end = &r->inline_queue;
	r->inline_done_end = &r->inline_done;
}

void disk_forget_all(struct ash_reactor *r)
{
	struct ash_list *l;

	while ((l = ash_list_pop(&r->disks))) {
		struct disk *k = ash_container_of(l, struct disk, link);

		close(k->fd);
		free(k->path);
		free(k);
	}
}
