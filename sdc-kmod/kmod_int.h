/* SPDX-License-Identifier: GPL-2.0-only */
/* Private to the module: who holds what. */
#ifndef ASHLAR_SDC_KMOD_INT_H
#define ASHLAR_SDC_KMOD_INT_H

#define pr_fmt(fmt) "ashlar_sdc: " fmt

#include <linux/types.h>

#include "proto/uapi/ashlar_ctl.h"

/* ctl.c: /dev/ashlar-ctl */
int ask_ctl_init(void);
/* Nobody has it open any more: an open descriptor holds the module. */
void ask_ctl_exit(void);

#endif
