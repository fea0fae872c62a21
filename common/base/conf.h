/* SPDX-License-Identifier: MIT */
/*
 * Settings of a daemon: an INI file (through inih) whose every key is also a flag; flags win.
 * Keys are flag names without dashes ("state-dir"); a key may repeat (kept in order). Sections are
 * for people only. Lines of up to 190 characters, files of up to 1 MiB. Used at start, from one
 * thread. After an error the entries read before it are still there.
 */
#ifndef ASHLAR_COMMON_BASE_CONF_H
#define ASHLAR_COMMON_BASE_CONF_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"

struct ash_conf_entry {
	char *key, *value;
	bool from_flag;
};

struct ash_conf {
	struct ash_conf_entry *entry;
	size_t count;
};

/**
 * ash_conf_load() - add the entries of a file, behind those at hand.
 * @known: NULL-ended list of keys; any other is refused by name.
 */
struct ash_error ash_conf_load(struct ash_conf *conf, const char *path, const char *const *known);
/* The same from memory, for tests and fuzzing; @name for messages. */
struct ash_error ash_conf_parse(struct ash_conf *conf, const char *text, const char *name,
				const char *const *known);
/* A flag given on the command line; the file's values of that key no longer count. */
void ash_conf_set_flag(struct ash_conf *conf, const char *key, const char *value);
/* The value, or @otherwise. */
const char *ash_conf_get(const struct ash_conf *conf, const char *key, const char *otherwise);
/* The i-th value of a repeated key, or NULL past the end. */
const char *ash_conf_nth(const struct ash_conf *conf, const char *key, size_t i);
void ash_conf_done(struct ash_conf *conf);

#endif
