/* SPDX-License-Identifier: MIT */
/* Commands for tests, and a small system made of them. */
#ifndef ASHLAR_TESTS_UNIT_MDM_CMD_H
#define ASHLAR_TESTS_UNIT_MDM_CMD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mdm/core/state.h"

/* COMMAND(cmd, c, PoolAdd, POOL_ADD, CMD_POOL_ADD, pool_add): a command with its body c. */
#define COMMAND(cmd, body, Type, CASE, INIT, field)                                                \
	Pb__Command cmd = PB__COMMAND__INIT;                                                       \
	Pb__Cmd##Type body = PB__##INIT##__INIT;                                                   \
	cmd.c_case = PB__COMMAND__C_##CASE;                                                        \
	cmd.field = &body

struct cluster {
	struct mdm_state *st;
	uint64_t index;
	struct mdm_result res; /* of the last command */
	uint64_t domain, pool;
	uint64_t sds[64], dev[64]; /* one device per SDS in make_cluster() */
	unsigned sdss;
	/* Called with each command before it is applied; may be NULL. */
	void (*log)(void *arg, const Pb__Command *cmd);
	void *log_arg;
};

/* Applies; the code of the answer. */
int run(struct cluster *c, const Pb__Command *cmd);
uint64_t must(struct cluster *c, const Pb__Command *cmd); /* id, and the test fails on refusal */

void uuid_of(uint64_t n, uint8_t out[16]);
void new_system(struct cluster *c);
uint64_t add_domain(struct cluster *c, const char *name);
uint64_t add_fault_set(struct cluster *c, const char *name, uint64_t domain);
uint64_t add_pool(struct cluster *c, const char *name, uint64_t domain, uint32_t pgs);
uint64_t add_sds(struct cluster *c, const char *name, uint64_t domain, uint64_t fault_set,
		 uint64_t uuid);
int register_sds(struct cluster *c, uint64_t uuid, uint64_t session);
int sds_down(struct cluster *c, uint64_t sds, uint64_t session);
uint64_t add_device(struct cluster *c, uint64_t sds, uint64_t pool, uint64_t uuid);
int open_device(struct cluster *c, uint64_t dev, uint64_t incarnation, uint64_t nonce,
		uint64_t capacity);
int fail_device(struct cluster *c, uint64_t dev, uint64_t incarnation);
int add_volume(struct cluster *c, const char *name, uint64_t pool, uint64_t size, bool thin);
int add_sdc(struct cluster *c, const char *name, uint64_t guid);
int map_volume(struct cluster *c, uint64_t volume, uint64_t sdc, bool shared);
int open_volume(struct cluster *c, uint64_t volume, uint64_t sdc);
int unmap_volume(struct cluster *c, uint64_t volume, uint64_t sdc, bool force);
int remove_object(struct cluster *c, Pb__Kind kind, uint64_t id, bool force);

/* One PG change; true if it was applied. @why of the answer is kept in c->res. */
bool change_pg(struct cluster *c, Pb__PgAction action, uint32_t pg, uint64_t device);
/* The same with everything given. */
bool change_pg_as(struct cluster *c, const Pb__PgChange *change);
bool place_pg(struct cluster *c, uint32_t pg, uint64_t primary, uint64_t secondary);
struct mdm_row *row_of(struct cluster *c, uint32_t pg);

/* @sdss fault units with one device each of @mib MiB, pool of 16 PGs, placed in turn. */
void make_cluster(struct cluster *c, unsigned sdss, uint64_t mib);
void free_cluster(struct cluster *c);

/* Every invariant of the state; fails the test. */
void check_state(const struct mdm_state *st);

#endif
