// SPDX-License-Identifier: MIT
/* Lists, bitmaps, tables, timers, buffers, histograms, random numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/bitmap.h"
#include "common/base/crc.h"
#include "common/base/hash.h"
#include "common/base/hist.h"
#include "common/base/htab.h"
#include "common/base/list.h"
#include "common/base/prng.h"
#include "common/base/timers.h"
#include "common/port/buf.h"

struct item {
	int value;
	struct ash_list link;
};

static void lists(void **state)
{
	struct ash_list head;
	struct item a = {.value = 1}, b = {.value = 2}, c = {.value = 3};
	int sum = 0, order = 0;

	ash_list_init(&head);
	assert_true(ash_list_empty(&head));
	assert_null(ash_list_pop(&head));
	ash_list_push_back(&head, &b.link);
	ash_list_push_back(&head, &c.link);
	ash_list_push_front(&head, &a.link);
	ash_list_each(it, &head) {
		order = order * 10 + ash_container_of(it, struct item, link)->value;
	}
	assert_int_equal(order, 123);
	assert_ptr_equal(ash_list_first(&head, struct item, link), &a);
	ash_list_each_safe(it, &head) {
		struct item *item = ash_container_of(it, struct item, link);

		sum += item->value;
		if (item != &b)
			ash_list_remove(it);
	}
	assert_int_equal(sum, 6);
	ash_list_remove(&a.link); /* on no list: fine */
	assert_ptr_equal(ash_list_pop(&head), &b.link);
	assert_true(ash_list_empty(&head));
	assert_true(ash_list_empty(&b.link));
}

static void bitmaps(void **state)
{
	uint64_t map[ASH_BITMAP_WORDS(256)] = {0};
	bool model[256] = {false};
	struct ash_prng rng;

	assert_int_equal(ASH_BITMAP_WORDS(65), 2);
	ash_prng_seed(&rng, 4);
	for (int i = 0; i < 20000; i++) {
		uint64_t first = ash_prng_below(&rng, 256);
		uint64_t count = ash_prng_below(&rng, 257 - first);
		bool on = ash_prng_below(&rng, 2), any = false;

		ash_bits_assign(map, first, count, on);
		for (uint64_t j = first; j < first + count; j++)
			model[j] = on;
		first = ash_prng_below(&rng, 256);
		count = ash_prng_below(&rng, 257 - first);
		for (uint64_t j = first; j < first + count; j++)
			any |= model[j];
		assert_int_equal(ash_bits_any(map, first, count), any);
		assert_int_equal(ash_bit_get(map, first), model[first]);
	}
}

static void reserved_tables_do_not_grow(void **state)
{
	struct ash_htab t = {0};
	size_t room;
	uint64_t key = 0;
	size_t cursor = 0;

	assert_null(ash_htab_get(&t, 0));
	assert_null(ash_htab_remove(&t, 0));
	assert_null(ash_htab_next(&t, &cursor, NULL));
	assert_int_equal(ash_htab_reserve(&t, 1000), 0);
	room = t.room;
	for (uint64_t k = 0; k < 1000; k++)
		assert_int_equal(ash_htab_put(&t, k << 40, &room), 0);
	assert_int_equal(t.room, room);
	/* A replaced value is no new entry. */
	assert_int_equal(ash_htab_put(&t, 7ull << 40, &t), 0);
	assert_int_equal(t.count, 1000);
	assert_ptr_equal(ash_htab_get(&t, 7ull << 40), &t);
	assert_non_null(ash_htab_next(&t, &cursor, &key));
	assert_non_null(ash_htab_remove(&t, key));
	assert_null(ash_htab_get(&t, key));
	ash_htab_done(&t);
}

static struct ash_timers timers;
static char ran[16];
static size_t ran_count;
static struct ash_timer again, other;

static void run_again(struct ash_timer *t)
{
	ran[ran_count++] = 'a';
	ash_timer_set(&timers, t, 0); /* "at once": must not keep the others from running */
}
static void run_other(struct ash_timer *t)
{
	ran[ran_count++] = 'o';
	ash_timer_cancel(&timers, &again);
}

static void timers_set_to_the_past_starve_nobody(void **state)
{
	ash_timers_init(&timers);
	again.fn = run_again;
	other.fn = run_other;
	ash_timer_set(&timers, &again, 10);
	ash_timer_set(&timers, &other, 20);
	assert_int_equal(ash_timers_run(&timers, 30), 2);
	assert_string_equal(ran, "ao");
	assert_int_equal(timers.count, 0); /* a callback may cancel another timer */
	ash_timer_set(&timers, &again, 10);
	assert_int_equal(ash_timers_run(&timers, 9), 0);
	assert_int_equal(ash_timers_run(&timers, 10), 1);
	assert_true(ash_timer_is_set(&again)); /* and set itself for the next run */
	assert_int_equal(ash_timers_next(&timers), 10);
	ash_timer_set(&timers, &again, 5);
	assert_int_equal(ash_timers_next(&timers), 5);
	ash_timers_done(&timers);
	assert_false(ash_timer_is_set(&again));
}

static void timers_of_one_moment_keep_their_order(void **state)
{
	struct ash_timer t[3] = {0};

	memset(ran, 0, sizeof(ran));
	ran_count = 0;
	ash_timers_init(&timers);
	again = (struct ash_timer){.fn = run_again};
	other = (struct ash_timer){.fn = run_other};
	ash_timer_set(&timers, &other, 5);
	ash_timer_set(&timers, &t[0], 6);
	ash_timer_set(&timers, &again, 5);
	assert_int_equal(ash_timers_run(&timers, 5), 1);
	assert_string_equal(ran, "o");
	ash_timers_done(&timers);
}

struct greedy {
	struct ash_buf_waiter w;
	struct ash_bufs *bufs;
	struct ash_buf *got;
	unsigned calls;
};
static void take_or_wait(struct ash_buf_waiter *w)
{
	struct greedy *g = ash_container_of(w, struct greedy, w);

	g->calls++;
	g->got = ash_buf_get(g->bufs, 1 << 20, ASH_BUF_PEER);
	if (!g->got)
		ash_bufs_wait(g->bufs, w);
}

/* One buffer back serves one waiter, in order; the others wait on and are asked next time. */
static void buffer_waiters_take_turns(void **state)
{
	struct ash_bufs *bufs = ash_bufs_new(0);
	struct greedy g[3] = {0};
	struct ash_buf *out[64];
	size_t bytes, total = 0;
	unsigned n = 0;
	void *base;

	while ((out[n] = ash_buf_get(bufs, 1 << 20, ASH_BUF_PEER)))
		n++;
	for (int i = 0; i < 3; i++) {
		g[i] = (struct greedy){.w.fn = take_or_wait, .bufs = bufs};
		ash_bufs_wait(bufs, &g[i].w);
		ash_bufs_wait(bufs, &g[i].w); /* twice is once */
	}
	ash_buf_put(out[--n]);
	assert_non_null(g[0].got);
	assert_null(g[1].got);
	assert_int_equal(g[1].calls, 1);
	ash_buf_put(out[--n]);
	assert_non_null(g[1].got);
	ash_bufs_unwait(bufs, &g[2].w);
	ash_bufs_unwait(bufs, &g[2].w);
	ash_buf_put(out[--n]);
	assert_null(g[2].got);
	ash_buf_put(g[0].got);
	ash_buf_put(g[1].got);
	while (n > 0)
		ash_buf_put(out[--n]);
	ash_buf_put(NULL);
	assert_int_equal(ash_bufs_in_use(bufs), 0);
	for (n = 0; ash_bufs_slab(bufs, n, &base, &bytes); n++)
		total += bytes;
	assert_int_equal(total, ash_bufs_total(bufs));
	ash_bufs_free(bufs);
}

/* Buffers of one size never overlap, nor do their checksums. */
static void buffers_are_apart(void **state)
{
	static const size_t sizes[] = {1, 4096, 4097, 65536, 262144, 1 << 20};
	struct ash_bufs *bufs = ash_bufs_new(8 << 20);
	struct ash_buf *out[2048];
	struct ash_prng rng;
	unsigned n = 0;

	ash_prng_seed(&rng, 8);
	while (n < 2048) {
		size_t bytes = sizes[ash_prng_below(&rng, 6)];
		struct ash_buf *b = ash_buf_get(bufs, bytes, ASH_BUF_PEER);

		if (!b)
			break;
		assert_true(b->bytes >= bytes);
		memset(b->base, (int)n, b->bytes);
		for (unsigned i = 0; i < b->bytes / 4096; i++)
			b->crc[i] = n;
		out[n++] = b;
	}
	assert_true(n > 10);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(out[i]->base[0], (uint8_t)i);
		assert_int_equal(out[i]->base[out[i]->bytes - 1], (uint8_t)i);
		assert_int_equal(out[i]->crc[0], i);
		assert_int_equal(out[i]->crc[out[i]->bytes / 4096 - 1], i);
		ash_buf_put(out[i]);
	}
	ash_bufs_free(bufs);
}

static void histograms_merge(void **state)
{
	struct ash_hist *a = malloc(sizeof(*a)), *b = malloc(sizeof(*b)),
			*all = malloc(sizeof(*all));
	struct ash_prng rng;

	ash_hist_init(a);
	ash_hist_init(b);
	ash_hist_init(all);
	ash_prng_seed(&rng, 6);
	for (int i = 0; i < 50000; i++) {
		uint64_t v = ash_prng_next(&rng) >> ash_prng_below(&rng, 64);

		ash_hist_add(i % 3 ? a : b, v);
		ash_hist_add(all, v);
	}
	ash_hist_merge(a, b);
	assert_memory_equal(a, all, sizeof(*a));
	assert_int_equal(a->count, 50000);
	for (unsigned q = 1; q <= 1000; q++)
		assert_true(ash_hist_quantile(a, q) >= ash_hist_quantile(a, q - 1));
	free(a);
	free(b);
	free(all);
}

/* RFC 3720's vectors, and xxh3's: both are on disks and on the wire. */
static void checksums_are_the_standard_ones(void **state)
{
	uint8_t data[32];

	memset(data, 0, 32);
	assert_int_equal(ash_crc32c(data, 32), 0x8a9136aau);
	memset(data, 0xff, 32);
	assert_int_equal(ash_crc32c(data, 32), 0x62a8ab43u);
	for (uint8_t i = 0; i < 32; i++)
		data[i] = i;
	assert_int_equal(ash_crc32c(data, 32), 0x46dd794eu);
	assert_int_equal(ash_crc32c(data, 0), 0);
	assert_int_equal(ash_hash64("", 0), 0x2d06800538d394c2ull);
}

static void random_numbers_repeat(void **state)
{
	struct ash_prng a, b;
	unsigned hits[10] = {0};

	ash_prng_seed(&a, 77);
	ash_prng_seed(&b, 77);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(ash_prng_next(&a), ash_prng_next(&b));
	ash_prng_seed(&b, 78);
	assert_int_not_equal(ash_prng_next(&a), ash_prng_next(&b));
	assert_int_equal(ash_prng_below(&a, 0), 0);
	assert_int_equal(ash_prng_below(&a, 1), 0);
	for (int i = 0; i < 100000; i++)
		hits[ash_prng_below(&a, 10)]++;
	for (int i = 0; i < 10; i++)
		assert_true(hits[i] > 9500 && hits[i] < 10500);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists),
		cmocka_unit_test(bitmaps),
		cmocka_unit_test(reserved_tables_do_not_grow),
		cmocka_unit_test(timers_set_to_the_past_starve_nobody),
		cmocka_unit_test(timers_of_one_moment_keep_their_order),
		cmocka_unit_test(buffer_waiters_take_turns),
		cmocka_unit_test(buffers_are_apart),
		cmocka_unit_test(histograms_merge),
		cmocka_unit_test(checksums_are_the_standard_ones),
		cmocka_unit_test(random_numbers_repeat),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
