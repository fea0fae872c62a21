/* SPDX-License-Identifier: MIT */
/*
 * Test builds only (ASHLAR_TEST_SWITCHES): leave one rule out, so that the simulator or the store's
 * crash test can show that it notices. In other builds ASH_RULE(x) is the constant true.
 *
 *     if (ASH_RULE(SEAL)) wait_for_seal();
 */
#ifndef ASHLAR_COMMON_BASE_SWITCHES_H
#define ASHLAR_COMMON_BASE_SWITCHES_H

#include <stdbool.h>

/* X(name, what the rule demands) */
#define ASH_RULES(X)                                                                               \
	X(JOIN_PROMISE,                                                                            \
	  "from before the join proposal, the joining copy's acknowledges are needed")             \
	X(LEASE_BOUND,                                                                             \
	  "a lease counts only if the holder has the granter's rows, which come along")            \
	X(LEASE_WAIT, "a new primary waits for the leases that it granted")                        \
	X(LEASE_READ, "a primary with an in-sync peer serves reads only under a lease")            \
	X(START_WAIT, "a starting device waits for leases it may have granted before")             \
	X(FENCE_BEGIN, "generation, epoch and path are checked when an operation begins")          \
	X(FENCE_PATH, "an operation from an older path is refused")                                \
	X(FENCE_EPOCH, "an operation from an older open is refused")                               \
	X(RANGE_LOCK, "an operation keeps its range lock until its device I/O has ended")          \
	X(HOLD_OVERLAP, "a client never has two overlapping writes in flight")                     \
	X(RESEND, "what a primary has begun is finished on every in-sync copy after a new gen")    \
	X(READ_WAITS, "a read waits for an overlapping write in flight")                           \
	X(ACK_NEEDS_PEER, "no acknowledge without the in-sync peer until the MDM removed it")      \
	X(MAPPING_CHECK, "an SDS refuses a client that has no mapping")                            \
	X(EXPECT_GEN, "apply refuses a PG change with another generation")                         \
	X(INCARNATION, "a device that was opened again holds nothing in sync")                     \
	X(LAST_SET, "a whole-set outage ends only with a member of the last in-sync set")          \
	X(DROP_GONE, "a returning copy drops what was deleted meanwhile")                          \
	X(AL_COVER, "every change of valid blocks is covered by an activity-log entry")            \
	X(AL_RECOVER_U, "recovery marks every hot chunk unsettled")                                \
	X(EVICT_U, "eviction from the activity log journals the unsettled mark")                   \
	X(RESYNC_UNION, "the resync set has the returner's unsettled chunks too")                  \
	X(RESYNC_HOT, "the resync set has the survivor's unsettled chunks")                        \
	X(STAMP, "changes while a copy is away are stamped")                                       \
	X(RESYNC_LOCK, "resync holds the range lock from read until the target is durable")        \
	X(SEAL, "a first-written block is overwritten only after its seal is durable")             \
	X(ROLLBACK, "recovery rolls back unsealed first writes whose data is missing")             \
	X(REUSE, "a freed extent is reused only after its free record is durable")                 \
	X(ORDER_FLUSH, "metadata is ordered by flush on disks with a volatile cache")              \
	X(TAIL_MOVE, "the journal tail moves only after flushed table writes")                     \
	X(TAIL_SEAL, "the journal tail moves only past sealed first writes")                       \
	X(AL_CARRY, "live activity-log entries are carried forward before the tail moves")         \
	X(TABLE_WAL, "a table block is written only after the journal records behind it")          \
	X(JOURNAL_PREFIX, "a journal record counts only when all before it are durable")           \
	X(LEAVE_CSUM, "a chunk leaves the activity log only with its checksum page durable")       \
	X(CSUM_DISTRUST, "after a crash the stored checksums of hot chunks may be out of date")    \
	X(CSUM_VERIFY, "a read is checked against its stored checksum")                            \
	X(FLUSH_PEERS, "a flush reaches every copy")

enum ash_rule {
#define ASH_RULE_ENUM(name, text) ASH_RULE_##name,
	ASH_RULES(ASH_RULE_ENUM)
#undef ASH_RULE_ENUM
		ASH_RULE_COUNT
};

#ifdef ASHLAR_TEST_SWITCHES
/* Set by the test before anything starts; process-wide. */
extern bool ash_rule_left_out[ASH_RULE_COUNT];
#define ASH_RULE(name) (!ash_rule_left_out[ASH_RULE_##name])
#else
#define ASH_RULE(name) true
#endif

/* Text of a rule, and look-up by name (-1 unknown); in every build. */
const char *ash_rule_name(int rule);
const char *ash_rule_text(int rule);
int ash_rule_find(const char *name);

#endif
