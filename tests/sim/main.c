/* SPDX-License-Identifier: MIT */
/*
 * ashlar-sim: runs the real cores in a simulated world, seed by seed.
 *
 * Seeds run in worker processes, so that a crash of a core is a finding like any other. A seed that
 * fails is run again alone with --trace by whoever wants to see what happened.
 */
#include <errno.h>
#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/switches.h"
#include "tests/sim/run.h"

#define WORKERS_MAX 64
#define SECONDS_PER_SEED 180

struct opts {
	struct sim_run_opts run;
	uint64_t runs;
	unsigned jobs;
	bool twice, all_hit, keep_going, quiet;
	const char *left_out;
};

struct totals {
	uint64_t seeds, failed, events, sim_ns;
	struct sim_counters n;
};

/* ------------------------------------------------------------ scenarios */

#define BIT(kind) (1ull << (kind))

static const struct {
	const char *name, *text;
	uint64_t kinds;
} scenarios[] = {
	{"calm", "nothing goes wrong", 0},
	{"crash", "processes and hosts of SDSs crash and return, all at once, too",
	 BIT(FAULT_SDS_CRASH) | BIT(FAULT_SDS_POWER) | BIT(FAULT_ALL_CRASH) | BIT(FAULT_ALL_POWER)},
	{"loss", "an SDS is lost for good while others crash and return",
	 BIT(FAULT_LOSS) | BIT(FAULT_SDS_CRASH) | BIT(FAULT_SDS_POWER) | BIT(FAULT_PAUSE)},
	{"first", "crashes, pauses, connections, disks, control channels",
	 (BIT(FAULT_KINDS) - 1) & ~BIT(FAULT_PARTITION) & ~BIT(FAULT_MDM_FAILOVER) &
		 ~BIT(FAULT_MDM_SNAPSHOT)},
	{"all", "everything", BIT(FAULT_KINDS) - 1},
};

static bool find_scenario(const char *name, uint64_t *ret_kinds)
{
	char list[256], *save = NULL;

	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
		if (!strcmp(scenarios[i].name, name)) {
			*ret_kinds = scenarios[i].kinds;
			return true;
		}
	*ret_kinds = 0;
	snprintf(list, sizeof(list), "%s", name);
	for (char *word = strtok_r(list, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		int kind = fault_find(word);

		if (kind < 0)
			return false;
		*ret_kinds |= BIT(kind);
	}
	return *ret_kinds != 0;
}

static void usage(FILE *to)
{
	fprintf(to,
		"usage: ashlar-sim [--seed N] [--runs M] [--ops N] [--jobs J] [--scenario NAME]\n"
		"                  [--leave-out RULE] [--trace] [--twice] [--all-hit] [--keep-going]\n"
		"                  [--canary lie|repl]\n"
		"  --seed N         first seed (1)\n"
		"  --runs M         how many seeds (1)\n"
		"  --ops N          client operations per seed (2000)\n"
		"  --jobs J         worker processes (1)\n"
		"  --leave-out RULE a rule of the protocol that the cores shall break (test builds)\n"
		"  --trace          print every event; runs in this process\n"
		"  --twice          run each seed twice and compare the traces' hashes\n"
		"  --all-hit        fail if a kind of fault never happened\n"
		"  --keep-going     do not stop at the first seed that fails\n"
		"  --canary KIND    plant an error that must be found\n"
		"scenarios, or a list of faults:\n");
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
		fprintf(to, "  %-8s %s\n", scenarios[i].name, scenarios[i].text);
	fprintf(to, "faults:");
	for (int i = 0; i < FAULT_KINDS; i++)
		fprintf(to, " %s", fault_name((enum fault_kind)i));
	fprintf(to, "\n");
}

/* ------------------------------------------------------------ results */

static void print_failure(const struct sim_outcome *o)
{
	printf("event=violation seed=%llu check=%s at_s=%.6f text=\"%s\"\n",
	       (unsigned long long)o->seed, o->check, (double)o->failed_at_ns / 1e9, o->verdict);
	fflush(stdout);
}

static void add(struct totals *t, const struct sim_outcome *o)
{
	t->seeds++;
	t->failed += o->failed;
	t->events += o->events;
	t->sim_ns += o->sim_ns;
#define ADD(name) t->n.name += o->n.name;
	SIM_COUNTERS(ADD)
#undef ADD
}

/* Faults that never happened although the scenario allows them. */
static unsigned print_totals(const struct totals *t, double seconds)
{
	unsigned zero = 0;

	printf("event=summary seeds=%llu failed=%llu seconds=%.1f seeds_per_s=%.1f events=%llu "
	       "simulated_s=%.0f\n",
	       (unsigned long long)t->seeds, (unsigned long long)t->failed, seconds,
	       (double)t->seeds / seconds, (unsigned long long)t->events, (double)t->sim_ns / 1e9);
	printf("event=counters");
#define PRINT(name)                                                                                \
	printf(" %s=%llu", #name, (unsigned long long)t->n.name);                                  \
	zero += t->n.name == 0;
	SIM_COUNTERS(PRINT)
#undef PRINT
	printf("\n");
	return zero;
}

/* ------------------------------------------------------------ one seed */

static bool run_seed(const struct opts *o, uint64_t seed, struct sim_outcome *out)
{
	struct sim_run_opts run = o->run;
	struct sim_outcome again;

	run.seed = seed;
	if (!sim_run(&run, out))
		return false;
	if (!o->twice)
		return true;
	if (!sim_run(&run, &again) || again.hash != out->hash || again.events != out->events) {
		out->failed = true;
		snprintf(out->check, sizeof(out->check), "determinism");
		snprintf(out->verdict, sizeof(out->verdict),
			 "two runs differ: %016llx after %llu events, %016llx after %llu%s%.500s",
			 (unsigned long long)out->hash, (unsigned long long)out->events,
			 (unsigned long long)again.hash, (unsigned long long)again.events,
			 again.failed ? "; " : "", again.failed ? again.verdict : "");
		return false;
	}
	return true;
}

/* ------------------------------------------------------------ workers */

struct worker {
	pid_t pid;
	int from;      /* pipe of outcomes */
	uint64_t seed; /* the one that it runs, or will run first */
};

static void work(const struct opts *o, uint64_t first, uint64_t step, uint64_t end, int to)
{
	struct sim_outcome out;

	for (uint64_t seed = first; seed < end; seed += step) {
		bool ok;

		memset(&out, 0, sizeof(out));
		alarm(SECONDS_PER_SEED);
		ok = run_seed(o, seed, &out);
		if (write(to, &out, sizeof(out)) != sizeof(out))
			_exit(2);
		if (!ok)
			_exit(1);
	}
	_exit(0);
}

static void spawn(const struct opts *o, struct worker *w, uint64_t end)
{
	int fd[2];

	if (pipe(fd) < 0) {
		perror("pipe");
		exit(4);
	}
	fflush(NULL);
	w->pid = fork();
	if (w->pid < 0) {
		perror("fork");
		exit(4);
	}
	if (!w->pid) {
		close(fd[0]);
		work(o, w->seed, o->jobs, end, fd[1]);
	}
	close(fd[1]);
	w->from = fd[0];
}

/* One outcome, or the end of the worker. False when it has nothing more to do. */
static bool hear(const struct opts *o, struct worker *w, uint64_t end, struct totals *t)
{
	struct sim_outcome out;
	ssize_t n = read(w->from, &out, sizeof(out));
	int status;

	if (n == (ssize_t)sizeof(out)) {
		add(t, &out);
		if (out.failed)
			print_failure(&out);
		w->seed += o->jobs;
		return true;
	}
	close(w->from);
	while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR)
		;
	w->pid = 0;
	if (WIFSIGNALED(status)) {
		memset(&out, 0, sizeof(out));
		out.failed = true;
		out.seed = w->seed;
		snprintf(out.check, sizeof(out.check),
			 WTERMSIG(status) == SIGALRM ? "hang" : "crash");
		snprintf(out.verdict, sizeof(out.verdict), "the process died of signal %d (%s)",
			 WTERMSIG(status), strsignal(WTERMSIG(status)));
		add(t, &out);
		print_failure(&out);
		w->seed += o->jobs;
	}
	if (w->seed >= end || (t->failed && !o->keep_going))
		return false;
	spawn(o, w, end);
	return true;
}

static void run_workers(const struct opts *o, struct totals *t)
{
	struct worker w[WORKERS_MAX];
	uint64_t end = o->run.seed + o->runs;
	unsigned alive = 0;

	for (unsigned i = 0; i < o->jobs; i++) {
		w[i].pid = 0;
		w[i].seed = o->run.seed + i;
		if (w[i].seed < end) {
			spawn(o, &w[i], end);
			alive++;
		}
	}
	while (alive) {
		fd_set set;
		int most = 0;

		FD_ZERO(&set);
		for (unsigned i = 0; i < o->jobs; i++)
			if (w[i].pid) {
				FD_SET(w[i].from, &set);
				most = w[i].from > most ? w[i].from : most;
			}
		if (select(most + 1, &set, NULL, NULL, NULL) < 0)
			continue;
		for (unsigned i = 0; i < o->jobs; i++)
			if (w[i].pid && FD_ISSET(w[i].from, &set) && !hear(o, &w[i], end, t))
				alive--;
		if (!t->failed || o->keep_going)
			continue;
		for (unsigned i = 0; i < o->jobs; i++)
			if (w[i].pid)
				kill(w[i].pid, SIGKILL);
		for (unsigned i = 0; i < o->jobs; i++)
			if (w[i].pid)
				waitpid(w[i].pid, NULL, 0);
		return;
	}
}

static void run_here(const struct opts *o, struct totals *t)
{
	for (uint64_t i = 0; i < o->runs; i++) {
		struct sim_outcome out;

		memset(&out, 0, sizeof(out));
		run_seed(o, o->run.seed + i, &out);
		add(t, &out);
		printf("event=seed seed=%llu failed=%d hash=%016llx events=%llu simulated_s=%.3f\n",
		       (unsigned long long)out.seed, out.failed, (unsigned long long)out.hash,
		       (unsigned long long)out.events, (double)out.sim_ns / 1e9);
		if (out.failed) {
			print_failure(&out);
			return;
		}
	}
}

/* ------------------------------------------------------------ command line */

static bool leave_out(const char *name)
{
	int rule = ash_rule_find(name);

	if (rule < 0) {
		fprintf(stderr, "ashlar-sim: no rule \"%s\"; the rules are:\n", name);
		for (int i = 0; i < ASH_RULE_COUNT; i++)
			fprintf(stderr, "  %-16s %s\n", ash_rule_name(i), ash_rule_text(i));
		return false;
	}
#ifdef ASHLAR_TEST_SWITCHES
	ash_rule_left_out[rule] = true;
	return true;
#else
	fprintf(stderr, "ashlar-sim: this build keeps all rules; use the preset \"switches\"\n");
	return false;
#endif
}

static int parse(int argc, char **argv, struct opts *o)
{
	static const struct option longs[] = {
		{"seed", required_argument, NULL, 's'},
		{"runs", required_argument, NULL, 'r'},
		{"ops", required_argument, NULL, 'o'},
		{"jobs", required_argument, NULL, 'j'},
		{"scenario", required_argument, NULL, 'c'},
		{"leave-out", required_argument, NULL, 'l'},
		{"canary", required_argument, NULL, 'k'},
		{"trace", no_argument, NULL, 't'},
		{"twice", no_argument, NULL, '2'},
		{"all-hit", no_argument, NULL, 'a'},
		{"keep-going", no_argument, NULL, 'g'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 's':
			o->run.seed = strtoull(optarg, NULL, 0);
			break;
		case 'r':
			o->runs = strtoull(optarg, NULL, 0);
			break;
		case 'o':
			o->run.ops = strtoull(optarg, NULL, 0);
			break;
		case 'j':
			o->jobs = (unsigned)strtoul(optarg, NULL, 0);
			break;
		case 'c':
			if (!find_scenario(optarg, &o->run.kinds)) {
				fprintf(stderr, "ashlar-sim: no scenario \"%s\"\n", optarg);
				usage(stderr);
				return 2;
			}
			break;
		case 'l':
			if (!leave_out(optarg))
				return 2;
			o->left_out = optarg;
			break;
		case 'k':
			o->run.canary = !strcmp(optarg, "repl") ? SIM_CANARY_REPL : SIM_CANARY_LIE;
			break;
		case 't':
			o->run.trace = true;
			break;
		case '2':
			o->twice = true;
			break;
		case 'a':
			o->all_hit = true;
			break;
		case 'g':
			o->keep_going = true;
			break;
		case 'h':
			usage(stdout);
			exit(0);
		default:
			usage(stderr);
			return 2;
		}
	}
	if (optind < argc || !o->runs || !o->jobs || o->jobs > WORKERS_MAX) {
		usage(stderr);
		return 2;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct opts o = {.run = {.seed = 1, .ops = 2000}, .runs = 1, .jobs = 1};
	struct totals t = {0};
	struct timespec begin, end;
	unsigned zero;
	int bad;

	/* Seed after seed needs the same memory: keep it. */
	mallopt(M_MMAP_THRESHOLD, 256 << 20);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	find_scenario("all", &o.run.kinds);
	bad = parse(argc, argv, &o);
	if (bad)
		return bad;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	if (o.run.trace)
		run_here(&o, &t);
	else
		run_workers(&o, &t);
	clock_gettime(CLOCK_MONOTONIC, &end);
	zero = print_totals(&t, (double)(end.tv_sec - begin.tv_sec) +
					(double)(end.tv_nsec - begin.tv_nsec) / 1e9);
	if (o.all_hit && zero) {
		printf("event=violation check=all_hit text=\"%u counters are zero\"\n", zero);
		return 1;
	}
	return t.failed ? 1 : 0;
}
