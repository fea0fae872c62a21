/* SPDX-License-Identifier: MIT */
#ifndef ASHLAR_MDM_SHELL_SHELL_INT_H
#define ASHLAR_MDM_SHELL_SHELL_INT_H

#include <ev.h>

#include "common/base/list.h"
#include "common/base/prng.h"
#include "common/io/ctl_server.h"
#include "mdm/core/state.h"
#include "mdm/shell/identity.h"
#include "mdm/shell/raft.h"
#include "mdm/shell/shell.h"

/* One client connection. */
struct shell_peer {
	struct ash_list node;
	struct mdm_shell *sh;
	struct ash_ctl_peer *peer;
	struct mdm_session *session; /* NULL: came before this MDM belonged to a system */
	bool closing;
};

struct mdm_shell {
	struct ev_loop *loop;
	struct mdm_shell_opts opts;
	char name[64], state_dir[3000], log_dir[3100], raft_text[64], listen_text[64];
	struct mdm_identity who;
	struct ash_timers timers;
	struct mdm_port port;
	struct ash_prng rng;
	ev_timer timer, disk, term;
	ev_prepare prepare;
	struct ash_ctl_server *srv;
	struct ash_list peers;
	/* From here on only once it belongs to a system. */
	struct mdm_state *st, *old_st;
	struct mdm_service *svc;
	struct mdm_raft *raft;
	struct mdm_result last; /* of the command applied last */
	bool last_set, leads, creating, low_disk, failed, stopping;
	bool tie_breaker;
	uint64_t leader;
};

/* join.c */
void shell_unjoined_request(struct mdm_shell *sh, struct shell_peer *p, const Pb__Request *req);
/* A repeated `system create`; true if it was answered. */
bool shell_create_again(struct mdm_shell *sh, struct shell_peer *p, const Pb__Request *req);
void shell_reply_error(struct shell_peer *p, uint64_t id, const struct ash_error *err);
/* members.c */
void shell_members(struct mdm_port *port, const Pb__MdmChange *change,
		   void (*done)(void *arg, const struct ash_error *err), void *arg);
void shell_member_status(struct mdm_port *port, Pb__MdmStatus *status);
/* The MDM with the freshest contact to hand leadership to; 0 = none. */
uint64_t shell_successor(struct mdm_shell *sh);
const char *shell_member_address(struct mdm_shell *sh, uint64_t id);
/* shell.c */
struct ash_error shell_start_log(struct mdm_shell *sh);

#endif
