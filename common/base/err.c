// SPDX-License-Identifier: MIT
#include "common/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct ash_error ash_error_ok(void)
{
	return (struct ash_error){.code = ASH_OK};
}

struct ash_error ash_error_make(int code, const char *fmt, ...)
{
	struct ash_error err = {.code = code};
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err.message, sizeof(err.message), fmt, ap);
	va_end(ap);
	return err;
}

void ash_error_wrap(struct ash_error *err, const char *fmt, ...)
{
	char old[ASH_ERROR_TEXT];
	va_list ap;
	size_t n;

	memcpy(old, err->message, sizeof(old));
	va_start(ap, fmt);
	vsnprintf(err->message, sizeof(err->message), fmt, ap);
	va_end(ap);
	n = strlen(err->message);
	snprintf(err->message + n, sizeof(err->message) - n, "%s", old);
}

static const struct {
	const char *name;
	int exit;
} codes[] = {
	[ASH_OK] = {"ok", 0},
	[ASH_E_INVALID] = {"invalid", 1},
	[ASH_E_NOT_FOUND] = {"not-found", 1},
	[ASH_E_EXISTS] = {"exists", 1},
	[ASH_E_IN_USE] = {"in-use", 1},
	[ASH_E_CAPACITY] = {"capacity", 1},
	[ASH_E_STATE] = {"state", 1},
	[ASH_E_STALE] = {"stale", 1},
	[ASH_E_NOT_LEADER] = {"not-leader", 3},
	[ASH_E_UNREACHABLE] = {"unreachable", 3},
	[ASH_E_DENIED] = {"denied", 1},
	[ASH_E_INTERNAL] = {"internal", 4},
	[ASH_E_UNSUPPORTED] = {"unsupported", 1},
	[ASH_E_USAGE] = {"usage", 2},
};

const char *ash_code_name(int code)
{
	if (code < 0 || (size_t)code >= sizeof(codes) / sizeof(codes[0]))
		return "unknown";
	return codes[code].name;
}

int ash_code_exit(int code)
{
	if (code < 0 || (size_t)code >= sizeof(codes) / sizeof(codes[0]))
		return 4;
	return codes[code].exit;
}
