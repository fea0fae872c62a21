/* SPDX-License-Identifier: MIT */
/* 64-bit hashes (xxh3) for comparing blocks during a resync. Pure; any thread. */
#ifndef ASHLAR_COMMON_BASE_HASH_H
#define ASHLAR_COMMON_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t ash_hash64(const void *data, size_t bytes);

#endif
