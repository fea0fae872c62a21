// SPDX-License-Identifier: MIT
#include "sds/shell/options.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "common/base/name.h"

#define PATH_ROOM 3000u /* leaves room for file names inside the directories */

const char sds_options_help[] =
	"Usage: ashlar-sds --listen IP[:PORT] [OPTION...]\n"
	"\n"
	"A data server of an Ashlar system: it keeps copies of volumes on the disks and files of\n"
	"this host, and serves them to clients and other data servers.\n"
	"\n"
	"  --listen IP:PORT     where clients and other data servers reach it (port 7072)\n"
	"  --advertise IP:PORT  the address told to them, when it is another than --listen\n"
	"  --mdm LIST           host:port of the MDMs, with commas (else $ASHLAR_MDM, else\n"
	"                       127.0.0.1:6611)\n"
	"  --devices GLOB       where to look for its disks, like '/dev/disk/by-id/nvme-*' (in\n"
	"                       quotes; may repeat). Only disks that carry a label of this system\n"
	"                       are used; others are only read. Devices added with 'ashlar device\n"
	"                       add' are found again without it.\n"
	"  --state-dir DIR      its identity (/var/lib/ashlar/sds)\n"
	"  --run-dir DIR        its pid file (/run/ashlar)\n"
	"  --name NAME          told to the MDM and put in the log; the pid file has it too\n"
	"  --conf FILE          settings, one 'key = value' per line, keys as the flags above;\n"
	"                       flags win\n"
	"  --help, --version\n"
	"\n"
	"A new data server waits until it is admitted, then gets devices:\n"
	"  ashlar-sds --listen 10.0.0.1 --mdm 10.0.0.1,10.0.0.2,10.0.0.3\n"
	"  ashlar sds add --name sds1 --protection-domain pd1 --fault-set fs1 --address "
	"10.0.0.1:7072\n"
	"  ashlar device add --sds sds1 --pool pool1 --path /dev/nvme1n1\n"
	"\n"
	"SIGTERM ends it gracefully. Exit code: 0 ended, 1 cannot start or had to give up, 2 usage.\n"
	"ASHLAR_LOG=error|warn|notice|info|debug sets how much it logs (to stderr).\n";

static const char *const known[] = {"name",	 "state-dir", "run-dir", "listen",
				    "advertise", "mdm",	      "devices", NULL};

enum { OPT_VALUE = 256, OPT_CONF, OPT_HELP, OPT_VERSION };
static const struct option options[] = {
	{"name", required_argument, NULL, OPT_VALUE},
	{"state-dir", required_argument, NULL, OPT_VALUE},
	{"run-dir", required_argument, NULL, OPT_VALUE},
	{"listen", required_argument, NULL, OPT_VALUE},
	{"advertise", required_argument, NULL, OPT_VALUE},
	{"mdm", required_argument, NULL, OPT_VALUE},
	{"devices", required_argument, NULL, OPT_VALUE},
	{"conf", required_argument, NULL, OPT_CONF},
	{"help", no_argument, NULL, OPT_HELP},
	{"version", no_argument, NULL, OPT_VERSION},
	{NULL, 0, NULL, 0},
};

static struct ash_error read_flags(int argc, char **argv, struct sds_options *opts)
{
	const char *file = NULL;
	int opt, at = 0;

	optind = 0; /* starts getopt afresh: tests read more than one command line */
	opterr = 0;
	while ((opt = getopt_long(argc, argv, ":", options, &at)) != -1) {
		if (opt == OPT_HELP)
			opts->help = true;
		else if (opt == OPT_VERSION)
			opts->version = true;
		else if (opt == OPT_CONF)
			file = optarg;
		else if (opt == OPT_VALUE)
			ash_conf_set_flag(&opts->conf, options[at].name, optarg);
		else
			return ash_error_make(ASH_E_USAGE, "%s %s", argv[optind - 1],
					      opt == ':' ? "needs a value" : "is not an option");
	}
	if (opts->help || opts->version)
		return ash_error_ok();
	if (optind < argc)
		return ash_error_make(ASH_E_USAGE, "\"%s\" is not expected", argv[optind]);
	return file ? ash_conf_load(&opts->conf, file, known) : ash_error_ok();
}

static bool is_any(const struct ash_endpoint *ep)
{
	static const uint8_t v6[16], v4[16] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(ep->ip, v6, 16) || !memcmp(ep->ip, v4, 16);
}

static struct ash_error read_address(const struct ash_conf *conf, const char *key,
				     struct ash_endpoint *ret_ep)
{
	struct ash_error err = {0};

	if (ash_endpoint_parse(ash_conf_get(conf, key, ""), 7072, ret_ep, &err))
		err.code = ASH_E_USAGE;
	else
		err = ash_error_ok();
	if (ash_failed(&err))
		ash_error_wrap(&err, "--%s: ", key);
	return err;
}

static struct ash_error read_addresses(struct sds_options *opts)
{
	struct ash_error err;

	if (!ash_conf_get(&opts->conf, "listen", NULL))
		return ash_error_make(ASH_E_USAGE,
				      "--listen is missing: a data server listens where it is "
				      "told, and nowhere else");
	err = read_address(&opts->conf, "listen", &opts->listen);
	if (ash_failed(&err))
		return err;
	opts->advertise = opts->listen;
	if (ash_conf_get(&opts->conf, "advertise", NULL))
		err = read_address(&opts->conf, "advertise", &opts->advertise);
	if (!ash_failed(&err) && is_any(&opts->advertise))
		err = ash_error_make(ASH_E_USAGE,
				     "others cannot reach this host at \"any address\"; give the "
				     "one they use with --advertise IP:PORT");
	return err;
}

struct ash_error sds_options_read(int argc, char **argv, struct sds_options *ret_opts)
{
	struct sds_options *opts = ret_opts;
	struct ash_error err;

	memset(opts, 0, sizeof(*opts));
	err = read_flags(argc, argv, opts);
	if (ash_failed(&err) || opts->help || opts->version)
		return err;
	opts->name = ash_conf_get(&opts->conf, "name", NULL);
	opts->state_dir = ash_conf_get(&opts->conf, "state-dir", "/var/lib/ashlar/sds");
	opts->run_dir = ash_conf_get(&opts->conf, "run-dir", "/run/ashlar");
	opts->mdms = ash_conf_get(&opts->conf, "mdm", NULL);
	if (strlen(opts->state_dir) > PATH_ROOM || strlen(opts->run_dir) > PATH_ROOM)
		return ash_error_make(ASH_E_USAGE,
				      "--state-dir and --run-dir may have %u characters at most",
				      PATH_ROOM);
	if (opts->name) {
		err = ash_name_check("SDS", opts->name);
		if (ash_failed(&err)) {
			err.code = ASH_E_USAGE;
			return err;
		}
	}
	return read_addresses(opts);
}

void sds_options_done(struct sds_options *opts)
{
	ash_conf_done(&opts->conf);
}
