/* SPDX-License-Identifier: MIT */
/* Scope-bound clean-up: `ash_auto_free char *text = ...;` is freed when it leaves its scope. */
#ifndef ASHLAR_COMMON_BASE_CLEAN_H
#define ASHLAR_COMMON_BASE_CLEAN_H

#include <stdlib.h>
#include <unistd.h>

static inline void ash_clean_free(void *pointer_to_pointer)
{
	free(*(void **)pointer_to_pointer);
}
static inline void ash_clean_close(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}
#define ash_auto_free __attribute__((cleanup(ash_clean_free)))
#define ash_auto_close __attribute__((cleanup(ash_clean_close)))

/* Control-plane allocation: out of memory ends the process with a message, never returns NULL. */
void *ash_xcalloc(size_t count, size_t bytes);
void *ash_xrealloc(void *p, size_t bytes);
char *ash_xstrdup(const char *text);

#endif
