// SPDX-License-Identifier: MIT
/* The checker's model: allows whatever a disk can do, and nothing that it cannot. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "tests/system/nbd_check_model.h"

static struct model_op op(uint64_t first, uint64_t count, uint64_t value, bool write)
{
	return (struct model_op){.first = first, .count = count, .value = value, .write = write};
}

static void whole_write(struct model *m, uint64_t value)
{
	struct model_op w = op(0, 1, value, true);

	model_begin(m, &w);
	model_end_write(m, &w, true);
}

static bool read_allows(struct model *m, uint64_t value)
{
	struct model_op r = op(0, 1, 0, false);
	bool ok;

	model_begin(m, &r);
	ok = model_allows(m, &r, 0, value);
	model_end_read(m, &r, NULL);
	return ok;
}

static void test_a_finished_write_replaces_what_was_before(void **state)
{
	struct model *m = model_new(1);

	assert_true(read_allows(m, 0));
	whole_write(m, 1);
	assert_false(read_allows(m, 0));
	assert_true(read_allows(m, 1));
	whole_write(m, 2);
	assert_false(read_allows(m, 1));
	assert_true(read_allows(m, 2));
	assert_false(read_allows(m, 3));
	model_free(m);
}

static void test_overlapping_writes_leave_either(void **state)
{
	struct model *m = model_new(1);
	struct model_op a = op(0, 1, 1, true), b = op(0, 1, 2, true);
	uint64_t seen = 1;
	struct model_op r = op(0, 1, 0, false);

	model_begin(m, &a);
	model_begin(m, &b);
	assert_true(read_allows(m, 0));
	model_end_write(m, &b, true);
	assert_false(read_allows(m, 0));
	model_end_write(m, &a, true);
	assert_true(read_allows(m, 1));
	assert_true(read_allows(m, 2));
	/* Once one was seen with nothing in flight, it stays. */
	model_begin(m, &r);
	model_end_read(m, &r, &seen);
	assert_true(read_allows(m, 1));
	assert_false(read_allows(m, 2));
	model_free(m);
}

static void test_a_failed_write_may_come_late(void **state)
{
	struct model *m = model_new(1);
	struct model_op a = op(0, 1, 1, true);

	model_begin(m, &a);
	model_end_write(m, &a, false);
	assert_true(read_allows(m, 0));
	assert_true(read_allows(m, 1));
	whole_write(m, 2);
	assert_false(read_allows(m, 0));
	assert_true(read_allows(m, 1));
	model_free(m);
}

/* A disk that does each operation at once for all sectors, some time between begin and end. */
#define OPS 12
#define SECTORS 6
struct random_op {
	struct model_op m;
	int phase; /* 0 free, 1 begun, 2 done at the disk */
	uint64_t seen[SECTORS];
};

static unsigned run_random(uint64_t seed, bool lie)
{
	struct model *m = model_new(SECTORS);
	struct random_op o[OPS];
	uint64_t disk[SECTORS] = {0}, previous[SECTORS] = {0}, next = 0;
	struct ash_prng r;
	unsigned complaints = 0;

	memset(o, 0, sizeof(o));
	ash_prng_seed(&r, seed);
	for (int step = 0; step < 3000; step++) {
		struct random_op *x = &o[ash_prng_below(&r, OPS)];

		if (x->phase == 0) {
			uint64_t first = ash_prng_below(&r, SECTORS);
			bool write = ash_prng_below(&r, 2);

			x->m = op(first, 1 + ash_prng_below(&r, SECTORS - first),
				  write && ash_prng_below(&r, 4) ? ++next : 0, write);
			model_begin(m, &x->m);
		} else if (x->phase == 1) {
			for (uint64_t i = 0; i < x->m.count; i++) {
				uint64_t s = x->m.first + i;

				if (x->m.write) {
					previous[s] = disk[s];
					disk[s] = x->m.value;
				} else {
					x->seen[i] = lie ? previous[s] : disk[s];
				}
			}
		} else if (x->m.write) {
			model_end_write(m, &x->m, true);
		} else {
			for (uint64_t i = 0; i < x->m.count; i++)
				complaints += !model_allows(m, &x->m, x->m.first + i, x->seen[i]);
			model_end_read(m, &x->m, complaints ? NULL : x->seen);
		}
		x->phase = (x->phase + 1) % 3;
	}
	model_free(m);
	return complaints;
}

static void test_no_false_alarm_and_no_lie_believed(void **state)
{
	for (uint64_t seed = 1; seed <= 300; seed++) {
		assert_int_equal(run_random(seed, false), 0);
		assert_true(run_random(seed, true) > 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_finished_write_replaces_what_was_before),
		cmocka_unit_test(test_overlapping_writes_leave_either),
		cmocka_unit_test(test_a_failed_write_may_come_late),
		cmocka_unit_test(test_no_false_alarm_and_no_lie_believed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
