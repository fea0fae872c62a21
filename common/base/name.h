/* SPDX-License-Identifier: MIT */
/* Names of objects: 1 to 63 characters of A-Z a-z 0-9 . _ -, the first a letter or digit. */
#ifndef ASHLAR_COMMON_BASE_NAME_H
#define ASHLAR_COMMON_BASE_NAME_H

#include "common/base/err.h"

#define ASH_NAME_MAX 63

/* @what: "volume", for the message. Code 0 or ASH_E_INVALID. */
struct ash_error ash_name_check(const char *what, const char *name);

#endif
