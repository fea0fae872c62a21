/* SPDX-License-Identifier: MIT */
/*
 * The failure detector: an SDS that sent no heartbeat for a while is proposed to be failed. Nothing
 * else counts, neither a closed connection nor what other MDMs saw. It decides when the map
 * changes, never whether what is served is right: leases between SDSs do that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "mdm/core/service_int.h"

/* SDSs that die of one cause fall silent within one period of heartbeats. They have to fail in one
 * step: one after the other, the second would be made the only holder of what both have. */
#define TOGETHER_MS 250
/* A gap between two ticks that shows that we were stopped ourselves, and heard nobody. */
#define STALL_MS (4 * SVC_TICK_MS)

void ctl_start(struct mdm_service *svc)
{
	uint64_t now = svc_now(svc);

	svc->last_tick_ns = now;
	svc->repaired_version = svc->placed_version = UINT64_MAX;
	svc->repair_ns = svc->watch_ns = svc->transfer_ns = 0;
	svc->transfer_ms = 0;
	svc->repairing = false;
	svc_backoff_clear(&svc->repair_backoff);
	svc_backoff_clear(&svc->place_backoff);
}

/* While we stood still heartbeats waited unread: that time does not count. */
static void forgive_own_stall(struct mdm_service *svc, uint64_t now)
{
	uint64_t gap = now - svc->last_tick_ns;
	struct svc_sds *known;
	size_t at = 0;

	svc->last_tick_ns = now;
	if (gap < STALL_MS * SVC_MS)
		return;
	svc_trace(svc, ASH_LOG_WARN, "event=own_stall ms=%llu", (unsigned long long)(gap / SVC_MS));
	while ((known = ash_htab_next(&svc->sdss, &at, NULL)))
		known->heard_ns = known->heard_ns + gap < now ? known->heard_ns + gap : now;
}

struct verdict {
	uint64_t *sds;
	size_t count;
};

static void on_failed(struct mdm_service *svc, void *arg, int result, const struct mdm_result *res)
{
	struct verdict *v = arg;

	for (size_t i = 0; i < v->count; i++) {
		struct svc_sds *known = svc_sds(svc, v->sds[i]);

		known->failing = false;
		known->retry_ns = svc_now(svc) + SVC_BACKOFF_MS * SVC_MS;
	}
	if (!result && ash_failed(&res->err))
		svc_trace(svc, ASH_LOG_INFO, "event=sds_not_failed why=\"%s\"", res->err.message);
	free(v->sds);
	free(v);
}

static void propose_failed(struct mdm_service *svc, const uint64_t *list, size_t count,
			   uint64_t now)
{
	Pb__CmdSdsState *body = ash_xcalloc(count, sizeof(*body)),
			**also = ash_xcalloc(count, sizeof(*also));
	struct verdict *v = ash_xcalloc(1, sizeof(*v));
	Pb__Command cmd = PB__COMMAND__INIT;
	char reason[96];

	v->sds = ash_xcalloc(count, sizeof(*v->sds));
	for (size_t i = 0; i < count; i++) {
		struct svc_sds *known = svc_sds(svc, list[i]);

		pb__cmd_sds_state__init(&body[i]);
		body[i].sds = list[i];
		body[i].session = mdm_sds(svc->st, list[i])->session;
		also[i] = &body[i];
		known->failing = true;
		v->sds[v->count++] = list[i];
	}
	snprintf(reason, sizeof(reason), "no heartbeat for %llu ms",
		 (unsigned long long)((now - svc_sds(svc, list[0])->heard_ns) / SVC_MS));
	body[0].reason = reason;
	body[0].n_also = count - 1;
	body[0].also = also + 1;
	cmd.c_case = PB__COMMAND__C_SDS_STATE;
	cmd.sds_state = &body[0];
	svc_propose(svc, &cmd, on_failed, v);
	free(body);
	free(also);
}

void ctl_detect(struct mdm_service *svc, uint64_t now)
{
	uint64_t limit = svc->st->system->fail_after_ms * SVC_MS, first = ASH_TIME_NEVER;
	uint64_t *list = ash_xcalloc(svc->st->table[PB__KIND__KIND_SDS].count, sizeof(*list));
	size_t count = 0;
	bool more = false;

	forgive_own_stall(svc, now);
	MDM_EACH(svc->st, PB__KIND__KIND_SDS, Pb__Sds, sds) {
		const struct svc_sds *known = svc_sds(svc, sds->id);

		if (!sds->up || known->failing || now < known->retry_ns ||
		    now - known->heard_ns < limit)
			continue;
		list[count++] = sds->id;
		if (known->heard_ns < first)
			first = known->heard_ns;
	}
	/* Is there one that fell silent at the same time and has not quite reached the limit? */
	MDM_EACH(svc->st, PB__KIND__KIND_SDS, Pb__Sds, sds) {
		const struct svc_sds *known = svc_sds(svc, sds->id);
		uint64_t silent = now - known->heard_ns;

		more |= count && sds->up && !known->failing && silent < limit &&
			silent + TOGETHER_MS * SVC_MS >= limit &&
			known->heard_ns <= first + TOGETHER_MS * SVC_MS;
	}
	if (count && !more)
		propose_failed(svc, list, count, now);
	free(list);
}
