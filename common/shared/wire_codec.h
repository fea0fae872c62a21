/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Encoding and decoding of the data-path wire format: everything between the little-endian structs
 * of proto/wire/wire.h and host-order structs. Decoders trust nothing: they check version, crc,
 * reserved fields and ranges, and never read past what they are given. Pure; any thread.
 */
#ifndef ASHLAR_COMMON_SHARED_WIRE_CODEC_H
#define ASHLAR_COMMON_SHARED_WIRE_CODEC_H

#include "proto/wire/wire.h"

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#endif

/* Header in host order; field meanings as in struct ash_wire_hdr. */
struct ash_hdr {
	uint8_t op;
	uint16_t flags;
	uint16_t path;
	uint16_t status;
	uint64_t tag;
	uint64_t gen;
	uint64_t node;
	uint64_t offset;
	uint32_t length;
	uint64_t place_version;
	uint64_t mark; /* epoch_or_mark */
};

struct ash_relay {
	uint64_t sdc, session;
	uint16_t queue;
	uint8_t hops;
};

struct ash_hello {
	uint8_t version_min, version_max, sender_kind;
	uint32_t dr_epoch;
	uint8_t system[16];
	uint64_t sender, session, features;
	uint16_t queue, reactor, path, auth_kind;
	uint32_t auth_bytes;
};

/* Payload of LEASE_ASK and of its reply. */
struct ash_lease {
	uint64_t ask_id;
	uint32_t duration_ms;
};

/* One entry of an INVENTORY answer. */
struct ash_inv {
	uint64_t node, chunk, stamp;
	uint32_t flags; /* ASH_INV_* */
};

/* One block of a HASH answer. */
struct ash_blockhash {
	uint64_t hash; /* 0 unless state = ASH_BLK_DATA */
	uint8_t state; /* enum ash_block_state */
};

#define ASH_HDR_BYTES 64u
#define ASH_RELAY_BYTES 32u
#define ASH_HDR_MAX_BYTES (ASH_HDR_BYTES + ASH_RELAY_BYTES)
/* Most pieces a range inside one chunk can have: 256 blocks, cut at both ends. */
#define ASH_PIECES_MAX (ASH_CHUNK_BLOCKS + 1u)

/**
 * ash_hdr_encode() - write header, and the relay extension if ASH_F_RELAY is set.
 * Return: bytes written, ASH_HDR_BYTES or ASH_HDR_MAX_BYTES.
 */
size_t ash_hdr_encode(const struct ash_hdr *h, const struct ash_relay *relay, uint8_t *out);

/**
 * ash_hdr_decode() - check and take apart the first 64 bytes of a message.
 * Return: 0; -EBADMSG crc or unknown op; -EPROTONOSUPPORT version. Range and length are checked by
 * ash_hdr_payload(), which every receiver calls next.
 */
int ash_hdr_decode(const uint8_t in[ASH_HDR_BYTES], struct ash_hdr *ret_h);
/* Return: 0; -EBADMSG crc or reserved bytes. */
int ash_relay_decode(const uint8_t in[ASH_RELAY_BYTES], struct ash_relay *ret_relay);

/* Pieces of [offset, offset + length) cut at 4 KiB borders: how many checksums go with it. */
static inline uint32_t ash_pieces(uint64_t offset, uint32_t length)
{
	if (length == 0)
		return 0;
	return (uint32_t)(((offset % ASH_BLOCK_BYTES) + length + ASH_BLOCK_BYTES - 1) /
			  ASH_BLOCK_BYTES);
}

/**
 * ash_hdr_payload() - size of what follows header and relay extension, from the header alone.
 * @ret_crcs:       checksums at the start of the payload (4 bytes each); 0 if it carries no data.
 * @ret_data_bytes: data after them, or bytes of a payload of another kind.
 * Return: crcs * 4 + data bytes, or -EINVAL for a range or size that no sender may ask for. Ranges
 * between SDSs (replication, resync) must be whole blocks, an XFER must name a block state.
 */
int64_t ash_hdr_payload(const struct ash_hdr *h, uint32_t *ret_crcs, uint32_t *ret_data_bytes);

/* The end of what a node can have: no range that passes ash_range_ok() reaches it. */
#define ASH_NODE_MAX_BYTES (1ull << 62)

/* Does offset .. offset + length stay within one chunk, on sector borders, not empty, and below
 * ASH_NODE_MAX_BYTES, so that offset + length never wraps? */
bool ash_range_ok(uint64_t offset, uint32_t length);

/* "WRITE", "STALE" ...; "?" for unknown numbers. */
const char *ash_op_text(uint8_t op);
const char *ash_status_text(uint16_t status);
/* Negative errno that an application may see for a final status; -EAGAIN for those to repeat. */
int ash_status_errno(uint16_t status);

void ash_hello_encode(const struct ash_hello *h, struct ash_wire_hello *out);
/* Return: 0; -EBADMSG no hello of ours; -EPROTONOSUPPORT no common version. */
int ash_hello_decode(const void *in, size_t bytes, struct ash_hello *ret_h);

void ash_lease_encode(const struct ash_lease *l, struct ash_wire_lease *out);
/* @bytes: of the whole payload; what follows the lease is not looked at. Return: 0, -EBADMSG. */
int ash_lease_decode(const void *in, size_t bytes, struct ash_lease *ret_l);

void ash_inv_encode(const struct ash_inv *e, struct ash_wire_inv *out);
/* Return: 0; -EBADMSG reserved bytes, unknown flags, a node 0 or a chunk no node can have. */
int ash_inv_decode(const struct ash_wire_inv *in, struct ash_inv *ret_e);

void ash_blockhash_encode(const struct ash_blockhash *b, struct ash_wire_blockhash *out);
/* Return: 0; -EBADMSG reserved bytes, unknown state, a hash without data. */
int ash_blockhash_decode(const struct ash_wire_blockhash *in, struct ash_blockhash *ret_b);

#endif
