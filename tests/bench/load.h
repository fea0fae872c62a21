/* SPDX-License-Identifier: MIT */
/*
 * ashlar-load: I/O load on a volume through libashlar, or on a raw file through io_uring, with
 * latencies, verification, and a journal of acknowledged writes for tests that kill everything.
 *
 * The workload runs on whatever thread completes I/O; nothing else touches it between
 * load_start() and its end.
 */
#ifndef ASHLAR_TESTS_BENCH_LOAD_H
#define ASHLAR_TESTS_BENCH_LOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/hist.h"
#include "common/base/prng.h"

enum load_kind { LOAD_READ = 0, LOAD_WRITE = 1, LOAD_FLUSH = 2 };

struct load_opts {
	const char *volume, *file, *mdms, *guid, *sdc_name, *state_dir, *ack_log, *check;
	uint64_t bs, size, seed;
	uint32_t qd, runtime_s, rwmix, io_timeout_ms, spin_us, flush_every;
	bool random, reads, writes, verify, fua, fill, json;
};

struct load;

/* One I/O at a time. */
struct load_slot {
	void *load; /* whoever set done */
	uint8_t kind;
	bool fua;
	uint64_t block; /* of bs bytes */
	uint64_t seq;	/* of a write */
	uint64_t begun_ns;
	uint8_t *data;
	void (*done)(struct load_slot *slot, int status);
	void *engine; /* the engine's part of it */
};

/* Where the I/O goes. */
struct load_engine {
	const char *name;
	/* Return: 0, or an exit code after a message on stderr. */
	int (*open)(struct load_engine *e, const struct load_opts *o, uint32_t slots,
		    uint64_t *ret_bytes);
	/* Ends in slot->done(), later, on the engine's thread. */
	void (*submit)(struct load_engine *e, struct load_slot *slot, uint64_t offset,
		       uint64_t bytes);
	/* Calls start() on the engine's thread; returns after finish() was called there. */
	void (*run)(struct load_engine *e, void (*start)(void *arg), void *arg);
	void (*finish)(struct load_engine *e);
	void (*close)(struct load_engine *e);
	void *priv;
};
extern const struct load_engine load_engine_ashlar, load_engine_file;

struct load_side {
	uint64_t ops, bytes;
	struct ash_hist hist; /* ns */
};

struct load {
	const struct load_opts *o;
	struct load_engine *engine;
	struct load_slot *slot;
	struct ash_prng rng;
	uint64_t blocks, next_seq, cursor, writes_since_flush;
	uint64_t start_ns, end_ns, stop_ns;
	volatile bool *stop; /* set by a signal */
	uint32_t in_flight;
	uint64_t *last; /* verify: newest acknowledged write of each block, 0 = none of this run */
	uint8_t *busy;
	int ack_fd;
	uint64_t errors, mismatches;
	uint64_t ops_left; /* to be begun */
	int first_error;
	struct load_side side[3];
};

uint64_t load_now_ns(void);

/* load_run.c */
/* @ops: begin that many; UINT64_MAX: as long as the options say. */
int load_init(struct load *l, const struct load_opts *o, struct load_engine *e, uint64_t bytes,
	      uint64_t ops);
void load_done(struct load *l);
void load_run(struct load *l);

/* load_verify.c: every 512 bytes say which write they are from and where they belong. */
void load_pattern(uint8_t *data, uint64_t offset, uint64_t bytes, uint64_t seq);
/* Looks at one sector. Return: its seq, 0 all zeros, UINT64_MAX damaged or misplaced. */
uint64_t load_sector(const uint8_t *data, uint64_t offset);
int load_ack_open(const char *path, uint64_t bs);
void load_ack_put(int fd, uint64_t block, uint64_t seq);
/* Reads what the journal names; prints what was lost. Return: exit code. */
int load_check(const struct load_opts *o, struct load_engine *e);

/* load_report.c */
void load_report(FILE *out, const struct load_opts *o, const struct load *l, const char *name);
/* All but the last brace, so that more can follow. */
void load_report_json(FILE *out, const struct load_opts *o, const struct load *l);

#endif
