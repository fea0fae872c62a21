/* SPDX-License-Identifier: MIT */
#include "tests/sim/faults.h"

#include <stdlib.h>
#include <string.h>

struct faults {
	struct sim_cluster *c;
	struct load *load;
	struct checks *checks;
	struct fault_opts opts;
	unsigned left;
	unsigned rot_sds; /* keeps its power and its process, so that its checksums are known */
	struct sim_event next, sdc_return, heal_cut;
	struct sim_sdc *away;
};

static const struct {
	const char *name;
	unsigned weight;
} kinds[FAULT_KINDS] = {
	[FAULT_SDS_CRASH] = {"sds_crash", 20},
	[FAULT_SDS_POWER] = {"sds_power", 16},
	[FAULT_ALL_CRASH] = {"all_crash", 4},
	[FAULT_ALL_POWER] = {"all_power", 6},
	[FAULT_PAUSE] = {"pause", 12},
	[FAULT_CONN_RESET] = {"conn_reset", 10},
	[FAULT_HALF_OPEN] = {"half_open", 10},
	[FAULT_NET_SLOW] = {"net_slow", 5},
	[FAULT_SLOW_DISK] = {"slow_disk", 6},
	[FAULT_STUCK_DISK] = {"stuck_disk", 5},
	[FAULT_MEDIUM_ERROR] = {"medium_error", 6},
	[FAULT_BITROT] = {"bitrot", 6},
	[FAULT_MDM_UNREACHABLE] = {"mdm_unreachable", 5},
	[FAULT_MDM_STALL] = {"mdm_stall", 5},
	[FAULT_MDM_FAILOVER] = {"mdm_failover", 6},
	[FAULT_MDM_SNAPSHOT] = {"mdm_snapshot", 4},
	[FAULT_SDC_CRASH] = {"sdc_crash", 8},
	[FAULT_PARTITION] = {"partition", 6},
	[FAULT_FULL_POOL] = {"full_pool", 20},
	[FAULT_DRAIN_POOL] = {"drain_pool", 20},
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

static struct sim_sds *any_sds(struct faults *f)
{
	return &f->c->sds[sim_below(f->c->w, f->c->shape.sdss)];
}

static struct sim_disk *any_disk(struct faults *f)
{
	return any_sds(f)->disk[sim_below(f->c->w, f->c->shape.disks)];
}

static bool has_rot(const struct faults *f)
{
	return f->opts.kinds & 1u << FAULT_BITROT;
}

/* ------------------------------------------------------------ crashes */

static uint64_t away_ns(struct sim_world *w)
{
	switch (sim_below(w, 4)) {
	case 0:
		return 5 * SIM_MS + sim_below(w, 50 * SIM_MS);
	case 1:
		return 50 * SIM_MS + sim_below(w, 1500 * SIM_MS);
	default:
		return SIM_S + sim_below(w, 3 * SIM_S);
	}
}

static void crash(struct faults *f, struct sim_sds *s, bool power)
{
	bool down[SIM_SDS_MAX] = {false};

	down[s->index] = true;
	checks_going_down(f->checks, down, power);
	sim_sds_kill(s, power);
	sim_sds_start_in(s, away_ns(f->c->w) + (power ? 200 * SIM_MS : 0));
}

static void one_crashes(struct faults *f, bool power)
{
	struct sim_sds *s = any_sds(f);

	if (!s->p || (has_rot(f) && s->index == f->rot_sds))
		return;
	if (power)
		f->c->w->n.sds_power_loss++;
	else
		f->c->w->n.sds_crash++;
	crash(f, s, power);
}

static void all_crash(struct faults *f, bool power)
{
	struct sim_world *w = f->c->w;
	bool down[SIM_SDS_MAX];

	if (has_rot(f))
		return;
	if (power)
		w->n.all_power_loss++;
	else
		w->n.all_crash++;
	for (unsigned i = 0; i < f->c->shape.sdss; i++)
		down[i] = true;
	checks_going_down(f->checks, down, power);
	for (unsigned i = 0; i < f->c->shape.sdss; i++) {
		sim_sds_kill(&f->c->sds[i], power);
		sim_sds_start_in(&f->c->sds[i], away_ns(w));
	}
}

static void pause_one(struct faults *f)
{
	struct sim_sds *s = any_sds(f);
	struct sim_world *w = f->c->w;
	uint64_t ns = 20 * SIM_MS + sim_below(w, sim_chance(w, 500) ? 600 * SIM_MS : 4 * SIM_S);

	if (!s->p || s->p->paused)
		return;
	w->n.sds_pause++;
	sim_trace(w, "event=pause sds=%s ms=%llu", s->host.name, (unsigned long long)(ns / SIM_MS));
	sim_proc_pause(s->p, ns);
}

static void on_sdc_return(struct sim_event *event)
{
	struct faults *f = sim_container(event, struct faults, sdc_return);
	struct sim_sdc *s = f->away;

	f->away = NULL;
	sim_sdc_start(s);
	load_start(f->load, s);
}

static void sdc_crashes(struct faults *f)
{
	struct sim_world *w = f->c->w;
	struct sim_sdc *s = &f->c->sdc[sim_below(w, f->c->shape.sdcs)];

	if (f->away || !s->p)
		return;
	w->n.sdc_crash++;
	sim_sdc_kill(s);
	load_killed(f->load, s);
	f->away = s;
	sim_in(w, &f->sdc_return, SIM_MS + sim_below(w, SIM_S));
}

/* ------------------------------------------------------------ network */

static void on_heal_cut(struct sim_event *event)
{
	struct faults *f = sim_container(event, struct faults, heal_cut);

	for (unsigned a = 0; a < SIM_HOSTS_MAX; a++)
		for (unsigned b = 0; b < SIM_HOSTS_MAX; b++)
			if (f->c->fabric.cut[a][b])
				sim_net_cut(&f->c->fabric, f->c->fabric.host[a],
					    f->c->fabric.host[b], false);
}

/* One host against some of the others, in one or both directions. */
static void partition(struct faults *f)
{
	struct sim_world *w = f->c->w;
	struct sim_host *one = &any_sds(f)->host;
	unsigned way = (unsigned)sim_below(w, 3), share = sim_chance(w, 400) ? 1000 : 400;

	if (sim_scheduled(&f->heal_cut))
		return;
	w->n.partition++;
	for (unsigned i = 1; i < SIM_HOSTS_MAX; i++) {
		struct sim_host *other = f->c->fabric.host[i];

		if (!other || other == one || !sim_chance(w, share))
			continue;
		sim_trace(w, "event=cut a=%s b=%s way=%u", one->name, other->name, way);
		if (way != 0)
			sim_net_cut(&f->c->fabric, one, other, true);
		if (way != 1)
			sim_net_cut(&f->c->fabric, other, one, true);
	}
	sim_in(w, &f->heal_cut, 100 * SIM_MS + sim_below(w, 8 * SIM_S));
}

static void slow_network(struct faults *f)
{
	struct sim_world *w = f->c->w;

	f->c->fabric.slow_until[any_sds(f)->host.index] = w->now + sim_below(w, 2 * SIM_S);
	w->n.net_stall++;
}

/* ------------------------------------------------------------ disks */

static bool is_client_data(void *arg, const uint8_t page[4096])
{
	struct faults *f = arg;
	unsigned volume;
	uint64_t lba;

	for (unsigned s = 0; s < 8; s++)
		if (hist_recognise(f->c->history, page + s * 512, &volume, &lba))
			return true;
	return false;
}

static uint64_t pick_block(struct faults *f, struct sim_disk *disk)
{
	uint64_t at = sim_disk_pick_page(disk, is_client_data, f), lba = 0;
	uint8_t page[4096];
	unsigned volume = 0;

	if (at == UINT64_MAX)
		return at;
	sim_disk_peek(disk, at, page);
	for (unsigned s = 0; s < 8; s++)
		if (hist_recognise(f->c->history, page + s * 512, &volume, &lba))
			break;
	sim_trace(f->c->w, "event=damage disk=%s offset=%llu volume=%u lba=%llu",
		  sim_disk_path(disk), (unsigned long long)at, volume, (unsigned long long)lba);
	load_expect_errors(f->load, volume, lba & ~7ull, 8);
	return at;
}

static void medium_error(struct faults *f)
{
	struct sim_disk *disk = any_disk(f);
	unsigned n = (unsigned)sim_between(f->c->w, 1, 4);

	while (n--) {
		uint64_t at = pick_block(f, disk);

		if (at == UINT64_MAX)
			return;
		f->c->w->n.medium_error++;
		sim_disk_medium_error(disk, at);
	}
}

static void bitrot(struct faults *f)
{
	struct sim_sds *s = &f->c->sds[f->rot_sds];
	struct sim_disk *disk = s->disk[sim_below(f->c->w, f->c->shape.disks)];
	unsigned n = (unsigned)sim_between(f->c->w, 1, 4);

	while (n--) {
		uint64_t at = pick_block(f, disk);

		if (at == UINT64_MAX)
			return;
		f->c->w->n.bitrot++;
		sim_disk_rot(disk, at);
	}
}

static void slow_disk(struct faults *f)
{
	struct sim_world *w = f->c->w;

	w->n.slow_disk++;
	sim_disk_slow(any_disk(f), w->now + sim_below(w, 2 * SIM_S),
		      (unsigned)sim_between(w, 10, 200));
}

static void stuck_disk(struct faults *f)
{
	struct sim_world *w = f->c->w;

	w->n.stuck_disk++;
	sim_disk_stick(any_disk(f), w->now + 200 * SIM_MS + sim_below(w, 4 * SIM_S));
}

/* ------------------------------------------------------------ schedule */

static void happen(struct faults *f, enum fault_kind kind)
{
	struct sim_world *w = f->c->w;

	sim_trace(w, "event=fault kind=%s", kinds[kind].name);
	switch (kind) {
	case FAULT_SDS_CRASH:
		one_crashes(f, false);
		break;
	case FAULT_SDS_POWER:
		one_crashes(f, true);
		break;
	case FAULT_ALL_CRASH:
		all_crash(f, false);
		break;
	case FAULT_ALL_POWER:
		all_crash(f, true);
		break;
	case FAULT_PAUSE:
		pause_one(f);
		break;
	case FAULT_CONN_RESET:
		sim_net_break(&f->c->fabric, NULL, NULL, SIM_BREAK_BOTH,
			      (unsigned)sim_between(w, 1, 6));
		break;
	case FAULT_HALF_OPEN:
		sim_net_break(&f->c->fabric, NULL, NULL, SIM_BREAK_HALF,
			      (unsigned)sim_between(w, 1, 4));
		break;
	case FAULT_NET_SLOW:
		slow_network(f);
		break;
	case FAULT_SLOW_DISK:
		slow_disk(f);
		break;
	case FAULT_STUCK_DISK:
		stuck_disk(f);
		break;
	case FAULT_MEDIUM_ERROR:
		medium_error(f);
		break;
	case FAULT_BITROT:
		bitrot(f);
		break;
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
	case FAULT_SDC_CRASH:
		sdc_crashes(f);
		break;
	case FAULT_PARTITION:
		partition(f);
		break;
	case FAULT_FULL_POOL:
		w->n.full_pool += load_fill(f->load);
		break;
	case FAULT_DRAIN_POOL:
		load_drain(f->load);
		break;
	case FAULT_KINDS:
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

static enum fault_kind draw_kind(struct faults *f)
{
	unsigned sum = 0, at;

	for (unsigned i = 0; i < FAULT_KINDS; i++)
		if (f->opts.kinds & 1u << i)
			sum += kinds[i].weight;
	at = (unsigned)sim_below(f->c->w, sum);
	for (unsigned i = 0; i < FAULT_KINDS; i++) {
		if (!(f->opts.kinds & 1u << i))
			continue;
		if (at < kinds[i].weight)
			return (enum fault_kind)i;
		at -= kinds[i].weight;
	}
	return FAULT_SDS_CRASH;
}

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

	f->left--;
	happen(f, draw_kind(f));
	if (f->left)
		sim_in(f->c->w, &f->next, gap(f));
}

struct faults *faults_new(struct sim_cluster *c, struct load *load, struct checks *checks,
			  const struct fault_opts *opts)
{
	struct faults *f = calloc(1, sizeof(*f));

	if (!f)
		abort();
	f->c = c;
	f->load = load;
	f->checks = checks;
	f->opts = *opts;
	if (!has_sparse(f))
		f->opts.kinds &= ~(1u << FAULT_FULL_POOL | 1u << FAULT_DRAIN_POOL);
	f->left = f->opts.kinds ? opts->count : 0;
	f->rot_sds = (unsigned)sim_below(c->w, c->shape.sdss);
	f->next.fn = on_next;
	f->sdc_return.fn = on_sdc_return;
	f->heal_cut.fn = on_heal_cut;
	if (f->left)
		sim_in(c->w, &f->next, 200 * SIM_MS + gap(f));
	return f;
}

void faults_free(struct faults *f)
{
	sim_cancel(f->c->w, &f->next);
	sim_cancel(f->c->w, &f->sdc_return);
	sim_cancel(f->c->w, &f->heal_cut);
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
	f->left = 0;
	sim_cancel(w, &f->next);
	on_heal_cut(&f->heal_cut);
	sim_cancel(w, &f->heal_cut);
	sim_mdm_stall(c->mdm, 0);
	sim_mdm_heal(c->mdm);
	memset(c->fabric.slow_until, 0, sizeof(c->fabric.slow_until));
	for (unsigned i = 0; i < c->shape.sdss; i++) {
		for (unsigned d = 0; d < c->shape.disks; d++) {
			sim_disk_slow(c->sds[i].disk[d], 0, 1);
			sim_disk_stick(c->sds[i].disk[d], 0);
		}
		if (!c->sds[i].p && !sim_scheduled(&c->sds[i].start_event))
			sim_sds_start_in(&c->sds[i], sim_below(w, 100 * SIM_MS));
	}
}
