/* SPDX-License-Identifier: MIT */
/* The checker must accept what a disk does, and catch each planted lie. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sim/history.h"

static struct sim_world w;
static struct history *h;
static unsigned vol;

static int setup(void **state)
{
	(void)state;
	sim_world_init(&w, 7);
	h = hist_new(&w);
	vol = hist_add_volume(h, "v1", 64, false, false);
	hist_add_volume(h, "v2", 64, true, false);
	hist_add_volume(h, "v3", 64, false, true);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	hist_free(h);
	sim_world_done(&w);
	return 0;
}

static struct hist_op *begin(enum hist_kind kind, uint64_t lba)
{
	return hist_begin(h, kind, vol, 1, lba, 1, false);
}

static struct hist_op *wrote(uint64_t lba)
{
	struct hist_op *op = begin(HIST_WRITE, lba);

	hist_end(h, op, 0, NULL, false);
	return op;
}

/* Ends a read as if it had returned what @from wrote (NULL: zeros). */
static void end_with(struct hist_op *read, const struct hist_op *from)
{
	uint8_t data[SIM_SECTOR] = {0};

	if (from)
		hist_fill(h, from, data);
	hist_end(h, read, 0, data, false);
}

static void got(uint64_t lba, const struct hist_op *from)
{
	end_with(begin(HIST_READ, lba), from);
}

static void last_value_and_zeros(void **state)
{
	struct hist_op *a, *z;

	got(5, NULL);
	a = wrote(5);
	got(5, a);
	z = begin(HIST_ZERO, 5);
	hist_end(h, z, 0, NULL, false);
	got(5, NULL);
	a = wrote(5);
	got(5, a);
	assert_false(w.failed);
}

static void catches_stale_read(void **state)
{
	struct hist_op *a = wrote(1), *b = wrote(1);

	(void)b;
	got(1, a);
	assert_true(w.failed);
}

static void catches_lost_write(void **state)
{
	wrote(1);
	got(1, NULL);
	assert_true(w.failed);
}

static void catches_value_from_nowhere(void **state)
{
	struct hist_op *a = wrote(1);
	struct hist_op fake = *a;

	fake.id = 99;
	got(1, &fake);
	assert_true(w.failed);
}

static void catches_other_place(void **state)
{
	struct hist_op *a = wrote(1);

	wrote(2);
	got(2, a);
	assert_true(w.failed);
	assert_non_null(strstr(w.verdict, "another place"));
}

static void catches_other_volume(void **state)
{
	struct hist_op *a = wrote(1);
	struct hist_op *r = hist_begin(h, HIST_READ, 1, 1, 1, 1, false);

	end_with(r, a);
	assert_true(w.failed);
	assert_non_null(strstr(w.verdict, "another volume"));
}

static void catches_torn_sector(void **state)
{
	struct hist_op *a = wrote(1), *r = begin(HIST_READ, 1);
	uint8_t data[SIM_SECTOR];

	hist_fill(h, a, data);
	data[300] ^= 1;
	hist_end(h, r, 0, data, false);
	assert_true(w.failed);
}

static void concurrent_write_either_way_but_stable(void **state)
{
	struct hist_op *a = wrote(1), *b = begin(HIST_WRITE, 1);

	got(1, a);
	got(1, b);
	assert_false(w.failed);
	got(1, a); /* went back */
	assert_true(w.failed);
}

static void overlapping_reads_may_disagree(void **state)
{
	struct hist_op *a = wrote(1), *b = begin(HIST_WRITE, 1);
	struct hist_op *r1 = begin(HIST_READ, 1), *r2 = begin(HIST_READ, 1);

	end_with(r1, b);
	end_with(r2, a);
	assert_false(w.failed);
	got(1, b);
	assert_false(w.failed);
}

static void two_writers_stay_in_one_order(void **state)
{
	struct hist_op *a = begin(HIST_WRITE, 1), *b = begin(HIST_WRITE, 1);

	hist_end(h, a, 0, NULL, false);
	hist_end(h, b, 0, NULL, false);
	got(1, a);
	got(1, a);
	assert_false(w.failed);
	got(1, b);
	assert_true(w.failed);
}

static void failed_write_may_happen_late_unless_fenced(void **state)
{
	struct hist_op *a = wrote(1), *b = begin(HIST_WRITE, 1);

	hist_client_died(h, 1);
	got(1, a);
	got(1, b); /* still allowed */
	assert_false(w.failed);
	got(1, a);
	assert_true(w.failed);
}

static void fenced_write_may_not_come_to_life(void **state)
{
	struct hist_op *a = wrote(1), *b = begin(HIST_WRITE, 1);

	hist_client_died(h, 1);
	hist_client_fenced(h, 1, vol);
	got(1, a);
	assert_false(w.failed);
	got(1, b);
	assert_true(w.failed);
}

static void fenced_write_seen_at_once_is_fine(void **state)
{
	struct hist_op *b;

	wrote(1);
	b = begin(HIST_WRITE, 1);
	hist_client_died(h, 1);
	hist_client_fenced(h, 1, vol);
	got(1, b);
	got(1, b);
	assert_false(w.failed);
}

static void refused_write_may_not_come_later(void **state)
{
	struct hist_op *a = wrote(1), *b = begin(HIST_WRITE, 1);

	hist_end(h, b, -ENOSPC, NULL, false);
	got(1, a);
	assert_false(w.failed);
	got(1, b);
	assert_true(w.failed);
}

static void shared_write_may_be_repeated_until_answered(void **state)
{
	struct hist_op *a, *b;

	vol = 2;
	a = hist_begin(h, HIST_WRITE, 2, 1, 1, 1, false);
	got(1, a);
	b = hist_begin(h, HIST_WRITE, 2, 2, 1, 1, false);
	hist_end(h, b, 0, NULL, false);
	got(1, b);
	got(1, a);
	assert_false(w.failed);
	hist_end(h, a, 0, NULL, false);
	got(1, a);
	assert_false(w.failed);
	got(1, b);
	assert_true(w.failed);
}

static void shared_write_in_flight_hides_what_was_before(void **state)
{
	struct hist_op *a, *b;

	vol = 2;
	a = hist_begin(h, HIST_WRITE, 2, 1, 1, 1, false);
	hist_end(h, a, 0, NULL, false);
	b = hist_begin(h, HIST_WRITE, 2, 2, 1, 1, false);
	got(1, b);
	got(1, a);
	assert_true(w.failed);
}

static void catches_zeros_after_rewrite(void **state)
{
	struct hist_op *z = begin(HIST_ZERO, 1);

	hist_end(h, z, 0, NULL, false);
	wrote(1);
	got(1, NULL);
	assert_true(w.failed);
}

static void unflushed_may_be_lost_flushed_not(void **state)
{
	struct hist_op *a, *b, *f;

	vol = 1;
	a = wrote(3);
	f = hist_begin(h, HIST_FLUSH, 1, 1, 0, 0, false);
	hist_end(h, f, 0, NULL, false);
	b = wrote(3);
	got(3, b);
	hist_lose_caches(h, 1, 0, 64);
	got(3, a);
	got(3, a);
	assert_false(w.failed);
	got(3, b); /* stable after the loss */
	assert_true(w.failed);
}

static void flushed_value_must_survive(void **state)
{
	struct hist_op *a, *b, *f;

	vol = 1;
	a = wrote(3);
	b = wrote(3);
	f = hist_begin(h, HIST_FLUSH, 1, 1, 0, 0, false);
	hist_end(h, f, 0, NULL, false);
	hist_lose_caches(h, 1, 0, 64);
	(void)b;
	got(3, a);
	assert_true(w.failed);
}

static void fua_value_must_survive(void **state)
{
	struct hist_op *b;

	vol = 1;
	b = hist_begin(h, HIST_WRITE, 1, 1, 3, 1, true);
	hist_end(h, b, 0, NULL, false);
	hist_lose_caches(h, 1, 0, 64);
	got(3, NULL);
	assert_true(w.failed);
}

/* Small random histories of one sector, true or not: the checker and a search through all orders
 * must agree on every one. */
#define OPS 6

struct small {
	struct hist_op *op;
	bool read;
	int start, end; /* positions in the order of events */
	int value;	/* index of the write that a read claims, -1 = never written */
};

/* Can the operations not in @done follow, with @held in the register? */
static bool orders(const struct small *s, unsigned done, int held)
{
	if (done == (1u << OPS) - 1)
		return true;
	for (int i = 0; i < OPS; i++) {
		bool first = !(done & 1u << i);

		for (int k = 0; k < OPS && first; k++)
			first = (done & 1u << k) || k == i || s[k].end > s[i].start;
		if (!first || (s[i].read && s[i].value != held))
			continue;
		if (orders(s, done | 1u << i, s[i].read ? held : i))
			return true;
	}
	return false;
}

/* Draws the order of starts and ends, and what each read claims to have seen. */
static void draw(struct sim_world *rng, struct small *s)
{
	int open = 0, at = 0, started = 0;

	for (int i = 0; i < OPS; i++)
		s[i] = (struct small){.start = -1, .end = -1, .read = sim_chance(rng, 500)};
	while (at < 2 * OPS) {
		int i = (int)sim_below(rng, OPS);

		if (i == started && open < 3) {
			s[i].start = at++;
			started++;
			open++;
		} else if (i < started && s[i].end < 0) {
			s[i].end = at++;
			open--;
		}
	}
	for (int i = 0; i < OPS; i++) {
		int v = (int)sim_below(rng, OPS + 1) - 1;

		s[i].value = v >= 0 && !s[v].read && s[v].start < s[i].end ? v : -1;
	}
}

static void play(struct small *s)
{
	for (int at = 0; at < 2 * OPS && !w.failed; at++)
		for (int i = 0; i < OPS; i++) {
			if (s[i].start == at)
				s[i].op = begin(s[i].read ? HIST_READ : HIST_WRITE, 0);
			if (s[i].end != at)
				continue;
			if (s[i].read)
				end_with(s[i].op, s[i].value < 0 ? NULL : s[s[i].value].op);
			else
				hist_end(h, s[i].op, 0, NULL, false);
		}
}

static void agrees_with_a_search_through_all_orders(void **state)
{
	struct sim_world rng;
	unsigned bad = 0, good = 0;

	sim_world_init(&rng, 1);
	for (unsigned run = 0; run < 20000; run++) {
		struct small s[OPS];
		bool ok;

		teardown(NULL);
		setup(NULL);
		vol = 0;
		draw(&rng, s);
		ok = orders(s, 0, -1);
		play(s);
		if (ok == w.failed)
			fail_msg("run %u: the search says %s, the checker %s", run,
				 ok ? "possible" : "impossible", w.failed ? w.verdict : "nothing");
		good += ok;
		bad += !ok;
	}
	sim_world_done(&rng);
	assert_true(bad > 2000 && good > 2000);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(last_value_and_zeros),
		T(catches_stale_read),
		T(catches_lost_write),
		T(catches_value_from_nowhere),
		T(catches_other_place),
		T(catches_other_volume),
		T(catches_torn_sector),
		T(concurrent_write_either_way_but_stable),
		T(overlapping_reads_may_disagree),
		T(two_writers_stay_in_one_order),
		T(failed_write_may_happen_late_unless_fenced),
		T(fenced_write_may_not_come_to_life),
		T(fenced_write_seen_at_once_is_fine),
		T(refused_write_may_not_come_later),
		T(shared_write_may_be_repeated_until_answered),
		T(shared_write_in_flight_hides_what_was_before),
		T(catches_zeros_after_rewrite),
		T(unflushed_may_be_lost_flushed_not),
		T(flushed_value_must_survive),
		T(fua_value_must_survive),
		T(agrees_with_a_search_through_all_orders),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
