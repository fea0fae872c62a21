/* SPDX-License-Identifier: MIT */
/* Inside common/mgmt: addresses that are asked who leads, and the session with the one that does.
 */
#ifndef ASHLAR_COMMON_MGMT_MGMT_INT_H
#define ASHLAR_COMMON_MGMT_MGMT_INT_H

#include <ev.h>

#include "common/base/list.h"
#include "common/base/prng.h"
#include "common/io/ctl_stream.h"
#include "common/mgmt/mgmt.h"

#define MGMT_PORT 6611
#define MGMT_ADDRS_MAX 32

enum mgmt_addr_state { ADDR_IDLE, ADDR_CONNECTING, ADDR_HELLO, ADDR_SESSION };

/**
 * struct mgmt_addr - one place where an MDM may be.
 * @timer: idle: when to ask next; else: how long to wait for it.
 * @said:  outcome of the last attempt, for people. @hard: nobody was there at all.
 */
struct mgmt_addr {
	struct ash_mgmt *m;
	struct ash_list link;
	struct ash_ctl_stream stream;
	ev_timer timer;
	struct ash_endpoint ep;
	enum mgmt_addr_state state;
	unsigned failures; /* in a row; sets the back-off */
	unsigned attempts;
	bool hard;
	bool learned;
	char text[80];
	char said[320];
};

struct mgmt_call {
	struct ash_list link;
	struct ash_mgmt *m;
	ev_timer timer;
	uint64_t id;
	ev_tstamp sent_at;
	void (*done)(void *arg, int result, const Pb__Reply *reply);
	void *arg;
	size_t bytes;
	uint8_t packed[];
};

/**
 * struct ash_mgmt
 * @waiting: calls that no MDM has got yet. @sent: those that the session's MDM has got.
 * @heard:   when the session last said anything. @suspect: it owes answers for too long, so that
 *           the others are asked whether they lead.
 * @any:     a follower is good enough (until one says that it is not).
 */
struct ash_mgmt {
	struct ash_ctl ctl;
	struct ev_loop *loop;
	struct ash_list addrs;
	unsigned addr_count;
	struct mgmt_addr *session;
	struct ash_list waiting, sent;
	uint64_t next_id;
	ev_timer watch;
	ev_tstamp heard, complained;
	bool suspect, any, quiet;
	struct ash_prng rng;
	char role[16], name[64];
	uint8_t uuid[16], session_id[16], system[16];
};

/* mgmt_probe.c */
struct mgmt_addr *mgmt_addr_add(struct ash_mgmt *m, const char *text,
				const struct ash_endpoint *ep);
void mgmt_addr_free(struct mgmt_addr *a);
/* Asks it now, if it is not being asked. */
void mgmt_addr_try(struct mgmt_addr *a);
/* Ends what is going on and waits a little longer than last time. */
void mgmt_addr_back_off(struct mgmt_addr *a);
void mgmt_addr_close(struct mgmt_addr *a);
/* Somebody says that the leader is at @address. */
void mgmt_hint(struct ash_mgmt *m, const char *address);
/* Fills "10.0.0.1:6611: connection refused; 10.0.0.2:6611: follower". */
void mgmt_said(const struct ash_mgmt *m, char *buf, size_t room);

/* mgmt.c */
void mgmt_session_begin(struct mgmt_addr *a);
void mgmt_session_frame(struct ash_mgmt *m, int type, const uint8_t *body, size_t bytes);
void mgmt_session_lost(struct ash_mgmt *m, const char *why);

#endif
