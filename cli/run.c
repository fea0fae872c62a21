// SPDX-License-Identifier: MIT
/* From argv to the verb. */
#include <string.h>

#include "cli/cli.h"

#define VERSION "0.1.0"

static int usage(const struct ash_error *err)
{
	fprintf(stderr, "ashlar: %s\n", err->message);
	return ash_code_exit(err->code);
}

static const struct cli_verb *find_noun(const char *noun)
{
	for (size_t i = 0; cli_nouns[i]; i++)
		if (!strcmp(cli_nouns[i]->noun, noun))
			return cli_nouns[i];
	return NULL;
}

static const struct cli_verb *find_verb(const struct cli_verb *verbs, const char *verb)
{
	for (const struct cli_verb *v = verbs; v->noun; v++)
		if (!strcmp(v->verb, verb))
			return v;
	return NULL;
}

static struct ash_error no_verb(const struct cli_verb *verbs, const char *verb)
{
	char list[200] = "";
	size_t at = 0;

	for (const struct cli_verb *v = verbs; v->noun && at < sizeof(list); v++)
		at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", at ? ", " : "",
				       v->verb);
	return ash_error_make(ASH_E_USAGE, "\"ashlar %s %.100s\" is unknown; verbs of %s: %s",
			      verbs->noun, verb, verbs->noun, list);
}

static struct ash_error no_noun(const char *noun)
{
	return ash_error_make(ASH_E_USAGE,
			      "\"ashlar %.100s\" is unknown; `ashlar help` lists what there is",
			      noun);
}

static int help(int argc, char **argv, FILE *out)
{
	const struct cli_verb *verbs = argc > 0 ? find_noun(argv[0]) : NULL, *verb;
	struct ash_error err;

	if (argc < 1) {
		cli_help_all(out);
		return 0;
	}
	if (!verbs) {
		err = no_noun(argv[0]);
		return usage(&err);
	}
	verb = find_verb(verbs, argc > 1 ? argv[1] : "");
	if (verb) {
		cli_help_verb(out, verb);
	} else if (argc > 1) {
		err = no_verb(verbs, argv[1]);
		return usage(&err);
	} else {
		cli_help_noun(out, verbs);
	}
	return 0;
}

static int version(int argc, char **argv, FILE *out)
{
	bool json = argc > 0 && !strcmp(argv[0], "--json");
	struct ash_error err;

	if (argc > (json ? 1 : 0)) {
		err = ash_error_make(ASH_E_USAGE, "version: unknown option %.100s",
				     argv[json ? 1 : 0]);
		return usage(&err);
	}
	fprintf(out, json ? "{\"version\": \"%s\"}\n" : "ashlar %s\n", VERSION);
	return 0;
}

/* "ashlar --json status" means "ashlar status --json": how many words stand before the object. */
static int leading(int argc, char **argv)
{
	int n = 0;

	while (n < argc && (!strcmp(argv[n], "--json") || !strncmp(argv[n], "--mdm", 5) ||
			    !strncmp(argv[n], "--timeout", 9)))
		n += !strcmp(argv[n], "--mdm") || !strcmp(argv[n], "--timeout") ? 2 : 1;
	return n < argc ? n : argc;
}

static int run_verb(const struct cli_verb *verb, int argc, char **argv, FILE *out)
{
	struct cli_args args = {.out = out};
	struct ash_error err = cli_parse(verb, argc, argv, &args);

	if (ash_failed(&err))
		return usage(&err);
	if (args.help) {
		cli_help_verb(out, verb);
		return 0;
	}
	return verb->run(&args);
}

static int is_help(const char *word)
{
	return !strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help");
}

static int run_noun(const struct cli_verb *verbs, int before, int argc, char **argv, FILE *out)
{
	const struct cli_verb *verb = find_verb(verbs, "");
	char *rest[CLI_ARGS_MAX + 2];
	struct ash_error err;
	int used = before + 1, n = 1;

	if (!verb) {
		if (used >= argc || is_help(argv[used])) {
			cli_help_noun(used >= argc ? stderr : out, verbs);
			return used >= argc ? 2 : 0;
		}
		verb = find_verb(verbs, argv[used]);
		if (!verb) {
			err = no_verb(verbs, argv[used]);
			return usage(&err);
		}
		used++;
	}
	rest[0] = argv[before];
	for (int i = 0; i < before; i++)
		rest[n++] = argv[i];
	for (int i = used; i < argc; i++)
		rest[n++] = argv[i];
	rest[n] = NULL;
	return run_verb(verb, n, rest, out);
}

int cli_run(int argc, char **argv, FILE *out)
{
	int before = leading(--argc, ++argv);
	const struct cli_verb *verbs;
	struct ash_error err;

	if (argc > CLI_ARGS_MAX) {
		err = ash_error_make(ASH_E_USAGE, "more than %d words", CLI_ARGS_MAX);
		return usage(&err);
	}
	if (before >= argc) {
		cli_help_all(stderr);
		return 2;
	}
	if (is_help(argv[before]))
		return help(argc - before - 1, argv + before + 1, out);
	if (!strcmp(argv[before], "version") || !strcmp(argv[before], "--version"))
		return version(argc - before - 1, argv + before + 1, out);
	verbs = find_noun(argv[before]);
	if (!verbs) {
		err = no_noun(argv[before]);
		return usage(&err);
	}
	return run_noun(verbs, before, argc, argv, out);
}
