// SPDX-License-Identifier: MIT
#include "common/base/uuid.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

void ash_uuid_from_random(uint64_t a, uint64_t b, uint8_t ret_uuid[16])
{
	memcpy(ret_uuid, &a, 8);
	memcpy(ret_uuid + 8, &b, 8);
	ret_uuid[6] = (ret_uuid[6] & 0x0f) | 0x40;
	ret_uuid[8] = (ret_uuid[8] & 0x3f) | 0x80;
}

static bool dash_after(int byte)
{
	return byte == 3 || byte == 5 || byte == 7 || byte == 9;
}

const char *ash_uuid_format(const uint8_t uuid[16], char buf[ASH_UUID_TEXT])
{
	static const char hex[] = "0123456789abcdef";
	char *p = buf;

	for (int i = 0; i < 16; i++) {
		*p++ = hex[uuid[i] >> 4];
		*p++ = hex[uuid[i] & 15];
		if (dash_after(i))
			*p++ = '-';
	}
	*p = '\0';
	return buf;
}

static int nibble(char c)
{
	if (isdigit((unsigned char)c))
		return c - '0';
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int ash_uuid_parse(const char *text, uint8_t ret_uuid[16])
{
	uint8_t out[16];

	for (int i = 0; i < 16; i++) {
		int hi = nibble(text[0]), lo = hi < 0 ? -1 : nibble(text[1]);

		if (lo < 0)
			return -EINVAL;
		out[i] = (uint8_t)(hi << 4 | lo);
		text += 2;
		if (dash_after(i) && *text++ != '-')
			return -EINVAL;
	}
	if (*text != '\0')
		return -EINVAL;
	memcpy(ret_uuid, out, 16);
	return 0;
}

bool ash_uuid_is_zero(const uint8_t uuid[16])
{
	static const uint8_t zero[16];

	return memcmp(uuid, zero, 16) == 0;
}
