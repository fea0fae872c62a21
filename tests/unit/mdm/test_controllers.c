/* SPDX-License-Identifier: MIT */
/* Failure detector and repair, with a log and a clock that do as they are told. */
#include "desk.h"

/* ---------------------------------------------------------------- failure */

static void silence_is_failure(void **state)
{
	struct desk d;
	uint64_t last;

	desk_cluster(&d, 3);
	desk_volume(&d, NULL);
	desk_pass(&d, 5000);
	assert_true(mdm_sds(d.c.st, d.c.sds[0])->up);
	desk_servers[0].alive = false;
	last = desk_servers[0].next_ns - 200 * DESK_MS; /* of its last heartbeat */
	while (d.now + 10 * DESK_MS < last + 1000 * DESK_MS)
		desk_pass(&d, 10);
	assert_true(mdm_sds(d.c.st, d.c.sds[0])->up);
	desk_pass(&d, 100);
	assert_false(mdm_sds(d.c.st, d.c.sds[0])->up);
	assert_true(mdm_sds(d.c.st, d.c.sds[1])->up);
	for (uint32_t pg = 0; pg < 16; pg++)
		assert_int_not_equal(row(&d, pg)->primary, 0);
	assert_int_equal(d.of_case[PB__COMMAND__C_SDS_STATE], 1);
	desk_close(&d);
}

static void a_closed_connection_proves_nothing(void **state)
{
	struct desk d;
	struct desk_server *s = &desk_servers[0];

	desk_cluster(&d, 3);
	desk_hang_up(s->c);
	s->c = NULL;
	desk_pass(&d, 800);
	assert_true(mdm_sds(d.c.st, s->id)->up);
	assert_int_equal(desk_register(&d, s), 0);
	desk_pass(&d, 3000);
	assert_true(mdm_sds(d.c.st, s->id)->up);
	desk_close(&d);
}

static void a_new_leader_counts_afresh(void **state)
{
	struct desk d;

	desk_cluster(&d, 3);
	for (unsigned i = 0; i < 3; i++)
		desk_servers[i].alive = false;
	desk_pass(&d, 600);
	mdm_service_role(d.svc, false, NULL);
	desk_pass(&d, 5000);
	mdm_service_role(d.svc, true, "127.0.0.1:6611");
	desk_pass(&d, 900);
	for (unsigned i = 0; i < 3; i++)
		assert_true(mdm_sds(d.c.st, d.c.sds[i])->up);
	desk_pass(&d, 400);
	for (unsigned i = 0; i < 3; i++)
		assert_false(mdm_sds(d.c.st, d.c.sds[i])->up);
	desk_close(&d);
}

static void own_stall_is_forgiven(void **state)
{
	struct desk d;

	desk_cluster(&d, 3);
	d.now += 8000 * DESK_MS; /* stopped; the heartbeats of that time are unread yet */
	ash_timers_run(&d.timers, d.now);
	desk_run(&d);
	assert_int_equal(d.of_case[PB__COMMAND__C_SDS_STATE], 0);
	desk_pass(&d, 3000);
	assert_int_equal(d.of_case[PB__COMMAND__C_SDS_STATE], 0);
	desk_close(&d);
}

static void those_that_fall_together_fail_in_one_step(void **state)
{
	struct desk d;
	unsigned both = 0;

	desk_cluster(&d, 4);
	desk_volume(&d, NULL);
	desk_servers[0].next_ns += 120 * DESK_MS; /* not in step */
	desk_pass(&d, 3000);
	desk_servers[0].alive = desk_servers[1].alive = false;
	desk_pass(&d, 1500);
	assert_int_equal(d.of_case[PB__COMMAND__C_SDS_STATE], 1);
	for (uint32_t pg = 0; pg < 16; pg++)
		both += row(&d, pg)->last_count == 2;
	assert_true(both > 0);
	/* One returns: after five seconds the groups go on with it. */
	desk_servers[0].process = 900;
	assert_int_equal(desk_register(&d, &desk_servers[0]), 0);
	assert_int_equal(desk_open_device(&d, &desk_servers[0], d.c.dev[0], 2), 0);
	desk_pass(&d, 4500);
	assert_int_equal(in_state(&d, 0), both);
	desk_pass(&d, 1500);
	assert_int_equal(in_state(&d, 0), 0);
	desk_close(&d);
}

static void whole_set_back_is_served_at_once(void **state)
{
	struct desk d;

	desk_cluster(&d, 2);
	desk_volume(&d, NULL);
	desk_servers[0].alive = desk_servers[1].alive = false;
	desk_pass(&d, 1500);
	assert_int_equal(in_state(&d, 0), 16);
	/* The first restarted, the second was only cut off: it has what a cache may have lost. */
	desk_servers[0].process = 900;
	assert_int_equal(desk_register(&d, &desk_servers[0]), 0);
	assert_int_equal(desk_open_device(&d, &desk_servers[0], d.c.dev[0], 2), 0);
	assert_int_equal(desk_register(&d, &desk_servers[1]), 0);
	assert_int_equal(desk_open_device(&d, &desk_servers[1], d.c.dev[1], 1), 0);
	desk_pass(&d, 300);
	assert_int_equal(in_state(&d, 0), 0);
	for (uint32_t pg = 0; pg < 16; pg++)
		assert_int_equal(row(&d, pg)->replica[row(&d, pg)->primary - 1].device, d.c.dev[1]);
	desk_close(&d);
}

/* A power cut takes MDMs and SDSs; one disk does not come back, and nothing is lost by it. */
static void restarted_servers_wait_for_the_verdict_on_others(void **state)
{
	struct desk d;

	desk_cluster(&d, 2);
	desk_volume(&d, NULL);
	desk_servers[0].alive = desk_servers[1].alive = false;
	mdm_service_role(d.svc, false, NULL);
	desk_pass(&d, 3000);
	mdm_service_role(d.svc, true, "127.0.0.1:6611");
	desk_servers[0].process = 900;
	assert_int_equal(desk_register(&d, &desk_servers[0]), -1);
	desk_pass(&d, 900);
	assert_int_equal(in_state(&d, 2), 16);
	desk_pass(&d, 500);
	assert_int_equal(desk_servers[0].c->reply->r_case, PB__REPLY__R_MAP);
	desk_servers[0].alive = true;
	for (uint32_t pg = 0; pg < 16; pg++)
		assert_int_equal(row(&d, pg)->last_count, 2);
	assert_int_equal(desk_open_device(&d, &desk_servers[0], d.c.dev[0], 2), 0);
	desk_pass(&d, 4500);
	assert_int_equal(in_state(&d, 0), 16); /* the other might come, with more */
	desk_pass(&d, 1500);
	assert_int_equal(in_state(&d, 1), 16);
	desk_close(&d);
}

static void one_restart_among_healthy_ones_does_not_wait(void **state)
{
	struct desk d;

	desk_cluster(&d, 3);
	desk_volume(&d, NULL);
	desk_pass(&d, 500);
	desk_servers[0].process = 900;
	assert_int_equal(desk_register(&d, &desk_servers[0]), 0);
	assert_int_equal(d.of_case[PB__COMMAND__C_SDS_STATE], 0);
	desk_close(&d);
}

static void stale_process_is_told_to_register(void **state)
{
	struct desk d;
	struct desk_server *s = &desk_servers[0];

	desk_cluster(&d, 3);
	s->alive = false;
	desk_pass(&d, 1500);
	assert_false(mdm_sds(d.c.st, s->id)->up);
	s->alive = true; /* it was only paused */
	desk_pass(&d, 300);
	assert_false(s->c->reply->heartbeat->registered);
	assert_int_equal(desk_register(&d, s), 0);
	desk_pass(&d, 300);
	assert_true(s->c->reply->heartbeat->registered);
	assert_true(mdm_sds(d.c.st, s->id)->up);
	desk_close(&d);
}

/* ---------------------------------------------------------------- repair */

static void copies_are_built_again(void **state)
{
	struct desk d;
	bool applied;
	unsigned joined = 0;

	desk_cluster(&d, 3);
	desk_volume(&d, NULL);
	desk_servers[0].process = 900; /* crashed and back at once */
	assert_int_equal(desk_register(&d, &desk_servers[0]), 0);
	desk_pass(&d, 2000);
	for (uint32_t pg = 0; pg < 16; pg++)
		for (unsigned i = 0; i < row(&d, pg)->replicas; i++)
			assert_int_not_equal(row(&d, pg)->replica[i].state, ASH_REPLICA_BUILDING);
	assert_int_equal(desk_open_device(&d, &desk_servers[0], d.c.dev[0], 2), 0);
	desk_pass(&d, 300);
	for (uint32_t pg = 0; pg < 16; pg++) {
		int i = mdm_row_find(row(&d, pg), d.c.dev[0]);

		if (i < 0)
			continue;
		assert_int_equal(row(&d, pg)->replica[i].state, ASH_REPLICA_BUILDING);
		/* Only the primary can say that it is done. */
		assert_int_equal(report(&d, &desk_servers[0], PB__PG_ACTION__PG_JOIN, pg,
					d.c.dev[0], &applied),
				 0);
		assert_false(applied);
		assert_int_equal(
			report(&d,
			       &desk_servers[server_of(
				       &d, row(&d, pg)->replica[row(&d, pg)->primary - 1].device)],
			       PB__PG_ACTION__PG_JOIN, pg, d.c.dev[0], &applied),
			0);
		assert_true(applied);
		joined++;
	}
	assert_true(joined > 5);
	assert_int_equal(in_state(&d, 2), 16);
	desk_close(&d);
}

static void accused_copies_wait_longer_each_time(void **state)
{
	struct desk d;
	uint32_t pg = 0;
	bool applied;

	desk_cluster(&d, 2);
	desk_volume(&d, NULL);
	for (unsigned round = 0; round < 4; round++) {
		uint64_t p = row(&d, pg)->replica[row(&d, pg)->primary - 1].device;
		uint64_t s = p == d.c.dev[0] ? d.c.dev[1] : d.c.dev[0];
		struct desk_server *server = &desk_servers[server_of(&d, p)];
		int i = mdm_row_find(row(&d, pg), s);

		/* The secondary accuses nobody but itself. */
		assert_int_equal(report(&d, &desk_servers[server_of(&d, s)], PB__PG_ACTION__PG_DROP,
					pg, p, &applied),
				 0);
		assert_false(applied);
		assert_int_equal(report(&d, server, PB__PG_ACTION__PG_DROP, pg, s, &applied), 0);
		assert_true(applied);
		assert_int_equal(report(&d, server, PB__PG_ACTION__PG_DROP, pg, p, &applied), 0);
		assert_false(applied); /* the last one */
		desk_pass(&d, (1000ull << round) - 100);
		assert_int_equal(row(&d, pg)->replica[i].state, ASH_REPLICA_ABSENT);
		desk_pass(&d, 1000);
		assert_int_equal(row(&d, pg)->replica[i].state, ASH_REPLICA_BUILDING);
		assert_int_equal(report(&d, server, PB__PG_ACTION__PG_JOIN, pg, s, &applied), 0);
		assert_true(applied);
	}
	desk_close(&d);
}

static void reports_need_the_right_reporter(void **state)
{
	struct desk d;
	bool applied;
	uint32_t pg;

	desk_cluster(&d, 3);
	desk_volume(&d, NULL);
	for (pg = 0; pg < 16 && mdm_row_find(row(&d, pg), d.c.dev[2]) >= 0; pg++)
		;
	assert_true(pg < 16); /* one that the third server has no part in */
	assert_int_equal(
		report(&d, &desk_servers[2], PB__PG_ACTION__PG_DROP, pg, d.c.dev[0], &applied), 0);
	assert_false(applied);
	assert_int_equal(
		report(&d, &desk_servers[2], PB__PG_ACTION__PG_BUMP, pg, d.c.dev[0], &applied), 0);
	assert_false(applied);
	assert_int_equal(
		report(&d, &desk_servers[0], PB__PG_ACTION__PG_ACTIVATE, pg, d.c.dev[0], &applied),
		0);
	assert_false(applied);
	assert_int_equal(
		report(&d, &desk_servers[0], PB__PG_ACTION__PG_BUMP, pg, d.c.dev[0], &applied), 0);
	assert_true(applied);
	desk_close(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(silence_is_failure),
		cmocka_unit_test(a_closed_connection_proves_nothing),
		cmocka_unit_test(a_new_leader_counts_afresh),
		cmocka_unit_test(own_stall_is_forgiven),
		cmocka_unit_test(those_that_fall_together_fail_in_one_step),
		cmocka_unit_test(whole_set_back_is_served_at_once),
		cmocka_unit_test(restarted_servers_wait_for_the_verdict_on_others),
		cmocka_unit_test(one_restart_among_healthy_ones_does_not_wait),
		cmocka_unit_test(stale_process_is_told_to_register),
		cmocka_unit_test(copies_are_built_again),
		cmocka_unit_test(accused_copies_wait_longer_each_time),
		cmocka_unit_test(reports_need_the_right_reporter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
