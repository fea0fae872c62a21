/* SPDX-License-Identifier: MIT */
/*
 * A target takes any bytes and must neither crash, nor hang, nor accept what it then contradicts.
 * Targets run under libFuzzer (preset "fuzz") and, over the kept corpus and mutations of it, in
 * every ordinary test run (replay.c). The decoders are built with their checksum checks off.
 */
#ifndef ASHLAR_TESTS_FUZZ_FUZZ_H
#define ASHLAR_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A finding: something was accepted that cannot be right. */
#define FUZZ_CHECK(cond)                                                                           \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: violated: %s\n", __FILE__, __LINE__, #cond);       \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

#endif
