/* SPDX-License-Identifier: MIT */
/*
 * Device store: the disk format and its pure encoders and decoders (docs/disk-format.md).
 *
 * Everything on disk is little-endian. Decoders take bytes from outside: they check every length,
 * index and checksum, and never assert. In fuzzing builds the checksums are not compared, so that
 * the code behind them is reached.
 */
#ifndef ASHLAR_SDS_CORE_STORE_FORMAT_H
#define ASHLAR_SDS_CORE_STORE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wire/wire.h"
#include "sds/core/store.h"

#define SDS_LABEL_VERSION 1u
#define SDS_LABEL_A_OFFSET 0ull
#define SDS_LABEL_B_OFFSET (1ull << 20)
#define SDS_JOURNAL_OFFSET (2ull << 20)
#define SDS_AL_MAX 65536u
#define SDS_ENTRY_BYTES 128u
#define SDS_ENTRIES_PER_BLOCK (ASH_BLOCK_BYTES / SDS_ENTRY_BYTES)
#define SDS_BITMAP_WORDS (ASH_CHUNK_BLOCKS / 64u)
#define SDS_EXTENTS_MAX (1ull << 31)
#define SDS_COUNTER_MAX (1ull << 62) /* no counter on disk ever comes near */

/* Feature bits this code understands. None is defined yet. */
#define SDS_INCOMPAT_KNOWN 0ull
#define SDS_RO_COMPAT_KNOWN 0ull

/* Where things are. Offsets in bytes, multiples of 4 KiB. */
struct sds_geo {
	uint64_t journal_offset, journal_blocks;
	uint64_t table_offset, table_blocks;
	uint64_t csum_offset, data_offset;
	uint64_t extents;
	uint32_t al_capacity;
};

/* Overrides for tests; 0 = what the size of the disk gives. */
struct sds_format_params {
	uint32_t al_capacity;
	uint32_t journal_blocks;
	uint64_t extents;
};

/**
 * sds_geo_compute() - lay out a disk of @disk_bytes.
 * Return: 0 or -EOVERFLOW when not even one extent fits.
 */
int sds_geo_compute(uint64_t disk_bytes, const struct sds_format_params *params,
		    struct sds_geo *ret_geo);
/* Whether a geometry is consistent and fits in @disk_bytes: 0 or -EBADMSG. */
int sds_geo_check(const struct sds_geo *geo, uint64_t disk_bytes);

/* The whole label: what others see, and what only the store needs. */
struct sds_label_full {
	struct sds_label label;
	struct sds_geo geo;
	uint64_t seq; /* of label writes; the higher valid copy counts */
};

void sds_label_encode(const struct sds_label_full *label, uint8_t out[ASH_BLOCK_BYTES]);
/**
 * sds_label_decode() - decode one copy.
 * Return: 0; -ENODATA not a label of ours; -EBADMSG ours but damaged; -EPROTONOSUPPORT version or
 * incompatible feature bits (*ret_label is filled as far as known).
 */
int sds_label_decode(const uint8_t in[ASH_BLOCK_BYTES], struct sds_label_full *ret_label);

/* Flags of an extent entry. */
#define SDS_EXT_USED 1u
#define SDS_EXT_UNSETTLED 2u /* may differ from a peer's copy */
#define SDS_EXT_RETIRED 4u   /* a write failed here; never allocated again once freed */

/*
 * struct sds_entry - who owns an extent, and the state of its blocks (bit pair lo, hi = enum
 * ash_block_state). A free entry may still name its former owner.
 * @stamp:    gen of the last change that a returning copy has to hear of.
 * @seq:      journal block that holds the entry's last image.
 * @birth:    journal block of the allocation; tells checksum pages of former owners apart.
 * @distrust: checksum pages written in an incarnation before this one may be out of date.
 */
struct sds_entry {
	uint64_t node, chunk, stamp, seq, birth, distrust;
	uint64_t lo[SDS_BITMAP_WORDS], hi[SDS_BITMAP_WORDS];
	uint32_t flags;
};

void sds_entry_encode(const struct sds_entry *entry, uint8_t out[SDS_ENTRY_BYTES]);
/* Return: 0 (all zero bytes are a free entry) or -EBADMSG. */
int sds_entry_decode(const uint8_t in[SDS_ENTRY_BYTES], struct sds_entry *ret_entry);

static inline unsigned sds_entry_state(const struct sds_entry *e, unsigned block)
{
	return (unsigned)((e->lo[block / 64] >> (block % 64) & 1) |
			  (e->hi[block / 64] >> (block % 64) & 1) << 1);
}
static inline void sds_entry_set_state(struct sds_entry *e, unsigned block, unsigned state)
{
	uint64_t bit = 1ull << (block % 64);

	if (state & 1)
		e->lo[block / 64] |= bit;
	else
		e->lo[block / 64] &= ~bit;
	if (state & 2)
		e->hi[block / 64] |= bit;
	else
		e->hi[block / 64] &= ~bit;
}
static inline bool sds_entry_empty(const struct sds_entry *e)
{
	uint64_t any = 0;

	for (unsigned i = 0; i < SDS_BITMAP_WORDS; i++)
		any |= e->lo[i] | e->hi[i];
	return any == 0;
}

/*
 * struct sds_csum - a checksum page.
 * @birth: of the entry it belongs to. @incarnation: in which it was written.
 * @known: bit set: crc[i] is that of the block's data; clear: nothing is known of block i.
 */
struct sds_csum {
	uint64_t node, chunk, birth, seq, incarnation;
	uint64_t known[SDS_BITMAP_WORDS];
	uint32_t crc[ASH_CHUNK_BLOCKS];
};

void sds_csum_encode(const struct sds_csum *page, uint8_t out[ASH_BLOCK_BYTES]);
/* Return: 0 or -EBADMSG (then its checksums are unknown; the data is not bad for that). */
int sds_csum_decode(const uint8_t in[ASH_BLOCK_BYTES], struct sds_csum *ret_page);

/*
 * Journal block: header, then records.
 * @seq:      of the block; it lies at ring position seq % blocks.
 * @sealed:   all first-write records with a number <= this have their data durable.
 * @tail:     blocks before this one are no longer needed.
 * @durable:  all blocks up to this one were durable when this one was written.
 * @fw_first: number of the first first-write record in this block (later ones count up).
 */
struct sds_jhdr {
	uint64_t seq, incarnation, sealed, tail, durable, fw_first;
	uint8_t device_uuid[16];
	uint16_t bytes, records; /* of the records */
};
#define SDS_JHDR_BYTES 80u
#define SDS_JBLOCK_ROOM (ASH_BLOCK_BYTES - SDS_JHDR_BYTES)

enum sds_jrec_type {
	SDS_JREC_ENTRY = 1, /* after-image of an extent entry */
	SDS_JREC_HOT = 2,   /* a chunk enters, or still is in, the activity log */
	SDS_JREC_DATA = 3,  /* reserved: data in the journal */
	SDS_JREC_BITS = 4,  /* reserved: bitmap of changed blocks */
};
#define SDS_JF_OPEN 1u	/* ENTRY: the chunk is in the activity log from here on */
#define SDS_JF_LEAVE 2u /* ENTRY: ... no longer */
#define SDS_JF_FIRST 4u /* ENTRY: first write; checksums and former states follow */
#define SDS_JF_FREE 8u	/* ENTRY: the extent is freed; the image names the former owner */

/*
 * struct sds_jrec - one record.
 * @first, count: blocks that this change touched.
 * @list: with FIRST: count x le32 checksum, then count x former state; read with the functions
 * below. Blocks whose former state was DATA are overwrites that rode along.
 */
struct sds_jrec {
	uint8_t type, flags;
	uint32_t ext;
	uint16_t first, count;
	struct sds_entry entry; /* HOT: only node and chunk */
	const uint8_t *list;
};

#define SDS_JREC_HOT_BYTES 24u
static inline size_t sds_jrec_entry_bytes(unsigned first_writes)
{
	return 144 + ((size_t)first_writes * 5 + 7) / 8 * 8;
}
static inline uint32_t sds_jrec_crc(const struct sds_jrec *rec, unsigned i)
{
	const uint8_t *p = rec->list + (size_t)i * 4;

	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline unsigned sds_jrec_before(const struct sds_jrec *rec, unsigned i)
{
	return rec->list[(size_t)rec->count * 4 + i] & 3;
}

/**
 * sds_jrec_put_entry() - write an ENTRY record at @at (room: sds_jrec_entry_bytes()).
 * @crc, before: only with SDS_JF_FIRST: checksums of the blocks; entry before the change.
 * Return: bytes written.
 */
size_t sds_jrec_put_entry(uint8_t *at, unsigned flags, uint32_t ext, unsigned first, unsigned count,
			  const struct sds_entry *entry, const uint32_t *crc,
			  const struct sds_entry *before);
size_t sds_jrec_put_hot(uint8_t *at, uint32_t ext, uint64_t node, uint64_t chunk);

/* Fills in the header of a block whose records are in place, and zeroes what follows them. */
void sds_jblock_encode(const struct sds_jhdr *hdr, uint8_t block[ASH_BLOCK_BYTES]);
/* Checks header, crc and the shape of every record: 0 or -EBADMSG. */
int sds_jblock_decode(const uint8_t block[ASH_BLOCK_BYTES], struct sds_jhdr *ret_hdr);
/* The record at *pos (0 first) of a block that decode accepted; false at the end. */
bool sds_jblock_next(const uint8_t block[ASH_BLOCK_BYTES], const struct sds_jhdr *hdr, size_t *pos,
		     struct sds_jrec *ret_rec);

#endif
