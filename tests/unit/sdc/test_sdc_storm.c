// SPDX-License-Identifier: MIT
/* Everything at once: faults of all kinds while the primaries move, judged by a model. */
#include <string.h>

#include "tests/unit/sdc/core_rig.h"

static unsigned storm_chance;
static enum fake_act storm(struct fake *fk, int sds, const struct ash_hdr *h)
{
	static const enum fake_act acts[] = {FAKE_DROP,
					     FAKE_LOSE,
					     FAKE_BREAK,
					     FAKE_BREAK,
					     FAKE_ROT,
					     FAKE_TWICE,
					     FAKE_STATUS + ASH_ST_BEHIND,
					     FAKE_STATUS + ASH_ST_RETRY,
					     FAKE_STATUS + ASH_ST_NO_ROUTE,
					     FAKE_STATUS + ASH_ST_STALE};

	if (ash_prng_below(&fk->rng, 1000) < 3)
		fake_move(fk, (uint32_t)ash_prng_below(&fk->rng, FAKE_PGS),
			  (int)ash_prng_below(&fk->rng, FAKE_SDSS), ash_prng_below(&fk->rng, 2));
	if (ash_prng_below(&fk->rng, 1000) >= storm_chance)
		return FAKE_SERVE;
	return acts[ash_prng_below(&fk->rng, sizeof(acts) / sizeof(acts[0]))];
}

#define STORM_IOS 24
struct storm_io {
	struct fake_io io;
	uint64_t offset, bytes;
	uint8_t kind;
	bool busy;
	uint8_t data[256 * 1024];
};

static bool busy_range(struct storm_io *s, uint64_t off, uint64_t n)
{
	for (int i = 0; i < STORM_IOS; i++)
		if (s[i].busy && s[i].offset < off + n && off < s[i].offset + s[i].bytes)
			return true;
	return false;
}

static void storm_submit(struct fake *g, struct sdc_vol *v, struct storm_io *all,
			 struct storm_io *s)
{
	uint64_t k = ash_prng_below(&g->rng, 100);

	do {
		s->bytes = 512 * (1 + ash_prng_below(&g->rng, k < 80 ? 32 : 512));
		s->offset = 512 * ash_prng_below(&g->rng, FAKE_BYTES / 512);
		if (s->offset + s->bytes > FAKE_BYTES)
			s->offset = FAKE_BYTES - s->bytes;
	} while (busy_range(all, s->offset, s->bytes));
	s->kind = k % 10 < 5   ? SDC_WRITE
		  : k % 10 < 8 ? SDC_READ
		  : k % 10 < 9 ? SDC_DISCARD
			       : SDC_WRITE_ZEROES;
	memset(&s->io, 0, sizeof(s->io));
	for (uint64_t i = 0; i < s->bytes && s->kind == SDC_WRITE; i += 8)
		memcpy(s->data + i, (uint64_t[]){ash_prng_next(&g->rng)}, 8);
	s->busy = true;
	fake_submit(v, &s->io, s->kind, s->offset,
		    s->kind == SDC_WRITE || s->kind == SDC_READ ? s->data : NULL, s->bytes);
}

static void storm_check(struct storm_io *s, uint8_t *model)
{
	s->busy = false;
	assert_int_equal(s->io.status, 0);
	if (s->kind == SDC_READ)
		assert_memory_equal(s->data, model + s->offset, s->bytes);
	else if (s->kind == SDC_WRITE)
		memcpy(model + s->offset, s->data, s->bytes);
	else
		memset(model + s->offset, 0, s->bytes);
}

static void storm_one(uint64_t seed)
{
	static struct storm_io io[STORM_IOS];
	static uint8_t model[FAKE_BYTES];
	struct sdc_cfg cfg = {.name = "s", .session = seed + 1, .requests = 20};
	struct fake g;
	struct sdc_vol *v;

	memset(io, 0, sizeof(io));
	memset(model, 0, sizeof(model));
	fake_init(&g, seed);
	g.late_delivery = true;
	fake_sdc(&g, &cfg);
	v = fake_open(&g);
	storm_chance = 30 + (unsigned)seed % 5 * 20;
	g.hook = storm;
	for (unsigned n = 0; n < 1500;) {
		for (int i = 0; i < STORM_IOS; i++) {
			if (io[i].busy && io[i].io.done) {
				storm_check(&io[i], model);
				n++;
			}
			if (!io[i].busy)
				storm_submit(&g, v, io, &io[i]);
		}
		fake_run(&g, 300000, NULL);
	}
	for (int i = 0; i < STORM_IOS; i++) {
		fake_run(&g, LONG, &io[i].io.done);
		storm_check(&io[i], model);
	}
	assert_memory_equal(g.store, model, FAKE_BYTES);
	assert_int_equal(g.overlaps, 0);
	assert_true(g.refused_late > 0); /* the fence had something to do */
	fake_close(&g, v);
	fake_done(&g);
}

static void test_storm_of_faults_loses_and_mixes_up_nothing(void **state)
{
	for (uint64_t seed = 1; seed <= 10; seed++)
		storm_one(seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_storm_of_faults_loses_and_mixes_up_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
