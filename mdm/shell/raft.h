/* SPDX-License-Identifier: MIT */
/*
 * The replicated log: the only place that knows libraft and libuv. Its loop runs inside the
 * caller's libev loop; all calls and callbacks are made in that loop's thread. Disk work of the log
 * is done by libuv's threads, so that heartbeats and elections never wait behind an fsync of
 * entries; only the vote (a few bytes, at elections) is written from the loop, as Raft demands that
 * it is durable before it is given.
 */
#ifndef ASHLAR_MDM_SHELL_RAFT_H
#define ASHLAR_MDM_SHELL_RAFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

struct ev_loop;
struct mdm_raft;

#define MDM_RAFT_SEGMENT_BYTES (8u << 20)
/* To start: three segments of the log, and one more that snapshots may need meanwhile. */
#define MDM_RAFT_START_BYTES (4ull * MDM_RAFT_SEGMENT_BYTES)
/* Below that a running MDM steps back before its log meets the full disk. */
#define MDM_RAFT_LOW_BYTES (2ull * MDM_RAFT_SEGMENT_BYTES)

/**
 * struct mdm_raft_events - what the owner hears.
 * @apply: one committed command; never refused.
 * @snapshot: malloc'ed bytes. @restore: borrowed bytes; 0 or -errno.
 * @role: leads (true only once everything committed before was applied here), or not; @leader is
 *        the member that leads, 0 = unknown.
 * @fatal: the log cannot go on; the owner ends the process soon, so that another member leads.
 */
struct mdm_raft_events {
	void (*apply)(void *arg, const uint8_t *data, size_t bytes, uint64_t index);
	uint8_t *(*snapshot)(void *arg, size_t *ret_bytes);
	int (*restore)(void *arg, const uint8_t *data, size_t bytes);
	void (*role)(void *arg, bool leads, uint64_t leader);
	void (*fatal)(void *arg, const char *why);
};

struct mdm_raft_member {
	uint64_t id;
	const char *address; /* IPv4 numbers and port */
};

/**
 * mdm_raft_new() - opens the log in @dir and takes part from then on. Blocks while it reads.
 * @boot, @boots: members of the first configuration; ignored when the log exists already. 0: a log
 *                without one waits to be added by the leader.
 */
struct mdm_raft *mdm_raft_new(struct ev_loop *loop, const char *dir, uint64_t id,
			      const char *address, const struct mdm_raft_member *boot, size_t boots,
			      const struct mdm_raft_events *events, void *arg,
			      struct ash_error *ret_err);
/* Ends all; proposals under way end with -EIO first. Runs libuv until its handles are closed. */
void mdm_raft_free(struct mdm_raft *r);

/**
 * mdm_raft_propose() - append a command.
 * @done: once, from the loop, never from inside this call: 0 right after apply() of this command;
 *        -ENOTSUP not the leader; -EIO unknown whether it will be applied.
 */
void mdm_raft_propose(struct mdm_raft *r, const uint8_t *data, size_t bytes,
		      void (*done)(void *arg, int result), void *arg);

bool mdm_raft_leads(const struct mdm_raft *r);
uint64_t mdm_raft_leader(const struct mdm_raft *r); /* 0 = unknown */
uint64_t mdm_raft_applied(const struct mdm_raft *r);

/* What the leader knows of a member; false when it is none, or we do not lead. */
struct mdm_raft_peer {
	bool recent; /* heard within the election time-out */
	bool voter;
	uint64_t match;
};
bool mdm_raft_peer(const struct mdm_raft *r, uint64_t id, struct mdm_raft_peer *ret_peer);

/* Membership, leader only, one change at a time. @done once, later: code 0 or why not. */
typedef void (*mdm_raft_done)(void *arg, const struct ash_error *err);
/* Adds a member and makes it a voter once it has caught up. */
void mdm_raft_add(struct mdm_raft *r, uint64_t id, const char *address, mdm_raft_done done,
		  void *arg);
void mdm_raft_remove(struct mdm_raft *r, uint64_t id, mdm_raft_done done, void *arg);
/* Leadership to @id, which must have been heard recently. */
void mdm_raft_transfer(struct mdm_raft *r, uint64_t id, mdm_raft_done done, void *arg);

#endif
