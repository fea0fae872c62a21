// SPDX-License-Identifier: MIT
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/size.h"
#include "common/io/reactor.h"
#include "common/io/sock.h"

static const uint8_t v4_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

static bool is_v4(const struct ash_endpoint *ep)
{
	return memcmp(ep->ip, v4_prefix, sizeof(v4_prefix)) == 0;
}

socklen_t ash_sock_address(const struct ash_endpoint *ep, struct sockaddr_storage *ret_addr)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret_addr;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret_addr;

	memset(ret_addr, 0, sizeof(*ret_addr));
	if (is_v4(ep)) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(ep->port);
		memcpy(&v4->sin_addr, ep->ip + 12, 4);
		return sizeof(*v4);
	}
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons(ep->port);
	memcpy(&v6->sin6_addr, ep->ip, 16);
	return sizeof(*v6);
}

void ash_sock_endpoint(const struct sockaddr_storage *addr, struct ash_endpoint *ret_ep)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)addr;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)addr;

	memset(ret_ep, 0, sizeof(*ret_ep));
	ret_ep->transport = ASH_TRANSPORT_TCP;
	if (addr->ss_family == AF_INET) {
		memcpy(ret_ep->ip, v4_prefix, sizeof(v4_prefix));
		memcpy(ret_ep->ip + 12, &v4->sin_addr, 4);
		ret_ep->port = ntohs(v4->sin_port);
	} else if (addr->ss_family == AF_INET6) {
		memcpy(ret_ep->ip, &v6->sin6_addr, 16);
		ret_ep->port = ntohs(v6->sin6_port);
	}
}

/* Cuts "host:port", "[v6]:port", "host" or a bare "v6" into host and port text (may be NULL). */
static bool cut(const char *text, char *host, size_t room, const char **ret_port)
{
	const char *end, *colon;
	size_t n;

	*ret_port = NULL;
	if (*text == '[') {
		end = strchr(++text, ']');
		if (!end || (end[1] != '\0' && end[1] != ':'))
			return false;
		if (end[1] == ':')
			*ret_port = end + 2;
	} else {
		colon = strchr(text, ':');
		end = text + strlen(text);
		if (colon && !strchr(colon + 1, ':')) {
			end = colon;
			*ret_port = colon + 1;
		}
	}
	n = (size_t)(end - text);
	if (n == 0 || n >= room)
		return false;
	memcpy(host, text, n);
	host[n] = '\0';
	return true;
}

/* Prefers IPv4 where a name has both: that is what daemons listen on unless told otherwise. */
static int look_up(const char *host, bool resolve, struct ash_endpoint *ep, const char **ret_why)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				 .ai_flags = resolve ? AI_ADDRCONFIG : AI_NUMERICHOST};
	struct addrinfo *list = NULL, *best;
	struct sockaddr_storage addr = {0};
	int err = getaddrinfo(host, NULL, &hints, &list);

	if (err == EAI_NONAME && resolve) { /* AI_ADDRCONFIG hides ::1 on hosts without IPv6 */
		hints.ai_flags = 0;
		err = getaddrinfo(host, NULL, &hints, &list);
	}
	if (err) {
		*ret_why = gai_strerror(err);
		return -EHOSTUNREACH;
	}
	for (best = list; best && best->ai_family != AF_INET; best = best->ai_next)
		;
	if (!best)
		best = list;
	memcpy(&addr, best->ai_addr, best->ai_addrlen);
	freeaddrinfo(list);
	ash_sock_endpoint(&addr, ep);
	return 0;
}

static int parse(const char *text, uint16_t default_port, bool resolve, struct ash_endpoint *ret_ep,
		 struct ash_error *ret_err)
{
	char host[256];
	const char *port_text, *why = "";
	struct ash_endpoint ep = {0};
	uint64_t port = default_port;
	int err;

	if (!cut(text, host, sizeof(host), &port_text)) {
		*ret_err = ash_error_make(ASH_E_INVALID,
					  "\"%s\" is no address; write HOST:PORT or [IPV6]:PORT",
					  text);
		return -EINVAL;
	}
	if (port_text ? ash_u64_parse(port_text, 0, 65535, &port) != 0 : default_port == 0) {
		*ret_err = ash_error_make(
			ASH_E_INVALID, "\"%s\": the port must be a number up to 65535 (HOST:PORT)",
			text);
		return -EINVAL;
	}
	err = look_up(host, resolve, &ep, &why);
	if (err) {
		*ret_err =
			ash_error_make(ASH_E_UNREACHABLE, "\"%s\": cannot resolve host \"%s\": %s",
				       text, host, why);
		return err;
	}
	ep.port = (uint16_t)port;
	*ret_ep = ep;
	return 0;
}

int ash_endpoint_parse(const char *text, uint16_t default_port, struct ash_endpoint *ret_ep,
		       struct ash_error *ret_err)
{
	return parse(text, default_port, true, ret_ep, ret_err);
}

int ash_endpoint_parse_numeric(const char *text, uint16_t default_port, struct ash_endpoint *ret_ep,
			       struct ash_error *ret_err)
{
	return parse(text, default_port, false, ret_ep, ret_err);
}

const char *ash_endpoint_text(const struct ash_endpoint *ep, char *buf, size_t bytes)
{
	char ip[INET6_ADDRSTRLEN] = "?";

	if (is_v4(ep)) {
		inet_ntop(AF_INET, ep->ip + 12, ip, sizeof(ip));
		snprintf(buf, bytes, "%s:%u", ip, ep->port);
	} else {
		inet_ntop(AF_INET6, ep->ip, ip, sizeof(ip));
		snprintf(buf, bytes, "[%s]:%u", ip, ep->port);
	}
	return buf;
}

bool ash_endpoint_is_loopback(const struct ash_endpoint *ep)
{
	static const uint8_t v6_loopback[16] = {[15] = 1};

	if (is_v4(ep))
		return ep->ip[12] == 127;
	return memcmp(ep->ip, v6_loopback, sizeof(v6_loopback)) == 0;
}
