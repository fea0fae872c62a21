// SPDX-License-Identifier: MIT
#include "common/io/sock.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#include "common/io/reactor.h"

void ash_sock_tune(int fd, unsigned user_timeout_ms)
{
	int on = 1, idle = 5, interval = 2, count = 3;

	/* None of these can fail on a TCP socket; should one, the connection still works. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout_ms, sizeof(user_timeout_ms));
}

static int listen_failed(int fd, const struct ash_endpoint *at, int err, struct ash_error *ret_err)
{
	char text[64];

	if (fd >= 0)
		close(fd);
	*ret_err = ash_error_make(
		err == EADDRINUSE ? ASH_E_IN_USE : ASH_E_STATE, "cannot listen on %s: %s%s",
		ash_endpoint_text(at, text, sizeof(text)), strerror(err),
		err == EADDRINUSE ? "; another process has it, stop that or choose another port"
		: err == EADDRNOTAVAIL ? "; give an address of this host"
				       : "");
	return -err;
}

int ash_sock_listen(const struct ash_endpoint *at, uint16_t *ret_port, struct ash_error *ret_err)
{
	struct sockaddr_storage addr;
	socklen_t bytes = ash_sock_address(at, &addr);
	struct ash_endpoint bound;
	int on = 1;
	int fd = socket(addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return listen_failed(fd, at, errno, ret_err);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&addr, bytes) || listen(fd, 1024))
		return listen_failed(fd, at, errno, ret_err);
	bytes = sizeof(addr);
	if (getsockname(fd, (struct sockaddr *)&addr, &bytes))
		return listen_failed(fd, at, errno, ret_err);
	ash_sock_endpoint(&addr, &bound);
	if (ret_port)
		*ret_port = bound.port;
	return fd;
}

const char *ash_sock_peer_text(int fd, char *buf, size_t bytes)
{
	struct sockaddr_storage addr = {0};
	socklen_t n = sizeof(addr);
	struct ash_endpoint ep;

	if (getpeername(fd, (struct sockaddr *)&addr, &n)) {
		strncpy(buf, "?", bytes);
		return buf;
	}
	ash_sock_endpoint(&addr, &ep);
	return ash_endpoint_text(&ep, buf, bytes);
}

bool ash_log_limit_pass(struct ash_log_limit *limit, const uint8_t key[16], uint64_t now_ns)
{
	size_t free_slot = 0;

	for (size_t i = 0; i < sizeof(limit->slot) / sizeof(limit->slot[0]); i++) {
		if (limit->slot[i].until_ns > now_ns && memcmp(limit->slot[i].key, key, 16) == 0) {
			limit->dropped++;
			return false;
		}
		if (limit->slot[i].until_ns < limit->slot[free_slot].until_ns)
			free_slot = i;
	}
	/* Many strangers at once: only so many lines a minute in all. */
	if (limit->slot[free_slot].until_ns > now_ns) {
		limit->dropped++;
		return false;
	}
	memcpy(limit->slot[free_slot].key, key, 16);
	limit->slot[free_slot].until_ns = now_ns + 60000000000ull;
	return true;
}
