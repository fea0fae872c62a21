/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Data-path wire format: SDC -> SDS and SDS -> SDS, over a reliable ordered byte stream.
 *
 * One message = 64-byte header, [32-byte relay extension if ASH_F_RELAY], payload. The payload size
 * follows from the header alone (see ash_hdr_payload() in common/shared/wire_codec.h). All fields
 * are little-endian, naturally aligned; reserved fields are sent as zero and refused when not.
 * Numbers are never reused. Freestanding: usable in kernel and user space.
 *
 * Payload of a data-carrying message: first the checksum list, one crc32c (u32 LE) for every piece
 * of the byte range cut at 4 KiB borders, then `length` bytes of data.
 *
 * crc32c everywhere = Castagnoli, init ~0, final xor ~0 (RFC 3720). The header crc covers the 64
 * header bytes with the crc field as zero.
 */
#ifndef ASHLAR_PROTO_WIRE_WIRE_H
#define ASHLAR_PROTO_WIRE_WIRE_H

#include "proto/wire/types.h"

#define ASH_WIRE_VERSION 1
#define ASH_WIRE_VERSION_MIN 1

#define ASH_SECTOR_BYTES 512u
#define ASH_BLOCK_BYTES 4096u
#define ASH_CHUNK_BYTES (1024u * 1024u)
#define ASH_CHUNK_BLOCKS (ASH_CHUNK_BYTES / ASH_BLOCK_BYTES) /* 256 */
/* Most bytes a non-data payload (rows, hello, inventory page, error detail) may have. */
#define ASH_AUX_MAX_BYTES (64u * 1024u)
/* Copies of a PG in one row: two, a third while one is being built, one in reserve. */
#define ASH_ROW_REPLICAS_MAX 4

/* Operations. Client operations < 16 <= replication < 32 <= session control. */
enum ash_op {
	ASH_OP_READ = 1,	 /* -> reply with data */
	ASH_OP_WRITE = 2,	 /* data in request; ASH_F_FUA allowed */
	ASH_OP_FLUSH = 3,	 /* node only: everything this node has acknowledged is durable */
	ASH_OP_DISCARD = 4,	 /* range reads as zeros afterwards, space may be freed */
	ASH_OP_WRITE_ZEROES = 5, /* range reads as zeros; ASH_F_NO_UNMAP keeps it allocated */
	ASH_OP_STATUS = 6, /* -> reply: one byte per block of the range, enum ash_block_state */

	ASH_OP_REPL_WRITE = 16,	  /* whole blocks, data */
	ASH_OP_REPL_DISCARD = 17, /* whole blocks */
	ASH_OP_REPL_ZEROES = 18,  /* whole blocks; ASH_F_NO_UNMAP as above */
	ASH_OP_REPL_FLUSH = 19,	  /* all replicated writes acknowledged so far are durable */
	ASH_OP_REPL_UNDO = 20,	  /* whole blocks back to "inherit" after NOSPACE elsewhere */
	ASH_OP_SETTLE = 21,	  /* nudge: epoch field carries settled; reply carries durable */
	ASH_OP_LEASE_ASK = 22,	  /* payload struct ash_wire_lease; reply = grant, same payload */
	ASH_OP_INVENTORY = 24,	  /* resync: chunks of a PG that the target holds */
	ASH_OP_HASH = 25,	  /* resync: block states and 64-bit hashes of a range */
	ASH_OP_XFER = 26,	/* resync: a run of blocks of one state, P -> target; the request's
				 * status field carries the state, data follows only for DATA */
	ASH_OP_DROP_CHUNK = 27, /* resync: target frees a chunk that the survivor has not */
	ASH_OP_SYNC_BEGIN = 28, /* resync: opens a building session for a PG on the target */
	ASH_OP_SYNC_END = 29,	/* resync: session over; target clears U marks it settled */
	ASH_OP_READ_COPY = 30,	/* P reads a range of a peer's copy for read repair */

	ASH_OP_HELLO = 32, /* first message each way; payload struct ash_wire_hello */
	ASH_OP_ROWS = 33,  /* ask: rows newer than place_version; reply: rows */
	ASH_OP_PING = 34,  /* liveness of the reactor, echoed */
};

/* Header flags. */
enum ash_flag {
	ASH_F_REPLY = 1u << 0,
	ASH_F_RELAY = 1u << 1,	  /* relay extension follows the header */
	ASH_F_FUA = 1u << 2,	  /* durable before the reply */
	ASH_F_LEASE = 1u << 3,	  /* request: asks; acknowledge: renews the read lease */
	ASH_F_BUILD = 1u << 4,	  /* addressed to a copy that is being built */
	ASH_F_NO_UNMAP = 1u << 5, /* write-zeroes must not free space */
	ASH_F_MORE = 1u << 6,	  /* reply of a paged answer: ask again from the cursor */
	ASH_F_RANDOM = 1u << 7,	  /* reserved for hints; ignored when unknown */
};

/* Reply status. Text and errno for each: common/shared/wire_codec.h. */
enum ash_status {
	ASH_ST_OK = 0,
	ASH_ST_STALE = 1,      /* sender is behind; payload: struct ash_wire_row of the PG */
	ASH_ST_BEHIND = 2,     /* receiver is behind and fetches; sender backs off and repeats */
	ASH_ST_NOT_MAPPED = 3, /* at a map at least as new as the request's epoch */
	ASH_ST_FENCED = 4,     /* a newer open epoch exists for this node and SDC */
	ASH_ST_NO_ROUTE = 5,   /* relay target cannot be reached, or asked to relay twice */
	ASH_ST_RETRY = 6,      /* no decision was possible now; nothing to fetch; back off */
	ASH_ST_NOSPACE = 7,    /* needs a new extent and none is left */
	ASH_ST_MEDIUM = 8,     /* unreadable on the last copy */
	ASH_ST_BADSUM = 9,     /* payload does not match its checksums */
	ASH_ST_INVALID = 10,   /* malformed or out of range; sender's fault, do not repeat */
	ASH_ST_READ_ONLY = 11, /* mapping or node does not allow changes */
	ASH_ST_REFUSED = 12,   /* HELLO: other system, version or identity; connection closes */
};

/*
 * The header. `epoch_or_mark`: requests of a client: open epoch; REPL_*: settled (all operations of
 * the sender with a smaller number are complete on every copy); acknowledges: durable.
 */
struct ash_wire_hdr {
	uint8_t op;
	uint8_t version;
	ash_le16 flags;
	ash_le16 path;	 /* raised at each reconnect or change of route of (sender, queue) */
	ash_le16 status; /* 0 in requests (XFER: enum ash_block_state) */
	ash_le64 tag;	 /* chosen by the requester, echoed */
	ash_le64 gen;	 /* PG generation the sender knows */
	ash_le64 node;	 /* vtree leaf node id (what a volume's data belongs to) */
	ash_le64 offset; /* bytes in the node; 512-aligned (whole blocks between SDSs) */
	ash_le32 length; /* bytes; a request never crosses a chunk border */
	ash_le32 crc;	 /* crc32c of this header with crc = 0 */
	ash_le64 place_version;
	ash_le64 epoch_or_mark;
};

/* Relay extension: who the message is really from. */
struct ash_wire_relay {
	ash_le64 sdc;
	ash_le64 session;
	ash_le16 queue;
	uint8_t hops;
	uint8_t reserved[9];
	ash_le32 crc; /* crc32c of the 28 bytes before */
};

enum ash_sender_kind {
	ASH_SENDER_SDC = 1,
	ASH_SENDER_SDS = 2,
};

#define ASH_HELLO_MAGIC 0x31726c6873410a0dull /* "\r\nAshlr1" */

/* Feature bits of HELLO: both sides use the intersection. None is defined yet. */
#define ASH_FEATURES_KNOWN 0ull

struct ash_wire_hello {
	ash_le64 magic;
	uint8_t version_min;
	uint8_t version_max;
	uint8_t sender_kind;
	uint8_t reserved0;
	ash_le32 dr_epoch;
	uint8_t system[16]; /* UUID; all zero only in a refused reply */
	ash_le64 sender;    /* SDC id or SDS id */
	ash_le64 session;   /* random per opening of the sender (process or module load) */
	ash_le64 features;
	ash_le16 queue;	  /* sender's queue (SDC) or reactor (SDS) number */
	ash_le16 reactor; /* receiver's reactor number that the sender believes to address */
	ash_le16 path;
	ash_le16 auth_kind;  /* 0 = none */
	ash_le32 auth_bytes; /* bytes of authentication data that follow, <= 4096 */
	uint8_t reserved1[60];
};

enum ash_replica_state {
	ASH_REPLICA_ABSENT = 0,	  /* known member that is away; left_gen says since when */
	ASH_REPLICA_BUILDING = 1, /* receives writes, not counted */
	ASH_REPLICA_IN_SYNC = 2,
};

#define ASH_TRANSPORT_TCP 1
#define ASH_TRANSPORT_RDMA 2

struct ash_wire_endpoint {
	uint8_t ip[16]; /* IPv6, or IPv4 mapped */
	ash_le16 port;
	uint8_t transport; /* ASH_TRANSPORT_* */
	uint8_t reserved;
};

struct ash_wire_replica {
	ash_le64 device;
	ash_le64 sds;
	ash_le64 incarnation;
	ash_le64 left_gen;
	struct ash_wire_endpoint endpoint;
	uint8_t state; /* enum ash_replica_state */
	uint8_t reserved[3];
};

struct ash_wire_row {
	ash_le64 pool;
	ash_le64 gen;
	ash_le64 shrunk_at;
	ash_le32 pg;
	uint8_t replicas; /* used entries of replica[] */
	uint8_t primary;  /* index into replica[]; 255 = none */
	uint8_t reserved[2];
	struct ash_wire_replica replica[ASH_ROW_REPLICAS_MAX];
};

/* LEASE_ASK and its reply. place_version travels in the header. */
struct ash_wire_lease {
	ash_le64 ask_id;      /* chosen by the asker; it remembers when it asked */
	ash_le32 duration_ms; /* 0 in a reply = refused */
	ash_le32 reserved;
};

/*
 * SYNC_BEGIN, SYNC_END, INVENTORY and DROP of a whole PG address it as: node = pool,
 * epoch_or_mark = PG number. INVENTORY: offset = cursor (0 first; the answer's header carries the
 * next one in offset and ASH_F_MORE while there is more). One entry of its answer:
 */
struct ash_wire_inv {
	ash_le64 node;
	ash_le64 chunk;
	ash_le64 stamp;
	ash_le32 flags; /* ASH_INV_* */
	ash_le32 reserved;
};
#define ASH_INV_UNSETTLED 1u /* may differ from a peer (U mark or hot) */

/* State of a block, on disk (two bitmaps) and in HASH and XFER payloads. */
enum ash_block_state {
	ASH_BLK_INHERIT = 0, /* not in this extent: zeros, or the ancestor's */
	ASH_BLK_DATA = 1,
	ASH_BLK_ZERO = 2,
	ASH_BLK_BAD = 3, /* unreadable, and there was no other copy */
};

/* One block of a HASH answer. */
struct ash_wire_blockhash {
	ash_le64 hash; /* xxh3-64 of the 4 KiB read from the medium; 0 unless state = DATA */
	uint8_t state; /* enum ash_block_state */
	uint8_t reserved[7];
};

#define ASH_WIRE_ASSERT(cond, name) _Static_assert(cond, name)
ASH_WIRE_ASSERT(sizeof(struct ash_wire_hdr) == 64, "header is 64 bytes");
ASH_WIRE_ASSERT(sizeof(struct ash_wire_relay) == 32, "relay extension is 32 bytes");
ASH_WIRE_ASSERT(sizeof(struct ash_wire_hello) == 128, "hello is 128 bytes");
ASH_WIRE_ASSERT(sizeof(struct ash_wire_endpoint) == 20, "endpoint is 20 bytes");
ASH_WIRE_ASSERT(sizeof(struct ash_wire_replica) == 56, "replica is 56 bytes");
ASH_WIRE_ASSERT(sizeof(struct ash_wire_row) == 32 + 4 * 56, "row is 256 bytes");
ASH_WIRE_ASSERT(sizeof(struct ash_wire_lease) == 16, "lease is 16 bytes");
ASH_WIRE_ASSERT(sizeof(struct ash_wire_inv) == 32, "inventory entry is 32 bytes");
ASH_WIRE_ASSERT(sizeof(struct ash_wire_blockhash) == 16, "block hash is 16 bytes");

#endif
