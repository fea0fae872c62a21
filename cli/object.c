// SPDX-License-Identifier: MIT
/* What all objects can: be listed, be shown, be removed. */
#include <string.h>

#include "cli/cli.h"

const struct cli_opt cli_list_opts[] = {
	{.name = "names", .type = CLI_FLAG, .help = "only the names, one a line"},
	{0},
};

/* ---------------------------------------------------------------- rows */

/* The array of @o's kind in the answer. */
static void *const *objects(const struct cli_object *o, const Pb__QueryReply *q, size_t *ret_count)
{
	const char *base = !strcmp(o->from, "map") ? (const char *)q->map : (const char *)q;

	*ret_count = *(const size_t *)(const void *)(base + o->count_at);
	return *(void *const *const *)(const void *)(base + o->list_at);
}

static json_t *make_rows(const struct cli_object *o, const Pb__QueryReply *q,
			 const struct cli_facts *facts)
{
	json_t *rows = json_array();
	size_t count;
	void *const *list = objects(o, q, &count);

	for (size_t i = 0; i < count; i++)
		json_array_append_new(rows, o->row(facts, list[i]));
	return rows;
}

/* All of the verb's objects; NULL and *ret_err. */
static json_t *rows_of(const struct cli_args *a, struct ash_error *ret_err)
{
	const struct cli_object *o = a->verb->object;
	Pb__Reply *reply = cli_query(a, o->from, ret_err);
	Pb__Reply *status = reply && o->with_status ? cli_query(a, "status", ret_err) : NULL;
	struct cli_facts facts = {reply ? reply->query->map : NULL, status ? status->query : NULL};
	json_t *rows = NULL;

	if (reply && (status || !o->with_status))
		rows = make_rows(o, reply->query, &facts);
	if (reply)
		pb__reply__free_unpacked(reply, NULL);
	if (status)
		pb__reply__free_unpacked(status, NULL);
	return rows;
}

/* ---------------------------------------------------------------- verbs */

static int show_names(const struct cli_args *a, json_t *rows)
{
	json_t *names = json_array();
	const json_t *row, *name;
	size_t i;

	json_array_foreach(rows, i, row) json_array_append(names, json_object_get(row, "name"));
	json_decref(rows);
	if (a->json)
		return cli_show_json(a, json_pack("{s:o}", a->verb->object->key, names));
	json_array_foreach(names, i, name) fprintf(a->out, "%s\n", json_string_value(name));
	json_decref(names);
	return cli_written(a);
}

int cli_list(const struct cli_args *a)
{
	const struct cli_object *o = a->verb->object;
	struct ash_error err;
	json_t *rows = rows_of(a, &err);

	if (!rows)
		return cli_fail(a, &err);
	if (cli_has(a, "names") && cli_given(a, "names"))
		return show_names(a, rows);
	return cli_show_list(a, o->key, rows, o->cols);
}

int cli_show(const struct cli_args *a)
{
	const struct cli_object *o = a->verb->object;
	const char *name = cli_text(a, o->option);
	struct ash_error err;
	json_t *rows = rows_of(a, &err), *row, *one = NULL;
	size_t i;

	if (!rows)
		return cli_fail(a, &err);
	json_array_foreach(rows, i,
			   row) if (!one && !strcmp(json_string_value(json_object_get(row, "name")),
						    name)) one = json_incref(row);
	json_decref(rows);
	if (one)
		return cli_show_object(a, one, o->field_cols);
	err = ash_error_make(ASH_E_NOT_FOUND,
			     "there is no %s \"%s\"; `ashlar %s list` shows what there is", o->noun,
			     name, a->verb->noun);
	return cli_fail(a, &err);
}

int cli_remove(const struct cli_args *a)
{
	const struct cli_object *o = a->verb->object;
	Pb__CmdRemove c = PB__CMD_REMOVE__INIT;

	c.kind = o->kind;
	c.force = cli_has(a, "force") && cli_given(a, "force");
	return cli_command(a, PB__COMMAND__C_REMOVE, &c, "%s \"%s\" removed", o->noun,
			   cli_text(a, o->option));
}

/* ---------------------------------------------------------------- names */

#define NAME_OF(fn, list)                                                                          \
	const char *fn(const Pb__Map *map, uint64_t id)                                            \
	{                                                                                          \
		for (size_t i = 0; i < map->n_##list; i++)                                         \
			if (map->list[i]->id == id)                                                \
				return map->list[i]->name;                                         \
		return "";                                                                         \
	}

NAME_OF(cli_domain_name, domains)
NAME_OF(cli_fault_set_name, fault_sets)
NAME_OF(cli_sds_name, sdss)
NAME_OF(cli_pool_name, pools)
NAME_OF(cli_volume_name, volumes)
NAME_OF(cli_sdc_name, sdcs)
