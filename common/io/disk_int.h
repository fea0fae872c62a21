/* SPDX-License-Identifier: MIT */
/* Inside the disk backend. */
#ifndef ASHLAR_COMMON_IO_DISK_INT_H
#define ASHLAR_COMMON_IO_DISK_INT_H

#include "common/io/reactor_int.h"

/**
 * struct disk - an open disk.
 * @plain: on a file system in memory, where the ring would hand each operation to a worker thread:
 *         done by plain calls at the end of a turn.
 */
struct disk {
	struct ash_disk d;
	struct ash_reactor *r;
	struct ash_list link, closing_link;
	int fd, slot;
	bool plain, no_punch, closing;
	void (*closed)(void *arg);
	void *closed_arg;
	char *path;
};

static inline struct disk *disk_of(struct ash_disk *d)
{
	return (struct disk *)d;
}

extern const struct ash_disk_ops disk_ops;

#endif
