// SPDX-License-Identifier: MIT
/* ashlar pool */
#include <string.h>

#include "cli/cli.h"

#define SPARE_PCT 10
#define POLICIES "unlimited|limit-concurrent|favor-app|dynamic"
#define POLICY_HELP "give unlimited, limit-concurrent, favor-app or dynamic"

static const struct cli_opt create_opts[] = {
	{CLI_NEW_NAME("of the new pool")},
	{CLI_DOMAIN("it belongs to"), .required = true},
	{.name = "pg-count",
	 .type = CLI_NUMBER,
	 .arg = "N",
	 .min = 16,
	 .max = 65536,
	 .help = "placement groups, a power of two; fixed for ever"},
	{.name = "spare",
	 .type = CLI_PERCENT,
	 .arg = "PERCENT",
	 .help = "capacity kept free for rebuilds (default 10%)"},
	{.name = "zero-padding", .type = CLI_FLAG, .help = "zero what is handed out"},
	{0},
};

static int create(const struct cli_args *a)
{
	Pb__CmdPoolAdd c = PB__CMD_POOL_ADD__INIT;

	c.name = cli_text(a, "name");
	c.pg_count = (uint32_t)cli_number(a, "pg-count");
	c.spare_pct = cli_given(a, "spare") ? (uint32_t)cli_number(a, "spare") : SPARE_PCT;
	c.zero_padding = cli_given(a, "zero-padding");
	return cli_command(a, PB__COMMAND__C_POOL_ADD, &c, "storage pool \"%s\" created", c.name);
}

/* ---------------------------------------------------------------- set */

/* How fast data is moved, for one reason to move it. */
#define POLICY_OPTS(why)                                                                           \
	{.name = why "-policy",                                                                    \
	 .type = CLI_CHOICE,                                                                       \
	 .arg = "POLICY",                                                                          \
	 .choices = POLICIES,                                                                      \
	 .help = POLICY_HELP},                                                                     \
		{.name = why "-concurrent",                                                        \
		 .type = CLI_NUMBER,                                                               \
		 .arg = "N",                                                                       \
		 .min = 1,                                                                         \
		 .max = 1024,                                                                      \
		 .help = "operations at a time per device"},                                       \
	{                                                                                          \
		.name = why "-bandwidth", .type = CLI_SIZE, .arg = "SIZE",                         \
		.help = "per second and device"                                                    \
	}

static const struct cli_opt set_opts[] = {
	{CLI_NAME_OPT("pool", "to change"), .required = true},
	{CLI_DOMAIN_IF_SEVERAL},
	{CLI_NAME_OPT("name", "new name")},
	{.name = "spare", .type = CLI_PERCENT, .arg = "PERCENT", .help = "kept free for rebuilds"},
	{.name = "zero-padding",
	 .type = CLI_CHOICE,
	 .arg = "on|off",
	 .choices = "off|on",
	 .help = "give on or off; only while the pool has no device"},
	POLICY_OPTS("rebuild"),
	{.name = "rebuild-grace",
	 .type = CLI_NUMBER,
	 .arg = "SECONDS",
	 .min = 1,
	 .max = 86400,
	 .help = "wait for a lost device before data is rebuilt elsewhere"},
	POLICY_OPTS("rebalance"),
	{0},
};

/* A policy is replaced as a whole: what is not given keeps the value that it has. */
static bool change_policy(const struct cli_args *a, const char *const names[3], Pb__Policy *p)
{
	if (cli_given(a, names[0]))
		p->kind = (Pb__PolicyKind)cli_number(a, names[0]);
	if (cli_given(a, names[1]))
		p->concurrent_per_device = (uint32_t)cli_number(a, names[1]);
	if (cli_given(a, names[2]))
		p->bw_kib_per_s = (uint32_t)(cli_number(a, names[2]) >> 10);
	return cli_given(a, names[0]) || cli_given(a, names[1]) || cli_given(a, names[2]);
}

static const char *const rebuild_names[] = {"rebuild-policy", "rebuild-concurrent",
					    "rebuild-bandwidth"};
static const char *const rebalance_names[] = {"rebalance-policy", "rebalance-concurrent",
					      "rebalance-bandwidth"};

static struct ash_error find_pool(const struct cli_args *a, const Pb__Map *map,
				  const Pb__Pool **ret_pool)
{
	const char *name = cli_text(a, "pool"), *domain = cli_text(a, "protection-domain");

	*ret_pool = NULL;
	for (size_t i = 0; i < map->n_pools; i++) {
		const Pb__Pool *p = map->pools[i];

		if (strcmp(p->name, name) ||
		    (*domain && strcmp(cli_domain_name(map, p->domain), domain)))
			continue;
		if (*ret_pool)
			return ash_error_make(ASH_E_INVALID,
					      "storage pool \"%s\" exists in several protection "
					      "domains; give --protection-domain too",
					      name);
		*ret_pool = p;
	}
	if (!*ret_pool)
		return ash_error_make(ASH_E_NOT_FOUND, "there is no storage pool \"%s\"%s%s%s",
				      name, *domain ? " in protection domain \"" : "", domain,
				      *domain ? "\"" : "");
	return ash_error_ok();
}

static int send_set(const struct cli_args *a, const Pb__Pool *pool)
{
	Pb__Policy rebuild = PB__POLICY__INIT, rebalance = PB__POLICY__INIT;
	Pb__CmdPoolSet c = PB__CMD_POOL_SET__INIT;

	if (pool->rebuild)
		rebuild = *pool->rebuild;
	if (pool->rebalance)
		rebalance = *pool->rebalance;
	c.pool = pool->id;
	c.name = cli_text(a, "name");
	c.has_spare = cli_given(a, "spare");
	c.spare_pct = (uint32_t)cli_number(a, "spare");
	c.has_zero_padding = cli_given(a, "zero-padding");
	c.zero_padding = cli_number(a, "zero-padding");
	c.rebuild_grace_ms = (uint32_t)cli_number(a, "rebuild-grace") * 1000;
	c.rebuild = change_policy(a, rebuild_names, &rebuild) ? &rebuild : NULL;
	c.rebalance = change_policy(a, rebalance_names, &rebalance) ? &rebalance : NULL;
	return cli_command(a, PB__COMMAND__C_POOL_SET, &c, "storage pool \"%s\" changed",
			   cli_text(a, "pool"));
}

static int set(const struct cli_args *a)
{
	struct ash_error err;
	const Pb__Pool *pool;
	Pb__Reply *reply;
	size_t given = 0;
	int code;

	for (const struct cli_opt *o = set_opts + 2; o->name; o++)
		given += cli_given(a, o->name);
	if (!given) {
		err = ash_error_make(ASH_E_USAGE, "pool set: nothing to change is given; "
						  "`ashlar pool set --help` lists what there is");
		return cli_fail(a, &err);
	}
	reply = cli_query(a, "map", &err);
	if (!reply)
		return cli_fail(a, &err);
	err = find_pool(a, reply->query->map, &pool);
	code = ash_failed(&err) ? cli_fail(a, &err) : send_set(a, pool);
	pb__reply__free_unpacked(reply, NULL);
	return code;
}

/* ---------------------------------------------------------------- delete, list */

static const struct cli_opt delete_opts[] = {
	{CLI_SUBJECT("pool", "what to delete")},
	{CLI_DOMAIN_IF_SEVERAL},
	{0},
};

static const struct cli_col cols[] = {
	{"NAME", "name", CLI_COL_TEXT},
	{"PROTECTION DOMAIN", "protection_domain", CLI_COL_TEXT},
	{"USABLE", "usable_bytes", CLI_COL_SIZE},
	{"USED", "used_bytes", CLI_COL_SIZE},
	{"FREE", "free_bytes", CLI_COL_SIZE},
	{"PROVISIONED", "provisioned_bytes", CLI_COL_SIZE},
	{"SPARE %", "spare_percent", CLI_COL_NUMBER},
	{"PGS", "pgs", CLI_COL_NUMBER},
	{"DEGRADED", "degraded_pgs", CLI_COL_NUMBER},
	{"FAILED", "failed_pgs", CLI_COL_NUMBER},
	{0},
};

static json_t *policy(const Pb__Policy *p)
{
	static const char *const names[] = {"unlimited", "limit-concurrent", "favor-app",
					    "dynamic"};
	static const Pb__Policy none = PB__POLICY__INIT;

	p = p ? p : &none;
	return json_pack("{s:s, s:I, s:o}", "policy",
			 (unsigned)p->kind < 4 ? names[p->kind] : "unknown", "concurrent",
			 (json_int_t)p->concurrent_per_device, "bandwidth_bytes",
			 cli_json_number((uint64_t)p->bw_kib_per_s << 10));
}

static void add_use(json_t *row, const Pb__QueryReply *status, uint64_t pool)
{
	for (size_t i = 0; i < status->n_pools; i++) {
		const Pb__PoolStatus *s = status->pools[i];
		const Pb__CapacityUse *c = s->capacity;

		if (s->pool != pool || !c)
			continue;
		json_object_set_new(row, "raw_bytes", cli_json_number(c->raw));
		json_object_set_new(row, "spare_bytes", cli_json_number(c->spare));
		json_object_set_new(row, "usable_bytes", cli_json_number(c->usable));
		json_object_set_new(row, "used_bytes", cli_json_number(c->used));
		json_object_set_new(row, "free_bytes", cli_json_number(c->free));
		json_object_set_new(row, "provisioned_bytes", cli_json_number(c->provisioned));
		json_object_set_new(row, "degraded_pgs", json_integer(s->degraded_pgs));
		json_object_set_new(row, "failed_pgs", json_integer(s->failed_pgs));
		json_object_set_new(row, "building_pgs", json_integer(s->building_pgs));
	}
}

static json_t *row(const struct cli_facts *f, const void *object)
{
	const Pb__Pool *p = object;
	json_t *row = json_pack(
		"{s:o, s:o, s:o, s:I, s:I, s:b, s:I, s:o, s:o}", "id", cli_json_number(p->id),
		"name", cli_json_text(p->name), "protection_domain",
		cli_json_text(cli_domain_name(f->map, p->domain)), "pgs", (json_int_t)p->pg_count,
		"spare_percent", (json_int_t)p->spare_pct, "zero_padding", p->zero_padding,
		"rebuild_grace_ms", (json_int_t)p->rebuild_grace_ms, "rebuild", policy(p->rebuild),
		"rebalance", policy(p->rebalance));

	add_use(row, f->status, p->id);
	return row;
}

static const struct cli_object object = {
	CLI_IN_MAP(pools), .noun = "storage pool", .option = "pool", .kind = PB__KIND__KIND_POOL,
	.key = "pools",	   .with_status = true,	   .cols = cols,     .row = row,
};

const struct cli_verb cli_pool_verbs[] = {
	{"pool", "create", "Creates a storage pool",
	 "Volumes live in a pool. Its data is cut into placement groups, each with two copies in two\n"
	 "fault sets. The spare should be at least the share of the largest fault set.",
	 "ashlar pool create --protection-domain pd1 --name pool1 --spare 25%", create_opts, create,
	 NULL},
	{"pool", "list", "Lists storage pools and their capacity", NULL, "ashlar pool list",
	 cli_list_opts, cli_list, &object},
	{"pool", "set", "Changes a storage pool", NULL,
	 "ashlar pool set --pool pool1 --spare 20% --rebuild-policy unlimited", set_opts, set,
	 NULL},
	{"pool", "delete", "Deletes a storage pool without volumes and devices", NULL,
	 "ashlar pool delete --pool pool1", delete_opts, cli_remove, &object},
	{0},
};
