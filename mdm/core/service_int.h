/* SPDX-License-Identifier: MIT */
/*
 * Inside of the service; shared by service.c, svc_*.c (requests) and ctl_*.c (controllers).
 *
 * Nothing here decides what the map becomes: controllers and requests only propose commands, and
 * every command is judged when it is applied. What is kept here (who was heard when, use of
 * devices, delays) belongs to this process and starts afresh with each leadership.
 */
#ifndef ASHLAR_MDM_CORE_SERVICE_INT_H
#define ASHLAR_MDM_CORE_SERVICE_INT_H

#include "common/base/htab.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "mdm/core/placement.h"
#include "mdm/core/state.h"

#define SVC_MS 1000000ull
#define SVC_TICK_MS 50
#define SVC_PROPOSALS_MAX 4096 /* in flight, whoever asked for them */
#define SVC_ADMIN_MS 10000     /* an administrator's request is answered by then */
#define SVC_OPEN_MS 1000       /* an open is answered by then, also if an SDS lags */
#define SVC_BACKOFF_MS 500
#define SVC_BACKOFF_MAX_MS 5000

enum svc_role { SVC_NOBODY = 0, SVC_SDS, SVC_SDC, SVC_CLI };

struct mdm_session {
	struct ash_list node;
	struct mdm_service *svc; /* NULL: the service is gone */
	void *shell;
	enum svc_role role; /* SVC_NOBODY before HELLO */
	uint8_t uuid[16], process[16];
	char name[64];
	uint64_t sds, sdc;     /* once registered */
	bool follows;	       /* gets the map pushed */
	uint64_t sent_version; /* of the map that it has or will have */
};

/* What is known of an SDS by its heartbeats. */
struct svc_sds {
	uint64_t id, heard_ns, version;
	bool heard;   /* since we lead */
	bool failing; /* a proposal is on its way */
	uint64_t retry_ns;
	uint32_t worst_turn_ms;
	Pb__PgProgress **resync;
	size_t resyncs;
};

struct svc_dev {
	uint64_t id;
	bool usable;
	uint64_t usable_since_ns, incarnation; /* of the opening that has been usable since then */
	uint64_t gone_ns; /* not usable since, as far as this leader knows; 0 = usable */
	/* Copies on it come back no sooner; the delay grows with each accusation. */
	uint64_t readd_ns, accused_ns;
	uint32_t readd_ms;
	uint32_t copies, filling; /* of one round: that it has, and of them new ones being filled */
	bool reported;
	Pb__DeviceStats stats; /* scalars only */
	uint64_t *nodes, *extents;
	size_t node_count;
};

/* Where a pool's copies belong: first placement while it never had a volume, then rebuilding. */
struct svc_pool {
	uint64_t id;
	uint64_t devices_hash, calm_ns;
	bool dirty, flying, planned;
	struct mdm_place_row *target; /* valid if planned; for devices_hash */
	uint32_t pgs;
	int level;	/* of the fill warning */
	uint32_t stuck; /* groups with one copy and no device that can take another */
	uint32_t waits; /* groups with one copy whose other one may still return */
};

struct svc_backoff {
	uint64_t until_ns;
	uint32_t ms;
};

struct mdm_service {
	struct mdm_port *port;
	struct mdm_state *st;
	uint64_t own_id;
	bool tie_breaker, leader, closing;
	char leader_address[128];
	struct ash_list sessions, proposals, calls;
	uint32_t flying; /* proposals */
	struct ash_timer push_timer, tick_timer;
	struct ash_htab sdss, devs, pools;
	uint64_t last_tick_ns, repaired_version, repair_ns, watch_ns, transfer_ns, placed_version;
	uint32_t transfer_ms;
	bool repairing;
	struct svc_backoff repair_backoff, place_backoff;
};

/* ---------------------------------------------------------------- service.c */

static inline uint64_t svc_now(struct mdm_service *svc)
{
	return svc->port->now_ns(svc->port);
}
/* Leads, and may: the tie-breaker serves nobody. */
static inline bool svc_serves(const struct mdm_service *svc)
{
	return svc->leader && !svc->tie_breaker;
}
void svc_trace(struct mdm_service *svc, int level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

typedef void (*svc_done)(struct mdm_service *svc, void *arg, int result,
			 const struct mdm_result *res);
/* Stamps and proposes. @done runs once, with -ECANCELED when the service ends first. */
void svc_propose(struct mdm_service *svc, Pb__Command *cmd, svc_done done, void *arg);
/* What to tell whoever asked, after @done. */
struct ash_error svc_outcome(struct mdm_service *svc, int result, const struct mdm_result *res);

void svc_backoff_more(struct mdm_service *svc, struct svc_backoff *b);
void svc_backoff_clear(struct svc_backoff *b);

struct svc_sds *svc_sds(struct mdm_service *svc, uint64_t id); /* made if missing */
struct svc_dev *svc_dev(struct mdm_service *svc, uint64_t id);
struct svc_pool *svc_pool(struct mdm_service *svc, uint64_t id);

/* A push with the next turn. */
void svc_push_soon(struct mdm_service *svc);
/* Starts pushing to the session: it has @version. */
void svc_follow(struct mdm_session *s, uint64_t version);

/**
 * struct svc_call - a request that is answered later.
 * @poll: called on each tick and each heartbeat until answered; NULL = waits for a proposal only.
 * @give_up: called when @deadline_ns has passed.
 */
struct svc_call {
	struct ash_list node;
	struct mdm_service *svc;
	struct mdm_session *session; /* NULL: gone */
	uint64_t id, deadline_ns;
	bool answered;
	unsigned flying; /* proposals that will still call back */
	void (*poll)(struct svc_call *call);
	void (*give_up)(struct svc_call *call);
	Pb__Command *cmd; /* owned; may be NULL */
	uint64_t volume, epoch, fence;
	bool read_only;
	uint64_t *wait_sds; /* owned */
	size_t wait_count, waited;
	Pb__SdsRegister *reg;	/* owned */
	Pb__PgAnswer **answers; /* owned */
	size_t answers_count;
	uint64_t result_id;
	uint8_t result_uuid[16];
};
struct svc_call *svc_call_new(struct mdm_session *s, uint64_t id);
/* Proposes in the name of the call, which @done may answer. */
void svc_call_propose(struct svc_call *call, Pb__Command *cmd, svc_done done);
/* First thing in a done function: false if the call was answered meanwhile. */
bool svc_call_back(struct svc_call *call);
void svc_call_reply(struct svc_call *call, Pb__Reply *reply);
void svc_call_error(struct svc_call *call, const struct ash_error *err);
void svc_calls_poll(struct mdm_service *svc, uint64_t now);

void svc_reply(struct mdm_session *s, uint64_t id, Pb__Reply *reply);
void svc_reply_error(struct mdm_session *s, uint64_t id, const struct ash_error *err);
void svc_reply_ok(struct mdm_session *s, uint64_t id);

/* ---------------------------------------------------------------- requests */

void svc_hello(struct mdm_session *s, uint64_t id, const Pb__Hello *r);
void svc_sds_register(struct mdm_session *s, uint64_t id, const Pb__SdsRegister *r);
void svc_heartbeat(struct mdm_session *s, uint64_t id, const Pb__Heartbeat *r);
void svc_pg_report(struct mdm_session *s, uint64_t id, const Pb__PgReport *r);
void svc_confirm(struct mdm_session *s, uint64_t id, const Pb__Confirm *r);
void svc_device_opened(struct mdm_session *s, uint64_t id, const Pb__DeviceOpened *r);
void svc_device_failed(struct mdm_session *s, uint64_t id, const Pb__DeviceFailed *r);
void svc_sdc_register(struct mdm_session *s, uint64_t id, const Pb__SdcRegister *r);
void svc_open_volume(struct mdm_session *s, uint64_t id, const Pb__OpenVolume *r);
void svc_get_map(struct mdm_session *s, uint64_t id, const Pb__GetMap *r);
void svc_admin(struct mdm_session *s, uint64_t id, const Pb__Admin *r);
void svc_query(struct mdm_session *s, uint64_t id, const Pb__Query *r);
void svc_mdm_change(struct mdm_session *s, uint64_t id, const Pb__MdmChange *r);
/* Names to ids, in a command that is the caller's. */
struct ash_error svc_resolve(struct mdm_service *svc, const Pb__Admin *r, Pb__Command *cmd);

/* ---------------------------------------------------------------- controllers */

void ctl_start(struct mdm_service *svc); /* a new leader starts afresh */
void ctl_detect(struct mdm_service *svc, uint64_t now);
void ctl_place(struct mdm_service *svc, uint64_t now);
/* The pool's groups are where they belong, and no device is on its way. */
bool ctl_place_settled(struct mdm_service *svc, uint64_t pool);
void ctl_repair(struct mdm_service *svc, uint64_t now);
/* Copies on the device were dropped by an accusation: it waits before it is built again. */
void ctl_accused(struct mdm_service *svc, uint64_t device);
void ctl_watch(struct mdm_service *svc, uint64_t now);
void ctl_hand_on(struct mdm_service *svc, uint64_t now); /* a tie-breaker that leads */

/* Net bytes in use in a pool by the devices' reports: half of what is allocated. */
uint64_t ctl_pool_used(struct mdm_service *svc, uint64_t pool, bool *ret_known);

#endif
