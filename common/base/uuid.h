/* SPDX-License-Identifier: MIT */
/* UUIDs as 16 bytes and as text. Pure but for ash_uuid_from_random's argument; any thread. */
#ifndef ASHLAR_COMMON_BASE_UUID_H
#define ASHLAR_COMMON_BASE_UUID_H

#include <stdbool.h>
#include <stdint.h>

#define ASH_UUID_TEXT 37

/* Version 4 out of 128 random bits. */
void ash_uuid_from_random(uint64_t a, uint64_t b, uint8_t ret_uuid[16]);
/* "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"; returns buf. */
const char *ash_uuid_format(const uint8_t uuid[16], char buf[ASH_UUID_TEXT]);
/* Return: 0 or -EINVAL. */
int ash_uuid_parse(const char *text, uint8_t ret_uuid[16]);
bool ash_uuid_is_zero(const uint8_t uuid[16]);
static inline bool ash_uuid_equal(const uint8_t a[16], const uint8_t b[16])
{
	return __builtin_memcmp(a, b, 16) == 0;
}

#endif
