/* SPDX-License-Identifier: MIT */
/* A map taken from a fuzzed message must hold together, whatever the message said. */
#ifndef ASHLAR_TESTS_FUZZ_MAPCHECK_H
#define ASHLAR_TESTS_FUZZ_MAPCHECK_H

#include "common/map/map.h"

/* Looks everything up in every way; aborts when two ways disagree. */
void fuzz_map_check(struct ash_map *map);
/* Memory that the pools of a message would take, in PGs; targets skip what is too big for them. */
uint64_t fuzz_map_pgs(const Pb__Map *pb);
#define FUZZ_PGS_MAX 200000u

/*
 * Does the message, packed again, still decode? The library accepts field number 0 if it is encoded
 * in an unusual way, keeps it as an unknown field, and then packs what it refuses to decode. Log
 * entries are such packed messages, so that nothing of the kind is ever applied.
 */
bool fuzz_pb_repacks(const ProtobufCMessage *m);

/* A small valid map: pool 5 of 16 PGs, devices 20 and 21 on SDS 10. */
struct ash_map *fuzz_map_small(void);

#endif
