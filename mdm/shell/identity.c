// SPDX-License-Identifier: MIT
#include "mdm/shell/identity.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clean.h"
#include "common/base/conf.h"
#include "common/base/size.h"
#include "common/base/uuid.h"

#define LOCK_TRIES 60
#define LOCK_PER_S 20

static const char *const known[] = {"uuid",   "id",	 "system", "system-name",
				    "member", "has-log", NULL};

static struct ash_error no_access(const char *what, const char *path, int err)
{
	return ash_error_make(ASH_E_STATE,
			      "%s %s: %s; the state directory must be writable for this user (give "
			      "another with --state-dir)",
			      what, path, strerror(err));
}

/* mkdir -p */
static int make_dirs(const char *dir)
{
	char path[4096];

	if (snprintf(path, sizeof(path), "%s", dir) >= (int)sizeof(path))
		return ENAMETOOLONG;
	for (char *p = path + 1;; p++) {
		char c = *p;

		if (c && c != '/')
			continue;
		*p = '\0';
		if (mkdir(path, 0750) && errno != EEXIST)
			return errno;
		if (!c)
			return 0;
		*p = c;
	}
}

static struct ash_error take_lock(struct mdm_identity *who, const char *state_dir)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/lock", state_dir);
	who->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
	if (who->lock_fd < 0)
		return no_access("cannot open", path, errno);
	/* The lock of a process that was killed just now is held until its exit is through. */
	for (int i = 0; flock(who->lock_fd, LOCK_EX | LOCK_NB); i++) {
		if (i < LOCK_TRIES) {
			nanosleep(&(struct timespec){.tv_nsec = 1000000000 / LOCK_PER_S}, NULL);
			continue;
		}
		return ash_error_make(
			ASH_E_IN_USE,
			"state directory %s is in use by another ashlar-mdm; end that "
			"one, or give another directory with --state-dir",
			state_dir);
	}
	return ash_error_ok();
}

static bool parse_member(const char *text, struct mdm_first_member *m)
{
	unsigned long long id;
	char role[16];

	if (sscanf(text, "%llu %15s %63s %63s %63s", &id, role, m->name, m->client, m->raft) != 5)
		return false;
	m->id = id;
	m->tie_breaker = !strcmp(role, "tie-breaker");
	return id != 0;
}

static bool parse(struct mdm_identity *who, const struct ash_conf *conf)
{
	const char *text = ash_conf_get(conf, "system", NULL);

	if (ash_uuid_parse(ash_conf_get(conf, "uuid", ""), who->uuid) ||
	    ash_u64_parse(ash_conf_get(conf, "id", "0"), 0, UINT64_MAX, &who->id) ||
	    (text && ash_uuid_parse(text, who->system)))
		return false;
	snprintf(who->system_name, sizeof(who->system_name), "%s",
		 ash_conf_get(conf, "system-name", ""));
	who->has_log = !strcmp(ash_conf_get(conf, "has-log", "no"), "yes");
	for (; (text = ash_conf_nth(conf, "member", who->members)); who->members++)
		if (who->members == MDM_FIRST_MEMBERS ||
		    !parse_member(text, &who->member[who->members]))
			return false;
	return true;
}

struct ash_error mdm_identity_open(struct mdm_identity *who, const char *state_dir)
{
	struct ash_conf conf = {0};
	struct ash_error err;
	char path[4096];
	int e = make_dirs(state_dir);
	uint64_t random[2];

	memset(who, 0, sizeof(*who));
	who->lock_fd = -1;
	if (e)
		return no_access("cannot create", state_dir, e);
	if (access(state_dir, W_OK | X_OK))
		return no_access("cannot write to", state_dir, errno);
	err = take_lock(who, state_dir);
	if (ash_failed(&err))
		return err;
	snprintf(path, sizeof(path), "%s/identity", state_dir);
	if (access(path, F_OK)) {
		if (getrandom(random, sizeof(random), 0) != sizeof(random))
			return ash_error_make(ASH_E_INTERNAL, "no random numbers");
		ash_uuid_from_random(random[0], random[1], who->uuid);
		return mdm_identity_save(who, state_dir);
	}
	err = ash_conf_load(&conf, path, known);
	if (!ash_failed(&err) && !parse(who, &conf))
		err = ash_error_make(ASH_E_STATE,
				     "%s is damaged; restore it from a backup, or empty the state "
				     "directory and add this MDM anew",
				     path);
	ash_conf_done(&conf);
	return err;
}

static int write_all(FILE *f, const struct mdm_identity *who)
{
	char text[ASH_UUID_TEXT];

	fprintf(f, "uuid = %s\n", ash_uuid_format(who->uuid, text));
	if (who->id) {
		fprintf(f, "id = %llu\n", (unsigned long long)who->id);
		fprintf(f, "system = %s\n", ash_uuid_format(who->system, text));
		fprintf(f, "system-name = %s\n", who->system_name);
	}
	if (who->has_log)
		fprintf(f, "has-log = yes\n");
	for (size_t i = 0; i < who->members; i++) {
		const struct mdm_first_member *m = &who->member[i];

		fprintf(f, "member = %llu %s %s %s %s\n", (unsigned long long)m->id,
			m->tie_breaker ? "tie-breaker" : "mdm", m->name, m->client, m->raft);
	}
	if (fflush(f) || ferror(f) || fsync(fileno(f)))
		return errno ? errno : EIO;
	return 0;
}

struct ash_error mdm_identity_save(const struct mdm_identity *who, const char *state_dir)
{
	char path[4096], fresh[4096];
	int e, dir;
	FILE *f;

	snprintf(path, sizeof(path), "%s/identity", state_dir);
	snprintf(fresh, sizeof(fresh), "%s/identity.new", state_dir);
	f = fopen(fresh, "we");
	if (!f)
		return no_access("cannot write", fresh, errno);
	e = write_all(f, who);
	if (fclose(f) && !e)
		e = errno;
	if (!e && rename(fresh, path))
		e = errno;
	dir = e ? -1 : open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!e && (dir < 0 || fsync(dir)))
		e = errno;
	if (dir >= 0)
		close(dir);
	return e ? no_access("cannot write", path, e) : ash_error_ok();
}

bool mdm_log_is_there(const char *log_dir)
{
	DIR *dir = opendir(log_dir);
	bool vote = false, entries = false;
	struct dirent *d;

	while (dir && (d = readdir(dir))) {
		vote |= !strncmp(d->d_name, "metadata", 8);
		/* Segments are named by their first entry, or open-N; snapshots snapshot-TERM-...
		 */
		entries |= isdigit((unsigned char)d->d_name[0]) ||
			   !strncmp(d->d_name, "open-", 5) || !strncmp(d->d_name, "snapshot-", 9);
	}
	if (dir)
		closedir(dir);
	return vote && entries;
}

uint64_t mdm_disk_free(const char *dir)
{
	struct statvfs vfs;

	if (statvfs(dir, &vfs))
		return UINT64_MAX;
	return (uint64_t)vfs.f_bavail * vfs.f_frsize;
}
