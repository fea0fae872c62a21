// SPDX-License-Identifier: MIT
/* `ashlar nbd`: the data client behind the NBD server, on one reactor. */
#include "sdc/nbd/nbd.h"

#include <assert.h>
#include <errno.h>
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clean.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "sdc/lib/client.h"
#include "sdc/nbd/server.h"

#define OPEN_MS 30000u
#define GRACE_S 25. /* for I/O that does not end */

struct volume {
	struct app *app;
	struct nbd_export exp;
	struct sdc_vol *vol;
};

struct app {
	const struct ash_nbd_opts *opts;
	struct sdc_client client;
	struct nbd_server *srv;
	struct volume *volume;
	size_t opened, to_close;
	bool stopping;
	int code;
	ev_signal term, intr;
	ev_timer grace;
};

static void fail(struct app *app, int code, const char *message)
{
	fprintf(stderr, "ashlar nbd: %s\n", message);
	if (!app->code)
		app->code = code;
}

/* ------------------------------------------------------------ backend */

static void backend_submit(void *backend, struct sdc_io *io)
{
	sdc_submit(((struct volume *)backend)->vol, io);
}

static void backend_status(void *backend, uint64_t offset, uint64_t bytes,
			   void (*done)(void *arg, int status, const struct sdc_extent *ext,
					unsigned n),
			   void *arg)
{
	sdc_block_status(((struct volume *)backend)->vol, offset, bytes, done, arg);
}

static const struct nbd_backend_ops backend = {backend_submit, backend_status};

static void on_changed(void *arg)
{
	struct volume *v = arg;
	struct sdc_vol_info info;

	sdc_vol_info(v->vol, &info);
	if (info.size_bytes != v->exp.size_bytes)
		ash_log(ASH_LOG_NOTICE,
			"event=resized volume=%s bytes=%llu note=\"clients see it when they "
			"connect again\"",
			v->exp.name, (unsigned long long)info.size_bytes);
	v->exp.size_bytes = info.size_bytes;
	v->exp.read_only = info.read_only;
}

/* ------------------------------------------------------------ the end */

static void on_closed(void *arg)
{
	struct app *app = arg;

	if (--app->to_close == 0)
		sdc_client_stop(&app->client);
}

static void close_volumes(void *arg)
{
	struct app *app = arg;

	app->to_close = 1;
	for (size_t i = 0; i < app->opts->volume_count; i++)
		if (app->volume[i].vol) {
			app->to_close++;
			sdc_close(app->volume[i].vol, on_closed, app);
		}
	on_closed(app);
}

static void on_grace(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct app *app = w->data;
	struct nbd_server_stats stats;

	nbd_server_stats(app->srv, &stats);
	ash_log(ASH_LOG_ERROR,
		"event=nbd_forced_end in_flight=%u note=\"their outcome is unknown to the clients\"",
		stats.in_flight);
	_exit(4);
}

static void stop(struct app *app)
{
	if (app->stopping)
		return;
	app->stopping = true;
	ev_timer_init(&app->grace, on_grace, GRACE_S, 0.);
	app->grace.data = app;
	ev_timer_start(ash_reactor_loop(app->client.reactor), &app->grace);
	nbd_server_stop(app->srv, close_volumes, app);
}

static void on_signal(struct ev_loop *loop, ev_signal *w, int revents)
{
	struct app *app = w->data;

	if (app->stopping && app->opened == app->opts->volume_count)
		on_grace(loop, &app->grace, 0);
	ash_log(ASH_LOG_NOTICE, "event=nbd_stop signal=%d", w->signum);
	if (app->opened < app->opts->volume_count) {
		nbd_server_stop(app->srv, NULL, NULL); /* removes the socket */
		_exit(1);			       /* still opening: nothing has been served */
	}
	stop(app);
}

/* ------------------------------------------------------------ the beginning */

static struct ash_error start_listening(struct app *app)
{
	struct ash_error err = ash_error_ok();
	struct ash_endpoint at;

	if (app->opts->socket_path)
		err = nbd_server_listen_unix(app->srv, app->opts->socket_path);
	if (ash_failed(&err) || !app->opts->listen)
		return err;
	if (ash_endpoint_parse(app->opts->listen, 10809, &at, &err))
		return err;
	if (!ash_endpoint_is_loopback(&at))
		ash_log(ASH_LOG_WARN,
			"event=nbd_open_to_network listen=%s note=\"NBD knows no authentication here: "
			"whoever reaches this address can read and write the volumes\"",
			app->opts->listen);
	return nbd_server_listen_tcp(app->srv, &at);
}

static void all_opened(struct app *app)
{
	if (app->code) {
		stop(app);
		return;
	}
	nbd_server_pause(app->srv, false);
	ash_log(ASH_LOG_NOTICE, "event=nbd_ready socket=%s listen=%s exports=%zu",
		app->opts->socket_path ? app->opts->socket_path : "-",
		app->opts->listen ? app->opts->listen : "-", app->opts->volume_count);
}

static int exit_code(int result)
{
	switch (result) {
	case 0:
		return 0;
	case -ETIMEDOUT:
		return 3;
	case -ENOMEM:
		return 4;
	default:
		return 1;
	}
}

static void on_open(void *arg, int result, struct sdc_vol *vol, const char *message)
{
	struct volume *v = arg;
	struct app *app = v->app;
	char text[600];

	app->opened++;
	if (result) {
		snprintf(text, sizeof(text), "volume \"%s\": %s", v->exp.name, strerror(-result));
		fail(app, exit_code(result), message ? message : text);
	} else {
		v->vol = vol;
		v->exp.ops = &backend;
		v->exp.backend = v;
		sdc_vol_watch(vol, on_changed, v);
		on_changed(v);
	}
	if (app->opened == app->opts->volume_count)
		all_opened(app);
}

static void on_turn(void *arg)
{
	nbd_server_flush(((struct app *)arg)->srv);
}

/* Opening a volume takes it from whoever has it open. So the addresses are taken first: one that is
 * in use is most likely that of the server that has it. */
static struct ash_error start(struct app *app)
{
	const struct ash_nbd_opts *o = app->opts;
	struct ev_loop *loop = ash_reactor_loop(app->client.reactor);
	struct ash_error err;

	app->srv = nbd_server_new(loop);
	app->client.on_turn = on_turn;
	app->client.on_turn_arg = app;
	ev_signal_init(&app->term, on_signal, SIGTERM);
	ev_signal_init(&app->intr, on_signal, SIGINT);
	app->term.data = app->intr.data = app;
	ev_signal_start(loop, &app->term);
	ev_signal_start(loop, &app->intr);
	for (size_t i = 0; i < o->volume_count; i++) {
		struct volume *v = &app->volume[i];

		v->app = app;
		snprintf(v->exp.name, sizeof(v->exp.name), "%s", o->volumes[i]);
		snprintf(v->exp.description, sizeof(v->exp.description), "Ashlar volume %s",
			 v->exp.name);
		nbd_server_add(app->srv, &v->exp);
	}
	nbd_server_pause(app->srv, true);
	err = start_listening(app);
	if (ash_failed(&err))
		return err;
	for (size_t i = 0; i < o->volume_count; i++)
		sdc_open(app->client.sdc, o->volumes[i], o->read_only,
			 o->open_timeout_ms ? o->open_timeout_ms : OPEN_MS, on_open,
			 &app->volume[i]);
	return err;
}

static const char *usage_error(const struct ash_nbd_opts *o)
{
	if (!o->volume_count)
		return "give at least one --volume NAME";
	if (!o->socket_path && !o->listen)
		return "give --socket PATH or --listen IP:PORT";
	for (size_t i = 0; i < o->volume_count; i++) {
		if (strlen(o->volumes[i]) > 63)
			return "a volume's name has at most 63 characters";
		for (size_t j = 0; j < i; j++)
			if (!strcmp(o->volumes[i], o->volumes[j]))
				return "a volume was given twice";
	}
	return NULL;
}

int ash_nbd_main(const struct ash_nbd_opts *opts)
{
	struct app app = {.opts = opts};
	struct sdc_client_opts copts = {
		.mdms = opts->mdms, .io_timeout_ms = opts->io_timeout_ms, .spin_us = opts->spin_us};
	struct ash_error err;

	if (usage_error(opts)) {
		fail(&app, 2, usage_error(opts));
		return app.code;
	}
	signal(SIGPIPE, SIG_IGN);
	err = sdc_identity_find(opts->guid, opts->sdc_name, opts->state_dir, opts->mdms, &copts.id);
	if (!ash_failed(&err))
		err = sdc_client_init(&app.client, &copts);
	if (ash_failed(&err)) {
		fail(&app, ash_code_exit(err.code), err.message);
		return app.code;
	}
	app.volume = ash_xcalloc(opts->volume_count, sizeof(*app.volume));
	err = start(&app);
	if (ash_failed(&err)) {
		fail(&app, ash_code_exit(err.code), err.message);
		nbd_server_free(
			app.srv); /* with the socket, if it is another address that failed */
		return app.code;
	}
	ash_reactor_run(app.client.reactor);
	nbd_server_free(app.srv);
	sdc_client_done(&app.client);
	free(app.volume);
	return app.code;
}
