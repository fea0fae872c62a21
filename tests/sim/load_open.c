/* SPDX-License-Identifier: MIT */
/* Volumes are opened and closed, clients start and die, the operator takes volumes away. */
#include <errno.h>

#include "tests/sim/load_int.h"

static void reopen_in(struct handle *h, uint64_t ns)
{
	sim_in(h->load->c->w, &h->reopen, ns);
}

static void opened(void *arg, int result, struct sdc_vol *vol, const char *message)
{
	struct handle *h = arg;
	struct load *load = h->load;

	h->opening = false;
	sim_trace(load->c->w, "event=open sdc=%s volume=%u result=%d", h->sdc->host.name, h->volume,
		  result);
	if (result && h->revoked)
		return;
	if (result == -ETIMEDOUT) {
		reopen_in(h, 100 * SIM_MS);
		return;
	}
	if (result) {
		sim_fail(load->c->w, "errors", "%s cannot open volume %u: error %d: %s",
			 h->sdc->host.name, h->volume, result, message ? message : "");
		return;
	}
	h->vol = vol;
	/* A data server that lags may take a write of the old open until it hears of the new one,
	 * from the new client at the latest. Others that share the volume may see that happen. */
	if (!load->c->shape.shared[h->volume])
		hist_client_fenced(load->c->history, h->sdc->index,
				   load->c->volume_history[h->volume]);
	load_kick_slots(h);
}

static void closed(void *arg)
{
	struct handle *h = arg;

	h->vol = NULL;
	h->closing = false;
}

static void push_handle(struct handle *h)
{
	if (h->queued || !h->sdc->p)
		return;
	h->queued = true;
	sim_proc_push(h->sdc->p, &h->item);
}

static void handle_run(struct sim_item *item)
{
	struct handle *h = sim_container(item, struct handle, item);

	h->queued = false;
	if (h->closing) {
		sdc_close(h->vol, closed, h);
	} else if (!h->vol && !h->opening && !h->revoked) {
		h->opening = true;
		sdc_open(h->sdc->core, h->load->c->volume_name[h->volume], false, 5000, opened, h);
	}
}

static void handle_drop(struct sim_item *item)
{
	sim_container(item, struct handle, item)->queued = false;
}

static void on_reopen(struct sim_event *event)
{
	push_handle(sim_container(event, struct handle, reopen));
}

void load_start(struct load *load, struct sim_sdc *s)
{
	for (unsigned v = 0; v < load->c->shape.volumes; v++)
		if (load_mapped(load, s->index, v))
			reopen_in(&load->handle[s->index][v], sim_below(load->c->w, 3 * SIM_MS));
}

void load_killed(struct load *load, struct sim_sdc *s)
{
	for (unsigned v = 0; v < load->c->shape.volumes; v++) {
		struct handle *h = &load->handle[s->index][v];

		h->vol = NULL;
		h->opening = h->closing = false;
		h->read_at = UINT64_MAX;
		for (unsigned i = 0; i <= load->opts.depth; i++) {
			load->done += h->slot[i].busy && !load->c->shape.sparse[v];
			h->slot[i].busy = false;
			h->slot[i].op = NULL;
			sim_cancel(load->c->w, &h->slot[i].think);
		}
		sim_cancel(load->c->w, &h->reopen);
	}
	hist_client_died(load->c->history, s->index);
}

void load_close_all(struct load *load)
{
	for (unsigned i = 0; i < load->c->shape.sdcs; i++)
		for (unsigned v = 0; v < load->c->shape.volumes; v++) {
			struct handle *h = &load->handle[i][v];

			if (!h->vol)
				continue;
			h->closing = true;
			push_handle(h);
		}
}

/* ------------------------------------------------------------ what the operator does */

void load_revoke(struct load *load, unsigned sdc, unsigned volume)
{
	load->handle[sdc][volume].revoked = true;
}

bool load_revoked(struct load *load, unsigned sdc, unsigned volume)
{
	struct handle *h = &load->handle[sdc][volume];

	if (h->vol && !h->closing) {
		h->closing = true;
		push_handle(h);
	}
	return !h->vol && !h->opening && !h->closing && !h->queued;
}

void load_grant(struct load *load, unsigned sdc, unsigned volume)
{
	struct handle *h = &load->handle[sdc][volume];

	h->revoked = h->over = false;
	if (h->sdc->p)
		reopen_in(h, sim_below(load->c->w, 3 * SIM_MS));
}

void load_init_handle(struct handle *h)
{
	h->reopen.fn = on_reopen;
	h->item = (struct sim_item){.run = handle_run, .drop = handle_drop};
}
