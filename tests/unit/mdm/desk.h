/* SPDX-License-Identifier: MIT */
/* A service with a fake port: a log that commits when told, a clock that moves when told. */
#ifndef ASHLAR_TESTS_UNIT_MDM_DESK_H
#define ASHLAR_TESTS_UNIT_MDM_DESK_H

#include "cmd.h"

#define DESK_MS 1000000ull
#define DESK_CLIENTS 16

struct desk_entry {
	uint8_t *data;
	size_t bytes;
	void (*done)(void *arg, int result, const struct mdm_result *res);
	void *arg;
};

/* One connection: what came back last. */
struct desk_client {
	struct desk *desk;
	struct mdm_session *s;
	Pb__Reply *reply; /* the newest; owned */
	Pb__Map *map;	  /* newest map pushed; owned */
	unsigned replies, pushes;
};

struct desk {
	struct mdm_port port;
	struct ash_timers timers;
	struct cluster c; /* its state; log index */
	struct mdm_service *svc;
	uint64_t now, random;
	struct desk_entry *log;
	size_t entries;
	int fail_with;	   /* proposals end with this and are not applied */
	bool hold;	   /* proposals wait */
	unsigned proposed; /* in all */
	unsigned of_case[64];
	struct desk_client client[DESK_CLIENTS];
	unsigned members_asked;
};

void desk_open(struct desk *d);
void desk_close(struct desk *d);
/* Commits what is proposed and runs timers, until nothing is left to do now. */
void desk_run(struct desk *d);
/* Time passes in steps of 10 ms; SDSs that are alive (see desk_server) send heartbeats. */
void desk_pass(struct desk *d, uint64_t ms);

/* A new connection that has said HELLO. */
struct desk_client *desk_client(struct desk *d, const char *role, uint64_t uuid, uint64_t process);
void desk_hang_up(struct desk_client *c);
/* Sends and runs. Code of the answer, 0 if it was no error, -1 if there is none yet. */
int desk_ask(struct desk_client *c, Pb__Request *req);
const char *desk_error(const struct desk_client *c);

int desk_admin(struct desk_client *c, const Pb__Admin *admin);

/* A simulated SDS as the MDM sees it. */
struct desk_server {
	struct desk_client *c;
	uint64_t id, uuid, process;
	bool alive;
	uint64_t next_ns, version; /* echoed; the newest pushed unless frozen */
	bool frozen;
	/* Told with each heartbeat: what it is building (resync.left + done not 0), and the room of
	 * one device (stats.device not 0). */
	Pb__PgProgress resync;
	Pb__DeviceStats stats;
};
extern struct desk_server desk_servers[8];

/* Every request that was asked, packed, if there is room. */
extern struct desk_entry desk_asked[96];
extern size_t desk_asked_count, desk_asked_room;

/* Whole system: @sdss servers with one device of 1 GiB each, registered, open, groups placed. */
void desk_cluster(struct desk *d, unsigned sdss);
int desk_register(struct desk *d, struct desk_server *s);
int desk_open_device(struct desk *d, struct desk_server *s, uint64_t dev, uint64_t incarnation);
/* A volume in the pool, and an SDC that has it mapped. */
void desk_volume(struct desk *d, struct desk_client **ret_sdc);

/* Row of the first pool; how many of its groups have that many copies in sync. */
struct mdm_row *row(struct desk *d, uint32_t pg);
unsigned in_state(struct desk *d, unsigned copies);
/* An SDS reports one change, with everything right that the row says. */
int report(struct desk *d, struct desk_server *s, Pb__PgAction action, uint32_t pg, uint64_t dev,
	   bool *ret_applied);
unsigned server_of(struct desk *d, uint64_t dev);
int ask_open(struct desk_client *sdc, const char *name);

#define ADMIN(admin, cmd)                                                                          \
	Pb__Admin admin = PB__ADMIN__INIT;                                                         \
	admin.command = &(cmd)
#define SAYS(c, text)                                                                              \
	do {                                                                                       \
		if (!strstr(desk_error(c), text))                                                  \
			fail_msg("\"%s\" does not say \"%s\"", desk_error(c), text);               \
	} while (0)

#endif
