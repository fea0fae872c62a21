/* SPDX-License-Identifier: MIT */
/* Short-hands of the store's unit tests; include after cmocka.h. */
#ifndef ASHLAR_TESTS_UNIT_SDS_STORE_CASES_H
#define ASHLAR_TESTS_UNIT_SDS_STORE_CASES_H

#include "common/base/crc.h"
#include "tests/unit/sds/store_rig.h"

#define SMALL ((2u << 20) + (64u + 16u) * 4096u + (20u << 20))
static const struct sds_format_params params = {
	.al_capacity = 4, .journal_blocks = 64, .extents = 12};

static inline void fill(struct rig *r, unsigned blocks, uint8_t seed)
{
	for (unsigned b = 0; b < blocks; b++) {
		memset(r->data + (size_t)b * ASH_BLOCK_BYTES, seed + (int)b, ASH_BLOCK_BYTES);
		r->crc[b] = ash_crc32c(r->data + (size_t)b * ASH_BLOCK_BYTES, ASH_BLOCK_BYTES);
	}
}

static inline int put(struct rig *r, uint64_t chunk, unsigned first, unsigned blocks, uint8_t seed)
{
	fill(r, blocks, seed);
	return rig_op(r, SDS_STORE_WRITE, 1, chunk, first, blocks);
}

static inline void expect(struct rig *r, uint64_t chunk, unsigned first, unsigned blocks, int seed)
{
	memset(r->data, 0x5a, (size_t)blocks * ASH_BLOCK_BYTES);
	assert_int_equal(rig_op(r, SDS_STORE_READ, 1, chunk, first, blocks), 0);
	for (unsigned b = 0; b < blocks; b++) {
		const uint8_t *p = r->data + (size_t)b * ASH_BLOCK_BYTES;
		uint8_t want = seed < 0 ? 0 : (uint8_t)(seed + (int)b);

		for (unsigned i = 0; i < ASH_BLOCK_BYTES; i++)
			assert_int_equal(p[i], want);
		assert_int_equal(r->crc[b], ash_crc32c(p, ASH_BLOCK_BYTES));
		if (seed >= 0)
			assert_int_equal(r->state[b], ASH_BLK_DATA);
	}
}

static inline void begin(struct rig *r, bool write_back)
{
	rig_init(r, 42, SMALL, write_back);
	assert_int_equal(rig_probe(r), -ENODATA);
	assert_int_equal(rig_format(r, &params), 0);
	assert_int_equal(rig_open(r), 0);
}

static inline void reopen(struct rig *r)
{
	rig_cut(r);
	assert_int_equal(rig_open(r), 0);
}

#endif
