/* SPDX-License-Identifier: MIT */
#include "tests/sim/change.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"

#define LOOK_AGAIN (5 * SIM_MS)
#define ASK_AGAIN (50 * SIM_MS)

enum step {
	IDLE,
	UNMAP,	/* take it from the client */
	FENCED, /* until the MDM says that nothing of that client can be on its way */
	CLOSED, /* until the client has closed it */
	REMOVE,
	ALL_CLOSED,
	ADD,
	KNOWN, /* until the new volume is in the map */
	MAP,
};

struct change {
	struct sim_cluster *c;
	struct load *load;
	enum step step;
	struct sim_event next;
	unsigned v, sdc; /* volume; client that it is taken from, or given to */
	uint64_t id;	 /* of the volume */
	unsigned made;	 /* volumes, for their names */
};

static void go(struct change *x, enum step step)
{
	x->step = step;
	sim_in(x->c->w, &x->next, 1);
}

static const struct ash_map_volume *volume_of(const struct change *x)
{
	return ash_map_volume_by_node(x->c->map, x->c->volume_node[x->v]);
}

/* ------------------------------------------------------------ commands */

static bool unknown(int code)
{
	return code == ASH_E_UNREACHABLE || code == ASH_E_NOT_LEADER || code == ASH_E_INTERNAL ||
	       code == ASH_E_STALE;
}

/* Done; or it was done before, and the answer got lost. */
static bool is_done(enum step step, int code)
{
	if (step == UNMAP || step == REMOVE)
		return !code || code == ASH_E_NOT_FOUND;
	return !code || code == ASH_E_EXISTS;
}

static void map_next(struct change *x);

static void on_answer(void *arg, int code, uint64_t id)
{
	struct change *x = arg;
	struct sim_world *w = x->c->w;

	sim_trace(w, "event=change volume=%u step=%d code=%d", x->v, x->step, code);
	if (unknown(code)) {
		sim_in(w, &x->next, ASK_AGAIN);
		return;
	}
	if (!is_done(x->step, code)) {
		sim_fail(w, "operator", "step %d of a change of volume %u: code %d", x->step, x->v,
			 code);
		return;
	}
	switch (x->step) {
	case UNMAP:
		go(x, FENCED);
		break;
	case REMOVE:
		go(x, ALL_CLOSED);
		break;
	case ADD:
		go(x, KNOWN);
		break;
	default:
		load_grant(x->load, x->sdc, x->v);
		map_next(x);
		break;
	}
}

static void ask(struct change *x, Pb__Command *cmd)
{
	sim_admin_ask(x->c, cmd, on_answer, x);
}

static void unmap(struct change *x)
{
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdUnmap unmap = PB__CMD_UNMAP__INIT;

	unmap.volume = x->id;
	unmap.sdc = x->c->sdc[x->sdc].id;
	cmd.c_case = PB__COMMAND__C_UNMAP;
	cmd.unmap = &unmap;
	ask(x, &cmd);
}

static void map(struct change *x)
{
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdMap map = PB__CMD_MAP__INIT;

	map.volume = x->id;
	map.sdc = x->c->sdc[x->sdc].id;
	map.shared = x->c->shape.shared[x->v];
	cmd.c_case = PB__COMMAND__C_MAP;
	cmd.map = &map;
	ask(x, &cmd);
}

static void remove_volume(struct change *x)
{
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdRemove remove = PB__CMD_REMOVE__INIT;

	remove.kind = PB__KIND__KIND_VOLUME;
	remove.id = x->id;
	remove.force = true;
	cmd.c_case = PB__COMMAND__C_REMOVE;
	cmd.remove = &remove;
	ask(x, &cmd);
}

static void add(struct change *x)
{
	struct sim_cluster *c = x->c;
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdVolumeAdd add = PB__CMD_VOLUME_ADD__INIT;

	add.name = c->volume_name[x->v];
	add.pool = c->pool;
	add.size = c->shape.volume_bytes[x->v];
	add.thin = true;
	cmd.c_case = PB__COMMAND__C_VOLUME_ADD;
	cmd.volume_add = &add;
	ask(x, &cmd);
}

/* ------------------------------------------------------------ what is waited for */

/* Nothing that the client has begun can have an effect from here on. */
static bool fenced(const struct change *x)
{
	const struct ash_map *m = x->c->map;
	uint64_t node = x->c->volume_node[x->v], sdc = x->c->sdc[x->sdc].id;
	const struct ash_map_fence *f = NULL;

	if (ash_map_mapping(m, node, sdc))
		return false;
	while ((f = ash_map_next_fence(m, f ? f->id : 0)))
		if (f->node == node && f->sdc == sdc)
			return false;
	hist_client_fenced(x->c->history, x->sdc, x->c->volume_history[x->v]);
	return true;
}

static bool all_closed(struct change *x)
{
	bool all = true;

	for (unsigned i = 0; i < x->c->shape.sdcs; i++)
		all &= load_revoked(x->load, i, x->v);
	return all;
}

static bool known(struct change *x)
{
	struct sim_cluster *c = x->c;
	const struct ash_map_volume *v = NULL;

	while ((v = ash_map_next_volume(c->map, v ? v->id : 0)))
		if (!strcmp(v->name, c->volume_name[x->v]))
			break;
	if (!v)
		return false;
	x->id = v->id;
	c->volume_node[x->v] = v->node;
	c->volume_history[x->v] = hist_add_volume(c->history, c->volume_name[x->v],
						  c->shape.volume_bytes[x->v] / SIM_SECTOR,
						  c->shape.any_write_back, c->shape.shared[x->v]);
	return true;
}

/* ------------------------------------------------------------ from step to step */

static bool is_mapped(const struct change *x, unsigned sdc)
{
	return x->c->shape.shared[x->v] || x->c->shape.mapped_to[x->v] == sdc;
}

/* The next client that gets the new volume; x->sdc has it. */
static void map_next(struct change *x)
{
	while (++x->sdc < x->c->shape.sdcs)
		if (is_mapped(x, x->sdc) &&
		    !ash_map_mapping(x->c->map, x->c->volume_node[x->v], x->c->sdc[x->sdc].id)) {
			go(x, MAP);
			return;
		}
	x->step = IDLE;
}

static void new_owner(struct change *x)
{
	struct sim_cluster *c = x->c;

	if (!c->shape.shared[x->v]) {
		x->sdc = (unsigned)sim_below(c->w, c->shape.sdcs);
		c->shape.mapped_to[x->v] = x->sdc;
	}
	go(x, MAP);
}

static void first_owner(struct change *x)
{
	load_renew(x->load, x->v);
	for (x->sdc = 0; !is_mapped(x, x->sdc);)
		x->sdc++;
	go(x, MAP);
}

static void give_name(struct change *x)
{
	snprintf(x->c->volume_name[x->v], sizeof(x->c->volume_name[x->v]), "vol%u.%u", x->v + 1,
		 ++x->made);
	go(x, ADD);
}

static void on_next(struct sim_event *event)
{
	struct change *x = sim_container(event, struct change, next);
	bool wait = false;

	switch (x->step) {
	case UNMAP:
		unmap(x);
		break;
	case FENCED:
		if (!(wait = !fenced(x)))
			go(x, CLOSED);
		break;
	case CLOSED:
		if (!(wait = !load_revoked(x->load, x->sdc, x->v)))
			new_owner(x);
		break;
	case REMOVE:
		remove_volume(x);
		break;
	case ALL_CLOSED:
		if (!(wait = !all_closed(x)))
			give_name(x);
		break;
	case ADD:
		add(x);
		break;
	case KNOWN:
		if (!(wait = !known(x)))
			first_owner(x);
		break;
	case MAP:
		map(x);
		break;
	case IDLE:
		break;
	}
	if (wait)
		sim_in(x->c->w, &x->next, LOOK_AGAIN);
}

/* ------------------------------------------------------------ outside */

/* A volume that is not there to fill the pool. */
static bool draw_volume(struct change *x)
{
	const struct ash_map_volume *vol;

	if (x->step != IDLE)
		return false;
	x->v = (unsigned)sim_below(x->c->w, x->c->shape.volumes);
	vol = volume_of(x);
	if (x->c->shape.sparse[x->v] || !vol)
		return false;
	x->id = vol->id;
	return true;
}

void change_hand_over(struct change *x)
{
	struct sim_world *w = x->c->w;

	if (!draw_volume(x))
		return;
	w->n.hand_over++;
	x->sdc = x->c->shape.shared[x->v] ? (unsigned)sim_below(w, x->c->shape.sdcs)
					  : x->c->shape.mapped_to[x->v];
	/* Its last words may be on their way for long. */
	if (sim_chance(w, 600))
		sim_net_hold(&x->c->fabric, &x->c->sdc[x->sdc].host, NULL,
			     w->now + sim_below(w, 3 * SIM_S));
	load_revoke(x->load, x->sdc, x->v);
	x->step = UNMAP;
	sim_in(w, &x->next, sim_below(w, 20 * SIM_MS));
}

void change_replace(struct change *x)
{
	if (!draw_volume(x))
		return;
	x->c->w->n.volume_replaced++;
	for (unsigned i = 0; i < x->c->shape.sdcs; i++)
		load_revoke(x->load, i, x->v);
	go(x, REMOVE);
}

bool change_idle(const struct change *x)
{
	return x->step == IDLE;
}

struct change *change_new(struct sim_cluster *c, struct load *load)
{
	struct change *x = calloc(1, sizeof(*x));

	if (!x)
		abort();
	x->c = c;
	x->load = load;
	x->next.fn = on_next;
	return x;
}

void change_free(struct change *x)
{
	sim_cancel(x->c->w, &x->next);
	free(x);
}
