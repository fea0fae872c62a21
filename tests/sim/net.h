/* SPDX-License-Identifier: MIT */
/*
 * Simulated data network: common/port/net.h over connections that keep order, delay, stall, break
 * at one end before the other, and deliver what was on its way late.
 *
 * Within one connection nothing is lost, doubled or reordered (TCP); it can only end. A message
 * leaves at the end of the sender's turn, or later when the connection is stalled; its memory is
 * read only then. Headers pass through the wire codec both ways.
 */
#ifndef ASHLAR_TESTS_SIM_NET_H
#define ASHLAR_TESTS_SIM_NET_H

#include "common/port/net.h"
#include "tests/sim/proc.h"

#define SIM_HOSTS_MAX 32

/* What connects all hosts. */
struct sim_fabric {
	struct sim_world *w;
	struct sim_proc *listener[SIM_HOSTS_MAX]; /* by host index; one port per host */
	struct sim_host *host[SIM_HOSTS_MAX];
	bool cut[SIM_HOSTS_MAX][SIM_HOSTS_MAX]; /* [from][to]: nothing passes */
	uint64_t slow_until[SIM_HOSTS_MAX];	/* traffic of that host is slow until then */
	uint64_t latency_ns;			/* typical, one way */
	unsigned stall_chance;			/* of 1000 departures: the connection stalls */
	unsigned place_chance;			/* of 1000 data replies: asks on_place */
	bool canary_repl;     /* now and then a replicated write is answered and not delivered */
	struct sim_conn *all; /* every connection, for faults */
};

void sim_fabric_init(struct sim_fabric *fabric, struct sim_world *w);

/* Gives the process a network; @owner is for on_accept. */
void sim_net_attach(struct sim_fabric *fabric, struct sim_proc *p);
void sim_net_listen(struct sim_proc *p, void (*on_accept)(struct ash_net *, struct ash_conn *),
		    void *owner);
struct ash_endpoint sim_endpoint(const struct sim_host *host);

/* End of the process's turn: what was sent leaves. */
void sim_net_flush(struct sim_proc *p);

/* The process died (its core is freed). @power: the whole host did, so nobody tells the peers. */
void sim_net_kill(struct sim_proc *p, bool power);

enum sim_break {
	SIM_BREAK_BOTH, /* both ends hear at once, what was on its way is lost */
	SIM_BREAK_HALF, /* one end hears now, the other much later; late messages arrive */
};
/* Breaks up to @most randomly chosen connections between two hosts (NULL = any). */
unsigned sim_net_break(struct sim_fabric *fabric, const struct sim_host *a,
		       const struct sim_host *b, enum sim_break how, unsigned most);
/* Cuts or heals one direction. A cut that lasts breaks the connections, each end when it likes. */
void sim_net_cut(struct sim_fabric *fabric, const struct sim_host *from, const struct sim_host *to,
		 bool cut);

/* What @from sends to @to (NULL = anybody) on the connections of now arrives after @until. */
void sim_net_hold(struct sim_fabric *fabric, const struct sim_host *from, const struct sim_host *to,
		  uint64_t until);

/* Connections of this process now; messages taken from its pool and not given back. */
unsigned sim_net_conns(const struct sim_proc *p);

#endif
