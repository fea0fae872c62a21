// SPDX-License-Identifier: MIT
#include "common/base/conf.h"

#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"

#define LINE_MAX_CHARS 190
#define FILE_MAX_BYTES (1u << 20)

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
		return ash_error_make(ASH_E_USAGE, "%s: cannot be read: out of memory", name);
	return ash_error_ok();
}

/* The parser cuts longer lines in two without a word. */
static struct ash_error check_lines(const char *text, const char *name)
{
	int line = 1;

	for (;;) {
		size_t n = strcspn(text, "\n");

		if (n > LINE_MAX_CHARS)
			return ash_error_make(ASH_E_USAGE,
					      "%s: line %d has %zu characters, at most %d are "
					      "allowed; give the key once per value instead",
					      name, line, n, LINE_MAX_CHARS);
		if (text[n] == '\0')
			return ash_error_ok();
		text += n + 1;
		line++;
	}
}

struct ash_error ash_conf_parse(struct ash_conf *conf, const char *text, const char *name,
				const char *const *known)
{
	struct load load = {.conf = conf, .known = known};
	struct ash_error err = check_lines(text, name);

	if (ash_failed(&err))
		return err;
	return outcome(&load, name, ini_parse_string(text, on_pair, &load));
}

/* The whole file as text. Return 0 or -errno. */
static int read_text(const char *path, char **ret_text)
{
	char *text = ash_xcalloc(1, FILE_MAX_BYTES + 1);
	FILE *file = fopen(path, "re");
	int err = 0;
	size_t n;

	if (!file) {
		err = -errno;
		free(text);
		return err;
	}
	n = fread(text, 1, FILE_MAX_BYTES + 1, file);
	if (ferror(file))
		err = -EIO;
	else if (n > FILE_MAX_BYTES)
		err = -EFBIG;
	else if (memchr(text, '\0', n))
		err = -EBADMSG;
	fclose(file);
	if (err)
		free(text);
	else
		*ret_text = text;
	return err;
}

struct ash_error ash_conf_load(struct ash_conf *conf, const char *path, const char *const *known)
{
	char *text = NULL;
	int result = read_text(path, &text);
	struct ash_error err;

	if (result)
		return ash_error_make(ASH_E_USAGE, "%s: cannot be read: %s", path,
				      strerror(-result));
	err = ash_conf_parse(conf, text, path, known);
	free(text);
	return err;
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
