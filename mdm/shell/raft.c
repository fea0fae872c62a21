// SPDX-License-Identifier: MIT
#include "mdm/shell/raft.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/base/log.h"
#include "mdm/shell/raft_int.h"

#define ELECTION_MS 300
#define HEARTBEAT_MS 100
#define CONNECT_RETRY_MS 200
#define SNAPSHOT_AFTER 8192
#define SNAPSHOT_TRAILING 4096
#define CATCH_UP_ROUNDS 20
#define CATCH_UP_ROUND_MS 5000

/* Before each command in the log. Entries must have a multiple of 8 bytes: libraft writes others to
 * its segments too, but cannot read those back. */
struct entry_head {
	uint32_t version, bytes; /* little-endian; of the command behind it, without its padding */
};
#define ENTRY_VERSION 1

struct proposal {
	struct ash_list node;
	struct mdm_raft *r;
	struct raft_apply req;
	uint8_t *data;
	size_t bytes;
	void (*done)(void *arg, int result);
	void *arg;
};

static void die(struct mdm_raft *r, const char *what, const char *why)
{
	if (r->dead)
		return;
	r->dead = true;
	snprintf(r->why, sizeof(r->why), "%s: %s", what, why);
	r->events->fatal(r->arg, r->why);
}

/* ------------------------------------------------------------ state machine */

static int fsm_apply(struct raft_fsm *fsm, const struct raft_buffer *buf, void **result)
{
	struct mdm_raft *r = fsm->data;

	const struct entry_head *h = buf->base;
	size_t bytes = 0;

	*result = NULL;
	if (buf->len >= sizeof(*h) && le32toh(h->version) == ENTRY_VERSION &&
	    le32toh(h->bytes) <= buf->len - sizeof(*h))
		bytes = le32toh(h->bytes);
	/* last_applied is raised by libraft after this returns. What has no good head goes on as an
	 * empty entry: every member then does the same with it. */
	r->events->apply(r->arg, (const uint8_t *)(h + 1), bytes, r->raft.last_applied + 1);
	return 0;
}

static int fsm_snapshot(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n)
{
	struct mdm_raft *r = fsm->data;
	size_t bytes;
	uint8_t *data = r->events->snapshot(r->arg, &bytes);

	*bufs = raft_malloc(sizeof(**bufs));
	if (!*bufs || !data) {
		raft_free(*bufs);
		free(data);
		return RAFT_NOMEM;
	}
	/* libraft's heap is malloc's as long as nobody sets another: it frees this. */
	(*bufs)[0] = (struct raft_buffer){.base = data, .len = bytes};
	*n = 1;
	return 0;
}

static int fsm_restore(struct raft_fsm *fsm, struct raft_buffer *buf)
{
	struct mdm_raft *r = fsm->data;

	if (r->events->restore(r->arg, buf->base, buf->len))
		return RAFT_MALFORMED;
	raft_free(buf->base);
	return 0;
}

/* ------------------------------------------------------------ proposals */

static void end_proposal(struct proposal *p, int result)
{
	ash_list_remove(&p->node);
	p->done(p->arg, result);
	free(p->data);
	free(p);
}

static void on_apply(struct raft_apply *req, int status, void *result)
{
	struct proposal *p = req->data;
	struct mdm_raft *r = p->r;

	if (status && status != RAFT_LEADERSHIPLOST && status != RAFT_NOTLEADER &&
	    status != RAFT_SHUTDOWN)
		die(r, "the log refused an entry", raft_strerror(status));
	end_proposal(p, status ? -EIO : 0);
}

void mdm_raft_propose(struct mdm_raft *r, const uint8_t *data, size_t bytes,
		      void (*done)(void *arg, int result), void *arg)
{
	struct proposal *p = ash_xcalloc(1, sizeof(*p));

	p->r = r;
	p->data = ash_xcalloc(1, bytes + 1);
	memcpy(p->data, data, bytes);
	p->bytes = bytes;
	p->done = done;
	p->arg = arg;
	p->req.data = p;
	ash_list_push_back(&r->queue, &p->node);
	raft_loop_soon(r);
}

static void send_proposal(struct mdm_raft *r, struct proposal *p)
{
	struct entry_head head = {htole32(ENTRY_VERSION), htole32((uint32_t)p->bytes)};
	struct raft_buffer buf;
	int rv;

	buf.len = sizeof(head) + ((p->bytes + 7) & ~(size_t)7);
	buf.base = raft_calloc(1, buf.len);
	if (!buf.base) {
		end_proposal(p, -ENOTSUP);
		return;
	}
	memcpy(buf.base, &head, sizeof(head));
	memcpy((uint8_t *)buf.base + sizeof(head), p->data, p->bytes);
	ash_list_push_back(&r->flying, &p->node);
	rv = r->dead ? RAFT_SHUTDOWN : raft_apply(&r->raft, &p->req, &buf, 1, on_apply);
	if (rv == 0)
		return;
	raft_free(buf.base);
	if (rv != RAFT_NOTLEADER && rv != RAFT_SHUTDOWN)
		die(r, "the log took no entry", raft_strerror(rv));
	end_proposal(p, -ENOTSUP);
}

/* Always from the loop, never from inside one of libraft's callbacks: while it drains a failed
 * leader's queue it still says that it leads, and an entry taken then brings it down. */
static void send_queued(struct mdm_raft *r)
{
	struct ash_list mine, *n;

	ash_list_init(&mine);
	while ((n = ash_list_pop(&r->queue)))
		ash_list_push_back(&mine, n);
	while ((n = ash_list_pop(&mine)))
		send_proposal(r, ash_container_of(n, struct proposal, node));
}

/* ------------------------------------------------------------ who leads */

static void on_barrier(struct raft_barrier *req, int status)
{
	struct mdm_raft *r = req->data;

	r->barrier_flying = false;
	r->barrier_passed = status == 0 && r->raft.current_term == r->barrier_term;
	if (status && status != RAFT_LEADERSHIPLOST && status != RAFT_NOTLEADER &&
	    status != RAFT_SHUTDOWN)
		die(r, "the log refused a barrier", raft_strerror(status));
}

static void want_barrier(struct mdm_raft *r)
{
	if (r->barrier_flying || (r->barrier_passed && r->barrier_term == r->raft.current_term))
		return;
	r->barrier_passed = false;
	r->barrier_term = r->raft.current_term;
	r->barrier.data = r;
	r->barrier_flying = raft_barrier(&r->raft, &r->barrier, on_barrier) == 0;
}

bool mdm_raft_leads(const struct mdm_raft *r)
{
	return r->started && !r->dead && r->raft.state == RAFT_LEADER && r->barrier_passed &&
	       r->barrier_term == r->raft.current_term;
}

uint64_t mdm_raft_leader(const struct mdm_raft *r)
{
	const char *address;
	raft_id id = 0;

	if (!r->started)
		return 0;
	raft_leader((struct raft *)&r->raft, &id, &address);
	return id;
}

uint64_t mdm_raft_applied(const struct mdm_raft *r)
{
	return r->raft.last_applied;
}

static void tell_role(struct mdm_raft *r)
{
	bool leads = mdm_raft_leads(r);
	uint64_t leader = leads ? r->raft.id : mdm_raft_leader(r);

	/* Elected, but behind the barrier: nobody may be sent here yet. */
	if (!leads && leader == r->raft.id)
		leader = 0;
	if (r->told && r->told_leads == leads && r->told_leader == leader)
		return;
	r->told = true;
	r->told_leads = leads;
	r->told_leader = leader;
	r->events->role(r->arg, leads, leader);
}

static void end_transfer(struct mdm_raft *r);

void raft_turn(struct mdm_raft *r)
{
	if (!r->started || r->closing)
		return;
	if (raft_state(&r->raft) == RAFT_UNAVAILABLE)
		die(r, "the log has failed", raft_errmsg(&r->raft));
	else if (r->raft.state == RAFT_LEADER && !r->transfer_op.running)
		want_barrier(r);
	send_queued(r);
	end_transfer(r);
	tell_role(r);
}

bool mdm_raft_peer(const struct mdm_raft *r, uint64_t id, struct mdm_raft_peer *ret_peer)
{
	const struct raft *raft = &r->raft;

	if (!r->started || raft->state != RAFT_LEADER || !raft->leader_state.progress)
		return false;
	for (unsigned i = 0; i < raft->configuration.n; i++) {
		if (raft->configuration.servers[i].id != id)
			continue;
		ret_peer->voter = raft->configuration.servers[i].role == RAFT_VOTER;
		ret_peer->recent = id == raft->id || raft->leader_state.progress[i].recent_recv;
		ret_peer->match = id == raft->id ? raft->last_stored
						 : raft->leader_state.progress[i].match_index;
		return true;
	}
	return false;
}

/* ------------------------------------------------------------ membership */

static void end_op(struct raft_change_op *op, const struct ash_error *err)
{
	op->running = false;
	op->done(op->arg, err);
}

static struct ash_error change_failed(int rv)
{
	if (rv == RAFT_NOTLEADER || rv == RAFT_LEADERSHIPLOST || rv == RAFT_SHUTDOWN)
		return ash_error_make(ASH_E_NOT_LEADER,
				      "this MDM no longer leads; look at 'ashlar mdm list', then "
				      "repeat");
	return ash_error_make(ASH_E_STATE, "the MDM cluster refuses the change: %s",
			      raft_strerror(rv));
}

static void on_change(struct raft_change *req, int status)
{
	struct mdm_raft *r = req->data;
	struct raft_change_op *op = &r->change_op;
	struct ash_error err = status ? change_failed(status) : ash_error_ok();
	int rv;

	if (!status && op->promote) {
		op->promote = false;
		rv = raft_assign(&r->raft, &r->change, op->id, RAFT_VOTER, on_change);
		if (!rv)
			return;
		err = change_failed(rv);
	}
	end_op(op, &err);
}

/* False, with done called, if another change is under way. */
static bool begin_op(struct mdm_raft *r, struct raft_change_op *op, uint64_t id, mdm_raft_done done,
		     void *arg)
{
	struct ash_error err;

	if (op->running) {
		err = ash_error_make(ASH_E_STATE, "another change of the MDM cluster is under way; "
						  "repeat it in a moment");
		done(arg, &err);
		return false;
	}
	*op = (struct raft_change_op){.r = r, .running = true, .id = id, .done = done, .arg = arg};
	r->change.data = r;
	return true;
}

void mdm_raft_add(struct mdm_raft *r, uint64_t id, const char *address, mdm_raft_done done,
		  void *arg)
{
	struct ash_error err;
	int rv;

	if (!begin_op(r, &r->change_op, id, done, arg))
		return;
	r->change_op.promote = true;
	rv = raft_add(&r->raft, &r->change, id, address, on_change);
	if (rv) {
		err = change_failed(rv);
		end_op(&r->change_op, &err);
	}
}

void mdm_raft_remove(struct mdm_raft *r, uint64_t id, mdm_raft_done done, void *arg)
{
	struct ash_error err;
	int rv;

	if (!begin_op(r, &r->change_op, id, done, arg))
		return;
	rv = raft_remove(&r->raft, &r->change, id, on_change);
	if (rv) {
		err = change_failed(rv);
		end_op(&r->change_op, &err);
	}
}

static void on_transfer(struct raft_transfer *req)
{
	/* Called while the old role still stands: judged in the next turn. */
	((struct mdm_raft *)req->data)->transfer_ended = true;
}

static void end_transfer(struct mdm_raft *r)
{
	struct ash_error err = ash_error_ok();

	if (!r->transfer_ended)
		return;
	r->transfer_ended = false;
	if (r->raft.state == RAFT_LEADER)
		err = ash_error_make(ASH_E_STATE,
				     "the other MDM did not take over in time; this one leads on");
	end_op(&r->transfer_op, &err);
}

void mdm_raft_transfer(struct mdm_raft *r, uint64_t id, mdm_raft_done done, void *arg)
{
	struct ash_error err;
	int rv;

	if (!begin_op(r, &r->transfer_op, id, done, arg))
		return;
	r->transfer.data = r;
	rv = raft_transfer(&r->raft, &r->transfer, id, on_transfer);
	if (rv) {
		err = change_failed(rv);
		end_op(&r->transfer_op, &err);
	}
}

/* ------------------------------------------------------------ life */

static int bootstrap(struct mdm_raft *r, const struct mdm_raft_member *boot, size_t boots)
{
	struct raft_configuration conf;
	int rv = 0;

	if (!boots)
		return 0;
	raft_configuration_init(&conf);
	for (size_t i = 0; i < boots && !rv; i++)
		rv = raft_configuration_add(&conf, boot[i].id, boot[i].address, RAFT_VOTER);
	if (!rv)
		rv = raft_bootstrap(&r->raft, &conf);
	raft_configuration_close(&conf);
	return rv == RAFT_CANTBOOTSTRAP ? 0 : rv; /* it has a log already */
}

static void tune(struct mdm_raft *r)
{
	/* By default libraft sets a damaged segment aside and starts with a shorter log, although
	 * it has promised the entries in it to the leader: acknowledged changes would be lost. */
	raft_uv_set_auto_recovery(&r->io, false);
	raft_uv_set_segment_size(&r->io, MDM_RAFT_SEGMENT_BYTES);
	raft_uv_set_connect_retry_delay(&r->io, CONNECT_RETRY_MS);
	raft_set_election_timeout(&r->raft, ELECTION_MS);
	raft_set_heartbeat_timeout(&r->raft, HEARTBEAT_MS);
	raft_set_snapshot_threshold(&r->raft, SNAPSHOT_AFTER);
	raft_set_snapshot_trailing(&r->raft, SNAPSHOT_TRAILING);
	raft_set_max_catch_up_rounds(&r->raft, CATCH_UP_ROUNDS);
	raft_set_max_catch_up_round_duration(&r->raft, CATCH_UP_ROUND_MS);
	raft_set_pre_vote(&r->raft, true);
}

static void on_closed(struct raft *raft)
{
	((struct mdm_raft *)raft->data)->closed = true;
}

static int open_log(struct mdm_raft *r, const char *dir, uint64_t id, const char *address,
		    const struct mdm_raft_member *boot, size_t boots, struct ash_error *ret_err)
{
	int rv = raft_uv_tcp_init(&r->transport, &r->uv);

	if (!rv)
		rv = raft_uv_init(&r->io, &r->uv, dir, &r->transport);
	if (rv) {
		*ret_err = ash_error_make(ASH_E_INTERNAL, "log in %s: %s", dir, raft_strerror(rv));
		return rv;
	}
	rv = raft_init(&r->raft, &r->io, &r->fsm, id, address);
	if (rv) {
		*ret_err =
			ash_error_make(ASH_E_INTERNAL, "log in %s: %s", dir, raft_errmsg(&r->raft));
		return rv;
	}
	r->raft.data = r;
	tune(r);
	rv = bootstrap(r, boot, boots);
	if (!rv)
		rv = raft_start(&r->raft);
	if (rv) {
		*ret_err = ash_error_make(
			ASH_E_STATE, "log in %s, address %s: %s%s", dir, address,
			raft_errmsg(&r->raft),
			rv == RAFT_CORRUPT || rv == RAFT_MALFORMED
				? "; it is damaged: take this MDM out of the system, empty "
				  "its state directory, add it again"
				: "");
		r->closing = true;
		raft_close(&r->raft, on_closed);
	}
	return rv;
}

struct mdm_raft *mdm_raft_new(struct ev_loop *loop, const char *dir, uint64_t id,
			      const char *address, const struct mdm_raft_member *boot, size_t boots,
			      const struct mdm_raft_events *events, void *arg,
			      struct ash_error *ret_err)
{
	struct mdm_raft *r = ash_xcalloc(1, sizeof(*r));

	r->loop = loop;
	r->events = events;
	r->arg = arg;
	ash_list_init(&r->queue);
	ash_list_init(&r->flying);
	r->fsm = (struct raft_fsm){.version = 1,
				   .data = r,
				   .apply = fsm_apply,
				   .snapshot = fsm_snapshot,
				   .restore = fsm_restore};
	if (raft_loop_start(r)) {
		*ret_err = ash_error_make(ASH_E_INTERNAL, "cannot create libuv's loop");
		free(r);
		return NULL;
	}
	if (open_log(r, dir, id, address, boot, boots, ret_err)) {
		mdm_raft_free(r);
		return NULL;
	}
	r->started = true;
	return r;
}

void mdm_raft_free(struct mdm_raft *r)
{
	if (!r)
		return;
	if (r->started) {
		r->closing = true;
		raft_close(&r->raft, on_closed);
	}
	while (r->closing && !r->closed)
		uv_run(&r->uv, UV_RUN_ONCE);
	while (!ash_list_empty(&r->queue))
		end_proposal(ash_list_first(&r->queue, struct proposal, node), -EIO);
	assert(ash_list_empty(&r->flying));
	raft_loop_stop(r);
	if (r->closing) {
		raft_uv_close(&r->io);
		raft_uv_tcp_close(&r->transport);
	}
	uv_run(&r->uv, UV_RUN_NOWAIT);
	if (uv_loop_close(&r->uv))
		ash_log(ASH_LOG_WARN, "event=log_handles_left");
	free(r);
}
