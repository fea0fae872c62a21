// SPDX-License-Identifier: GPL-2.0-only
/* Ashlar's data client in the kernel: load and unload. */
#include "kmod_int.h"

#include <linux/module.h>

static int __init ask_init(void)
{
	return ask_ctl_init();
}

static void __exit ask_exit(void)
{
	ask_ctl_exit();
}

module_init(ask_init);
module_exit(ask_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Ashlar block storage: data client");
MODULE_VERSION("0.1.0");
MODULE_SOFTDEP("pre: libcrc32c");
