/* SPDX-License-Identifier: MIT */
/*
 * Control channel of a core to "the MDM": a request gets exactly one answer, or fails with -errno
 * when it cannot be known whether it was carried out (then the caller decides: all requests of SDS
 * and SDC cores are safe to repeat). Which MDM leads, reconnects and retries on NOT_LEADER are the
 * business of the backend (common/mgmt in daemons, tests/sim in the simulator).
 */
#ifndef ASHLAR_COMMON_PORT_CTL_H
#define ASHLAR_COMMON_PORT_CTL_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/mgmt/ashlar.pb-c.h"

struct ash_ctl;

struct ash_ctl_ops {
	/**
	 * call() - send a request.
	 * @req: borrowed until return (packed at once); the id is set by the backend.
	 * @timeout_ms: after that done(-ETIMEDOUT).
	 * @done: reply is borrowed for the call; NULL if result < 0. result 0 with reply->error set
	 *        is a refusal by the MDM. Exactly once, never before call() returns.
	 */
	void (*call)(struct ash_ctl *ctl, const Pb__Request *req, uint32_t timeout_ms,
		     void (*done)(void *arg, int result, const Pb__Reply *reply), void *arg);
};

/**
 * struct ash_ctl_events - upcalls into the core.
 * @on_session: a new connection to the leader is up (register now), or was lost (up = false).
 * @on_push: map deltas and the like; borrowed.
 */
struct ash_ctl_events {
	void (*on_session)(void *owner, bool up);
	void (*on_push)(void *owner, const Pb__Push *push);
};

struct ash_ctl {
	const struct ash_ctl_ops *ops;
	const struct ash_ctl_events *events;
	void *owner;
};

#endif
