/* SPDX-License-Identifier: MIT */
/* Private to the NBD server. */
#ifndef ASHLAR_SDC_NBD_SERVER_INT_H
#define ASHLAR_SDC_NBD_SERVER_INT_H

#include <ev.h>
#include <stddef.h>

#include "common/base/list.h"
#include "common/io/sock.h"
#include "sdc/nbd/nbd_proto.h"
#include "sdc/nbd/server.h"

#define MEM_CLASSES 14		  /* 4 KiB .. 32 MiB */
#define MEM_KEEP (64ull << 20)	  /* kept for reuse */
#define MEM_SERVER (512ull << 20) /* above it connections stop reading */
#define MEM_CONN (64ull << 20)
#define REQS_CONN 512u
#define CONNS_MAX 256u
#define STAGING_BYTES (128u << 10)
#define OPTION_MAX (64u << 10) /* longest data of an option */
#define OPTIONS_MAX 1000u
#define NEGOTIATION_S 30.
#define ACCEPT_PAUSE_S 0.2
#define STATUS_MAX_BYTES (64ull << 20) /* longest range of one block status answer */
#define STATUS_MAX_EXTENTS 4096u
#define META_ID 1u

struct nbd_mem {
	struct nbd_mem *next;
};

enum conn_state {
	CONN_FLAGS,    /* the client's flags are due */
	CONN_OPTIONS,  /* haggling */
	CONN_TRANSMIT, /* serving */
	CONN_ENDING,   /* reads nothing more; ends when nothing is in flight and all is sent */
};

struct nbd_conn;

/* One command. Freed when its reply is sent. */
struct nbd_req {
	struct sdc_io io;
	struct ash_list link; /* conn->out, or the server's free list */
	struct nbd_conn *conn;
	uint64_t cookie;
	uint16_t type, flags;
	uint32_t length;
	uint64_t offset;
	uint8_t *mem; /* payload, or extents of a status */
	uint32_t mem_bytes;
	int mem_class;
	uint8_t head[48]; /* reply */
	uint32_t head_bytes, data_bytes;
};

struct nbd_conn {
	struct nbd_server *srv;
	struct ash_list link, dirty;
	int fd;
	ev_io rd, wr;
	ev_timer deadline;
	enum conn_state state;
	bool no_zeroes, structured, meta, stalled, broken;
	char meta_export[64];
	struct nbd_export *exp;
	uint32_t options;
	uint8_t *in; /* STAGING_BYTES */
	uint32_t in_at, in_end;
	struct nbd_req *writing; /* its payload is being received */
	uint32_t write_have;
	uint64_t skip; /* payload to throw away */
	uint8_t *text; /* haggling replies not yet sent */
	size_t text_at, text_end, text_room;
	struct ash_list out;
	size_t out_sent;    /* of the first reply */
	uint32_t in_flight; /* commands at the backend */
	uint32_t reqs;	    /* those and replies not yet sent */
	uint64_t mem;
};

struct nbd_listener {
	ev_io io;
	int fd;
	struct nbd_listener *next;
};

struct nbd_server {
	struct ev_loop *loop;
	struct nbd_export *exports, **exports_end;
	struct nbd_listener *listeners;
	char socket_path[108];
	struct ash_list conns, dirty, free_reqs;
	struct nbd_mem *cache[MEM_CLASSES];
	uint64_t cached, mem;
	uint32_t stalled; /* connections that wait for memory */
	bool stopping, paused, accept_paused;
	ev_timer accept_again; /* descriptors may be others' that come free */
	struct ash_log_limit limit;
	void (*stopped)(void *arg);
	void *stopped_arg;
	struct nbd_server_stats stats;
};

/* server.c */
struct nbd_export *nbd_srv_export(struct nbd_server *srv, const char *name, size_t bytes);
uint8_t *nbd_srv_mem_get(struct nbd_server *srv, uint32_t bytes, int *ret_class);
void nbd_srv_mem_put(struct nbd_server *srv, uint8_t *mem, int cls);
struct nbd_req *nbd_srv_req_get(struct nbd_conn *c);
void nbd_srv_req_put(struct nbd_req *req);
/* A descriptor has become free, or may have. */
void nbd_srv_accept_again(struct nbd_server *srv);

/* conn.c */
void nbd_conn_new(struct nbd_server *srv, int fd);
void nbd_conn_dirty(struct nbd_conn *c);
/* Sends what is there; may free the connection. */
void nbd_conn_flush(struct nbd_conn *c);
/* Goes on with what it could not take before. */
void nbd_conn_resume(struct nbd_conn *c);
/* Reads no more. */
void nbd_conn_end(struct nbd_conn *c);
void nbd_conn_text(struct nbd_conn *c, const void *data, size_t bytes);

/* negotiate.c: takes one message out of the staging buffer. False: more bytes are needed. */
bool nbd_negotiate_step(struct nbd_conn *c);
uint16_t nbd_export_flags(const struct nbd_conn *c, const struct nbd_export *exp);

/* transmit.c: the same. */
bool nbd_transmit_step(struct nbd_conn *c);
/* The payload of c->writing is complete. */
void nbd_transmit_payload_done(struct nbd_conn *c);

#endif
