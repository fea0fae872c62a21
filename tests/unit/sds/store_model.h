/* SPDX-License-Identifier: MIT */
/*
 * What a store may hold: for each block the contents that are certain, and those that may be there
 * as well because an operation was not acknowledged, or not flushed on a volatile cache.
 *
 * A block's contents are eight sector versions: 0 is zeros, MODEL_BAD a block marked bad. Each
 * written sector names its node, chunk, block, sector and version, so that foreign data is seen.
 */
#ifndef ASHLAR_TESTS_UNIT_SDS_STORE_MODEL_H
#define ASHLAR_TESTS_UNIT_SDS_STORE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_NODES 3u
#define MODEL_CHUNKS 5u
#define MODEL_PLACES (MODEL_NODES * MODEL_CHUNKS)
#define MODEL_BLOCKS 24u /* of a chunk that are used: 0..15 and 248..255 */
#define MODEL_CANDS 8u
#define MODEL_BAD 0xffffffffu

struct model_block {
	uint32_t base[8];
	struct {
		uint32_t ver;
		uint64_t ack; /* when it was acknowledged; 0 = not yet */
	} cand[MODEL_CANDS];
	uint8_t cands;
	bool busy;
	bool hurt; /* an overwrite failed: any of the candidates, or a checksum error */
};

struct model_chunk {
	struct model_block b[MODEL_BLOCKS];
	bool touched; /* changed since it was last settled */
	uint64_t need_stamp;
	uint64_t birth; /* of the extent that both are about; 0 = none */
	uint32_t busy;	/* operations in flight */
};

struct model {
	struct model_chunk c[MODEL_PLACES];
	uint64_t clock;
	uint32_t version;
	bool write_back;
	char why[256]; /* the first violation; empty = none */
};

static inline unsigned model_place(uint64_t node, uint64_t chunk)
{
	return (unsigned)((node - 1) * MODEL_CHUNKS + chunk);
}
static inline uint64_t model_node(unsigned place)
{
	return place / MODEL_CHUNKS + 1;
}
static inline uint64_t model_chunk_of(unsigned place)
{
	return place % MODEL_CHUNKS;
}
static inline unsigned model_block_no(unsigned i)
{
	return i < 16 ? i : 232 + i;
}

void model_violation(struct model *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Contents of a version. */
void model_fill(uint8_t *block, unsigned place, unsigned i, uint32_t ver);
/* Which version each sector holds; false (and a violation) if it is nobody's or somebody else's. */
bool model_parse(struct model *m, const uint8_t *block, unsigned place, unsigned i,
		 uint32_t ret_ver[8]);

void model_begin(struct model_block *b, uint32_t ver);
void model_fail(struct model_block *b); /* nothing was changed */
/* Nobody knows what was changed; @hurt: and no crash came between. */
void model_unknown(struct model_block *b, bool hurt);
/* @durable: whatever happens, it is what a crash leaves. */
void model_ack(struct model *m, struct model_block *b, bool durable);
/* A flush that began at @mark has ended. */
void model_flushed(struct model *m, uint64_t mark);
/* What a read without anything in flight must return, sector by sector. */
void model_now(const struct model_block *b, uint32_t ret_ver[8]);
/* Whether a block that is hurt may hold this. */
bool model_may_be(const struct model_block *b, const uint32_t ver[8]);
/* Contents found after a crash: allowed? Then they are certain from now on. Returns whether they
 * differ from what was certain before. */
bool model_settle_crash(struct model *m, unsigned place, unsigned i, const uint32_t ver[8]);

#endif
