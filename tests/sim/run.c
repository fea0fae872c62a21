/* SPDX-License-Identifier: MIT */
#include "tests/sim/run.h"

#include <stdlib.h>
#include <string.h>

#define AT_REST_WITHIN (120 * SIM_S)

struct run {
	struct sim_world w;
	struct sim_cluster *c;
	struct load *load;
	struct checks *checks;
	struct faults *faults;
	struct change *change;
	struct loss *loss;
	uint64_t ops;
	unsigned stopped;
};

static struct run *the_run; /* for sim_run_until(): one at a time in a process */

static bool opened_all(struct sim_cluster *c)
{
	return load_open(the_run->load);
}

static bool worked(struct sim_cluster *c)
{
	return faults_over(the_run->faults) && load_done(the_run->load) >= the_run->ops;
}

static bool drained(struct sim_cluster *c)
{
	return load_drained(the_run->load);
}

/* The MDM knows the present opening of every device: nothing that happened is still to be noticed.
 */
static bool devices_known(struct sim_cluster *c)
{
	for (unsigned i = 0; i < c->shape.sdss; i++)
		for (unsigned d = 0; d < c->shape.disks; d++) {
			uint64_t id = c->sds[i].device[d];
			const struct ash_map_device *dev = ash_map_device(c->map, id);
			const struct sds_store *store = sds_device_store(c->sds[i].core, id);

			if (!dev || !store || dev->state != PB__DEVICE_STATE__DEVICE_UP ||
			    sds_store_label(store)->incarnation != dev->incarnation)
				return false;
		}
	return true;
}

static bool nothing_out(struct sim_cluster *c)
{
	return !checks_buffers_out(the_run->checks);
}

static bool at_rest(struct sim_cluster *c)
{
	for (unsigned i = 0; i < c->shape.sdss; i++)
		if (!c->sds[i].p || c->sds[i].p->paused)
			return false;
	for (unsigned i = 0; i < c->shape.sdcs; i++)
		if (!c->sdc[i].p)
			return false;
	if (!change_idle(the_run->change) || ash_map_next_fence(c->map, 0) ||
	    ash_map_next_tombstone(c->map, 0))
		return false;
	return load_idle(the_run->load) && load_open(the_run->load) && devices_known(c) &&
	       sim_all_in_sync(c);
}

static bool idle(struct sim_cluster *c)
{
	return load_idle(the_run->load);
}

/* Says what is not at rest. */
static void explain(struct run *r)
{
	struct sim_cluster *c = r->c;
	const struct ash_map_pool *pool = ash_map_pool(c->map, c->pool);
	const struct hist_op *op = hist_oldest(c->history);
	char text[512];
	int n = 0;

	text[0] = 0;
	for (uint32_t pg = 0; pg < pool->pg_count && n < 300; pg++) {
		const struct ash_row *row = &pool->rows[pg];

		for (unsigned i = 0; i < row->replicas; i++)
			if (row->replica[i].state != ASH_REPLICA_IN_SYNC ||
			    row->primary == ASH_NO_PRIMARY) {
				n += snprintf(text + n, sizeof(text) - (size_t)n,
					      " pg%u:dev%llu=%u/p%u", pg,
					      (unsigned long long)row->replica[i].device,
					      row->replica[i].state, row->primary);
			}
	}
	sim_fail(&r->w, "liveness",
		 "not at rest %llu s after the last fault: %u I/Os in flight%s%s",
		 (unsigned long long)(AT_REST_WITHIN / SIM_S), hist_in_flight(c->history),
		 op ? ", the oldest of client " : "",
		 op ? (char[]){(char)('0' + op->client), 0} : "");
	snprintf(r->w.verdict + strlen(r->w.verdict), sizeof(r->w.verdict) - strlen(r->w.verdict),
		 "%s", text);
}

static void rest(struct run *r)
{
	if (!r->w.failed && !sim_run_until(r->c, at_rest, AT_REST_WITHIN) && !r->w.failed)
		explain(r);
}

static bool made_good(struct sim_cluster *c)
{
	return loss_made_good(the_run->loss);
}

/* What one that is lost for good held is made anew on the others; then it comes back after all. */
static void without_lost(struct run *r)
{
	if (!r->w.failed && !sim_run_until(r->c, made_good, AT_REST_WITHIN) && !r->w.failed)
		sim_fail(&r->w, "liveness", "not in sync without the lost SDS after %llu s",
			 (unsigned long long)(AT_REST_WITHIN / SIM_S));
	if (!r->w.failed)
		loss_return(r->loss);
}

static void no_strays(struct run *r)
{
	if (!r->w.failed && !sim_run_until(r->c, loss_no_strays, 60 * SIM_S) && !r->w.failed)
		sim_fail(&r->w, "leftovers",
			 "a device holds chunks of groups without a part in them");
}

static void read_everything(struct run *r)
{
	if (r->w.failed)
		return;
	sim_trace(&r->w, "event=read_all");
	load_read_all(r->load);
	if (!sim_run_until(r->c, idle, AT_REST_WITHIN) && !r->w.failed)
		explain(r);
}

static void on_stopped(void *arg)
{
	((struct run *)arg)->stopped++;
}

struct stop_item {
	struct sim_item item;
	struct run *r;
	struct sds *sds; /* one of the two */
	struct sdc *sdc;
};

static void stop_run(struct sim_item *item)
{
	struct stop_item *s = sim_container(item, struct stop_item, item);

	if (s->sds)
		sds_stop(s->sds, on_stopped, s->r);
	else
		sdc_stop(s->sdc, on_stopped, s->r);
	free(s);
}

static void stop_drop(struct sim_item *item)
{
	free(sim_container(item, struct stop_item, item));
}

static void stop(struct run *r, struct sim_proc *p, struct sds *sds, struct sdc *sdc)
{
	struct stop_item *s = calloc(1, sizeof(*s));

	s->item = (struct sim_item){.run = stop_run, .drop = stop_drop};
	s->r = r;
	s->sds = sds;
	s->sdc = sdc;
	sim_proc_push(p, &s->item);
}

static bool all_stopped(struct sim_cluster *c)
{
	return the_run->stopped == c->shape.sdss + c->shape.sdcs;
}

/* An orderly end: volumes closed, SDSs stopped. */
static void wind_up(struct run *r)
{
	struct sim_cluster *c = r->c;

	if (r->w.failed)
		return;
	load_close_all(r->load);
	if (!sim_run_until(c, idle, 60 * SIM_S) && !r->w.failed)
		sim_fail(&r->w, "liveness", "volumes do not close within 60 s");
	for (unsigned i = 0; i < c->shape.sdcs && !r->w.failed; i++)
		stop(r, c->sdc[i].p, NULL, c->sdc[i].core);
	for (unsigned i = 0; i < c->shape.sdss && !r->w.failed; i++)
		stop(r, c->sds[i].p, c->sds[i].core, NULL);
	if (!r->w.failed && !sim_run_until(c, all_stopped, 60 * SIM_S) && !r->w.failed)
		sim_fail(&r->w, "liveness", "processes do not stop within 60 s");
}

static uint64_t draw_kinds(struct sim_world *w, uint64_t allowed)
{
	/* Rot needs hosts that keep their checksums; it excludes crashes there (see faults.c). */
	if (!sim_chance(w, 200))
		allowed &= ~(1ull << FAULT_BITROT);
	return allowed;
}

static void begin(struct run *r, const struct sim_run_opts *opts)
{
	struct sim_world *w = &r->w;
	struct sim_shape shape;
	struct load_opts load = {.ops = opts->ops};
	struct fault_opts faults;

	sim_draw_shape(w, &shape);
	load.depth = (unsigned)sim_between(w, 1, shape.style == STYLE_PINNED ? 10 : 6);
	load.lie = opts->canary == SIM_CANARY_LIE;
	faults.count = (unsigned)sim_between(w, 3, 8);
	faults.gap_ns = sim_between(w, 100 * SIM_MS, 2 * SIM_S);
	faults.kinds = draw_kinds(w, opts->kinds);
	r->c = sim_cluster_new(w, &shape);
	if (w->failed)
		return;
	/* About as long as the faults last. */
	load.think_ns = faults.count * faults.gap_ns * load.depth * shape.volumes / (opts->ops + 1);
	r->load = load_new(r->c, &load);
	r->checks = checks_new(r->c, r->load);
	for (unsigned i = 0; i < shape.sdcs; i++)
		load_start(r->load, &r->c->sdc[i]);
	if (!sim_run_until(r->c, opened_all, 30 * SIM_S) && !w->failed)
		sim_fail(w, "liveness", "volumes are not open after 30 s");
	r->change = change_new(r->c, r->load);
	if (!w->failed && opts->kinds & 1ull << FAULT_LOSS)
		r->loss = loss_new(r->c, r->checks);
	faults.loss = r->loss;
	r->faults = faults_new(r->c, r->load, r->checks, r->change, &faults);
	r->c->fabric.canary_repl = opts->canary == SIM_CANARY_REPL;
}

static void work(struct run *r)
{
	if (!r->w.failed && !sim_run_until(r->c, worked, 600 * SIM_S) && !r->w.failed)
		sim_fail(&r->w, "liveness", "%llu of %llu I/Os after 600 s",
			 (unsigned long long)load_done(r->load), (unsigned long long)r->ops);
	/* A copy that was away while the others filled up has no room to come back. */
	load_drain(r->load);
	if (!r->w.failed && !sim_run_until(r->c, drained, 100 * SIM_S) && !r->w.failed)
		sim_fail(&r->w, "liveness", "the full pool is not drained within 100 s");
	if (r->w.failed)
		return;
	faults_heal(r->faults);
	load_pause(r->load, true);
	without_lost(r);
	rest(r);
	no_strays(r);
}

bool sim_run(const struct sim_run_opts *opts, struct sim_outcome *ret_outcome)
{
	struct run *r = calloc(1, sizeof(*r));

	if (!r)
		abort();
	the_run = r;
	sim_world_init(&r->w, opts->seed);
	r->w.tracing = opts->trace;
	r->ops = opts->ops;
	begin(r, opts);
	work(r);
	read_everything(r);
	if (!r->w.failed)
		checks_compare_copies(r->checks);
	if (!r->w.failed)
		checks_leftovers(r->checks);
	read_everything(r);
	if (!r->w.failed && !sim_run_until(r->c, nothing_out, 5 * SIM_S) && !r->w.failed)
		sim_fail(&r->w, "leak", "%zu buffers are out at rest",
			 checks_buffers_out(r->checks));
	if (!r->w.failed)
		checks_maps(r->checks);
	wind_up(r);
	*ret_outcome = (struct sim_outcome){.failed = r->w.failed,
					    .seed = opts->seed,
					    .hash = r->w.hash,
					    .events = r->w.events,
					    .failed_at_ns = r->w.failed_at,
					    .sim_ns = r->w.now,
					    .n = r->w.n};
	snprintf(ret_outcome->check, sizeof(ret_outcome->check), "%s", r->w.check);
	snprintf(ret_outcome->verdict, sizeof(ret_outcome->verdict), "%s", r->w.verdict);
	if (r->w.failed)
		return false; /* whatever is broken shall not be taken apart */
	faults_free(r->faults);
	loss_free(r->loss);
	change_free(r->change);
	checks_free(r->checks);
	for (unsigned i = 0; i < r->c->shape.sdcs; i++)
		sim_sdc_kill(&r->c->sdc[i]);
	load_free(r->load);
	sim_cluster_free(r->c);
	sim_world_done(&r->w);
	free(r);
	return true;
}
