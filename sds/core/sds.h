/* SPDX-License-Identifier: MIT */
/*
 * One reactor of an SDS without I/O: its devices, the PG replicas on them, peers, client sessions,
 * and the talk with the MDM. sds/shell gives it io_uring, sockets and files; tests/sim the same
 * simulated.
 *
 * Context: the reactor's thread.
 */
#ifndef ASHLAR_SDS_CORE_SDS_H
#define ASHLAR_SDS_CORE_SDS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/port/ctl.h"
#include "common/port/disk.h"
#include "common/port/net.h"
#include "common/port/port.h"
#include "sds/core/store.h"

struct sds;

/**
 * struct sds_shell_ops - what the core asks of its shell besides the port.
 * @open_disk: open @path (exclusive), answer with a disk or -errno: -EBUSY held by somebody,
 * -EEXIST foreign signature found and not @force (message says which), -ENOENT ... Exactly once.
 * @forget_disk: the core no longer uses the disk and its close() has ended.
 */
struct sds_shell_ops {
	void (*open_disk)(void *shell, const char *path, bool force,
			  void (*done)(void *arg, int result, struct ash_disk *disk,
				       const char *message),
			  void *arg);
	void *shell;
};

struct sds_cfg {
	uint8_t uuid[16];    /* of the SDS, from its state directory */
	uint8_t session[16]; /* random, of this process */
	uint8_t boot_id[16];
	struct ash_endpoint endpoint; /* where peers and clients reach this reactor */
	uint16_t reactor;
	uint32_t heartbeat_ms; /* 200 */
};

struct sds *sds_new(struct ash_port *port, struct ash_ctl *ctl, const struct sds_cfg *cfg,
		    const struct sds_shell_ops *shell);

/* Upcalls wired by the shell: ctl->events = sds_ctl_events, ctl->owner = sds; net->on_accept. */
extern const struct ash_ctl_events sds_ctl_events;
void sds_on_accept(struct ash_net *net, struct ash_conn *conn); /* net->owner = sds */

/* A disk that the shell's scan found; the core probes it, opens it if the label is of its system
 * (or of any, before it knows its system), and reports it. Otherwise the disk is closed again. */
void sds_disk_found(struct sds *sds, struct ash_disk *disk, const char *path);

/* Once per turn of the loop, after completions and messages were delivered. */
void sds_turn(struct sds *sds);

/* Graceful end: stops serving, closes devices cleanly, then done. */
void sds_stop(struct sds *sds, void (*done)(void *arg), void *arg);
/* Frees without any I/O (after stop, or a simulated crash). */
void sds_free(struct sds *sds);

/* A snapshot for `ashlar` and for checks of the simulator. */
struct sds_stats {
	uint32_t devices, pgs_primary, pgs_secondary, pgs_building, sessions, peers;
	uint64_t ops_in_flight, stale, fenced, not_mapped, resync_blocks_sent,
		resync_blocks_skipped, strays_freed;
};
void sds_stats(const struct sds *sds, struct sds_stats *ret_stats);

/* For the simulator's invariants: the store of a device (NULL if not open here), and whether this
 * SDS would serve reads or writes of a PG right now. */
struct sds_store *sds_device_store(const struct sds *sds, uint64_t device);
bool sds_serves(const struct sds *sds, uint64_t pool, uint32_t pg, bool *ret_reads);

#endif
