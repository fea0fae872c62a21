// SPDX-License-Identifier: MIT
#include "common/base/crc.h"

#include <isa-l/crc.h>

#define BLOCK 4096u

uint32_t ash_crc32c(const void *data, size_t bytes)
{
	/* ISA-L takes an int length and a non-const pointer, and does no final xor. */
	const uint8_t *p = data;
	uint32_t crc = 0xffffffffu;

	while (bytes > 0) {
		size_t step = bytes < (1u << 30) ? bytes : (1u << 30);

		crc = crc32_iscsi((unsigned char *)(uintptr_t)p, (int)step, crc);
		p += step;
		bytes -= step;
	}
	return crc ^ 0xffffffffu;
}

uint32_t ash_crc32c_zero_block(void)
{
	static const uint8_t zeros[BLOCK];
	static uint32_t crc;

	if (__atomic_load_n(&crc, __ATOMIC_RELAXED) == 0) /* racing threads store the same value */
		__atomic_store_n(&crc, ash_crc32c(zeros, BLOCK), __ATOMIC_RELAXED);
	return __atomic_load_n(&crc, __ATOMIC_RELAXED);
}

static uint32_t piece_bytes(uint64_t offset, uint32_t left)
{
	uint32_t room = BLOCK - (uint32_t)(offset % BLOCK);

	return left < room ? left : room;
}

void ash_crc32c_pieces(const uint8_t *data, uint64_t offset, uint32_t bytes, uint32_t *ret_crc)
{
	while (bytes > 0) {
		uint32_t n = piece_bytes(offset, bytes);

		*ret_crc++ = ash_crc32c(data, n);
		data += n;
		offset += n;
		bytes -= n;
	}
}

int ash_crc32c_check(const uint8_t *data, uint64_t offset, uint32_t bytes, const uint32_t *crc)
{
	for (int i = 0; bytes > 0; i++) {
		uint32_t n = piece_bytes(offset, bytes);

		if (ash_crc32c(data, n) != crc[i])
			return i;
		data += n;
		offset += n;
		bytes -= n;
	}
	return -1;
}
