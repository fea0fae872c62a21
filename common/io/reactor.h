/* SPDX-License-Identifier: MIT */
/*
 * Real backends of common/port on one thread: one io_uring for data sockets and disks, whose ring
 * descriptor is watched by a libev loop that also carries control connections and timers.
 *
 * Everything ready is drained per turn: disk submissions first, then one send per connection.
 * Before it sleeps a busy reactor spins a little (see docs/performance.md), with a contention
 * guard; an idle one never spins.
 *
 * Context: the thread that calls ash_reactor_run(), but for what says "any thread".
 */
#ifndef ASHLAR_COMMON_IO_REACTOR_H
#define ASHLAR_COMMON_IO_REACTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/port/disk.h"
#include "common/port/net.h"
#include "common/port/port.h"

struct ev_loop;
struct ash_reactor;

struct ash_reactor_opts {
	size_t buffer_bytes;   /* 0 = 64 MiB */
	uint32_t messages;     /* pool of messages, 0 = 8192 */
	uint32_t spin_us;      /* before sleeping, 0 = never; 50 is a good value */
	uint32_t ring_entries; /* 0 = 1024 */
};

/* NULL and *ret_err on failure (io_uring forbidden, no memory: the message says what to change). */
struct ash_reactor *ash_reactor_new(const struct ash_reactor_opts *opts, struct ash_error *ret_err);
/* All connections and disks must be closed. */
void ash_reactor_free(struct ash_reactor *r);

struct ash_port *ash_reactor_port(struct ash_reactor *r); /* port->net, bufs, timers are set */
struct ev_loop *ash_reactor_loop(struct ash_reactor *r);

/* Called once per turn after completions, messages and timers were delivered. */
void ash_reactor_on_turn(struct ash_reactor *r, void (*fn)(void *arg), void *arg);

void ash_reactor_run(struct ash_reactor *r);  /* until stopped */
void ash_reactor_stop(struct ash_reactor *r); /* any thread, and signal-safe */
/* Any thread: run the task in the reactor. The task's memory is the caller's until it ran. */
void ash_reactor_send(struct ash_reactor *r, struct ash_task *task);

/* Accept data connections here; they arrive at port->net->on_accept. port 0 = any; *ret_port. */
int ash_reactor_listen(struct ash_reactor *r, const struct ash_endpoint *at, uint16_t *ret_port,
		       struct ash_error *ret_err);

/**
 * ash_reactor_disk_open() - open a block device (O_EXCL) or file (flock) with O_DIRECT, waiting at
 * most @lock_wait_ms for a previous holder.
 * Files are write-back; block devices as /sys/.../queue/write_cache says; @write_back overrides: -1
 * auto, 0, 1.
 * Return: 0; -EBUSY held; -errno. The message is for people.
 */
int ash_reactor_disk_open(struct ash_reactor *r, const char *path, uint32_t lock_wait_ms,
			  int write_back, struct ash_disk **ret_disk, struct ash_error *ret_err);

struct ash_reactor_stats {
	uint64_t turns, sleeps, spins, sqes, completions, messages_in, messages_out, bytes_in,
		bytes_out;
	uint64_t worst_turn_ns; /* since last asked */
	uint64_t last_turn_ns;	/* clock at the start of the last turn; any thread may read */
};
void ash_reactor_stats(struct ash_reactor *r, struct ash_reactor_stats *ret_stats);

/* "host:port", "[v6]:port" or "host" with a default port; resolves names (blocking: not in a loop).
 */
int ash_endpoint_parse(const char *text, uint16_t default_port, struct ash_endpoint *ret_ep,
		       struct ash_error *ret_err);
/* "127.0.0.1:7072"; @buf of at least 64 bytes. */
const char *ash_endpoint_text(const struct ash_endpoint *ep, char *buf, size_t bytes);
bool ash_endpoint_is_loopback(const struct ash_endpoint *ep);

#endif
