/* SPDX-License-Identifier: MIT */
/*
 * Opens a disk that an administrator gave to this SDS: looks first for foreign data on it (file
 * systems, partition tables, RAID and LVM members), in a thread of its own, because a sick disk may
 * take long to answer. Context: the reactor's thread, except where told.
 */
#ifndef ASHLAR_SDS_SHELL_OPEN_DISK_H
#define ASHLAR_SDS_SHELL_OPEN_DISK_H

#include <stdbool.h>
#include <stddef.h>

#include "common/io/reactor.h"

struct sds_opener {
	struct ash_reactor *r;
	const char *state_dir; /* paths opened are remembered here */
	unsigned running;      /* threads at work; the reactor must outlive them */
};

/* sds_shell_ops.open_disk; @shell is a struct sds_opener. */
void sds_open_disk(void *shell, const char *path, bool force,
		   void (*done)(void *arg, int result, struct ash_disk *disk, const char *message),
		   void *arg);

/**
 * sds_foreign_check() - lock a disk and see whether something else is on it. Blocking; any thread.
 * @force: wipe what is found.
 * Return: 0 and the locked descriptor; -EEXIST foreign signature, -EBUSY held, other -errno, with
 * a message for people.
 */
int sds_foreign_check(const char *path, bool force, int *ret_fd, char *message, size_t room);

#endif
