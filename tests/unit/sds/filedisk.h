/* SPDX-License-Identifier: MIT */
/*
 * A store on a real file for tools of the tests: one thread, plain preadv and pwritev performed in
 * filedisk_turn(), no ring. Everything waits synchronously.
 */
#ifndef ASHLAR_TESTS_FILEDISK_H
#define ASHLAR_TESTS_FILEDISK_H

#include "common/base/prng.h"
#include "common/port/disk.h"
#include "common/port/port.h"
#include "sds/core/store.h"

struct filedisk {
	struct ash_port port; /* first */
	struct ash_timers timers;
	struct ash_task *tasks, **tasks_end;
	struct ash_disk disk;
	struct ash_disk_op *queue, **queue_end;
	int fd;
	struct ash_prng rng;
	struct sds_store *store;
	bool flag;
	int result;
	uint64_t disk_ops, disk_flushes;
};

/* Opens (or creates and sizes, if @bytes) the file. Return 0 or -errno. */
int filedisk_init(struct filedisk *f, const char *path, uint64_t bytes, bool write_back);
void filedisk_done(struct filedisk *f);
/* What was queued is performed, timers and tasks run. */
void filedisk_turn(struct filedisk *f);
/* For a store's done(arg, result); then filedisk_wait() returns that result. */
void filedisk_on_result(void *arg, int result);
int filedisk_wait(struct filedisk *f);
/* sds_store_open() to its end; the store is f->store. */
int filedisk_open_store(struct filedisk *f);
/* A crash: what the store had under way is never heard of again. */
void filedisk_forget(struct filedisk *f);
uint64_t filedisk_clock_ns(struct ash_port *port);

#endif
