// SPDX-License-Identifier: MIT
/* The baseline: a raw file or block device through io_uring with O_DIRECT. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/fs.h>

#include "common/base/clean.h"
#include "tests/bench/load.h"

struct file {
	struct io_uring ring;
	int fd;
	bool finished;
};

static int file_open(struct load_engine *e, const struct load_opts *o, uint32_t slots,
		     uint64_t *ret_bytes)
{
	struct file *f = ash_xcalloc(1, sizeof(*f));
	struct stat st;
	int err;

	e->priv = f;
	f->fd = open(o->file, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (f->fd < 0 || fstat(f->fd, &st)) {
		fprintf(stderr, "ashlar-load: cannot open %s with O_DIRECT: %s\n", o->file,
			strerror(errno));
		free(f);
		return 2;
	}
	*ret_bytes = (uint64_t)st.st_size;
	if (S_ISBLK(st.st_mode) && ioctl(f->fd, BLKGETSIZE64, ret_bytes)) {
		close(f->fd);
		free(f);
		return 2;
	}
	err = io_uring_queue_init(2 * slots + 8, &f->ring, 0);
	if (err) {
		fprintf(stderr, "ashlar-load: no io_uring: %s\n", strerror(-err));
		close(f->fd);
		free(f);
		return 4;
	}
	return 0;
}

static void file_submit(struct load_engine *e, struct load_slot *s, uint64_t offset, uint64_t bytes)
{
	struct file *f = e->priv;
	struct io_uring_sqe *sqe = io_uring_get_sqe(&f->ring);

	if (!sqe)
		abort(); /* one entry per slot is there */
	if (s->kind == LOAD_READ) {
		io_uring_prep_read(sqe, f->fd, s->data, (unsigned)bytes, offset);
	} else if (s->kind == LOAD_WRITE) {
		io_uring_prep_write(sqe, f->fd, s->data, (unsigned)bytes, offset);
		sqe->rw_flags = s->fua ? RWF_DSYNC : 0;
	} else {
		io_uring_prep_fsync(sqe, f->fd, IORING_FSYNC_DATASYNC);
	}
	io_uring_sqe_set_data(sqe, s);
}

static void file_run(struct load_engine *e, void (*start)(void *arg), void *arg)
{
	struct file *f = e->priv;

	f->finished = false;
	start(arg);
	while (!f->finished) {
		struct io_uring_cqe *cqe;
		unsigned head, n = 0;
		int err = io_uring_submit_and_wait(&f->ring, 1);

		if (err < 0 && err != -EINTR && err != -EAGAIN) {
			fprintf(stderr, "ashlar-load: io_uring: %s\n", strerror(-err));
			exit(4);
		}
		io_uring_for_each_cqe(&f->ring, head, cqe)
		{
			struct load_slot *s = io_uring_cqe_get_data(cqe);
			int res = cqe->res;

			n++;
			s->done(s, res < 0 ? res : 0);
		}
		io_uring_cq_advance(&f->ring, n);
	}
}

static void file_finish(struct load_engine *e)
{
	((struct file *)e->priv)->finished = true;
}

static void file_close(struct load_engine *e)
{
	struct file *f = e->priv;

	io_uring_queue_exit(&f->ring);
	close(f->fd);
	free(f);
}

const struct load_engine load_engine_file = {.name = "file",
					     .open = file_open,
					     .submit = file_submit,
					     .run = file_run,
					     .finish = file_finish,
					     .close = file_close};
