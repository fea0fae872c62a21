/* SPDX-License-Identifier: MIT */
/*
 * Inside the reactor. One turn: control sockets (libev), completions of the ring, messages that had
 * to wait, tasks, timers, the owner's on_turn; then everything that was asked for meanwhile goes to
 * the kernel in one call: disks first, then receives, then one send per connection.
 *
 * Cores only ever append to lists here. Submission queue entries are written in the last step, by
 * the thread that runs the reactor.
 */
#ifndef ASHLAR_COMMON_IO_REACTOR_INT_H
#define ASHLAR_COMMON_IO_REACTOR_INT_H

#include <ev.h>
#include <liburing.h>
#include <sys/types.h>

#include "common/base/list.h"
#include "common/base/prng.h"
#include "common/base/timers.h"
#include "common/io/reactor.h"
#include "common/io/sock.h"

/* What an operation of the ring was: low bits of its user_data, beside a pointer. */
enum ring_tag {
	RING_NONE = 0, /* nobody waits for the result */
	RING_DISK = 1,
	RING_RECV = 2,
	RING_SEND = 3,
	RING_CONNECT = 4,
	RING_TAG_MASK = 7,
};

#define RING_FILES 4096
#define SLABS_MAX 8

struct ash_net_impl {
	struct ash_net n;
	struct ash_reactor *r;
};

/**
 * struct ash_reactor
 * @timers:  the core's (port.timers). @own: connect time-outs and the like.
 * @remote:  tasks from other threads, newest first.
 * @ev_hot_until_ns: control sockets had events lately, so they are looked at every turn.
 * @ending:  connections that end. @resume: those that may go on delivering. @rx, @tx: those that
 *           want to receive or send. @starved: those that wait for a message.
 * @disk_queue: operations to start. @inline_queue, @inline_done: those done by plain calls.
 * @inflight: operations that the kernel has.
 */
struct ash_reactor {
	struct ash_port port;
	struct ash_net_impl net;
	struct ash_timers timers, own;
	struct ash_prng rng;

	struct io_uring ring;
	bool ring_made, ring_on, ring_fd_registered;
	bool fixed_files, fixed_bufs;
	uint64_t file_used[RING_FILES / 64];
	struct iovec slab[SLABS_MAX];
	unsigned slabs;
	pid_t runner; /* thread that owns the ring */
	uint64_t inflight;

	struct ev_loop *loop;
	ev_io ring_io, timer_io;
	ev_async wake;
	int timer_fd;
	int ring_event_fd; /* the kernel says there that the ring has something, while we sleep */
	uint64_t armed_ns; /* what timer_fd is set to; 0 = not */
	unsigned ev_own;   /* events of the last libev round that were the reactor's */
	unsigned ev_user;  /* events of others */
	uint64_t ev_last_ns, ev_hot_until_ns;

	uint32_t spin_ns;
	uint64_t active_ns, no_spin_until_ns, penalty_ns;

	struct ash_task *posted, **posted_end;
	struct ash_task *remote;
	bool stop;

	struct ash_list conns, ending, resume, rx, tx, starved;
	struct ash_list listeners;
	struct ash_timer sweep, accept_again;
	struct ash_log_limit limit;
	struct ash_msg *msgs, *msg_free;
	uint32_t msg_count, msg_free_count;

	struct ash_list disks, closing;
	struct ash_disk_op *disk_queue, **disk_queue_end;
	struct ash_disk_op *inline_queue, **inline_queue_end;
	struct ash_disk_op *inline_done, **inline_done_end;

	void (*on_turn)(void *arg);
	void *on_turn_arg;
	struct ash_reactor_stats stats;
};

/* ring.c */
int ring_init(struct ash_reactor *r, uint32_t entries, struct ash_error *ret_err);
void ring_enable(struct ash_reactor *r);
void ring_done(struct ash_reactor *r);
/* An entry to fill in, or NULL when the kernel takes no more now: leave it for the next turn. */
struct io_uring_sqe *ring_sqe(struct ash_reactor *r);
/* Hands over what was written and lets the kernel post what is complete. */
void ring_submit(struct ash_reactor *r);
bool ring_has_work(struct ash_reactor *r);
/* Whether the kernel shall make ring_event_fd readable when something comes. */
void ring_alarm(struct ash_reactor *r, bool on);
/* Delivers completions; returns how many. */
unsigned ring_reap(struct ash_reactor *r);
/* Slot in the table of registered files, or -1 (then the plain descriptor is used). */
int ring_file_add(struct ash_reactor *r, int fd);
void ring_file_remove(struct ash_reactor *r, int slot);
static inline void ring_sqe_file(struct io_uring_sqe *sqe, int fd, int slot)
{
	if (slot >= 0) {
		sqe->fd = slot;
		sqe->flags |= IOSQE_FIXED_FILE;
	} else {
		sqe->fd = fd;
	}
}
static inline void ring_sqe_data(struct io_uring_sqe *sqe, void *p, enum ring_tag tag)
{
	sqe->user_data = (uint64_t)(uintptr_t)p | tag;
}

/* tcp.c, tcp_rx.c, tcp_tx.c */
int net_init(struct ash_reactor *r, uint32_t messages);
void net_done(struct ash_reactor *r);
bool net_has_work(const struct ash_reactor *r);
/* Messages of connections that had to wait. Returns how many connections went on. */
unsigned net_resume(struct ash_reactor *r);
void net_flush(struct ash_reactor *r);
/* Ends of connections: callbacks, so not in the middle of a flush. */
unsigned net_reap_ended(struct ash_reactor *r);
void net_on_recv(void *conn, int res, unsigned flags);
void net_on_send(void *conn, int res);
void net_on_connect(void *conn, int res);

/* disk_io.c */
void disk_init(struct ash_reactor *r);
bool disk_has_work(const struct ash_reactor *r);
/* Starts queued operations; those for plain calls are kept until disk_run_inline(). */
void disk_flush(struct ash_reactor *r);
void disk_run_inline(struct ash_reactor *r);
/* Ends of plain calls and closes. Returns how many callbacks ran. */
unsigned disk_reap(struct ash_reactor *r);
void disk_on_complete(struct ash_disk_op *op, int res);
void disk_forget_all(struct ash_reactor *r); /* at free */

#endif
