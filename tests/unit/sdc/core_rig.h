/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the data client's core begin with: a fake world, a client in it that has the
 * volume open, and memory for its I/O. Includes what a cmocka program needs.
 */
#ifndef ASHLAR_TESTS_UNIT_SDC_CORE_RIG_H
#define ASHLAR_TESTS_UNIT_SDC_CORE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/sdc/fake.h"

#define LONG (600 * FAKE_SEC)
#define RIG_BYTES (4u << 20)

/* New for each test. A test that closes the volume sets vol to NULL. */
extern struct fake f;
extern struct sdc_vol *vol;
extern uint8_t a[RIG_BYTES]; /* random */
extern uint8_t b[RIG_BYTES]; /* all 0xee */

int rig_setup(void **state);
/* Also: no two overlapping writes were ever on their way at once. */
int rig_teardown(void **state);
#define RIG_TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

/* The next @count requests of @op (0 = any) get @act. */
void set_hook(int count, uint8_t op, enum fake_act act);

/* Each waits for its end; return its status. */
int wr(uint64_t off, void *data, uint64_t n);
int rd(uint64_t off, void *data, uint64_t n);
int flush_all(void);

struct sdc_stats stats(void);

#endif
