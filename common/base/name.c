// SPDX-License-Identifier: MIT
#include "common/base/name.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static bool allowed(unsigned char c, bool first)
{
	bool alnum = c < 128 && isalnum(c);

	return alnum || (!first && c != '\0' && strchr("._-", c));
}

/* The name with everything unprintable replaced, cut, for a message. */
static const char *printable(const char *name, char *buf, size_t room)
{
	size_t i;

	for (i = 0; name[i] != '\0' && i + 4 < room; i++)
		buf[i] = isprint((unsigned char)name[i]) ? name[i] : '?';
	snprintf(buf + i, room - i, "%s", name[i] ? "..." : "");
	return buf;
}

struct ash_error ash_name_check(const char *what, const char *name)
{
	char shown[80];
	size_t n = strlen(name);

	if (n == 0)
		return ash_error_make(ASH_E_INVALID, "%s: the name is empty; give one with --name",
				      what);
	if (n > ASH_NAME_MAX)
		return ash_error_make(
			ASH_E_INVALID,
			"%s \"%s\": the name has %zu characters, at most %d are allowed", what,
			printable(name, shown, sizeof(shown)), n, ASH_NAME_MAX);
	for (size_t i = 0; i < n; i++)
		if (!allowed((unsigned char)name[i], i == 0))
			return ash_error_make(
				ASH_E_INVALID,
				"%s \"%s\": character %zu of the name is not allowed; use letters, "
				"digits, '.', '_' and '-', and begin with a letter or digit",
				what, printable(name, shown, sizeof(shown)), i + 1);
	return ash_error_ok();
}
