/* SPDX-License-Identifier: MIT */
/*
 * What an MDM keeps in its state directory besides the log: who it is. `identity` is an INI file:
 * uuid always; id, system and the first members once it belongs to a system; whether there has to
 * be a log. `lock` is held by the process that uses the directory.
 */
#ifndef ASHLAR_MDM_SHELL_IDENTITY_H
#define ASHLAR_MDM_SHELL_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

#define MDM_FIRST_MEMBERS 5

struct mdm_first_member {
	uint64_t id;
	bool tie_breaker;
	char name[64], client[64], raft[64];
};

struct mdm_identity {
	uint8_t uuid[16];
	uint64_t id; /* 0: belongs to no system yet */
	uint8_t system[16];
	char system_name[64];
	/* Of the first system's configuration; none if it was added later. */
	struct mdm_first_member member[MDM_FIRST_MEMBERS];
	size_t members;
	bool has_log; /* its log has held entries: one without any was lost */
	int lock_fd;
};

/* Makes the directory, takes its lock, reads the identity or makes a new one. */
struct ash_error mdm_identity_open(struct mdm_identity *who, const char *state_dir);
/* Durable when it returns without an error. */
struct ash_error mdm_identity_save(const struct mdm_identity *who, const char *state_dir);

/* Does @log_dir hold a log: term and vote, and entries or a snapshot? */
bool mdm_log_is_there(const char *log_dir);

/* Free bytes of the file system that holds @dir; UINT64_MAX when that cannot be learned. */
uint64_t mdm_disk_free(const char *dir);

#endif
