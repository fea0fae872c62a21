/* SPDX-License-Identifier: MIT */
/* The state machine of a placement group. */
#include "random.h"

#define DROP PB__PG_ACTION__PG_DROP
#define BUILD PB__PG_ACTION__PG_BUILD
#define JOIN PB__PG_ACTION__PG_JOIN
#define BUMP PB__PG_ACTION__PG_BUMP
#define ACTIVATE PB__PG_ACTION__PG_ACTIVATE
#define REPLACE PB__PG_ACTION__PG_REPLACE
#define FORGET PB__PG_ACTION__PG_FORGET
#define HANDOVER PB__PG_ACTION__PG_HANDOVER
#define HANDED PB__PG_ACTION__PG_HANDED

static const char *why(const struct cluster *c)
{
	return c->res.answers[0]->why;
}

static uint64_t primary(const struct mdm_row *row)
{
	return row->primary ? row->replica[row->primary - 1].device : 0;
}

static struct mdm_replica *copy(struct cluster *c, uint32_t pg, uint64_t dev)
{
	int i = mdm_row_find(row_of(c, pg), dev);

	assert_true(i >= 0);
	return &row_of(c, pg)->replica[i];
}

static void give_volume(struct cluster *c)
{
	assert_int_equal(add_volume(c, "v", c->pool, 1 << 20, true), 0);
}

static void placed_only_while_empty(void **state)
{
	struct cluster c;

	make_cluster(&c, 3, 1024);
	assert_true(place_pg(&c, 0, c.dev[1], c.dev[2]));
	assert_int_equal(primary(row_of(&c, 0)), c.dev[1]);
	assert_false(place_pg(&c, 0, c.dev[1], c.dev[1])); /* one fault unit */
	assert_false(place_pg(&c, 0, c.dev[1], 999));
	give_volume(&c);
	assert_false(place_pg(&c, 0, c.dev[0], c.dev[2]));
	assert_non_null(strstr(why(&c), "volumes"));
	free_cluster(&c);
}

static void drop_promotes_and_never_empties(void **state)
{
	struct cluster c;
	struct mdm_row *row;
	uint64_t gen;

	make_cluster(&c, 2, 1024);
	give_volume(&c);
	row = row_of(&c, 0);
	assert_true(change_pg(&c, DROP, 0, c.dev[0]));
	assert_int_equal(primary(row), c.dev[1]);
	assert_int_equal(copy(&c, 0, c.dev[0])->state, ASH_REPLICA_ABSENT);
	assert_int_equal(copy(&c, 0, c.dev[0])->left_gen, row->gen);
	assert_int_equal(row->shrunk_at, row->gen);
	gen = row->gen;
	assert_false(change_pg(&c, DROP, 0, c.dev[1]));
	assert_int_equal(row->gen, gen);
	assert_int_equal(c.res.answers[0]->row->gen, gen); /* answered with the row as it is */
	assert_int_equal(c.res.answers[0]->row->primary, row->primary);
	free_cluster(&c);
}

static void other_generation_changes_nothing(void **state)
{
	struct cluster c;
	Pb__PgChange change = PB__PG_CHANGE__INIT;

	make_cluster(&c, 2, 1024);
	change.action = DROP;
	change.pool = c.pool;
	change.pg = 1;
	change.device = c.dev[0];
	change.expect_gen = row_of(&c, 1)->gen - 1;
	assert_false(change_pg_as(&c, &change));
	assert_non_null(strstr(why(&c), "generation"));
	change.pg = 16;
	assert_false(change_pg_as(&c, &change));
	change.pool = 999;
	assert_false(change_pg_as(&c, &change));
	free_cluster(&c);
}

static void back_by_build_and_join(void **state)
{
	struct cluster c;
	struct mdm_row *row;
	Pb__PgChange change = PB__PG_CHANGE__INIT;
	uint64_t left;

	make_cluster(&c, 2, 1024);
	give_volume(&c);
	row = row_of(&c, 0);
	assert_int_equal(open_device(&c, c.dev[0], 2, 1, 1 << 30), 0);
	left = copy(&c, 0, c.dev[0])->left_gen;
	assert_int_equal(left, row->gen);
	assert_false(change_pg(&c, JOIN, 0, c.dev[0])); /* nothing was built */
	assert_true(change_pg(&c, BUILD, 0, c.dev[0]));
	assert_int_equal(copy(&c, 0, c.dev[0])->left_gen, left); /* tells what to send */
	assert_int_equal(mdm_row_in_sync(row), 1);
	/* The join names both openings. */
	change.action = JOIN;
	change.pool = c.pool;
	change.device = c.dev[0];
	change.expect_gen = row->gen;
	change.incarnation = 1;
	change.proposer_incarnation = 1;
	assert_false(change_pg_as(&c, &change));
	change.incarnation = 2;
	change.proposer_incarnation = 7;
	assert_false(change_pg_as(&c, &change));
	change.proposer_incarnation = 1;
	assert_true(change_pg_as(&c, &change));
	assert_int_equal(mdm_row_in_sync(row), 2);
	assert_int_equal(copy(&c, 0, c.dev[0])->left_gen, 0);
	assert_int_equal(primary(row), c.dev[1]); /* roles do not move back */
	free_cluster(&c);
}

static void opening_again_ends_the_build(void **state)
{
	struct cluster c;

	make_cluster(&c, 2, 1024);
	give_volume(&c);
	assert_true(change_pg(&c, DROP, 0, c.dev[0]));
	assert_true(change_pg(&c, BUILD, 0, c.dev[0]));
	assert_int_equal(open_device(&c, c.dev[0], 2, 1, 1 << 30), 0);
	assert_int_equal(copy(&c, 0, c.dev[0])->state, ASH_REPLICA_ABSENT);
	assert_false(change_pg(&c, JOIN, 0, c.dev[0]));
	free_cluster(&c);
}

static void outage_of_the_whole_set(void **state)
{
	struct cluster c;
	struct mdm_row *row;

	make_cluster(&c, 3, 1024);
	give_volume(&c);
	row = row_of(&c, 0); /* dev 0 and 1 */
	assert_int_equal(sds_down(&c, c.sds[0], 200), 0);
	assert_int_equal(primary(row), c.dev[1]);
	assert_int_equal(sds_down(&c, c.sds[1], 201), 0);
	assert_int_equal(row->primary, 0);
	assert_int_equal(row->last_count, 1);
	assert_int_equal(row->last[0], c.dev[1]);
	/* The first to leave is not one of the last set. */
	register_sds(&c, 100, 300);
	assert_int_equal(open_device(&c, c.dev[0], 2, 1, 1 << 30), 0);
	assert_false(change_pg(&c, ACTIVATE, 0, c.dev[0]));
	assert_false(change_pg(&c, BUILD, 0, c.dev[0]));
	assert_false(change_pg(&c, FORGET, 0, c.dev[1]));
	register_sds(&c, 101, 301);
	assert_false(change_pg(&c, ACTIVATE, 0, c.dev[1])); /* not open yet */
	assert_int_equal(open_device(&c, c.dev[1], 2, 1, 1 << 30), 0);
	assert_true(change_pg(&c, ACTIVATE, 0, c.dev[1]));
	assert_int_equal(primary(row), c.dev[1]);
	assert_int_equal(row->last_count, 0);
	assert_false(change_pg(&c, ACTIVATE, 0, c.dev[1]));
	assert_true(change_pg(&c, BUILD, 0, c.dev[0]));
	free_cluster(&c);
}

static void falling_together_keeps_both(void **state)
{
	struct cluster c;
	struct mdm_row *row;
	uint8_t s0[16], s1[16];
	Pb__CmdSdsState also = PB__CMD_SDS_STATE__INIT, *list = &also;
	COMMAND(cmd, b, SdsState, SDS_STATE, CMD_SDS_STATE, sds_state);

	make_cluster(&c, 3, 1024);
	give_volume(&c);
	uuid_of(200, s0);
	uuid_of(201, s1);
	b.sds = c.sds[0];
	b.session.data = s0;
	b.session.len = 16;
	also.sds = c.sds[1];
	also.session.data = s1;
	also.session.len = 16;
	b.n_also = 1;
	b.also = &list;
	must(&c, &cmd);
	row = row_of(&c, 0);
	assert_int_equal(row->primary, 0);
	assert_int_equal(row->last_count, 2);
	assert_int_equal(row->last[0], c.dev[0]); /* the old primary first */
	assert_int_equal(run(&c, &cmd), ASH_E_STALE);
	/* Either will do. */
	register_sds(&c, 101, 201);
	assert_int_equal(open_device(&c, c.dev[1], 1, 401, 1024ull << 20), 0);
	assert_true(change_pg(&c, ACTIVATE, 0, c.dev[1]));
	assert_int_equal(copy(&c, 0, c.dev[0])->state, ASH_REPLICA_ABSENT);
	assert_true(copy(&c, 0, c.dev[0])->left_gen < row->gen);
	free_cluster(&c);
}

static void a_restarted_process_holds_nothing(void **state)
{
	struct cluster c;

	make_cluster(&c, 2, 1024);
	give_volume(&c);
	assert_int_equal(register_sds(&c, 100, 999), 0); /* never declared failed */
	assert_int_equal(mdm_device(c.st, c.dev[0])->state, PB__DEVICE_STATE__DEVICE_DOWN);
	assert_int_equal(primary(row_of(&c, 0)), c.dev[1]);
	assert_int_equal(sds_down(&c, c.sds[0], 200), ASH_E_STALE); /* about the old process */
	assert_true(mdm_sds(c.st, c.sds[0])->up);
	free_cluster(&c);
}

static void new_primary_is_alone(void **state)
{
	struct cluster c;
	struct mdm_row *row;

	make_cluster(&c, 3, 1024);
	give_volume(&c);
	row = row_of(&c, 0); /* dev 0, 1 */
	assert_true(change_pg(&c, REPLACE, 0, c.dev[2]));
	assert_false(change_pg(&c, REPLACE, 0, c.dev[2]));
	assert_true(change_pg(&c, JOIN, 0, c.dev[2]));
	assert_int_equal(mdm_row_in_sync(row), 3);
	/* The others may differ in what the old primary had in flight. */
	assert_true(change_pg(&c, DROP, 0, c.dev[0]));
	assert_int_equal(mdm_row_in_sync(row), 1);
	assert_int_equal(primary(row), c.dev[1]);
	assert_int_equal(copy(&c, 0, c.dev[2])->left_gen, row->gen);
	free_cluster(&c);
}

static void superfluous_copies_are_forgotten(void **state)
{
	struct cluster c;
	struct mdm_row *row;

	make_cluster(&c, 3, 1024);
	give_volume(&c);
	row = row_of(&c, 0);
	assert_false(change_pg(&c, FORGET, 0, c.dev[1])); /* two have to stay */
	assert_true(change_pg(&c, REPLACE, 0, c.dev[2]));
	assert_true(change_pg(&c, JOIN, 0, c.dev[2]));
	assert_false(change_pg(&c, FORGET, 0, c.dev[0])); /* the primary */
	assert_true(change_pg(&c, FORGET, 0, c.dev[1]));
	assert_int_equal(row->replicas, 2);
	assert_int_equal(primary(row), c.dev[0]);
	assert_int_equal(mdm_row_find(row, c.dev[2]), 1);
	free_cluster(&c);
}

static void hand_over_keeps_both_in_sync(void **state)
{
	struct cluster c;
	struct mdm_row *row;
	uint64_t gen;

	make_cluster(&c, 2, 1024);
	give_volume(&c);
	row = row_of(&c, 0);
	assert_false(change_pg(&c, HANDED, 0, c.dev[1]));
	assert_false(change_pg(&c, HANDOVER, 0, c.dev[0]));
	assert_true(change_pg(&c, HANDOVER, 0, c.dev[1]));
	gen = row->gen;
	assert_true(change_pg(&c, HANDED, 0, c.dev[1]));
	assert_true(row->gen > gen);
	assert_int_equal(primary(row), c.dev[1]);
	assert_int_equal(mdm_row_in_sync(row), 2);
	assert_int_equal(row->shrunk_at, 0);
	/* The target's loss ends the intent. */
	assert_true(change_pg(&c, HANDOVER, 0, c.dev[0]));
	assert_int_equal(fail_device(&c, c.dev[0], 1), 0);
	assert_int_equal(row->handover, 0);
	free_cluster(&c);
}

static void bump_raises_only_the_generation(void **state)
{
	struct cluster c;
	struct mdm_row before, *row;

	make_cluster(&c, 2, 1024);
	row = row_of(&c, 3);
	before = *row;
	assert_true(change_pg(&c, BUMP, 3, 0));
	assert_true(row->gen > before.gen);
	assert_memory_equal(row->replica, before.replica, sizeof(before.replica));
	assert_int_equal(row->shrunk_at, before.shrunk_at);
	free_cluster(&c);
}

static void batch_judges_each_alone(void **state)
{
	struct cluster c;
	Pb__PgChange change[3], *list[3];
	COMMAND(cmd, b, PgBatch, PG_BATCH, CMD_PG_BATCH, pg_batch);

	make_cluster(&c, 2, 1024);
	give_volume(&c);
	for (unsigned i = 0; i < 3; i++) {
		pb__pg_change__init(&change[i]);
		change[i].action = DROP;
		change[i].pool = c.pool;
		change[i].pg = i / 2;
		change[i].device = c.dev[i % 2];
		change[i].expect_gen = row_of(&c, i / 2)->gen;
		list[i] = &change[i];
	}
	b.n_changes = 3;
	b.changes = list;
	must(&c, &cmd);
	assert_true(c.res.answers[0]->applied);
	assert_false(c.res.answers[1]->applied); /* the same group, its gen has moved on */
	assert_true(c.res.answers[2]->applied);
	assert_int_equal(mdm_row_in_sync(row_of(&c, 0)), 1);
	free_cluster(&c);
}

/* ---------------------------------------------------------------- property */

static unsigned in_sync_set(const struct mdm_row *row, uint64_t out[4])
{
	unsigned n = 0;

	for (unsigned i = 0; i < row->replicas; i++)
		if (row->replica[i].state == ASH_REPLICA_IN_SYNC)
			out[n++] = row->replica[i].device;
	return n;
}

static bool among(const uint64_t *set, unsigned n, uint64_t device)
{
	for (unsigned i = 0; i < n; i++)
		if (set[i] == device)
			return true;
	return false;
}

static bool was_building(const struct mdm_row *row, uint64_t device)
{
	int i = mdm_row_find(row, device);

	return i >= 0 && row->replica[i].state == ASH_REPLICA_BUILDING;
}

/* From one row to the next: only the ways that the rules know. */
static void check_step(const struct mdm_row *old, const struct mdm_row *now, uint64_t version)
{
	uint64_t before[4], after[4];
	unsigned nb = in_sync_set(old, before), na = in_sync_set(now, after), lost = 0, won = 0;
	bool same = nb == na && old->primary == now->primary && old->replicas == now->replicas;

	assert_true(now->gen >= old->gen);
	if (now->gen == old->gen) {
		assert_true(same);
		assert_memory_equal(old->replica, now->replica, sizeof(old->replica));
		return;
	}
	assert_int_equal(now->gen, version);
	for (unsigned i = 0; i < nb; i++)
		lost += !among(after, na, before[i]);
	for (unsigned i = 0; i < na; i++)
		won += !among(before, nb, after[i]);
	if (nb && !na) { /* remembered, all of it */
		assert_int_equal(now->last_count, nb);
		for (unsigned i = 0; i < nb; i++)
			assert_true(among(now->last, now->last_count, before[i]));
	}
	if (!nb && na) { /* one of the last set, alone */
		assert_int_equal(na, 1);
		assert_true(among(old->last, old->last_count, after[0]));
	}
	if (nb && won) { /* joined: one, that was being built */
		assert_int_equal(won, 1);
		assert_int_equal(lost, 0);
	}
	if (nb && na && lost && !won && now->shrunk_at == old->shrunk_at)
		assert_true(na >= 2); /* forgotten, not lost: two stayed */
	for (unsigned i = 0; i < na && nb; i++)
		if (!among(before, nb, after[i]))
			assert_true(was_building(old, after[i]));
	if (nb && na && old->primary && !among(after, na, old->replica[old->primary - 1].device))
		assert_int_equal(na, 1); /* unplanned change of primary */
}

static void random_histories_keep_the_rules(void **state)
{
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct random_run r;
		struct mdm_row old[16];
		unsigned moved = 0;

		random_start(&r, seed * 31);
		for (uint32_t pg = 0; pg < 16; pg++) {
			const struct mdm_table *t = &r.c.st->table[PB__KIND__KIND_DEVICE];

			place_pg(&r.c, pg, mdm_obj_id(t->obj[pg % 4]),
				 mdm_obj_id(t->obj[(pg % 4 + 1) % 4]));
		}
		for (uint32_t pg = 0; pg < 16; pg++)
			if (!row_of(&r.c, pg)->gen)
				place_pg(&r.c, pg, mdm_obj_id(r.c.st->table[4].obj[0]),
					 mdm_obj_id(r.c.st->table[4].obj[1]));
		give_volume(&r.c);
		for (unsigned i = 0; i < 3000; i++) {
			memcpy(old, mdm_rows(r.c.st, r.c.pool)->row, sizeof(old));
			random_pg_step(&r);
			check_state(r.c.st);
			for (uint32_t pg = 0; pg < 16; pg++) {
				check_step(&old[pg], row_of(&r.c, pg), r.c.st->version);
				moved += old[pg].gen != row_of(&r.c, pg)->gen;
			}
		}
		assert_true(moved > 500);
		free_cluster(&r.c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(placed_only_while_empty),
		cmocka_unit_test(drop_promotes_and_never_empties),
		cmocka_unit_test(other_generation_changes_nothing),
		cmocka_unit_test(back_by_build_and_join),
		cmocka_unit_test(opening_again_ends_the_build),
		cmocka_unit_test(outage_of_the_whole_set),
		cmocka_unit_test(falling_together_keeps_both),
		cmocka_unit_test(a_restarted_process_holds_nothing),
		cmocka_unit_test(new_primary_is_alone),
		cmocka_unit_test(superfluous_copies_are_forgotten),
		cmocka_unit_test(hand_over_keeps_both_in_sync),
		cmocka_unit_test(bump_raises_only_the_generation),
		cmocka_unit_test(batch_judges_each_alone),
		cmocka_unit_test(random_histories_keep_the_rules),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
