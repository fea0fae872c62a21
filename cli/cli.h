/* SPDX-License-Identifier: MIT */
/*
 * `ashlar`: the command line. Each object has one file: a table of verbs, for each verb a table of
 * options (from which parsing, checks and help come), and a description of the object, from which
 * the verbs that all objects have come (object.c). A verb asks the MDM, makes one JSON value of the
 * answer and hands it to cli_show: with --json that value is printed, without it a table made of
 * it, so that people and programs see the same. One thread.
 */
#ifndef ASHLAR_CLI_CLI_H
#define ASHLAR_CLI_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/err.h"
#include "common/mgmt/mgmt.h"
#include "proto/mgmt/ashlar.pb-c.h"

#define CLI_OPTS_MAX 24
#define CLI_LIST_MAX 16
#define CLI_ARGS_MAX 256

enum cli_type {
	CLI_TEXT, /* anything but the empty string */
	CLI_NAME, /* as common/base/name.h */
	CLI_FLAG, /* no value */
	CLI_SIZE,
	CLI_PERCENT,
	CLI_NUMBER, /* in [min, max] */
	CLI_GUID,
	CLI_CHOICE, /* one of @choices */
};

struct cli_opt {
	const char *name;
	enum cli_type type;
	const char *arg; /* what help calls the value */
	const char *help;
	bool required, many;
	uint64_t min, max;
	const char *alias;   /* a second spelling */
	const char *choices; /* "on|off" */
};

/* Options that many verbs have; { } and what is special about one stand where they are used. */
#define CLI_NAME_OPT(option, text) .name = option, .type = CLI_NAME, .arg = "NAME", .help = text
#define CLI_NEW_NAME(text) CLI_NAME_OPT("name", text), .required = true
#define CLI_DOMAIN(text) CLI_NAME_OPT("protection-domain", text)
#define CLI_DOMAIN_IF_SEVERAL CLI_DOMAIN("when several have one of that name")
/* The object that a verb is about: --pool P, and --name P for those who expect that. */
#define CLI_SUBJECT(option, text) CLI_NAME_OPT(option, text), .required = true, .alias = "name"
#define CLI_FORCE(text) .name = "force", .type = CLI_FLAG, .help = text

struct cli_value {
	char *text;	 /* NULL: not given; the last one when given several times */
	uint64_t number; /* also: index into choices */
	uint8_t guid[16];
	char *list[CLI_LIST_MAX];
	size_t count;
};

struct cli_args {
	const struct cli_verb *verb;
	struct cli_value value[CLI_OPTS_MAX];
	bool json, help;
	const char *mdms; /* NULL: from the environment */
	uint32_t timeout_ms;
	uint64_t deadline_ms; /* end of the whole command, as cli_now_ms() */
	FILE *out;
};

struct cli_verb {
	const char *noun, *verb; /* verb "" when the noun stands alone */
	const char *help;	 /* one line */
	const char *more;	 /* what else one should know; may be NULL */
	const char *example;
	const struct cli_opt *opts;	      /* ends with a name of NULL; may be NULL */
	int (*run)(const struct cli_args *a); /* returns the exit code */
	const struct cli_object *object;      /* for cli_list, cli_show and cli_remove */
};

/* Each ends with a noun of NULL. */
extern const struct cli_verb cli_system_verbs[], cli_domain_verbs[], cli_fault_set_verbs[],
	cli_sds_verbs[], cli_device_verbs[], cli_pool_verbs[], cli_volume_verbs[], cli_sdc_verbs[],
	cli_mapping_verbs[], cli_mdm_verbs[], cli_event_verbs[], cli_status_verbs[],
	cli_nbd_verbs[];

/* ---------------------------------------------------------------- args.c */

/**
 * cli_parse() - the options of @verb.
 * @argv: [0] is skipped; may hold options only.
 * Return: code 0 or ASH_E_USAGE; the message names the option, what is wrong with it and what is
 * right. With --help given nothing else is checked (args->help).
 */
struct ash_error cli_parse(const struct cli_verb *verb, int argc, char **argv,
			   struct cli_args *ret_args);
/* Option by name, which must be in the verb's table; "" and 0 when not given. */
char *cli_text(const struct cli_args *a, const char *name);
uint64_t cli_number(const struct cli_args *a, const char *name);
bool cli_has(const struct cli_args *a, const char *name); /* the verb has the option */
bool cli_given(const struct cli_args *a, const char *name);
const struct cli_value *cli_value(const struct cli_args *a, const char *name);

/* ---------------------------------------------------------------- help.c */

void cli_help_all(FILE *out);
void cli_help_noun(FILE *out, const struct cli_verb *verbs);
void cli_help_verb(FILE *out, const struct cli_verb *verb);
/* Verb tables of all nouns, the end NULL. */
extern const struct cli_verb *const cli_nouns[];

/* ---------------------------------------------------------------- show.c */

enum cli_col_type { CLI_COL_TEXT, CLI_COL_NUMBER, CLI_COL_SIZE, CLI_COL_FLAG, CLI_COL_LIST };
struct cli_col {
	const char *title, *key; /* ends with a title of NULL */
	enum cli_col_type type;
};

/* Both take @rows or @object over from nobody: they only read. */
void cli_table(FILE *out, const json_t *rows, const struct cli_col *cols);
void cli_fields(FILE *out, const json_t *object, const struct cli_col *cols);
/* {"<key>": rows} or a table. Frees @rows. Returns 0, or 4 when the output cannot be written. */
int cli_show_list(const struct cli_args *a, const char *key, json_t *rows,
		  const struct cli_col *cols);
int cli_show_object(const struct cli_args *a, json_t *object, const struct cli_col *cols);
/* Prints @value over several lines; frees it. */
int cli_show_json(const struct cli_args *a, json_t *value);
/* All is out: 0; or 4, with a message. */
int cli_written(const struct cli_args *a);
/* The message on stderr (with --json also {"error": …} on stdout). Returns the exit code. */
int cli_fail(const struct cli_args *a, const struct ash_error *err);
/* Never NULL: what is not UTF-8 is shown with question marks. */
json_t *cli_json_text(const char *text);
json_t *cli_json_number(uint64_t number);
json_t *cli_json_uuid(const ProtobufCBinaryData *uuid);
json_t *cli_json_error(const struct ash_error *err);

/* ---------------------------------------------------------------- call.c */

typedef Pb__Reply *cli_call_fn(const struct ash_mgmt_opts *opts, Pb__Request *req, bool any,
			       uint32_t timeout_ms, struct ash_error *ret_err);
typedef uint64_t cli_clock_fn(void);
/* ash_mgmt_call_sync and CLOCK_MONOTONIC; tests put their own here. */
extern cli_call_fn *cli_call;
extern cli_clock_fn *cli_now_ms;

/* Until the end of the command; 0: it is over. */
uint32_t cli_left_ms(const struct cli_args *a);
/* @a with at most @ms left, for one step of a command. */
struct cli_args cli_within(const struct cli_args *a, uint32_t ms);

/*
 * A moment between two questions about what goes on elsewhere: an MDM tells an administrator's
 * connection nothing by itself, only servers and clients of a system follow its map. False when the
 * time of the command is over.
 */
bool cli_pause(const struct cli_args *a);

/* @mdms: NULL = those of @a. NULL and *ret_err when it failed. */
Pb__Reply *cli_ask(const struct cli_args *a, const char *mdms, Pb__Request *req, bool any,
		   struct ash_error *ret_err);
/*
 * reply->query is there; with what "map" also reply->query->map. With "events" the verb's options
 * --after and --limit count, where it has them.
 */
Pb__Reply *cli_query(const struct cli_args *a, const char *what, struct ash_error *ret_err);
/*
 * As cli_query. When no leader answers in time, any MDM may: then *ret_no_leader says why no leader
 * did; else its code is 0.
 */
Pb__Reply *cli_query_any(const struct cli_args *a, const char *what,
			 struct ash_error *ret_no_leader, struct ash_error *ret_err);
/* Sends the command of kind @c_case, as cli_command does. NULL and *ret_err when it was refused. */
Pb__Reply *cli_change(const struct cli_args *a, Pb__Command__CCase c_case, void *body,
		      struct ash_error *ret_err);
/* Says @text, and what the MDM notes in @reply. Returns the exit code. */
int cli_show_change(const struct cli_args *a, const Pb__Reply *reply, const char *text);
/*
 * Sends the command of kind @c_case with that body (a Pb__Cmd...); objects that it concerns are
 * named by the verb's options (--pool, --sds, ...). Says @what (like "volume \"v1\" created").
 * Returns the exit code.
 */
int cli_command(const struct cli_args *a, Pb__Command__CCase c_case, void *body, const char *what,
		...) __attribute__((format(printf, 4, 5)));

/* ---------------------------------------------------------------- device_wait.c */

/* Until the SDS has opened the device @id, or failed: then the error says why. */
struct ash_error cli_device_wait(const struct cli_args *a, uint64_t id);

/* ---------------------------------------------------------------- object.c */

/* What rows are made of. */
struct cli_facts {
	const Pb__Map *map;	      /* objects in the map only */
	const Pb__QueryReply *status; /* with_status only */
};

struct cli_object {
	const char *noun;   /* in messages: "storage pool" */
	const char *option; /* that names it: "pool" */
	Pb__Kind kind;
	const char *key;		  /* of its list in JSON: "pools" */
	const char *from;		  /* the query that brings it: CLI_IN_MAP or CLI_IN_REPLY */
	size_t count_at, list_at;	  /* in the map ("map"), else in the answer to the query */
	bool with_status;		  /* rows need the answer to the query "status" too */
	const struct cli_col *cols;	  /* of the list */
	const struct cli_col *field_cols; /* of one; may be NULL */
	json_t *(*row)(const struct cli_facts *f, const void *object);
};
#define CLI_IN_MAP(field)                                                                          \
	.from = "map", .count_at = offsetof(Pb__Map, n_##field), .list_at = offsetof(Pb__Map, field)
#define CLI_IN_REPLY(query, field)                                                                 \
	.from = query, .count_at = offsetof(Pb__QueryReply, n_##field),                            \
	.list_at = offsetof(Pb__QueryReply, field)

/* Verbs of every object: all of a kind; one, by its name; the removal of one, by its name. */
int cli_list(const struct cli_args *a);
int cli_show(const struct cli_args *a);
int cli_remove(const struct cli_args *a);
/* For objects with names: --names. */
extern const struct cli_opt cli_list_opts[];

/* Names of the map's objects; "" when there is none of that id. */
const char *cli_domain_name(const Pb__Map *map, uint64_t id);
const char *cli_fault_set_name(const Pb__Map *map, uint64_t id);
const char *cli_sds_name(const Pb__Map *map, uint64_t id);
const char *cli_pool_name(const Pb__Map *map, uint64_t id);
const char *cli_volume_name(const Pb__Map *map, uint64_t id);
const char *cli_sdc_name(const Pb__Map *map, uint64_t id);
/* How many objects of a list of the map have that id in a field of theirs. */
#define CLI_COUNT(map, list, field, id)                                                            \
	({                                                                                         \
		json_int_t count_ = 0;                                                             \
		for (size_t i_ = 0; i_ < (map)->n_##list; i_++)                                    \
			count_ += (map)->list[i_]->field == (id);                                  \
		count_;                                                                            \
	})
/* And what they are called: name_of(map, name_id of theirs). */
#define CLI_NAMES(map, list, field, id, name_of, name_id)                                          \
	({                                                                                         \
		json_t *names_ = json_array();                                                     \
		for (size_t i_ = 0; i_ < (map)->n_##list; i_++)                                    \
			if ((map)->list[i_]->field == (id))                                        \
				json_array_append_new(                                             \
					names_,                                                    \
					cli_json_text(name_of(map, (map)->list[i_]->name_id)));    \
		names_;                                                                            \
	})

/* ---------------------------------------------------------------- main */

/* The whole program; returns the exit code. */
int cli_run(int argc, char **argv, FILE *out);

#endif
