// SPDX-License-Identifier: MIT
#include "common/base/hash.h"

#include <xxhash.h>

uint64_t ash_hash64(const void *data, size_t bytes)
{
	return XXH3_64bits(data, bytes);
}
