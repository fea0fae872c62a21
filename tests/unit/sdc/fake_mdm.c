// SPDX-License-Identifier: MIT
/* The MDM: what is true, told to the client in answers and pushes. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/list.h"
#include "tests/unit/sdc/fake_int.h"

static const uint8_t system_uuid[16] = {1, 2, 3, 4};

int fake_copy(const struct fake *f, uint32_t pg, int r)
{
	int first = f->row[pg].primary < 0 ? (int)pg : f->row[pg].primary;

	return (first + r) % FAKE_SDSS;
}

static void build_map(struct fake *f, struct one_map *m)
{
	one_map_init(m, system_uuid, f->version);
	m->map.place_version = f->version;
	for (int i = 0; i < FAKE_SDSS; i++) {
		uint8_t ip[16] = {[15] = (uint8_t)i};

		one_map_add_sds(m, ip, FAKE_PORT, f->version);
		m->dev[i].write_back = f->write_back[i];
	}
	for (uint32_t pg = 0; pg < FAKE_PGS; pg++) {
		int sds[2] = {fake_copy(f, pg, 0), fake_copy(f, pg, 1)};

		one_map_add_row(m, f->row[pg].gen, sds, 2, f->row[pg].primary >= 0);
	}
	if (!f->mapped)
		return;
	one_map_add_volume(m, f->size, f->version);
	one_map_add_mapping(m, f->epoch, f->version);
	m->mapping.shared = f->shared;
	m->mapping.read_only = f->read_only;
	m->mapping.iops_limit = f->iops_limit;
	m->mapping.bw_limit = f->bw_limit;
}

static void push_event(struct fake *f, struct fake_event *e)
{
	struct one_map m;
	Pb__Push push;

	if (!f->sdc || !f->ctl_up)
		return;
	build_map(f, &m);
	one_push_init(&push, &m);
	f->ctl.events->on_push(f->ctl.owner, &push);
}

void fake_commit(struct fake *f, bool push)
{
	f->version++;
	if (push)
		fake_event_new(f, f->latency_ns, 0, push_event);
}

void fake_move(struct fake *f, uint32_t pg, int primary, bool push)
{
	fake_commit(f, push);
	f->row[pg] = (struct fake_row){f->version, primary};
}

static void answer_open(struct fake *f, const Pb__OpenVolume *req, struct one_reply *r)
{
	if (req->volume_id != ONE_VOLUME && strcmp(req->volume, "v1") != 0) {
		one_reply_refused(r, ASH_E_NOT_FOUND, "no such volume");
	} else if (!f->mapped) {
		one_reply_refused(r, ASH_E_DENIED, "volume \"v1\" is not mapped");
	} else {
		f->opens++;
		fake_commit(f, true);
		f->epoch = f->version;
		one_reply_opened(r, f->size, f->epoch);
	}
}

static void answer(struct fake *f, const Pb__Request *req, struct one_reply *r, struct one_map *m)
{
	one_reply_init(r);
	if (req->r_case == PB__REQUEST__R_SDC_REGISTER) {
		if (f->refuse_register)
			one_reply_refused(r, ASH_E_NOT_FOUND, "no SDC has this GUID");
		else
			one_reply_registered(r);
	} else if (req->r_case == PB__REQUEST__R_OPEN_VOLUME) {
		answer_open(f, req->open_volume, r);
	} else {
		assert(req->r_case == PB__REQUEST__R_GET_MAP);
		build_map(f, m);
		one_reply_map(r, m);
	}
}

static void ctl_event(struct fake *f, struct fake_event *e)
{
	struct one_reply r;
	struct one_map m;

	if (f->ctl_up) {
		answer(f, e->req, &r, &m);
		e->done(e->arg, 0, &r.reply);
		if (e->req->r_case == PB__REQUEST__R_SDC_REGISTER && !f->refuse_register)
			fake_event_new(f, f->latency_ns, 0, push_event);
	} else {
		e->done(e->arg, -ECONNRESET, NULL);
	}
	pb__request__free_unpacked(e->req, NULL);
}

static void ctl_call(struct ash_ctl *ctl, const Pb__Request *req, uint32_t timeout_ms,
		     void (*done)(void *arg, int result, const Pb__Reply *reply), void *arg)
{
	struct fake *f = ash_container_of(ctl, struct fake, ctl);
	size_t n = pb__request__get_packed_size(req);
	uint8_t *packed = malloc(n + 1);
	struct fake_event *e;

	f->ctl_calls++;
	pb__request__pack(req, packed);
	e = fake_event_new(f, f->ctl_up ? 2 * f->latency_ns : timeout_ms * FAKE_MS, 0, ctl_event);
	e->req = pb__request__unpack(NULL, n, packed);
	e->done = done;
	e->arg = arg;
	free(packed);
}
const struct ash_ctl_ops fake_ctl_ops = {.call = ctl_call};

void fake_ctl_set(struct fake *f, bool up)
{
	f->ctl_up = up;
	f->ctl.events->on_session(f->ctl.owner, up);
}
