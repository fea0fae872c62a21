/* SPDX-License-Identifier: MIT */
/*
 * How a core sees the world: clock, timers, disks, data connections, control channel.
 *
 * A core decides and does no I/O. Everything it may ask of the outside is in this folder, as
 * interfaces with two families of backends: common/io (io_uring, TCP, libev) in the daemons,
 * tests/sim (simulated clock, network and disks) in the simulator. One core instance belongs to one
 * thread (a reactor) and is never called from another.
 *
 * Rules for every asynchronous call here: it never fails by its return value, and its callback runs
 * exactly once, never before the call has returned.
 */
#ifndef ASHLAR_COMMON_PORT_PORT_H
#define ASHLAR_COMMON_PORT_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/timers.h"

struct ash_disk;
struct ash_net;
struct ash_bufs;

/**
 * struct ash_port - the world of one core instance.
 * @timers: the instance's timers. The core sets them; the shell runs them (ash_timers_run) and
 *          sleeps no longer than ash_timers_next.
 * @now_ns: monotonic clock (CLOCK_BOOTTIME), read fresh at each call; costs a vDSO call.
 * @turn_ns: clock value at the start of this turn of the loop; use it where a batch may share one.
 * @rand64: random bits (seeded in the simulator).
 * @trace:  one line for people, "event=... key=value ..."; level as in log.h. Rate limits are the
 *          caller's. The shell logs it, the simulator keeps it.
 * @bufs:   data buffers of this reactor.
 * @net:    data connections.
 * @post:   run fn(arg) from the loop, soon, never before this call returns. Bounded use only
 *          (no per-I/O allocation): the item is the caller's memory.
 */
struct ash_task {
	struct ash_task *next;
	void (*fn)(struct ash_task *task);
};

struct ash_port {
	struct ash_timers *timers;
	uint64_t turn_ns;
	struct ash_bufs *bufs;
	struct ash_net *net;
	void *shell;
	uint64_t (*now_ns)(struct ash_port *port);
	uint64_t (*rand64)(struct ash_port *port);
	void (*trace)(struct ash_port *port, int level, const char *line);
	void (*post)(struct ash_port *port, struct ash_task *task);
};

#endif
