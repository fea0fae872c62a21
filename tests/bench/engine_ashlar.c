// SPDX-License-Identifier: MIT
/* Through libashlar; everything happens on its thread. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "sdc/lib/ashlar.h"
#include "tests/bench/load.h"

struct op {
	struct ash_aio aio;
	struct iovec iov;
	struct load_slot *slot;
};

struct engine {
	struct ash_cluster *cluster;
	struct ash_volume *volume;
	struct op *op;
	uint32_t ops, used;
	struct ash_aio first;
	void (*start)(void *arg);
	void *start_arg;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool finished;
};

static int exit_of(int err)
{
	return err == -ETIMEDOUT || err == -EHOSTUNREACH ? 3 : (err == -EINVAL ? 2 : 1);
}

static int ash_engine_open(struct load_engine *e, const struct load_opts *o, uint32_t slots,
			   uint64_t *ret_bytes)
{
	struct ash_connect_opts opts = {.mdms = o->mdms,
					.guid = o->guid,
					.sdc_name = o->sdc_name,
					.state_dir = o->state_dir,
					.io_timeout_ms = o->io_timeout_ms,
					.spin_us = o->spin_us};
	struct engine *x = ash_xcalloc(1, sizeof(*x));
	struct ash_volume_info info;
	char why[ASH_MESSAGE_BYTES];
	int err = ash_connect(&opts, &x->cluster, why);

	if (!err) {
		err = ash_open(x->cluster, o->volume, o->writes && !o->check ? 0 : ASH_READ_ONLY,
			       30000, &x->volume, why);
		if (err)
			ash_disconnect(x->cluster);
	}
	if (err) {
		fprintf(stderr, "ashlar-load: %s\n", why);
		free(x);
		return exit_of(err);
	}
	ash_volume_info(x->volume, &info);
	*ret_bytes = info.size_bytes;
	x->ops = slots;
	x->op = ash_xcalloc(slots, sizeof(*x->op));
	pthread_mutex_init(&x->lock, NULL);
	pthread_cond_init(&x->cond, NULL);
	e->priv = x;
	return 0;
}

static void aio_done(struct ash_aio *aio, int status)
{
	struct op *op = aio->arg;

	op->slot->done(op->slot, status);
}

static void ash_engine_submit(struct load_engine *e, struct load_slot *s, uint64_t offset,
			      uint64_t bytes)
{
	struct engine *x = e->priv;
	struct op *op = s->engine;

	if (!op) {
		op = s->engine = &x->op[x->used++];
		op->slot = s;
	}
	op->iov = (struct iovec){s->data, bytes};
	op->aio.kind = s->kind == LOAD_READ
			       ? ASH_AIO_READ
			       : (s->kind == LOAD_WRITE ? ASH_AIO_WRITE : ASH_AIO_FLUSH);
	op->aio.flags = s->fua ? ASH_FUA : 0;
	op->aio.offset = offset;
	op->aio.bytes = bytes;
	op->aio.iov = &op->iov;
	op->aio.iovcnt = 1;
	op->aio.done = aio_done;
	op->aio.arg = op;
	ash_aio_submit(x->volume, &op->aio);
}

static void first_done(struct ash_aio *aio, int status)
{
	struct engine *x = aio->arg;

	x->start(x->start_arg);
}

static void ash_engine_run(struct load_engine *e, void (*start)(void *arg), void *arg)
{
	struct engine *x = e->priv;

	x->start = start;
	x->start_arg = arg;
	x->finished = false;
	x->used = 0;
	/* A flush of nothing brings us onto the library's thread. */
	x->first = (struct ash_aio){.kind = ASH_AIO_FLUSH, .done = first_done, .arg = x};
	ash_aio_submit(x->volume, &x->first);
	pthread_mutex_lock(&x->lock);
	while (!x->finished)
		pthread_cond_wait(&x->cond, &x->lock);
	pthread_mutex_unlock(&x->lock);
}

static void ash_engine_finish(struct load_engine *e)
{
	struct engine *x = e->priv;

	pthread_mutex_lock(&x->lock);
	x->finished = true;
	pthread_cond_signal(&x->cond);
	pthread_mutex_unlock(&x->lock);
}

static void ash_engine_close(struct load_engine *e)
{
	struct engine *x = e->priv;
	struct ash_client_stats s;

	if (!ash_client_stats(x->cluster, &s) && (s.retries || s.checksum_errors))
		fprintf(stderr,
			"ashlar-load: retries=%llu stale=%llu reconnects=%llu checksum_errors=%llu "
			"held=%llu\n",
			(unsigned long long)s.retries, (unsigned long long)s.stale,
			(unsigned long long)s.reconnects, (unsigned long long)s.checksum_errors,
			(unsigned long long)s.held_overlaps);
	ash_close(x->volume);
	ash_disconnect(x->cluster);
	free(x->op);
	free(x);
}

const struct load_engine load_engine_ashlar = {.name = "volume",
					       .open = ash_engine_open,
					       .submit = ash_engine_submit,
					       .run = ash_engine_run,
					       .finish = ash_engine_finish,
					       .close = ash_engine_close};
