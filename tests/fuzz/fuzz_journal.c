// SPDX-License-Identifier: MIT
/* Metadata blocks of a device: the first byte says which decoder gets the rest. */
#include <errno.h>
#include <string.h>

#include "sds/core/store_format.h"
#include "tests/fuzz/fuzz.h"

/* Where values go that only had to be read. */
static volatile uint32_t sink;

static void check_entry(const struct sds_entry *e)
{
	uint8_t raw[SDS_ENTRY_BYTES];
	struct sds_entry again;

	sds_entry_encode(e, raw);
	FUZZ_CHECK(sds_entry_decode(raw, &again) == 0);
	FUZZ_CHECK(again.node == e->node && again.chunk == e->chunk && again.flags == e->flags);
	for (unsigned i = 0; i < ASH_CHUNK_BLOCKS; i++)
		FUZZ_CHECK(sds_entry_state(&again, i) == sds_entry_state(e, i));
}

static void try_journal(const uint8_t block[ASH_BLOCK_BYTES])
{
	struct sds_jhdr hdr;
	struct sds_jrec rec;
	unsigned records = 0;
	uint32_t sum = 0;
	size_t pos = 0;

	if (sds_jblock_decode(block, &hdr))
		return;
	FUZZ_CHECK(hdr.bytes <= SDS_JBLOCK_ROOM);
	while (sds_jblock_next(block, &hdr, &pos, &rec)) {
		FUZZ_CHECK(pos <= hdr.bytes && rec.first + rec.count <= (int)ASH_CHUNK_BLOCKS);
		records++;
		if (rec.type != SDS_JREC_ENTRY)
			continue;
		check_entry(&rec.entry);
		for (unsigned i = 0; rec.flags & SDS_JF_FIRST && i < rec.count; i++)
			sum += sds_jrec_crc(&rec, i) + sds_jrec_before(&rec, i);
	}
	FUZZ_CHECK(records == hdr.records && pos == hdr.bytes);
	sink = sum;
}

static void try_csum(const uint8_t block[ASH_BLOCK_BYTES])
{
	static struct sds_csum page, again;
	uint8_t raw[ASH_BLOCK_BYTES];

	if (sds_csum_decode(block, &page))
		return;
	sds_csum_encode(&page, raw);
	FUZZ_CHECK(sds_csum_decode(raw, &again) == 0);
	FUZZ_CHECK(!memcmp(page.crc, again.crc, sizeof(page.crc)));
	FUZZ_CHECK(!memcmp(page.known, again.known, sizeof(page.known)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t block[ASH_BLOCK_BYTES] = {0};
	struct sds_entry entry;

	if (size == 0)
		return 0;
	size--;
	memcpy(block, data + 1, size < sizeof(block) ? size : sizeof(block));
	switch (data[0] % 3) {
	case 0:
		try_journal(block);
		break;
	case 1:
		if (sds_entry_decode(block, &entry) == 0)
			check_entry(&entry);
		break;
	default:
		try_csum(block);
	}
	return 0;
}
