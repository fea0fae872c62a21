// SPDX-License-Identifier: MIT
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "common/base/crc.h"
#include "common/base/prng.h"
#include "sds/core/store_format.h"

static _Alignas(4096) uint8_t block[ASH_BLOCK_BYTES];

static void fill(struct ash_prng *rng, void *to, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		((uint8_t *)to)[i] = (uint8_t)ash_prng_next(rng);
}

static struct sds_entry random_entry(struct ash_prng *rng)
{
	struct sds_entry e;

	memset(&e, 0, sizeof(e));
	fill(rng, &e, offsetof(struct sds_entry, flags));
	e.flags = (uint32_t)ash_prng_below(rng, 8);
	return e;
}

static void geometry_fits_and_is_maximal(void **state)
{
	for (uint64_t mib = 256; mib < 8u << 20; mib = mib * 5 / 3 + 1) {
		uint64_t bytes = mib << 20;
		struct sds_geo g, more;
		struct sds_format_params p = {0};

		assert_int_equal(sds_geo_compute(bytes, NULL, &g), 0);
		assert_int_equal(sds_geo_check(&g, bytes), 0);
		assert_true(g.journal_blocks * SDS_JBLOCK_ROOM >=
			    4ull * g.al_capacity * SDS_JREC_HOT_BYTES);
		assert_true(g.al_capacity == (g.extents < SDS_AL_MAX ? g.extents : SDS_AL_MAX));
		/* no more than two extents are given away */
		assert_true(g.data_offset + (g.extents + 2) * ASH_CHUNK_BYTES + (2u << 20) > bytes);
		p.extents = g.extents;
		assert_int_equal(sds_geo_compute(bytes, &p, &more), 0);
		assert_int_equal(more.extents, g.extents);
		assert_int_equal(sds_geo_check(&g, g.data_offset), -EBADMSG);
	}
	struct sds_geo g;

	assert_int_equal(sds_geo_compute(1 << 20, NULL, &g), -EOVERFLOW);
}

static void label_comes_back(void **state)
{
	struct ash_prng rng;
	struct sds_label_full a, b;

	ash_prng_seed(&rng, 1);
	memset(&a, 0, sizeof(a));
	fill(&rng, a.label.system, 16);
	fill(&rng, a.label.device_uuid, 16);
	fill(&rng, a.label.nonce, 16);
	fill(&rng, a.label.boot_id, 16);
	a.label.device = 7;
	a.label.pool = 8;
	a.label.incarnation = 9;
	a.label.dr_epoch = 10;
	a.label.map_version = 11;
	a.label.longest_lease_ms = 600;
	a.label.clean = true;
	a.label.disk_bytes = 1ull << 30;
	a.seq = 12;
	assert_int_equal(sds_geo_compute(a.label.disk_bytes, NULL, &a.geo), 0);
	a.label.extents = a.geo.extents;
	sds_label_encode(&a, block);
	memset(&b, 0, sizeof(b));
	assert_int_equal(sds_label_decode(block, &b), 0);
	assert_memory_equal(&a, &b, sizeof(a));
	for (unsigned i = 0; i < 300; i++) {
		block[i] ^= 0x10;
		assert_int_not_equal(sds_label_decode(block, &b), 0);
		block[i] ^= 0x10;
	}
	a.label.incompat = 1ull << 40;
	sds_label_encode(&a, block);
	assert_int_equal(sds_label_decode(block, &b), -EPROTONOSUPPORT);
	memset(block, 0, sizeof(block));
	assert_int_equal(sds_label_decode(block, &b), -ENODATA);
}

static void entry_comes_back(void **state)
{
	struct ash_prng rng;
	struct sds_entry a, b;

	ash_prng_seed(&rng, 2);
	for (unsigned n = 0; n < 200; n++) {
		unsigned at = (unsigned)ash_prng_below(&rng, SDS_ENTRY_BYTES);

		a = random_entry(&rng);
		sds_entry_encode(&a, block);
		assert_int_equal(sds_entry_decode(block, &b), 0);
		assert_memory_equal(&a, &b, sizeof(a));
		block[at] ^= 1;
		assert_int_equal(sds_entry_decode(block, &b), -EBADMSG);
	}
	memset(block, 0, sizeof(block));
	assert_int_equal(sds_entry_decode(block, &b), 0);
	assert_int_equal(b.flags, 0);
}

static void entry_keeps_four_states_apart(void **state)
{
	struct sds_entry e;
	struct ash_prng rng;
	uint8_t want[ASH_CHUNK_BLOCKS] = {0};

	ash_prng_seed(&rng, 3);
	memset(&e, 0, sizeof(e));
	assert_true(sds_entry_empty(&e));
	for (unsigned n = 0; n < 5000; n++) {
		unsigned b = (unsigned)ash_prng_below(&rng, ASH_CHUNK_BLOCKS);

		want[b] = (uint8_t)ash_prng_below(&rng, 4);
		sds_entry_set_state(&e, b, want[b]);
		for (unsigned i = 0; i < ASH_CHUNK_BLOCKS; i += 5)
			assert_int_equal(sds_entry_state(&e, i), want[i]);
	}
}

static void checksum_page_comes_back(void **state)
{
	struct ash_prng rng;
	struct sds_csum a, b;

	ash_prng_seed(&rng, 4);
	memset(&a, 0, sizeof(a));
	fill(&rng, &a, sizeof(a));
	memset(&b, 0, sizeof(b));
	sds_csum_encode(&a, block);
	assert_int_equal(sds_csum_decode(block, &b), 0);
	assert_memory_equal(&a, &b, sizeof(a));
	for (unsigned i = 0; i < ASH_BLOCK_BYTES; i += 7) {
		block[i] ^= 4;
		assert_int_equal(sds_csum_decode(block, &b), -EBADMSG);
		block[i] ^= 4;
	}
}

static void journal_block_comes_back(void **state)
{
	struct ash_prng rng;
	struct sds_jhdr h = {
		.seq = 10, .incarnation = 3, .sealed = 5, .tail = 7, .durable = 9, .fw_first = 6};
	struct sds_jhdr got;
	struct sds_entry e[3], before;
	uint32_t crc[ASH_CHUNK_BLOCKS];
	struct sds_jrec rec;
	uint8_t *at = block + SDS_JHDR_BYTES;
	size_t pos = 0;

	ash_prng_seed(&rng, 5);
	for (unsigned i = 0; i < 3; i++)
		e[i] = random_entry(&rng);
	before = random_entry(&rng);
	fill(&rng, crc, sizeof(crc));
	at += sds_jrec_put_entry(at, SDS_JF_OPEN, 4, 250, 6, &e[0], NULL, NULL);
	at += sds_jrec_put_hot(at, 5, 77, 88);
	at += sds_jrec_put_entry(at, SDS_JF_FIRST, 6, 0, 256, &e[1], crc, &before);
	at += sds_jrec_put_entry(at, SDS_JF_FIRST, 7, 3, 5, &e[2], crc, &before);
	h.bytes = (uint16_t)(at - block - SDS_JHDR_BYTES);
	h.records = 4;
	sds_jblock_encode(&h, block);
	memset(&got, 0, sizeof(got));
	assert_int_equal(sds_jblock_decode(block, &got), 0);
	assert_memory_equal(&h, &got, sizeof(h));
	assert_true(sds_jblock_next(block, &got, &pos, &rec));
	assert_int_equal(rec.type, SDS_JREC_ENTRY);
	assert_int_equal(rec.first, 250);
	assert_memory_equal(&rec.entry, &e[0], sizeof(e[0]));
	assert_true(sds_jblock_next(block, &got, &pos, &rec));
	assert_int_equal(rec.type, SDS_JREC_HOT);
	assert_int_equal(rec.entry.chunk, 88);
	assert_true(sds_jblock_next(block, &got, &pos, &rec));
	for (unsigned i = 0; i < 256; i++) {
		assert_int_equal(sds_jrec_crc(&rec, i), crc[i]);
		assert_int_equal(sds_jrec_before(&rec, i), sds_entry_state(&before, i));
	}
	assert_true(sds_jblock_next(block, &got, &pos, &rec));
	assert_int_equal(sds_jrec_before(&rec, 4), sds_entry_state(&before, 7));
	assert_false(sds_jblock_next(block, &got, &pos, &rec));
	for (unsigned i = 0; i < ASH_BLOCK_BYTES; i += 3) {
		block[i] ^= 0x80;
		assert_int_equal(sds_jblock_decode(block, &got), -EBADMSG);
		block[i] ^= 0x80;
	}
}

/* A block whose checksum is right but whose insides are not: refused, never followed. */
static void journal_block_malformed_is_refused(void **state)
{
	struct ash_prng rng;
	unsigned accepted = 0;

	ash_prng_seed(&rng, 6);
	for (unsigned n = 0; n < 20000; n++) {
		struct sds_jhdr h = {.seq = 1, .records = (uint16_t)ash_prng_below(&rng, 4)}, got;
		struct sds_entry e = random_entry(&rng);
		uint8_t *at = block + SDS_JHDR_BYTES;
		struct sds_jrec rec;
		size_t pos = 0;

		for (unsigned i = 0; i < 3; i++)
			at += sds_jrec_put_entry(at, 0, 1, 0, 9, &e, NULL, NULL);
		h.bytes = (uint16_t)(at - block - SDS_JHDR_BYTES);
		block[SDS_JHDR_BYTES + ash_prng_below(&rng, 12)] = (uint8_t)ash_prng_next(&rng);
		sds_jblock_encode(&h, block);
		if (sds_jblock_decode(block, &got))
			continue;
		accepted++;
		while (sds_jblock_next(block, &got, &pos, &rec))
			assert_true(rec.first + rec.count <= ASH_CHUNK_BLOCKS);
	}
	assert_true(accepted < 10000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(geometry_fits_and_is_maximal),
		cmocka_unit_test(label_comes_back),
		cmocka_unit_test(entry_comes_back),
		cmocka_unit_test(entry_keeps_four_states_apart),
		cmocka_unit_test(checksum_page_comes_back),
		cmocka_unit_test(journal_block_comes_back),
		cmocka_unit_test(journal_block_malformed_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
