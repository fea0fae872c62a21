// SPDX-License-Identifier: MIT
/*
 * ashlar-nbd-check: judges an NBD server. A random mix of writes, trims, zeroes, FUA, flushes,
 * reads and block status, overlapping in space and time, over several connections, against a model
 * of what a disk may answer.
 *
 * Exit code: 0 all allowed; 1 wrong data, errors, or an operation that did not end; 2 usage.
 */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <libnbd.h>

#include "common/base/clean.h"
#include "common/base/prng.h"
#include "common/base/size.h"
#include "common/shared/chunk_pg.h"
#include "tests/system/nbd_check_model.h"

#define CONNS_MAX 8
#define OP_MAX (1u << 20)

enum kind { READ, WRITE, TRIM, ZERO, FLUSH, STATUS, KINDS };
static const char *const kind_name[KINDS] = {"read", "write", "trim", "zero", "flush", "status"};

struct op {
	struct model_op m;
	enum kind kind;
	bool busy, fua;
	unsigned conn;
	int64_t cookie;
	double begun;
	uint8_t *data;
	uint64_t *seen; /* per sector */
	int error;
};

static struct {
	const char *uri;
	uint64_t seed, size, seconds, stall_s;
	unsigned qd, conns;
	struct nbd_handle *h[CONNS_MAX];
	bool can[KINDS];
	bool can_fua;
	struct model *model;
	struct ash_prng rng;
	struct op *op;
	uint64_t next_value, count[KINDS], fuas, mismatches, errors, overlaps;
	double slowest;
} t = {.size = 64u << 20, .seconds = 10, .qd = 32, .conns = 2, .seed = 1, .stall_s = 120};

static volatile sig_atomic_t stop;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* ------------------------------------------------------------ contents */

static void sector_fill(uint64_t *out, uint64_t value, uint64_t sector)
{
	uint64_t mix = ash_mix64(value ^ ash_mix64(sector));

	out[0] = value;
	out[1] = sector;
	for (unsigned i = 2; i < SECTOR / 8; i++)
		out[i] = mix + i;
}

/* Which write a sector is from; UINT64_MAX: from none as a whole, or from another place. */
static uint64_t sector_value(const uint8_t *data, uint64_t sector)
{
	uint64_t want[SECTOR / 8] = {0}, value;

	memcpy(&value, data, 8);
	if (value)
		sector_fill(want, value, sector);
	return memcmp(want, data, SECTOR) ? UINT64_MAX : value;
}

/* ------------------------------------------------------------ what was seen */

static void wrong(const struct op *op, uint64_t sector, uint64_t got)
{
	if (t.mismatches++ >= 20)
		return;
	fprintf(stderr, "WRONG: %s of sectors %llu+%llu (begun %llu) saw %s%llu in sector %llu\n",
		kind_name[op->kind], (unsigned long long)op->m.first,
		(unsigned long long)op->m.count, (unsigned long long)op->m.begin,
		got == UINT64_MAX ? "damage, not write " : "write ",
		(unsigned long long)(got == UINT64_MAX ? 0 : got), (unsigned long long)sector);
	model_print(t.model, sector);
}

static void end_read(struct op *op)
{
	for (uint64_t k = 0; k < op->m.count; k++) {
		uint64_t sector = op->m.first + k;

		op->seen[k] = sector_value(op->data + k * SECTOR, sector);
		if (!model_allows(t.model, &op->m, sector, op->seen[k]))
			wrong(op, sector, op->seen[k]);
	}
	model_end_read(t.model, &op->m, op->seen);
}

/* What is told to be zeros must be allowed to read as zeros. */
static int on_extents(void *arg, const char *context, uint64_t offset, uint32_t *e, size_t n,
		      int *error)
{
	struct op *op = arg;
	uint64_t sector = offset / SECTOR, end = op->m.first + op->m.count;

	for (size_t i = 0; i + 1 < n; i += 2)
		for (uint64_t k = 0; k < e[i] / SECTOR && sector < end; k++, sector++)
			if ((e[i + 1] & LIBNBD_STATE_ZERO) &&
			    !model_allows(t.model, &op->m, sector, 0))
				wrong(op, sector, 0);
	return 0;
}

static int on_done(void *arg, int *error)
{
	struct op *op = arg;

	op->error = *error;
	return 0;
}

static void finish(struct op *op)
{
	double took = now() - op->begun;

	op->busy = false;
	t.count[op->kind]++;
	t.slowest = took > t.slowest ? took : t.slowest;
	if (op->error) {
		if (t.errors++ < 20)
			fprintf(stderr, "ERROR: %s of sectors %llu+%llu: %s\n", kind_name[op->kind],
				(unsigned long long)op->m.first, (unsigned long long)op->m.count,
				strerror(op->error));
	}
	if (op->kind == READ && !op->error)
		end_read(op);
	else if (op->m.write)
		model_end_write(t.model, &op->m, !op->error);
	else
		model_end_read(t.model, &op->m, NULL);
}

/* ------------------------------------------------------------ what to do */

static uint64_t below(uint64_t n)
{
	return ash_prng_below(&t.rng, n);
}

static void draw_range(struct op *op)
{
	uint64_t sectors = t.size / SECTOR, n, windows = sectors / 8192 + 1;
	unsigned bits = (unsigned)below(12);

	/* From 512 bytes to 1 MiB, each order of magnitude alike; often on block borders. */
	n = (1ull << bits) + below(1ull << bits);
	n = n > OP_MAX / SECTOR ? OP_MAX / SECTOR : n;
	/* Mostly in a few hot windows, so that operations meet. */
	op->m.first = below(4) ? (below(3) * windows / 3) * 8192 + below(4096) : below(sectors);
	if (below(2)) {
		op->m.first &= ~7ull;
		n = (n + 7) & ~7ull;
	}
	op->m.first %= sectors;
	op->m.count = op->m.first + n > sectors ? sectors - op->m.first : n;
}

static enum kind draw_kind(void)
{
	uint64_t k = below(100);
	enum kind kind = k < 40	  ? WRITE
			 : k < 75 ? READ
			 : k < 82 ? TRIM
			 : k < 90 ? ZERO
			 : k < 95 ? FLUSH
				  : STATUS;

	return t.can[kind] ? kind : WRITE;
}

static bool meets_other(const struct op *op)
{
	for (unsigned i = 0; i < t.qd; i++)
		if (&t.op[i] != op && t.op[i].busy && t.op[i].m.count &&
		    t.op[i].m.first < op->m.first + op->m.count &&
		    op->m.first < t.op[i].m.first + t.op[i].m.count)
			return true;
	return false;
}

static void send_op(struct op *op)
{
	struct nbd_handle *h = t.h[op->conn];
	nbd_completion_callback cb = {.callback = on_done, .user_data = op};
	nbd_extent_callback ext = {.callback = on_extents, .user_data = op};
	uint64_t off = op->m.first * SECTOR, n = op->m.count * SECTOR;
	uint32_t fua = op->fua ? LIBNBD_CMD_FLAG_FUA : 0;

	switch (op->kind) {
	case READ:
		memset(op->data, 0xa5, n);
		op->cookie = nbd_aio_pread(h, op->data, n, off, cb, 0);
		break;
	case WRITE:
		for (uint64_t k = 0; k < op->m.count; k++)
			sector_fill((uint64_t *)(void *)(op->data + k * SECTOR), op->m.value,
				    op->m.first + k);
		op->cookie = nbd_aio_pwrite(h, op->data, n, off, cb, fua);
		break;
	case TRIM:
		op->cookie = nbd_aio_trim(h, n, off, cb, fua);
		break;
	case ZERO:
		op->cookie =
			nbd_aio_zero(h, n, off, cb, fua | (below(3) ? 0 : LIBNBD_CMD_FLAG_NO_HOLE));
		break;
	case FLUSH:
		op->cookie = nbd_aio_flush(h, cb, 0);
		break;
	default:
		op->cookie = nbd_aio_block_status(h, n, off, ext, cb, 0);
		break;
	}
	if (op->cookie < 0) {
		fprintf(stderr, "ERROR: %s: %s\n", kind_name[op->kind], nbd_get_error());
		exit(1);
	}
}

static void begin(struct op *op)
{
	op->kind = draw_kind();
	op->m.value = 0;
	op->m.first = op->m.count = 0;
	op->m.write = op->kind == WRITE || op->kind == TRIM || op->kind == ZERO;
	op->fua = t.can_fua && op->m.write && below(8) == 0;
	op->error = 0;
	op->conn = (unsigned)below(t.conns);
	if (op->kind != FLUSH)
		draw_range(op);
	if (op->kind == WRITE)
		op->m.value = ++t.next_value;
	t.overlaps += op->kind != FLUSH && meets_other(op);
	t.fuas += op->fua;
	op->busy = true;
	op->begun = now();
	model_begin(t.model, &op->m);
	send_op(op);
}

/* ------------------------------------------------------------ the loop */

static void wait_for_any(void)
{
	struct pollfd p[CONNS_MAX];

	for (unsigned i = 0; i < t.conns; i++) {
		unsigned dir = nbd_aio_get_direction(t.h[i]);

		p[i] = (struct pollfd){.fd = nbd_aio_get_fd(t.h[i])};
		p[i].events = (short)((dir & LIBNBD_AIO_DIRECTION_READ ? POLLIN : 0) |
				      (dir & LIBNBD_AIO_DIRECTION_WRITE ? POLLOUT : 0));
	}
	if (poll(p, t.conns, 1000) < 0 && errno != EINTR) {
		perror("poll");
		exit(1);
	}
	for (unsigned i = 0; i < t.conns; i++) {
		unsigned dir = nbd_aio_get_direction(t.h[i]);
		int r = 0;

		if ((p[i].revents & (POLLIN | POLLHUP | POLLERR)) &&
		    (dir & LIBNBD_AIO_DIRECTION_READ))
			r = nbd_aio_notify_read(t.h[i]);
		else if ((p[i].revents & POLLOUT) && (dir & LIBNBD_AIO_DIRECTION_WRITE))
			r = nbd_aio_notify_write(t.h[i]);
		if (r < 0 || nbd_aio_is_dead(t.h[i])) {
			fprintf(stderr, "ERROR: the connection broke: %s\n",
				nbd_get_error() ? nbd_get_error() : "");
			exit(1);
		}
	}
}

/* Collects what has ended. Return: operations still in flight. */
static unsigned collect(void)
{
	unsigned flying = 0;

	for (unsigned i = 0; i < t.qd; i++) {
		struct op *op = &t.op[i];
		int r;

		if (!op->busy)
			continue;
		r = nbd_aio_command_completed(t.h[op->conn], (uint64_t)op->cookie);
		if (r) {
			if (r < 0 && !op->error)
				op->error = nbd_get_errno() ? nbd_get_errno() : EIO;
			finish(op);
			continue;
		}
		flying++;
		if (now() - op->begun > (double)t.stall_s) {
			fprintf(stderr,
				"STALL: %s of sectors %llu+%llu has no answer after %llu s\n",
				kind_name[op->kind], (unsigned long long)op->m.first,
				(unsigned long long)op->m.count, (unsigned long long)t.stall_s);
			exit(1);
		}
	}
	return flying;
}

static void run(void)
{
	double end = now() + (double)t.seconds;
	unsigned flying;

	do {
		bool more = now() < end && !stop && t.errors < 100 && t.mismatches < 100;

		for (unsigned i = 0; i < t.qd && more; i++)
			if (!t.op[i].busy)
				begin(&t.op[i]);
		wait_for_any();
		flying = collect();
		if (!more && !flying)
			break;
	} while (true);
}

/* Quiet now: everything is read once more, in order. */
static void read_all(void)
{
	struct op *op = &t.op[0];
	uint64_t sectors = t.size / SECTOR;

	op->kind = READ;
	op->m.write = false;
	op->conn = 0;
	for (uint64_t at = 0; at < sectors; at += OP_MAX / SECTOR) {
		op->m.first = at;
		op->m.count = sectors - at < OP_MAX / SECTOR ? sectors - at : OP_MAX / SECTOR;
		op->error = 0;
		op->busy = true;
		op->begun = now();
		model_begin(t.model, &op->m);
		send_op(op);
		while (collect())
			wait_for_any();
	}
}

/* ------------------------------------------------------------ set-up */

static int connect_all(void)
{
	for (unsigned i = 0; i < t.conns; i++) {
		t.h[i] = nbd_create();
		if (!t.h[i] || nbd_add_meta_context(t.h[i], LIBNBD_CONTEXT_BASE_ALLOCATION) ||
		    nbd_connect_uri(t.h[i], t.uri)) {
			fprintf(stderr, "ashlar-nbd-check: %s\n", nbd_get_error());
			return 1;
		}
		if (i == 0 && t.conns > 1 && nbd_can_multi_conn(t.h[0]) != 1)
			t.conns = 1;
	}
	if ((uint64_t)nbd_get_size(t.h[0]) < t.size)
		t.size = (uint64_t)nbd_get_size(t.h[0]) / SECTOR * SECTOR;
	t.can[READ] = t.can[WRITE] = true;
	t.can[TRIM] = nbd_can_trim(t.h[0]) == 1;
	t.can[ZERO] = nbd_can_zero(t.h[0]) == 1;
	t.can[FLUSH] = nbd_can_flush(t.h[0]) == 1;
	t.can[STATUS] = nbd_can_meta_context(t.h[0], LIBNBD_CONTEXT_BASE_ALLOCATION) == 1;
	t.can_fua = nbd_can_fua(t.h[0]) == 1;
	return 0;
}

/* The model begins with zeros. */
static int make_zeros(void)
{
	for (uint64_t at = 0; at < t.size; at += 32u << 20) {
		uint64_t n = t.size - at < 32u << 20 ? t.size - at : 32u << 20;
		static uint8_t zeros[OP_MAX];
		int r = 0;

		if (t.can[ZERO])
			r = nbd_zero(t.h[0], n, at, 0);
		for (uint64_t k = 0; k < n && !t.can[ZERO] && !r; k += OP_MAX)
			r = nbd_pwrite(t.h[0], zeros, n - k < OP_MAX ? n - k : OP_MAX, at + k, 0);
		if (r) {
			fprintf(stderr, "ashlar-nbd-check: zeroing: %s\n", nbd_get_error());
			return 1;
		}
	}
	return 0;
}

static void on_signal(int sig)
{
	stop = 1;
}

static int usage(int code)
{
	fputs("ashlar-nbd-check --uri URI [--seconds 10] [--seed 1] [--qd 32] [--conns 2] "
	      "[--size 64MiB] [--stall-limit SECONDS]\n"
	      "Overwrites the first --size bytes of the export.\n",
	      code ? stderr : stdout);
	return code;
}

static int parse(int argc, char **argv)
{
	static const struct option longs[] = {
		{"uri", 1, NULL, 'u'},	{"seconds", 1, NULL, 's'},     {"seed", 1, NULL, 'r'},
		{"qd", 1, NULL, 'q'},	{"conns", 1, NULL, 'c'},       {"size", 1, NULL, 'z'},
		{"help", 0, NULL, 'h'}, {"stall-limit", 1, NULL, 'l'}, {NULL, 0, NULL, 0}};
	uint64_t v = 0;
	int c, bad = 0;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'u':
			t.uri = optarg;
			break;
		case 's':
			bad |= ash_u64_parse(optarg, 0, 1000000, &t.seconds);
			break;
		case 'r':
			bad |= ash_u64_parse(optarg, 0, UINT64_MAX, &t.seed);
			break;
		case 'q':
			bad |= ash_u64_parse(optarg, 1, 1024, &v);
			t.qd = (unsigned)v;
			break;
		case 'c':
			bad |= ash_u64_parse(optarg, 1, CONNS_MAX, &v);
			t.conns = (unsigned)v;
			break;
		case 'z':
			bad |= ash_size_parse(optarg, &t.size);
			break;
		case 'l':
			bad |= ash_u64_parse(optarg, 1, 1000000, &t.stall_s);
			break;
		case 'h':
			exit(usage(0));
		default:
			return usage(2);
		}
	}
	t.size = t.size / SECTOR * SECTOR;
	return bad || !t.uri || optind < argc || t.size < OP_MAX ? usage(2) : 0;
}

int main(int argc, char **argv)
{
	uint64_t ops = 0;

	if (parse(argc, argv))
		return 2;
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	ash_prng_seed(&t.rng, t.seed);
	if (connect_all() || make_zeros())
		return 1;
	t.model = model_new(t.size / SECTOR);
	t.op = ash_xcalloc(t.qd, sizeof(*t.op));
	for (unsigned i = 0; i < t.qd; i++) {
		t.op[i].data = ash_xcalloc(1, OP_MAX);
		t.op[i].seen = ash_xcalloc(OP_MAX / SECTOR, sizeof(uint64_t));
	}
	run();
	read_all();
	for (int k = 0; k < KINDS; k++) {
		ops += t.count[k];
		printf("%s=%llu ", kind_name[k], (unsigned long long)t.count[k]);
	}
	printf("fua=%llu overlapping=%llu connections=%u slowest_ms=%.1f seed=%llu\n",
	       (unsigned long long)t.fuas, (unsigned long long)t.overlaps, t.conns, t.slowest * 1e3,
	       (unsigned long long)t.seed);
	printf("ops=%llu errors=%llu mismatches=%llu\n", (unsigned long long)ops,
	       (unsigned long long)t.errors, (unsigned long long)t.mismatches);
	for (unsigned i = 0; i < t.conns; i++) {
		nbd_shutdown(t.h[i], 0);
		nbd_close(t.h[i]);
	}
	for (unsigned i = 0; i < t.qd; i++) {
		free(t.op[i].data);
		free(t.op[i].seen);
	}
	free(t.op);
	model_free(t.model);
	return t.errors || t.mismatches ? 1 : 0;
}
