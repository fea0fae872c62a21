/* SPDX-License-Identifier: MIT */
/*
 * The metadata manager without I/O: replicated state, validation, placement, leader-only
 * controllers, and the service that answers SDSs, SDCs and the CLI. mdm/shell gives it Raft,
 * sockets and a clock; tests/sim gives it a simulated log and network.
 *
 * Context: one thread. Memory: allocation is allowed here (control plane), failure is fatal.
 */
#ifndef ASHLAR_MDM_CORE_MDM_H
#define ASHLAR_MDM_CORE_MDM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/timers.h"
#include "proto/mgmt/ashlar.pb-c.h"

/* ------------------------------------------------------------ replicated state (state.c,
 * apply_*.c) */

struct mdm_state;

struct mdm_state *mdm_state_new(void);
void mdm_state_free(struct mdm_state *st);

/**
 * struct mdm_result - the definite answer to one command.
 * @err: code 0 = applied. Otherwise nothing changed, and the message names object, limit, way out.
 * @id: of the object created or concerned. @epoch: OPEN. @answers: PG_BATCH, one per change.
 */
struct mdm_result {
	struct ash_error err;
	uint64_t id;
	uint64_t epoch;
	uint8_t uuid[16];
	size_t answers_count;
	Pb__PgAnswer **answers; /* owned; mdm_result_done() frees */
};
void mdm_result_done(struct mdm_result *result);

/**
 * mdm_apply() - state x command -> state, events. Pure and deterministic: the same sequence gives
 * the same state, byte for byte in its snapshot, on every member.
 * @index: log index (recorded; commands at or below the recorded one are skipped).
 */
void mdm_apply(struct mdm_state *st, const Pb__Command *cmd, uint64_t index,
	       struct mdm_result *ret_result);

/* Would the command be refused now? Same checks as apply, nothing changed. */
struct ash_error mdm_check(const struct mdm_state *st, const Pb__Command *cmd);

/* Packed pb.Map with the snapshot fields; malloc'ed. */
uint8_t *mdm_snapshot(const struct mdm_state *st, size_t *ret_bytes);
/* NULL and *ret_err when the bytes are no snapshot. */
struct mdm_state *mdm_restore(const uint8_t *data, size_t bytes, struct ash_error *ret_err);

uint64_t mdm_state_version(const struct mdm_state *st);
uint64_t mdm_state_applied(const struct mdm_state *st);

/* What a receiver gets: an SDS its domain's rows and all objects it needs; an SDC the volumes,
 * mappings and rows of its own mapped volumes' pools only. A delta when @have is not below the
 * removal log's floor, else full. Free with pb__map__free_unpacked(map, NULL). */
enum mdm_audience { MDM_FOR_SDS = 1, MDM_FOR_SDC = 2, MDM_FOR_ADMIN = 3 };
Pb__Map *mdm_map_for(const struct mdm_state *st, enum mdm_audience audience, uint64_t id,
		     uint64_t have);

/* ------------------------------------------------------------ service and controllers (service.c,
 * ctl_*.c) */

struct mdm_service;

/* A client connection, as the service sees it. The shell makes one per accepted connection. */
struct mdm_session;

/**
 * struct mdm_port - the world of the service.
 * @propose: append a packed pb.Command to the replicated log. done runs once, later: result 0 and
 *           what apply said; -ENOTSUP not the leader; -EIO unknown whether it will be applied.
 *           Applied commands reach mdm_service_applied() on every member, before done on the
 *           leader. Never called from inside propose, nor after mdm_service_free().
 * @reply, push: to one session; borrowed, packed at once.
 */
struct mdm_port {
	struct ash_timers *timers;
	void *shell;
	uint64_t (*now_ns)(struct mdm_port *port);
	uint64_t (*unix_ms)(struct mdm_port *port);
	uint64_t (*rand64)(struct mdm_port *port);
	void (*trace)(struct mdm_port *port, int level, const char *line);
	void (*propose)(struct mdm_port *port, const uint8_t *cmd, size_t bytes,
			void (*done)(void *arg, int result, const struct mdm_result *res),
			void *arg);
	void (*reply)(struct mdm_port *port, struct mdm_session *s, const Pb__Reply *reply);
	void (*push)(struct mdm_port *port, struct mdm_session *s, const Pb__Push *push);
	void (*close)(struct mdm_port *port, struct mdm_session *s);
	/* Raft membership: add, remove, switch, transfer; NULL where there is none (simulator).
	 * done runs once, later. After add and remove the service records the new list of members
	 * (MDM_SET). Transfer without a member: the shell brings an MDM up to date and picks the
	 * one with the freshest heartbeat (asked for by a tie-breaker that leads). */
	void (*members)(struct mdm_port *port, const Pb__MdmChange *change,
			void (*done)(void *arg, const struct ash_error *err), void *arg);
	/* Fills reachable/state/applied of members for status. May be NULL. */
	void (*member_status)(struct mdm_port *port, Pb__MdmStatus *status);
};

/* @st is owned by the caller and shared with the apply loop (same thread). */
struct mdm_service *mdm_service_new(struct mdm_port *port, struct mdm_state *st, uint64_t own_id,
				    bool tie_breaker);
void mdm_service_free(struct mdm_service *svc);
/* After a snapshot was installed. */
void mdm_service_set_state(struct mdm_service *svc, struct mdm_state *st);

/* Leadership changed. A new leader starts every failure count afresh. @leader_address may be NULL.
 * Say @leader only once everything committed before was applied here. */
void mdm_service_role(struct mdm_service *svc, bool leader, const char *leader_address);

/* A command was applied (any member). Map pushes are batched: at most one per session per turn. */
void mdm_service_applied(struct mdm_service *svc, const Pb__Command *cmd,
			 const struct mdm_result *res);

struct mdm_session *mdm_session_new(struct mdm_service *svc, void *shell);
void *mdm_session_shell(const struct mdm_session *s);
/* The connection is gone. */
void mdm_session_free(struct mdm_session *s);
/* A decoded request; borrowed. Answers now or later through port->reply. */
void mdm_service_request(struct mdm_service *svc, struct mdm_session *s, const Pb__Request *req);

#endif
