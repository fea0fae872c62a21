// SPDX-License-Identifier: MIT
/* Label and geometry of a device: encode, decode, lay out. Pure. */
#include <errno.h>
#include <string.h>

#include "common/base/crc.h"
#include "sds/core/store_format.h"

#define LABEL_MAGIC 0x0a0d6c6c48534101ull
#define FLAG_CLEAN 1u
#define JOURNAL_BLOCKS_MAX 16384u
#define JOURNAL_IN_FLIGHT 256u /* blocks allowed for records of operations in flight */

struct disk_label {
	ash_le64 magic;
	ash_le32 version;
	ash_le32 crc; /* of the 4096 bytes with crc = 0 */
	ash_le64 seq;
	uint8_t system[16], device_uuid[16], nonce[16], boot_id[16];
	ash_le64 device, pool, incarnation, map_version, incompat, ro_compat;
	ash_le32 dr_epoch, longest_lease_ms, flags, al_capacity;
	ash_le64 disk_bytes, extents;
	ash_le64 journal_offset, journal_blocks, table_offset, table_blocks, csum_offset;
	ash_le64 data_offset;
	uint8_t reserved[3880];
};
_Static_assert(sizeof(struct disk_label) == ASH_BLOCK_BYTES, "a label is one block");

static uint64_t round_up(uint64_t v, uint64_t to)
{
	return (v + to - 1) / to * to;
}

static void lay_out(uint64_t extents, const struct sds_format_params *params, struct sds_geo *geo)
{
	uint64_t al = extents < SDS_AL_MAX ? extents : SDS_AL_MAX, carry, blocks;

	if (params && params->al_capacity && params->al_capacity < al)
		al = params->al_capacity;
	/* Four times the whole activity log and what is in flight, so that a full journal can
	 * always be checkpointed. Larger disks get more, for fewer checkpoints. */
	carry = al * SDS_JREC_HOT_BYTES / SDS_JBLOCK_ROOM + 1;
	blocks = 4 * (carry + JOURNAL_IN_FLIGHT);
	if (extents / 8 > blocks)
		blocks = extents / 8 < JOURNAL_BLOCKS_MAX ? extents / 8 : JOURNAL_BLOCKS_MAX;
	blocks = round_up(blocks, 256);
	if (params && params->journal_blocks)
		blocks = params->journal_blocks;
	geo->extents = extents;
	geo->al_capacity = (uint32_t)al;
	geo->journal_offset = SDS_JOURNAL_OFFSET;
	geo->journal_blocks = blocks;
	geo->table_offset = geo->journal_offset + blocks * ASH_BLOCK_BYTES;
	geo->table_blocks = round_up(extents, SDS_ENTRIES_PER_BLOCK) / SDS_ENTRIES_PER_BLOCK;
	geo->csum_offset = geo->table_offset + geo->table_blocks * ASH_BLOCK_BYTES;
	geo->data_offset = round_up(geo->csum_offset + extents * ASH_BLOCK_BYTES, ASH_CHUNK_BYTES);
}

int sds_geo_compute(uint64_t disk_bytes, const struct sds_format_params *params,
		    struct sds_geo *ret_geo)
{
	const uint64_t per_extent = ASH_CHUNK_BYTES + ASH_BLOCK_BYTES + SDS_ENTRY_BYTES;
	uint64_t n = disk_bytes / per_extent;

	if (n > SDS_EXTENTS_MAX)
		n = SDS_EXTENTS_MAX;
	if (params && params->extents && params->extents < n)
		n = params->extents;
	while (n > 0) {
		uint64_t end, over;

		lay_out(n, params, ret_geo);
		end = ret_geo->data_offset + n * ASH_CHUNK_BYTES;
		if (end <= disk_bytes)
			return 0;
		over = (end - disk_bytes) / per_extent;
		n = n > over + 1 ? n - over - 1 : 0;
	}
	return -EOVERFLOW;
}

int sds_geo_check(const struct sds_geo *g, uint64_t disk_bytes)
{
	struct sds_format_params params = {.al_capacity = g->al_capacity};
	struct sds_geo want;

	if (g->extents == 0 || g->extents > SDS_EXTENTS_MAX || g->al_capacity == 0 ||
	    g->al_capacity > SDS_AL_MAX || g->journal_blocks < 16 ||
	    g->journal_blocks > (1u << 24) || g->al_capacity > g->extents)
		return -EBADMSG;
	params.journal_blocks = (uint32_t)g->journal_blocks;
	lay_out(g->extents, &params, &want);
	if (memcmp(&want.journal_offset, &g->journal_offset, offsetof(struct sds_geo, al_capacity)))
		return -EBADMSG;
	return g->data_offset + g->extents * ASH_CHUNK_BYTES <= disk_bytes ? 0 : -EBADMSG;
}

void sds_label_encode(const struct sds_label_full *f, uint8_t out[ASH_BLOCK_BYTES])
{
	const struct sds_label *l = &f->label;
	struct disk_label d;

	memset(&d, 0, sizeof(d));
	d.magic = ash_put64(LABEL_MAGIC);
	d.version = ash_put32(SDS_LABEL_VERSION);
	d.seq = ash_put64(f->seq);
	memcpy(d.system, l->system, 16);
	memcpy(d.device_uuid, l->device_uuid, 16);
	memcpy(d.nonce, l->nonce, 16);
	memcpy(d.boot_id, l->boot_id, 16);
	d.device = ash_put64(l->device);
	d.pool = ash_put64(l->pool);
	d.incarnation = ash_put64(l->incarnation);
	d.map_version = ash_put64(l->map_version);
	d.incompat = ash_put64(l->incompat);
	d.ro_compat = ash_put64(l->ro_compat);
	d.dr_epoch = ash_put32(l->dr_epoch);
	d.longest_lease_ms = ash_put32(l->longest_lease_ms);
	d.flags = ash_put32(l->clean ? FLAG_CLEAN : 0);
	d.al_capacity = ash_put32(f->geo.al_capacity);
	d.disk_bytes = ash_put64(l->disk_bytes);
	d.extents = ash_put64(f->geo.extents);
	d.journal_offset = ash_put64(f->geo.journal_offset);
	d.journal_blocks = ash_put64(f->geo.journal_blocks);
	d.table_offset = ash_put64(f->geo.table_offset);
	d.table_blocks = ash_put64(f->geo.table_blocks);
	d.csum_offset = ash_put64(f->geo.csum_offset);
	d.data_offset = ash_put64(f->geo.data_offset);
	d.crc = ash_put32(ash_crc32c(&d, sizeof(d)));
	memcpy(out, &d, sizeof(d));
}

static void decode_fields(const struct disk_label *d, struct sds_label_full *f)
{
	struct sds_label *l = &f->label;

	memset(f, 0, sizeof(*f));
	f->seq = ash_get64(d->seq);
	memcpy(l->system, d->system, 16);
	memcpy(l->device_uuid, d->device_uuid, 16);
	memcpy(l->nonce, d->nonce, 16);
	memcpy(l->boot_id, d->boot_id, 16);
	l->device = ash_get64(d->device);
	l->pool = ash_get64(d->pool);
	l->incarnation = ash_get64(d->incarnation);
	l->map_version = ash_get64(d->map_version);
	l->incompat = ash_get64(d->incompat);
	l->ro_compat = ash_get64(d->ro_compat);
	l->dr_epoch = ash_get32(d->dr_epoch);
	l->longest_lease_ms = ash_get32(d->longest_lease_ms);
	l->clean = ash_get32(d->flags) & FLAG_CLEAN;
	l->extents = ash_get64(d->extents);
	l->disk_bytes = ash_get64(d->disk_bytes);
	f->geo.al_capacity = ash_get32(d->al_capacity);
	f->geo.extents = l->extents;
	f->geo.journal_offset = ash_get64(d->journal_offset);
	f->geo.journal_blocks = ash_get64(d->journal_blocks);
	f->geo.table_offset = ash_get64(d->table_offset);
	f->geo.table_blocks = ash_get64(d->table_blocks);
	f->geo.csum_offset = ash_get64(d->csum_offset);
	f->geo.data_offset = ash_get64(d->data_offset);
}

int sds_label_decode(const uint8_t in[ASH_BLOCK_BYTES], struct sds_label_full *ret_label)
{
	struct disk_label d;
	uint32_t crc;

	memcpy(&d, in, sizeof(d));
	if (ash_get64(d.magic) != LABEL_MAGIC)
		return -ENODATA;
	crc = ash_get32(d.crc);
	d.crc = ash_put32(0);
#ifndef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
	if (ash_crc32c(&d, sizeof(d)) != crc)
		return -EBADMSG;
#else
	(void)crc;
#endif
	decode_fields(&d, ret_label);
	if (ret_label->seq > SDS_COUNTER_MAX || ret_label->label.incarnation > SDS_COUNTER_MAX)
		return -EBADMSG;
	if (ash_get32(d.version) != SDS_LABEL_VERSION ||
	    (ret_label->label.incompat & ~SDS_INCOMPAT_KNOWN))
		return -EPROTONOSUPPORT;
	return sds_geo_check(&ret_label->geo, ret_label->label.disk_bytes);
}
