/* SPDX-License-Identifier: MIT */
/*
 * A toy system on real sockets, on a thread of its own: one MDM that knows volume "v1", one SDS
 * that keeps it in memory. It can be made unreliable.
 */
#ifndef ASHLAR_TESTS_UNIT_SDC_TOY_H
#define ASHLAR_TESTS_UNIT_SDC_TOY_H

#include <stdbool.h>
#include <stdint.h>

#define TOY_GUID "3f2504e0-4f89-41d3-9a0c-0305e82c3301"

struct toy;

/* @mdms: filled with "127.0.0.1:port" for clients. */
struct toy *toy_new(uint64_t bytes, char mdms[32]);
/* Of 10 000 requests: connection broken, RETRY, answered with damaged data, never answered. */
void toy_trouble(struct toy *toy, unsigned breaks, unsigned retries, unsigned rots, unsigned lost);
/* The volume's bytes, to look at while nothing is in flight. */
uint8_t *toy_store(struct toy *toy);
void toy_free(struct toy *toy);

#endif
