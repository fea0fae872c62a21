// SPDX-License-Identifier: MIT
#include "sds/shell/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clean.h"
#include "common/base/uuid.h"

#define PATH_BYTES 4096
#define LOCK_RETRY_MS 10u

static struct ash_error no_access(const char *flag, const char *what, const char *path, int err)
{
	return ash_error_make(ASH_E_STATE,
			      "cannot %s %s: %s; make it writable for this user, or give another "
			      "directory with %s",
			      what, path, strerror(err), flag);
}

/* Like mkdir -p. Return: 0 or errno. */
static int make_dirs(const char *dir)
{
	char path[PATH_BYTES];

	if (!*dir)
		return ENOENT;
	if (snprintf(path, sizeof(path), "%s", dir) >= (int)sizeof(path))
		return ENAMETOOLONG;
	for (char *p = path + 1;; p++) {
		char c = *p;

		if (c && c != '/')
			continue;
		*p = '\0';
		if (mkdir(path, 0755) && errno != EEXIST)
			return errno;
		if (!c)
			return 0;
		*p = c;
	}
}

static int sync_dir(const char *dir)
{
	ash_auto_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 || fsync(fd) ? errno : 0;
}

/* Whole or not at all, also across a loss of power. Return: 0 or errno. */
static int write_whole(const char *dir, const char *path, const char *text)
{
	char fresh[PATH_BYTES];
	size_t bytes = strlen(text);
	int err = 0, fd;

	if (snprintf(fresh, sizeof(fresh), "%s.new", path) >= (int)sizeof(fresh))
		return ENAMETOOLONG;
	fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		return errno;
	errno = 0;
	if (write(fd, text, bytes) != (ssize_t)bytes || fsync(fd))
		err = errno ? errno : ENOSPC;
	if (close(fd) && !err)
		err = errno;
	if (!err && rename(fresh, path))
		err = errno;
	return err ? err : sync_dir(dir);
}

static struct ash_error new_uuid(const char *dir, const char *path, uint8_t ret_uuid[16])
{
	char text[ASH_UUID_TEXT], line[ASH_UUID_TEXT + 1];
	uint64_t bits[2];
	int err;

	if (getrandom(bits, sizeof(bits), 0) != (ssize_t)sizeof(bits))
		return ash_error_make(ASH_E_INTERNAL, "the kernel gives no random bits");
	ash_uuid_from_random(bits[0], bits[1], ret_uuid);
	snprintf(line, sizeof(line), "%s\n", ash_uuid_format(ret_uuid, text));
	err = write_whole(dir, path, line);
	return err ? no_access("--state-dir", "write", path, err) : ash_error_ok();
}

struct ash_error sds_identity_open(const char *state_dir, uint8_t ret_uuid[16])
{
	char path[PATH_BYTES], text[64] = "";
	int err = make_dirs(state_dir);
	bool damaged;
	FILE *f;

	if (err)
		return no_access("--state-dir", "create", state_dir, err);
	if (access(state_dir, W_OK | X_OK))
		return no_access("--state-dir", "write to", state_dir, errno);
	snprintf(path, sizeof(path), "%s/uuid", state_dir);
	f = fopen(path, "re");
	if (!f)
		return errno == ENOENT ? new_uuid(state_dir, path, ret_uuid)
				       : no_access("--state-dir", "read", path, errno);
	damaged = !fgets(text, sizeof(text), f);
	fclose(f);
	text[strcspn(text, "\n")] = '\0';
	if (damaged || ash_uuid_parse(text, ret_uuid) || ash_uuid_is_zero(ret_uuid))
		return ash_error_make(ASH_E_STATE,
				      "%s does not hold a UUID; write the one that 'ashlar sds "
				      "list' shows for this SDS into it, or remove the file to "
				      "start as a new SDS",
				      path);
	return ash_error_ok();
}

/* Return: 0 or errno. */
static int lock_within(int fd, uint32_t wait_ms)
{
	const struct timespec pause = {.tv_nsec = LOCK_RETRY_MS * 1000000l};

	for (uint32_t waited = 0; flock(fd, LOCK_EX | LOCK_NB); waited += LOCK_RETRY_MS) {
		if ((errno != EWOULDBLOCK && errno != EINTR) || waited >= wait_ms)
			return errno;
		nanosleep(&pause, NULL);
	}
	return 0;
}

struct ash_error sds_lock_file(const char *dir, const char *name, const char *flag,
			       uint32_t wait_ms, int *ret_fd)
{
	char path[PATH_BYTES], pid[32];
	int err = make_dirs(dir), fd, n;

	if (err)
		return no_access(flag, "create", dir, err);
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		return no_access(flag, "open", path, errno);
	err = lock_within(fd, wait_ms);
	if (err) {
		close(fd);
		return err == EWOULDBLOCK
			       ? ash_error_make(ASH_E_IN_USE,
						"%s is held by another ashlar-sds; stop that one, "
						"or give this one its own directory with %s",
						path, flag)
			       : no_access(flag, "lock", path, err);
	}
	n = snprintf(pid, sizeof(pid), "%ld\n", (long)getpid());
	if (ftruncate(fd, 0) || pwrite(fd, pid, (size_t)n, 0) != n) {
		err = errno;
		close(fd);
		return no_access(flag, "write", path, err);
	}
	*ret_fd = fd;
	return ash_error_ok();
}

struct ash_error sds_boot_id(uint8_t ret_boot_id[16])
{
	static const char path[] = "/proc/sys/kernel/random/boot_id";
	char text[64] = "";
	FILE *f = fopen(path, "re");
	bool got = f && fgets(text, sizeof(text), f);

	if (f)
		fclose(f);
	text[strcspn(text, "\n")] = '\0';
	if (!got || ash_uuid_parse(text, ret_boot_id))
		return ash_error_make(ASH_E_STATE,
				      "%s cannot be read; ashlar-sds needs /proc mounted", path);
	return ash_error_ok();
}

/* ------------------------------------------------------------ paths of devices */

struct search {
	const char *path;
	bool found;
};

static void compare(void *arg, const char *path)
{
	struct search *s = arg;

	s->found |= !strcmp(s->path, path);
}

int sds_paths_add(const char *state_dir, const char *path)
{
	struct search s = {.path = path};
	char file[PATH_BYTES];
	ash_auto_close int fd = -1;
	ash_auto_free char *line = NULL;
	int n;

	if (strchr(path, '\n'))
		return -EINVAL;
	sds_paths_each(state_dir, compare, &s);
	if (s.found)
		return 0;
	snprintf(file, sizeof(file), "%s/devices", state_dir);
	fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	/* It begins with the end of a line: a torn one before it must not swallow it. */
	n = asprintf(&line, "\n%s\n", path);
	if (n < 0)
		return -ENOMEM;
	if (fd < 0)
		return -errno;
	errno = 0;
	if (write(fd, line, (size_t)n) != n || fsync(fd))
		return errno ? -errno : -ENOSPC;
	return -sync_dir(state_dir);
}

void sds_paths_each(const char *state_dir, void (*each)(void *arg, const char *path), void *arg)
{
	char file[PATH_BYTES];
	ash_auto_free char *line = NULL;
	size_t room = 0;
	FILE *f;

	snprintf(file, sizeof(file), "%s/devices", state_dir);
	f = fopen(file, "re");
	if (!f)
		return;
	while (getline(&line, &room, f) > 0) {
		line[strcspn(line, "\n")] = '\0';
		if (*line == '/')
			each(arg, line);
	}
	fclose(f);
}
