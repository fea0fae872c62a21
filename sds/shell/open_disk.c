// SPDX-License-Identifier: MIT
#include "sds/shell/open_disk.h"

#include <blkid/blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clean.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "sds/shell/identity.h"

struct opening {
	struct ash_task task;
	struct sds_opener *opener;
	char *path;
	bool force;
	int result, fd;
	char message[ASH_ERROR_TEXT];
	void (*done)(void *arg, int result, struct ash_disk *disk, const char *message);
	void *arg;
};

static int say(char *message, size_t room, const char *path, int err, const char *why)
{
	snprintf(message, room, "%s: %s", path, why);
	return err;
}

/* ------------------------------------------------------------ foreign data */

static int lock_disk(const char *path, int *ret_fd, char *message, size_t room)
{
	struct stat st;
	bool block;
	int fd;

	/* Looked at before opening: opening a pipe or a terminal may wait or do things. */
	if (stat(path, &st))
		return say(message, room, path, -errno, strerror(errno));
	block = S_ISBLK(st.st_mode);
	if (!block && !S_ISREG(st.st_mode))
		return say(message, room, path, -ENOTBLK,
			   "it is neither a block device nor a file");
	fd = open(path, O_RDWR | O_CLOEXEC | (block ? O_EXCL : 0));
	if (fd >= 0 && !block && flock(fd, LOCK_EX | LOCK_NB)) {
		int err = errno == EWOULDBLOCK ? EBUSY : errno;

		close(fd);
		fd = -1;
		errno = err;
	}
	if (fd < 0)
		return say(message, room, path, -errno,
			   errno == EBUSY ? "it is in use (mounted, part of a RAID or LVM, or held "
					    "by another process); free it first"
					  : strerror(errno));
	*ret_fd = fd;
	return 0;
}

/* Every signature, one after the other; each goes back a step because a disk may carry several of
 * a kind (a GPT has two). */
static int wipe(blkid_probe pr, int fd)
{
	int rv;

	blkid_reset_probe(pr);
	for (unsigned i = 0; (rv = blkid_do_probe(pr)) == 0; i++) {
		if (i == 256)
			return -EIO;
		if (blkid_do_wipe(pr, 0))
			return errno ? -errno : -EIO;
		if (blkid_probe_step_back(pr))
			break;
	}
	if (rv < 0 || fsync(fd))
		return errno ? -errno : -EIO;
	return 0;
}

static int refuse_foreign(blkid_probe pr, const char *path, char *message, size_t room)
{
	const char *type = NULL, *label = NULL, *table = NULL;

	if (blkid_probe_lookup_value(pr, "TYPE", &type, NULL))
		type = NULL;
	if (blkid_probe_lookup_value(pr, "PTTYPE", &table, NULL))
		table = NULL;
	if (blkid_probe_lookup_value(pr, "LABEL", &label, NULL))
		label = NULL;
	snprintf(message, room,
		 "%s: it holds %s%s%s%s%s; if that data may go, add the device with --force", path,
		 type ? type : "",
		 table ? (type ? " and a partition table of type " : "a partition table of type ")
		       : (type ? "" : "data of several kinds"),
		 table ? table : "", label ? ", named " : "", label ? label : "");
	return -EEXIST;
}

int sds_foreign_check(const char *path, bool force, int *ret_fd, char *message, size_t room)
{
	int fd = -1, rv = lock_disk(path, &fd, message, room);
	blkid_probe pr;

	if (rv)
		return rv;
	pr = blkid_new_probe();
	errno = 0;
	if (!pr || blkid_probe_set_device(pr, fd, 0, 0)) {
		rv = say(message, room, path, errno ? -errno : -EIO, "it cannot be examined");
		goto out;
	}
	blkid_probe_enable_superblocks(pr, 1);
	blkid_probe_set_superblocks_flags(pr, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_LABEL |
						      BLKID_SUBLKS_MAGIC);
	blkid_probe_enable_partitions(pr, 1);
	blkid_probe_set_partitions_flags(pr, BLKID_PARTS_MAGIC);
	/* 1: nothing; 0: one; -2: several that contradict one another. */
	rv = blkid_do_safeprobe(pr);
	if (rv == 1)
		rv = 0;
	else if (rv == -1)
		rv = say(message, room, path, errno ? -errno : -EIO, "it cannot be read");
	else if (!force)
		rv = refuse_foreign(pr, path, message, room);
	else if ((rv = wipe(pr, fd)))
		say(message, room, path, rv, "what is on it cannot be wiped");
	else
		ash_log(ASH_LOG_NOTICE, "event=foreign_data_wiped path=%s", path);
out:
	blkid_free_probe(pr);
	if (rv)
		close(fd);
	else
		*ret_fd = fd;
	return rv;
}

/* ------------------------------------------------------------ the thread and its end */

static void examined(struct ash_task *task)
{
	struct opening *o = ash_container_of(task, struct opening, task);
	struct ash_error err = {0};
	struct ash_disk *disk = NULL;
	int rv = o->result;

	o->opener->running--;
	if (o->fd >= 0)
		close(o->fd); /* the reactor takes the same lock in this very turn */
	if (!rv) {
		rv = ash_reactor_disk_open(o->opener->r, o->path, 0, -1, &disk, &err);
		if (rv)
			snprintf(o->message, sizeof(o->message), "%s", err.message);
	}
	if (!rv) {
		int e = sds_paths_add(o->opener->state_dir, o->path);

		if (e)
			ash_log(ASH_LOG_WARN,
				"event=path_not_remembered path=%s state_dir=%s error=%d note=\"name "
				"it with --devices, or it is not found after a restart\"",
				o->path, o->opener->state_dir, -e);
	}
	o->done(o->arg, rv, rv ? NULL : disk, rv ? o->message : NULL);
	free(o->path);
	free(o);
}

static void *examine(void *arg)
{
	struct opening *o = arg;

	o->result = sds_foreign_check(o->path, o->force, &o->fd, o->message, sizeof(o->message));
	ash_reactor_send(o->opener->r, &o->task);
	return NULL;
}

void sds_open_disk(void *shell, const char *path, bool force,
		   void (*done)(void *arg, int result, struct ash_disk *disk, const char *message),
		   void *arg)
{
	struct sds_opener *opener = shell;
	struct opening *o = ash_xcalloc(1, sizeof(*o));
	pthread_t thread;
	int rv;

	o->task.fn = examined;
	o->opener = opener;
	o->path = ash_xstrdup(path);
	o->force = force;
	o->fd = -1;
	o->done = done;
	o->arg = arg;
	opener->running++;
	rv = pthread_create(&thread, NULL, examine, o);
	if (rv) {
		o->result = say(o->message, sizeof(o->message), path, -rv,
				"no thread to examine it could be started");
		ash_reactor_send(opener->r, &o->task);
		return;
	}
	pthread_detach(thread);
}
