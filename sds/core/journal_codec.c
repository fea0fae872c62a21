// SPDX-License-Identifier: MIT
/* Journal blocks and records: encode and decode. Pure. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "common/base/crc.h"
#include "sds/core/store_format.h"

#define JBLOCK_MAGIC 0x31424a41u /* "AJB1" */

struct disk_jhdr {
	ash_le32 magic;
	ash_le32 crc; /* of the 4096 bytes with crc = 0 */
	ash_le64 seq, incarnation, sealed, tail, durable, fw_first;
	uint8_t device_uuid[16];
	ash_le16 bytes, records;
	uint8_t reserved[4];
};
_Static_assert(sizeof(struct disk_jhdr) == SDS_JHDR_BYTES, "journal header size is format");

struct disk_jrec {
	uint8_t type, flags;
	ash_le16 bytes; /* of the whole record, a multiple of 8 */
	ash_le32 ext;
};

struct disk_jrec_entry {
	struct disk_jrec r;
	ash_le16 first, count;
	uint8_t reserved[4];
	uint8_t entry[SDS_ENTRY_BYTES];
};
_Static_assert(sizeof(struct disk_jrec_entry) == 144, "entry record size is format");

struct disk_jrec_hot {
	struct disk_jrec r;
	ash_le64 node, chunk;
};
_Static_assert(sizeof(struct disk_jrec_hot) == SDS_JREC_HOT_BYTES, "hot record size is format");

size_t sds_jrec_put_entry(uint8_t *at, unsigned flags, uint32_t ext, unsigned first, unsigned count,
			  const struct sds_entry *entry, const uint32_t *crc,
			  const struct sds_entry *before)
{
	size_t bytes = sds_jrec_entry_bytes(flags & SDS_JF_FIRST ? count : 0);
	struct disk_jrec_entry d = {
		.r = {.type = SDS_JREC_ENTRY, .flags = (uint8_t)flags},
		.first = ash_put16((uint16_t)first),
		.count = ash_put16((uint16_t)count),
	};
	uint8_t *list = at + sizeof(d);

	d.r.bytes = ash_put16((uint16_t)bytes);
	d.r.ext = ash_put32(ext);
	sds_entry_encode(entry, d.entry);
	memcpy(at, &d, sizeof(d));
	memset(list, 0, bytes - sizeof(d));
	if (flags & SDS_JF_FIRST) {
		for (unsigned i = 0; i < count; i++) {
			ash_le32 v = ash_put32(crc[i]);

			memcpy(list + (size_t)i * 4, &v, 4);
			list[(size_t)count * 4 + i] = (uint8_t)sds_entry_state(before, first + i);
		}
	}
	return bytes;
}

size_t sds_jrec_put_hot(uint8_t *at, uint32_t ext, uint64_t node, uint64_t chunk)
{
	struct disk_jrec_hot d = {
		.r = {.type = SDS_JREC_HOT, .bytes = ash_put16(sizeof(d)), .ext = ash_put32(ext)},
		.node = ash_put64(node),
		.chunk = ash_put64(chunk),
	};

	memcpy(at, &d, sizeof(d));
	return sizeof(d);
}

void sds_jblock_encode(const struct sds_jhdr *hdr, uint8_t block[ASH_BLOCK_BYTES])
{
	struct disk_jhdr d = {
		.magic = ash_put32(JBLOCK_MAGIC),
		.seq = ash_put64(hdr->seq),
		.incarnation = ash_put64(hdr->incarnation),
		.sealed = ash_put64(hdr->sealed),
		.tail = ash_put64(hdr->tail),
		.durable = ash_put64(hdr->durable),
		.fw_first = ash_put64(hdr->fw_first),
		.bytes = ash_put16(hdr->bytes),
		.records = ash_put16(hdr->records),
	};

	assert(hdr->bytes <= SDS_JBLOCK_ROOM);
	memcpy(d.device_uuid, hdr->device_uuid, 16);
	memset(block + SDS_JHDR_BYTES + hdr->bytes, 0, SDS_JBLOCK_ROOM - hdr->bytes);
	memcpy(block, &d, sizeof(d));
	d.crc = ash_put32(ash_crc32c(block, ASH_BLOCK_BYTES));
	memcpy(block, &d, sizeof(d));
}

/* The record at @at with @room bytes behind it. Return: its bytes, or 0 if it is malformed. */
static size_t record_decode(const uint8_t *at, size_t room, struct sds_jrec *ret_rec)
{
	struct disk_jrec r;
	size_t bytes;

	if (room < sizeof(r))
		return 0;
	memcpy(&r, at, sizeof(r));
	bytes = ash_get16(r.bytes);
	if (bytes > room)
		return 0;
	ret_rec->type = r.type;
	ret_rec->flags = r.flags;
	ret_rec->ext = ash_get32(r.ext);
	if (r.type == SDS_JREC_HOT && bytes == SDS_JREC_HOT_BYTES) {
		struct disk_jrec_hot d;

		memcpy(&d, at, sizeof(d));
		memset(&ret_rec->entry, 0, sizeof(ret_rec->entry));
		ret_rec->entry.node = ash_get64(d.node);
		ret_rec->entry.chunk = ash_get64(d.chunk);
		ret_rec->first = ret_rec->count = 0;
		ret_rec->list = NULL;
		return bytes;
	}
	if (r.type == SDS_JREC_ENTRY && bytes >= sizeof(struct disk_jrec_entry)) {
		struct disk_jrec_entry d;

		memcpy(&d, at, sizeof(d));
		ret_rec->first = ash_get16(d.first);
		ret_rec->count = ash_get16(d.count);
		ret_rec->list = at + sizeof(d);
		if (ret_rec->first > ASH_CHUNK_BLOCKS ||
		    ret_rec->count > ASH_CHUNK_BLOCKS - ret_rec->first ||
		    bytes != sds_jrec_entry_bytes(r.flags & SDS_JF_FIRST ? ret_rec->count : 0) ||
		    sds_entry_decode(d.entry, &ret_rec->entry))
			return 0;
		return bytes;
	}
	return 0;
}

int sds_jblock_decode(const uint8_t block[ASH_BLOCK_BYTES], struct sds_jhdr *hdr)
{
	uint8_t copy[ASH_BLOCK_BYTES];
	struct disk_jhdr d;
	struct sds_jrec rec;
	size_t pos = 0;
	uint32_t crc;

	memcpy(&d, block, sizeof(d));
	if (ash_get32(d.magic) != JBLOCK_MAGIC)
		return -EBADMSG;
	crc = ash_get32(d.crc);
	memcpy(copy, block, sizeof(copy));
	memset(copy + offsetof(struct disk_jhdr, crc), 0, sizeof(d.crc));
#ifndef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
	if (ash_crc32c(copy, sizeof(copy)) != crc)
		return -EBADMSG;
#else
	(void)crc;
#endif
	hdr->seq = ash_get64(d.seq);
	hdr->incarnation = ash_get64(d.incarnation);
	hdr->sealed = ash_get64(d.sealed);
	hdr->tail = ash_get64(d.tail);
	hdr->durable = ash_get64(d.durable);
	hdr->fw_first = ash_get64(d.fw_first);
	hdr->bytes = ash_get16(d.bytes);
	hdr->records = ash_get16(d.records);
	memcpy(hdr->device_uuid, d.device_uuid, 16);
	if (hdr->bytes > SDS_JBLOCK_ROOM || hdr->tail > hdr->seq || hdr->durable > hdr->seq ||
	    hdr->seq > SDS_COUNTER_MAX || hdr->sealed > SDS_COUNTER_MAX ||
	    hdr->fw_first > SDS_COUNTER_MAX)
		return -EBADMSG;
	for (unsigned i = 0; i < hdr->records; i++) {
		size_t n = record_decode(block + SDS_JHDR_BYTES + pos, hdr->bytes - pos, &rec);

		if (n == 0)
			return -EBADMSG;
		pos += n;
	}
	return pos == hdr->bytes ? 0 : -EBADMSG;
}

bool sds_jblock_next(const uint8_t block[ASH_BLOCK_BYTES], const struct sds_jhdr *hdr, size_t *pos,
		     struct sds_jrec *ret_rec)
{
	size_t n;

	if (*pos >= hdr->bytes)
		return false;
	n = record_decode(block + SDS_JHDR_BYTES + *pos, hdr->bytes - *pos, ret_rec);
	*pos += n;
	return n != 0;
}
