// SPDX-License-Identifier: MIT
/* The MDM: what is true, told to the client in answers and pushes. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/list.h"
#include "tests/unit/sdc/fake_int.h"

static const uint8_t system_uuid[16] = {1, 2, 3, 4};

struct full_map {
	Pb__Map map;
	Pb__System system;
	Pb__Pool pool, *pools[1];
	Pb__Sds sds[FAKE_SDSS], *sdss[FAKE_SDSS];
	Pb__Endpoint ep[FAKE_SDSS], *eps[FAKE_SDSS][1];
	Pb__Device dev[FAKE_SDSS], *devs[FAKE_SDSS];
	Pb__Volume vol, *vols[1];
	Pb__Mapping mapping, *mappings[1];
	Pb__Row row[FAKE_PGS], *rows[FAKE_PGS];
	Pb__Replica rep[FAKE_PGS][2], *reps[FAKE_PGS][2];
	uint8_t ip[FAKE_SDSS][16];
};

int fake_second(const struct fake *f, uint32_t pg)
{
	int p = f->row[pg].primary;

	return p < 0 ? (int)(pg + 1) % FAKE_SDSS : (p + 1) % FAKE_SDSS;
}

static void map_sds(struct fake *f, struct full_map *m, int i)
{
	pb__sds__init(&m->sds[i]);
	pb__endpoint__init(&m->ep[i]);
	m->ip[i][15] = (uint8_t)i;
	m->ep[i].ip = (ProtobufCBinaryData){16, m->ip[i]};
	m->ep[i].port = 7072;
	m->eps[i][0] = &m->ep[i];
	m->sds[i].id = SDS0 + (uint64_t)i;
	m->sds[i].endpoints = m->eps[i];
	m->sds[i].n_endpoints = 1;
	m->sds[i].version = f->version;
	m->sdss[i] = &m->sds[i];
	pb__device__init(&m->dev[i]);
	m->dev[i].id = DEV0 + (uint64_t)i;
	m->dev[i].sds = SDS0 + (uint64_t)i;
	m->dev[i].pool = POOL;
	m->dev[i].write_back = f->write_back[i];
	m->dev[i].version = f->version;
	m->devs[i] = &m->dev[i];
}

static void map_row(struct fake *f, struct full_map *m, uint32_t pg)
{
	int primary = f->row[pg].primary;

	pb__row__init(&m->row[pg]);
	m->row[pg].pool = POOL;
	m->row[pg].pg = pg;
	m->row[pg].gen = f->row[pg].gen;
	m->row[pg].primary = primary >= 0;
	m->row[pg].replicas = m->reps[pg];
	m->row[pg].n_replicas = 2;
	for (int r = 0; r < 2; r++) {
		int sds =
			r == 0 ? (primary < 0 ? (int)pg % FAKE_SDSS : primary) : fake_second(f, pg);

		pb__replica__init(&m->rep[pg][r]);
		m->rep[pg][r].device = DEV0 + (uint64_t)sds;
		m->rep[pg][r].state = primary < 0 ? PB__REPLICA_STATE__REPLICA_ABSENT
						  : PB__REPLICA_STATE__REPLICA_IN_SYNC;
		m->reps[pg][r] = &m->rep[pg][r];
	}
	m->rows[pg] = &m->row[pg];
}

static void build_map(struct fake *f, struct full_map *m)
{
	memset(m, 0, sizeof(*m));
	pb__map__init(&m->map);
	m->map.version = f->version;
	m->map.place_version = f->version;
	pb__system__init(&m->system);
	m->system.uuid = (ProtobufCBinaryData){16, (uint8_t *)system_uuid};
	m->system.version = 1;
	m->map.system = &m->system;
	pb__pool__init(&m->pool);
	m->pool.id = POOL;
	m->pool.pg_count = FAKE_PGS;
	m->pool.pg_shift = 4;
	m->pool.version = 1;
	m->pools[0] = &m->pool;
	for (int i = 0; i < FAKE_SDSS; i++)
		map_sds(f, m, i);
	for (uint32_t pg = 0; pg < FAKE_PGS; pg++)
		map_row(f, m, pg);
	pb__volume__init(&m->vol);
	m->vol.id = VOLUME;
	m->vol.node = NODE;
	m->vol.pool = POOL;
	m->vol.size = f->size;
	m->vol.name = (char *)"v1";
	m->vol.version = f->version;
	m->vols[0] = &m->vol;
	pb__mapping__init(&m->mapping);
	m->mapping.id = MAPPING;
	m->mapping.volume = VOLUME;
	m->mapping.node = NODE;
	m->mapping.sdc = FAKE_SDC_ID;
	m->mapping.epoch = f->epoch;
	m->mapping.shared = f->shared;
	m->mapping.read_only = f->read_only;
	m->mapping.iops_limit = f->iops_limit;
	m->mapping.bw_limit = f->bw_limit;
	m->mapping.version = f->version;
	m->mappings[0] = &m->mapping;
	m->map.pools = m->pools;
	m->map.n_pools = 1;
	m->map.sdss = m->sdss;
	m->map.n_sdss = FAKE_SDSS;
	m->map.devices = m->devs;
	m->map.n_devices = FAKE_SDSS;
	m->map.rows = m->rows;
	m->map.n_rows = FAKE_PGS;
	m->map.volumes = m->vols;
	m->map.n_volumes = f->mapped;
	m->map.mappings = m->mappings;
	m->map.n_mappings = f->mapped;
}

static void push_event(struct fake *f, struct fake_event *e)
{
	struct full_map m;
	Pb__Push push = PB__PUSH__INIT;

	if (!f->sdc || !f->ctl_up)
		return;
	build_map(f, &m);
	push.p_case = PB__PUSH__P_MAP;
	push.map = &m.map;
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

static void answer(struct fake_event *e, Pb__Reply *reply, int code, const char *message)
{
	Pb__Error err = PB__ERROR__INIT;

	err.code = code;
	err.message = (char *)message;
	if (code)
		reply->error = &err;
	e->done(e->arg, 0, reply);
}

static void ctl_event(struct fake *f, struct fake_event *e)
{
	Pb__Reply reply = PB__REPLY__INIT;
	Pb__SdcRegisterReply reg = PB__SDC_REGISTER_REPLY__INIT;
	Pb__OpenVolumeReply open = PB__OPEN_VOLUME_REPLY__INIT;
	struct full_map m;

	if (!f->ctl_up) {
		e->done(e->arg, -ECONNRESET, NULL);
	} else if (e->req->r_case == PB__REQUEST__R_SDC_REGISTER) {
		reg.sdc = FAKE_SDC_ID;
		reply.r_case = PB__REPLY__R_SDC_REGISTER;
		reply.sdc_register = &reg;
		answer(e, &reply, f->refuse_register ? 2 : 0, "no SDC has this GUID");
		if (!f->refuse_register)
			fake_event_new(f, f->latency_ns, 0, push_event);
	} else if (e->req->r_case == PB__REQUEST__R_OPEN_VOLUME) {
		bool known = e->req->open_volume->volume_id == VOLUME ||
			     strcmp(e->req->open_volume->volume, "v1") == 0;

		open.volume = VOLUME;
		open.node = NODE;
		open.size = f->size;
		reply.r_case = PB__REPLY__R_OPEN_VOLUME;
		reply.open_volume = &open;
		if (known && f->mapped) {
			f->opens++;
			fake_commit(f, true);
			f->epoch = open.epoch = f->version;
		}
		answer(e, &reply, known ? (f->mapped ? 0 : 10) : 2,
		       known ? "volume \"v1\" is not mapped" : "no such volume");
	} else if (e->req->r_case == PB__REQUEST__R_GET_MAP) {
		build_map(f, &m);
		reply.r_case = PB__REPLY__R_MAP;
		reply.map = &m.map;
		answer(e, &reply, 0, NULL);
	} else {
		assert(false);
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
