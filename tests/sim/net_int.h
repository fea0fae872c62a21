/* SPDX-License-Identifier: MIT */
/* Shared by net.c (ends of connections, receiving), net_send.c and net_faults.c. */
#ifndef ASHLAR_TESTS_SIM_NET_INT_H
#define ASHLAR_TESTS_SIM_NET_INT_H

#include "tests/sim/net.h"

struct packet {
	struct packet *next;
	uint64_t at;
	uint32_t bytes, crcs, data_bytes;
	bool fin;
	int reason;
	uint8_t hdr[96];
	uint8_t payload[]; /* checksums (host order), then data */
};

enum conn_state { CONNECTING, UP, CLOSED, BROKEN };

struct sim_conn {
	struct ash_conn c; /* first */
	struct sim_item item;
	bool item_queued;
	struct sim_proc *p;
	struct sim_fabric *f;
	const struct sim_host *from, *to; /* own host, the other's */
	struct sim_conn *peer;
	struct sim_conn *next, **prev; /* of the process */
	struct sim_conn *all_next, **all_prev;
	struct sim_event connect_event, rx_event, tx_event, death_event;
	enum conn_state state;
	bool accept_due, up_due, paused, running;
	int reason;
	struct ash_msg *tx, **tx_end, *sent, **sent_end;
	struct packet *rx, **rx_end; /* on their way, then arrived and not yet delivered */
	uint64_t last_arrival, stalled_until;
	uint64_t held_until; /* what leaves before that arrives after it */
	unsigned trap;	     /* the connection breaks at this end after that many departures */
	struct ash_buf_waiter waiter;
};

struct sim_net {
	struct ash_net n; /* first */
	struct sim_proc *p;
	struct sim_fabric *f;
	struct ash_msg *free_msgs;
	void *slabs;
};

struct packet *sim_packet_new(uint32_t payload);
void sim_drop_packets(struct sim_conn *c);
struct sim_conn *sim_conn_new(struct sim_fabric *f, struct sim_proc *p, const struct sim_host *to);
void sim_conn_free(struct sim_conn *c);
/* Lets the end's process look at it. */
void sim_conn_kick(struct sim_conn *c);
/* This end learns that the connection is over. */
void sim_conn_break(struct sim_conn *c, int reason);
/* The stream to @c ends after what is on its way; @lost: some of that is lost too. */
void sim_send_fin(struct sim_conn *c, uint64_t delay, bool lost);
uint64_t sim_travel_ns(struct sim_conn *c, uint32_t bytes);
/* One end hears now; what it sent before reaches the other late, and only then the end. */
void sim_break_half(struct sim_conn *c);
void sim_on_tx_event(struct sim_event *event);
extern const struct ash_net_ops sim_net_ops;
struct ash_msg *sim_msg_alloc(struct ash_net *net);
void sim_msg_free(struct ash_net *net, struct ash_msg *m);

#endif
