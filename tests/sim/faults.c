/* SPDX-License-Identifier: MIT */
#include "tests/sim/faults_int.h"

#include <stdlib.h>
#include <string.h>

#define SECOND_WITHIN (6 * SIM_S)

/* @second: how gladly it comes as the second of two, when the system is busy with the first. */
static const struct {
	const char *name;
	unsigned weight, second;
} kinds[FAULT_KINDS] = {
	[FAULT_SDS_CRASH] = {"sds_crash", 20, 20},
	[FAULT_SDS_POWER] = {"sds_power", 16, 20},
	[FAULT_LOSS] = {"loss", 20, 6},
	[FAULT_ALL_CRASH] = {"all_crash", 4, 1},
	[FAULT_ALL_POWER] = {"all_power", 6, 1},
	[FAULT_PAIR_CRASH] = {"pair_crash", 8, 2},
	[FAULT_PAUSE] = {"pause", 12, 8},
	[FAULT_CONN_RESET] = {"conn_reset", 8, 4},
	[FAULT_HALF_OPEN] = {"half_open", 10, 2},
	[FAULT_NET_SLOW] = {"net_slow", 5, 2},
	[FAULT_HOLD] = {"hold", 6, 6},
	[FAULT_SLOW_DISK] = {"slow_disk", 6, 2},
	[FAULT_STUCK_DISK] = {"stuck_disk", 5, 2},
	[FAULT_MEDIUM_ERROR] = {"medium_error", 6, 0},
	[FAULT_BITROT] = {"bitrot", 6, 0},
	[FAULT_MDM_UNREACHABLE] = {"mdm_unreachable", 5, 2},
	[FAULT_MDM_STALL] = {"mdm_stall", 5, 2},
	[FAULT_MDM_FAILOVER] = {"mdm_failover", 6, 6},
	[FAULT_MDM_SNAPSHOT] = {"mdm_snapshot", 4, 0},
	[FAULT_ROWS_LATE] = {"rows_late", 6, 10},
	[FAULT_REPORTS_LATE] = {"reports_late", 6, 6},
	[FAULT_WALL_STEP] = {"wall_step", 3, 0},
	[FAULT_SDC_CRASH] = {"sdc_crash", 12, 4},
	[FAULT_PARTITION] = {"partition", 5, 0},
	[FAULT_SPLIT] = {"split", 14, 24},
	[FAULT_FULL_POOL] = {"full_pool", 20, 0},
	[FAULT_DRAIN_POOL] = {"drain_pool", 20, 0},
	[FAULT_HAND_OVER] = {"hand_over", 16, 6},
	[FAULT_REPLACE] = {"replace", 9, 3},
};

int fault_find(const char *name)
{
	for (int i = 0; i < FAULT_KINDS; i++)
		if (!strcmp(kinds[i].name, name))
			return i;
	return -1;
}

const char *fault_name(enum fault_kind kind)
{
	return kinds[kind].name;
}

struct sim_sds *fault_any_sds(struct faults *f)
{
	return &f->c->sds[sim_below(f->c->w, f->c->shape.sdss)];
}

struct sim_disk *fault_any_disk(struct faults *f)
{
	return fault_any_sds(f)->disk[sim_below(f->c->w, f->c->shape.disks)];
}

bool fault_has_rot(const struct faults *f)
{
	return f->opts.kinds & 1ull << FAULT_BITROT;
}

/* ------------------------------------------------------------ whom */

static struct sim_sds *sds_of(struct faults *f, const struct ash_row *row, unsigned i)
{
	return i < row->replicas ? sim_sds_of_device(f->c, row->replica[i].device, NULL) : NULL;
}

/* The primary of a random group and another of its copies. */
static struct subject any_subject(struct faults *f)
{
	const struct ash_map_pool *pool = ash_map_pool(f->c->map, f->c->pool);
	const struct ash_row *row = &pool->rows[sim_below(f->c->w, pool->pg_count)];
	struct subject x = {.p = sds_of(f, row, row->primary)};

	for (unsigned i = 0; i < row->replicas; i++)
		if (i != row->primary)
			x.o = sds_of(f, row, i);
	if (!x.p)
		x.p = fault_any_sds(f);
	return x.p == x.o ? (struct subject){.p = x.p} : x;
}

/* ------------------------------------------------------------ what rows tell */

static uint8_t state_of(const struct ash_row *row, uint64_t device)
{
	for (unsigned i = 0; i < row->replicas; i++)
		if (row->replica[i].device == device)
			return row->replica[i].state;
	return ASH_REPLICA_ABSENT;
}

static uint64_t leader_of(const struct ash_row *row)
{
	return row->primary == ASH_NO_PRIMARY ? 0 : row->replica[row->primary].device;
}

static enum row_event classify(struct faults *f, const struct ash_row *row,
			       const struct ash_row *old, struct subject *ret_subject)
{
	enum row_event event = ROW_NOTHING;

	*ret_subject = (struct subject){.p = sds_of(f, row, row->primary)};
	if (!old || !ret_subject->p)
		return ROW_NOTHING;
	for (unsigned i = 0; i < row->replicas; i++) {
		uint8_t now = row->replica[i].state, was = state_of(old, row->replica[i].device);

		if (i == row->primary || now == was)
			continue;
		ret_subject->o = sds_of(f, row, i);
		event = now == ASH_REPLICA_IN_SYNC    ? ROW_JOINED
			: now == ASH_REPLICA_BUILDING ? ROW_BUILDS
						      : ROW_LEFT;
	}
	return leader_of(row) != leader_of(old) ? ROW_PROMOTED : event;
}

static void on_row(void *arg, struct ash_map_pool *pool, uint32_t pg, const struct ash_row *old)
{
	struct faults *f = arg;
	struct sim_world *w = f->c->w;
	struct subject x;

	if (f->waits_for == ROW_NOTHING || pool->id != f->c->pool ||
	    classify(f, &pool->rows[pg], old, &x) != f->waits_for || !sim_chance(w, 300))
		return;
	f->waits_for = ROW_NOTHING;
	f->subject = x;
	sim_cancel(w, &f->second_over);
	/* Mostly before anybody has heard of the row; never from inside of the MDM. */
	sim_in(w, &f->second_event, sim_chance(w, 600) ? 1 : sim_below(w, 4 * SIM_MS));
}

/* ------------------------------------------------------------ schedule */

static void wall_step(struct faults *f)
{
	struct sim_world *w = f->c->w;
	int64_t most = (sim_chance(w, 500) ? 3600ll : 315360000ll) * 1000;

	sim_mdm_wall_step(f->c->mdm, sim_chance(w, 300) ? -1 : (int)sim_below(w, SIM_MDMS),
			  (int64_t)sim_below(w, (uint64_t)(2 * most)) - most);
}

static void mdm_fault(struct faults *f, enum fault_kind kind)
{
	struct sim_world *w = f->c->w;

	switch (kind) {
	case FAULT_MDM_UNREACHABLE:
		sim_mdm_unreachable(f->c->mdm, w->now + 50 * SIM_MS + sim_below(w, 4 * SIM_S),
				    sim_chance(w, 500));
		break;
	case FAULT_MDM_STALL:
		sim_mdm_stall(f->c->mdm, w->now + 50 * SIM_MS + sim_below(w, 3 * SIM_S));
		break;
	case FAULT_MDM_FAILOVER:
		sim_mdm_failover(f->c->mdm, sim_chance(w, 500));
		break;
	case FAULT_MDM_SNAPSHOT:
		sim_mdm_install_snapshot(f->c->mdm);
		break;
	default:
		wall_step(f);
		break;
	}
}

static void net_fault(struct faults *f, enum fault_kind kind, const struct subject *x,
		      struct sim_sds *one)
{
	struct sim_world *w = f->c->w;

	switch (kind) {
	case FAULT_CONN_RESET:
		sim_net_break(&f->c->fabric, NULL, NULL, SIM_BREAK_BOTH,
			      (unsigned)sim_between(w, 1, 6));
		break;
	case FAULT_HALF_OPEN:
		sim_net_break(&f->c->fabric, NULL, NULL, SIM_BREAK_HALF,
			      (unsigned)sim_between(w, 1, 4));
		break;
	case FAULT_NET_SLOW:
		fault_slow_network(f);
		break;
	case FAULT_HOLD:
		fault_hold(f, x);
		break;
	case FAULT_ROWS_LATE:
		fault_rows_late(f, one);
		break;
	case FAULT_REPORTS_LATE:
		fault_reports_late(f, one);
		break;
	case FAULT_PARTITION:
		fault_partition(f);
		break;
	default:
		fault_split(f, x);
		break;
	}
}

/* @quick: one that crashes is back at once. */
static void happen(struct faults *f, enum fault_kind kind, const struct subject *x, bool quick)
{
	struct sim_world *w = f->c->w;
	struct sim_sds *one = x->o && sim_chance(w, 400) ? x->o : x->p;
	struct sim_disk *disk = one->disk[sim_below(w, f->c->shape.disks)];

	sim_trace(w, "event=fault kind=%s", kinds[kind].name);
	switch (kind) {
	case FAULT_SDS_CRASH:
	case FAULT_SDS_POWER:
		fault_crash(f, one, kind == FAULT_SDS_POWER, quick);
		break;
	case FAULT_LOSS:
		if (!fault_has_rot(f) || one->index != f->rot_sds)
			loss_strike(f->opts.loss, one, sim_chance(w, 500));
		break;
	case FAULT_ALL_CRASH:
	case FAULT_ALL_POWER:
		fault_all_crash(f, kind == FAULT_ALL_POWER);
		break;
	case FAULT_PAIR_CRASH:
		fault_pair_crash(f, x);
		break;
	case FAULT_PAUSE:
		fault_pause(f, one);
		break;
	case FAULT_SLOW_DISK:
		fault_slow_disk(f, disk);
		break;
	case FAULT_STUCK_DISK:
		fault_stuck_disk(f, disk);
		break;
	case FAULT_MEDIUM_ERROR:
		fault_medium_error(f);
		break;
	case FAULT_BITROT:
		fault_bitrot(f);
		break;
	case FAULT_SDC_CRASH:
		fault_sdc_crash(f);
		break;
	case FAULT_FULL_POOL:
		w->n.full_pool += load_fill(f->load);
		break;
	case FAULT_DRAIN_POOL:
		load_drain(f->load);
		break;
	case FAULT_HAND_OVER:
		change_hand_over(f->change);
		break;
	case FAULT_REPLACE:
		change_replace(f->change);
		break;
	case FAULT_MDM_UNREACHABLE:
	case FAULT_MDM_STALL:
	case FAULT_MDM_FAILOVER:
	case FAULT_MDM_SNAPSHOT:
	case FAULT_WALL_STEP:
		mdm_fault(f, kind);
		break;
	default:
		net_fault(f, kind, x, one);
		break;
	}
}

static bool has_sparse(const struct faults *f)
{
	for (unsigned v = 0; v < f->c->shape.volumes; v++)
		if (f->c->shape.sparse[v])
			return true;
	return false;
}

static unsigned weight_of(const struct faults *f, unsigned kind, bool second)
{
	if (!(f->opts.kinds & 1ull << kind))
		return 0;
	return second ? kinds[kind].second : kinds[kind].weight;
}

/* FAULT_KINDS: none is allowed. */
static enum fault_kind draw_kind(struct faults *f, bool second)
{
	unsigned sum = 0, at;

	for (unsigned i = 0; i < FAULT_KINDS; i++)
		sum += weight_of(f, i, second);
	at = (unsigned)sim_below(f->c->w, sum);
	for (unsigned i = 0; sum && i < FAULT_KINDS; i++) {
		unsigned weight = weight_of(f, i, second);

		if (at < weight)
			return (enum fault_kind)i;
		at -= weight;
	}
	return FAULT_KINDS;
}

/* ------------------------------------------------------------ the second of two */

static void expect_second(struct faults *f)
{
	static const enum row_event events[] = {ROW_JOINED,   ROW_JOINED, ROW_PROMOTED,
						ROW_PROMOTED, ROW_LEFT,	  ROW_BUILDS};
	struct sim_world *w = f->c->w;

	if (f->waits_for != ROW_NOTHING || sim_scheduled(&f->second_event) || !sim_chance(w, 500))
		return;
	f->second = draw_kind(f, true);
	if (f->second == FAULT_KINDS)
		return;
	f->waits_for = events[sim_below(w, sizeof(events) / sizeof(events[0]))];
	sim_in(w, &f->second_over, SECOND_WITHIN);
}

static void on_second(struct sim_event *event)
{
	struct faults *f = sim_container(event, struct faults, second_event);
	struct sim_world *w = f->c->w;

	w->n.second_faults++;
	happen(f, f->second, &f->subject, sim_chance(w, 700));
}

static void on_second_over(struct sim_event *event)
{
	sim_container(event, struct faults, second_over)->waits_for = ROW_NOTHING;
}

/* ------------------------------------------------------------ life */

static uint64_t gap(struct faults *f)
{
	/* Often several close together. */
	if (sim_chance(f->c->w, 300))
		return sim_below(f->c->w, 30 * SIM_MS);
	return f->opts.gap_ns / 2 + sim_below(f->c->w, f->opts.gap_ns);
}

static void on_next(struct sim_event *event)
{
	struct faults *f = sim_container(event, struct faults, next);
	struct subject x = any_subject(f);

	f->left--;
	happen(f, draw_kind(f, false), &x, false);
	expect_second(f);
	if (f->left)
		sim_in(f->c->w, &f->next, gap(f));
}

struct faults *faults_new(struct sim_cluster *c, struct load *load, struct checks *checks,
			  struct change *change, const struct fault_opts *opts)
{
	struct faults *f = calloc(1, sizeof(*f));

	if (!f)
		abort();
	f->c = c;
	f->load = load;
	f->checks = checks;
	f->change = change;
	f->opts = *opts;
	if (!has_sparse(f))
		f->opts.kinds &= ~(1ull << FAULT_FULL_POOL | 1ull << FAULT_DRAIN_POOL);
	if (!opts->loss)
		f->opts.kinds &= ~(1ull << FAULT_LOSS);
	f->left = f->opts.kinds ? opts->count : 0;
	f->rot_sds = (unsigned)sim_below(c->w, c->shape.sdss);
	f->waits_for = ROW_NOTHING;
	f->next.fn = on_next;
	f->second_event.fn = on_second;
	f->second_over.fn = on_second_over;
	fault_sds_init(f);
	fault_net_init(f);
	c->row_watch[1] = (struct sim_row_watch){on_row, f};
	if (f->left)
		sim_in(c->w, &f->next, 200 * SIM_MS + gap(f));
	return f;
}

/* Nothing more begins. */
static void stop(struct faults *f)
{
	struct sim_world *w = f->c->w;

	f->left = 0;
	f->waits_for = ROW_NOTHING;
	sim_cancel(w, &f->next);
	sim_cancel(w, &f->second_event);
	sim_cancel(w, &f->second_over);
	fault_sds_cancel(f);
}

void faults_free(struct faults *f)
{
	stop(f);
	sim_cancel(f->c->w, &f->sdc_return);
	sim_cancel(f->c->w, &f->heal_cut);
	f->c->row_watch[1] = (struct sim_row_watch){0};
	free(f);
}

bool faults_over(const struct faults *f)
{
	return !f->left;
}

void faults_heal(struct faults *f)
{
	struct sim_cluster *c = f->c;
	struct sim_world *w = c->w;

	sim_trace(w, "event=heal");
	stop(f);
	fault_net_heal(f);
	sim_mdm_stall(c->mdm, 0);
	sim_mdm_heal(c->mdm);
	for (unsigned i = 0; i < c->shape.sdss; i++) {
		for (unsigned d = 0; d < c->shape.disks; d++) {
			sim_disk_slow(c->sds[i].disk[d], 0, 1);
			sim_disk_stick(c->sds[i].disk[d], 0);
		}
		if (!c->sds[i].p && !loss_has(f->opts.loss, &c->sds[i]) &&
		    !sim_scheduled(&c->sds[i].start_event))
			sim_sds_start_in(&c->sds[i], sim_below(w, 100 * SIM_MS));
	}
}
