/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * crc32c (Castagnoli, init ~0, final xor ~0) of the environment: common/base/crc.c in user space,
 * the kernel's own in the module. Pure; any thread.
 */
#ifndef ASHLAR_COMMON_SHARED_CRC32C_H
#define ASHLAR_COMMON_SHARED_CRC32C_H

#ifdef __KERNEL__
#include <linux/crc32c.h>
#include <linux/types.h>
static inline u32 ash_crc32c(const void *data, size_t bytes)
{
	return ~crc32c(~0u, data, bytes);
}
#else
#include <stddef.h>
#include <stdint.h>
uint32_t ash_crc32c(const void *data, size_t bytes);
#endif

#endif
