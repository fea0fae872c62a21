// SPDX-License-Identifier: MIT
#include "tests/unit/sdc/one_volume.h"

#include <assert.h>
#include <string.h>

/* ------------------------------------------------------------ MDM */

void one_map_init(struct one_map *m, const uint8_t system[16], uint64_t version)
{
	memset(m, 0, sizeof(*m));
	pb__map__init(&m->map);
	m->map.version = version;
	pb__system__init(&m->system);
	m->system.uuid = (ProtobufCBinaryData){16, (uint8_t *)system};
	m->system.version = 1;
	m->map.system = &m->system;
	pb__pool__init(&m->pool);
	m->pool.id = ONE_POOL;
	m->pool.pg_count = ONE_PGS;
	m->pool.pg_shift = ONE_PG_SHIFT;
	m->pool.version = 1;
	m->pools[0] = &m->pool;
	m->map.pools = m->pools;
	m->map.n_pools = 1;
	m->map.sdss = m->sdss;
	m->map.devices = m->devs;
	m->map.rows = m->rows;
	m->map.volumes = m->vols;
	m->map.mappings = m->mappings;
}

void one_map_add_sds(struct one_map *m, const uint8_t ip[16], uint16_t port, uint64_t version)
{
	size_t i = m->map.n_sdss++;

	assert(i < ONE_SDSS);
	memcpy(m->ip[i], ip, 16);
	pb__endpoint__init(&m->ep[i]);
	m->ep[i].ip = (ProtobufCBinaryData){16, m->ip[i]};
	m->ep[i].port = port;
	m->eps[i][0] = &m->ep[i];
	pb__sds__init(&m->sds[i]);
	m->sds[i].id = ONE_SDS + i;
	m->sds[i].endpoints = m->eps[i];
	m->sds[i].n_endpoints = 1;
	m->sds[i].version = version;
	m->sdss[i] = &m->sds[i];
	pb__device__init(&m->dev[i]);
	m->dev[i].id = ONE_DEV + i;
	m->dev[i].sds = ONE_SDS + i;
	m->dev[i].pool = ONE_POOL;
	m->dev[i].version = version;
	m->devs[i] = &m->dev[i];
	m->map.n_devices++;
}

void one_map_add_row(struct one_map *m, uint64_t gen, const int *sds, unsigned copies, bool led)
{
	size_t pg = m->map.n_rows++;

	assert(pg < ONE_PGS && copies <= ONE_COPIES);
	pb__row__init(&m->row[pg]);
	m->row[pg].pool = ONE_POOL;
	m->row[pg].pg = (uint32_t)pg;
	m->row[pg].gen = gen;
	m->row[pg].primary = led;
	m->row[pg].replicas = m->reps[pg];
	m->row[pg].n_replicas = copies;
	for (unsigned r = 0; r < copies; r++) {
		pb__replica__init(&m->rep[pg][r]);
		m->rep[pg][r].device = ONE_DEV + (uint64_t)sds[r];
		m->rep[pg][r].state = led ? PB__REPLICA_STATE__REPLICA_IN_SYNC
					  : PB__REPLICA_STATE__REPLICA_ABSENT;
		m->reps[pg][r] = &m->rep[pg][r];
	}
	m->rows[pg] = &m->row[pg];
}

void one_map_add_volume(struct one_map *m, uint64_t size, uint64_t version)
{
	pb__volume__init(&m->vol);
	m->vol.id = ONE_VOLUME;
	m->vol.node = ONE_NODE;
	m->vol.pool = ONE_POOL;
	m->vol.size = size;
	m->vol.name = (char *)"v1";
	m->vol.version = version;
	m->vols[0] = &m->vol;
	m->map.n_volumes = 1;
}

void one_map_add_mapping(struct one_map *m, uint64_t epoch, uint64_t version)
{
	pb__mapping__init(&m->mapping);
	m->mapping.id = ONE_MAPPING;
	m->mapping.volume = ONE_VOLUME;
	m->mapping.node = ONE_NODE;
	m->mapping.sdc = ONE_SDC;
	m->mapping.epoch = epoch;
	m->mapping.version = version;
	m->mappings[0] = &m->mapping;
	m->map.n_mappings = 1;
}

void one_reply_init(struct one_reply *r)
{
	pb__reply__init(&r->reply);
	pb__sdc_register_reply__init(&r->reg);
	pb__open_volume_reply__init(&r->open);
	pb__error__init(&r->err);
}

void one_reply_registered(struct one_reply *r)
{
	r->reg.sdc = ONE_SDC;
	r->reply.r_case = PB__REPLY__R_SDC_REGISTER;
	r->reply.sdc_register = &r->reg;
}

void one_reply_opened(struct one_reply *r, uint64_t size, uint64_t epoch)
{
	r->open.volume = ONE_VOLUME;
	r->open.node = ONE_NODE;
	r->open.size = size;
	r->open.epoch = epoch;
	r->reply.r_case = PB__REPLY__R_OPEN_VOLUME;
	r->reply.open_volume = &r->open;
}

void one_reply_map(struct one_reply *r, struct one_map *m)
{
	r->reply.r_case = PB__REPLY__R_MAP;
	r->reply.map = &m->map;
}

void one_reply_refused(struct one_reply *r, int code, const char *message)
{
	r->err.code = code;
	r->err.message = (char *)message;
	r->reply.error = &r->err;
}

void one_push_init(Pb__Push *push, struct one_map *m)
{
	pb__push__init(push);
	push->p_case = PB__PUSH__P_MAP;
	push->map = &m->map;
}

/* ------------------------------------------------------------ SDS */

void one_hello(const struct ash_hdr *h, const void *data, size_t bytes, uint64_t sds,
	       uint64_t *session, uint16_t *path, struct ash_wire_hello *ret_answer)
{
	struct ash_hello hello;

	assert(h->op == ASH_OP_HELLO && h->tag == 0);
	assert(ash_hello_decode(data, bytes, &hello) == 0);
	assert(hello.sender == ONE_SDC && hello.sender_kind == ASH_SENDER_SDC);
	if (*session != hello.session) {
		*session = hello.session;
		*path = 0;
	}
	assert(hello.path > *path); /* raised at each connection */
	*path = hello.path;
	hello.sender = sds;
	hello.sender_kind = ASH_SENDER_SDS;
	ash_hello_encode(&hello, ret_answer);
}

struct ash_hdr one_answer(const struct ash_hdr *req, uint16_t status, uint64_t place_version,
			  uint32_t bytes)
{
	struct ash_hdr h = *req;

	h.flags |= ASH_F_REPLY;
	h.status = status;
	h.place_version = place_version;
	/* A READ's answer tells the range, from which its pieces follow. */
	if (h.op != ASH_OP_READ || status != ASH_ST_OK)
		h.length = bytes;
	return h;
}

bool one_changes(const struct ash_hdr *h)
{
	return h->op == ASH_OP_WRITE || h->op == ASH_OP_DISCARD || h->op == ASH_OP_WRITE_ZEROES;
}

void one_change(uint8_t *store, uint8_t *states, const struct ash_hdr *h, const void *data)
{
	uint64_t end = h->offset + h->length;

	assert(one_changes(h));
	if (h->op == ASH_OP_WRITE) {
		memcpy(store + h->offset, data, h->length);
		for (uint64_t b = h->offset / ASH_BLOCK_BYTES; b * ASH_BLOCK_BYTES < end; b++)
			states[b] = ASH_BLK_DATA;
		return;
	}
	memset(store + h->offset, 0, h->length);
	/* A block of which only a part was zeroed stays what it was. */
	for (uint64_t b = (h->offset + ASH_BLOCK_BYTES - 1) / ASH_BLOCK_BYTES;
	     (b + 1) * ASH_BLOCK_BYTES <= end; b++)
		states[b] = ASH_BLK_ZERO;
}

const uint8_t *one_answer_data(const uint8_t *store, const uint8_t *states, const struct ash_hdr *h,
			       uint32_t *ret_bytes)
{
	*ret_bytes = 0;
	if (h->op == ASH_OP_READ) {
		*ret_bytes = h->length;
		return store + h->offset;
	}
	if (h->op == ASH_OP_STATUS) {
		*ret_bytes = ash_pieces(h->offset, h->length);
		return states + h->offset / ASH_BLOCK_BYTES;
	}
	return NULL;
}
