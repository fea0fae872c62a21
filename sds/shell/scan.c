// SPDX-License-Identifier: MIT
#include "sds/shell/scan.h"

#include <errno.h>
#include <glob.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/base/list.h"
#include "common/base/log.h"

#define SEC_NS 1000000000ull
#define WAIT_MIN_NS (2 * SEC_NS)
#define WAIT_MAX_NS (60 * SEC_NS)

struct seen {
	struct ash_list link;
	char *path;
	int error; /* of the last try, to tell of each only once */
	bool handed;
	uint64_t next_ns, wait_ns;
};

struct sds_scan {
	struct ash_reactor *r;
	void (*found)(void *arg, struct ash_disk *disk, const char *path);
	void *arg;
	struct ash_list seen;
	char **pattern;
	size_t patterns;
};

struct sds_scan *sds_scan_new(struct ash_reactor *r,
			      void (*found)(void *arg, struct ash_disk *disk, const char *path),
			      void *arg)
{
	struct sds_scan *scan = ash_xcalloc(1, sizeof(*scan));

	scan->r = r;
	scan->found = found;
	scan->arg = arg;
	ash_list_init(&scan->seen);
	return scan;
}

void sds_scan_free(struct sds_scan *scan)
{
	if (!scan)
		return;
	while (!ash_list_empty(&scan->seen)) {
		struct seen *s = ash_container_of(scan->seen.next, struct seen, link);

		ash_list_remove(&s->link);
		free(s->path);
		free(s);
	}
	for (size_t i = 0; i < scan->patterns; i++)
		free(scan->pattern[i]);
	free(scan->pattern);
	free(scan);
}

void sds_scan_add(struct sds_scan *scan, const char *pattern)
{
	for (size_t i = 0; i < scan->patterns; i++)
		if (!strcmp(scan->pattern[i], pattern))
			return;
	scan->pattern = ash_xrealloc(scan->pattern, (scan->patterns + 1) * sizeof(char *));
	scan->pattern[scan->patterns++] = ash_xstrdup(pattern);
}

static struct seen *seen_of(struct sds_scan *scan, const char *path)
{
	struct seen *s;

	ash_list_each(l, &scan->seen) {
		s = ash_container_of(l, struct seen, link);
		if (!strcmp(s->path, path))
			return s;
	}
	s = ash_xcalloc(1, sizeof(*s));
	s->path = ash_xstrdup(path);
	s->wait_ns = WAIT_MIN_NS;
	ash_list_push_back(&scan->seen, &s->link);
	return s;
}

/* Opening fails while anybody holds the disk, this process included: so a disk in use is left
 * alone by all means. Return: 1 if another holds it. */
static unsigned try_path(struct sds_scan *scan, struct seen *s, uint64_t now_ns)
{
	struct ash_error err = {0};
	struct ash_disk *disk;
	int rv;

	if (now_ns < s->next_ns)
		return 0;
	rv = ash_reactor_disk_open(scan->r, s->path, 0, -1, &disk, &err);
	if (rv) {
		if (rv != s->error && !(rv == -EBUSY && s->handed))
			ash_log(rv == -EBUSY || rv == -ENOENT ? ASH_LOG_INFO : ASH_LOG_WARN,
				"event=disk_not_opened path=%s error=%d why=\"%s\"", s->path, -rv,
				err.message);
		s->error = rv;
		return rv == -EBUSY && !s->handed;
	}
	s->error = 0;
	s->next_ns = now_ns + s->wait_ns;
	s->wait_ns = s->wait_ns * 2 < WAIT_MAX_NS ? s->wait_ns * 2 : WAIT_MAX_NS;
	s->handed = true;
	scan->found(scan->arg, disk, s->path);
	return 0;
}

unsigned sds_scan_run(struct sds_scan *scan, uint64_t now_ns)
{
	unsigned busy = 0;

	for (size_t i = 0; i < scan->patterns; i++) {
		glob_t g;

		if (glob(scan->pattern[i], GLOB_NOSORT, NULL, &g) == 0)
			for (size_t j = 0; j < g.gl_pathc; j++)
				busy += try_path(scan, seen_of(scan, g.gl_pathv[j]), now_ns);
		globfree(&g);
	}
	return busy;
}
