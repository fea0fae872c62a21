/* SPDX-License-Identifier: MIT */
/*
 * What the fake world and the toy system have in common: ids, the messages of an MDM that knows
 * one volume, "v1", mapped to one SDC, and what an SDS does with a HELLO and with bytes.
 */
#ifndef ASHLAR_TESTS_UNIT_SDC_ONE_VOLUME_H
#define ASHLAR_TESTS_UNIT_SDC_ONE_VOLUME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/shared/wire_codec.h"
#include "proto/mgmt/ashlar.pb-c.h"

/* SDS and device number i have the ids ONE_SDS + i and ONE_DEV + i. */
enum {
	ONE_POOL = 5,
	ONE_SDS = 10,
	ONE_DEV = 20,
	ONE_VOLUME = 40,
	ONE_NODE = 60,
	ONE_MAPPING = 80,
	ONE_SDC = 100,
};
#define ONE_SDSS 3 /* at most */
#define ONE_COPIES 2
#define ONE_PGS 16
#define ONE_PG_SHIFT 4

/* ------------------------------------------------------------ MDM */

/* A map message and all that it points to. What the callers see otherwise they set in it. */
struct one_map {
	Pb__Map map;
	Pb__System system;
	Pb__Pool pool, *pools[1];
	Pb__Sds sds[ONE_SDSS], *sdss[ONE_SDSS];
	Pb__Endpoint ep[ONE_SDSS], *eps[ONE_SDSS][1];
	uint8_t ip[ONE_SDSS][16];
	Pb__Device dev[ONE_SDSS], *devs[ONE_SDSS];
	Pb__Volume vol, *vols[1];
	Pb__Mapping mapping, *mappings[1];
	Pb__Row row[ONE_PGS], *rows[ONE_PGS];
	Pb__Replica rep[ONE_PGS][ONE_COPIES], *reps[ONE_PGS][ONE_COPIES];
};

/* The system and the pool, nothing else. */
void one_map_init(struct one_map *m, const uint8_t system[16], uint64_t version);
/* The next SDS, with one endpoint and one device. */
void one_map_add_sds(struct one_map *m, const uint8_t ip[16], uint16_t port, uint64_t version);
/* The next PG, on these SDSs: in sync under the first one, or nobody leads and all are absent. */
void one_map_add_row(struct one_map *m, uint64_t gen, const int *sds, unsigned copies, bool led);
void one_map_add_volume(struct one_map *m, uint64_t size, uint64_t version);
void one_map_add_mapping(struct one_map *m, uint64_t epoch, uint64_t version);

/* An answer and all that it points to; begin with one_reply_init(). */
struct one_reply {
	Pb__Reply reply;
	Pb__SdcRegisterReply reg;
	Pb__OpenVolumeReply open;
	Pb__Error err;
};

void one_reply_init(struct one_reply *r);
void one_reply_registered(struct one_reply *r);
void one_reply_opened(struct one_reply *r, uint64_t size, uint64_t epoch);
void one_reply_map(struct one_reply *r, struct one_map *m);
void one_reply_refused(struct one_reply *r, int code, const char *message);

void one_push_init(Pb__Push *push, struct one_map *m);

/* ------------------------------------------------------------ SDS */

/*
 * Takes the SDC's HELLO and makes the answer of SDS @sds. @session, @path: what this SDS remembers
 * of the SDC; a connection of the same session must come with a higher path than all before.
 */
void one_hello(const struct ash_hdr *h, const void *data, size_t bytes, uint64_t sds,
	       uint64_t *session, uint16_t *path, struct ash_wire_hello *ret_answer);

/* The header of the answer to @req, which carries @bytes. */
struct ash_hdr one_answer(const struct ash_hdr *req, uint16_t status, uint64_t place_version,
			  uint32_t bytes);

/* Does the request change anything in the volume? */
bool one_changes(const struct ash_hdr *h);
/* @states: per block, enum ash_block_state. @data: a WRITE's. */
void one_change(uint8_t *store, uint8_t *states, const struct ash_hdr *h, const void *data);
/* What the answer to a request that succeeds carries; NULL: nothing. */
const uint8_t *one_answer_data(const uint8_t *store, const uint8_t *states, const struct ash_hdr *h,
			       uint32_t *ret_bytes);

#endif
