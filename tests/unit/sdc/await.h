/* SPDX-License-Identifier: MIT */
/* Waiting for something that another thread tells by a semaphore, but not for ever. */
#ifndef ASHLAR_TESTS_UNIT_SDC_AWAIT_H
#define ASHLAR_TESTS_UNIT_SDC_AWAIT_H

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define AWAIT_S 100 /* never reached but by a fault, on the slowest machine too */

/* Too late: the program ends, since the thread that is late still has the caller's memory. */
static inline void await(sem_t *event, const char *what)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += AWAIT_S;
	while (sem_timedwait(event, &end)) {
		if (errno == EINTR)
			continue;
		fprintf(stderr, "waited %d s in vain: %s\n", AWAIT_S, what);
		abort();
	}
}

#endif
