// SPDX-License-Identifier: MIT
#include "tests/unit/sdc/core_rig.h"

#include <string.h>

struct fake f;
struct sdc_vol *vol;
uint8_t a[RIG_BYTES], b[RIG_BYTES];

static int hook_count;
static enum fake_act hook_act;
static uint8_t hook_op;

static enum fake_act first_ones(struct fake *fk, int sds, const struct ash_hdr *h)
{
	if (hook_count <= 0 || (hook_op && h->op != hook_op))
		return FAKE_SERVE;
	hook_count--;
	return hook_act;
}

void set_hook(int count, uint8_t op, enum fake_act act)
{
	hook_count = count;
	hook_op = op;
	hook_act = act;
	f.hook = first_ones;
}

int rig_setup(void **state)
{
	fake_init(&f, 1);
	fake_sdc(&f, NULL);
	vol = fake_open(&f);
	for (size_t i = 0; i < sizeof(a); i++)
		a[i] = (uint8_t)ash_prng_next(&f.rng);
	memset(b, 0xee, sizeof(b));
	return 0;
}

int rig_teardown(void **state)
{
	assert_int_equal(f.overlaps, 0);
	if (vol)
		fake_close(&f, vol);
	vol = NULL;
	fake_done(&f);
	return 0;
}

int wr(uint64_t off, void *data, uint64_t n)
{
	return fake_io(&f, vol, SDC_WRITE, off, data, n, LONG);
}

int rd(uint64_t off, void *data, uint64_t n)
{
	return fake_io(&f, vol, SDC_READ, off, data, n, LONG);
}

int flush_all(void)
{
	return fake_io(&f, vol, SDC_FLUSH, 0, NULL, 0, LONG);
}

struct sdc_stats stats(void)
{
	struct sdc_stats s;

	sdc_stats(f.sdc, &s);
	return s;
}
