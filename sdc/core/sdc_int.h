/* SPDX-License-Identifier: MIT */
/*
 * Private to sdc/core: who holds what.
 *
 *   sdc_io (caller's) --split at chunk borders--> sdc_req (pool) --routed by the row--> sdc_peer
 *
 * A request is on exactly one list, named by its state. Its memory (the user's data, its message)
 * may be referenced by a transport: `in_transport` until sent(), `placed` from on_place() until the
 * message arrives. Only sdc_req_settle() decides what happens to a request that is out, and it
 * waits for both.
 */
#ifndef ASHLAR_SDC_CORE_INT_H
#define ASHLAR_SDC_CORE_INT_H

#include "common/base/htab.h"
#include "common/base/list.h"
#include "common/map/map.h"
#include "sdc/core/sdc.h"

#define MS 1000000ull
#define SEC (1000 * MS)

/* Requests that only flushes may take, so that a full pool cannot hold them up. */
#define FLUSH_RESERVE 32u
#define QUANTUM 8u	  /* pieces of one I/O before the next volume has its turn */
#define CONNECT_MS 3000u  /* connection and HELLO */
#define RETURN_MS 100u	  /* a message that is to go elsewhere must come back by then */
#define BADSUM_MAX 8u	  /* mismatches of one request before it fails */
#define STATUS_INTERNAL 6 /* sdc_io.kind of block status, beside enum sdc_io_kind */

enum req_state {
	REQ_FREE,
	REQ_HELD,      /* an earlier write overlaps */
	REQ_NOBUF,     /* needs a bounce buffer */
	REQ_PARKED,    /* nobody serves its PG now */
	REQ_BACKOFF,   /* timer runs */
	REQ_WAITING,   /* for its peer's connection */
	REQ_SENT,      /* unanswered */
	REQ_RETURNING, /* decided, but memory is still out */
};

/* What becomes of a request: a status <= 0 ends it. */
enum { REQ_AGAIN = 1, REQ_LATER = 2 };

struct sdc_peer;

struct sdc_req {
	struct ash_msg msg;
	struct ash_list link; /* free list or the list of its state */
	struct ash_list hold; /* bucket of its chunk; write-like requests only */
	struct ash_timer timer;
	struct sdc *sdc;
	struct sdc_vol *vol;
	struct sdc_io *io; /* NULL: a flush */
	struct sdc_peer *peer;
	struct ash_buf *bounce;
	uint8_t *data; /* of the piece if contiguous, else NULL */
	uint64_t offset, tag, gen, sent_ns;
	uint32_t length, index, seq;
	unsigned iov_at; /* where the piece begins in io->iov */
	size_t iov_skip;
	int decision; /* RETURNING */
	uint16_t tries, badsums;
	uint8_t op, state;
	bool write_like, prepared, in_transport, placed;
	uint32_t crc[ASH_PIECES_MAX];
};

/* Lies in sdc_io.priv. */
struct io_priv {
	struct ash_list all; /* vol->ios, in the order admitted */
	struct sdc_vol *vol;
	uint64_t cursor; /* bytes split off so far */
	uint64_t admitted_ns;
	size_t iov_skip;
	unsigned iov_at;
	uint32_t pieces; /* in flight */
	int status;
	bool queued; /* in vol->queue */
};
_Static_assert(sizeof(struct io_priv) <= sizeof(((struct sdc_io *)0)->priv), "fits the I/O");

static inline struct io_priv *io_priv(struct sdc_io *io)
{
	return (struct io_priv *)(void *)io->priv;
}
static inline struct sdc_io *io_of(struct io_priv *p)
{
	return (struct sdc_io *)(void *)((char *)p - offsetof(struct sdc_io, priv));
}

struct io_queue {
	struct sdc_io *first, **last;
};

enum peer_state {
	PEER_IDLE,	 /* nothing to say */
	PEER_BACKOFF,	 /* connects when the timer ends */
	PEER_CONNECTING, /* until on_up */
	PEER_HELLO,	 /* until its HELLO */
	PEER_UP,
	PEER_CLOSING, /* until on_down */
};

/* One reactor of an SDS. Lives as long as the sdc. */
struct sdc_peer {
	struct sdc *sdc;
	struct sdc_peer *next;
	uint64_t sds;
	uint16_t reactor, path;
	struct ash_endpoint endpoint;
	struct ash_conn *conn;
	enum peer_state state;
	struct ash_list waiting, inflight, returning;
	struct ash_timer timer;
	unsigned slot_hint; /* where flush rounds found it last */
	uint32_t failures;  /* in a row */
	uint64_t began_ns, told_ns, down_told_ns;
	struct ash_msg hello;
	struct ash_wire_hello hello_wire;
};

enum slot_state { SLOT_NEEDED, SLOT_OUT, SLOT_DONE };

/* One SDS in a flush round. */
struct flush_slot {
	struct sdc_peer *peer;
	enum slot_state state;
	bool needed;
	struct sdc_req *req; /* OUT */
};

struct flush {
	struct io_queue next, now; /* I/Os for the next round, of this one */
	struct flush_slot *slot;
	unsigned slots, room;
	bool active, starved; /* starved: no request was left for a slot */
	bool whole;	      /* every PG counts, not only `flushing` */
	bool complete_once;   /* one whole round has succeeded since the open */
	uint64_t need_version;
	uint64_t *dirty, *flushing; /* PGs: written since; written before this round */
	uint32_t pgs;
};

/* Virtual scheduling: the time at which the limit is used up. */
struct limiter {
	uint64_t iops, bytes_per_s, iops_at, bytes_at;
};

struct sdc_vol {
	struct sdc *sdc;
	struct ash_list link; /* sdc->vols */
	struct ash_list ready;
	uint64_t volume, node, size, epoch;
	char name[64];
	bool read_only, asked_read_only, shared, needs_flush;
	struct ash_map_pool *pool; /* stable; NULL when the map has lost it */
	uint64_t first_pg;
	int dead; /* 0, or -errno for new I/O */
	bool closing, changed, renewing;
	struct io_queue queue; /* to be split */
	struct io_queue qos;   /* over the limits */
	struct ash_list ios;   /* admitted and not done */
	uint32_t outstanding;  /* I/Os not yet handed back */
	uint32_t reqs;	       /* taken from the pool */
	struct limiter limit;
	struct ash_timer qos_timer, io_timer, renew_timer;
	uint64_t told_ns;
	struct flush flush;
	void (*watch)(void *arg);
	void *watch_arg;
	void (*closed)(void *arg);
	void *closed_arg;
};

struct sdc_opening;

struct sdc {
	struct ash_port *port;
	struct ash_ctl *ctl;
	struct sdc_cfg cfg;
	struct ash_map *map;
	uint64_t id; /* of this SDC, 0 until registered */
	uint64_t session;
	bool session_up, registering, map_asked, rows_moved, kicked, stopping;
	bool renewing; /* a path number is used up: all opens get a new epoch */
	uint64_t map_asked_ns, sum_told_ns;
	struct ash_timer register_timer, map_timer;
	char refusal[256]; /* why the MDM would not register us */
	struct sdc_req *req;
	uint32_t reqs;
	struct ash_list free, free_flush, parked, nobuf;
	struct ash_list *bucket; /* held by chunk */
	uint32_t buckets;
	uint32_t free_count;
	struct sdc_peer *peers;
	struct ash_htab peer_by_key;
	struct ash_list vols, ready;
	uint32_t vol_count;
	struct sdc_opening *openings;
	struct io_queue done;
	struct ash_task task;
	struct ash_buf_waiter buf_waiter;
	struct sdc_stats stats;
	void (*stopped)(void *arg);
	void *stopped_arg;
};

/* sdc.c */
/* At most once a second for what *told_ns stands for. */
bool sdc_may_tell(struct sdc *sdc, uint64_t *told_ns);
void sdc_trace(struct sdc *sdc, int level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Makes a turn happen. */
void sdc_kick(struct sdc *sdc);
static inline uint64_t sdc_now(struct sdc *sdc)
{
	return sdc->port->now_ns(sdc->port);
}
/* @ns give or take a half. */
uint64_t sdc_jitter(struct sdc *sdc, uint64_t ns);

static inline void queue_init(struct io_queue *q)
{
	q->first = NULL;
	q->last = &q->first;
}
static inline void queue_push(struct io_queue *q, struct sdc_io *io)
{
	io->next = NULL;
	*q->last = io;
	q->last = &io->next;
}
static inline struct sdc_io *queue_pop(struct io_queue *q)
{
	struct sdc_io *io = q->first;

	if (!io)
		return NULL;
	q->first = io->next;
	if (!q->first)
		q->last = &q->first;
	io->next = NULL;
	return io;
}

/* control.c: MDM, map, opening */
extern const struct ash_map_watch sdc_map_watch_template;
void sdc_apply_row(struct sdc *sdc, const struct ash_wire_row *row, int *ret_taken);
/* Something says that the map at hand is old: fetch it, at a bounded rate. */
void sdc_want_map(struct sdc *sdc);
void sdc_openings_drop(struct sdc *sdc);
void sdc_register_tick(struct ash_timer *timer);
void sdc_map_tick(struct ash_timer *timer);
/* A path number is used up: new epochs for all, then a new session. */
void sdc_renew(struct sdc *sdc);
void sdc_renew_check(struct sdc *sdc);
void sdc_vol_renew_tick(struct ash_timer *timer);

/* vol.c */
struct sdc_vol *sdc_vol_new(struct sdc *sdc, const char *name);
void sdc_vol_free(struct sdc_vol *vol);
/* Takes size, pool, limits and mapping from the map. */
void sdc_vol_refresh(struct sdc_vol *vol);
/* Nothing more is sent; what is in flight ends with @status, later I/O with -ESHUTDOWN. */
void sdc_vol_die(struct sdc_vol *vol, int status, const char *why);
void sdc_vol_io_tick(struct ash_timer *timer);
void sdc_vol_reap(struct sdc *sdc);

/* io.c */
void sdc_io_init_vol(struct sdc_vol *vol);
void sdc_io_admit(struct sdc_vol *vol, struct sdc_io *io);
void sdc_io_complete(struct sdc_io *io, int status);
void sdc_io_piece_done(struct sdc_io *io, int status);
void sdc_io_pump(struct sdc *sdc);
void sdc_io_set_limits(struct sdc_vol *vol, uint64_t iops, uint64_t bytes_per_s);
void sdc_io_qos_tick(struct ash_timer *timer);
/* May this volume be split further now? */
void sdc_io_make_ready(struct sdc_vol *vol);

/* req.c */
struct sdc_req *sdc_req_new(struct sdc_vol *vol, uint8_t op, bool flush);
/* Enters the order of writes, then goes out when it may. */
void sdc_req_start(struct sdc_req *req);
void sdc_req_dispatch(struct sdc_req *req);
/* Ends, repeats or delays it as soon as its memory is back. It must be on no list. */
void sdc_req_settle(struct sdc_req *req, int decision);
/* The same for one that may be anywhere. */
void sdc_req_pull(struct sdc_req *req, int decision);
/* The transport gave back what it had. */
void sdc_req_returned(struct sdc_req *req);
void sdc_req_backoff_tick(struct ash_timer *timer);
/* Rows have changed: requests go where they belong now. */
void sdc_req_reroute_all(struct sdc *sdc);
void sdc_req_nobuf_retry(struct sdc *sdc);

/* reply.c */
int sdc_reply_handle(struct sdc_req *req, struct ash_msg *msg);
bool sdc_reply_place(struct sdc_req *req, const struct ash_hdr *h, uint8_t **ret_data,
		     uint32_t **ret_crc);

/* peer.c */
struct sdc_peer *sdc_peer_of(struct sdc *sdc, uint64_t sds, uint16_t reactor,
			     const struct ash_endpoint *endpoint);
void sdc_peer_enqueue(struct sdc_peer *peer, struct sdc_req *req);
void sdc_peer_close(struct sdc_peer *peer);
void sdc_peer_kick(struct sdc_peer *peer);
void sdc_peer_timer(struct sdc_peer *peer);

/* route.c */
struct ash_row *sdc_route_row(const struct sdc_vol *vol, uint64_t offset, uint32_t *ret_pg);
/* Peer of the row's primary; NULL: nobody serves, or its address is unknown. */
struct sdc_peer *sdc_route_primary(struct sdc *sdc, const struct ash_row *row);

/* flush.c */
void sdc_flush_done_vol(struct sdc_vol *vol);
void sdc_flush_submit(struct sdc_vol *vol, struct sdc_io *io);
/* Room for the pool's PGs. */
void sdc_flush_resize(struct sdc_vol *vol);
void sdc_flush_wrote(struct sdc_vol *vol, uint64_t offset);
void sdc_flush_eval(struct sdc_vol *vol);
void sdc_flush_reply(struct sdc_req *req, int status, uint64_t place_version);
void sdc_flush_fail(struct sdc_vol *vol, int status);
bool sdc_flush_needed(const struct sdc *sdc, const struct ash_map_pool *pool);

/* status.c */
void sdc_status_reply(struct sdc_req *req, const uint8_t *states, uint32_t blocks);

#endif
