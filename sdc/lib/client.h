/* SPDX-License-Identifier: MIT */
/*
 * A reactor, the talk with the MDM and the data client, wired together. Used by libashlar on a
 * thread of its own and by the NBD server on the main thread.
 */
#ifndef ASHLAR_SDC_LIB_CLIENT_H
#define ASHLAR_SDC_LIB_CLIENT_H

#include "common/base/err.h"
#include "common/io/reactor.h"
#include "common/mgmt/mgmt.h"
#include "sdc/core/sdc.h"

struct sdc_identity {
	uint8_t guid[16];
	char name[64];
};

/**
 * sdc_identity_find() - which SDC we are: @guid, else @name as the MDM knows it, else
 * $ASHLAR_SDC_GUID, else the file "guid" in @state_dir (made when missing). May ask the MDM and
 * block; not in a loop. Any argument may be NULL.
 */
struct ash_error sdc_identity_find(const char *guid, const char *name, const char *state_dir,
				   const char *mdms, struct sdc_identity *ret_id);

struct sdc_client_opts {
	struct sdc_identity id;
	const char *mdms;
	uint32_t io_timeout_ms, requests, spin_us;
	size_t buffer_bytes; /* of the reactor; 0 = its default */
};

struct sdc_client {
	struct ash_reactor *reactor;
	struct ash_mgmt *mgmt;
	struct sdc *sdc;
	void (*on_turn)(void *arg); /* after sdc_turn(); may be NULL */
	void *on_turn_arg;
};

/* On the thread that will run the reactor. */
struct ash_error sdc_client_init(struct sdc_client *c, const struct sdc_client_opts *opts);
/* All volumes closed: ends connections, then stops the reactor. */
void sdc_client_stop(struct sdc_client *c);
/* After ash_reactor_run() has returned because of sdc_client_stop(); also after a failed init. */
void sdc_client_done(struct sdc_client *c);

#endif
