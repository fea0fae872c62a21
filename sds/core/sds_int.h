/* SPDX-License-Identifier: MIT */
/*
 * Private to sds/core: who holds what.
 *
 *   session (incoming connection) --message--> sds_op --range lock, fence--> begun
 *   begun op of a primary: local store operation, and one sds_slot per other copy --> peer's link
 *
 * A row of the map takes effect at receipt (pg.c). Whatever has begun keeps its range lock until
 * its own device I/O has ended; what it still needs from other copies is looked at again with each
 * new row. Callbacks of disks, connections and locks come from the loop, never from within a call.
 */
#ifndef ASHLAR_SDS_CORE_SDS_INT_H
#define ASHLAR_SDS_CORE_SDS_INT_H

#include "common/base/htab.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/base/switches.h"
#include "common/map/map.h"
#include "sds/core/range_lock.h"
#include "sds/core/sds.h"

#define MS 1000000ull
#define SEC (1000 * MS)

#define CLIENT_OPS 512u /* operations of clients at a time; more wait in their connections */
#define PEER_OPS 512u	/* replication and resync in: never behind clients */
#define SENDERS_IDLE_MAX 4096u
#define LEASE_ASK_MS 150u
#define TICK_MS 20u
#define RETRY_MS 5u	    /* after BEHIND, RETRY, or a STALE that brought nothing new */
#define BUMP_AFTER_MS 1000u /* a promise without a newer generation */
#define HELLO_MS 2000u	    /* connection and HELLO */
#define STRANGER_MS 10000u  /* who has connected has to say HELLO by then */
#define REPORT_MAX 512u	    /* PG changes in one report */
#define SYNCS_MAX 4u	    /* groups being built from here at a time */
#define SYNC_STEP_BLOCKS 32u
#define OTHERS_MAX (ASH_ROW_REPLICAS_MAX - 1)
#define CONTROL_QUEUE                                                                              \
	0x8000u /* HELLO's queue number of an SDS's lease and heartbeat connection                 \
		 */

struct sds_op;
struct sds_peer;
struct sds_sync;
struct sds_preq;

/* ------------------------------------------------------------ devices (devices.c) */

enum dev_state {
	DEV_ASKED,   /* the shell opens it */
	DEV_PROBING, /* reading the label */
	DEV_FOUND,   /* the label is known; the map has to say whose it is */
	DEV_FORMATTING,
	DEV_OPENING,
	DEV_OPEN,
	DEV_FAILED, /* waits until nothing is in flight, then it is let go */
	DEV_CLOSING,
};

struct sds_dev {
	struct ash_list link;
	struct sds *s;
	enum dev_state state;
	struct ash_disk *disk; /* ours until the store has it */
	struct sds_store *store;
	uint64_t id; /* of the MDM; while it is being added: of the order */
	struct sds_label label;
	uint64_t prev_incarnation; /* what the label said before this opening */
	uint8_t prev_nonce[16];
	char path[256];
	uint64_t serve_ns;	   /* not before: leases that an earlier opening may have granted */
	uint32_t ops;		   /* store operations of ours in flight */
	struct sds_store_op flush; /* of a flush round */
	bool write_back;
	struct ash_list stamping; /* struct stamp_job */
	bool adding, force;
	bool reporting, admitted, failure_told;
	uint64_t report_ns; /* not before */
	int error;
	char why[160];
	struct ash_list space_wait; /* ops that wait for extents */
	uint64_t found_ns, retry_ns;
	unsigned tries;
	bool strays_due, strays_later; /* stray.c: look for some; some cannot be freed yet */
	uint64_t stray_cursor, stray_ns;
};

/* ------------------------------------------------------------ placement groups (pg.c) */

enum sds_role { ROLE_NONE, ROLE_PRIMARY, ROLE_SECONDARY, ROLE_BUILDING };

/* What we ask the MDM for; one at a time per PG, repeated until it answers. */
struct sds_want {
	uint8_t action; /* Pb__PgAction, 0 = nothing */
	bool in_flight;
	uint64_t device, incarnation, gen;
	const char *reason;
};

struct sds_pool {
	uint64_t id;
	bool gone;
	uint32_t pgs;
	struct sds_pg *pg;
};

struct sds_pg {
	struct sds *s;
	struct sds_pool *pool;
	uint32_t pg;
	struct ash_row row; /* as adopted; gen 0 = never placed */
	enum sds_role role;
	uint8_t me;		  /* index in the row; role not NONE */
	bool ready;		  /* primary: begins operations */
	bool blocked;		  /* a local write failed: nothing begins before a newer gen */
	struct sds_dev *dev;	  /* role not NONE */
	struct ash_list local;	  /* s->local_pgs */
	struct ash_list inflight; /* changes begun, oldest first */
	struct ash_list parked;	  /* ops that wait until it is ready */
	uint64_t ready_ns;
	uint64_t leases_ns; /* end of what we granted to those who could be primary */
	struct ash_timer timer;
	/* From before a join is proposed until a newer gen is known: this copy counts as in sync.
	 */
	uint64_t promised; /* device, 0 = none */
	uint64_t promised_ns;
	bool proposed;		   /* the join is out: only a newer gen ends the promise */
	struct ash_list want_link; /* s->wants */
	struct sds_want want;
	struct ash_list changed; /* s->changed_pgs: operations are looked at in this turn */
	struct sds_sync *sync;	 /* primary: builds a copy */
	uint64_t sync_ns;	 /* no new session before */
	/* Copy being built: the session it accepts changes from; 0 = none. */
	uint64_t sync_from, sync_session;
	bool lost;	/* was primary until this row */
	bool stamp_due; /* alone in sync since this row */
};

static inline bool pg_is_placed(const struct sds_pg *pg)
{
	return pg->row.gen != 0;
}

/* ------------------------------------------------------------ peers (peers.c, lease.c) */

enum link_state { LINK_IDLE, LINK_BACKOFF, LINK_CONNECTING, LINK_HELLO, LINK_UP, LINK_CLOSING };

/* One outgoing connection. Reconnects by itself; each connection has a higher path. */
struct sds_link {
	struct sds_peer *peer;
	bool control; /* leases and liveness; else replication and resync */
	enum link_state state;
	struct ash_conn *conn;
	uint16_t path;
	uint64_t session;    /* of HELLO */
	uint64_t used_up_at; /* all paths used: gen that every PG shared has to pass */
	uint32_t failures;
	uint64_t began_ns;
	struct ash_list waiting, inflight; /* sds_preq */
	struct ash_timer timer;
	struct ash_msg hello;
	struct ash_wire_hello hello_wire;
};

/* The arithmetic of leases between two SDSs, free of I/O (lease.c, tested alone). */
struct sds_lease {
	/* holder */
	uint64_t valid_ns;   /* reads may be answered before this, own clock */
	uint64_t pending_ns; /* end of a grant that is not countable yet */
	uint64_t pending_version;
	/* granter */
	uint64_t granted_ns; /* end of what was granted, own clock, with the margin for drift */
};

enum preq_state { PREQ_IDLE, PREQ_DELAYED, PREQ_QUEUED, PREQ_RETURNING, PREQ_SENT };

/**
 * struct sds_preq - a request to a peer, sent again after each reconnect until it is answered.
 * @prepare:  fills msg (header but for op-independent fields, data) before each sending.
 * @answered: borrowed reply; the request is idle then. NULL: the connection ended (@once only).
 * @idle:     memory came back after preq_cancel(); may be NULL.
 * @sent_ns:  clock before the last sending; what a lease counts from.
 */
struct sds_preq {
	struct ash_list link;
	struct sds *s;
	struct sds_link *on;
	struct ash_msg msg;
	struct ash_timer timer;
	enum preq_state state;
	bool in_transport, once;
	uint32_t index, seq;
	uint64_t tag, sent_ns;
	void (*prepare)(struct sds_preq *preq);
	void (*answered)(struct sds_preq *preq, struct ash_msg *reply);
	void (*idle)(struct sds_preq *preq);
	void *owner;
};

struct sds_peer {
	struct sds *s;
	struct sds_peer *next;
	uint64_t sds;
	struct ash_endpoint endpoint;
	struct sds_link data, ctl;
	struct sds_lease lease;
	uint64_t heard_ns;
	bool shared;	    /* some PG has copies here and there */
	bool lease_changed; /* held reads may be answerable */
	struct sds_preq ask;
	struct ash_wire_lease ask_wire;
	uint64_t asked_ns, ask_id;
	struct sds_preq rows;
	uint64_t rows_ns;
	/* flush round in which it takes part */
	struct sds_preq flush;
	bool flushing;
	uint64_t flush_ns;
};

/* ------------------------------------------------------------ sessions (sessions.c) */

/* Highest path ever seen of a sender's queue. */
struct sds_sender {
	struct ash_list in_bucket, idle;
	uint8_t kind;
	uint16_t queue, path;
	uint64_t id, session;
	uint32_t refs;
};

struct sds_session {
	struct ash_list link;
	struct sds *s;
	struct ash_conn *conn; /* NULL: ended; freed with the last reference */
	struct sds_sender *sender;
	uint32_t refs;
	bool closing, paused, refused;
	uint64_t since_ns;
	struct ash_msg *backlog, **backlog_end; /* no op was left */
	/* The one answer that goes out all the time needs no buffer. */
	struct ash_msg grant;
	struct ash_wire_lease grant_wire;
	bool grant_out;
};

/* ------------------------------------------------------------ operations (op*.c, repl.c) */

enum slot_state { SLOT_FREE, SLOT_OUT, SLOT_ACKED, SLOT_REFUSED, SLOT_GONE };

/* One other copy that a change goes to. */
struct sds_slot {
	struct sds_op *op;
	struct sds_peer *peer;
	uint64_t device, incarnation;
	enum slot_state state;
	bool required; /* in sync, or promised to be */
	bool build;
	bool undo;		   /* takes back what it acknowledged */
	uint16_t refused, badsums; /* status; mismatches in flight */
	struct sds_preq preq;
};

/* One change of blocks, on every copy; an operation has up to three, one after the other. */
struct sds_step {
	uint8_t kind; /* SDS_STORE_WRITE, DISCARD, ZERO */
	uint16_t first, blocks;
	uint8_t *data;
	uint32_t *crc;
};

enum op_stage {
	OP_FREE,
	OP_NEW,
	OP_BUFFER, /* in s->buf_wait */
	OP_LOCK,   /* in the range lock's queue */
	OP_PARKED, /* in pg->parked */
	OP_BEGUN,
	OP_SPACE, /* begun; in dev->space_wait */
	OP_LEASE, /* begun; in s->lease_wait */
	OP_DONE,  /* answered; memory is still out */
};

struct sds_op {
	struct ash_list link; /* free list or the queue of its stage */
	struct sds *s;
	bool of_peer;
	enum op_stage stage;
	struct sds_session *ses; /* NULL: ours (resync) */
	struct ash_msg *req;	 /* holds the payload */
	struct ash_hdr h;
	uint64_t chunk;
	uint16_t first, blocks;
	void (*begin)(struct sds_op *op); /* with its range lock, past the fence */
	struct sds_pg *pg;
	struct sds_dev *dev;
	struct ash_list begun; /* pg->inflight */
	uint64_t seq;	       /* order of beginning, per SDS */
	uint64_t begun_ns, step_ns;
	struct sds_range range;
	/* local device */
	struct sds_store_op sop;
	bool local_busy;
	void (*stored)(struct sds_op *op, int status);
	/* buffers: of whole blocks */
	struct ash_buf *buf, *rmw;
	uint8_t *data;
	uint32_t *crc;
	/* changes */
	struct sds_step step[3];
	uint8_t steps, at;
	bool changing; /* the steps are complete, and under way */
	bool reserved, local_ok, undone, replied, exclusive;
	int local_status;
	uint16_t failed; /* status to answer when all has ended, 0 = OK */
	struct sds_slot slot[OTHERS_MAX];
	/* reads and repair */
	uint16_t rd_first, rd_blocks;
	uint8_t *rd_data;
	uint32_t *rd_crc;
	int rd_status;
	uint16_t fix_at;
	void (*rd_done)(struct sds_op *op, int status);
	struct sds_preq copy;
	/* flush */
	uint8_t flush_left;
	bool flush_failed;
	struct sds_chunk_info stamp;
	struct sds_sync *sync; /* whose work it is; ses is NULL */
	/* answer */
	struct ash_msg reply;
	bool reply_out;
	struct ash_wire_row row;
	uint32_t crcs[ASH_PIECES_MAX];
	uint8_t state[ASH_CHUNK_BLOCKS];
};

/* ------------------------------------------------------------ resync (resync.c) */

enum sync_stage {
	SYNC_BEGIN,   /* asking the target to open a session */
	SYNC_BARRIER, /* changes begun before the session end */
	SYNC_MINE,    /* own inventory */
	SYNC_THEIRS,  /* the target's */
	SYNC_CHUNKS,  /* comparing */
	SYNC_FLUSH,   /* both sides durable */
	SYNC_SETTLE,  /* stamps, and U marks go */
	SYNC_PROMISE, /* changes begun so far end on the target */
	SYNC_END,
	SYNC_JOIN, /* the MDM decides */
	SYNC_OVER, /* waits for memory and locks to come back */
};

struct sync_list {
	struct sds_chunk_info *entry;
	uint32_t count, room;
};

enum sync_sub { SUB_IDLE, SUB_LOCK, SUB_COMPARE, SUB_XFER, SUB_DROP, SUB_SETTLE };

/* The primary's side: one copy of one PG being brought up to date. */
struct sds_sync {
	struct sds *s;
	struct sds_pg *pg; /* NULL: unused */
	struct sds_peer *peer;
	uint64_t device, incarnation, left_gen;
	enum sync_stage stage;
	enum sync_sub sub;
	bool kick;	  /* to be looked at in this turn */
	bool open;	  /* the target takes part in new changes */
	bool failed;	  /* over; begun anew later */
	uint64_t barrier; /* changes up to this one began without the target */
	uint64_t promise; /* changes up to this one have to end before the join */
	uint64_t cursor;
	struct sync_list mine, theirs, set;
	uint32_t at;	    /* in set */
	uint16_t block;	    /* in the chunk */
	uint16_t step;	    /* blocks at a time */
	uint16_t run, ends; /* XFER: blocks of the step being sent */
	uint64_t stamp;
	bool have_local, have_there;
	int local_status;
	struct ash_blockhash there[SYNC_STEP_BLOCKS];
	struct sds_op *work; /* range lock, store operation, buffer */
	struct sds_preq preq;
	uint8_t request; /* op of preq */
	uint64_t done_blocks, sent_blocks;
};

/* ------------------------------------------------------------ the SDS */

struct sds {
	struct ash_port *port;
	struct ash_ctl *ctl;
	struct sds_cfg cfg;
	struct sds_shell_ops shell;
	uint64_t session; /* of HELLO */
	struct ash_map *map;
	uint64_t self;	  /* SDS id, 0 = not admitted yet */
	uint64_t row_gen; /* highest gen adopted; may be ahead of the map's place_version */
	uint64_t start_ns;
	struct ash_timer tick;
	uint64_t seq;

	struct ash_list devs;
	struct ash_htab pool_by_id; /* struct sds_pool */
	struct ash_list local_pgs, changed_pgs;
	struct sds_locks locks;

	/* operations */
	struct sds_op *client_ops, *peer_ops;
	struct ash_list client_free, peer_free;
	struct ash_list buf_wait, lease_wait;
	struct ash_buf_waiter buf_waiter;
	bool buf_freed, lease_moved, backlog_due;
	uint32_t ops_in_flight;

	/* flush rounds: of own devices; of peers */
	struct ash_list flush_next, flush_now, pflush_next, pflush_now;
	uint32_t flush_busy, pflush_busy;
	bool flush_failed, pflush_failed;

	struct ash_list sessions;
	struct ash_list *sender_bucket;
	struct ash_list senders_idle;
	uint32_t senders_idle_count;

	struct sds_peer *peers;
	struct ash_htab peer_by_id;
	struct sds_preq **preq; /* by index */
	uint32_t preqs, preq_room;
	bool peers_stale; /* who shares a PG with us must be looked up again */

	struct sds_sync sync[SYNCS_MAX];
	struct {
		struct sds_op *op; /* frees one chunk */
		uint64_t device, due_ns;
	} stray;

	/* MDM */
	bool ctl_up, registering, registered, getting_map, map_wanted, map_due, beating;
	bool reporting;
	uint64_t strangers_ns; /* when to look at them again */
	uint64_t register_ns, map_ns, beat_ns, slow_beat_ns, report_ns, told_ns, last_turn_ns;
	uint32_t worst_turn_ms;
	struct ash_list wants;
	bool devs_due, pending_due; /* look at devices; at fences and tombstones */
	struct ash_list pendings;   /* struct sds_pending, mdm_pending.c */
	bool stamp_due;

	bool stopping;
	void (*stopped)(void *arg);
	void *stopped_arg;
	struct sds_stats stats;
};

static inline uint64_t sds_now(const struct sds *s)
{
	return s->port->now_ns(s->port);
}

/* sds.c */
void sds_trace(struct sds *s, int level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* What this SDS acts on: rows may have come from peers ahead of the map. */
uint64_t sds_place_version(const struct sds *s);

/* devices.c */
void dev_turn(struct sds *s); /* orders of the map, reports due */
struct sds_dev *dev_by_id(const struct sds *s, uint64_t device); /* NULL unless open */
void dev_fill_found(const struct sds_dev *dev, Pb__FoundDevice *found);
void dev_tick(struct sds *s, uint64_t now);
/* Nothing of ours is in flight on it any more? Lets go of a failed one. */
void dev_op_ended(struct sds_dev *dev);
void dev_stop_all(struct sds *s);
void dev_free_all(struct sds *s);
uint64_t dev_deadline_ns(const struct sds *s);
/* The map shows this very opening of the device as in use. */
bool dev_admitted(const struct sds_dev *dev);

/* mdm_link.c */
void mdm_session(void *owner, bool up);
void mdm_push(void *owner, const Pb__Push *push);
void mdm_turn(struct sds *s);
void mdm_tick(struct sds *s, uint64_t now);
void mdm_want_map(struct sds *s);
/* A row heard from a peer. Return as ash_map_apply_row(). */
int mdm_take_row(struct sds *s, const struct ash_wire_row *row);
/* mdm_report.c */
void mdm_want(struct sds_pg *pg, Pb__PgAction action, uint64_t device, uint64_t incarnation,
	      const char *reason);
void mdm_unwant(struct sds_pg *pg);
void mdm_report(struct sds *s);
/* mdm_pending.c: fences and tombstones that wait for us */
void pending_turn(struct sds *s);
void pending_free(struct sds *s);

/* sessions.c */
void session_turn(struct sds *s);
void session_tick(struct sds *s, uint64_t now);
void session_put(struct sds_session *ses);
void session_close_all(struct sds *s);
void session_free_all(struct sds *s);
void session_message(struct sds_session *ses, struct ash_msg *msg);
/* Answers without an operation; frees nothing of @req. */
void session_answer(struct sds_session *ses, const struct ash_hdr *req, uint16_t status,
		    uint16_t flags, uint64_t offset, struct ash_buf *buf, uint32_t bytes);

/* A lease; not sent if the last one is still on its way. */
void session_grant(struct sds_session *ses, const struct ash_hdr *req, const struct ash_lease *l);

/* peers.c */
struct sds_peer *peer_get(struct sds *s, uint64_t sds);
struct sds_peer *peer_find(const struct sds *s, uint64_t sds);
void peer_tick(struct sds *s, uint64_t now);
void peer_close_all(struct sds *s);
void peer_free_all(struct sds *s);
void peer_refresh(struct sds *s); /* endpoints and sharing, after the map moved */
void preq_init(struct sds *s, struct sds_preq *preq, void *owner);
void preq_send(struct sds_link *on, struct sds_preq *preq);
void preq_send_later(struct sds_link *on, struct sds_preq *preq, uint64_t delay_ns);
/* No answer will be told any more. Its memory may still be out: preq->in_transport. */
void preq_cancel(struct sds_preq *preq);
static inline bool preq_out(const struct sds_preq *preq)
{
	return preq->state != PREQ_IDLE || preq->in_transport;
}
void link_close(struct sds_link *link);

/* lease.c */
void lease_granted(struct sds_lease *l, uint64_t asked_ns, uint64_t duration_ns,
		   uint64_t granter_version, uint64_t own_version);
void lease_recount(struct sds_lease *l, uint64_t own_version);
bool lease_holds(const struct sds_lease *l, uint64_t now);
void lease_book(struct sds_lease *l, uint64_t now, uint64_t duration_ns);
void lease_tick(struct sds *s, uint64_t now);
void lease_on_ask(struct sds_session *ses, struct ash_msg *msg);
void lease_on_rows(struct sds_session *ses, struct ash_msg *msg);
void lease_ask_rows(struct sds_peer *peer);
void lease_init_peer(struct sds_peer *peer);
/* A replication acknowledge with ASH_F_LEASE; @sent_ns is when its request was sent. */
void lease_from_ack(struct sds_peer *peer, uint64_t sent_ns, uint64_t version);
/* We acknowledge with ASH_F_LEASE. */
void lease_by_ack(struct sds *s, uint64_t sds);
void lease_version_moved(struct sds *s);

/* pg.c */
struct sds_pool *pg_pool(const struct sds *s, uint64_t pool);
struct sds_pg *pg_of(const struct sds *s, uint64_t node, uint64_t chunk);
struct sds_pg *pg_at(const struct sds *s, uint64_t pool, uint32_t pg);
void pg_on_row(void *arg, struct ash_map_pool *pool, uint32_t pg, const struct ash_row *old);
void pg_pool_added(struct sds *s, uint64_t pool);
void pg_pool_removed(struct sds *s, uint64_t pool);
/* Roles anew for every row that names the device: it was opened, failed, or is closed. */
void pg_device_changed(struct sds *s, uint64_t device);
void pg_turn(struct sds *s);
void pg_tick(struct sds *s, uint64_t now);
void pg_drop_all(struct sds *s); /* stopping */
void pg_free_all(struct sds *s);
/* Does the primary need this copy's acknowledges and lease? */
bool pg_needs(const struct sds_pg *pg, unsigned replica);
bool pg_leased(const struct sds_pg *pg, uint64_t now);
/* Operations, sessions and parked ones are looked at in this turn. */
void pg_touch(struct sds_pg *pg);
void pg_promise(struct sds_pg *pg, uint64_t device);
/* The local copy cannot be trusted with new changes: asks to leave, begins nothing. */
void pg_leave(struct sds_pg *pg, const char *reason);
/* Accuses copies that @sds holds (of @device, or of any) in PGs that we lead. */
void pg_accuse(struct sds *s, uint64_t sds, uint64_t device, const char *reason);
int pg_replica_of(const struct ash_row *row, uint64_t device, uint64_t incarnation);

/* fence.c: 0, a status to answer with, or FENCE_PARK */
#define FENCE_PARK 0xffffu
uint16_t fence_client(struct sds_op *op);
uint16_t fence_open(struct sds_op *op); /* epoch, mapping and path only */
uint16_t fence_repl(struct sds_op *op);
uint16_t fence_sync(struct sds_op *op);

/* op.c */
int op_init(struct sds *s);
void op_free_all(struct sds *s);
void op_turn(struct sds *s);
struct sds_op *op_get(struct sds *s, bool of_peer);
void op_put(struct sds_op *op); /* when nothing of it is out */
struct sds_op *op_of_message(struct sds_session *ses, struct ash_msg *msg, bool of_peer);
/* Takes a buffer, or waits for one: then @again is called. Return: have it. */
bool op_buffer(struct sds_op *op, struct ash_buf **ret_buf, size_t bytes,
	       void (*again)(struct sds_op *op));
/* Locks [first, first + blocks), then fence, then op->begin. */
void op_lock(struct sds_op *op, bool shared);
void op_store(struct sds_op *op, unsigned kind, uint16_t first, uint16_t blocks, uint8_t *data,
	      uint32_t *crc, void (*stored)(struct sds_op *op, int status));
/* Answers; the operation goes on until op_end(). */
void op_reply(struct sds_op *op, uint16_t status);
void op_reply_data(struct sds_op *op, uint8_t *data, uint32_t bytes, uint32_t *crc, uint32_t crcs);
/* Lets go of the range and everything else; the memory follows when it has come back. */
void op_end(struct sds_op *op);
void op_finish(struct sds_op *op, uint16_t status); /* op_reply(), op_end() */
void op_maybe_free(struct sds_op *op);
void op_session_gone(struct sds_session *ses);
void op_mark_begun(struct sds_op *op); /* a change: others wait for it in barriers */
/* Is any change begun before @seq still going on in the PG? */
bool op_barrier(const struct sds_pg *pg, uint64_t seq);
/* Is any operation on the node that began before @seq still going on? */
bool op_node_busy(const struct sds *s, uint64_t node, uint64_t seq);
void op_tick(struct sds *s, uint64_t now);

/* op_read.c, op_write.c, op_discard.c, op_flush.c */
void op_read(struct sds_op *op);
void op_status(struct sds_op *op);
void op_write(struct sds_op *op);
void op_discard(struct sds_op *op);
void op_flush(struct sds_op *op);
void op_repl_flush(struct sds_op *op);
/* Reads blocks of the local copy under an exclusive lock; takes bad ones from a peer. */
void op_read_blocks(struct sds_op *op, uint16_t first, uint16_t blocks, uint8_t *data,
		    uint32_t *crc, void (*done)(struct sds_op *op, int status));
void op_lease_again(struct sds *s); /* held reads */
void op_tick_read(struct sds_op *op);
/* Makes sure of an extent for the chunk, then calls @then; else waits, or answers NOSPACE. */
void op_reserve(struct sds_op *op, void (*then)(struct sds_op *op));
void op_space_again(struct sds_dev *dev);
/* Runs op->step[] one after the other on every copy, then op_finish(). */
void op_change(struct sds_op *op);
void op_check(struct sds_op *op); /* something of a change ended */
void op_row_changed(struct sds_pg *pg);
void op_role_lost(struct sds_pg *pg);
void flush_turn(struct sds *s);
void flush_tick(struct sds *s, uint64_t now);
void flush_init_peer(struct sds_peer *peer);

/* repl.c: the primary's sending */
void repl_send(struct sds_op *op); /* step op->at to every other copy */
void repl_cancel(struct sds_slot *slot);
void repl_undo(struct sds_op *op, struct sds_slot *slot);
void repl_row_changed(struct sds_op *op, struct sds_slot *slot);
/* repl_in.c: a copy's receiving */
void repl_message(struct sds_session *ses, struct ash_msg *msg);

/* resync.c */
void sync_init(struct sds *s);
void sync_turn(struct sds *s);
void sync_tick(struct sds *s, uint64_t now);
/* The PG has a new row, or lost its role. */
void sync_row_changed(struct sds_pg *pg);
/* The target missed a change: the session is worthless. */
void sync_missed(struct sds_pg *pg, uint64_t device, const char *why);
void sync_link_down(struct sds_peer *peer);
bool sync_takes(const struct sds_pg *pg, uint64_t device); /* new changes go to it */
void sync_free_all(struct sds *s);
/* resync_set.c */
uint32_t sync_set(struct sync_list *mine, struct sync_list *theirs, uint64_t left_gen,
		  struct sync_list *ret_set);
void sync_list_add(struct sync_list *list, const struct sds_chunk_info *info);
void sync_list_done(struct sync_list *list);
/* resync_in.c: the target's side */
void sync_message(struct sds_session *ses, struct ash_msg *msg);

/* stray.c: chunks of groups that a device has no part in any more */
void stray_due(struct sds_dev *dev); /* there may be some */
void stray_turn(struct sds *s);

/* settle.c: stamps of a sole survivor */
void settle_turn(struct sds *s);
void settle_free(struct sds_dev *dev);

#endif
