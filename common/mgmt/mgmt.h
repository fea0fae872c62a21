/* SPDX-License-Identifier: MIT */
/*
 * Client side of the control protocol: finds the leading MDM among the given addresses, says HELLO,
 * follows it, repeats what is safe to repeat. Used by SDS, libashlar and the CLI.
 */
#ifndef ASHLAR_COMMON_MGMT_MGMT_H
#define ASHLAR_COMMON_MGMT_MGMT_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/port/ctl.h"

struct ev_loop;
struct ash_mgmt;

struct ash_mgmt_opts {
	const char *mdms; /* "host:port,host:port"; NULL: $ASHLAR_MDM, else 127.0.0.1:6611 */
	const char *role; /* "sds", "sdc", "cli" */
	uint8_t uuid[16], session[16], system[16]; /* system: zeroes = any */
	char name[64];
};

/*
 * Asynchronous, on a loop. All addresses are asked at once, with back-off and jitter, until one
 * leads; while the leader owes an answer for long, the others are asked again. A call that no MDM
 * has got waits for the next leader; one whose MDM is lost ends with -ECONNRESET (it is unknown
 * whether it was carried out); one answered "not the leader" goes to the next leader by itself.
 * In on_session(up) the owner's calls are sent before those that waited. Addresses are resolved
 * here, blocking. NULL and *ret_err when none can be used.
 */
struct ash_mgmt *ash_mgmt_new(struct ev_loop *loop, const struct ash_mgmt_opts *opts,
			      struct ash_error *ret_err);
/* Calls without an answer are forgotten: their done() is not called. Not from inside a callback. */
void ash_mgmt_free(struct ash_mgmt *m);
/* The channel for a core; the caller sets events and owner before the loop turns. */
struct ash_ctl *ash_mgmt_ctl(struct ash_mgmt *m);
/* Adds an address learned from the map (numbers only); kept until exit. */
void ash_mgmt_learn(struct ash_mgmt *m, const char *address);

/**
 * ash_mgmt_call_sync() - one request, blocking, for the CLI and tools.
 * @timeout_ms: for everything, finding the leader included.
 * Return: the reply (free with pb__reply__free_unpacked), or NULL with *ret_err: UNREACHABLE names
 * the addresses tried and what each said. A refusal by the MDM is turned into *ret_err too.
 * @any: a follower's answer is good enough (read-only queries).
 */
Pb__Reply *ash_mgmt_call_sync(const struct ash_mgmt_opts *opts, Pb__Request *req, bool any,
			      uint32_t timeout_ms, struct ash_error *ret_err);

#endif
