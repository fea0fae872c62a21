// SPDX-License-Identifier: MIT
/*
 * How fast the reactor is by itself: messages to and from a second process over loopback, and
 * blocks to and from a disk. No core, no checksums of data.
 *
 *     ashlar-bench-reactor [--spin US] [--ms MS] [--disk PATH (is overwritten)]
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/hist.h"
#include "common/base/list.h"
#include "common/base/prng.h"
#include "common/base/size.h"
#include "common/io/reactor.h"

#define QD_MAX 128
#define DATA_MAX ASH_CHUNK_BYTES

static uint32_t spin_us = 50;
static uint64_t run_ms = 2000;
static uint8_t *data;
static uint32_t crc[ASH_PIECES_MAX];

static struct ash_reactor *make(void)
{
	struct ash_reactor_opts opts = {.spin_us = spin_us};
	struct ash_error err;
	struct ash_reactor *r = ash_reactor_new(&opts, &err);

	if (!r) {
		fprintf(stderr, "%s\n", err.message);
		exit(1);
	}
	return r;
}

/* ------------------------------------------------------------ the other process */

static void serve_msg(struct ash_conn *conn, struct ash_msg *m)
{
	m->h.flags |= ASH_F_REPLY;
	ash_buf_put(m->buf);
	m->buf = NULL;
	m->data_bytes = m->crcs = 0;
	if (m->h.op == ASH_OP_READ) {
		m->data = data;
		m->data_bytes = m->h.length;
		m->crc = crc;
		m->crcs = ash_pieces(m->h.offset, m->h.length);
	} else {
		m->h.length = 0;
	}
	ash_conn_send(conn, m);
}

static void serve_down(struct ash_conn *conn, int reason)
{
	ash_reactor_stop(conn->net->owner);
}

static const struct ash_conn_events serve_events = {.on_msg = serve_msg, .on_down = serve_down};

static void serve_accept(struct ash_net *net, struct ash_conn *conn)
{
	conn->events = &serve_events;
}

static void serve(int out)
{
	struct ash_reactor *r = make();
	struct ash_endpoint at;
	struct ash_error err;

	if (ash_endpoint_parse("127.0.0.1:0", 0, &at, &err) ||
	    ash_reactor_listen(r, &at, &at.port, &err)) {
		fprintf(stderr, "%s\n", err.message);
		exit(1);
	}
	ash_reactor_port(r)->net->on_accept = serve_accept;
	ash_reactor_port(r)->net->owner = r;
	if (write(out, &at, sizeof(at)) != sizeof(at))
		exit(1);
	ash_reactor_run(r);
	exit(0);
}

/* ------------------------------------------------------------ asking */

struct slot {
	struct ash_msg m;
	struct ash_disk_op o;
	struct run *run;
	uint64_t started_ns;
	bool in_transport, answered;
	uint8_t *data;
};

struct run {
	struct ash_reactor *r;
	struct ash_port *port;
	struct ash_conn *conn;
	struct ash_disk *disk;
	struct slot slot[QD_MAX];
	struct ash_hist hist;
	struct ash_prng rng;
	uint8_t op, kind;
	uint32_t bytes;
	unsigned qd, flying;
	uint64_t count, end_ns;
};

static struct run run;

static void ask(struct slot *s);

static void again(struct slot *s)
{
	uint64_t now = run.port->now_ns(run.port);

	ash_hist_add(&run.hist, now - s->started_ns);
	run.count++;
	if (now < run.end_ns)
		ask(s);
	else if (--run.flying == 0)
		ash_reactor_stop(run.r);
}

static void on_sent(struct ash_msg *m)
{
	struct slot *s = m->owner;

	s->in_transport = false;
	if (s->answered)
		again(s);
}

static void ask(struct slot *s)
{
	bool write = run.op == ASH_OP_WRITE;

	s->started_ns = run.port->now_ns(run.port);
	s->in_transport = true;
	s->answered = false;
	s->m.h = (struct ash_hdr){.op = run.op,
				  .tag = (uint64_t)(s - run.slot),
				  .length = run.op == ASH_OP_PING ? 0 : run.bytes};
	s->m.sent = on_sent;
	s->m.owner = s;
	s->m.data = s->data;
	s->m.data_bytes = write ? run.bytes : 0;
	s->m.crc = crc;
	s->m.crcs = write ? ash_pieces(0, run.bytes) : 0;
	ash_conn_send(run.conn, &s->m);
}

static void on_up(struct ash_conn *conn)
{
	ash_reactor_stop(run.r);
}

static void on_msg(struct ash_conn *conn, struct ash_msg *m)
{
	struct slot *s = &run.slot[m->h.tag];

	ash_msg_free(conn->net, m);
	s->answered = true;
	if (!s->in_transport)
		again(s);
}

static bool on_place(struct ash_conn *conn, const struct ash_hdr *h, uint8_t **ret_data,
		     uint32_t **ret_crc)
{
	*ret_data = run.slot[h->tag].data;
	*ret_crc = crc;
	return true;
}

static void on_down(struct ash_conn *conn, int reason)
{
	if (reason) {
		fprintf(stderr, "connection lost: %s\n", strerror(-reason));
		exit(1);
	}
	ash_reactor_stop(run.r);
}

static const struct ash_conn_events ask_events = {
	.on_up = on_up, .on_msg = on_msg, .on_place = on_place, .on_down = on_down};

/* ------------------------------------------------------------ disk */

static void disk_ask(struct slot *s);

static void on_disk(struct ash_disk_op *o, int result)
{
	uint64_t now = run.port->now_ns(run.port);
	struct slot *s = ash_container_of(o, struct slot, o);

	if (result) {
		fprintf(stderr, "disk: %s\n", strerror(-result));
		exit(1);
	}
	ash_hist_add(&run.hist, now - s->started_ns);
	run.count++;
	if (now < run.end_ns)
		disk_ask(s);
	else if (--run.flying == 0)
		ash_reactor_stop(run.r);
}

static void disk_ask(struct slot *s)
{
	s->started_ns = run.port->now_ns(run.port);
	s->o = (struct ash_disk_op){.kind = run.kind,
				    .buf_index = -1,
				    .iovcnt = 1,
				    .iov1 = {s->data, run.bytes},
				    .iov = &s->o.iov1,
				    .bytes = run.bytes,
				    .done = on_disk};
	s->o.offset = ash_prng_below(&run.rng, run.disk->bytes / run.bytes) * run.bytes;
	ash_disk_submit(run.disk, &s->o);
}

/* ------------------------------------------------------------ runs */

static double cpu_s(int who)
{
	struct rusage u;

	getrusage(who, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void measure(const char *what, unsigned qd, void (*start)(struct slot *s))
{
	double before = cpu_s(RUSAGE_SELF), cpu;
	uint64_t begin = run.port->now_ns(run.port);
	double took;

	ash_hist_init(&run.hist);
	run.count = 0;
	run.qd = run.flying = qd;
	run.end_ns = begin + run_ms * 1000000;
	for (unsigned i = 0; i < qd; i++)
		start(&run.slot[i]);
	ash_reactor_run(run.r);
	took = (double)(run.port->now_ns(run.port) - begin) / 1e9;
	cpu = cpu_s(RUSAGE_SELF) - before;
	printf("%-12s bytes=%-7u qd=%-3u per_s=%-8.0f p50_us=%-6.0f p99_us=%-6.0f MB_s=%-6.0f "
	       "cpu_s_per_100k=%.2f\n",
	       what, run.bytes, qd, (double)run.count / took,
	       (double)ash_hist_quantile(&run.hist, 500) / 1e3,
	       (double)ash_hist_quantile(&run.hist, 990) / 1e3,
	       (double)run.count * run.bytes / took / 1e6, cpu * 1e5 / (double)run.count);
	fflush(stdout);
}

static void measure_net(const struct ash_endpoint *at)
{
	static const unsigned qds[] = {1, 32, 128};
	static const struct {
		const char *name;
		uint8_t op;
	} kinds[] = {{"ping", ASH_OP_PING}, {"write", ASH_OP_WRITE}, {"read", ASH_OP_READ}};

	run.conn = ash_net_connect(run.port->net, at, &ask_events, NULL);
	ash_reactor_run(run.r);
	for (size_t k = 0; k < 3; k++) {
		run.op = kinds[k].op;
		run.bytes = run.op == ASH_OP_PING ? 0 : 4096;
		for (size_t q = 0; q < 3; q++)
			measure(kinds[k].name, qds[q], ask);
		run.bytes = DATA_MAX;
		if (run.op != ASH_OP_PING)
			measure(kinds[k].name, 8, ask);
	}
	ash_conn_close(run.conn);
	ash_reactor_run(run.r); /* until on_down */
}

static void measure_disk(const char *path)
{
	static const unsigned qds[] = {1, 32};
	struct ash_error err;

	if (ash_reactor_disk_open(run.r, path, 1000, -1, &run.disk, &err)) {
		fprintf(stderr, "%s\n", err.message);
		exit(1);
	}
	run.bytes = 4096;
	for (size_t q = 0; q < 2; q++) {
		run.kind = ASH_DISK_WRITE;
		measure("disk_write", qds[q], disk_ask);
		run.kind = ASH_DISK_READ;
		measure("disk_read", qds[q], disk_ask);
	}
}

static void usage(int code)
{
	fprintf(code ? stderr : stdout,
		"usage: ashlar-bench-reactor [--spin US] [--ms MS] [--disk PATH]\n"
		"  --disk PATH   a file or block device that is overwritten\n");
	exit(code);
}

static uint64_t number(const char *text)
{
	uint64_t v;

	if (ash_u64_parse(text, 0, 1000000, &v))
		usage(2);
	return v;
}

static const char *options(int argc, char **argv)
{
	static const struct option known[] = {{"spin", 1, NULL, 's'},
					      {"ms", 1, NULL, 't'},
					      {"disk", 1, NULL, 'd'},
					      {"help", 0, NULL, 'h'},
					      {0}};
	const char *disk = NULL;
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (c == 's')
			spin_us = (uint32_t)number(optarg);
		else if (c == 't')
			run_ms = number(optarg);
		else if (c == 'd')
			disk = optarg;
		else
			usage(c == 'h' ? 0 : 2);
	}
	return disk;
}

int main(int argc, char **argv)
{
	const char *disk = options(argc, argv);
	struct ash_endpoint at;
	int ends[2];
	pid_t pid;

	data = aligned_alloc(4096, DATA_MAX);
	if (!data || pipe(ends))
		return 1;
	memset(data, 1, DATA_MAX);
	pid = fork();
	if (pid == 0)
		serve(ends[1]);
	if (pid < 0 || read(ends[0], &at, sizeof(at)) != sizeof(at))
		return 1;
	run.r = make();
	run.port = ash_reactor_port(run.r);
	ash_prng_seed(&run.rng, 1);
	for (unsigned i = 0; i < QD_MAX; i++) {
		run.slot[i].data = aligned_alloc(4096, DATA_MAX);
		if (!run.slot[i].data)
			return 1;
		memset(run.slot[i].data, 2, i < 8 ? DATA_MAX : 4096);
	}
	measure_net(&at);
	waitpid(pid, NULL, 0);
	if (disk)
		measure_disk(disk);
	return 0;
}
