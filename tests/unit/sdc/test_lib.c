// SPDX-License-Identifier: MIT
/* libashlar and `ashlar nbd` over real sockets, against a toy system. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <libnbd.h>

#include "common/base/list.h"
#include "common/base/prng.h"
#include "sdc/lib/ashlar.h"
#include "sdc/lib/client.h"
#include "sdc/nbd/nbd.h"
#include "tests/unit/sdc/await.h"
#include "tests/unit/sdc/toy.h"

#define SIZE (64u << 20)

static struct toy *toy;
static char mdms[32];
static struct ash_cluster *cluster;
static struct ash_volume *volume;

static struct ash_cluster *connect_to(void)
{
	struct ash_connect_opts opts = {.mdms = mdms, .guid = TOY_GUID};
	struct ash_cluster *c = NULL;
	char why[ASH_MESSAGE_BYTES] = "";

	if (ash_connect(&opts, &c, why))
		fail_msg("%s", why);
	return c;
}

static struct ash_volume *open_v1(struct ash_cluster *c)
{
	struct ash_volume *v = NULL;
	char why[ASH_MESSAGE_BYTES] = "";

	if (ash_open(c, "v1", 0, 20000, &v, why))
		fail_msg("%s", why);
	return v;
}

static int setup(void **state)
{
	toy = toy_new(SIZE, mdms);
	cluster = connect_to();
	volume = open_v1(cluster);
	return 0;
}

static int teardown(void **state)
{
	if (volume)
		assert_int_equal(ash_close(volume), 0);
	ash_disconnect(cluster);
	toy_free(toy);
	volume = NULL;
	cluster = NULL;
	return 0;
}

static void fill(uint8_t *p, size_t n, uint64_t seed)
{
	struct ash_prng r;

	ash_prng_seed(&r, seed);
	for (size_t i = 0; i + 8 <= n; i += 8)
		memcpy(p + i, (uint64_t[]){ash_prng_next(&r)}, 8);
}

static void test_waiting_calls(void **state)
{
	uint8_t *a = malloc(8 << 20), *b = malloc(8 << 20);
	struct ash_volume_info info;
	struct ash_extent *ext;
	size_t n;

	ash_volume_info(volume, &info);
	assert_int_equal(info.size_bytes, SIZE);
	assert_true(info.needs_flush);
	fill(a, 8 << 20, 1);
	assert_int_equal(ash_pwrite(volume, a, 8 << 20, 512, 0), 0);
	assert_int_equal(ash_flush(volume), 0);
	assert_int_equal(ash_pread(volume, b, 8 << 20, 512), 0);
	assert_memory_equal(a, b, 8 << 20);
	assert_int_equal(ash_discard(volume, 0, 1 << 20), 0);
	assert_int_equal(ash_write_zeroes(volume, 1 << 20, 4096, ASH_NO_UNMAP), 0);
	assert_int_equal(ash_pread(volume, b, 1 << 20, 4096), 0);
	for (int i = 0; i < 1 << 20; i++)
		assert_int_equal(b[i], 0);
	assert_int_equal(ash_block_status(volume, 0, SIZE, &ext, &n), 0);
	assert_int_equal(n, 3);
	assert_int_equal(ext[0].bytes, (1 << 20) + 4096);
	assert_false(ext[0].data);
	assert_true(ext[1].data);
	free(ext);
	assert_int_equal(ash_pread(volume, b, 512, SIZE), -EINVAL);
	free(a);
	free(b);
}

static void test_unknown_volume(void **state)
{
	struct ash_volume *v;
	char why[ASH_MESSAGE_BYTES];

	assert_int_equal(ash_open(cluster, "v2", 0, 5000, &v, why), -ENOENT);
	assert_string_equal(why, "no such volume");
}

/* Several threads, each with many I/Os in flight on its own part. */
#define THREADS 4
#define DEPTH 16
#define ROUNDS 300

struct slot {
	struct ash_aio aio;
	struct iovec iov;
	struct worker *worker;
	uint8_t *data;
	uint64_t seed;
	unsigned rounds;
	bool reading;
};

struct worker {
	pthread_t thread;
	unsigned index;
	struct slot slot[DEPTH];
	pthread_mutex_t lock;
	pthread_cond_t cond;
	unsigned over, bad;
};

static void slot_next(struct slot *s);

static void slot_done(struct ash_aio *aio, int status)
{
	struct slot *s = ash_container_of(aio, struct slot, aio);
	struct worker *w = s->worker;
	uint8_t want[65536];

	w->bad += status != 0;
	if (s->reading) {
		fill(want, aio->bytes, s->seed);
		w->bad += memcmp(want, s->data, aio->bytes & ~7ull) != 0;
	}
	s->reading = !s->reading;
	if (--s->rounds) {
		slot_next(s); /* from the library's thread */
		return;
	}
	pthread_mutex_lock(&w->lock);
	w->over++;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static void slot_next(struct slot *s)
{
	unsigned i = (unsigned)(s - s->worker->slot);

	if (!s->reading) {
		s->seed++;
		s->aio.bytes = 512 * (1 + s->seed * 7919 % 128);
		fill(s->data, s->aio.bytes, s->seed);
	} else {
		memset(s->data, 0, s->aio.bytes);
	}
	s->iov = (struct iovec){s->data, s->aio.bytes};
	s->aio.kind = s->reading ? ASH_AIO_READ : ASH_AIO_WRITE;
	s->aio.offset = ((uint64_t)s->worker->index * DEPTH + i) * (128 << 10);
	s->aio.iov = &s->iov;
	s->aio.iovcnt = 1;
	s->aio.done = slot_done;
	ash_aio_submit(volume, &s->aio);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;

	for (int i = 0; i < DEPTH; i++) {
		w->slot[i].worker = w;
		w->slot[i].rounds = ROUNDS;
		w->slot[i].seed = (uint64_t)w->index << 32 | (uint64_t)i << 16;
		w->slot[i].data = aligned_alloc(4096, 65536);
		slot_next(&w->slot[i]);
	}
	pthread_mutex_lock(&w->lock);
	while (w->over < DEPTH)
		pthread_cond_wait(&w->cond, &w->lock);
	pthread_mutex_unlock(&w->lock);
	for (int i = 0; i < DEPTH; i++)
		free(w->slot[i].data);
	return NULL;
}

static void run_workers(void)
{
	static struct worker w[THREADS];

	memset(w, 0, sizeof(w));
	for (unsigned i = 0; i < THREADS; i++) {
		w[i].index = i;
		pthread_mutex_init(&w[i].lock, NULL);
		pthread_cond_init(&w[i].cond, NULL);
		pthread_create(&w[i].thread, NULL, worker_main, &w[i]);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(w[i].thread, NULL);
		assert_int_equal(w[i].bad, 0);
	}
}

static void test_many_threads_at_once(void **state)
{
	run_workers();
}

static void test_an_unreliable_server_is_not_noticed(void **state)
{
	struct ash_client_stats s;

	toy_trouble(toy, 20, 100, 50, 0);
	run_workers();
	toy_trouble(toy, 0, 0, 0, 0);
	assert_int_equal(ash_client_stats(cluster, &s), 0);
	assert_true(s.retries > 0 && s.reconnects > 0 && s.checksum_errors > 0);
}

static void test_a_second_client_takes_the_volume(void **state)
{
	struct ash_cluster *c = connect_to();
	struct ash_volume *v = open_v1(c);
	struct ash_volume_info info;
	uint8_t b[512] = {1};

	assert_int_equal(ash_pwrite(v, b, 512, 0, 0), 0);
	assert_int_equal(ash_pwrite(volume, b, 512, 0, 0), -ESHUTDOWN);
	ash_volume_info(volume, &info);
	assert_true(info.dead);
	ash_close(v);
	ash_disconnect(c);
}

static int deadlocks;
static sem_t was_inside;

static void calls_from_inside(struct ash_aio *aio, int status)
{
	uint8_t b[512];

	deadlocks += ash_flush(volume) == -EDEADLK;
	deadlocks += ash_pread(volume, b, 512, 0) == -EDEADLK;
	deadlocks += ash_close(volume) == -EDEADLK;
	sem_post(&was_inside);
}

static void test_waiting_inside_a_callback_is_refused(void **state)
{
	struct ash_aio aio = {.kind = ASH_AIO_FLUSH, .done = calls_from_inside};

	sem_init(&was_inside, 0, 0);
	ash_aio_submit(volume, &aio);
	await(&was_inside, "a flush does not end");
	sem_destroy(&was_inside);
	assert_int_equal(deadlocks, 3);
}

/* ------------------------------------------------------------ the NBD program */

struct program {
	pid_t pid;
	char path[64];
	FILE *log;
	pthread_t reader;
	bool ready; /* it says that it listens */
	sem_t told; /* that, or it has ended */
};

/* Passes on what the program says, to its end: it must not be held up by a full pipe. */
static void *read_log(void *arg)
{
	struct program *p = arg;
	char line[2100];

	while (fgets(line, sizeof(line), p->log)) {
		fputs(line, stderr);
		if (p->ready || !strstr(line, "event=nbd_ready"))
			continue;
		p->ready = true;
		sem_post(&p->told);
	}
	if (!p->ready)
		sem_post(&p->told);
	return NULL;
}

static void start_nbd(struct program *p)
{
	const char *volumes[] = {"v1"};
	struct ash_nbd_opts opts = {.volumes = volumes,
				    .volume_count = 1,
				    .socket_path = p->path,
				    .mdms = mdms,
				    .guid = TOY_GUID};
	int fd[2];

	snprintf(p->path, sizeof(p->path), "/tmp/ashlar-test-%d.sock", (int)getpid());
	assert_int_equal(pipe(fd), 0);
	p->pid = fork();
	if (p->pid == 0) {
		dup2(fd[1], STDERR_FILENO);
		close(fd[0]);
		close(fd[1]);
		_exit(ash_nbd_main(&opts));
	}
	close(fd[1]);
	p->log = fdopen(fd[0], "r");
	sem_init(&p->told, 0, 0);
	assert_int_equal(pthread_create(&p->reader, NULL, read_log, p), 0);
	await(&p->told, "the NBD server does not come up");
	assert_true(p->ready);
}

/* Return: its exit status. */
static int end_nbd(struct program *p)
{
	int status = -1;

	kill(p->pid, SIGTERM);
	assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
	pthread_join(p->reader, NULL);
	fclose(p->log);
	sem_destroy(&p->told);
	return status;
}

static void test_nbd_program_serves_until_it_is_told_to_end(void **state)
{
	uint8_t *a = malloc(1 << 20), *b = malloc(1 << 20);
	struct nbd_handle *h = nbd_create();
	static struct program p; /* of its reader too, should the test fail */
	int status;

	start_nbd(&p);
	nbd_set_export_name(h, "v1");
	assert_int_equal(nbd_connect_unix(h, p.path), 0);
	toy_trouble(toy, 20, 100, 50, 0);
	for (unsigned i = 0; i < 200; i++) {
		fill(a, 1 << 20, i);
		assert_int_equal(nbd_pwrite(h, a, 1 << 20, (uint64_t)i % 60 << 20, 0), 0);
		assert_int_equal(nbd_pread(h, b, 1 << 20, (uint64_t)i % 60 << 20, 0), 0);
		assert_memory_equal(a, b, 1 << 20);
	}
	assert_int_equal(nbd_flush(h, 0), 0);
	nbd_shutdown(h, 0);
	nbd_close(h);
	status = end_nbd(&p);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_int_equal(access(p.path, F_OK), -1);
	free(a);
	free(b);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* On a host that never had anything of Ashlar's the folders above are missing too. */
static void test_a_host_gets_its_guid_once(void **state)
{
	char top[64], dir[96], mid[80], path[112];
	struct sdc_identity first, again;
	struct ash_error err;

	unsetenv("ASHLAR_SDC_GUID");
	unsetenv("ASHLAR_SDC_NAME");
	snprintf(top, sizeof(top), "/tmp/ashlar-guid-%d", (int)getpid());
	snprintf(mid, sizeof(mid), "%s/ashlar", top);
	snprintf(dir, sizeof(dir), "%s/sdc", mid);
	snprintf(path, sizeof(path), "%s/guid", dir);
	err = sdc_identity_find(NULL, NULL, dir, NULL, &first);
	assert_string_equal(ash_failed(&err) ? err.message : "", "");
	err = sdc_identity_find(NULL, NULL, dir, NULL, &again);
	assert_string_equal(ash_failed(&err) ? err.message : "", "");
	assert_memory_equal(first.guid, again.guid, 16);
	assert_int_equal(unlink(path) | rmdir(dir) | rmdir(mid) | rmdir(top), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_waiting_calls),
		T(test_unknown_volume),
		T(test_many_threads_at_once),
		T(test_an_unreliable_server_is_not_noticed),
		T(test_a_second_client_takes_the_volume),
		T(test_waiting_inside_a_callback_is_refused),
		T(test_nbd_program_serves_until_it_is_told_to_end),
		cmocka_unit_test(test_a_host_gets_its_guid_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
