// SPDX-License-Identifier: MIT
/* Opening disks: locks, sizes, caches. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clean.h"
#include "common/base/log.h"
#include "common/io/disk_int.h"

#define RETRY_MS 10u

static int refuse(struct ash_error *ret_err, int code, int err, const char *path, const char *why)
{
	*ret_err = ash_error_make(code, "device %s: %s", path, why);
	return err;
}

static void pause_ms(uint32_t ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&t, NULL);
}

/* Some file systems know no O_DIRECT: the page cache is used then, which costs memory and copies
 * but changes nothing in what is durable when. */
static int open_file(const char *path, int flags, bool *ret_buffered)
{
	int fd = open(path, flags | O_RDWR | O_CLOEXEC | O_DIRECT);

	*ret_buffered = false;
	if (fd >= 0 || errno != EINVAL)
		return fd >= 0 ? fd : -errno;
	*ret_buffered = true;
	fd = open(path, flags | O_RDWR | O_CLOEXEC);
	return fd >= 0 ? fd : -errno;
}

/* The descriptor that does the I/O holds the lock. A holder that was just killed may take a moment
 * until the kernel has let go of it. */
static int open_locked(const char *path, bool block, uint32_t wait_ms, int *ret_fd,
		       bool *ret_buffered)
{
	for (uint32_t waited = 0;; waited += RETRY_MS) {
		int fd = open_file(path, block ? O_EXCL : 0, ret_buffered);
		int err = fd < 0 ? fd : 0;

		if (fd >= 0 && !block && flock(fd, LOCK_EX | LOCK_NB)) {
			err = errno == EWOULDBLOCK ? -EBUSY : -errno;
			close(fd);
		}
		if (err == 0) {
			*ret_fd = fd;
			return 0;
		}
		if (err != -EBUSY || waited >= wait_ms)
			return err;
		pause_ms(RETRY_MS);
	}
}

/* "write back" or "write through"; a partition's queue is its disk's. */
static bool cache_is_volatile(dev_t dev)
{
	static const char *const places[] = {"queue", "../queue"};
	char path[128], word[32] = "";

	for (size_t i = 0; i < 2; i++) {
		FILE *f;

		snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s/write_cache", major(dev),
			 minor(dev), places[i]);
		f = fopen(path, "re");
		if (!f)
			continue;
		if (!fgets(word, sizeof(word), f))
			word[0] = '\0';
		fclose(f);
		break;
	}
	/* Not known: then flushes are needed. */
	return strncmp(word, "write through", 13) != 0;
}

static int block_geometry(int fd, uint64_t *ret_bytes, const char *path, struct ash_error *ret_err)
{
	int sector = 512, read_only = 0;

	if (ioctl(fd, BLKGETSIZE64, ret_bytes))
		return refuse(ret_err, ASH_E_STATE, -errno, path, strerror(errno));
	if (ioctl(fd, BLKSSZGET, &sector) == 0 && sector > (int)ASH_BLOCK_BYTES)
		return refuse(ret_err, ASH_E_UNSUPPORTED, -EINVAL, path,
			      "its sectors are larger than 4096 bytes");
	if (ioctl(fd, BLKROGET, &read_only) == 0 && read_only)
		return refuse(ret_err, ASH_E_STATE, -EROFS, path, "it is read-only");
	return 0;
}

static int check_kind(const char *path, struct stat *st, struct ash_error *ret_err)
{
	if (stat(path, st))
		return refuse(ret_err, errno == ENOENT ? ASH_E_NOT_FOUND : ASH_E_STATE, -errno,
			      path, strerror(errno));
	if (!S_ISBLK(st->st_mode) && !S_ISREG(st->st_mode))
		return refuse(ret_err, ASH_E_INVALID, -ENOTBLK, path,
			      "it is neither a block device nor a file");
	return 0;
}

static int lock_failed(const char *path, int err, uint32_t wait_ms, struct ash_error *ret_err)
{
	char why[160];

	if (err != -EBUSY)
		return refuse(ret_err, ASH_E_STATE, err, path, strerror(-err));
	snprintf(why, sizeof(why),
		 "in use by another process or mounted (waited %u ms); stop that, or choose "
		 "another device",
		 wait_ms);
	return refuse(ret_err, ASH_E_IN_USE, -EBUSY, path, why);
}

static bool in_memory(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

static struct disk *disk_new(struct ash_reactor *r, const char *path, int fd, bool plain)
{
	struct disk *k = ash_xcalloc(1, sizeof(*k));

	k->d.ops = &disk_ops;
	k->r = r;
	k->fd = fd;
	k->plain = plain;
	k->slot = plain ? -1 : ring_file_add(r, fd);
	k->path = ash_xstrdup(path);
	ash_list_init(&k->closing_link);
	ash_list_push_back(&r->disks, &k->link);
	return k;
}

int ash_reactor_disk_open(struct ash_reactor *r, const char *path, uint32_t lock_wait_ms,
			  int write_back, struct ash_disk **ret_disk, struct ash_error *ret_err)
{
	struct stat st;
	uint64_t bytes;
	bool buffered, plain;
	struct disk *k;
	int fd, err;

	err = check_kind(path, &st, ret_err);
	if (err)
		return err;
	err = open_locked(path, S_ISBLK(st.st_mode), lock_wait_ms, &fd, &buffered);
	if (err)
		return lock_failed(path, err, lock_wait_ms, ret_err);
	/* What was opened counts, should the name have changed hands meanwhile. */
	if (fstat(fd, &st))
		err = refuse(ret_err, ASH_E_STATE, -errno, path, strerror(errno));
	else if (S_ISBLK(st.st_mode))
		err = block_geometry(fd, &bytes, path, ret_err);
	else
		bytes = (uint64_t)st.st_size;
	if (!err && (bytes & ~(uint64_t)(ASH_BLOCK_BYTES - 1)) == 0)
		err = refuse(ret_err, ASH_E_INVALID, -EINVAL, path,
			     "it is empty; make the file as large as the device shall be");
	if (err) {
		close(fd);
		return err;
	}
	plain = S_ISREG(st.st_mode) && in_memory(fd);
	if (buffered || plain)
		ash_log(ASH_LOG_NOTICE, "event=disk_buffered path=%s why=\"%s\"", path,
			plain ? "its file system is in memory; nothing there survives a power loss"
			      : "its file system knows no O_DIRECT");
	k = disk_new(r, path, fd, plain);
	k->d.bytes = bytes & ~(uint64_t)(ASH_BLOCK_BYTES - 1);
	if (write_back >= 0)
		k->d.write_back = write_back != 0;
	else
		k->d.write_back = !S_ISBLK(st.st_mode) || cache_is_volatile(st.st_rdev);
	*ret_disk = &k->d;
	return 0;
}
