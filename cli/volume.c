// SPDX-License-Identifier: MIT
/* ashlar volume */
#include <string.h>

#include "cli/cli.h"
#include "common/base/size.h"

#define VOLUME_OPT(help_)                                                                          \
	{                                                                                          \
		.name = "volume", .type = CLI_NAME, .arg = "NAME", .help = help_, .required = true \
	}
#define SDC_OPT                                                                                    \
	{                                                                                          \
		.name = "sdc", .type = CLI_NAME, .arg = "NAME", .help = "the client",              \
		.required = true                                                                   \
	}

/* ---------------------------------------------------------------- create, delete */

static const struct cli_opt create_opts[] = {
	{.name = "name",
	 .type = CLI_NAME,
	 .arg = "NAME",
	 .help = "of the new volume",
	 .required = true},
	{.name = "pool", .type = CLI_NAME, .arg = "NAME", .help = "it lives in", .required = true},
	{.name = "size",
	 .type = CLI_SIZE,
	 .arg = "SIZE",
	 .help = "a multiple of 1 MiB",
	 .required = true},
	{.name = "thick", .type = CLI_FLAG, .help = "reserve all of it (default: thin)"},
	{.name = "protection-domain", .type = CLI_NAME, .arg = "NAME", .help = "of the pool"},
	{0},
};

static int create(const struct cli_args *a)
{
	Pb__Admin admin = PB__ADMIN__INIT;
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdVolumeAdd c = PB__CMD_VOLUME_ADD__INIT;
	char size[24];

	c.name = cli_text(a, "name");
	c.size = cli_number(a, "size");
	c.thin = !cli_given(a, "thick");
	cmd.c_case = PB__COMMAND__C_VOLUME_ADD;
	cmd.volume_add = &c;
	admin.command = &cmd;
	admin.pool = cli_text(a, "pool");
	admin.domain = cli_text(a, "protection-domain");
	return cli_change(a, &admin, "volume \"%s\" created, %s, %s", c.name,
			  ash_size_format(c.size, size, sizeof(size)), c.thin ? "thin" : "thick");
}

static const struct cli_opt delete_opts[] = {
	{.name = "volume",
	 .type = CLI_NAME,
	 .arg = "NAME",
	 .help = "what to delete",
	 .required = true,
	 .alias = "name"},
	{.name = "force", .type = CLI_FLAG, .help = "although it is mapped: unmaps it first"},
	{0},
};

static int delete (const struct cli_args *a)
{
	Pb__Admin admin = PB__ADMIN__INIT;

	admin.volume = cli_text(a, "volume");
	return cli_remove(a, &admin, PB__KIND__KIND_VOLUME, cli_given(a, "force"), "volume",
			  admin.volume);
}

/* ---------------------------------------------------------------- resize, rename */

static const struct cli_opt resize_opts[] = {
	VOLUME_OPT("to grow"),
	{.name = "size",
	 .type = CLI_SIZE,
	 .arg = "SIZE",
	 .required = true,
	 .help = "new size, a multiple of 1 MiB; a volume can only grow"},
	{0},
};

static int change(const struct cli_args *a, Pb__CmdVolumeSet *c, const char *text)
{
	Pb__Admin admin = PB__ADMIN__INIT;
	Pb__Command cmd = PB__COMMAND__INIT;

	cmd.c_case = PB__COMMAND__C_VOLUME_SET;
	cmd.volume_set = c;
	admin.command = &cmd;
	admin.volume = cli_text(a, "volume");
	return cli_change(a, &admin, "volume \"%s\" %s", admin.volume, text);
}

static int resize(const struct cli_args *a)
{
	Pb__CmdVolumeSet c = PB__CMD_VOLUME_SET__INIT;
	char size[24], text[64];

	c.size = cli_number(a, "size");
	if (!c.size) { /* the MDM takes 0 for "as it is" */
		struct ash_error err = ash_error_make(
			ASH_E_USAGE, "--size %s: a volume has at least 1 MiB", cli_text(a, "size"));

		return cli_fail(a, &err);
	}
	snprintf(text, sizeof(text), "has %s now", ash_size_format(c.size, size, sizeof(size)));
	return change(a, &c, text);
}

static const struct cli_opt rename_opts[] = {
	VOLUME_OPT("its name now"),
	{.name = "name",
	 .type = CLI_NAME,
	 .arg = "NAME",
	 .help = "new name",
	 .required = true,
	 .alias = "new-name"},
	{0},
};

static int rename_volume(const struct cli_args *a)
{
	Pb__CmdVolumeSet c = PB__CMD_VOLUME_SET__INIT;
	char text[96];

	c.name = cli_text(a, "name");
	snprintf(text, sizeof(text), "is called \"%s\" now", c.name);
	return change(a, &c, text);
}

/* ---------------------------------------------------------------- map, unmap */

static const struct cli_opt map_opts[] = {
	VOLUME_OPT("to map"),
	SDC_OPT,
	{.name = "read-only", .type = CLI_FLAG, .help = "the client may not write"},
	{.name = "shared",
	 .type = CLI_FLAG,
	 .help = "although another client has it (cluster file system, live migration)"},
	{0},
};

static int map(const struct cli_args *a)
{
	Pb__Admin admin = PB__ADMIN__INIT;
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdMap c = PB__CMD_MAP__INIT;

	c.read_only = cli_given(a, "read-only");
	c.shared = cli_given(a, "shared");
	cmd.c_case = PB__COMMAND__C_MAP;
	cmd.map = &c;
	admin.command = &cmd;
	admin.volume = cli_text(a, "volume");
	admin.sdc = cli_text(a, "sdc");
	return cli_change(a, &admin, "volume \"%s\" mapped to SDC \"%s\"", admin.volume, admin.sdc);
}

static const struct cli_opt unmap_opts[] = {
	VOLUME_OPT("to unmap"),
	SDC_OPT,
	{.name = "force",
	 .type = CLI_FLAG,
	 .help = "do not wait for servers that are away; only when they are known to be dead"},
	{0},
};

static int unmap(const struct cli_args *a)
{
	Pb__Admin admin = PB__ADMIN__INIT;
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdUnmap c = PB__CMD_UNMAP__INIT;

	c.force = cli_given(a, "force");
	cmd.c_case = PB__COMMAND__C_UNMAP;
	cmd.unmap = &c;
	admin.command = &cmd;
	admin.volume = cli_text(a, "volume");
	admin.sdc = cli_text(a, "sdc");
	return cli_change(a, &admin, "volume \"%s\" unmapped from SDC \"%s\"", admin.volume,
			  admin.sdc);
}

/* ---------------------------------------------------------------- list, show */

static const struct cli_col cols[] = {
	{"NAME", "name", CLI_COL_TEXT},
	{"POOL", "pool", CLI_COL_TEXT},
	{"SIZE", "size_bytes", CLI_COL_SIZE},
	{"ALLOCATED", "allocated_bytes", CLI_COL_SIZE},
	{"TYPE", "type", CLI_COL_TEXT},
	{"MAPPED TO", "mapped_to", CLI_COL_LIST},
	{0},
};

static const struct cli_col show_cols[] = {
	{"Name", "name", CLI_COL_TEXT},
	{"Id", "id", CLI_COL_NUMBER},
	{"Storage pool", "pool", CLI_COL_TEXT},
	{"Size", "size_bytes", CLI_COL_SIZE},
	{"Allocated", "allocated_bytes", CLI_COL_SIZE},
	{"Type", "type", CLI_COL_TEXT},
	{"Mapped to", "mapped_to", CLI_COL_LIST},
	{0},
};

static uint64_t allocated(const Pb__QueryReply *status, uint64_t volume)
{
	for (size_t i = 0; i < status->n_volumes; i++)
		if (status->volumes[i]->volume == volume)
			return status->volumes[i]->allocated;
	return 0;
}

static json_t *mapped_to(const Pb__Map *m, uint64_t volume)
{
	json_t *names = json_array();

	for (size_t i = 0; i < m->n_mappings; i++)
		if (m->mappings[i]->volume == volume)
			json_array_append_new(names,
					      cli_json_text(cli_sdc_name(m, m->mappings[i]->sdc)));
	return names;
}

static json_t *row(const Pb__Map *m, const Pb__QueryReply *status, const Pb__Volume *v)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o}", "id", cli_json_number(v->id),
			 "name", cli_json_text(v->name), "pool",
			 cli_json_text(cli_pool_name(m, v->pool)), "size_bytes",
			 cli_json_number(v->size), "allocated_bytes",
			 cli_json_number(allocated(status, v->id)), "type",
			 v->thin ? "thin" : "thick", "mapped_to", mapped_to(m, v->id),
			 "created_unix_s", cli_json_number(v->created_unix_s));
}

/* All volumes, or the one called @name; NULL and *ret_err. */
static json_t *volumes(const struct cli_args *a, const char *name, struct ash_error *ret_err)
{
	Pb__Reply *reply = cli_query(a, "map", ret_err);
	Pb__Reply *status = reply ? cli_query(a, "status", ret_err) : NULL;
	json_t *rows = status ? json_array() : NULL;

	for (size_t i = 0; status && i < reply->query->map->n_volumes; i++) {
		const Pb__Volume *v = reply->query->map->volumes[i];

		if (!name || !strcmp(name, v->name))
			json_array_append_new(rows, row(reply->query->map, status->query, v));
	}
	if (reply)
		pb__reply__free_unpacked(reply, NULL);
	if (status)
		pb__reply__free_unpacked(status, NULL);
	return rows;
}

static int list(const struct cli_args *a)
{
	struct ash_error err;
	json_t *rows = volumes(a, NULL, &err);

	return rows ? cli_show_list(a, "volumes", rows, cols) : cli_fail(a, &err);
}

static const struct cli_opt show_opts[] = {
	{.name = "volume",
	 .type = CLI_NAME,
	 .arg = "NAME",
	 .help = "to show",
	 .required = true,
	 .alias = "name"},
	{0},
};

static int show(const struct cli_args *a)
{
	struct ash_error err;
	json_t *rows = volumes(a, cli_text(a, "volume"), &err), *one;

	if (!rows)
		return cli_fail(a, &err);
	one = json_incref(json_array_get(rows, 0));
	json_decref(rows);
	if (one)
		return cli_show_object(a, one, show_cols);
	err = ash_error_make(ASH_E_NOT_FOUND,
			     "there is no volume \"%s\"; `ashlar volume list` shows what there is",
			     cli_text(a, "volume"));
	return cli_fail(a, &err);
}

const struct cli_verb cli_volume_verbs[] = {
	{"volume", "create", "Creates a volume",
	 "The first volume of a pool waits some seconds until the pool's devices are up.",
	 "ashlar volume create --pool pool1 --name v1 --size 16GiB", create_opts, create},
	{"volume", "list", "Lists volumes", NULL, "ashlar volume list", NULL, list},
	{"volume", "show", "Shows one volume", NULL, "ashlar volume show --volume v1", show_opts,
	 show},
	{"volume", "resize", "Grows a volume", NULL,
	 "ashlar volume resize --volume v1 --size 32GiB", resize_opts, resize},
	{"volume", "rename", "Gives a volume another name", NULL,
	 "ashlar volume rename --volume v1 --name database", rename_opts, rename_volume},
	{"volume", "map", "Lets a client open a volume", NULL,
	 "ashlar volume map --volume v1 --sdc sdc1", map_opts, map},
	{"volume", "unmap", "Takes a volume from a client",
	 "When the answer names servers as pending, they have not confirmed yet; until they do, I/O\n"
	 "of the client may still reach them.",
	 "ashlar volume unmap --volume v1 --sdc sdc1", unmap_opts, unmap},
	{"volume", "delete", "Deletes a volume and all its data", NULL,
	 "ashlar volume delete --volume v1", delete_opts, delete},
	{0},
};
