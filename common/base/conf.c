// SPDX-License-Identifier: MIT
#include "common/base/conf.h"

#include <errno.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"

struct load {
	struct ash_conf *conf;
	const char *const *known;
	char unknown[64];
};

static void add(struct ash_conf *conf, const char *key, const char *value, bool from_flag)
{
	conf->entry = ash_xrealloc(conf->entry, (conf->count + 1) * sizeof(*conf->entry));
	conf->entry[conf->count++] = (struct ash_conf_entry){
		.key = ash_xstrdup(key), .value = ash_xstrdup(value), .from_flag = from_flag};
}

static int on_pair(void *user, const char *section, const char *name, const char *value)
{
	struct load *load = user;

	for (size_t i = 0; load->known[i]; i++) {
		if (strcmp(load->known[i], name) != 0)
			continue;
		add(load->conf, name, value ? value : "", false);
		return 1;
	}
	if (load->unknown[0] == '\0')
		strncpy(load->unknown, name, sizeof(load->unknown) - 1);
	return 0;
}

static struct ash_error outcome(const struct load *load, const char *name, int result)
{
	if (load->unknown[0])
		return ash_error_make(ASH_E_USAGE,
				      "%s: line %d: unknown key \"%s\"; --help lists all", name,
				      result > 0 ? result : 0, load->unknown);
	if (result > 0)
		return ash_error_make(ASH_E_USAGE,
				      "%s: line %d is neither [section] nor key = value", name,
				      result);
	if (result < 0)
		return ash_error_make(ASH_E_USAGE, "%s: cannot be read: %s", name,
				      result == -1 ? strerror(errno) : "out of memory");
	return ash_error_ok();
}

struct ash_error ash_conf_load(struct ash_conf *conf, const char *path, const char *const *known)
{
	struct load load = {.conf = conf, .known = known};

	return outcome(&load, path, ini_parse(path, on_pair, &load));
}

struct ash_error ash_conf_parse(struct ash_conf *conf, const char *text, const char *name,
				const char *const *known)
{
	struct load load = {.conf = conf, .known = known};

	return outcome(&load, name, ini_parse_string(text, on_pair, &load));
}

void ash_conf_set_flag(struct ash_conf *conf, const char *key, const char *value)
{
	add(conf, key, value, true);
}

const char *ash_conf_nth(const struct ash_conf *conf, const char *key, size_t i)
{
	bool flags = false;

	for (size_t j = 0; j < conf->count; j++)
		flags |= conf->entry[j].from_flag && strcmp(conf->entry[j].key, key) == 0;
	for (size_t j = 0; j < conf->count; j++) {
		const struct ash_conf_entry *e = &conf->entry[j];

		if (strcmp(e->key, key) == 0 && e->from_flag == flags && i-- == 0)
			return e->value;
	}
	return NULL;
}

const char *ash_conf_get(const struct ash_conf *conf, const char *key, const char *otherwise)
{
	const char *found = NULL, *value;

	/* The last one wins, as people expect of repeated flags. */
	for (size_t i = 0; (value = ash_conf_nth(conf, key, i)); i++)
		found = value;
	return found ? found : otherwise;
}

void ash_conf_done(struct ash_conf *conf)
{
	for (size_t i = 0; i < conf->count; i++) {
		free(conf->entry[i].key);
		free(conf->entry[i].value);
	}
	free(conf->entry);
	*conf = (struct ash_conf){0};
}
