// SPDX-License-Identifier: MIT
/*
 * Crash points: a random workload against a model, the power cut at a random moment, the store
 * opened again and compared, over and over on one disk.
 *
 *   ashlar-crashtest [--points N] [--seed S] [--leave-out RULE] [--all-rules] [--verbose]
 *
 * One seed runs a number of points on a disk with a write-through cache, the next on one with a
 * volatile cache. Prints the seed and the place of the first violation and exits 1. With
 * --leave-out a violation is what is wanted: exit 0 if one was found.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clean.h"
#include "tests/unit/sds/store_crash.h"

static void crash_now(struct crash *t)
{
	if (below(t, 5)) {
		rig_cut(&t->r);
	} else {
		rig_kill(&t->r);
		t->n->kills++;
	}
}

static bool reopen(struct crash *t)
{
	struct rig *r = &t->r;
	int status;

	/* crashes while it recovers */
	while (below(t, 5) == 0) {
		unsigned steps = (unsigned)below(t, 60);
		static const uint8_t boot[16];

		r->flag = false;
		r->store = sds_store_open(&r->w.port, simdisk_handle(r->disk), boot, NULL, NULL);
		for (unsigned i = 0; i < steps && !r->store->started; i++) {
			/* the last step would call done */
			if (r->store->recovery && r->store->j.inflight)
				break;
			simworld_step(&r->w);
		}
		crash_now(t);
		t->n->second++;
	}
	status = rig_open(r);
	if (status)
		model_violation(&t->m, "opening gives %d", status);
	else if (t->small_blocks) /* so that several are in flight at once */
		r->store->j.room = 600;
	return status == 0;
}

static void forget_flights(struct crash *t)
{
	t->n->inflight += t->inflight;
	for (unsigned i = 0; i < INFLIGHT; i++)
		t->f[i].used = false;
	t->inflight = 0;
	t->stamping = false;
	for (unsigned p = 0; p < MODEL_PLACES; p++)
		for (unsigned i = 0; i < MODEL_BLOCKS; i++)
			t->m.c[p].b[i].busy = false;
}

static void note_stats(struct crash *t)
{
	struct sds_store_stats st;

	sds_store_stats(t->r.store, &st);
	t->n->checkpoints += st.checkpoints;
	t->n->evictions += st.al_evictions;
}

static void clean_close(struct crash *t)
{
	int result;

	t->fault = FAULT_NONE;
	for (unsigned i = 0; i < RIG_STEPS && t->inflight && !t->m.why[0]; i++)
		if (!simworld_step(&t->r.w))
			break;
	if (t->inflight && !t->m.why[0])
		model_violation(&t->m, "%u operations never end", t->inflight);
	if (t->m.why[0])
		return;
	note_stats(t);
	result = rig_close(&t->r);
	if (result == -ETIME || (result && !t->fault_hit))
		model_violation(&t->m, "closing gives %d", result);
	if (!result)
		model_flushed(&t->m, t->m.clock);
	t->n->closes++;
	forget_flights(t);
}

static void close_noted(void *arg, int result)
{
	*(bool *)arg = true;
}

/* The power goes while the store closes. */
static void interrupted_close(struct crash *t)
{
	unsigned steps = (unsigned)below(t, 150);
	bool closed = false;

	note_stats(t);
	sds_store_close(t->r.store, close_noted, &closed);
	while (steps-- > 0 && !closed && !t->m.why[0])
		simworld_step(&t->r.w);
	while (closed && t->r.w.tasks)
		simworld_step(&t->r.w);
	if (closed)
		t->r.store = NULL;
	crash_now(t);
	forget_flights(t);
}

static void one_point(struct crash *t)
{
	unsigned steps = (unsigned)below(t, below(t, 4) ? 400 : 40);

	t->depth = 1 + (unsigned)below(t, below(t, 4) ? 12 : INFLIGHT);
	t->first_place = (unsigned)below(t, MODEL_PLACES);
	crash_plan_fault(t);
	t->places = 1 + (unsigned)below(t, MODEL_PLACES);
	t->weight_write = 30 + (unsigned)below(t, 50);
	t->weight_clear = 2 + (unsigned)below(t, 18);
	for (unsigned i = 0; i < steps && !t->m.why[0]; i++)
		crash_workload_step(t);
	if (t->m.why[0])
		return;
	if (below(t, 40) == 0) {
		clean_close(t);
		if (t->m.why[0])
			return;
	} else if (below(t, 30) == 0) {
		interrupted_close(t);
	} else {
		note_stats(t);
		t->n->failed_store += t->r.store->failed != 0;
		crash_now(t);
		forget_flights(t);
	}
	t->n->points++;
	if (!reopen(t))
		return;
	crash_check_all(t, false);
	if (below(t, 4) == 0)
		crash_check_all(t, true);
	if (!t->m.why[0] && below(t, 8) == 0) {
		crash_now(t);
		t->n->points++;
		if (!reopen(t))
			return;
		crash_check_all(t, true);
	}
	if (!t->m.why[0] && below(t, 16) == 0)
		crash_rot_one(t);
}

/* Return: whether a violation was found. */
static bool run_seed(uint64_t seed, unsigned points, struct counts *n, bool verbose)
{
	struct crash *t = ash_xcalloc(1, sizeof(*t));
	struct sds_format_params params = {
		.al_capacity = seed % 3 ? 4 : EXTENTS,
		.journal_blocks = seed % 5 ? 64 : 96,
		.extents = EXTENTS,
	};
	bool found;

	t->n = n;
	rig_init(&t->r, seed, DISK_BYTES, seed & 1);
	t->m.write_back = seed & 1;
	t->small_blocks = seed % 7 < 3;
	for (unsigned i = 0; i < INFLIGHT; i++) {
		t->f[i].data = sds_aligned(32 * ASH_BLOCK_BYTES);
		assert(t->f[i].data);
	}
	if (rig_format(&t->r, &params) || rig_open(&t->r))
		model_violation(&t->m, "cannot format and open: %d", t->r.result);
	for (unsigned i = 0; i < points && !t->m.why[0]; i++)
		one_point(t);
	n->lost_pages += simdisk_counts(t->r.disk)->lost_pages;
	found = t->m.why[0] != 0;
	if (found && verbose)
		printf("seed %llu (%s): %s\n", (unsigned long long)seed,
		       t->m.write_back ? "volatile cache" : "write-through", t->m.why);
	for (unsigned i = 0; i < INFLIGHT; i++)
		free(t->f[i].data);
	rig_done(&t->r);
	free(t);
	return found;
}

/* ------------------------------------------------------------ command line */

static bool run(uint64_t seed, uint64_t points, struct counts *n, bool verbose)
{
	bool found = false;

	for (; n->points < points && !found; seed++)
		found = run_seed(seed, POINTS_PER_SEED, n, verbose);
	return found;
}

static bool leave_out(const char *name)
{
#ifdef ASHLAR_TEST_SWITCHES
	int rule = ash_rule_find(name);

	if (rule < 0)
		return false;
	ash_rule_left_out[rule] = true;
	return true;
#else
	(void)name;
	return false;
#endif
}

static const char *const rules[] = {
	"SEAL",	      "ROLLBACK",    "REUSE",	       "ORDER_FLUSH",  "TAIL_MOVE", "TAIL_SEAL",
	"AL_COVER",   "AL_CARRY",    "AL_RECOVER_U",   "EVICT_U",      "STAMP",	    "TABLE_WAL",
	"LEAVE_CSUM", "CSUM_VERIFY", "JOURNAL_PREFIX", "CSUM_DISTRUST"};

/* Each rule in a process of its own. Return: rules whose absence went unnoticed. */
static int all_rules(uint64_t seed, uint64_t points)
{
	int missed = 0;

	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		int status;
		pid_t pid;

		fflush(stdout);
		pid = fork();
		if (pid == 0) {
			struct counts n = {0};
			bool found = leave_out(rules[i]);

			if (found) {
				printf("%-15s ", rules[i]);
				found = run(seed, points, &n, true);
			}
			printf("%-15s %s after %llu points\n", rules[i],
			       found ? "found" : "NOT FOUND", (unsigned long long)n.points);
			fflush(stdout);
			_exit(!found);
		}
		if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0) {
			printf("%-15s missed or died (status %d)\n", rules[i], status);
			missed++;
		}
	}
	return missed;
}

static void print_counts(const struct counts *n, double seconds)
{
	printf("points=%llu seconds=%.1f operations=%llu reads=%llu in_flight_at_cut=%llu "
	       "blocks_changed_by_cut=%llu torn=%llu cuts_while_recovering=%llu clean_closes=%llu "
	       "rots_noticed=%llu no_space=%llu unknown_checksums=%llu checkpoints=%llu "
	       "evictions=%llu pages_lost=%llu failed_data=%llu failed_store=%llu kills=%llu\n",
	       (unsigned long long)n->points, seconds, (unsigned long long)n->ops,
	       (unsigned long long)n->reads, (unsigned long long)n->inflight,
	       (unsigned long long)n->changed, (unsigned long long)n->torn,
	       (unsigned long long)n->second, (unsigned long long)n->closes,
	       (unsigned long long)n->rots, (unsigned long long)n->nospace,
	       (unsigned long long)n->unknown, (unsigned long long)n->checkpoints,
	       (unsigned long long)n->evictions, (unsigned long long)n->lost_pages,
	       (unsigned long long)n->failed_data, (unsigned long long)n->failed_store,
	       (unsigned long long)n->kills);
}

/* A run that met none of something has not tested it. */
static bool met_everything(const struct counts *n)
{
	return n->inflight && n->changed && n->torn && n->second && n->closes && n->rots &&
	       n->nospace && n->unknown && n->checkpoints && n->evictions && n->lost_pages &&
	       n->failed_data && n->failed_store && n->kills;
}

static double now_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int usage(const char *me)
{
	fprintf(stderr,
		"usage: %s [--points N] [--seed S] [--leave-out RULE] [--all-rules]\n"
		"--leave-out and --all-rules need a build of the preset \"switches\".\n",
		me);
	return 2;
}

int main(int argc, char **argv)
{
	uint64_t points = 10000, seed = 1;
	const char *rule = NULL;
	bool every_rule = false, found;
	struct counts n = {0};
	double start = now_seconds();

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--points") && i + 1 < argc)
			points = strtoull(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
			seed = strtoull(argv[++i], NULL, 0);
		else if (!strcmp(argv[i], "--leave-out") && i + 1 < argc)
			rule = argv[++i];
		else if (!strcmp(argv[i], "--all-rules"))
			every_rule = true;
		else
			return usage(argv[0]);
	}
	if (every_rule)
		return all_rules(seed, points) != 0;
	if (rule && !leave_out(rule))
		return usage(argv[0]);
	found = run(seed, points, &n, true);
	print_counts(&n, now_seconds() - start);
	if (rule) {
		printf("rule %s left out: %s\n", rule, found ? "violation found" : "NOT NOTICED");
		return !found;
	}
	if (!found && points >= 5000 && !met_everything(&n)) {
		printf("something was never met\n");
		return 1;
	}
	return found;
}
