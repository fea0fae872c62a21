/* SPDX-License-Identifier: MIT */
/* Inside the TCP transport. */
#ifndef ASHLAR_COMMON_IO_TCP_INT_H
#define ASHLAR_COMMON_IO_TCP_INT_H

#include "common/io/reactor_int.h"

#define RX_BYTES 65536u
/* From here on the rest of a payload is received where it belongs, without a copy. */
#define RX_DIRECT_MIN 16384u
#define TX_VECS 384
#define TX_BYTES_MAX (2u << 20)

/**
 * struct conn - one connection.
 * @link:    all of them. @rx_link, @tx_link, @end_link: see struct ash_reactor.
 * @rx:      bytes received ahead, from rx_head to rx_tail.
 * @cur:     message whose payload is coming, cur_got of cur_bytes bytes so far.
 * @sending: messages given to the kernel are the first of tx; tx_done bytes of the first one are
 *           out already.
 */
struct conn {
	struct ash_conn c;
	struct ash_reactor *r;
	struct ash_list link, rx_link, tx_link, end_link;
	int fd, slot;
	bool outgoing, connecting, accept_due;
	bool paused, ending, end_begun;
	bool receiving, receiving_direct, sending, connect_sent;
	bool sock_nonempty;
	int reason;
	struct ash_timer timer;
	struct ash_endpoint to;
	struct sockaddr_storage addr;
	socklen_t addr_bytes;

	uint8_t *rx;
	uint32_t rx_head, rx_tail;
	struct ash_msg *cur;
	uint32_t cur_got, cur_bytes;
	uint64_t cur_since_ns;
	struct ash_buf_waiter waiter;

	struct ash_msg *tx, **tx_end;
	size_t tx_done;
	struct msghdr tx_head;
	struct iovec tx_vec[TX_VECS];
};

static inline struct conn *conn_of(struct ash_conn *c)
{
	return (struct conn *)c;
}

/* Puts it on a list if it is on none. */
static inline void conn_list(struct ash_list *list, struct ash_list *link)
{
	if (ash_list_empty(link))
		ash_list_push_back(list, link);
}

void conn_end(struct conn *c, int reason);
/* The same, with one line per peer and minute. */
void conn_end_bad(struct conn *c, int reason, const char *why);

/* Takes apart what has come and delivers whole messages, until it lacks something. */
void conn_parse(struct conn *c);
void conn_rx_arm(struct conn *c);
void conn_rx_drop(struct conn *c);

void conn_send(struct ash_conn *conn, struct ash_msg *msg);
void conn_tx_start(struct conn *c);
/* A last try without waiting, for what was queued before the owner closed. */
void conn_tx_last(struct conn *c);
/* Gives all messages back. */
void conn_tx_drop(struct conn *c);

struct ash_msg *net_msg_alloc(struct ash_net *net);
void net_msg_free(struct ash_net *net, struct ash_msg *msg);
/* For receiving: leaves some for answers, and some of the rest for peers. */
struct ash_msg *net_msg_for_rx(struct conn *c);

#endif
