// SPDX-License-Identifier: MIT
/* Device labels: one block, any content. */
#include <errno.h>
#include <string.h>

#include "sds/core/store_format.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t block[ASH_BLOCK_BYTES] = {0}, again[2][ASH_BLOCK_BYTES];
	struct sds_label_full label, back;
	const struct sds_geo *g = &label.geo;
	int err;

	memcpy(block, data, size < sizeof(block) ? size : sizeof(block));
	err = sds_label_decode(block, &label);
	FUZZ_CHECK(err == 0 || err == -ENODATA || err == -EBADMSG || err == -EPROTONOSUPPORT);
	if (err)
		return 0;
	/* Every part lies behind the one before, and all within the disk. */
	FUZZ_CHECK(g->journal_offset > SDS_LABEL_B_OFFSET);
	FUZZ_CHECK(g->table_offset >= g->journal_offset + g->journal_blocks * ASH_BLOCK_BYTES);
	FUZZ_CHECK(g->csum_offset >= g->table_offset + g->table_blocks * ASH_BLOCK_BYTES);
	FUZZ_CHECK(g->table_blocks * SDS_ENTRIES_PER_BLOCK >= g->extents);
	FUZZ_CHECK(g->data_offset >= g->csum_offset + g->extents * ASH_BLOCK_BYTES);
	FUZZ_CHECK(g->data_offset + g->extents * ASH_CHUNK_BYTES <= label.label.disk_bytes);
	sds_label_encode(&label, again[0]);
	FUZZ_CHECK(sds_label_decode(again[0], &back) == 0);
	sds_label_encode(&back, again[1]);
	FUZZ_CHECK(!memcmp(again[0], again[1], ASH_BLOCK_BYTES));
	return 0;
}
