// SPDX-License-Identifier: MIT
#include "tests/unit/sds/store_model.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SECTOR 512u
#define WORDS (SECTOR / 8)

void model_violation(struct model *m, const char *fmt, ...)
{
	va_list ap;

	if (m->why[0])
		return;
	va_start(ap, fmt);
	vsnprintf(m->why, sizeof(m->why), fmt, ap);
	va_end(ap);
}

static uint64_t key_of(unsigned place, unsigned i, unsigned sector, uint32_t ver)
{
	return 0x8000000000000000ull | (uint64_t)place << 48 | (uint64_t)i << 40 |
	       (uint64_t)sector << 32 | ver;
}

void model_fill(uint8_t *block, unsigned place, unsigned i, uint32_t ver)
{
	for (unsigned s = 0; s < 8; s++) {
		uint64_t key = key_of(place, i, s, ver), word = key;

		for (unsigned w = 0; w < WORDS; w++, word = word * 5 + key)
			memcpy(block + s * SECTOR + w * 8, &word, 8);
	}
}

static bool sector_zero(const uint8_t *sector)
{
	static const uint8_t zeros[SECTOR];

	return !memcmp(sector, zeros, SECTOR);
}

static bool sector_whole(const uint8_t *sector, uint64_t key)
{
	uint64_t word = key, got;

	for (unsigned w = 0; w < WORDS; w++, word = word * 5 + key) {
		memcpy(&got, sector + w * 8, 8);
		if (got != word)
			return false;
	}
	return true;
}

bool model_parse(struct model *m, const uint8_t *block, unsigned place, unsigned i,
		 uint32_t ret_ver[8])
{
	for (unsigned s = 0; s < 8; s++) {
		const uint8_t *sector = block + s * SECTOR;
		uint64_t key;

		memcpy(&key, sector, 8);
		if (key == 0 && sector_zero(sector)) {
			ret_ver[s] = 0;
			continue;
		}
		ret_ver[s] = (uint32_t)key;
		if (key != key_of(place, i, s, (uint32_t)key) || !sector_whole(sector, key)) {
			model_violation(m,
					"place %u block %u sector %u: foreign or broken data "
					"(key %llx)",
					place, i, s, (unsigned long long)key);
			return false;
		}
	}
	return true;
}

void model_begin(struct model_block *b, uint32_t ver)
{
	b->cand[b->cands].ver = ver;
	b->cand[b->cands].ack = 0;
	b->cands++;
	b->busy = true;
}

void model_fail(struct model_block *b)
{
	b->cands--;
	b->busy = false;
}

void model_unknown(struct model_block *b, bool hurt)
{
	b->busy = false;
	b->hurt |= hurt;
}

static void certain(struct model_block *b, unsigned upto)
{
	for (unsigned s = 0; s < 8; s++)
		b->base[s] = b->cand[upto].ver;
	b->cands -= (uint8_t)(upto + 1);
	memmove(&b->cand[0], &b->cand[upto + 1], b->cands * sizeof(b->cand[0]));
}

void model_ack(struct model *m, struct model_block *b, bool durable)
{
	b->busy = b->hurt = false;
	b->cand[b->cands - 1].ack = ++m->clock;
	if (durable || !m->write_back)
		certain(b, b->cands - 1u);
}

void model_flushed(struct model *m, uint64_t mark)
{
	for (unsigned p = 0; p < MODEL_PLACES; p++)
		for (unsigned i = 0; i < MODEL_BLOCKS; i++) {
			struct model_block *b = &m->c[p].b[i];

			for (unsigned k = b->cands; k-- > 0;)
				if (b->cand[k].ack && b->cand[k].ack <= mark) {
					certain(b, k);
					break;
				}
		}
}

void model_now(const struct model_block *b, uint32_t ret_ver[8])
{
	for (unsigned s = 0; s < 8; s++)
		ret_ver[s] = b->cands ? b->cand[b->cands - 1].ver : b->base[s];
}

static bool allowed(const struct model_block *b, unsigned s, uint32_t ver)
{
	if (b->base[s] == ver)
		return true;
	for (unsigned k = 0; k < b->cands; k++)
		if (b->cand[k].ver == ver)
			return true;
	return false;
}

bool model_may_be(const struct model_block *b, const uint32_t ver[8])
{
	for (unsigned s = 0; s < 8; s++)
		if (!allowed(b, s, ver[s]))
			return false;
	return true;
}

bool model_settle_crash(struct model *m, unsigned place, unsigned i, const uint32_t ver[8])
{
	struct model_block *b = &m->c[place].b[i];
	bool differs = memcmp(b->base, ver, sizeof(b->base)) != 0;
	unsigned zero = 0;

	for (unsigned s = 0; s < 8; s++) {
		zero += ver[s] == 0;
		if (!allowed(b, s, ver[s]))
			model_violation(m,
					"place %u block %u sector %u: version %u after the crash, "
					"certain was %u, newest %u of %u",
					place, i, s, ver[s], b->base[s],
					b->cands ? b->cand[b->cands - 1].ver : 0, b->cands);
	}
	/* a first write is there as a whole or not at all */
	if (differs && zero && zero < 8)
		model_violation(m, "place %u block %u: data mixed with zeros", place, i);
	memcpy(b->base, ver, sizeof(b->base));
	b->cands = 0;
	b->busy = b->hurt = false;
	return differs;
}
