/* SPDX-License-Identifier: MIT */
/*
 * Looks for disks: expands patterns and opens what is not open yet. Whether a disk is one of ours
 * is decided by the core, which closes those that are not. Context: the reactor's thread.
 */
#ifndef ASHLAR_SDS_SHELL_SCAN_H
#define ASHLAR_SDS_SHELL_SCAN_H

#include <stdint.h>

#include "common/io/reactor.h"

struct sds_scan;

/* @found: takes the disk over. */
struct sds_scan *sds_scan_new(struct ash_reactor *r,
			      void (*found)(void *arg, struct ash_disk *disk, const char *path),
			      void *arg);
void sds_scan_free(struct sds_scan *scan);
/* Pattern as of glob(3); plain paths are patterns too. */
void sds_scan_add(struct sds_scan *scan, const char *pattern);

/**
 * sds_scan_run() - look once.
 * A path that was handed over and can be opened again was refused by the core: it is offered again
 * at growing distances (2 s to 60 s), because it may have got a label meanwhile.
 * Return: paths that another process holds and that were never handed over (worth a soon retry: a
 * process that has just ended may take a moment to let go).
 */
unsigned sds_scan_run(struct sds_scan *scan, uint64_t now_ns);

#endif
