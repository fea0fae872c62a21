/* SPDX-License-Identifier: MIT */
/* Copies that do not come back are made anew elsewhere. */
#include "desk.h"

#define GRACE_MS 60000 /* of a new pool */
#define GROUPS 16

/* Copies of a device in that state, -1 = any. */
static unsigned copies(struct desk *d, uint64_t dev, int state)
{
	unsigned n = 0;

	for (uint32_t pg = 0; pg < GROUPS; pg++) {
		int i = mdm_row_find(row(d, pg), dev);

		n += i >= 0 && (state < 0 || row(d, pg)->replica[i].state == state);
	}
	return n;
}

static unsigned building(struct desk *d)
{
	unsigned n = 0;

	for (unsigned i = 0; i < d->c.sdss; i++)
		n += copies(d, d->c.dev[i], ASH_REPLICA_BUILDING);
	return n;
}

static uint64_t builds(const struct mdm_row *r)
{
	for (unsigned i = 0; i < r->replicas; i++)
		if (r->replica[i].state == ASH_REPLICA_BUILDING)
			return r->replica[i].device;
	return 0;
}

/* The primaries say that what is being built is done. Return: how many groups. */
static unsigned join_all(struct desk *d)
{
	unsigned n = 0;

	for (uint32_t pg = 0; pg < GROUPS; pg++) {
		uint64_t dev = builds(row(d, pg));
		unsigned p = server_of(d, row(d, pg)->replica[row(d, pg)->primary - 1].device);
		bool applied;

		if (!dev)
			continue;
		assert_int_equal(
			report(d, &desk_servers[p], PB__PG_ACTION__PG_JOIN, pg, dev, &applied), 0);
		assert_true(applied);
		n++;
	}
	return n;
}

static void lost_copies_are_made_anew_after_the_grace(void **state)
{
	struct desk d;
	unsigned lost, most = 0;

	desk_cluster(&d, 5);
	desk_volume(&d, NULL);
	lost = copies(&d, d.c.dev[0], -1);
	assert_true(lost > 4);
	desk_servers[0].alive = false;
	desk_pass(&d, GRACE_MS);
	assert_int_equal(in_state(&d, 1), lost);
	assert_int_equal(building(&d), 0);
	desk_pass(&d, 2000);
	assert_int_equal(building(&d), lost);
	check_state(d.c.st); /* among it: never two copies in one fault unit */
	for (unsigned i = 1; i < 5; i++) {
		unsigned n = copies(&d, d.c.dev[i], ASH_REPLICA_BUILDING);

		most = n > most ? n : most;
		assert_in_range(copies(&d, d.c.dev[i], ASH_REPLICA_BUILDING) +
					copies(&d, d.c.dev[i], ASH_REPLICA_IN_SYNC),
				8, 8); /* 16 groups, 2 copies, 4 devices */
	}
	assert_true(most < lost); /* spread over several */
	assert_int_equal(copies(&d, d.c.dev[0], ASH_REPLICA_ABSENT), lost);
	assert_int_equal(join_all(&d), lost);
	desk_pass(&d, 500);
	assert_int_equal(in_state(&d, 2), GROUPS);
	assert_int_equal(copies(&d, d.c.dev[0], -1), 0); /* forgotten */
	/* Back, it has no part in anything. */
	desk_servers[0].process = 900;
	assert_int_equal(desk_register(&d, &desk_servers[0]), 0);
	assert_int_equal(desk_open_device(&d, &desk_servers[0], d.c.dev[0], 2), 0);
	desk_pass(&d, 2000);
	assert_int_equal(copies(&d, d.c.dev[0], -1), 0);
	assert_int_equal(in_state(&d, 2), GROUPS);
	desk_close(&d);
}

static void the_grace_is_the_pools(void **state)
{
	COMMAND(cmd, c, PoolSet, POOL_SET, CMD_POOL_SET, pool_set);
	struct desk d;

	desk_cluster(&d, 4);
	desk_volume(&d, NULL);
	c.pool = d.c.pool;
	c.rebuild_grace_ms = 5000;
	must(&d.c, &cmd);
	desk_servers[1].alive = false;
	desk_pass(&d, 5000);
	assert_int_equal(building(&d), 0);
	desk_pass(&d, 2000);
	assert_int_equal(building(&d), copies(&d, d.c.dev[1], ASH_REPLICA_ABSENT));
	assert_int_not_equal(building(&d), 0);
	desk_close(&d);
}

static void a_failed_device_is_not_waited_for(void **state)
{
	struct desk d;
	unsigned lost;

	desk_cluster(&d, 4);
	desk_volume(&d, NULL);
	lost = copies(&d, d.c.dev[2], -1);
	assert_int_equal(fail_device(&d.c, d.c.dev[2], 1), 0);
	desk_pass(&d, 300);
	assert_int_equal(building(&d), lost);
	check_state(d.c.st);
	desk_close(&d);
}

static void a_new_leader_gives_the_grace_anew(void **state)
{
	struct desk d;

	desk_cluster(&d, 4);
	desk_volume(&d, NULL);
	desk_servers[0].alive = false;
	desk_pass(&d, 40000);
	mdm_service_role(d.svc, false, NULL);
	mdm_service_role(d.svc, true, "127.0.0.1:6611");
	desk_pass(&d, GRACE_MS - 1000);
	assert_int_equal(building(&d), 0);
	desk_pass(&d, 3000);
	assert_int_not_equal(building(&d), 0);
	desk_close(&d);
}

static bool status_says(struct desk *d, const char *text)
{
	struct desk_client *cli = desk_client(d, "cli", 55, 56);
	Pb__Request req = PB__REQUEST__INIT;
	Pb__Query q = PB__QUERY__INIT;
	bool said = false;

	q.what = (char *)"status";
	req.r_case = PB__REQUEST__R_QUERY;
	req.query = &q;
	assert_int_equal(desk_ask(cli, &req), 0);
	for (size_t i = 0; i < cli->reply->query->n_reasons; i++)
		said |= strstr(cli->reply->query->reasons[i], text) != NULL;
	desk_hang_up(cli);
	return said;
}

/* With two fault units there is nowhere to go, which is said. */
static void nowhere_to_go(void **state)
{
	struct desk d;

	desk_cluster(&d, 2);
	desk_volume(&d, NULL);
	desk_servers[0].alive = false;
	desk_pass(&d, 5000);
	assert_true(status_says(&d, "16 placement groups wait for a lost copy to come back"));
	assert_false(status_says(&d, "have no second copy"));
	desk_pass(&d, GRACE_MS);
	assert_int_equal(building(&d), 0);
	assert_int_equal(in_state(&d, 1), GROUPS);
	assert_true(status_says(&d, "16 placement groups have no second copy, and no device"));
	assert_false(status_says(&d, "wait for a lost copy"));
	desk_close(&d);
}

/* A device without room is passed over, also when the plan would fill it. */
static void room_is_looked_at(void **state)
{
	struct desk d;

	desk_cluster(&d, 4);
	desk_volume(&d, NULL);
	for (unsigned i = 1; i < 4; i++) {
		desk_servers[i].stats.device = d.c.dev[i];
		desk_servers[i].stats.used = 600ull << 20;
		desk_servers[i].stats.free = i == 1 ? 0 : 424ull << 20;
	}
	desk_servers[0].alive = false;
	desk_pass(&d, GRACE_MS + 2000);
	assert_int_equal(copies(&d, d.c.dev[1], ASH_REPLICA_BUILDING), 0);
	assert_int_not_equal(building(&d), 0);
	desk_close(&d);
}

static void come_back(struct desk *d, unsigned server)
{
	struct desk_server *s = &desk_servers[server];

	s->process = 900;
	assert_int_equal(desk_register(d, s), 0);
	assert_int_equal(desk_open_device(d, s, d->c.dev[server], 2), 0);
}

/* The lost copy is back while others are made in its place: the quicker way is finished. */
static void the_quicker_way_is_finished(void **state)
{
	struct desk d;
	unsigned lost;
	uint32_t pg = 0;
	uint64_t keeps;
	struct desk_server *p;

	desk_cluster(&d, 4);
	desk_volume(&d, NULL);
	lost = copies(&d, d.c.dev[0], -1);
	desk_servers[0].alive = false;
	desk_pass(&d, GRACE_MS + 2000);
	assert_int_equal(building(&d), lost);
	while (!builds(row(&d, pg)))
		pg++;
	keeps = builds(row(&d, pg));
	p = &desk_servers[server_of(&d, row(&d, pg)->replica[row(&d, pg)->primary - 1].device)];
	p->resync.pool = d.c.pool;
	p->resync.pg = pg;
	p->resync.done = 3 << 20;
	p->resync.left = 2 << 20;
	desk_pass(&d, 500);
	come_back(&d, 0);
	desk_pass(&d, 1000);
	assert_int_equal(builds(row(&d, pg)), keeps);
	assert_int_equal(copies(&d, d.c.dev[0], ASH_REPLICA_BUILDING), lost - 1);
	check_state(d.c.st);
	assert_int_equal(join_all(&d), lost);
	desk_pass(&d, 500);
	assert_int_equal(in_state(&d, 2), GROUPS);
	assert_int_equal(copies(&d, d.c.dev[0], ASH_REPLICA_IN_SYNC), lost - 1);
	assert_int_equal(copies(&d, d.c.dev[0], -1), lost - 1);
	desk_close(&d);
}

/* The new copies' devices are lost in turn, until the row is full, and beyond. */
static void one_loss_after_the_other(void **state)
{
	struct desk d;

	desk_cluster(&d, 7);
	desk_volume(&d, NULL);
	desk_servers[0].alive = false;
	desk_pass(&d, GRACE_MS + 2000);
	for (unsigned round = 1; round < 5; round++) {
		uint32_t pg = 0;
		uint64_t dev;

		while (mdm_row_find(row(&d, pg), d.c.dev[0]) < 0 || !builds(row(&d, pg)))
			pg++;
		dev = builds(row(&d, pg));
		assert_int_equal(fail_device(&d.c, dev, 1), 0);
		desk_pass(&d, 1000);
		check_state(d.c.st);
		assert_true(!row(&d, pg)->primary || builds(row(&d, pg)));
		assert_int_not_equal(builds(row(&d, pg)), dev);
	}
	desk_close(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lost_copies_are_made_anew_after_the_grace),
		cmocka_unit_test(the_grace_is_the_pools),
		cmocka_unit_test(a_failed_device_is_not_waited_for),
		cmocka_unit_test(a_new_leader_gives_the_grace_anew),
		cmocka_unit_test(nowhere_to_go),
		cmocka_unit_test(room_is_looked_at),
		cmocka_unit_test(the_quicker_way_is_finished),
		cmocka_unit_test(one_loss_after_the_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
