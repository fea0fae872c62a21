/* SPDX-License-Identifier: MIT */
/*
 * Server side of the control protocol on a libev loop: accepts, frames, checks, decodes. Bad frames
 * end the connection with one log line per peer and minute. Context: the loop's thread.
 */
#ifndef ASHLAR_COMMON_IO_CTL_SERVER_H
#define ASHLAR_COMMON_IO_CTL_SERVER_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/port/net.h"
#include "proto/mgmt/ashlar.pb-c.h"

struct ev_loop;
struct ash_ctl_server;
struct ash_ctl_peer;

struct ash_ctl_server_events {
	/* Return what ash_ctl_peer_owner() shall give; NULL refuses the connection (no on_close
	 * then; nothing may be sent from inside). */
	void *(*on_open)(void *arg, struct ash_ctl_peer *peer);
	void (*on_request)(void *arg, struct ash_ctl_peer *peer, const Pb__Request *req);
	void (*on_close)(void *arg, struct ash_ctl_peer *peer);
};

struct ash_ctl_server *ash_ctl_server_new(struct ev_loop *loop, const struct ash_endpoint *at,
					  const struct ash_ctl_server_events *events, void *arg,
					  struct ash_error *ret_err);
/* on_close is called for each peer that is left. Not from inside one of its events. */
void ash_ctl_server_free(struct ash_ctl_server *srv);
uint16_t ash_ctl_server_port(const struct ash_ctl_server *srv); /* when it was given port 0 */
void *ash_ctl_peer_owner(struct ash_ctl_peer *peer);
const char *ash_ctl_peer_name(const struct ash_ctl_peer *peer); /* "127.0.0.1:41234" */
/* Packed at once. A peer that does not read gets at most 256 MiB queued, then it is closed. */
void ash_ctl_peer_reply(struct ash_ctl_peer *peer, const Pb__Reply *reply);
void ash_ctl_peer_push(struct ash_ctl_peer *peer, const Pb__Push *push);
/* on_close follows from the loop. What was sent before has been given to the kernel if it had room;
 * the rest is dropped. */
void ash_ctl_peer_close(struct ash_ctl_peer *peer);

#endif
