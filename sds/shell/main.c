// SPDX-License-Identifier: MIT
/* ashlar-sds: wires the core to the reactor, the MDMs, the disks and the signals. */
#include <errno.h>
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/uuid.h"
#include "common/io/reactor.h"
#include "common/mgmt/mgmt.h"
#include "sds/core/sds.h"
#include "sds/shell/identity.h"
#include "sds/shell/open_disk.h"
#include "sds/shell/options.h"
#include "sds/shell/scan.h"

#define SCAN_S 2.0
#define SCAN_SOON_S 0.1
#define SOON_TRIES 50u
#define STOP_S 10.0
#define LOCK_WAIT_MS 2000u

struct shell {
	struct sds_options opts;
	struct ash_reactor *reactor;
	struct ash_mgmt *mgmt;
	struct sds *sds;
	struct sds_scan *scan;
	struct sds_opener opener;
	struct sds_cfg cfg;
	ev_signal term, intr;
	ev_timer scan_timer, stop_timer;
	unsigned soon_tries;
	bool stopping, gave_up;
};

/* Static, because the reactor stays as it is at exit (see run). */
static struct shell shell;

static int complain(const struct ash_error *err)
{
	fprintf(stderr, "ashlar-sds: %s\n", err->message);
	if (err->code == ASH_E_USAGE)
		fputs("See 'ashlar-sds --help'.\n", stderr);
	return err->code == ASH_E_USAGE ? 2 : 1;
}

static void on_turn(void *arg)
{
	sds_turn(((struct shell *)arg)->sds);
}

static void on_found(void *arg, struct ash_disk *disk, const char *path)
{
	sds_disk_found(((struct shell *)arg)->sds, disk, path);
}

static void on_scan(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct shell *sh = w->data;
	struct ash_port *port = ash_reactor_port(sh->reactor);
	bool busy;

	if (sh->stopping)
		return;
	busy = sds_scan_run(sh->scan, port->now_ns(port)) != 0;
	/* A predecessor that was killed may hold its disks for a moment. */
	w->repeat = busy && sh->soon_tries++ < SOON_TRIES ? SCAN_SOON_S : SCAN_S;
	ev_timer_again(loop, w);
}

static void on_stopped(void *arg)
{
	ash_reactor_stop(((struct shell *)arg)->reactor);
}

static void on_stop_late(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct shell *sh = w->data;

	ash_log(ASH_LOG_ERROR,
		"event=stop_gave_up note=\"a disk or peer did not end its work in time; nothing "
		"acknowledged is lost, the next start recovers\"");
	sh->gave_up = true;
	ash_reactor_stop(sh->reactor);
}

static void on_signal(struct ev_loop *loop, ev_signal *w, int revents)
{
	struct shell *sh = w->data;

	if (sh->stopping)
		return;
	ash_log(ASH_LOG_NOTICE, "event=stopping signal=%d", w->signum);
	sh->stopping = true;
	ev_timer_start(loop, &sh->stop_timer);
	sds_stop(sh->sds, on_stopped, sh);
}

static void remembered(void *arg, const char *path)
{
	sds_scan_add(arg, path);
}

static void start_watchers(struct shell *sh)
{
	struct ev_loop *loop = ash_reactor_loop(sh->reactor);
	const char *pattern;

	sh->scan = sds_scan_new(sh->reactor, on_found, sh);
	for (size_t i = 0; (pattern = ash_conf_nth(&sh->opts.conf, "devices", i)); i++)
		sds_scan_add(sh->scan, pattern);
	sds_paths_each(sh->opts.state_dir, remembered, sh->scan);
	ev_signal_init(&sh->term, on_signal, SIGTERM);
	ev_signal_init(&sh->intr, on_signal, SIGINT);
	ev_timer_init(&sh->scan_timer, on_scan, 0, SCAN_S);
	ev_timer_init(&sh->stop_timer, on_stop_late, STOP_S, 0);
	sh->term.data = sh->intr.data = sh->scan_timer.data = sh->stop_timer.data = sh;
	ev_signal_start(loop, &sh->term);
	ev_signal_start(loop, &sh->intr);
	ev_timer_start(loop, &sh->scan_timer);
}

/* Identity and locks, before anything can be seen from outside. */
static struct ash_error prepare(struct shell *sh)
{
	const struct sds_options *o = &sh->opts;
	struct ash_error err;
	char name[96];
	int fd; /* locks live as long as the process */

	err = sds_identity_open(o->state_dir, sh->cfg.uuid);
	if (!ash_failed(&err))
		err = sds_lock_file(o->state_dir, "lock", "--state-dir", LOCK_WAIT_MS, &fd);
	snprintf(name, sizeof(name), "ashlar-sds%s%s.pid", o->name ? "-" : "",
		 o->name ? o->name : "");
	if (!ash_failed(&err))
		err = sds_lock_file(o->run_dir, name, "--run-dir", LOCK_WAIT_MS, &fd);
	if (!ash_failed(&err))
		err = sds_boot_id(sh->cfg.boot_id);
	if (!ash_failed(&err) && getrandom(sh->cfg.session, 16, 0) != 16)
		err = ash_error_make(ASH_E_INTERNAL, "the kernel gives no random bits");
	return err;
}

static int open_outside(struct shell *sh, struct ash_error *ret_err)
{
	struct ash_reactor_opts ro = {.buffer_bytes = 64u << 20, .spin_us = 50};
	struct ash_mgmt_opts mo = {.mdms = sh->opts.mdms, .role = "sds"};
	uint16_t port = 0;

	sh->reactor = ash_reactor_new(&ro, ret_err);
	if (!sh->reactor)
		return -1;
	memcpy(mo.uuid, sh->cfg.uuid, 16);
	memcpy(mo.session, sh->cfg.session, 16);
	snprintf(mo.name, sizeof(mo.name), "%s", sh->opts.name ? sh->opts.name : "");
	sh->mgmt = ash_mgmt_new(ash_reactor_loop(sh->reactor), &mo, ret_err);
	if (!sh->mgmt || ash_reactor_listen(sh->reactor, &sh->opts.listen, &port, ret_err))
		return -1;
	sh->cfg.endpoint = sh->opts.advertise;
	if (sh->cfg.endpoint.port == 0)
		sh->cfg.endpoint.port = port;
	sh->opts.listen.port = port;
	sh->cfg.heartbeat_ms = 200;
	return 0;
}

static void greet(const struct shell *sh)
{
	char at[64], as[64], uuid[ASH_UUID_TEXT];

	ash_endpoint_text(&sh->opts.listen, at, sizeof(at));
	ash_log(ASH_LOG_NOTICE, "event=started uuid=%s listen=%s advertise=%s state_dir=%s",
		ash_uuid_format(sh->cfg.uuid, uuid), at,
		ash_endpoint_text(&sh->cfg.endpoint, as, sizeof(as)), sh->opts.state_dir);
	if (!ash_endpoint_is_loopback(&sh->opts.listen))
		ash_log(ASH_LOG_WARN,
			"event=no_authentication listen=%s note=\"whoever reaches this address can "
			"read and change data: there is no authentication yet, use a network of "
			"its own\"",
			at);
}

static int run(struct shell *sh)
{
	struct sds_shell_ops ops = {.open_disk = sds_open_disk, .shell = &sh->opener};
	struct ash_error err = prepare(sh);
	struct ash_ctl *ctl;
	struct ash_net *net;

	if (ash_failed(&err) || open_outside(sh, &err))
		return complain(&err);
	sh->opener = (struct sds_opener){.r = sh->reactor, .state_dir = sh->opts.state_dir};
	ctl = ash_mgmt_ctl(sh->mgmt);
	sh->sds = sds_new(ash_reactor_port(sh->reactor), ctl, &sh->cfg, &ops);
	if (!sh->sds) {
		err = ash_error_make(ASH_E_INTERNAL, "not enough memory to start");
		return complain(&err);
	}
	ctl->events = &sds_ctl_events;
	ctl->owner = sh->sds;
	net = ash_reactor_port(sh->reactor)->net;
	net->on_accept = sds_on_accept;
	net->owner = sh->sds;
	ash_reactor_on_turn(sh->reactor, on_turn, sh);
	start_watchers(sh);
	greet(sh);
	ash_reactor_run(sh->reactor);
	/* Connections may still be closing, and a disk under examination may never answer: the
	 * reactor ends with the process. The locks of the disks do too. */
	if (sh->gave_up)
		_exit(1);
	sds_free(sh->sds);
	ash_mgmt_free(sh->mgmt);
	sds_scan_free(sh->scan);
	ash_log(ASH_LOG_NOTICE, "event=ended");
	return 0;
}

int main(int argc, char **argv)
{
	struct ash_error err = sds_options_read(argc, argv, &shell.opts);
	int rv;

	ash_log_init("ashlar-sds");
	signal(SIGPIPE, SIG_IGN);
	if (ash_failed(&err)) {
		rv = complain(&err);
	} else if (shell.opts.help) {
		fputs(sds_options_help, stdout);
		rv = 0;
	} else if (shell.opts.version) {
		puts("ashlar-sds " ASHLAR_VERSION);
		rv = 0;
	} else {
		rv = run(&shell);
	}
	sds_options_done(&shell.opts);
	return rv;
}
