// SPDX-License-Identifier: MIT
/* ashlar volume */
#include "cli/cli.h"
#include "common/base/size.h"

#define VOLUME(text) CLI_NAME_OPT("volume", text), .required = true
#define SDC CLI_NAME_OPT("sdc", "the client"), .required = true

/* ---------------------------------------------------------------- create, delete */

static const struct cli_opt create_opts[] = {
	{CLI_NEW_NAME("of the new volume")},
	{CLI_NAME_OPT("pool", "it lives in"), .required = true},
	{.name = "size",
	 .type = CLI_SIZE,
	 .arg = "SIZE",
	 .help = "a multiple of 1 MiB",
	 .required = true},
	{.name = "thick", .type = CLI_FLAG, .help = "reserve all of it (default: thin)"},
	{CLI_DOMAIN("of the pool")},
	{0},
};

static int create(const struct cli_args *a)
{
	Pb__CmdVolumeAdd c = PB__CMD_VOLUME_ADD__INIT;
	char size[24];

	c.name = cli_text(a, "name");
	c.size = cli_number(a, "size");
	c.thin = !cli_given(a, "thick");
	return cli_command(a, PB__COMMAND__C_VOLUME_ADD, &c, "volume \"%s\" created, %s, %s",
			   c.name, ash_size_format(c.size, size, sizeof(size)),
			   c.thin ? "thin" : "thick");
}

static const struct cli_opt delete_opts[] = {
	{CLI_SUBJECT("volume", "what to delete")},
	{CLI_FORCE("although it is mapped: unmaps it first")},
	{0},
};

/* ---------------------------------------------------------------- resize, rename */

static const struct cli_opt resize_opts[] = {
	{VOLUME("to grow")},
	{.name = "size",
	 .type = CLI_SIZE,
	 .arg = "SIZE",
	 .required = true,
	 .help = "new size, a multiple of 1 MiB; a volume can only grow"},
	{0},
};

static int change(const struct cli_args *a, Pb__CmdVolumeSet *c, const char *text)
{
	return cli_command(a, PB__COMMAND__C_VOLUME_SET, c, "volume \"%s\" %s",
			   cli_text(a, "volume"), text);
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
	{VOLUME("its name now")},
	{CLI_NEW_NAME("new name"), .alias = "new-name"},
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
	{VOLUME("to map")},
	{SDC},
	{.name = "read-only", .type = CLI_FLAG, .help = "the client may not write"},
	{.name = "shared",
	 .type = CLI_FLAG,
	 .help = "although another client has it (cluster file system, live migration)"},
	{0},
};

static int map(const struct cli_args *a)
{
	Pb__CmdMap c = PB__CMD_MAP__INIT;

	c.read_only = cli_given(a, "read-only");
	c.shared = cli_given(a, "shared");
	return cli_command(a, PB__COMMAND__C_MAP, &c, "volume \"%s\" mapped to SDC \"%s\"",
			   cli_text(a, "volume"), cli_text(a, "sdc"));
}

static const struct cli_opt unmap_opts[] = {
	{VOLUME("to unmap")},
	{SDC},
	{CLI_FORCE("do not wait for servers that are away; only when they are known to be dead")},
	{0},
};

static int unmap(const struct cli_args *a)
{
	Pb__CmdUnmap c = PB__CMD_UNMAP__INIT;

	c.force = cli_given(a, "force");
	return cli_command(a, PB__COMMAND__C_UNMAP, &c, "volume \"%s\" unmapped from SDC \"%s\"",
			   cli_text(a, "volume"), cli_text(a, "sdc"));
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

static json_t *row(const struct cli_facts *f, const void *object)
{
	const Pb__Volume *v = object;

	return json_pack(
		"{s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o}", "id", cli_json_number(v->id), "name",
		cli_json_text(v->name), "pool", cli_json_text(cli_pool_name(f->map, v->pool)),
		"size_bytes", cli_json_number(v->size), "allocated_bytes",
		cli_json_number(allocated(f->status, v->id)), "type", v->thin ? "thin" : "thick",
		"mapped_to", CLI_NAMES(f->map, mappings, volume, v->id, cli_sdc_name, sdc),
		"created_unix_s", cli_json_number(v->created_unix_s));
}

static const struct cli_opt show_opts[] = {
	{CLI_SUBJECT("volume", "to show")},
	{0},
};

static const struct cli_object object = {
	CLI_IN_MAP(volumes), .noun = "volume",	  .option = "volume", .kind = PB__KIND__KIND_VOLUME,
	.key = "volumes",    .with_status = true, .cols = cols,	      .field_cols = show_cols,
	.row = row,
};

const struct cli_verb cli_volume_verbs[] = {
	{"volume", "create", "Creates a volume",
	 "The first volume of a pool waits some seconds until the pool's devices are up.",
	 "ashlar volume create --pool pool1 --name v1 --size 16GiB", create_opts, create, NULL},
	{"volume", "list", "Lists volumes", NULL, "ashlar volume list", cli_list_opts, cli_list,
	 &object},
	{"volume", "show", "Shows one volume", NULL, "ashlar volume show --volume v1", show_opts,
	 cli_show, &object},
	{"volume", "resize", "Grows a volume", NULL,
	 "ashlar volume resize --volume v1 --size 32GiB", resize_opts, resize, NULL},
	{"volume", "rename", "Gives a volume another name", NULL,
	 "ashlar volume rename --volume v1 --name database", rename_opts, rename_volume, NULL},
	{"volume", "map", "Lets a client open a volume", NULL,
	 "ashlar volume map --volume v1 --sdc sdc1", map_opts, map, NULL},
	{"volume", "unmap", "Takes a volume from a client",
	 "When the answer names servers as pending, they have not confirmed yet; until they do, I/O\n"
	 "of the client may still reach them.",
	 "ashlar volume unmap --volume v1 --sdc sdc1", unmap_opts, unmap, NULL},
	{"volume", "delete", "Deletes a volume and all its data", NULL,
	 "ashlar volume delete --volume v1", delete_opts, cli_remove, &object},
	{0},
};
