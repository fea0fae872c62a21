// SPDX-License-Identifier: MIT
#include "common/base/size.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int unit_shift(const char *unit)
{
	static const char units[] = "KMGTP";
	const char *u;

	if (*unit == '\0' || strcasecmp(unit, "B") == 0)
		return 0;
	u = strchr(units, toupper((unsigned char)*unit));
	if (!u)
		return -1;
	if (unit[1] != '\0' && strcasecmp(unit + 1, "B") != 0 && strcasecmp(unit + 1, "iB") != 0)
		return -1;
	return 10 * (int)(u - units + 1);
}

/* Digits after the point, as a fraction of 10^digits. */
static int parse_fraction(const char **p, uint64_t *ret_num, uint64_t *ret_den)
{
	uint64_t num = 0, den = 1;

	for (; isdigit((unsigned char)**p); (*p)++) {
		if (den >= 1000000000)
			return -EINVAL;
		num = num * 10 + (uint64_t)(**p - '0');
		den *= 10;
	}
	*ret_num = num;
	*ret_den = den;
	return den == 1 ? -EINVAL : 0;
}

int ash_size_parse(const char *text, uint64_t *ret_bytes)
{
	unsigned __int128 value = 0, extra;
	uint64_t num = 0, den = 1;
	const char *p = text;
	int shift;

	if (!isdigit((unsigned char)*p))
		return -EINVAL;
	for (; isdigit((unsigned char)*p); p++) {
		value = value * 10 + (unsigned)(*p - '0');
		if (value > INT64_MAX)
			return -ERANGE;
	}
	if (*p == '.') {
		p++;
		if (parse_fraction(&p, &num, &den))
			return -EINVAL;
	}
	if (*p == ' ')
		p++;
	shift = unit_shift(p);
	if (shift < 0)
		return -EINVAL;
	extra = (unsigned __int128)num << shift;
	if (extra % den)
		return -EINVAL;
	value = (value << shift) + extra / den;
	if (value > INT64_MAX)
		return -ERANGE;
	*ret_bytes = (uint64_t)value;
	return 0;
}

const char *ash_size_format(uint64_t bytes, char *buf, size_t room)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	unsigned u = 0, tenths;
	uint64_t whole = bytes, unit = 1;

	while (whole >= 1024 && u < 6) {
		whole /= 1024;
		unit *= 1024;
		u++;
	}
	/* 1023.96 MiB must not print as 1024.0 MiB: round down. */
	tenths = (unsigned)((unsigned __int128)(bytes % unit) * 10 / unit);
	if (tenths)
		snprintf(buf, room, "%llu.%u %s", (unsigned long long)whole, tenths, units[u]);
	else
		snprintf(buf, room, "%llu %s", (unsigned long long)whole, units[u]);
	return buf;
}

int ash_u64_parse(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value)
{
	unsigned long long v;
	char *end;

	if (!isdigit((unsigned char)*text))
		return -EINVAL;
	errno = 0;
	v = strtoull(text, &end, 10);
	if (*end != '\0')
		return -EINVAL;
	if (errno == ERANGE || v < min || v > max)
		return -ERANGE;
	*ret_value = v;
	return 0;
}

int ash_percent_parse(const char *text, uint32_t *ret_percent)
{
	char digits[8];
	size_t n = strlen(text);
	uint64_t v;
	int err;

	if (n > 0 && text[n - 1] == '%')
		n--;
	if (n == 0 || n >= sizeof(digits))
		return -EINVAL;
	memcpy(digits, text, n);
	digits[n] = '\0';
	err = ash_u64_parse(digits, 0, 100, &v);
	if (err)
		return err;
	*ret_percent = (uint32_t)v;
	return 0;
}
