// SPDX-License-Identifier: MIT
#include "common/base/clean.h"

#include <string.h>

/* write(2), because stdio may allocate. */
static void out_of_memory(void)
{
	static const char text[] = "event=out_of_memory the process ends; give it more memory\n";

	if (write(2, text, sizeof(text) - 1) < 0)
		abort();
	abort();
}

void *ash_xcalloc(size_t count, size_t bytes)
{
	void *p = calloc(count ? count : 1, bytes ? bytes : 1);

	if (!p)
		out_of_memory();
	return p;
}

void *ash_xrealloc(void *p, size_t bytes)
{
	void *q = realloc(p, bytes ? bytes : 1);

	if (!q)
		out_of_memory();
	return q;
}

char *ash_xstrdup(const char *text)
{
	size_t n = strlen(text) + 1;

	return memcpy(ash_xcalloc(1, n), text, n);
}
