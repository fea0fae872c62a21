/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the NBD server begin with: the server over memory, on a thread of its own, and
 * two kinds of clients, libnbd and bare sockets. Includes what a cmocka program needs.
 */
#ifndef ASHLAR_TESTS_UNIT_SDC_NBD_RIG_H
#define ASHLAR_TESTS_UNIT_SDC_NBD_RIG_H

#include <ev.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <libnbd.h>

#include "common/base/prng.h"
#include "sdc/nbd/nbd_proto.h"
#include "sdc/nbd/server.h"

#define SIZE (64u << 20)

struct pending;

struct world {
	struct ev_loop *loop;
	struct nbd_server *srv;
	struct nbd_export exp[3];
	ev_timer tick;
	ev_prepare prepare;
	ev_async command;
	void (*fn)(void *arg);
	void *arg;
	sem_t done;
	bool (*reached)(const struct nbd_server_stats *s, unsigned n);
	unsigned reached_n;
	struct nbd_server_stats at;
	sem_t event;
	pthread_t thread;
	struct ash_prng rng;
	struct pending *pending;
	unsigned count;
	bool hold;     /* nothing is completed */
	bool no_holes; /* a status tells of data only, whatever was written */
	int fail_with;
	uint8_t *mem, *written; /* per block */
	uint64_t flushes, fua;
	bool stopped;
};
extern struct world w;

int nbd_rig_setup(void **state);
/* Also: nothing is left at the backend. */
int nbd_rig_teardown(void **state);
#define RIG_TEST(name) cmocka_unit_test_setup_teardown(name, nbd_rig_setup, nbd_rig_teardown)

/* Starts the server's thread, again when it was stopped and joined. */
int nbd_rig_run(void);
/* Runs fn on the server's thread and waits. */
void on_server(void (*fn)(void *arg), void *arg);
/* For on_server(): */
void do_stop(void *arg); /* begins to stop the server; then set w.stopped */
void was_stopped(void *arg);
void get_stats(void *arg); /* struct nbd_server_stats * */

/* Waits until the server, looked at after each of its turns, is as @reached says; return: it then.
 */
struct nbd_server_stats await_server(bool (*reached)(const struct nbd_server_stats *s, unsigned n),
				     unsigned n, const char *what);
/* Until so many connections are left. */
struct nbd_server_stats settled(unsigned open);

void random_fill(uint8_t *p, size_t n, uint64_t seed);

/* libnbd, connected to the export. */
struct nbd_handle *client(const char *name, bool structured);

/* A bare socket to the server, which has said nothing yet. */
int raw_client(void);
/* A server that has had enough and closed is no error here. */
void put(int fd, const void *data, size_t n);
void get(int fd, void *data, size_t n);
/* Haggles until the export is served. */
void raw_go(int fd, const char *name);
void raw_request(int fd, uint16_t type, uint64_t cookie, uint64_t offset, uint32_t n);

#endif
