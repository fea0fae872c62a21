// SPDX-License-Identifier: MIT
#include "tests/unit/sds/store_fuzz.h"

#include "tests/unit/sds/store_rig.h"

static void take_block(const uint8_t *data, size_t bytes, uint8_t block[ASH_BLOCK_BYTES])
{
	memset(block, 0, ASH_BLOCK_BYTES);
	if (bytes)
		memcpy(block, data, bytes < ASH_BLOCK_BYTES ? bytes : ASH_BLOCK_BYTES);
}

int store_fuzz_label(const uint8_t *data, size_t bytes)
{
	_Alignas(8) uint8_t block[ASH_BLOCK_BYTES], again[ASH_BLOCK_BYTES];
	struct sds_label_full label;

	take_block(data, bytes, block);
	if (sds_label_decode(block, &label) == 0)
		sds_label_encode(&label, again);
	return 0;
}

int store_fuzz_journal(const uint8_t *data, size_t bytes)
{
	_Alignas(8) uint8_t block[ASH_BLOCK_BYTES];
	struct sds_jhdr hdr;
	struct sds_jrec rec;
	size_t pos = 0;
	unsigned sum = 0;

	take_block(data, bytes, block);
	if (sds_jblock_decode(block, &hdr))
		return 0;
	while (sds_jblock_next(block, &hdr, &pos, &rec))
		for (unsigned i = 0; rec.flags & SDS_JF_FIRST && rec.list && i < rec.count; i++)
			sum += sds_jrec_crc(&rec, i) + sds_jrec_before(&rec, i);
	return (int)(sum & 0);
}

int store_fuzz_table(const uint8_t *data, size_t bytes)
{
	_Alignas(8) uint8_t block[ASH_BLOCK_BYTES];
	struct sds_entry e;
	struct sds_csum page;

	take_block(data, bytes, block);
	for (unsigned i = 0; i < SDS_ENTRIES_PER_BLOCK; i++)
		sds_entry_decode(block + (size_t)i * SDS_ENTRY_BYTES, &e);
	sds_csum_decode(block, &page);
	return 0;
}

/* Any answer will do, but there must be one. */
static void use(struct rig *r, unsigned kind, uint64_t chunk, unsigned first, unsigned blocks)
{
	int status = rig_op(r, kind, 1, chunk, first, blocks);

	assert(status != -ETIME);
}

int store_fuzz_open(const uint8_t *data, size_t bytes)
{
	const struct sds_format_params params = {
		.al_capacity = 3, .journal_blocks = 16, .extents = 6};
	_Alignas(8) uint8_t block[ASH_BLOCK_BYTES];
	struct rig r;
	uint64_t at;

	rig_init(&r, 1, (2u << 20) + (1u << 20) + (7u << 20), false);
	if (rig_format(&r, &params) == 0) {
		/* table first: the journal ends where the table begins */
		at = SDS_JOURNAL_OFFSET + (uint64_t)params.journal_blocks * ASH_BLOCK_BYTES;
		for (unsigned n = 0; bytes && n < 17; n++, at -= ASH_BLOCK_BYTES) {
			size_t step = bytes < ASH_BLOCK_BYTES ? bytes : ASH_BLOCK_BYTES;

			take_block(data, step, block);
			simdisk_poke(r.disk, at, block);
			data += step;
			bytes -= step;
		}
		if (rig_open(&r) == 0) {
			memset(r.data, 0, 3 * ASH_BLOCK_BYTES);
			for (unsigned c = 0; c < 8; c++) {
				use(&r, SDS_STORE_READ, c, 0, 256);
				use(&r, SDS_STORE_WRITE, c, c, 3);
				use(&r, SDS_STORE_DISCARD, c + 1, 0, 256);
			}
			assert(rig_close(&r) != -ETIME);
		}
	}
	rig_done(&r);
	return 0;
}
