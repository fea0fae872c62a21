/* SPDX-License-Identifier: MIT */
/* An MDM process: state, service, log, and the port that clients reach it by. One loop, one thread.
 */
#ifndef ASHLAR_MDM_SHELL_SHELL_H
#define ASHLAR_MDM_SHELL_SHELL_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/port/net.h"

struct ev_loop;
struct mdm_shell;

struct mdm_shell_opts {
	const char *name, *state_dir;
	struct ash_endpoint listen, raft;
	bool tie_breaker;
};

struct mdm_shell *mdm_shell_new(struct ev_loop *loop, const struct mdm_shell_opts *opts,
				struct ash_error *ret_err);
void mdm_shell_free(struct mdm_shell *sh);
/* Hands leadership on if it can, then breaks the loop. A second call breaks it at once. */
void mdm_shell_stop(struct mdm_shell *sh);
/* True if the loop was left because the log failed. */
bool mdm_shell_failed(const struct mdm_shell *sh);

#endif
