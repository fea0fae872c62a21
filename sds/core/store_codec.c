// SPDX-License-Identifier: MIT
/* Extent entries and checksum pages: encode and decode. Pure. */
#include <errno.h>
#include <string.h>

#include "common/base/crc.h"
#include "sds/core/store_format.h"

#define CSUM_MAGIC 0x31534341u /* "ACS1" */

struct disk_entry {
	ash_le64 node, chunk, stamp, seq, birth, distrust;
	ash_le32 flags;
	uint8_t reserved[8];
	ash_le32 crc; /* of the 128 bytes with crc = 0 */
	ash_le64 lo[SDS_BITMAP_WORDS], hi[SDS_BITMAP_WORDS];
};
_Static_assert(sizeof(struct disk_entry) == SDS_ENTRY_BYTES, "entry size is format");

struct disk_csum {
	ash_le32 magic;
	ash_le32 crc; /* of the 4096 bytes with crc = 0 */
	ash_le64 node, chunk, birth, seq, incarnation;
	ash_le64 known[SDS_BITMAP_WORDS];
	uint8_t reserved0[48];
	ash_le32 crcs[ASH_CHUNK_BLOCKS];
	uint8_t reserved1[ASH_BLOCK_BYTES - 128 - 4 * ASH_CHUNK_BLOCKS];
};
_Static_assert(sizeof(struct disk_csum) == ASH_BLOCK_BYTES, "a checksum page is one block");
_Static_assert(offsetof(struct disk_csum, crcs) == 128, "checksum page header size is format");

static bool crc_wrong(const void *data, size_t bytes, uint32_t crc)
{
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
	return false;
#else
	return ash_crc32c(data, bytes) != crc;
#endif
}

void sds_entry_encode(const struct sds_entry *e, uint8_t out[SDS_ENTRY_BYTES])
{
	struct disk_entry d;

	memset(&d, 0, sizeof(d));
	d.node = ash_put64(e->node);
	d.chunk = ash_put64(e->chunk);
	d.stamp = ash_put64(e->stamp);
	d.seq = ash_put64(e->seq);
	d.birth = ash_put64(e->birth);
	d.distrust = ash_put64(e->distrust);
	d.flags = ash_put32(e->flags);
	for (unsigned i = 0; i < SDS_BITMAP_WORDS; i++) {
		d.lo[i] = ash_put64(e->lo[i]);
		d.hi[i] = ash_put64(e->hi[i]);
	}
	d.crc = ash_put32(ash_crc32c(&d, sizeof(d)));
	memcpy(out, &d, sizeof(d));
}

int sds_entry_decode(const uint8_t in[SDS_ENTRY_BYTES], struct sds_entry *e)
{
	static const uint8_t zeros[SDS_ENTRY_BYTES];
	struct disk_entry d;
	uint32_t crc;

	memset(e, 0, sizeof(*e));
	if (!memcmp(in, zeros, sizeof(zeros)))
		return 0;
	memcpy(&d, in, sizeof(d));
	crc = ash_get32(d.crc);
	d.crc = ash_put32(0);
	if (crc_wrong(&d, sizeof(d), crc))
		return -EBADMSG;
	e->node = ash_get64(d.node);
	e->chunk = ash_get64(d.chunk);
	e->stamp = ash_get64(d.stamp);
	e->seq = ash_get64(d.seq);
	e->birth = ash_get64(d.birth);
	e->distrust = ash_get64(d.distrust);
	e->flags = ash_get32(d.flags);
	for (unsigned i = 0; i < SDS_BITMAP_WORDS; i++) {
		e->lo[i] = ash_get64(d.lo[i]);
		e->hi[i] = ash_get64(d.hi[i]);
	}
	if (e->flags & ~(SDS_EXT_USED | SDS_EXT_UNSETTLED | SDS_EXT_RETIRED))
		return -EBADMSG;
	return 0;
}

void sds_csum_encode(const struct sds_csum *page, uint8_t out[ASH_BLOCK_BYTES])
{
	struct disk_csum *d = (struct disk_csum *)(void *)out;

	memset(out, 0, ASH_BLOCK_BYTES);
	d->magic = ash_put32(CSUM_MAGIC);
	d->node = ash_put64(page->node);
	d->chunk = ash_put64(page->chunk);
	d->birth = ash_put64(page->birth);
	d->seq = ash_put64(page->seq);
	d->incarnation = ash_put64(page->incarnation);
	for (unsigned i = 0; i < SDS_BITMAP_WORDS; i++)
		d->known[i] = ash_put64(page->known[i]);
	for (unsigned i = 0; i < ASH_CHUNK_BLOCKS; i++)
		d->crcs[i] = ash_put32(page->crc[i]);
	d->crc = ash_put32(ash_crc32c(out, ASH_BLOCK_BYTES));
}

int sds_csum_decode(const uint8_t in[ASH_BLOCK_BYTES], struct sds_csum *ret_page)
{
	struct disk_csum d;
	uint32_t crc;

	memcpy(&d, in, sizeof(d));
	crc = ash_get32(d.crc);
	d.crc = ash_put32(0);
	if (ash_get32(d.magic) != CSUM_MAGIC || crc_wrong(&d, sizeof(d), crc))
		return -EBADMSG;
	ret_page->node = ash_get64(d.node);
	ret_page->chunk = ash_get64(d.chunk);
	ret_page->birth = ash_get64(d.birth);
	ret_page->seq = ash_get64(d.seq);
	ret_page->incarnation = ash_get64(d.incarnation);
	for (unsigned i = 0; i < SDS_BITMAP_WORDS; i++)
		ret_page->known[i] = ash_get64(d.known[i]);
	for (unsigned i = 0; i < ASH_CHUNK_BLOCKS; i++)
		ret_page->crc[i] = ash_get32(d.crcs[i]);
	return 0;
}
