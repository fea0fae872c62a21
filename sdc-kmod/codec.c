// SPDX-License-Identifier: GPL-2.0-only
/* The wire format's code that is shared with user space, compiled for the kernel. */
#include "common/shared/wire_codec.c"
