/* SPDX-License-Identifier: MIT */
/* Shared by load.c (what there is), load_io.c (the I/Os) and load_open.c (volumes come and go). */
#ifndef ASHLAR_TESTS_SIM_LOAD_INT_H
#define ASHLAR_TESTS_SIM_LOAD_INT_H

#include "tests/sim/load.h"

#define SLOT_BYTES (256u * 1024u)
#define SLOT_SECTORS (SLOT_BYTES / SIM_SECTOR)
#define HOT_PLACES 6

struct handle;

/* One I/O at a time. */
struct slot {
	struct sdc_io io;
	struct handle *handle;
	struct sim_event think;
	struct sim_item item; /* after think: in a turn of the client */
	bool queued;
	struct hist_op *op;
	uint8_t *data;
	struct iovec iov[3];
	bool busy;
};

/* A volume as one SDC sees it. */
struct handle {
	struct load *load;
	struct sim_sdc *sdc;
	unsigned volume; /* index in the shape */
	struct sdc_vol *vol;
	bool opening, closing, queued;
	bool revoked; /* the operator takes it away: errors are right */
	bool over;    /* and this end knows it */
	struct sim_event reopen;
	struct sim_item item; /* opens or closes, in a turn of the client */
	struct slot *slot;    /* depth of them, the last is for whole reads */
	uint64_t read_at;     /* whole read: next sector, UINT64_MAX = not running */
};

struct load {
	struct sim_cluster *c;
	struct load_opts opts;
	struct handle handle[SIM_SDC_MAX][SIM_VOLUMES_MAX];
	uint64_t done, begun;
	bool paused, nospace, lied;
	enum { EMPTY, FILL, FULL, DRAIN } fill;
	uint64_t fill_chunk;
	unsigned refused;
	uint64_t hot[SIM_VOLUMES_MAX][HOT_PLACES];
	uint8_t *damaged[SIM_VOLUMES_MAX]; /* per block */
};

static inline bool load_mapped(const struct load *load, unsigned sdc, unsigned volume)
{
	const struct sim_shape *shape = &load->c->shape;

	return (shape->shared[volume] || shape->mapped_to[volume] == sdc) &&
	       !load->handle[sdc][volume].revoked;
}

static inline uint64_t load_sectors(const struct load *load, unsigned volume)
{
	return load->c->shape.volume_bytes[volume] / SIM_SECTOR;
}

/* load_io.c */
void load_kick_slots(struct handle *h);
void load_push_slot(struct slot *s);
/* Memory and events of all its slots. */
void load_make_slots(struct handle *h);

/* load_open.c */
void load_init_handle(struct handle *h);

#endif
