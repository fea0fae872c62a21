/* SPDX-License-Identifier: MIT */
/*
 * Errors for people and for programs. Functions return 0 or -errno; where a person will read the
 * outcome they also fill a struct ash_error, whose message names the object, the limit and the way
 * out ("volume \"v1\": size 3 MiB is not a multiple of 1 MiB; give --size in MiB or larger units").
 */
#ifndef ASHLAR_COMMON_BASE_ERR_H
#define ASHLAR_COMMON_BASE_ERR_H

#include <stdbool.h>

/* Codes on the control protocol (pb.Error.code) and exit codes of the CLI (ash_code_exit). Stable.
 */
enum ash_code {
	ASH_OK = 0,
	ASH_E_INVALID = 1,     /* out of range, malformed */
	ASH_E_NOT_FOUND = 2,   /* no such object */
	ASH_E_EXISTS = 3,      /* name or identity taken */
	ASH_E_IN_USE = 4,      /* still has parts, mappings or data */
	ASH_E_CAPACITY = 5,    /* not enough space or fault units */
	ASH_E_STATE = 6,       /* not possible in this state */
	ASH_E_STALE = 7,       /* generation or incarnation moved on; no-op */
	ASH_E_NOT_LEADER = 8,  /* ask the leader */
	ASH_E_UNREACHABLE = 9, /* no MDM quorum or no answer */
	ASH_E_DENIED = 10,     /* not mapped, other system, not authenticated */
	ASH_E_INTERNAL = 11,
	ASH_E_UNSUPPORTED = 12, /* version or feature */
	ASH_E_USAGE = 13,
};

#define ASH_ERROR_TEXT 512

struct ash_error {
	int code; /* enum ash_code */
	char message[ASH_ERROR_TEXT];
};

struct ash_error ash_error_ok(void);
struct ash_error ash_error_make(int code, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Puts a prefix before the message ("sds \"sds1\": "). */
void ash_error_wrap(struct ash_error *err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static inline bool ash_failed(const struct ash_error *err)
{
	return err->code != ASH_OK;
}
const char *ash_code_name(int code);
/* 0 done, 1 refused, 2 usage, 3 unreachable, 4 internal. */
int ash_code_exit(int code);

#endif
