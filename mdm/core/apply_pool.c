/* SPDX-License-Identifier: MIT */
/* Storage pools. */
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/base/size.h"
#include "mdm/core/state.h"

#define SPARE_PCT_MAX 90
#define REBUILD_GRACE_MS 60000
#define REBALANCE_KIB_PER_S 10240

static struct ash_error check_spare(const char *name, uint32_t pct)
{
	if (pct > SPARE_PCT_MAX)
		return ash_error_make(ASH_E_INVALID,
				      "storage pool \"%s\": spare of %u %% is not in 0..%d %%",
				      name, pct, SPARE_PCT_MAX);
	return ash_error_ok();
}

/* ---------------------------------------------------------------- add */

static struct ash_error add_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdPoolAdd *c = body;
	struct ash_error err;

	if (!mdm_domain(st, c->domain))
		return mdm_no_such(PB__KIND__KIND_DOMAIN, c->domain);
	err = mdm_check_name(st, PB__KIND__KIND_POOL, c->name, c->domain, 0);
	if (ash_failed(&err))
		return err;
	if (c->pg_count && (c->pg_count < MDM_PG_MIN || c->pg_count > MDM_PG_MAX ||
			    (c->pg_count & (c->pg_count - 1))))
		return ash_error_make(
			ASH_E_INVALID,
			"storage pool \"%s\": %u placement groups; give a power of two "
			"from %d to %d (default %d)",
			c->name, c->pg_count, MDM_PG_MIN, MDM_PG_MAX, MDM_PG_DEFAULT);
	return check_spare(c->name, c->spare_pct);
}

static Pb__Policy *new_policy(Pb__PolicyKind kind, uint32_t kib_per_s)
{
	Pb__Policy *p = ash_xcalloc(1, sizeof(*p));

	pb__policy__init(p);
	p->kind = kind;
	p->concurrent_per_device = 1;
	p->bw_kib_per_s = kib_per_s;
	return p;
}

static void add_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdPoolAdd *c = body;
	Pb__Pool *pool = ash_xcalloc(1, sizeof(*pool));

	pb__pool__init(pool);
	pool->id = res->id = mdm_new_id(st);
	pool->domain = c->domain;
	mdm_set_string(&pool->name, c->name);
	pool->pg_count = c->pg_count ? c->pg_count : MDM_PG_DEFAULT;
	pool->pg_shift = (uint32_t)__builtin_ctz(pool->pg_count);
	pool->spare_pct = c->spare_pct;
	pool->zero_padding = c->zero_padding;
	pool->rebuild = new_policy(PB__POLICY_KIND__POLICY_LIMIT_CONCURRENT, 0);
	pool->rebalance = new_policy(PB__POLICY_KIND__POLICY_FAVOR_APP, REBALANCE_KIB_PER_S);
	pool->rebuild_grace_ms = REBUILD_GRACE_MS;
	mdm_add(st, PB__KIND__KIND_POOL, pool);
	mdm_rows_add(st, pool->id, pool->pg_count);
	mdm_event(st, PB__SEVERITY__SEV_INFO, "POOL_ADDED", PB__KIND__KIND_POOL, c->name,
		  "storage pool \"%s\" was created with %u placement groups", c->name,
		  pool->pg_count);
}

const struct mdm_verb mdm_verb_pool_add = {add_check, add_apply};

/* ---------------------------------------------------------------- set */

static struct ash_error check_policy(const Pb__Pool *pool, const char *what, const Pb__Policy *p)
{
	if (p->kind > PB__POLICY_KIND__POLICY_DYNAMIC_BW)
		return ash_error_make(ASH_E_INVALID, "storage pool \"%s\": %s policy %d is unknown",
				      pool->name, what, (int)p->kind);
	if (p->kind != PB__POLICY_KIND__POLICY_UNLIMITED && !p->concurrent_per_device)
		return ash_error_make(ASH_E_INVALID,
				      "storage pool \"%s\": %s policy with 0 operations per device "
				      "would never end; give at least 1",
				      pool->name, what);
	return ash_error_ok();
}

static struct ash_error check_spare_fits(const struct mdm_state *st, const Pb__Pool *pool,
					 uint32_t pct)
{
	struct ash_error err = check_spare(pool->name, pct);
	struct mdm_capacity cap;
	char thick[24], usable[24];

	if (ash_failed(&err) || pct <= pool->spare_pct)
		return err;
	mdm_capacity(st, pool, pct, &cap);
	if (cap.thick <= cap.usable)
		return err;
	return ash_error_make(ASH_E_CAPACITY,
			      "storage pool \"%s\": with %u %% spare %s would be usable, but thick "
			      "volumes hold %s; add devices or choose less spare",
			      pool->name, pct, ash_size_format(cap.usable, usable, sizeof(usable)),
			      ash_size_format(cap.thick, thick, sizeof(thick)));
}

static struct ash_error set_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdPoolSet *c = body;
	const Pb__Pool *pool = mdm_pool(st, c->pool);
	struct ash_error err = ash_error_ok();

	if (!pool)
		return mdm_no_such(PB__KIND__KIND_POOL, c->pool);
	if (c->has_spare)
		err = check_spare_fits(st, pool, c->spare_pct);
	if (!ash_failed(&err) && *c->name)
		err = mdm_check_name(st, PB__KIND__KIND_POOL, c->name, pool->domain, pool->id);
	if (!ash_failed(&err) && c->rebuild)
		err = check_policy(pool, "rebuild", c->rebuild);
	if (!ash_failed(&err) && c->rebalance)
		err = check_policy(pool, "rebalance", c->rebalance);
	if (ash_failed(&err) || !c->has_zero_padding || c->zero_padding == pool->zero_padding)
		return err;
	MDM_EACH(st, PB__KIND__KIND_DEVICE, Pb__Device, dev)
		if (dev->pool == pool->id)
			return ash_error_make(
				ASH_E_STATE,
				"storage pool \"%s\": zero padding can be changed only while the pool "
				"has no device, and it has \"%s\"",
				pool->name, dev->name);
	return err;
}

static void set_policy(Pb__Policy **field, const Pb__Policy *value)
{
	if (!value)
		return;
	if (*field)
		mdm_pb_free(*field);
	*field = mdm_pb_clone(value);
}

static void set_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdPoolSet *c = body;
	Pb__Pool *pool = mdm_pool(st, c->pool);

	res->id = pool->id;
	if (c->has_spare)
		pool->spare_pct = c->spare_pct;
	if (c->has_zero_padding)
		pool->zero_padding = c->zero_padding;
	if (*c->name)
		mdm_set_string(&pool->name, c->name);
	if (c->rebuild_grace_ms)
		pool->rebuild_grace_ms = c->rebuild_grace_ms;
	set_policy(&pool->rebuild, c->rebuild);
	set_policy(&pool->rebalance, c->rebalance);
	mdm_touch(st, PB__KIND__KIND_POOL, pool);
}

const struct mdm_verb mdm_verb_pool_set = {set_check, set_apply};
