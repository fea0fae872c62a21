/* SPDX-License-Identifier: MIT */
/* crc32c (Castagnoli, init ~0, final xor ~0) through ISA-L. Pure; any thread. */
#ifndef ASHLAR_COMMON_BASE_CRC_H
#define ASHLAR_COMMON_BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

#include "common/shared/crc32c.h" /* ash_crc32c() */

/* crc32c of 4096 zero bytes. */
uint32_t ash_crc32c_zero_block(void);

/**
 * ash_crc32c_pieces() - one checksum for every piece of a byte range cut at 4 KiB borders.
 * @offset: of the first byte, only offset % 4096 matters. @ret_crc: room for ash_pieces() values.
 */
void ash_crc32c_pieces(const uint8_t *data, uint64_t offset, uint32_t bytes, uint32_t *ret_crc);
/* Index of the first piece that does not match, or -1. */
int ash_crc32c_check(const uint8_t *data, uint64_t offset, uint32_t bytes, const uint32_t *crc);

#endif
