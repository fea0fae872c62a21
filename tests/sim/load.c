/* SPDX-License-Identifier: MIT */
#include "tests/sim/load.h"

#include <stdlib.h>

#include "tests/sim/load_int.h"

void load_pause(struct load *load, bool paused)
{
	load->paused = paused;
	for (unsigned i = 0; i < load->c->shape.sdcs && !paused; i++)
		for (unsigned v = 0; v < load->c->shape.volumes; v++)
			if (load->handle[i][v].vol)
				load_kick_slots(&load->handle[i][v]);
}

bool load_idle(const struct load *load)
{
	for (unsigned i = 0; i < load->c->shape.sdcs; i++)
		for (unsigned v = 0; v < load->c->shape.volumes; v++) {
			const struct handle *h = &load->handle[i][v];

			if (h->opening || h->closing || h->queued)
				return false;
			for (unsigned k = 0; h->slot && k <= load->opts.depth; k++)
				if (h->slot[k].busy || h->slot[k].queued)
					return false;
		}
	return true;
}

bool load_open(const struct load *load)
{
	for (unsigned i = 0; i < load->c->shape.sdcs; i++)
		for (unsigned v = 0; v < load->c->shape.volumes; v++)
			if (load->c->sdc[i].p && load_mapped(load, i, v) && !load->handle[i][v].vol)
				return false;
	return true;
}

uint64_t load_done(const struct load *load)
{
	return load->done;
}

void load_expect_errors(struct load *load, unsigned volume, uint64_t lba, uint32_t sectors)
{
	if (!load->damaged[volume])
		load->damaged[volume] = calloc(load_sectors(load, volume) / 8 + 1, 1);
	for (uint64_t b = lba / 8; b <= (lba + sectors - 1) / 8; b++)
		load->damaged[volume][b] = 1;
}

bool load_errors_expected(const struct load *load, unsigned volume, uint64_t lba, uint32_t sectors)
{
	if (!load->damaged[volume] || !sectors)
		return false;
	for (uint64_t b = lba / 8; b <= (lba + sectors - 1) / 8; b++)
		if (load->damaged[volume][b])
			return true;
	return false;
}

bool load_fill(struct load *load)
{
	const struct sim_shape *shape = &load->c->shape;

	for (unsigned v = 0; v < shape->volumes; v++) {
		if (!shape->sparse[v])
			continue;
		load->nospace = true;
		load->fill = FILL;
		load->refused = 0;
		if (load->handle[shape->mapped_to[v]][v].vol)
			load_kick_slots(&load->handle[shape->mapped_to[v]][v]);
		return true;
	}
	return false;
}

void load_drain(struct load *load)
{
	const struct sim_shape *shape = &load->c->shape;

	if (load->fill != FULL && load->fill != FILL)
		return;
	load->fill = DRAIN;
	load->fill_chunk = 0;
	for (unsigned v = 0; v < shape->volumes; v++)
		if (shape->sparse[v] && load->handle[shape->mapped_to[v]][v].vol)
			load_kick_slots(&load->handle[shape->mapped_to[v]][v]);
}

bool load_drained(const struct load *load)
{
	return load->fill == EMPTY;
}

static void make_handle(struct load *load, unsigned sdc, unsigned volume)
{
	struct handle *h = &load->handle[sdc][volume];

	h->load = load;
	h->sdc = &load->c->sdc[sdc];
	h->volume = volume;
	h->read_at = UINT64_MAX;
	load_init_handle(h);
	load_make_slots(h);
}

static void draw_hot(struct load *load, unsigned v)
{
	struct sim_world *w = load->c->w;
	uint64_t total = load_sectors(load, v), chunks = total / 2048;

	/* Some just before a chunk border. */
	for (unsigned i = 0; i < HOT_PLACES; i++)
		load->hot[v][i] = sim_chance(w, 500) ? sim_below(w, total - 200)
						     : 2048 * sim_between(w, 1, chunks - 1) - 50;
}

void load_renew(struct load *load, unsigned volume)
{
	free(load->damaged[volume]);
	load->damaged[volume] = NULL;
	draw_hot(load, volume);
}

struct load *load_new(struct sim_cluster *c, const struct load_opts *opts)
{
	struct load *load = calloc(1, sizeof(*load));

	if (!load)
		abort();
	load->c = c;
	load->opts = *opts;
	for (unsigned v = 0; v < c->shape.volumes; v++) {
		draw_hot(load, v);
		for (unsigned i = 0; i < c->shape.sdcs; i++)
			make_handle(load, i, v);
	}
	return load;
}

void load_free(struct load *load)
{
	for (unsigned i = 0; i < load->c->shape.sdcs; i++)
		for (unsigned v = 0; v < load->c->shape.volumes; v++) {
			struct handle *h = &load->handle[i][v];

			sim_cancel(load->c->w, &h->reopen);
			for (unsigned k = 0; k <= load->opts.depth; k++) {
				sim_cancel(load->c->w, &h->slot[k].think);
				free(h->slot[k].data);
			}
			free(h->slot);
		}
	for (unsigned v = 0; v < SIM_VOLUMES_MAX; v++)
		free(load->damaged[v]);
	free(load);
}
