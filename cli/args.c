// SPDX-License-Identifier: MIT
/* Options out of argv, checked by the verb's table. */
#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/base/name.h"
#include "common/base/size.h"
#include "common/base/uuid.h"

#define TIMEOUT_S 20
#define TIMEOUT_S_MAX 3600

enum { OPT_JSON = 1000, OPT_MDM, OPT_TIMEOUT, OPT_HELP, OPT_ALIAS = 500 };

static const struct option globals[] = {
	{"json", no_argument, NULL, OPT_JSON},
	{"mdm", required_argument, NULL, OPT_MDM},
	{"timeout", required_argument, NULL, OPT_TIMEOUT},
	{"help", no_argument, NULL, OPT_HELP},
};

/* Its place in the verb's table, or -1. */
static int place(const struct cli_verb *verb, const char *name)
{
	for (int i = 0; verb->opts && verb->opts[i].name; i++)
		if (!strcmp(verb->opts[i].name, name))
			return i;
	return -1;
}

/* A verb's own option wins over the general one of that name. */
static void make_table(const struct cli_verb *verb, struct option *table)
{
	size_t n = 0;
	int i = 0;

	for (const struct cli_opt *o = verb->opts; o && o->name; o++, i++) {
		int has_arg = o->type == CLI_FLAG ? no_argument : required_argument;

		assert(i < CLI_OPTS_MAX);
		table[n++] = (struct option){o->name, has_arg, NULL, i + 1};
		if (o->alias)
			table[n++] = (struct option){o->alias, has_arg, NULL, i + 1 + OPT_ALIAS};
	}
	for (size_t k = 0; k < sizeof(globals) / sizeof(globals[0]); k++)
		if (place(verb, globals[k].name) < 0)
			table[n++] = globals[k];
	table[n] = (struct option){0};
}

static struct ash_error bad_value(const struct cli_opt *o, const char *text, const char *right)
{
	return ash_error_make(ASH_E_USAGE, "--%s %.100s: %s", o->name, *text ? text : "\"\"",
			      right);
}

static bool find_choice(const char *choices, const char *text, uint64_t *ret_index)
{
	size_t length = strlen(text);

	for (uint64_t i = 0; choices; i++) {
		size_t n = strcspn(choices, "|");

		if (n == length && !memcmp(choices, text, n)) {
			*ret_index = i;
			return true;
		}
		choices = choices[n] ? choices + n + 1 : NULL;
	}
	return false;
}

static struct ash_error check_number(const struct cli_opt *o, const char *text, uint64_t *number)
{
	uint64_t max = o->max ? o->max : UINT64_MAX;

	if (ash_u64_parse(text, o->min, max, number))
		return ash_error_make(ASH_E_USAGE,
				      "--%s %.100s: give a whole number from %llu to %llu", o->name,
				      text, (unsigned long long)o->min, (unsigned long long)max);
	return ash_error_ok();
}

static struct ash_error check_value(const struct cli_opt *o, char *text, struct cli_value *v)
{
	struct ash_error err;
	uint32_t percent;

	if (!*text && o->type != CLI_FLAG)
		return bad_value(o, text, "is empty; give a value");
	switch (o->type) {
	case CLI_NAME:
		err = ash_name_check(o->name, text);
		if (ash_failed(&err))
			return bad_value(o, text,
					 "a name has 1 to 63 characters of A-Z a-z 0-9 . _ - "
					 "and begins with a letter or a digit");
		break;
	case CLI_SIZE:
		if (ash_size_parse(text, &v->number))
			return bad_value(o, text,
					 "is not a size; give bytes, or a binary unit as in "
					 "512MiB, 16GiB, 1.5TiB");
		break;
	case CLI_PERCENT:
		if (ash_percent_parse(text, &percent))
			return bad_value(o, text, "is not a percentage from 0% to 100%");
		v->number = percent;
		break;
	case CLI_NUMBER:
		return check_number(o, text, &v->number);
	case CLI_GUID:
		if (ash_uuid_parse(text, v->guid))
			return bad_value(o, text,
					 "is not a GUID, as in "
					 "6ba7b810-9dad-41d1-80b4-00c04fd430c8");
		break;
	case CLI_CHOICE:
		if (!find_choice(o->choices, text, &v->number))
			return bad_value(o, text, o->help);
		break;
	case CLI_TEXT:
	case CLI_FLAG:
		break;
	}
	return ash_error_ok();
}

static struct ash_error take(struct cli_args *a, int index, char *text)
{
	const struct cli_opt *o = &a->verb->opts[index];
	struct cli_value *v = &a->value[index];
	struct ash_error err = check_value(o, text, v);

	if (ash_failed(&err))
		return err;
	if (v->text && !o->many && o->type != CLI_FLAG)
		return ash_error_make(ASH_E_USAGE, "--%s is given twice; give it once", o->name);
	if (v->count == CLI_LIST_MAX)
		return ash_error_make(ASH_E_USAGE, "--%s is given more than %d times", o->name,
				      CLI_LIST_MAX);
	v->text = text;
	if (o->many)
		v->list[v->count++] = text;
	return ash_error_ok();
}

static struct ash_error take_global(struct cli_args *a, int code, char *text)
{
	uint64_t seconds;

	switch (code) {
	case OPT_JSON:
		a->json = true;
		break;
	case OPT_MDM:
		a->mdms = text;
		if (!*text)
			return ash_error_make(ASH_E_USAGE, "--mdm is empty; give HOST:PORT[,...]");
		break;
	case OPT_TIMEOUT:
		if (ash_u64_parse(text, 1, TIMEOUT_S_MAX, &seconds))
			return ash_error_make(ASH_E_USAGE,
					      "--timeout %.100s: give whole seconds from 1 to %d",
					      text, TIMEOUT_S_MAX);
		a->timeout_ms = (uint32_t)seconds * 1000;
		break;
	default:
		a->help = true;
	}
	return ash_error_ok();
}

static void command_name(const struct cli_verb *verb, char *buf, size_t room)
{
	snprintf(buf, room, "%s%s%s", verb->noun, *verb->verb ? " " : "", verb->verb);
}

static struct ash_error unknown(const struct cli_verb *verb, const char *token)
{
	char name[80];

	command_name(verb, name, sizeof(name));
	return ash_error_make(ASH_E_USAGE,
			      "%s: unknown option %.*s; `ashlar %s --help` lists what there is",
			      name, (int)strcspn(token, "="), token, name);
}

/* Options are never abbreviated: a script must not change its meaning when an option is added. */
static bool abbreviated(const char *token, const struct option *table, int index)
{
	return strncmp(token, "--", 2) || strcspn(token + 2, "=") != strlen(table[index].name);
}

static struct ash_error check_required(const struct cli_args *a)
{
	int i = 0;

	for (const struct cli_opt *o = a->verb->opts; o && o->name; o++, i++) {
		char name[80];

		if (!o->required || a->value[i].text)
			continue;
		command_name(a->verb, name, sizeof(name));
		return ash_error_make(ASH_E_USAGE, "%s: --%s %s is missing (%s)", name, o->name,
				      o->arg ? o->arg : "", o->help);
	}
	return ash_error_ok();
}

static struct ash_error next(struct cli_args *a, const struct option *table, int argc, char **argv,
			     bool *ret_over)
{
	int index = 0, at = optind ? optind : 1, code;
	char *token = at < argc ? argv[at] : NULL;

	code = getopt_long(argc, argv, "+:h", table, &index);
	*ret_over = code == -1;
	if (code == -1)
		return ash_error_ok();
	if (code == 'h') {
		a->help = true;
		return ash_error_ok();
	}
	if (code == ':')
		return ash_error_make(ASH_E_USAGE, "%.100s needs a value", token);
	if (code == '?' && !strncmp(token, "--", 2) && strchr(token, '=') && optopt)
		return ash_error_make(ASH_E_USAGE, "%.*s takes no value", (int)strcspn(token, "="),
				      token);
	if (code == '?' || abbreviated(token, table, index))
		return unknown(a->verb, token);
	if (code >= OPT_JSON)
		return take_global(a, code, optarg);
	return take(a, (code > OPT_ALIAS ? code - OPT_ALIAS : code) - 1,
		    optarg ? optarg : (char *)"yes");
}

struct ash_error cli_parse(const struct cli_verb *verb, int argc, char **argv,
			   struct cli_args *ret_args)
{
	struct option table[2 * CLI_OPTS_MAX + 8];
	struct ash_error err = ash_error_ok();
	bool over = false;
	char name[80];
	FILE *out = ret_args->out;

	*ret_args = (struct cli_args){.verb = verb, .timeout_ms = TIMEOUT_S * 1000, .out = out};
	make_table(verb, table);
	optind = 0;
	opterr = 0;
	while (!over && !ash_failed(&err))
		err = next(ret_args, table, argc, argv, &over);
	ret_args->deadline_ms = cli_now_ms() + ret_args->timeout_ms;
	if (ret_args->help || ash_failed(&err))
		return ret_args->help ? ash_error_ok() : err;
	if (optind < argc) {
		command_name(verb, name, sizeof(name));
		return ash_error_make(ASH_E_USAGE,
				      "%s: \"%.100s\" is not an option; values follow an option "
				      "as in --name v1",
				      name, argv[optind]);
	}
	return check_required(ret_args);
}

const struct cli_value *cli_value(const struct cli_args *a, const char *name)
{
	int i = place(a->verb, name);

	assert(i >= 0); /* the verb reads an option that its table lacks */
	return &a->value[i];
}

bool cli_has(const struct cli_args *a, const char *name)
{
	return place(a->verb, name) >= 0;
}

char *cli_text(const struct cli_args *a, const char *name)
{
	char *text = cli_value(a, name)->text;

	return text ? text : (char *)protobuf_c_empty_string;
}

uint64_t cli_number(const struct cli_args *a, const char *name)
{
	return cli_value(a, name)->number;
}

bool cli_given(const struct cli_args *a, const char *name)
{
	return cli_value(a, name)->text != NULL;
}
