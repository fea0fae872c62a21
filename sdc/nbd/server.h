/* SPDX-License-Identifier: MIT */
/*
 * NBD server on a libev loop: any number of exports and connections, one thread. Where the data
 * comes from is behind struct nbd_backend_ops (the data client, or memory in tests).
 */
#ifndef ASHLAR_SDC_NBD_SERVER_H
#define ASHLAR_SDC_NBD_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/port/net.h"
#include "sdc/core/sdc.h"

struct ev_loop;
struct nbd_server;

/* Callbacks come later, from the loop, exactly once. */
struct nbd_backend_ops {
	void (*submit)(void *backend, struct sdc_io *io);
	void (*block_status)(void *backend, uint64_t offset, uint64_t bytes,
			     void (*done)(void *arg, int status, const struct sdc_extent *ext,
					  unsigned n),
			     void *arg);
};

/* The owner's memory, until nbd_server_free(). Size is looked at by each new connection. */
struct nbd_export {
	char name[64];
	char description[128];
	uint64_t size_bytes;
	bool read_only;
	const struct nbd_backend_ops *ops;
	void *backend;
	struct nbd_export *next;
};

struct nbd_server *nbd_server_new(struct ev_loop *loop);
/* After nbd_server_stop() is done. */
void nbd_server_free(struct nbd_server *srv);
/* The first one is the default export too. */
void nbd_server_add(struct nbd_server *srv, struct nbd_export *exp);

/* Replaces a socket that nobody listens on; refuses one in use. Removed by nbd_server_stop(). */
struct ash_error nbd_server_listen_unix(struct nbd_server *srv, const char *path);
struct ash_error nbd_server_listen_tcp(struct nbd_server *srv, const struct ash_endpoint *at);
/* Paused, it listens and takes nobody: who connects waits until it is not paused any more. */
void nbd_server_pause(struct nbd_server *srv, bool paused);
/* A connection made elsewhere; the server owns the descriptor. */
void nbd_server_accept(struct nbd_server *srv, int fd);

/* At the end of each turn of the loop: sends the replies that came up, one call per connection. */
void nbd_server_flush(struct nbd_server *srv);

/* Takes no more connections and requests, finishes and answers those begun, then done. */
void nbd_server_stop(struct nbd_server *srv, void (*done)(void *arg), void *arg);

struct nbd_server_stats {
	uint64_t connections, requests, errors;
	uint64_t accept_pauses; /* no descriptor or memory was left for a connection */
	uint32_t open;		/* connections now */
	uint32_t in_flight;
	uint64_t bytes_held;
};
void nbd_server_stats(const struct nbd_server *srv, struct nbd_server_stats *ret_stats);

#endif
