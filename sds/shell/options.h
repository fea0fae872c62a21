/* SPDX-License-Identifier: MIT */
/* Command line and configuration file of ashlar-sds. Used at start, from one thread. */
#ifndef ASHLAR_SDS_SHELL_OPTIONS_H
#define ASHLAR_SDS_SHELL_OPTIONS_H

#include <stdbool.h>

#include "common/base/conf.h"
#include "common/base/err.h"
#include "common/io/reactor.h"

struct sds_options {
	struct ash_conf conf; /* owns the texts below; "devices" repeats */
	const char *state_dir, *run_dir, *mdms, *name;
	struct ash_endpoint listen, advertise;
	bool help, version;
};

/**
 * sds_options_read() - flags, then --conf; flags win.
 * With help or version set nothing else was checked. Free with sds_options_done(), also after an
 * error. advertise is listen when not given; a port 0 in it means: the port that listening got.
 */
struct ash_error sds_options_read(int argc, char **argv, struct sds_options *ret_opts);
void sds_options_done(struct sds_options *opts);
extern const char sds_options_help[];

#endif
