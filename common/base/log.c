// SPDX-License-Identifier: MIT
#include "common/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = {"error", "warn", "notice", "info", "debug"};
static const char *program_name = "ashlar";
static int max_level = ASH_LOG_NOTICE;

void ash_log_init(const char *program)
{
	const char *wanted = getenv("ASHLAR_LOG");

	program_name = program;
	for (int i = 0; wanted && i <= ASH_LOG_DEBUG; i++)
		if (strcmp(wanted, level_names[i]) == 0)
			ash_log_set_level(i);
}

void ash_log_set_level(int level)
{
	__atomic_store_n(&max_level, level, __ATOMIC_RELAXED);
}

int ash_log_level(void)
{
	return __atomic_load_n(&max_level, __ATOMIC_RELAXED);
}

/* One write(2) per line, so that lines of several threads or processes do not mix. */
void ash_log(int level, const char *fmt, ...)
{
	char line[2048];
	struct timespec now;
	struct tm tm;
	size_t n;
	va_list ap;

	if (level > ash_log_level() || level < 0 || level > ASH_LOG_DEBUG)
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	n = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &tm);
	n += (size_t)snprintf(line + n, sizeof(line) - n, ".%03ldZ %s %s ", now.tv_nsec / 1000000,
			      program_name, level_names[level]);
	va_start(ap, fmt);
	vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
	va_end(ap);
	/* What peers or files put into a line must not look like another line. */
	for (n = 0; line[n] != '\0'; n++)
		if ((unsigned char)line[n] < ' ' || line[n] == 0x7f)
			line[n] = '?';
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, n) < 0)
		return; /* nobody to tell */
}
