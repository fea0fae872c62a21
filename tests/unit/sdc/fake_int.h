/* SPDX-License-Identifier: MIT */
/* What the parts of the fake world know of one another. */
#ifndef ASHLAR_TESTS_UNIT_SDC_FAKE_INT_H
#define ASHLAR_TESTS_UNIT_SDC_FAKE_INT_H

#include "tests/unit/sdc/fake.h"

/* Something that is to happen: what it needs beside its time depends on fn. */
struct fake_event {
	struct fake_event *next;
	uint64_t at;
	void (*fn)(struct fake *f, struct fake_event *e);
	struct fake_conn *conn;
	int sds;
	struct ash_hdr h;
	uint32_t crcs, bytes;
	uint32_t crc[ASH_PIECES_MAX];
	void (*done)(void *arg, int result, const Pb__Reply *reply);
	void *arg;
	Pb__Request *req;
	uint8_t data[];
};

struct fake_conn {
	struct ash_conn c;
	struct fake *f;
	struct fake_conn *next;
	int sds;
	bool closed, dead, said_hello;
	uint64_t last_at;
	struct ash_msg *tx, **tx_end;
	struct fake_event *begun; /* writes received and not answered */
};

/* fake.c: happens @in ns from now, after whatever was told to happen at the same time. */
struct fake_event *fake_event_new(struct fake *f, uint64_t in, size_t bytes,
				  void (*fn)(struct fake *, struct fake_event *));

/* fake_mdm.c */
extern const struct ash_ctl_ops fake_ctl_ops;
/* The SDS that holds copy @r of a PG; 0 is the primary when there is one. */
int fake_copy(const struct fake *f, uint32_t pg, int r);

/* fake_net.c */
extern const struct ash_net_ops fake_net_ops;
/* How long the next message takes over the connection: never overtakes the one before. */
uint64_t fake_wire_delay(struct fake *f, struct fake_conn *c);
void fake_conn_down(struct fake_conn *c);
/* An answer reaches the client. */
void fake_reply_event(struct fake *f, struct fake_event *e);

/* fake_sds.c: a message reaches an SDS. */
void fake_sds_event(struct fake *f, struct fake_event *e);

#endif
