/* SPDX-License-Identifier: MIT */
/*
 * Device store, inside. One struct sds_store and the functions by which its files know each other:
 *
 *   store_io.c      disk operations, flushes, failure, the turn
 *   journal.c       the metadata journal: group commit, seals
 *   al.c            the activity log: which chunks are hot, eviction
 *   store_csum.c    cache of checksum pages
 *   store_ckpt.c    extent table, moving the journal's tail
 *   store_index.c   (node, chunk) -> extent, free extents, reservations
 *   store_ops.c     operations from submit to done; store_change.c, store_read.c the kinds
 *   store_open.c    label, format, open, close; store_recover.c replay
 *   store_jobs.c    stamps, drops, lists, counters
 *
 * Everything runs in the reactor's thread. Whatever may have unblocked something sets `again`;
 * sds_store_turn() then goes round until nothing is left to do, and reports finished operations
 * last, so that a callback never meets a half-changed store.
 */
#ifndef ASHLAR_SDS_CORE_STORE_INT_H
#define ASHLAR_SDS_CORE_STORE_INT_H

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "common/base/list.h"
#include "common/base/switches.h"
#include "sds/core/store_format.h"

#define SDS_NONE UINT32_MAX
#define SDS_JBUFS 8u		      /* journal blocks in memory */
#define SDS_JFLY 4u		      /* of them in flight */
#define SDS_PBUFS 64u		      /* checksum pages in flight */
#define SDS_TBUFS 8u		      /* table blocks in flight */
#define SDS_SEAL_NS 1000000ull	      /* after the first unsealed write */
#define SDS_SEAL_FLUSH_NS 10000000ull /* where a seal costs a flush */
#define SDS_LABEL_NS 5000000000ull
#define SDS_PAGES_EXTRA 16384u /* most cached checksum pages beyond those of hot chunks */

/* A disk operation, on the list of those in flight. d.owner is the store. */
struct sds_io {
	struct ash_disk_op d;
	struct ash_list link;
};

/* Wants to know when journal block @seq is durable. */
struct sds_jwait {
	struct ash_list link;
	uint64_t seq;
	void (*fn)(struct sds_store *s, struct sds_jwait *wait);
};

struct sds_ext {
	struct sds_entry e;
	uint32_t slot; /* in the activity log, or SDS_NONE */
	uint32_t page; /* cached checksum page, or SDS_NONE */
	uint32_t io;   /* operations in flight on data or checksum page */
	bool freeing;  /* free record appended, extent not yet reusable */
	bool free_durable;
};

/* ------------------------------------------------------------ journal */

struct sds_jbuf {
	struct sds_io io;
	struct sds_jhdr h;
	uint8_t *buf;
	bool done;
};

/*
 * Blocks up to `durable` are durable; [durable + 1, submit_seq) are in flight; [submit_seq,
 * next_seq) are full and wait; next_seq is being built. First-write records are numbered: data of
 * all up to fw_done is written, up to fw_flushed durable, up to sealed so by a durable block.
 */
struct sds_journal {
	struct sds_jbuf b[SDS_JBUFS];
	uint64_t blocks; /* of the ring */
	uint64_t next_seq, submit_seq, durable, newest_done, tail, durable_tail;
	uint64_t fw_last, fw_done, fw_flushed, sealed, sealed_submitted, seal_want;
	uint64_t *fw_end;	/* per ring position: fw_last at the end of the block */
	struct ash_list fw;	/* operations whose first-write data is in flight, by number */
	struct ash_list waits;	/* by seq */
	uint32_t used, records; /* of the block being built */
	uint32_t room;		/* for records in a block; tests make it smaller */
	uint32_t inflight;
	bool force; /* write the block being built, empty or not */
	struct ash_timer seal_timer;
};

/* Who may use how much of the ring. */
enum sds_jclass {
	SDS_J_CLIENT,
	SDS_J_PEER,	/* replication, rebuild, undo, eviction */
	SDS_J_INTERNAL, /* what moves the tail; undo of a failed write */
};

void sds_journal_start(struct sds_store *s, uint64_t seq, uint64_t fw_last);
bool sds_journal_room(struct sds_store *s, enum sds_jclass cls, size_t bytes);
/* Room was asked for before. Return: seq of the block the record is in. */
uint64_t sds_journal_entry(struct sds_store *s, unsigned flags, uint32_t ext, unsigned first,
			   unsigned count, const uint32_t *crc, const struct sds_entry *before);
uint64_t sds_journal_hot(struct sds_store *s, uint32_t ext);
/* Whether the record in block @seq is durable, and found by a replay. */
static inline bool sds_journal_durable(const struct sds_journal *j, uint64_t seq)
{
	return seq <= (ASH_RULE(JOURNAL_PREFIX) ? j->durable : j->newest_done);
}
void sds_journal_wait(struct sds_store *s, struct sds_jwait *wait, uint64_t seq);
void sds_journal_run(struct sds_store *s);
/* First-write data of an operation has been written. */
struct sds_opx;
void sds_journal_fw_done(struct sds_store *s, struct sds_opx *x);
static inline void sds_want_seal(struct sds_journal *j, uint64_t fw_no)
{
	if (fw_no > j->seal_want)
		j->seal_want = fw_no;
}

/* ------------------------------------------------------------ activity log */

enum sds_slot_state {
	SDS_SLOT_FREE,
	SDS_SLOT_HOT,
	SDS_SLOT_PAGE,	 /* leaving: checksum page on its way */
	SDS_SLOT_FLUSH,	 /* leaving: waits for a flush */
	SDS_SLOT_READY,	 /* leaving: waits for room in the journal */
	SDS_SLOT_GONE,	 /* leaving: record appended */
	SDS_SLOT_ORPHAN, /* its chunk was freed, an operation still holds it */
};

/*
 * @open_seq: journal block of the record that opened it: valid blocks may be overwritten once that
 * is durable. @stamp_seq: of the record that last raised the stamp. @age_seq: block of the last
 * record that shows it open; the tail stays before.
 * @unsealed: blocks first-written with a number up to @fw_no. @older: those with a number up to
 * @older_no, set apart when somebody waits for them, so that first writes that go on in the same
 * chunk do not make it wait for ever.
 */
struct sds_slot {
	uint32_t ext;
	uint16_t inflight;
	uint8_t state;
	uint64_t open_seq, age_seq, stamp_seq, fw_no, flush_ticket;
	uint64_t older_no;
	uint64_t unsealed[SDS_BITMAP_WORDS], older[SDS_BITMAP_WORDS];
	struct ash_list lru, age;
	struct sds_jwait wait;
};

struct sds_al {
	struct sds_slot *slots;
	uint32_t capacity, free_count, evicting;
	uint32_t *free;
	struct ash_list lru, leaving, age;
};

int sds_al_init(struct sds_store *s);
void sds_al_done(struct sds_store *s);
/* The slot of an extent, as hot as it can be had; NULL when none is free. *ret_open: a record must
 * open it (in the same breath, with sds_al_opened). */
struct sds_slot *sds_al_get(struct sds_store *s, uint32_t ext, bool *ret_open);
bool sds_al_can_get(struct sds_store *s, uint32_t ext);
/* A record that shows the slot open was appended to block @seq. */
void sds_al_recorded(struct sds_store *s, struct sds_slot *slot, uint64_t seq, bool open);
void sds_al_unpin(struct sds_store *s, struct sds_slot *slot);
void sds_al_drop(struct sds_store *s, uint32_t ext); /* the chunk was freed */
/* The first-write number that must be sealed before these blocks are overwritten, or 0. */
uint64_t sds_al_unsealed(struct sds_store *s, struct sds_slot *slot, unsigned first,
			 unsigned count);
void sds_al_page_written(struct sds_store *s, uint32_t ext, bool dirty);
void sds_al_run(struct sds_store *s);

/* ------------------------------------------------------------ checksum pages */

enum sds_page_state {
	SDS_PAGE_FREE,
	SDS_PAGE_EMPTY, /* only blocks in `have` are right */
	SDS_PAGE_LOADING,
	SDS_PAGE_LOADED,
};

struct sds_page {
	uint32_t ext;
	uint8_t state;
	bool dirty, writing, want_write, want_load;
	uint32_t pins;
	uint64_t known[SDS_BITMAP_WORDS], have[SDS_BITMAP_WORDS];
	uint32_t crc[ASH_CHUNK_BLOCKS];
	struct ash_list lru;	      /* unpinned and clean ones, oldest first */
	struct ash_list queue;	      /* waits for a buffer */
	struct sds_store_op *readers; /* wait for the load */
};

struct sds_pbuf {
	struct sds_io io;
	uint8_t *buf;
	uint32_t page, ext;
	struct sds_pbuf *next;
};

struct sds_pages {
	struct sds_page *pages;
	uint32_t count, used;
	struct ash_list lru, queue;
	struct sds_pbuf bufs[SDS_PBUFS];
	struct sds_pbuf *free;
};

int sds_pages_init(struct sds_store *s);
void sds_pages_done(struct sds_store *s);
/* The page of an extent, pinned; NULL when all are in use. @fresh: a new extent, nothing to load.
 */
struct sds_page *sds_page_get(struct sds_store *s, uint32_t ext, bool fresh);
bool sds_page_can_get(struct sds_store *s, uint32_t ext);
void sds_page_unpin(struct sds_store *s, struct sds_page *page);
/* Calls sds_read_page_ready() for the operation once the page is loaded. */
void sds_page_load(struct sds_store *s, struct sds_page *page, struct sds_store_op *reader);
bool sds_page_covers(const struct sds_page *page, const struct sds_entry *e, unsigned first,
		     unsigned count);
void sds_page_set(struct sds_page *page, unsigned block, uint32_t crc);
/* Writes a dirty page (loading it first if need be), then sds_al_page_written(). */
void sds_page_write(struct sds_store *s, struct sds_page *page);
void sds_page_drop(struct sds_store *s, uint32_t ext);
void sds_pages_run(struct sds_store *s);

/* ------------------------------------------------------------ table, checkpoint */

struct sds_tblock {
	uint64_t dirty_from; /* journal block of the oldest change not in the table; 0 = clean */
	uint32_t next;	     /* by dirty_from */
	bool writing;
};

struct sds_tbuf {
	struct sds_io io;
	struct sds_jwait wait;
	uint8_t *buf;
	uint32_t block;
	struct sds_tbuf *next;
};

struct sds_ckpt {
	struct sds_tblock *blocks;
	uint32_t first_dirty, last_dirty;
	struct sds_tbuf bufs[SDS_TBUFS];
	struct sds_tbuf *free;
	uint32_t writing;
	uint64_t target; /* tail to reach; 0 = idle */
	uint64_t carry_seq, flush_ticket;
	bool flushing, moved;
};

int sds_ckpt_init(struct sds_store *s);
void sds_ckpt_done(struct sds_store *s);
void sds_table_dirty(struct sds_store *s, uint32_t ext);
void sds_ckpt_run(struct sds_store *s);

/* ------------------------------------------------------------ index, space */

struct sds_resv {
	uint64_t node, chunk;
	uint32_t count; /* 0 = free place */
	bool held;	/* an extent is kept for it */
};
#define SDS_RESV_PLACES 8192u

int sds_index_init(struct sds_store *s);
void sds_index_done(struct sds_store *s);
uint32_t sds_index_find(const struct sds_store *s, uint64_t node, uint64_t chunk);
/* Return: false if the chunk is there already. */
bool sds_index_add(struct sds_store *s, uint32_t ext);
void sds_index_remove(struct sds_store *s, uint32_t ext);
/* 0: sds_space_take() will succeed; -EAGAIN frees are pending; -ENOSPC. */
int sds_space_check(const struct sds_store *s, const struct sds_store_op *op);
uint32_t sds_space_take(struct sds_store *s, struct sds_store_op *op);
void sds_space_used(struct sds_store *s, uint64_t node, uint64_t chunk); /* a reservation */
/* Makes an extent reusable if nothing holds it any longer. */
void sds_space_release(struct sds_store *s, uint32_t ext);
static inline void sds_ext_unpin(struct sds_store *s, uint32_t ext);

/* ------------------------------------------------------------ operations */

#define SDS_X_DATA 1u	  /* data in flight */
#define SDS_X_JOURNAL 2u  /* record in flight */
#define SDS_X_DEFERRED 4u /* data starts when the record is durable */
#define SDS_X_FAILED 8u	  /* data could not be written: take the change back */
#define SDS_X_PAGE 16u	  /* checksum page on its way */
#define SDS_X_FREE 32u	  /* frees its extent */
#define SDS_X_FIRST 64u	  /* has a first-write record */
#define SDS_X_STAMP 256u  /* raised the chunk's stamp */
#define SDS_X_SINGLE 128u /* read block by block after an error */

/* What an operation keeps in its priv[]. */
struct sds_opx {
	struct sds_io io;
	struct sds_jwait wait;
	struct ash_list fw;
	uint64_t fw_no, ticket;
	struct sds_slot *slot;
	struct sds_page *page;
	uint32_t ext;
	int32_t status;
	uint32_t flags;
	uint16_t lo, hi; /* READ: blocks read from the disk */
	uint16_t at;	 /* READ: block of a single read */
	uint64_t before_lo[SDS_BITMAP_WORDS], before_hi[SDS_BITMAP_WORDS];
};
_Static_assert(sizeof(struct sds_opx) <= sizeof(((struct sds_store_op *)0)->priv),
	       "an operation has room for what the store keeps");

static inline struct sds_opx *sds_opx(struct sds_store_op *op)
{
	return (struct sds_opx *)(void *)op->priv;
}
static inline struct sds_store_op *sds_op_of(struct sds_opx *x)
{
	return ash_container_of(x, struct sds_store_op, priv);
}

struct sds_queue {
	struct sds_store_op *head, *tail;
};
static inline void sds_queue_add(struct sds_queue *q, struct sds_store_op *op)
{
	op->next = NULL;
	if (q->tail)
		q->tail->next = op;
	else
		q->head = op;
	q->tail = op;
}

void sds_op_begin(struct sds_store *s, struct sds_store_op *op);
void sds_op_done(struct sds_store *s, struct sds_store_op *op, int status);
void sds_queues_run(struct sds_store *s);
void sds_ops_fail(struct sds_store *s);
void sds_read_begin(struct sds_store *s, struct sds_store_op *op);
void sds_read_page_ready(struct sds_store *s, struct sds_store_op *op);
void sds_change_begin(struct sds_store *s, struct sds_store_op *op);
void sds_change_undo(struct sds_store *s, struct sds_store_op *op);

/* ------------------------------------------------------------ jobs */

struct sds_job {
	struct sds_job *next;
	struct sds_jwait wait;
	const struct sds_chunk_info *list; /* stamp */
	unsigned count;
	uint64_t at, node, gen, last_seq;
	bool drop, waiting;
	unsigned inflight; /* drops */
	int status;
	void (*done)(void *arg, int status);
	void *arg;
};
void sds_jobs_run(struct sds_store *s);
void sds_jobs_fail(struct sds_store *s);

/* ------------------------------------------------------------ recovery */

/* Blocks of an extent whose unsealed first write may be missing. */
struct sds_pend {
	uint64_t mask[SDS_BITMAP_WORDS];
	uint32_t crc[ASH_CHUNK_BLOCKS];
	uint8_t before[ASH_CHUNK_BLOCKS];
};

struct sds_recovery {
	struct sds_store *store;
	uint8_t boot_id[16];
	void (*done)(void *arg, int result, struct sds_store *store);
	void *arg;
	struct sds_io io;
	struct sds_jwait wait;
	uint8_t *buf; /* 1 MiB */
	uint64_t at, bytes;
	int label_result;
	uint8_t *ring;
	struct sds_pend **pend;		   /* per extent */
	uint64_t *hot, *damaged, *changed; /* bitmaps: extents, extents, table blocks */
	uint64_t next_seq, fw_last, sealed;
	uint32_t ext; /* verify: extent; write-back: table block */
	unsigned first, count, rolled_back;
	bool single;
};

/* ------------------------------------------------------------ the store */

struct sds_store {
	struct ash_port *port;
	struct ash_disk *disk;
	struct sds_label_full label;
	struct sds_ext *ext;
	uint32_t extents;
	uint32_t *free;
	uint32_t free_count, held, used, pending_free, retired;
	uint32_t *index;
	uint32_t index_mask;
	struct sds_resv *resv;
	uint32_t resv_count;
	struct sds_journal j;
	struct sds_al al;
	struct sds_pages pages;
	struct sds_ckpt ck;

	uint64_t flush_started, flush_completed, flush_fw;
	bool flush_want, flush_inflight;
	struct sds_io flush_io;

	struct ash_list inflight; /* disk operations, oldest first */
	uint32_t inflight_count, ops;
	struct sds_queue q_journal[2], q_al, q_page, q_space, q_seal, q_flush, q_done;
	bool wake_journal, wake_al, wake_page, wake_space, wake_seal, wake_flush;
	bool retrying;
	struct sds_job *jobs, **jobs_end;

	struct ash_task task;
	bool posted, in_turn, again, started, closing, dead, forgotten;
	int failed;
	bool failed_told, space_asked;
	struct sds_store_events events;

	struct ash_timer label_timer;
	uint8_t *label_buf;
	struct sds_io label_io;
	uint8_t label_step; /* 0 idle, 1 first copy, 2 second copy being written */
	bool label_again;
	void (*label_done)(struct sds_store *s);
	struct sds_recovery *recovery; /* while opening */
	void (*close_done)(void *arg, int result);
	void *close_arg;
	uint8_t close_step;
	struct sds_store_stats stats;
};

static inline void sds_ext_unpin(struct sds_store *s, uint32_t ext)
{
	assert(s->ext[ext].io > 0);
	if (--s->ext[ext].io == 0 && s->ext[ext].freeing)
		sds_space_release(s, ext);
}

/* store_io.c */
void sds_io_submit(struct sds_store *s, struct sds_io *io, unsigned kind, uint64_t offset,
		   void *data, uint64_t bytes, bool fua,
		   void (*done)(struct ash_disk_op *op, int result));
/* First thing in every completion. Return: true if the store is dead: touch nothing more. */
bool sds_io_end(struct sds_store *s, struct sds_io *io);
static inline struct sds_io *sds_io_of(struct ash_disk_op *d)
{
	return ash_container_of(d, struct sds_io, d);
}
/* Done when s->flush_completed reaches it: a flush begun after this call has ended. */
uint64_t sds_flush_ticket(struct sds_store *s);
static inline bool sds_flush_passed(const struct sds_store *s, uint64_t ticket)
{
	return s->flush_completed >= ticket;
}
void sds_fail(struct sds_store *s, int err, const char *what);
void sds_store_trace(struct sds_store *s, int level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void sds_store_turn(struct sds_store *s);
void sds_kick(struct sds_store *s); /* a turn, soon */
void sds_post(struct sds_store *s); /* a turn of its own, even if in one; frees a dead store */
void *sds_aligned(size_t bytes);    /* 4 KiB aligned, or NULL */

static inline uint64_t sds_data_offset(const struct sds_store *s, uint32_t ext, unsigned block)
{
	return s->label.geo.data_offset + (uint64_t)ext * ASH_CHUNK_BYTES +
	       (uint64_t)block * ASH_BLOCK_BYTES;
}
static inline uint64_t sds_csum_offset(const struct sds_store *s, uint32_t ext)
{
	return s->label.geo.csum_offset + (uint64_t)ext * ASH_BLOCK_BYTES;
}

/* store_open.c */
void sds_store_free(struct sds_store *s);
void sds_close_run(struct sds_store *s);
/* Writes both copies, one after the other; label_done (if set) when they are durable. */
void sds_label_write(struct sds_store *s);
/* The label that counts of two copies as read. Return: as sds_store_probe(). */
int sds_label_choose(const uint8_t *a, int a_result, const uint8_t *b, int b_result,
		     struct sds_label_full *ret_label);
/* As sds_store_format(), with the geometry of a test. */
void sds_store_format_params(struct ash_port *port, struct ash_disk *disk,
			     const struct sds_label *label, const struct sds_format_params *params,
			     void (*done)(void *arg, int result), void *arg);

/* store_recover.c */
void sds_recovery_free(struct sds_recovery *r);
/* store_replay.c: what the journal says about the table; pure but for tracing. */
int sds_replay(struct sds_store *s, struct sds_recovery *r);
/* Marks what was hot, builds index and free list. */
int sds_replay_finish(struct sds_store *s, struct sds_recovery *r);

#endif
