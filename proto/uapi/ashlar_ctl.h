/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Contract between the kernel client (ashlar_sdc.ko) and its agent (ashlar-sdc): ioctls of
 * /dev/ashlar-ctl. Integers are the host's. Reserved fields are zero, and refused when not.
 *
 * One process may have the device open at a time: the agent. When it ends, the devices go on with
 * the map at hand, and the next agent finds them with ASH_CTL_LIST.
 *
 * read() blocks (unless O_NONBLOCK) until something has happened and gives a __u32 of ASH_CTL_EV_*;
 * poll() says when.
 */
#ifndef ASHLAR_PROTO_UAPI_CTL_H
#define ASHLAR_PROTO_UAPI_CTL_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define ASH_CTL_PATH "/dev/ashlar-ctl"
#define ASH_CTL_VERSION 1

/* Events. */
#define ASH_CTL_EV_WANT_MAP                                                                        \
	1u		     /* the module's map is old, says an SDS, or its rows lead nowhere     \
			      */
#define ASH_CTL_EV_VOLUME 2u /* a volume was refused by an SDS, or died: see ASH_CTL_LIST */

struct ash_ctl_info {
	__u32 version; /* ASH_CTL_VERSION */
	__u32 wire_version;
};

/* Who we are. Once per load of the module; the same again is accepted, another is -EBUSY. */
struct ash_ctl_system {
	__u8 system[16]; /* UUID, not all zero */
	__u64 sdc;	 /* as the MDM numbers us, not 0 */
	__u32 dr_epoch;
	__u32 reserved;
};

#define ASH_CTL_INFO _IOR(0xA5, 1, struct ash_ctl_info)
#define ASH_CTL_SYSTEM _IOW(0xA5, 2, struct ash_ctl_system)

#endif
