// SPDX-License-Identifier: MIT
/* libFuzzer's hook: the target's own mutations, among those that libFuzzer makes of bytes. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/pbmutate.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
	struct ash_prng rng;
	size_t done;

	ash_prng_seed(&rng, seed);
	if (ash_prng_below(&rng, 5) == 0)
		return LLVMFuzzerMutate(data, size, max);
	done = fuzz_mutate(&fuzz_format, data, size, max, &rng);
	return done ? done : LLVMFuzzerMutate(data, size, max);
}
