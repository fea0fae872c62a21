/* SPDX-License-Identifier: MIT */
#include "tests/sim/cluster.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/mdm_int.h"

void sim_draw_bytes(struct sim_world *w, uint8_t *to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = (uint8_t)sim_rand(w);
}

void sim_draw_shape(struct sim_world *w, struct sim_shape *s)
{
	unsigned kind = (unsigned)sim_below(w, 4); /* of disks: 0, 1 through, 2 back, 3 mixed */

	memset(s, 0, sizeof(*s));
	s->mdms = sim_chance(w, 500) ? 3 : 1;
	s->sdss = (unsigned)sim_between(w, 2, SIM_SDS_MAX);
	s->fault_sets = (unsigned)sim_between(w, 2, SIM_FAULT_SETS_MAX);
	if (s->fault_sets > s->sdss)
		s->fault_sets = s->sdss;
	s->disks = (unsigned)sim_between(w, 1, SIM_DISKS_MAX);
	s->sdcs = (unsigned)sim_between(w, 1, SIM_SDC_MAX);
	s->volumes = (unsigned)sim_between(w, 1, SIM_VOLUMES_MAX - 1);
	s->pg_count = 16u << sim_below(w, 2);
	s->disk_bytes = 256ull << 20;
	s->lease_ms = sim_chance(w, 600) ? 600 : (uint32_t)sim_between(w, 3, 40) * 100;
	for (unsigned i = 0; i < s->sdss; i++)
		s->fault_set_of[i] = i % s->fault_sets;
	for (unsigned i = 0; i < s->sdss; i++)
		for (unsigned d = 0; d < s->disks; d++) {
			s->write_back[i][d] = kind == 2 || (kind == 3 && sim_chance(w, 500));
			s->any_write_back |= s->write_back[i][d];
		}
	s->style = sim_chance(w, 650)	? STYLE_PLACES
		   : sim_chance(w, 500) ? STYLE_PINNED
					: STYLE_WIDE;
	if (s->style == STYLE_WIDE)
		s->volumes = 1;
	for (unsigned v = 0; v < s->volumes; v++) {
		s->volume_bytes[v] = sim_between(w, 2, 6) << 20;
		if (s->style == STYLE_WIDE)
			s->volume_bytes[v] = sim_between(w, 16, 40) << 20;
		s->shared[v] = s->sdcs > 1 && sim_chance(w, 400);
		s->mapped_to[v] = (unsigned)sim_below(w, s->sdcs);
	}
	s->drift_pct = sim_chance(w, 300) ? 20 : 0;
	if (sim_chance(w, 80)) { /* a full pool takes many writes */
		unsigned v = s->volumes++;

		s->disks = 1;
		s->sdss = s->sdss > 4 ? 4 : s->sdss;
		s->fault_sets = s->fault_sets > s->sdss ? s->sdss : s->fault_sets;
		s->sparse[v] = true;
		s->volume_bytes[v] = (s->disk_bytes >> 20) * s->sdss / 2 * 11 / 10 << 20;
		s->mapped_to[v] = (unsigned)sim_below(w, s->sdcs);
	}
}

static int64_t draw_drift(const struct sim_cluster *c)
{
	int64_t most = c->shape.drift_pct * 10000;

	return most ? (int64_t)sim_below(c->w, (uint64_t)(2 * most)) - most : 0;
}

/* ------------------------------------------------------------ SDS processes */

struct scan {
	struct sim_sds *s;
	unsigned disk;
};

static void scanned(void *arg, int result, struct ash_disk *disk)
{
	struct scan *k = arg;

	if (!result)
		sds_disk_found(k->s->core, disk, sim_disk_path(k->s->disk[k->disk]));
	free(k);
}

void sim_sds_scan(struct sim_sds *s)
{
	for (unsigned d = 0; d < s->c->shape.disks; d++) {
		struct scan *k = calloc(1, sizeof(*k));

		if (!k)
			abort();
		k->s = s;
		k->disk = d;
		sim_disk_open(s->p, s->disk[d], scanned, free, k);
	}
}

struct opening {
	void (*done)(void *arg, int result, struct ash_disk *disk, const char *message);
	void *arg;
};

static void opened(void *arg, int result, struct ash_disk *disk)
{
	struct opening o = *(struct opening *)arg;

	free(arg);
	o.done(o.arg, result, disk, result ? "the simulator says no" : NULL);
}

static void shell_open_disk(void *shell, const char *path, bool force,
			    void (*done)(void *arg, int result, struct ash_disk *disk,
					 const char *message),
			    void *arg)
{
	struct sim_sds *s = shell;
	struct sim_disk *disk = sim_disk_find(s->disk, s->c->shape.disks, path);
	struct opening *o = calloc(1, sizeof(*o));

	if (!o)
		abort();
	o->done = done;
	o->arg = arg;
	if (!disk) {
		sim_fail(s->c->w, "sds", "%s opens %s, which it does not have", s->host.name, path);
		disk = s->disk[0];
	}
	sim_disk_open(s->p, disk, opened, free, o);
}

static void sds_on_turn(void *owner)
{
	sds_turn(((struct sim_sds *)owner)->core);
}

void sim_sds_start(struct sim_sds *s)
{
	struct sim_world *w = s->c->w;
	struct sds_shell_ops ops = {.open_disk = shell_open_disk, .shell = s};
	struct sds_cfg cfg = {.heartbeat_ms = 200};
	struct sim_ctl_id id = {.role = "sds", .name = s->host.name};

	if (s->p)
		return;
	if (!s->host.powered) {
		sim_host_boot(&s->host);
		sim_draw_bytes(w, s->boot_id, 16);
	}
	sim_trace(w, "event=sds_start sds=%s", s->host.name);
	s->p = sim_proc_new(&s->host, s->host.name, 4u << 20);
	sim_net_attach(&s->c->fabric, s->p);
	memcpy(cfg.uuid, s->uuid, 16);
	memcpy(cfg.boot_id, s->boot_id, 16);
	sim_draw_bytes(w, cfg.session, 16);
	cfg.endpoint = sim_endpoint(&s->host);
	memcpy(id.uuid, s->uuid, 16);
	memcpy(id.session, cfg.session, 16);
	s->ctl = sim_ctl_new(s->c->mdm, s->p, &id);
	s->core = sds_new(&s->p->port, sim_ctl_port(s->ctl), &cfg, &ops);
	if (!s->core)
		abort();
	sim_ctl_port(s->ctl)->events = &sds_ctl_events;
	sim_ctl_port(s->ctl)->owner = s->core;
	sim_net_listen(s->p, sds_on_accept, s->core);
	s->p->on_turn = sds_on_turn;
	s->p->owner = s;
	sim_sds_scan(s);
	sim_proc_kick(s->p);
}

void sim_sds_kill(struct sim_sds *s, bool power)
{
	if (s->p) {
		sim_trace(s->c->w, "event=sds_kill sds=%s power=%d", s->host.name, power);
		sim_proc_kill(s->p);
		sim_disks_kill(s->p);
		sds_free(s->core);
		sim_ctl_kill(s->ctl);
		sim_net_kill(s->p, power);
		sim_proc_free(s->p);
		s->core = NULL;
		s->ctl = NULL;
		s->p = NULL;
	}
	if (power) {
		s->host.powered = false;
		for (unsigned d = 0; d < s->c->shape.disks; d++)
			sim_disk_power_loss(s->disk[d]);
	}
}

static void on_start_event(struct sim_event *event)
{
	sim_sds_start(sim_container(event, struct sim_sds, start_event));
}

void sim_sds_start_in(struct sim_sds *s, uint64_t ns)
{
	sim_in(s->c->w, &s->start_event, ns);
}

/* ------------------------------------------------------------ SDC processes */

static void sdc_on_turn(void *owner)
{
	sdc_turn(((struct sim_sdc *)owner)->core);
}

void sim_sdc_start(struct sim_sdc *s)
{
	struct sim_world *w = s->c->w;
	struct sdc_cfg cfg = {.requests = 256, .path_timeout_ms = 5000};
	struct sim_ctl_id id = {.role = "sdc", .name = s->host.name};

	s->p = sim_proc_new(&s->host, s->host.name, 1u << 20);
	sim_net_attach(&s->c->fabric, s->p);
	memcpy(cfg.guid, s->guid, 16);
	snprintf(cfg.name, sizeof(cfg.name), "%s", s->host.name);
	cfg.session = sim_rand(w);
	memcpy(id.uuid, s->guid, 16);
	memcpy(id.session, &cfg.session, 8);
	s->ctl = sim_ctl_new(s->c->mdm, s->p, &id);
	s->core = sdc_new(&s->p->port, sim_ctl_port(s->ctl), &cfg);
	if (!s->core)
		abort();
	sim_ctl_port(s->ctl)->events = &sdc_ctl_events;
	sim_ctl_port(s->ctl)->owner = s->core;
	s->p->on_turn = sdc_on_turn;
	s->p->owner = s;
	s->lives++;
	sim_proc_kick(s->p);
}

void sim_sdc_kill(struct sim_sdc *s)
{
	if (!s->p)
		return;
	sim_trace(s->c->w, "event=sdc_kill sdc=%s", s->host.name);
	sim_proc_kill(s->p);
	/* A crash is not an orderly end: the core's memory is the process's, and goes with it. */
	sdc_abandon(s->core);
	sim_ctl_kill(s->ctl);
	sim_net_kill(s->p, false);
	sim_proc_free(s->p);
	s->core = NULL;
	s->ctl = NULL;
	s->p = NULL;
}

/* ------------------------------------------------------------ what is committed */

bool sim_run_until(struct sim_cluster *c, bool (*ready)(struct sim_cluster *c), uint64_t most_ns)
{
	uint64_t until = c->w->now + most_ns, events = 0;

	while (!ready(c)) {
		/* Asking is dear, events are many. */
		for (events = 0; events < 64; events++)
			if (!sim_step(c->w))
				return false;
		if (c->w->now > until)
			return false;
	}
	return true;
}

static void on_row(void *arg, struct ash_map_pool *pool, uint32_t pg, const struct ash_row *old)
{
	struct sim_cluster *c = arg;

	for (unsigned i = 0; i < 2; i++)
		if (c->row_watch[i].changed)
			c->row_watch[i].changed(c->row_watch[i].arg, pool, pg, old);
}

void sim_cluster_follow(struct sim_cluster *c)
{
	const struct mdm_state *st = sim_mdm_state(c->mdm);
	struct ash_map_watch watch = {.row = on_row, .arg = c};
	Pb__Map *map;
	int err;

	if (!st || mdm_state_version(st) <= ash_map_version(c->map))
		return;
	map = mdm_map_for(st, MDM_FOR_ADMIN, 0, ash_map_version(c->map));
	err = ash_map_apply(c->map, map, &watch);
	if (err)
		sim_fail(c->w, "mdm", "map version %llu does not follow %llu: error %d",
			 (unsigned long long)map->version,
			 (unsigned long long)ash_map_version(c->map), err);
	pb__map__free_unpacked(map, NULL);
}

static void on_commit(void *arg)
{
	sim_cluster_follow(arg);
}

bool sim_all_in_sync(struct sim_cluster *c)
{
	const struct ash_map_pool *pool = ash_map_pool(c->map, c->pool);

	if (!pool)
		return false;
	for (uint32_t pg = 0; pg < pool->pg_count; pg++) {
		const struct ash_row *row = &pool->rows[pg];
		unsigned in_sync = 0;

		for (unsigned i = 0; i < row->replicas; i++)
			in_sync += row->replica[i].state == ASH_REPLICA_IN_SYNC;
		if (in_sync < 2 || row->primary == ASH_NO_PRIMARY)
			return false;
	}
	return true;
}

struct sim_sds *sim_sds_of_device(struct sim_cluster *c, uint64_t device, unsigned *ret_disk)
{
	for (unsigned i = 0; i < c->shape.sdss; i++)
		for (unsigned d = 0; d < c->shape.disks; d++)
			if (c->sds[i].device[d] == device) {
				if (ret_disk)
					*ret_disk = d;
				return &c->sds[i];
			}
	return NULL;
}

/* ------------------------------------------------------------ life */

static void make_hosts(struct sim_cluster *c)
{
	char path[64];

	for (unsigned i = 0; i < c->shape.sdss; i++) {
		struct sim_sds *s = &c->sds[i];

		s->c = c;
		s->index = i;
		s->host = (struct sim_host){.w = c->w, .index = 8 + i, .drift_ppm = draw_drift(c)};
		snprintf(s->host.name, sizeof(s->host.name), "sds%u", i + 1);
		s->start_event.fn = on_start_event;
		sim_draw_bytes(c->w, s->uuid, 16);
		for (unsigned d = 0; d < c->shape.disks; d++) {
			snprintf(path, sizeof(path), "/dev/%s/disk%u", s->host.name, d + 1);
			s->disk[d] = sim_disk_new(&s->host, path, c->shape.disk_bytes,
						  c->shape.write_back[i][d]);
		}
	}
	for (unsigned i = 0; i < c->shape.sdcs; i++) {
		struct sim_sdc *s = &c->sdc[i];

		s->c = c;
		s->index = i;
		s->host = (struct sim_host){.w = c->w, .index = 20 + i, .drift_ppm = draw_drift(c)};
		snprintf(s->host.name, sizeof(s->host.name), "sdc%u", i + 1);
		sim_draw_bytes(c->w, s->guid, 16);
		sim_host_boot(&s->host);
	}
}

struct sim_cluster *sim_cluster_new(struct sim_world *w, const struct sim_shape *shape)
{
	struct sim_cluster *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	c->w = w;
	c->shape = *shape;
	c->map = ash_map_new();
	c->history = hist_new(w);
	sim_fabric_init(&c->fabric, w);
	c->mdm = sim_mdm_new(w, &c->fabric, shape->mdms);
	sim_mdm_watch(c->mdm, on_commit, c);
	for (unsigned i = 0; i < shape->mdms; i++)
		sim_mdm_host(c->mdm, i)->drift_ppm = draw_drift(c);
	make_hosts(c);
	sim_operator_start(c);
	if (!sim_set_up(c))
		return c;
	for (unsigned i = 0; i < shape->sdcs; i++)
		sim_sdc_start(&c->sdc[i]);
	return c;
}

void sim_cluster_free(struct sim_cluster *c)
{
	for (unsigned i = 0; i < c->shape.sdcs; i++)
		sim_sdc_kill(&c->sdc[i]);
	for (unsigned i = 0; i < c->shape.sdss; i++) {
		sim_cancel(c->w, &c->sds[i].start_event);
		sim_sds_kill(&c->sds[i], true);
		for (unsigned d = 0; d < c->shape.disks; d++)
			sim_disk_free(c->sds[i].disk[d]);
	}
	sim_proc_kill(c->operator_proc);
	sim_ctl_kill(c->operator_ctl);
	sim_proc_free(c->operator_proc);
	sim_mdm_free(c->mdm);
	hist_free(c->history);
	ash_map_free(c->map);
	free(c);
}
