/* SPDX-License-Identifier: MIT */
/* Disks: damaged, slow, stuck. */
#include "tests/sim/faults_int.h"

/* From the history's volume to the one in use; false: that one is deleted. */
static bool place_of(const struct faults *f, unsigned *volume)
{
	for (unsigned v = 0; v < f->c->shape.volumes; v++)
		if (f->c->volume_history[v] == *volume) {
			*volume = v;
			return true;
		}
	return false;
}

static bool is_client_data(void *arg, const uint8_t page[4096])
{
	struct faults *f = arg;
	unsigned volume;
	uint64_t lba;

	for (unsigned s = 0; s < 8; s++)
		if (hist_recognise(f->c->history, page + s * 512, &volume, &lba) &&
		    place_of(f, &volume))
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
		if (hist_recognise(f->c->history, page + s * 512, &volume, &lba) &&
		    place_of(f, &volume))
			break;
	sim_trace(f->c->w, "event=damage disk=%s offset=%llu volume=%u lba=%llu",
		  sim_disk_path(disk), (unsigned long long)at, volume, (unsigned long long)lba);
	load_expect_errors(f->load, volume, lba & ~7ull, 8);
	return at;
}

void fault_medium_error(struct faults *f)
{
	struct sim_disk *disk = fault_any_disk(f);
	unsigned n = (unsigned)sim_between(f->c->w, 1, 4);

	while (n--) {
		uint64_t at = pick_block(f, disk);

		if (at == UINT64_MAX)
			return;
		f->c->w->n.medium_error++;
		sim_disk_medium_error(disk, at);
	}
}

void fault_bitrot(struct faults *f)
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

void fault_slow_disk(struct faults *f, struct sim_disk *disk)
{
	struct sim_world *w = f->c->w;

	w->n.slow_disk++;
	sim_disk_slow(disk, w->now + sim_below(w, 2 * SIM_S), (unsigned)sim_between(w, 10, 200));
}

void fault_stuck_disk(struct faults *f, struct sim_disk *disk)
{
	struct sim_world *w = f->c->w;

	w->n.stuck_disk++;
	sim_disk_stick(disk, w->now + 200 * SIM_MS + sim_below(w, 4 * SIM_S));
}
