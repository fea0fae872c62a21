/* SPDX-License-Identifier: MIT */
/*
 * What one SDS keeps outside its devices: its UUID and the paths of devices it was given, both in
 * the state directory. Also its lock files. Blocking; from one thread.
 */
#ifndef ASHLAR_SDS_SHELL_IDENTITY_H
#define ASHLAR_SDS_SHELL_IDENTITY_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

/* Creates the directory and the UUID when they are not there. A damaged UUID is refused and never
 * replaced: another UUID would make this another SDS, and its devices nobody's. */
struct ash_error sds_identity_open(const char *state_dir, uint8_t ret_uuid[16]);

/**
 * sds_lock_file() - take DIR/NAME for as long as *ret_fd is open, and write the process id into it.
 * The directory is created. Code IN_USE when another process still holds it after @wait_ms: one
 * that was killed lets go only when the kernel has ended its operations on disks.
 */
struct ash_error sds_lock_file(const char *dir, const char *name, const char *flag,
			       uint32_t wait_ms, int *ret_fd);

/* 16 bytes of the kernel's boot id. */
struct ash_error sds_boot_id(uint8_t ret_boot_id[16]);

/* Remember a device's path, so that it is found after a restart. Adding twice is harmless.
 * Return: 0 or -errno. */
int sds_paths_add(const char *state_dir, const char *path);
/* Calls @each for every remembered path. */
void sds_paths_each(const char *state_dir, void (*each)(void *arg, const char *path), void *arg);

#endif
