/* SPDX-License-Identifier: MIT */
/* Sockets of this project: addresses and options. Used by common/io and common/mgmt. */
#ifndef ASHLAR_COMMON_IO_SOCK_H
#define ASHLAR_COMMON_IO_SOCK_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "common/base/err.h"
#include "common/port/net.h"

/* Returns the length to give to bind() or connect(). IPv4-mapped addresses become AF_INET. */
socklen_t ash_sock_address(const struct ash_endpoint *ep, struct sockaddr_storage *ret_addr);
void ash_sock_endpoint(const struct sockaddr_storage *addr, struct ash_endpoint *ret_ep);

/* Like ash_endpoint_parse(), but never asks a name server: numbers only. */
int ash_endpoint_parse_numeric(const char *text, uint16_t default_port, struct ash_endpoint *ret_ep,
			       struct ash_error *ret_err);

/*
 * No delay, and an end to connections whose peer is gone: after about 11 s of silence while idle,
 * or when data stays unacknowledged for @user_timeout_ms.
 */
void ash_sock_tune(int fd, unsigned user_timeout_ms);

/* A bound, listening, non-blocking socket, or -errno; the message is for people. */
int ash_sock_listen(const struct ash_endpoint *at, uint16_t *ret_port, struct ash_error *ret_err);
/* "127.0.0.1:41234" of the other end; @buf of at least 64 bytes. */
const char *ash_sock_peer_text(int fd, char *buf, size_t bytes);

/* At most one log line per key and minute, for lines that a stranger can cause. One thread. */
struct ash_log_limit {
	struct {
		uint8_t key[16];
		uint64_t until_ns;
	} slot[64];
	uint64_t dropped;
};
bool ash_log_limit_pass(struct ash_log_limit *limit, const uint8_t key[16], uint64_t now_ns);

#endif
