// SPDX-License-Identifier: MIT
/* The log alone: what was applied comes back, whatever its length; answers come once and later. */
#include <ev.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/clean.h"
#include "mdm/shell/identity.h"
#include "mdm/shell/raft.h"

#define ENTRIES 100

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static void remove_tree(const char *dir)
{
	nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

struct node {
	struct ev_loop *loop;
	struct mdm_raft *raft;
	bool leads, in_call;
	uint64_t last_index;
	/* Every applied command: length and bytes. */
	uint8_t seen[ENTRIES * 4][256];
	size_t length[ENTRIES * 4], count;
	unsigned done, good;
};

static void on_apply(void *arg, const uint8_t *data, size_t bytes, uint64_t index)
{
	struct node *n = arg;

	assert_true(index > n->last_index);
	assert_true(n->count < ENTRIES * 4 && bytes <= 256);
	n->last_index = index;
	memcpy(n->seen[n->count], data, bytes);
	n->length[n->count++] = bytes;
}

static uint8_t *on_snapshot(void *arg, size_t *ret_bytes)
{
	*ret_bytes = 8;
	return calloc(1, 8);
}

static int on_restore(void *arg, const uint8_t *data, size_t bytes)
{
	return 0;
}

static void on_role(void *arg, bool leads, uint64_t leader)
{
	struct node *n = arg;

	n->leads = leads;
	if (leads)
		ev_break(n->loop, EVBREAK_ALL);
}

static void on_fatal(void *arg, const char *why)
{
	fail_msg("%s", why);
}

static const struct mdm_raft_events events = {on_apply, on_snapshot, on_restore, on_role, on_fatal};

static void on_done(void *arg, int result)
{
	struct node *n = arg;

	assert_false(n->in_call);
	n->done++;
	n->good += result == 0;
	if (n->done == ENTRIES)
		ev_break(n->loop, EVBREAK_ALL);
}

static void too_long(struct ev_loop *loop, ev_timer *w, int revents)
{
	fail_msg("the log did not get on within its time");
}

static void run(struct node *n)
{
	ev_timer limit;

	ev_timer_init(&limit, too_long, 60., 0.);
	ev_timer_start(n->loop, &limit);
	ev_run(n->loop, 0);
	ev_timer_stop(n->loop, &limit);
}

static void open_node(struct node *n, const char *dir, unsigned port)
{
	char address[32];
	struct mdm_raft_member self = {.id = 1, .address = address};
	struct ash_error err = ash_error_ok();

	snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	n->raft = mdm_raft_new(n->loop, dir, 1, address, &self, 1, &events, n, &err);
	if (!n->raft)
		fail_msg("%s", err.message);
	if (!n->leads)
		run(n);
	assert_true(n->leads && mdm_raft_leads(n->raft));
}

static void propose(struct node *n)
{
	uint8_t data[256];

	n->done = n->good = 0;
	for (unsigned i = 0; i < ENTRIES; i++) {
		memset(data, (int)i, sizeof(data));
		n->in_call = true;
		mdm_raft_propose(n->raft, data, i + 1, on_done, n);
		n->in_call = false;
	}
	run(n);
	assert_int_equal(n->good, ENTRIES);
}

static void check(const struct node *n, size_t rounds)
{
	assert_int_equal(n->count, rounds * ENTRIES);
	for (size_t i = 0; i < n->count; i++) {
		assert_int_equal(n->length[i], i % ENTRIES + 1);
		assert_int_equal(n->seen[i][n->length[i] - 1], i % ENTRIES);
	}
}

/* Lengths of 1..100 bytes: all but every eighth are no whole words. */
static void what_was_applied_comes_back(void **state)
{
	char dir[] = "/tmp/ashlar-raft-"
		     "XX"
		     "XX"
		     "XX";
	unsigned port = 20000 + (unsigned)getpid() % 20000;
	struct node *n = ash_xcalloc(1, sizeof(*n));

	assert_non_null(mkdtemp(dir));
	for (size_t round = 1; round <= 3; round++) {
		memset(n, 0, sizeof(*n));
		n->loop = ev_loop_new(0);
		open_node(n, dir, port);
		check(n, round - 1);
		propose(n);
		check(n, round);
		mdm_raft_free(n->raft);
		ev_loop_destroy(n->loop);
	}
	free(n);
	remove_tree(dir);
}

/* Ends with proposals under way: each of them hears of it once. */
static void an_end_answers_everybody(void **state)
{
	char dir[] = "/tmp/ashlar-raft-"
		     "XX"
		     "XX"
		     "XX";
	unsigned port = 20000 + (unsigned)getpid() % 20000;
	struct node *n = ash_xcalloc(1, sizeof(*n));
	uint8_t byte = 1;

	assert_non_null(mkdtemp(dir));
	n->loop = ev_loop_new(0);
	open_node(n, dir, port);
	for (unsigned i = 0; i < 10; i++)
		mdm_raft_propose(n->raft, &byte, 1, on_done, n);
	mdm_raft_free(n->raft);
	assert_int_equal(n->done, 10);
	assert_int_equal(n->good, 0);
	ev_loop_destroy(n->loop);
	free(n);
	remove_tree(dir);
}

static void identity_comes_back(void **state)
{
	char dir[] = "/tmp/ashlar-ident-"
		     "XX"
		     "XX"
		     "XX";
	struct mdm_identity who, again;
	struct ash_error err;

	assert_non_null(mkdtemp(dir));
	err = mdm_identity_open(&who, dir);
	assert_int_equal(err.code, ASH_OK);
	assert_int_equal(who.id, 0);
	who.id = 2;
	memset(who.system, 7, 16);
	snprintf(who.system_name, sizeof(who.system_name), "s");
	who.members = 1;
	who.member[0] = (struct mdm_first_member){2, true, "tb1", "10.0.0.1:6611", "10.0.0.1:9011"};
	err = mdm_identity_save(&who, dir);
	assert_int_equal(err.code, ASH_OK);
	close(who.lock_fd);
	err = mdm_identity_open(&again, dir);
	assert_int_equal(err.code, ASH_OK);
	assert_memory_equal(who.uuid, again.uuid, 16);
	assert_memory_equal(who.system, again.system, 16);
	assert_int_equal(again.id, 2);
	assert_int_equal(again.members, 1);
	assert_true(again.member[0].tie_breaker);
	assert_string_equal(again.member[0].name, "tb1");
	assert_string_equal(again.member[0].raft, "10.0.0.1:9011");
	close(again.lock_fd);
	remove_tree(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_applied_comes_back),
		cmocka_unit_test(an_end_answers_everybody),
		cmocka_unit_test(identity_comes_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
