// SPDX-License-Identifier: MIT
#include "mdm/shell/shell.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#include "common/base/clean.h"
#include "common/base/log.h"
#include "common/base/size.h"
#include "common/io/reactor.h"
#include "mdm/shell/shell_int.h"

#define DISK_S 1.0
#define HAND_ON_S 1.5

/* ------------------------------------------------------------ the port */

static uint64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static uint64_t now_ns(struct mdm_port *port)
{
	return clock_ns(CLOCK_BOOTTIME);
}

static uint64_t unix_ms(struct mdm_port *port)
{
	return clock_ns(CLOCK_REALTIME) / 1000000;
}

static uint64_t rand64(struct mdm_port *port)
{
	return ash_prng_next(&((struct mdm_shell *)port->shell)->rng);
}

static void trace(struct mdm_port *port, int level, const char *line)
{
	ash_log(level, "%s", line);
}

static struct shell_peer *peer_of(struct mdm_session *s)
{
	return mdm_session_shell(s);
}

static void reply(struct mdm_port *port, struct mdm_session *s, const Pb__Reply *r)
{
	ash_ctl_peer_reply(peer_of(s)->peer, r);
}

static void push(struct mdm_port *port, struct mdm_session *s, const Pb__Push *p)
{
	ash_ctl_peer_push(peer_of(s)->peer, p);
}

static void close_session(struct mdm_port *port, struct mdm_session *s)
{
	if (!peer_of(s)->closing)
		ash_ctl_peer_close(peer_of(s)->peer);
	peer_of(s)->closing = true;
}

struct proposed {
	struct mdm_shell *sh;
	void (*done)(void *arg, int result, const struct mdm_result *res);
	void *arg;
};

static void on_proposed(void *arg, int result)
{
	struct proposed *p = arg;

	/* The service is gone: nobody waits any more. */
	if (p->sh->svc)
		p->done(p->arg, result, result ? NULL : &p->sh->last);
	free(p);
}

static void propose(struct mdm_port *port, const uint8_t *cmd, size_t bytes,
		    void (*done)(void *arg, int result, const struct mdm_result *res), void *arg)
{
	struct mdm_shell *sh = port->shell;
	struct proposed *p = ash_xcalloc(1, sizeof(*p));

	p->sh = sh;
	p->done = done;
	p->arg = arg;
	mdm_raft_propose(sh->raft, cmd, bytes, on_proposed, p);
}

/* ------------------------------------------------------------ the log's events */

/* From its first entry on, the log has to be there. */
static void note_log(struct mdm_shell *sh)
{
	struct ash_error err;

	if (sh->who.has_log || !sh->who.id)
		return;
	sh->who.has_log = true;
	err = mdm_identity_save(&sh->who, sh->state_dir);
	if (ash_failed(&err))
		ash_log(ASH_LOG_WARN, "event=identity_not_saved why=\"%s\"", err.message);
}

static void on_apply(void *arg, const uint8_t *data, size_t bytes, uint64_t index)
{
	struct mdm_shell *sh = arg;
	Pb__Command *cmd = bytes ? pb__command__unpack(NULL, bytes, data) : NULL;

	note_log(sh);
	mdm_result_done(&sh->last);
	memset(&sh->last, 0, sizeof(sh->last));
	if (!cmd) {
		/* Every member sees the same bytes and does the same: nothing. */
		sh->last.err = ash_error_make(ASH_E_INTERNAL, "entry %llu of the log is no command",
					      (unsigned long long)index);
		ash_log(ASH_LOG_ERROR, "event=bad_entry index=%llu", (unsigned long long)index);
		return;
	}
	mdm_apply(sh->st, cmd, index, &sh->last);
	if (sh->svc)
		mdm_service_applied(sh->svc, cmd, &sh->last);
	pb__command__free_unpacked(cmd, NULL);
}

static uint8_t *on_snapshot(void *arg, size_t *ret_bytes)
{
	return mdm_snapshot(((struct mdm_shell *)arg)->st, ret_bytes);
}

static int on_restore(void *arg, const uint8_t *data, size_t bytes)
{
	struct mdm_shell *sh = arg;
	struct ash_error err;
	struct mdm_state *st = mdm_restore(data, bytes, &err);

	if (!st) {
		ash_log(ASH_LOG_ERROR, "event=bad_snapshot why=\"%s\"", err.message);
		return -EINVAL;
	}
	note_log(sh);
	if (sh->svc)
		mdm_service_set_state(sh->svc, st);
	mdm_state_free(sh->st);
	sh->st = st;
	return 0;
}

static void on_created(void *arg, int result)
{
	struct mdm_shell *sh = arg;

	sh->creating = false;
	ash_log(result ? ASH_LOG_WARN : ASH_LOG_NOTICE, "event=system_created result=%d why=\"%s\"",
		result, result ? "" : sh->last.err.message);
}

/* The first leader of a new system writes down that it exists. */
static void create_system(struct mdm_shell *sh)
{
	Pb__CmdSystemCreate c = PB__CMD_SYSTEM_CREATE__INIT;
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__MdmMember m[MDM_FIRST_MEMBERS], *list[MDM_FIRST_MEMBERS];
	uint8_t *data;
	size_t bytes;

	c.uuid = (ProtobufCBinaryData){16, sh->who.system};
	c.name = sh->who.system_name;
	c.n_mdms = sh->who.members;
	c.mdms = list;
	for (size_t i = 0; i < c.n_mdms; i++) {
		struct mdm_first_member *f = &sh->who.member[i];

		pb__mdm_member__init(&m[i]);
		m[i].id = f->id;
		m[i].name = f->name;
		m[i].role =
			f->tie_breaker ? PB__MDM_ROLE__MDM_TIE_BREAKER : PB__MDM_ROLE__MDM_MANAGER;
		m[i].client_address = f->client;
		m[i].raft_address = f->raft;
		list[i] = &m[i];
	}
	cmd.unix_ms = unix_ms(&sh->port);
	cmd.c_case = PB__COMMAND__C_SYSTEM_CREATE;
	cmd.system_create = &c;
	bytes = pb__command__get_packed_size(&cmd);
	data = ash_xcalloc(1, bytes);
	pb__command__pack(&cmd, data);
	sh->creating = true;
	mdm_raft_propose(sh->raft, data, bytes, on_created, sh);
	free(data);
}

static void on_role(void *arg, bool leads, uint64_t leader)
{
	struct mdm_shell *sh = arg;

	if (sh->leads != leads || sh->leader != leader)
		ash_log(ASH_LOG_NOTICE, "event=role leads=%d leader=%llu", leads,
			(unsigned long long)leader);
	sh->leads = leads;
	sh->leader = leader;
	mdm_service_role(sh->svc, leads, leader ? shell_member_address(sh, leader) : NULL);
	if (leads && !sh->st->system && sh->who.members && !sh->creating && !sh->tie_breaker)
		create_system(sh);
}

static void on_fatal(void *arg, const char *why)
{
	struct mdm_shell *sh = arg;

	ash_log(ASH_LOG_ERROR, "event=log_failed why=\"%s\" note=\"this MDM ends, another leads\"",
		why);
	sh->failed = true;
	ev_break(sh->loop, EVBREAK_ALL);
}

static const struct mdm_raft_events raft_events = {.apply = on_apply,
						   .snapshot = on_snapshot,
						   .restore = on_restore,
						   .role = on_role,
						   .fatal = on_fatal};

/* ------------------------------------------------------------ disk */

static void on_disk_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct mdm_shell *sh = w->data;
	uint64_t have = sh->raft ? mdm_disk_free(sh->log_dir) : UINT64_MAX;
	char text[32], need[32];

	if (have >= MDM_RAFT_LOW_BYTES)
		return;
	ash_log(ASH_LOG_ERROR,
		"event=disk_full dir=%s have=\"%s\" need=\"%s\" note=\"this MDM ends before its log "
		"meets the full disk; free space, then start it again\"",
		sh->log_dir, ash_size_format(have, text, sizeof(text)),
		ash_size_format(MDM_RAFT_LOW_BYTES, need, sizeof(need)));
	sh->failed = true;
	mdm_shell_stop(sh);
}

/* An empty log where there was one: what was promised to the others would be forgotten, and an MDM
 * alone would begin an empty system of the same name. */
static struct ash_error check_log(struct mdm_shell *sh)
{
	if (!sh->who.has_log || mdm_log_is_there(sh->log_dir))
		return ash_error_ok();
	return ash_error_make(
		ASH_E_STATE,
		"the log in %s is gone; restore it as it was when this MDM ended, or "
		"take this MDM out of the system, empty its state directory, add it again",
		sh->log_dir);
}

static struct ash_error check_disk(struct mdm_shell *sh)
{
	uint64_t have = mdm_disk_free(sh->log_dir);
	char text[32], need[32];

	if (have >= MDM_RAFT_START_BYTES)
		return ash_error_ok();
	return ash_error_make(ASH_E_CAPACITY,
			      "%s has %s free; the log needs %s to start (three segments of 8 MiB "
			      "and as much for a snapshot); free some, or give another --state-dir",
			      sh->log_dir, ash_size_format(have, text, sizeof(text)),
			      ash_size_format(MDM_RAFT_START_BYTES, need, sizeof(need)));
}

/* ------------------------------------------------------------ belonging to a system */

struct ash_error shell_start_log(struct mdm_shell *sh)
{
	struct mdm_raft_member boot[MDM_FIRST_MEMBERS];
	struct ash_error err;

	sh->tie_breaker = sh->opts.tie_breaker;
	err = check_log(sh);
	if (ash_failed(&err))
		return err;
	if (mkdir(sh->log_dir, 0750) && errno != EEXIST)
		return ash_error_make(ASH_E_STATE, "cannot create %s: %s", sh->log_dir,
				      strerror(errno));
	err = check_disk(sh);
	if (ash_failed(&err))
		return err;
	for (size_t i = 0; i < sh->who.members; i++) {
		boot[i].id = sh->who.member[i].id;
		boot[i].address = sh->who.member[i].raft;
	}
	sh->svc = mdm_service_new(&sh->port, sh->st, sh->who.id, sh->tie_breaker);
	sh->raft = mdm_raft_new(sh->loop, sh->log_dir, sh->who.id, sh->raft_text, boot,
				sh->who.members, &raft_events, sh, &err);
	if (!sh->raft) {
		mdm_service_free(sh->svc);
		sh->svc = NULL;
		return err;
	}
	return ash_error_ok();
}

/* ------------------------------------------------------------ clients */

static void *on_open(void *arg, struct ash_ctl_peer *peer)
{
	struct mdm_shell *sh = arg;
	struct shell_peer *p = ash_xcalloc(1, sizeof(*p));

	p->sh = sh;
	p->peer = peer;
	if (sh->svc)
		p->session = mdm_session_new(sh->svc, p);
	ash_list_push_back(&sh->peers, &p->node);
	return p;
}

static void on_request(void *arg, struct ash_ctl_peer *peer, const Pb__Request *req)
{
	struct mdm_shell *sh = arg;
	struct shell_peer *p = ash_ctl_peer_owner(peer);

	if (p->closing)
		return;
	if (!sh->svc) {
		shell_unjoined_request(sh, p, req);
	} else if (!p->session) {
		p->closing = true;
		ash_ctl_peer_close(peer);
	} else if (!shell_create_again(sh, p, req)) {
		mdm_service_request(sh->svc, p->session, req);
	}
}

static void on_close(void *arg, struct ash_ctl_peer *peer)
{
	struct shell_peer *p = ash_ctl_peer_owner(peer);

	ash_list_remove(&p->node);
	mdm_session_free(p->session);
	free(p);
}

static const struct ash_ctl_server_events server_events = {on_open, on_request, on_close};

/* ------------------------------------------------------------ timers of the core */

static void run_timers(struct mdm_shell *sh)
{
	ash_timers_run(&sh->timers, now_ns(&sh->port));
}

static void on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	run_timers(w->data);
}

static void on_prepare(struct ev_loop *loop, ev_prepare *w, int revents)
{
	struct mdm_shell *sh = w->data;
	uint64_t now = now_ns(&sh->port), next = ash_timers_next(&sh->timers);

	ev_timer_stop(loop, &sh->timer);
	if (next == ASH_TIME_NEVER)
		return;
	ev_now_update(loop);
	ev_timer_set(&sh->timer, next > now ? (double)(next - now) / 1e9 : 0., 0.);
	ev_timer_start(loop, &sh->timer);
}

/* ------------------------------------------------------------ life */

static void init(struct mdm_shell *sh, struct ev_loop *loop, const struct mdm_shell_opts *opts)
{
	uint64_t seed = clock_ns(CLOCK_REALTIME);

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		ash_log(ASH_LOG_WARN, "event=no_entropy");
	sh->loop = loop;
	sh->opts = *opts;
	snprintf(sh->name, sizeof(sh->name), "%s", opts->name);
	snprintf(sh->state_dir, sizeof(sh->state_dir), "%s", opts->state_dir);
	snprintf(sh->log_dir, sizeof(sh->log_dir), "%s/raft", sh->state_dir);
	ash_endpoint_text(&opts->raft, sh->raft_text, sizeof(sh->raft_text));
	ash_endpoint_text(&opts->listen, sh->listen_text, sizeof(sh->listen_text));
	ash_prng_seed(&sh->rng, seed);
	ash_timers_init(&sh->timers);
	ash_list_init(&sh->peers);
	sh->who.lock_fd = -1;
	sh->st = mdm_state_new();
	sh->port = (struct mdm_port){.timers = &sh->timers,
				     .shell = sh,
				     .now_ns = now_ns,
				     .unix_ms = unix_ms,
				     .rand64 = rand64,
				     .trace = trace,
				     .propose = propose,
				     .reply = reply,
				     .push = push,
				     .close = close_session,
				     .members = shell_members,
				     .member_status = shell_member_status};
	ev_timer_init(&sh->timer, on_timer, 0., 0.);
	ev_timer_init(&sh->disk, on_disk_timer, DISK_S, DISK_S);
	ev_timer_init(&sh->term, NULL, 0., 0.);
	ev_prepare_init(&sh->prepare, on_prepare);
	/* After the log's, whose callbacks set timers of the core. */
	ev_set_priority(&sh->prepare, EV_MINPRI);
	sh->timer.data = sh->disk.data = sh->prepare.data = sh->term.data = sh;
}

static struct ash_error start(struct mdm_shell *sh)
{
	struct ash_error err = mdm_identity_open(&sh->who, sh->state_dir);

	if (ash_failed(&err))
		return err;
	for (size_t i = 0; i < sh->who.members; i++)
		if (sh->who.member[i].id == sh->who.id &&
		    strcmp(sh->who.member[i].raft, sh->raft_text))
			return ash_error_make(
				ASH_E_INVALID,
				"this MDM is known to the others as %s; start it with "
				"--raft %s, not %s",
				sh->who.member[i].raft, sh->who.member[i].raft, sh->raft_text);
	sh->srv = ash_ctl_server_new(sh->loop, &sh->opts.listen, &server_events, sh, &err);
	if (!sh->srv)
		return err;
	return sh->who.id ? shell_start_log(sh) : ash_error_ok();
}

struct mdm_shell *mdm_shell_new(struct ev_loop *loop, const struct mdm_shell_opts *opts,
				struct ash_error *ret_err)
{
	struct mdm_shell *sh = ash_xcalloc(1, sizeof(*sh));

	init(sh, loop, opts);
	*ret_err = start(sh);
	if (ash_failed(ret_err)) {
		mdm_shell_free(sh);
		return NULL;
	}
	ev_prepare_start(loop, &sh->prepare);
	ev_timer_start(loop, &sh->disk);
	return sh;
}

void mdm_shell_free(struct mdm_shell *sh)
{
	struct mdm_service *svc = sh->svc;

	if (sh->srv)
		ash_ctl_server_free(sh->srv);
	sh->svc = NULL;
	mdm_service_free(svc);
	mdm_raft_free(sh->raft);
	ev_timer_stop(sh->loop, &sh->timer);
	ev_timer_stop(sh->loop, &sh->disk);
	ev_timer_stop(sh->loop, &sh->term);
	ev_prepare_stop(sh->loop, &sh->prepare);
	mdm_result_done(&sh->last);
	mdm_state_free(sh->st);
	ash_timers_done(&sh->timers);
	if (sh->who.lock_fd >= 0)
		close(sh->who.lock_fd);
	free(sh);
}

static void on_handed(void *arg, const struct ash_error *err)
{
	struct mdm_shell *sh = arg;

	ev_break(sh->loop, EVBREAK_ALL);
}

static void on_term(struct ev_loop *loop, ev_timer *w, int revents)
{
	ev_break(loop, EVBREAK_ALL);
}

void mdm_shell_stop(struct mdm_shell *sh)
{
	uint64_t to = sh->leads && !sh->stopping ? shell_successor(sh) : 0;

	sh->stopping = true;
	if (!to) {
		ev_break(sh->loop, EVBREAK_ALL);
		return;
	}
	ev_set_cb(&sh->term, on_term);
	ev_timer_set(&sh->term, HAND_ON_S, 0.);
	ev_timer_start(sh->loop, &sh->term);
	mdm_raft_transfer(sh->raft, to, on_handed, sh);
}

bool mdm_shell_failed(const struct mdm_shell *sh)
{
	return sh->failed;
}
