/* SPDX-License-Identifier: MIT */
/* Watches how full pools get, and hands leadership on where the tie-breaker got it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mdm/core/service_int.h"

#define WATCH_MS 2000
#define HIGH_PCT 80
#define CRITICAL_PCT 90
#define CALM_PCT 5 /* below a threshold by this much before it can warn again */
#define TRANSFER_MS 1000
#define TRANSFER_MAX_MS 30000

uint64_t ctl_pool_used(struct mdm_service *svc, uint64_t pool, bool *ret_known)
{
	uint64_t used = 0;

	*ret_known = false;
	MDM_EACH(svc->st, PB__KIND__KIND_DEVICE, Pb__Device, dev) {
		const struct svc_dev *d = ash_htab_get(&svc->devs, dev->id);

		if (dev->pool != pool || !d || !d->reported)
			continue;
		*ret_known = true;
		used += d->stats.used;
	}
	return used / 2;
}

static void ignore(struct mdm_service *svc, void *arg, int result, const struct mdm_result *res)
{
}

static void tell(struct mdm_service *svc, const Pb__Pool *pool, int level, uint64_t pct)
{
	Pb__Command cmd = PB__COMMAND__INIT;
	Pb__CmdEvent c = PB__CMD_EVENT__INIT;
	Pb__Event e = PB__EVENT__INIT;
	char object[80], text[300];

	snprintf(object, sizeof(object), "pool:%s", pool->name);
	snprintf(text, sizeof(text),
		 "storage pool \"%s\": %llu %% of the usable capacity is in use; %s", pool->name,
		 (unsigned long long)pct,
		 level == 2 ? "writes that need space will soon fail, add devices or delete volumes"
			    : "add devices in time");
	e.code = (char *)(level == 2 ? "POOL_CRITICAL" : "POOL_HIGH");
	e.severity = level == 2 ? PB__SEVERITY__SEV_CRITICAL : PB__SEVERITY__SEV_WARNING;
	e.object = object;
	e.message = text;
	c.event = &e;
	cmd.c_case = PB__COMMAND__C_EVENT;
	cmd.event = &c;
	svc_propose(svc, &cmd, ignore, NULL);
}

static void watch_pool(struct mdm_service *svc, const Pb__Pool *pool)
{
	struct svc_pool *p = svc_pool(svc, pool->id);
	struct mdm_capacity cap;
	uint64_t used, pct;
	bool known;
	int level;

	used = ctl_pool_used(svc, pool->id, &known);
	mdm_capacity(svc->st, pool, pool->spare_pct, &cap);
	if (!known || !cap.usable)
		return;
	pct = used * 100 / cap.usable;
	level = pct >= CRITICAL_PCT ? 2 : pct >= HIGH_PCT ? 1 : 0;
	if (level > p->level)
		tell(svc, pool, level, pct);
	if (level > p->level || pct + CALM_PCT < (p->level == 2 ? CRITICAL_PCT : HIGH_PCT))
		p->level = level;
}

void ctl_watch(struct mdm_service *svc, uint64_t now)
{
	if (now < svc->watch_ns)
		return;
	svc->watch_ns = now + WATCH_MS * SVC_MS;
	MDM_EACH(svc->st, PB__KIND__KIND_POOL, Pb__Pool, pool)
		watch_pool(svc, pool);
}

static void on_handed(void *arg, const struct ash_error *err)
{
}

/* The shell brings an MDM up to date and picks the one with the freshest heartbeat. */
void ctl_hand_on(struct mdm_service *svc, uint64_t now)
{
	Pb__MdmChange change = PB__MDM_CHANGE__INIT;

	if (now < svc->transfer_ns || !svc->port->members)
		return;
	svc->transfer_ms = svc->transfer_ms ? 2 * svc->transfer_ms : TRANSFER_MS;
	if (svc->transfer_ms > TRANSFER_MAX_MS)
		svc->transfer_ms = TRANSFER_MAX_MS;
	svc->transfer_ns = now + svc->transfer_ms * SVC_MS;
	change.op = (char *)"transfer";
	svc->port->members(svc->port, &change, on_handed, NULL);
}
