// SPDX-License-Identifier: MIT
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/size.h"
#include "tests/bench/load.h"

static volatile bool stop;

static void on_signal(int sig)
{
	stop = true;
}

static void usage(FILE *out)
{
	fputs("ashlar-load: I/O load on a volume, a raw file, or both one after the other\n\n"
	      "  --volume NAME        through libashlar\n"
	      "  --file PATH          raw file or block device, io_uring and O_DIRECT (overwritten!)\n"
	      "  --rw KIND            randread randwrite randrw (mixed) read write rw; default randread\n"
	      "  --bs SIZE            4k     --qd N     1       --runtime SECONDS  10\n"
	      "  --size SIZE          use only the first SIZE bytes\n"
	      "  --rwmix PERCENT      reads of a mix, 50\n"
	      "  --seed N             --fill  write everything once before\n"
	      "  --flush-every N      a flush after each N writes       --fua\n"
	      "  --verify             check what is read and was written (or filled) by this run\n"
	      "  --ack-log FILE       journal of acknowledged writes, for --check\n"
	      "  --check FILE         read what the journal names; anything older is lost data\n"
	      "  --json               results as JSON on stdout\n"
	      "  --mdm LIST --guid UUID --sdc-name NAME --state-dir DIR --io-timeout MS --spin US\n\n"
	      "Exit code: 0 fine; 1 errors, wrong or lost data, refused; 2 usage; 3 unreachable.\n",
	      out);
}

static int bad(const char *what, const char *value)
{
	fprintf(stderr, "ashlar-load: %s %s makes no sense; see --help\n", what,
		value ? value : "");
	return 2;
}

static bool parse_rw(const char *text, struct load_opts *o)
{
	static const struct {
		const char *name;
		bool random, reads, writes;
	} kinds[] = {{"randread", true, true, false}, {"randwrite", true, false, true},
		     {"randrw", true, true, true},    {"mixed", true, true, true},
		     {"read", false, true, false},    {"write", false, false, true},
		     {"seqread", false, true, false}, {"seqwrite", false, false, true},
		     {"rw", false, true, true},	      {"seqrw", false, true, true}};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(text, kinds[i].name)) {
			o->random = kinds[i].random;
			o->reads = kinds[i].reads;
			o->writes = kinds[i].writes;
			return true;
		}
	return false;
}

enum {
	O_VOLUME = 1,
	O_FILE,
	O_RW,
	O_BS,
	O_QD,
	O_RUNTIME,
	O_SIZE,
	O_RWMIX,
	O_SEED,
	O_FILL,
	O_FLUSH,
	O_FUA,
	O_VERIFY,
	O_ACK,
	O_CHECK,
	O_JSON,
	O_MDM,
	O_GUID,
	O_SDC,
	O_STATE,
	O_TIMEOUT,
	O_SPIN,
	O_HELP,
};

static const struct option longs[] = {{"volume", 1, NULL, O_VOLUME},
				      {"file", 1, NULL, O_FILE},
				      {"rw", 1, NULL, O_RW},
				      {"bs", 1, NULL, O_BS},
				      {"qd", 1, NULL, O_QD},
				      {"runtime", 1, NULL, O_RUNTIME},
				      {"size", 1, NULL, O_SIZE},
				      {"rwmix", 1, NULL, O_RWMIX},
				      {"seed", 1, NULL, O_SEED},
				      {"fill", 0, NULL, O_FILL},
				      {"flush-every", 1, NULL, O_FLUSH},
				      {"fua", 0, NULL, O_FUA},
				      {"verify", 0, NULL, O_VERIFY},
				      {"ack-log", 1, NULL, O_ACK},
				      {"check", 1, NULL, O_CHECK},
				      {"json", 0, NULL, O_JSON},
				      {"mdm", 1, NULL, O_MDM},
				      {"guid", 1, NULL, O_GUID},
				      {"sdc-name", 1, NULL, O_SDC},
				      {"state-dir", 1, NULL, O_STATE},
				      {"io-timeout", 1, NULL, O_TIMEOUT},
				      {"spin", 1, NULL, O_SPIN},
				      {"help", 0, NULL, O_HELP},
				      {NULL, 0, NULL, 0}};

static bool number(const char *text, uint64_t max, uint32_t *ret)
{
	uint64_t v;

	if (ash_u64_parse(text, 0, max, &v))
		return false;
	*ret = (uint32_t)v;
	return true;
}

/* Return: false when the value makes no sense. */
static bool take_option(struct load_opts *o, int c, const char *arg)
{
	switch (c) {
	case O_VOLUME:
		o->volume = arg;
		return strlen(arg) < 64;
	case O_FILE:
		o->file = arg;
		return true;
	case O_RW:
		return parse_rw(arg, o);
	case O_BS:
		return !ash_size_parse(arg, &o->bs) && o->bs >= 512 && o->bs % 512 == 0 &&
		       o->bs <= 32 << 20;
	case O_QD:
		return number(arg, 4096, &o->qd) && o->qd;
	case O_RUNTIME:
		return number(arg, 1000000, &o->runtime_s);
	case O_SIZE:
		return !ash_size_parse(arg, &o->size);
	case O_RWMIX:
		return number(arg, 100, &o->rwmix);
	case O_SEED:
		return !ash_u64_parse(arg, 0, UINT64_MAX, &o->seed);
	case O_FILL:
		o->fill = true;
		return true;
	case O_FLUSH:
		return number(arg, UINT32_MAX, &o->flush_every);
	case O_FUA:
		o->fua = true;
		return true;
	case O_VERIFY:
		o->verify = true;
		return true;
	case O_ACK:
		o->ack_log = arg;
		return true;
	case O_CHECK:
		o->check = arg;
		return true;
	case O_JSON:
		o->json = true;
		return true;
	case O_MDM:
		o->mdms = arg;
		return true;
	case O_GUID:
		o->guid = arg;
		return true;
	case O_SDC:
		o->sdc_name = arg;
		return true;
	case O_STATE:
		o->state_dir = arg;
		return true;
	case O_TIMEOUT:
		return number(arg, UINT32_MAX, &o->io_timeout_ms);
	case O_SPIN:
		return number(arg, 1000, &o->spin_us);
	default:
		return false;
	}
}

/* One target. Return: exit code. */
static int run_on(const struct load_opts *o, const struct load_engine *kind, struct load *l)
{
	struct load_engine e = *kind;
	struct load_opts fill = *o;
	uint64_t bytes, *filled = NULL;
	int err = e.open(&e, o, o->qd, &bytes);

	if (err)
		return err;
	if (o->fill) {
		fill.random = fill.reads = false;
		fill.writes = true;
		fill.ack_log = NULL;
		err = load_init(l, &fill, &e, bytes, UINT64_MAX);
		if (!err) {
			l->ops_left = l->blocks;
			l->stop = &stop;
			load_run(l);
			err = l->errors ? 1 : 0;
			filled = l->last;
			l->last = NULL;
		}
		load_done(l);
	}
	if (!err)
		err = load_init(l, o, &e, bytes, UINT64_MAX);
	if (!err) {
		if (filled) {
			/* What is there now is known for every block. */
			free(l->last);
			l->last = filled;
			filled = NULL;
		}
		l->stop = &stop;
		load_run(l);
		err = l->errors || l->mismatches ? 1 : 0;
	}
	free(filled);
	e.close(&e);
	return err;
}

static int run(const struct load_opts *o)
{
	static struct load volume, file;
	int err = 0, other = 0;

	if (o->volume)
		err = run_on(o, &load_engine_ashlar, &volume);
	if (o->file && err < 2)
		other = run_on(o, &load_engine_file, &file);
	if (o->json && err < 2 && other < 2) {
		load_report_json(stdout, o, o->volume ? &volume : &file);
		if (o->volume && o->file) {
			printf(", \"baseline\": ");
			load_report_json(stdout, o, &file);
			printf("}");
		}
		printf("}\n");
	} else if (err < 2 && other < 2) {
		if (o->volume)
			load_report(stdout, o, &volume, "volume");
		if (o->file)
			load_report(stdout, o, &file, "file");
	}
	load_done(&volume);
	load_done(&file);
	return err ? err : other;
}

int main(int argc, char **argv)
{
	struct load_opts o = {
		.bs = 4096, .qd = 1, .runtime_s = 10, .rwmix = 50, .random = true, .reads = true};
	struct sigaction sa = {.sa_handler = on_signal};
	struct load_engine e;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == O_HELP) {
			usage(stdout);
			return 0;
		}
		if (!take_option(&o, c, optarg))
			return c == '?' ? 2 : bad(argv[optind - 1], NULL);
	}
	if (optind < argc)
		return bad("argument", argv[optind]);
	if (!o.volume && !o.file)
		return bad("without --volume or --file this", NULL);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	if (o.check) {
		e = o.volume ? load_engine_ashlar : load_engine_file;
		return load_check(&o, &e);
	}
	return run(&o);
}
