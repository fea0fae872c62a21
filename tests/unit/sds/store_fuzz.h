/* SPDX-License-Identifier: MIT */
/*
 * Entry points for fuzzing what the store reads from a disk. Any bytes may come; none may crash,
 * hang or trip an assertion. Build with FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION, so that checksums
 * are not compared and the code behind them is reached.
 */
#ifndef ASHLAR_TESTS_UNIT_SDS_STORE_FUZZ_H
#define ASHLAR_TESTS_UNIT_SDS_STORE_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int store_fuzz_label(const uint8_t *data, size_t bytes);
/* A journal block with all its records. */
int store_fuzz_journal(const uint8_t *data, size_t bytes);
/* Extent entries and a checksum page. */
int store_fuzz_table(const uint8_t *data, size_t bytes);
/* Opens a device on which the input lies over table and journal, uses it a little, closes it. */
int store_fuzz_open(const uint8_t *data, size_t bytes);

#endif
