// SPDX-License-Identifier: MIT
/*
 * The public face: hands I/Os from any thread to the reactor's. Submissions are pushed on a
 * lock-free stack; whoever finds no wake-up on its way sends one, so a busy reactor is woken once
 * per batch.
 */
#include "sdc/lib/ashlar.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "sdc/lib/client.h"

/* In ash_aio.opaque. */
struct aio_priv {
	struct sdc_io io;
	struct ash_volume *volume;
	struct ash_aio *aio, *next;
};
_Static_assert(sizeof(struct aio_priv) <= sizeof(((struct ash_aio *)0)->opaque), "fits the aio");

struct ash_cluster {
	struct sdc_client client;
	struct sdc_client_opts opts;
	char *mdms;
	pthread_t thread;
	_Atomic(struct ash_aio *) submitted;
	atomic_bool waking; /* the task is on its way */
	struct ash_task wake;
	/* start */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool started;
	struct ash_error start_error;
};

struct ash_volume {
	struct ash_cluster *cluster;
	struct sdc_vol *vol;
	/* a copy for other threads */
	pthread_mutex_t lock;
	struct ash_volume_info info;
	void (*changed)(void *arg);
	void *changed_arg;
};

static struct aio_priv *aio_priv(struct ash_aio *aio)
{
	return (struct aio_priv *)(void *)aio->opaque;
}

static bool on_own_thread(const struct ash_cluster *cluster)
{
	return pthread_equal(pthread_self(), cluster->thread);
}

static void put_message(char *message, const char *text)
{
	if (message)
		snprintf(message, ASH_MESSAGE_BYTES, "%s", text);
}

/* ------------------------------------------------------------ work on the reactor's thread */

/* A call that waits until the reactor has done it. */
struct job {
	struct ash_task task;
	void (*fn)(struct job *job);
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool over;
	int result;
	struct ash_cluster *cluster;
	struct ash_volume *volume;
	const char *name;
	unsigned flags;
	uint32_t timeout_ms;
	char message[ASH_MESSAGE_BYTES];
	uint64_t offset, bytes;
	struct ash_extent *extents;
	size_t count;
	struct sdc_stats stats;
	void (*changed)(void *arg);
	void *arg;
};

static void job_over(struct job *job, int result)
{
	pthread_mutex_lock(&job->lock);
	job->result = result;
	job->over = true;
	pthread_cond_signal(&job->cond);
	pthread_mutex_unlock(&job->lock);
}

static void job_task(struct ash_task *task)
{
	struct job *job = ash_container_of(task, struct job, task);

	job->fn(job);
}

static int job_run(struct ash_cluster *cluster, struct job *job, void (*fn)(struct job *job))
{
	if (on_own_thread(cluster))
		return -EDEADLK;
	job->task.fn = job_task;
	job->fn = fn;
	job->cluster = cluster;
	pthread_mutex_init(&job->lock, NULL);
	pthread_cond_init(&job->cond, NULL);
	ash_reactor_send(cluster->client.reactor, &job->task);
	pthread_mutex_lock(&job->lock);
	while (!job->over)
		pthread_cond_wait(&job->cond, &job->lock);
	pthread_mutex_unlock(&job->lock);
	pthread_mutex_destroy(&job->lock);
	pthread_cond_destroy(&job->cond);
	return job->result;
}

/* ------------------------------------------------------------ the thread */

static void on_wake(struct ash_task *task);
static void take_submitted(struct ash_cluster *c);

static void *thread_main(void *arg)
{
	struct ash_cluster *c = arg;
	struct ash_error err = sdc_client_init(&c->client, &c->opts);

	pthread_mutex_lock(&c->lock);
	c->start_error = err;
	c->started = true;
	pthread_cond_signal(&c->cond);
	pthread_mutex_unlock(&c->lock);
	if (!ash_failed(&err))
		ash_reactor_run(c->client.reactor);
	sdc_client_done(&c->client);
	return NULL;
}

static int error_of(const struct ash_error *err)
{
	switch (err->code) {
	case ASH_E_NOT_FOUND:
		return -ENOENT;
	case ASH_E_UNREACHABLE:
		return -EHOSTUNREACH;
	case ASH_E_INVALID:
	case ASH_E_USAGE:
		return -EINVAL;
	default:
		return -EIO;
	}
}

static void cluster_free(struct ash_cluster *c)
{
	pthread_mutex_destroy(&c->lock);
	pthread_cond_destroy(&c->cond);
	free(c->mdms);
	free(c);
}

/* Signals are for the program's threads. */
static int start_thread(struct ash_cluster *c)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&c->thread, NULL, thread_main, c);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -err;
}

int ash_connect(const struct ash_connect_opts *opts, struct ash_cluster **ret_cluster,
		char *message)
{
	static const struct ash_connect_opts none;
	struct ash_cluster *c = ash_xcalloc(1, sizeof(*c));
	struct ash_error err;
	int result;

	opts = opts ? opts : &none;
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->cond, NULL);
	c->mdms = opts->mdms ? ash_xstrdup(opts->mdms) : NULL;
	c->opts = (struct sdc_client_opts){.mdms = c->mdms,
					   .io_timeout_ms = opts->io_timeout_ms,
					   .requests = opts->requests,
					   .spin_us = opts->spin_us};
	c->wake.fn = on_wake;
	err = sdc_identity_find(opts->guid, opts->sdc_name, opts->state_dir, c->mdms, &c->opts.id);
	if (!ash_failed(&err)) {
		result = start_thread(c);
		if (result) {
			put_message(message, "cannot start a thread");
			cluster_free(c);
			return result;
		}
		pthread_mutex_lock(&c->lock);
		while (!c->started)
			pthread_cond_wait(&c->cond, &c->lock);
		pthread_mutex_unlock(&c->lock);
		err = c->start_error;
		if (ash_failed(&err))
			pthread_join(c->thread, NULL);
	}
	if (ash_failed(&err)) {
		put_message(message, err.message);
		cluster_free(c);
		return error_of(&err);
	}
	*ret_cluster = c;
	return 0;
}

static void job_stop(struct job *job)
{
	sdc_client_stop(&job->cluster->client);
	job_over(job, 0);
}

void ash_disconnect(struct ash_cluster *cluster)
{
	struct job job = {0};

	if (!cluster || job_run(cluster, &job, job_stop))
		return;
	pthread_join(cluster->thread, NULL);
	cluster_free(cluster);
}

/* ------------------------------------------------------------ volumes */

static void refresh_info(struct ash_volume *v)
{
	struct sdc_vol_info i;

	sdc_vol_info(v->vol, &i);
	pthread_mutex_lock(&v->lock);
	v->info = (struct ash_volume_info){.size_bytes = i.size_bytes,
					   .read_only = i.read_only,
					   .needs_flush = i.needs_flush,
					   .dead = i.dead};
	pthread_mutex_unlock(&v->lock);
}

static void on_changed(void *arg)
{
	struct ash_volume *v = arg;

	refresh_info(v);
	if (v->changed)
		v->changed(v->changed_arg);
}

static void on_open(void *arg, int result, struct sdc_vol *vol, const char *message)
{
	struct job *job = arg;

	put_message(job->message, message ? message : (result ? strerror(-result) : ""));
	if (!result) {
		job->volume->vol = vol;
		sdc_vol_watch(vol, on_changed, job->volume);
		refresh_info(job->volume);
	}
	job_over(job, result);
}

static void job_open(struct job *job)
{
	sdc_open(job->cluster->client.sdc, job->name, job->flags & ASH_READ_ONLY, job->timeout_ms,
		 on_open, job);
}

int ash_open(struct ash_cluster *cluster, const char *volume, unsigned flags, uint32_t timeout_ms,
	     struct ash_volume **ret_volume, char *message)
{
	struct job job = {.name = volume, .flags = flags, .timeout_ms = timeout_ms};
	int result;

	if (strlen(volume) > 63) {
		put_message(message, "a volume's name has at most 63 characters");
		return -EINVAL;
	}
	job.volume = ash_xcalloc(1, sizeof(*job.volume));
	job.volume->cluster = cluster;
	pthread_mutex_init(&job.volume->lock, NULL);
	result = job_run(cluster, &job, job_open);
	if (!result) {
		*ret_volume = job.volume;
		return 0;
	}
	put_message(message, job.message);
	pthread_mutex_destroy(&job.volume->lock);
	free(job.volume);
	return result;
}

static void on_closed(void *arg)
{
	job_over(arg, 0);
}

static void job_close(struct job *job)
{
	/* Everything submitted before belongs before the close. */
	take_submitted(job->cluster);
	sdc_close(job->volume->vol, on_closed, job);
}

int ash_close(struct ash_volume *volume)
{
	struct job job = {.volume = volume};
	int result;

	if (!volume)
		return 0;
	result = job_run(volume->cluster, &job, job_close);
	if (result)
		return result;
	pthread_mutex_destroy(&volume->lock);
	free(volume);
	return 0;
}

void ash_volume_info(struct ash_volume *volume, struct ash_volume_info *ret_info)
{
	pthread_mutex_lock(&volume->lock);
	*ret_info = volume->info;
	pthread_mutex_unlock(&volume->lock);
}

static void job_watch(struct job *job)
{
	job->volume->changed = job->changed;
	job->volume->changed_arg = job->arg;
	job_over(job, 0);
}

int ash_volume_watch(struct ash_volume *volume, void (*changed)(void *arg), void *arg)
{
	struct job job = {.volume = volume, .changed = changed, .arg = arg};

	return job_run(volume->cluster, &job, job_watch);
}

/* ------------------------------------------------------------ I/O */

static void aio_done(struct sdc_io *io, int status)
{
	struct aio_priv *p = ash_container_of(io, struct aio_priv, io);

	/* Whoever is told that the volume has failed must not read that it lives. */
	if (status == -ESHUTDOWN || status == -EIO)
		refresh_info(p->volume);
	p->aio->done(p->aio, status);
}

static void aio_start(struct ash_aio *aio)
{
	struct aio_priv *p = aio_priv(aio);

	p->io.kind = aio->kind;
	p->io.fua = aio->flags & ASH_FUA;
	p->io.no_unmap = aio->flags & ASH_NO_UNMAP;
	p->io.offset = aio->offset;
	p->io.bytes = aio->bytes;
	p->io.iov = aio->iov;
	p->io.iovcnt = aio->iovcnt;
	p->io.done = aio_done;
	sdc_submit(p->volume->vol, &p->io);
}

static void take_submitted(struct ash_cluster *c)
{
	struct ash_aio *aio = atomic_exchange(&c->submitted, NULL), *in_order = NULL, *next;

	for (; aio; aio = next) {
		next = aio_priv(aio)->next;
		aio_priv(aio)->next = in_order;
		in_order = aio;
	}
	for (; in_order; in_order = next) {
		next = aio_priv(in_order)->next;
		aio_start(in_order);
	}
}

static void on_wake(struct ash_task *task)
{
	struct ash_cluster *c = ash_container_of(task, struct ash_cluster, wake);

	/* First: what is pushed from here on brings a task of its own. */
	atomic_store(&c->waking, false);
	take_submitted(c);
}

void ash_aio_submit(struct ash_volume *volume, struct ash_aio *aio)
{
	struct ash_cluster *c = volume->cluster;
	struct aio_priv *p = aio_priv(aio);
	struct ash_aio *head;

	p->volume = volume;
	p->aio = aio;
	if (on_own_thread(c)) {
		aio_start(aio);
		return;
	}
	head = atomic_load(&c->submitted);
	do {
		p->next = head;
	} while (!atomic_compare_exchange_weak(&c->submitted, &head, aio));
	if (!atomic_exchange(&c->waking, true))
		ash_reactor_send(c->client.reactor, &c->wake);
}

struct waiter {
	struct ash_aio aio;
	struct iovec iov;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool over;
	int status;
};

static void waiter_done(struct ash_aio *aio, int status)
{
	struct waiter *w = ash_container_of(aio, struct waiter, aio);

	pthread_mutex_lock(&w->lock);
	w->status = status;
	w->over = true;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static int wait_for(struct ash_volume *volume, uint8_t kind, void *data, uint64_t bytes,
		    uint64_t offset, unsigned flags)
{
	struct waiter w = {.aio = {.kind = kind,
				   .flags = flags,
				   .offset = offset,
				   .bytes = bytes,
				   .iovcnt = data ? 1 : 0,
				   .done = waiter_done},
			   .iov = {data, bytes}};

	if (on_own_thread(volume->cluster))
		return -EDEADLK;
	w.aio.iov = &w.iov;
	pthread_mutex_init(&w.lock, NULL);
	pthread_cond_init(&w.cond, NULL);
	ash_aio_submit(volume, &w.aio);
	pthread_mutex_lock(&w.lock);
	while (!w.over)
		pthread_cond_wait(&w.cond, &w.lock);
	pthread_mutex_unlock(&w.lock);
	pthread_mutex_destroy(&w.lock);
	pthread_cond_destroy(&w.cond);
	return w.status;
}

int ash_pread(struct ash_volume *volume, void *data, size_t bytes, uint64_t offset)
{
	return wait_for(volume, ASH_AIO_READ, data, bytes, offset, 0);
}

int ash_pwrite(struct ash_volume *volume, const void *data, size_t bytes, uint64_t offset,
	       unsigned flags)
{
	return wait_for(volume, ASH_AIO_WRITE, (void *)data, bytes, offset, flags);
}

int ash_flush(struct ash_volume *volume)
{
	return wait_for(volume, ASH_AIO_FLUSH, NULL, 0, 0, 0);
}

int ash_discard(struct ash_volume *volume, uint64_t offset, uint64_t bytes)
{
	return wait_for(volume, ASH_AIO_DISCARD, NULL, bytes, offset, 0);
}

int ash_write_zeroes(struct ash_volume *volume, uint64_t offset, uint64_t bytes, unsigned flags)
{
	return wait_for(volume, ASH_AIO_WRITE_ZEROES, NULL, bytes, offset, flags);
}

static void on_status(void *arg, int status, const struct sdc_extent *ext, unsigned n)
{
	struct job *job = arg;

	if (!status) {
		job->extents = ash_xcalloc(n ? n : 1, sizeof(*job->extents));
		job->count = n;
		for (unsigned i = 0; i < n; i++)
			job->extents[i] = (struct ash_extent){ext[i].bytes, ext[i].data};
	}
	job_over(job, status);
}

static void job_status(struct job *job)
{
	sdc_block_status(job->volume->vol, job->offset, job->bytes, on_status, job);
}

int ash_block_status(struct ash_volume *volume, uint64_t offset, uint64_t bytes,
		     struct ash_extent **ret_extents, size_t *ret_count)
{
	struct job job = {.volume = volume, .offset = offset, .bytes = bytes};
	int result = job_run(volume->cluster, &job, job_status);

	if (result)
		return result;
	*ret_extents = job.extents;
	*ret_count = job.count;
	return 0;
}

static void job_stats(struct job *job)
{
	sdc_stats(job->cluster->client.sdc, &job->stats);
	job_over(job, 0);
}

int ash_client_stats(struct ash_cluster *cluster, struct ash_client_stats *ret_stats)
{
	struct job job = {0};
	int result = job_run(cluster, &job, job_stats);
	const struct sdc_stats *s = &job.stats;

	if (result)
		return result;
	*ret_stats = (struct ash_client_stats){.reads = s->reads,
					       .writes = s->writes,
					       .read_bytes = s->read_bytes,
					       .write_bytes = s->write_bytes,
					       .flushes = s->flushes,
					       .discards = s->discards,
					       .retries = s->retries,
					       .stale = s->stale,
					       .reconnects = s->reconnects,
					       .checksum_errors = s->checksum_errors,
					       .held_overlaps = s->held_overlaps,
					       .queued = s->queued};
	return 0;
}
