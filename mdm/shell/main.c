// SPDX-License-Identifier: MIT
/* ashlar-mdm: options, signals, pid file. */
#include <errno.h>
#include <ev.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/conf.h"
#include "common/base/log.h"
#include "common/base/name.h"
#include "common/io/reactor.h"
#include "mdm/shell/shell.h"

static const char help[] =
	"Usage: ashlar-mdm --name NAME --listen IP[:PORT] --raft IP[:PORT] [OPTION...]\n"
	"\n"
	"A metadata manager of an Ashlar system: it keeps the cluster map, together with the other\n"
	"MDMs, and decides who serves which data. One is enough to try; three (two MDMs and a\n"
	"tie-breaker) or five survive the loss of one or two.\n"
	"\n"
	"  --name NAME       its name in the system, like mdm1\n"
	"  --listen IP:PORT  where SDSs, SDCs and the ashlar command reach it (port 6611)\n"
	"  --raft IP:PORT    where the other MDMs reach it (IPv4, port 9011)\n"
	"  --state-dir DIR   its log and identity (/var/lib/ashlar/mdm)\n"
	"  --run-dir DIR     its pid file (/run/ashlar)\n"
	"  --tie-breaker     only vote and keep the log; serve nobody\n"
	"  --conf FILE       settings, one 'key = value' per line, keys as the flags above\n"
	"                    (/etc/ashlar/mdm.conf if it is there); flags win\n"
	"  --help, --version\n"
	"\n"
	"The first time it waits until it is told to which system it belongs:\n"
	"  ashlar-mdm --name mdm1 --listen 10.0.0.1 --raft 10.0.0.1       (and so on, each host)\n"
	"  ashlar system create --name prod --mdm mdm1=10.0.0.1:6611/10.0.0.1:9011 \\\n"
	"      --mdm mdm2=10.0.0.2:6611/10.0.0.2:9011 --tb tb1=10.0.0.3:6611/10.0.0.3:9011\n"
	"Afterwards it finds everything in its state directory.\n"
	"\n"
	"SIGTERM ends it gracefully. Exit code: 0 ended, 1 cannot start, 2 usage, 4 its log failed.\n"
	"ASHLAR_LOG=error|warn|notice|info|debug sets how much it logs (to stderr).\n";

static const char *const known[] = {"name",    "listen",      "raft", "state-dir",
				    "run-dir", "tie-breaker", NULL};

enum { OPT_CONF = 256, OPT_HELP, OPT_VERSION, OPT_VALUE };
static const struct option options[] = {
	{"name", required_argument, NULL, OPT_VALUE},
	{"listen", required_argument, NULL, OPT_VALUE},
	{"raft", required_argument, NULL, OPT_VALUE},
	{"state-dir", required_argument, NULL, OPT_VALUE},
	{"run-dir", required_argument, NULL, OPT_VALUE},
	{"tie-breaker", no_argument, NULL, OPT_VALUE},
	{"conf", required_argument, NULL, OPT_CONF},
	{"help", no_argument, NULL, OPT_HELP},
	{"version", no_argument, NULL, OPT_VERSION},
	{NULL, 0, NULL, 0},
};

static int usage(const char *message)
{
	fprintf(stderr, "ashlar-mdm: %s; see 'ashlar-mdm --help'\n", message);
	return 2;
}

/* Flags win over the file, whatever their order. -1: go on; else exit with it. */
static int read_options(int argc, char **argv, struct ash_conf *conf)
{
	const char *file = NULL;
	struct ash_error err = {0};
	int opt, at;

	while ((opt = getopt_long(argc, argv, "", options, &at)) != -1) {
		if (opt == OPT_HELP) {
			fputs(help, stdout);
			return 0;
		}
		if (opt == OPT_VERSION) {
			puts("ashlar-mdm " ASHLAR_VERSION);
			return 0;
		}
		if (opt == OPT_CONF)
			file = optarg;
		else if (opt == OPT_VALUE)
			ash_conf_set_flag(conf, options[at].name, optarg ? optarg : "yes");
		else
			return usage("that option is not known, or its value is missing");
	}
	if (optind < argc) {
		snprintf(err.message, sizeof(err.message), "\"%s\" is not expected", argv[optind]);
		return usage(err.message);
	}
	if (!file && !access("/etc/ashlar/mdm.conf", R_OK))
		file = "/etc/ashlar/mdm.conf";
	if (file)
		err = ash_conf_load(conf, file, known);
	return ash_failed(&err) ? usage(err.message) : -1;
}

static int read_settings(const struct ash_conf *conf, struct mdm_shell_opts *opts)
{
	const char *listen = ash_conf_get(conf, "listen", NULL);
	const char *raft = ash_conf_get(conf, "raft", NULL);
	const char *tb = ash_conf_get(conf, "tie-breaker", "no");
	struct ash_error err;
	char text[64];

	opts->name = ash_conf_get(conf, "name", NULL);
	opts->state_dir = ash_conf_get(conf, "state-dir", "/var/lib/ashlar/mdm");
	if (!opts->name)
		return usage("--name is missing");
	if (!listen || !raft)
		return usage("--listen and --raft are needed: an MDM listens where it is told, and "
			     "nowhere else");
	err = ash_name_check("MDM", opts->name);
	if (ash_failed(&err) || ash_endpoint_parse(listen, 6611, &opts->listen, &err) ||
	    ash_endpoint_parse(raft, 9011, &opts->raft, &err))
		return usage(err.message);
	if (ash_endpoint_text(&opts->raft, text, sizeof(text))[0] == '[')
		return usage("--raft must be an IPv4 address");
	if (strlen(opts->state_dir) > 2900)
		return usage("--state-dir is too long");
	if (strcmp(tb, "yes") && strcmp(tb, "true") && strcmp(tb, "1") && strcmp(tb, "no") &&
	    strcmp(tb, "false") && strcmp(tb, "0"))
		return usage("tie-breaker is yes or no");
	opts->tie_breaker = *tb == 'y' || *tb == 't' || *tb == '1';
	return -1;
}

static int write_pid(const char *run_dir, const char *name, char *path, size_t room)
{
	FILE *f;

	if (mkdir(run_dir, 0755) && errno != EEXIST)
		return -errno;
	snprintf(path, room, "%s/ashlar-mdm-%s.pid", run_dir, name);
	f = fopen(path, "we");
	if (!f)
		return -errno;
	fprintf(f, "%ld\n", (long)getpid());
	return fclose(f) ? -errno : 0;
}

static void on_signal(struct ev_loop *loop, ev_signal *w, int revents)
{
	ash_log(ASH_LOG_NOTICE, "event=signal number=%d", w->signum);
	mdm_shell_stop(w->data);
}

static void greet(const struct mdm_shell_opts *o)
{
	char at[64], raft[64];

	ash_log(ASH_LOG_NOTICE,
		"event=started name=%s listen=%s raft=%s state_dir=%s tie_breaker=%d", o->name,
		ash_endpoint_text(&o->listen, at, sizeof(at)),
		ash_endpoint_text(&o->raft, raft, sizeof(raft)), o->state_dir, o->tie_breaker);
	if (!ash_endpoint_is_loopback(&o->listen) || !ash_endpoint_is_loopback(&o->raft))
		ash_log(ASH_LOG_WARN,
			"event=no_authentication listen=%s raft=%s note=\"whoever reaches these "
			"addresses can manage the system: use a network of its own\"",
			at, raft);
}

static int run(const struct ash_conf *conf, const struct mdm_shell_opts *opts)
{
	struct ev_loop *loop = ev_default_loop(0);
	const char *run_dir = ash_conf_get(conf, "run-dir", "/run/ashlar");
	struct ash_error err;
	struct mdm_shell *sh = mdm_shell_new(loop, opts, &err);
	ev_signal term, intr;
	char pid[4096];
	bool failed;
	int rv;

	if (!sh) {
		fprintf(stderr, "ashlar-mdm: %s\n", err.message);
		return 1;
	}
	rv = write_pid(run_dir, opts->name, pid, sizeof(pid));
	if (rv) {
		fprintf(stderr, "ashlar-mdm: cannot write a pid file in %s: %s; give --run-dir\n",
			run_dir, strerror(-rv));
		mdm_shell_free(sh);
		return 1;
	}
	ev_signal_init(&term, on_signal, SIGTERM);
	ev_signal_init(&intr, on_signal, SIGINT);
	term.data = intr.data = sh;
	ev_signal_start(loop, &term);
	ev_signal_start(loop, &intr);
	greet(opts);
	ev_run(loop, 0);
	failed = mdm_shell_failed(sh);
	unlink(pid);
	/* A log that failed may never end what it began. */
	if (failed)
		_exit(4);
	mdm_shell_free(sh);
	ash_log(ASH_LOG_NOTICE, "event=ended");
	return 0;
}

int main(int argc, char **argv)
{
	struct ash_conf conf = {0};
	struct mdm_shell_opts opts = {0};
	int rv;

	ash_log_init("ashlar-mdm");
	signal(SIGPIPE, SIG_IGN);
	opterr = 1;
	rv = read_options(argc, argv, &conf);
	if (rv < 0)
		rv = read_settings(&conf, &opts);
	if (rv < 0)
		rv = run(&conf, &opts);
	ash_conf_done(&conf);
	return rv;
}
