/* SPDX-License-Identifier: MIT */
/*
 * A small world for the data client's core: simulated clock, one MDM, a few SDSs over one store,
 * connections that keep order and break, and a hook that decides about each request.
 *
 * The SDSs keep the rules that the client relies on: an operation from a lower path, an older
 * generation or an older open is refused at its begin. What is still on its way when a connection
 * breaks may arrive later all the same.
 *
 * fake.c is the world, fake_mdm.c the MDM, fake_net.c the network, fake_sds.c the SDSs.
 */
#ifndef ASHLAR_TESTS_UNIT_SDC_FAKE_H
#define ASHLAR_TESTS_UNIT_SDC_FAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/prng.h"
#include "sdc/core/sdc.h"
#include "tests/unit/sdc/one_volume.h"

#define FAKE_SDSS ONE_SDSS
#define FAKE_PGS ONE_PGS
#define FAKE_PORT 7072 /* of every SDS; the last byte of its address is its number */
#define FAKE_BYTES (8u << 20)
#define FAKE_MS 1000000ull
#define FAKE_SEC (1000 * FAKE_MS)

enum fake_act {
	FAKE_SERVE = 0,
	FAKE_DROP = 1000,   /* executed or not by chance, never answered */
	FAKE_LOSE,	    /* neither executed nor answered */
	FAKE_BREAK,	    /* the connection breaks */
	FAKE_ROT,	    /* a read's data is damaged on its way */
	FAKE_TWICE,	    /* answered twice */
	FAKE_STATUS = 2000, /* + enum ash_status */
};

struct fake;
struct fake_conn;
struct fake_event;

struct fake_sds {
	bool up;   /* accepts connections */
	bool mute; /* accepts, never answers anything */
	bool wrong_identity;
	uint64_t session;
	uint16_t path; /* highest seen of that session */
	uint64_t hellos, served, flushes;
};

struct fake_row {
	uint64_t gen;
	int primary; /* SDS, -1 nobody */
};

struct fake {
	struct ash_port port;
	struct ash_timers timers;
	struct ash_net net;
	struct ash_ctl ctl;
	struct ash_prng rng;
	uint64_t now;
	struct ash_task *tasks, **tasks_end;
	struct fake_event *events;
	struct sdc *sdc;
	struct fake_sds sds[FAKE_SDSS];
	/* what is true */
	uint64_t version, epoch, size;
	struct fake_row row[FAKE_PGS];
	bool write_back[FAKE_SDSS], shared, read_only, mapped;
	uint32_t iops_limit;
	uint64_t bw_limit;
	bool refuse_register, ctl_up;
	uint64_t opens, ctl_calls;
	uint8_t *store;	  /* FAKE_BYTES */
	uint8_t *states;  /* per block, enum ash_block_state */
	uint8_t *flushed; /* per block: a bit per SDS whose copy is durable */
	/* knobs */
	uint64_t latency_ns;
	enum fake_act (*hook)(struct fake *f, int sds, const struct ash_hdr *h);
	void (*on_transmit)(struct fake *f); /* just before bytes are read */
	unsigned place_chance;		     /* of 100 */
	bool late_delivery; /* what was on its way arrives after the connection broke */
	/* what was seen */
	uint64_t overlaps; /* two overlapping writes of one open unanswered at once: must stay 0 */
	uint64_t late_served, refused_late, hellos, conns;
	struct fake_conn *conn_list, *graveyard;
	unsigned msgs;
	char last_trace[400];
	uint64_t traces;
};

void fake_init(struct fake *f, uint64_t seed);
void fake_done(struct fake *f);
/* Makes the core; cfg may be NULL. */
struct sdc *fake_sdc(struct fake *f, const struct sdc_cfg *cfg);
/* Opens volume "v1" and waits. */
struct sdc_vol *fake_open(struct fake *f);
void fake_close(struct fake *f, struct sdc_vol *vol);
/* Runs the world for @ns, or until *flag. */
void fake_run(struct fake *f, uint64_t ns, const bool *flag);
/* Commits a change of the truth: version + 1. Pushed to the client unless it is to find out. */
void fake_commit(struct fake *f, bool push);
/* Moves a PG's primary (gen := new version). */
void fake_move(struct fake *f, uint32_t pg, int primary, bool push);
void fake_sds_kill(struct fake *f, int sds);
/* Is every block durable on its primary? */
bool fake_all_flushed(const struct fake *f);
void fake_ctl_set(struct fake *f, bool up);
/* Breaks all connections to the SDS. */
void fake_break(struct fake *f, int sds);

struct fake_io {
	struct sdc_io io;
	struct iovec iov[4];
	bool done;
	int status;
};
/* Submits and waits at most @ns; returns its status, or 1 when it did not end. */
int fake_io(struct fake *f, struct sdc_vol *vol, uint8_t kind, uint64_t offset, void *data,
	    uint64_t bytes, uint64_t ns);
void fake_submit(struct sdc_vol *vol, struct fake_io *io, uint8_t kind, uint64_t offset, void *data,
		 uint64_t bytes);

#endif
