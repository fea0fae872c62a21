/* SPDX-License-Identifier: MIT */
/*
 * A simulated host and the processes on it.
 *
 * A process is what a reactor is in a daemon: it hears of the world in turns. What happens to it
 * (a message, the end of a disk operation, an answer of the MDM) is an item in its inbox; a turn
 * takes what is there, runs timers and posted tasks, then the core's own turn, then lets the
 * network send. A paused process keeps its inbox until it goes on; a killed one loses it.
 */
#ifndef ASHLAR_TESTS_SIM_PROC_H
#define ASHLAR_TESTS_SIM_PROC_H

#include "common/port/port.h"
#include "tests/sim/world.h"

struct sim_net;
struct sim_conn;
struct sim_handle;
struct sim_opener;

/**
 * struct sim_item - something a process hears of.
 * @run:  in the process's turn. @drop: instead of run, when the process died. Either frees.
 */
struct sim_item {
	struct sim_item *next;
	void (*run)(struct sim_item *item);
	void (*drop)(struct sim_item *item);
};

/**
 * struct sim_host - a machine: address, clock, power.
 * The clock is CLOCK_BOOTTIME-like: starts near zero at each boot; @drift_ppm makes it run fast or
 * slow against the world's.
 */
struct sim_host {
	struct sim_world *w;
	char name[32];
	uint32_t index; /* last part of its address */
	bool powered;
	uint64_t booted_at;
	int64_t drift_ppm;
	uint64_t boots;
};

struct sim_proc {
	struct ash_port port; /* first: the core sees it */
	struct sim_world *w;
	struct sim_host *host;
	struct ash_timers timers;
	char name[32];
	uint64_t serial; /* unique among all processes ever started */
	bool alive, paused, in_turn;
	struct sim_item *inbox, **inbox_end;
	struct ash_task *posts, **posts_end;
	struct sim_event turn_event, wake_event, resume_event;
	uint64_t busy_until;
	uint64_t turns;
	void (*on_turn)(void *owner); /* may be NULL */
	void *owner;
	/* of the network */
	struct sim_net *net;
	struct sim_conn *conns;
	uint32_t msgs_out, msgs_max;
	void *msg_pool;
	/* of the disks */
	struct sim_handle *handles;
	struct sim_opener *openers;
};

uint64_t sim_host_clock(const struct sim_host *host);
void sim_host_boot(struct sim_host *host);

/* Starts with an empty inbox; @buffer_bytes of data buffers (0 = none, no port->bufs). */
struct sim_proc *sim_proc_new(struct sim_host *host, const char *name, size_t buffer_bytes);
/* The core must be freed and the backends detached before. */
void sim_proc_free(struct sim_proc *p);
/* Drops everything it was about to hear. After that it is never run again. */
void sim_proc_kill(struct sim_proc *p);

void sim_proc_push(struct sim_proc *p, struct sim_item *item);
/* Something changed from outside of a turn (set-up): makes a turn happen. */
void sim_proc_kick(struct sim_proc *p);
void sim_proc_pause(struct sim_proc *p, uint64_t for_ns);

#endif
