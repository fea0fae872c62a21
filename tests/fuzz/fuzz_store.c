// SPDX-License-Identifier: MIT
/*
 * Opening a device whose metadata is damaged: a small formatted disk with a little data, patched by
 * the input (u16 page, u16 offset, u8 length, bytes), then opened, read and closed. Wrong metadata
 * may be refused or cost data; it must not crash, hang, or hand out another extent's memory.
 */
#include <errno.h>
#include <string.h>

#include "common/base/crc.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/sds/store_rig.h"

#define EXTENTS 12u
#define META_PAGES (512u + 64u + 1u + EXTENTS) /* labels, journal, table, checksum pages */
#define DISK_BYTES ((2u << 20) + (64u + 16u) * 4096u + ((EXTENTS + 8u) << 20))

static void put(struct rig *r, uint64_t chunk, unsigned first, unsigned blocks)
{
	memset(r->data, (int)chunk, (size_t)blocks * ASH_BLOCK_BYTES);
	for (unsigned i = 0; i < blocks; i++)
		r->crc[i] = ash_crc32c(r->data, ASH_BLOCK_BYTES);
	FUZZ_CHECK(rig_op(r, SDS_STORE_WRITE, 1, chunk, first, blocks) == 0);
}

static void make_disk(struct rig *r)
{
	static const struct sds_format_params params = {
		.al_capacity = 4, .journal_blocks = 64, .extents = EXTENTS};

	rig_init(r, 7, DISK_BYTES, true);
	FUZZ_CHECK(rig_format(r, &params) == 0 && rig_open(r) == 0);
	for (uint64_t chunk = 0; chunk < 6; chunk++)
		put(r, chunk, 3, 2);
	put(r, 2, 4, 1);
	FUZZ_CHECK(rig_op(r, SDS_STORE_DROP, 1, 5, 0, ASH_CHUNK_BLOCKS) == 0);
	FUZZ_CHECK(rig_flush(r) == 0);
	rig_cut(r);
}

static void patch(struct rig *r, const uint8_t *data, size_t size)
{
	uint8_t page[ASH_BLOCK_BYTES];

	while (size >= 5) {
		uint64_t at = (uint64_t)((data[0] | data[1] << 8) % META_PAGES) * ASH_BLOCK_BYTES;
		size_t offset = (data[2] | (size_t)data[3] << 8) % ASH_BLOCK_BYTES;
		size_t n = data[4];

		data += 5;
		size -= 5;
		if (n > size)
			n = size;
		if (n > ASH_BLOCK_BYTES - offset)
			n = ASH_BLOCK_BYTES - offset;
		simdisk_peek(r->disk, at, page);
		memcpy(page + offset, data, n);
		simdisk_poke(r->disk, at, page);
		data += n;
		size -= n;
	}
}

static void use(struct rig *r)
{
	struct sds_chunk_info info[8];
	uint64_t cursor = 0;
	unsigned seen = 0;

	do {
		unsigned n = sds_store_scan(r->store, cursor, info, 8, &cursor);

		seen += n;
		FUZZ_CHECK(seen <= EXTENTS);
		for (unsigned i = 0; i < n; i++)
			FUZZ_CHECK(
				sds_store_lookup(r->store, info[i].node, info[i].chunk, &info[i]));
	} while (cursor);
	for (uint64_t chunk = 0; chunk < 6; chunk++)
		FUZZ_CHECK(rig_op(r, SDS_STORE_READ, 1, chunk, 0, 8) != -ETIME);
	memset(r->data, 9, ASH_BLOCK_BYTES);
	r->crc[0] = ash_crc32c(r->data, ASH_BLOCK_BYTES);
	FUZZ_CHECK(rig_op(r, SDS_STORE_WRITE, 2, 9, 0, 1) != -ETIME);
	FUZZ_CHECK(rig_close(r) != -ETIME);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct rig r;
	int err;

	make_disk(&r);
	patch(&r, data, size);
	err = rig_open(&r);
	FUZZ_CHECK(err <= 0 && err != -ETIME);
	if (err == 0)
		use(&r);
	rig_done(&r);
	return 0;
}
