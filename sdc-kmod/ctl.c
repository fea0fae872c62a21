// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/ashlar-ctl: what the agent tells the module. A character device and not generic netlink,
 * because being the only agent is then a property of the open file, its end is noticed at once,
 * and rows come in batches of any size without a message's limits.
 */
#include "kmod_int.h"

#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/uaccess.h>

#include "proto/wire/wire.h"

static DEFINE_MUTEX(ctl_lock); /* all below, and the order of commands */
static bool ctl_taken;
static struct ash_ctl_system ctl_system; /* sdc 0: not yet told */

static int ctl_open(struct inode *inode, struct file *file)
{
	int err = 0;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	mutex_lock(&ctl_lock);
	if (ctl_taken)
		err = -EBUSY;
	else
		ctl_taken = true;
	mutex_unlock(&ctl_lock);
	return err ? err : nonseekable_open(inode, file);
}

static int ctl_release(struct inode *inode, struct file *file)
{
	mutex_lock(&ctl_lock);
	ctl_taken = false;
	mutex_unlock(&ctl_lock);
	return 0;
}

static int do_info(void __user *arg)
{
	struct ash_ctl_info info = {.version = ASH_CTL_VERSION, .wire_version = ASH_WIRE_VERSION};

	return copy_to_user(arg, &info, sizeof(info)) ? -EFAULT : 0;
}

static int do_system(const void __user *arg)
{
	struct ash_ctl_system sys;

	if (copy_from_user(&sys, arg, sizeof(sys)))
		return -EFAULT;
	if (!sys.sdc || sys.reserved || !memchr_inv(sys.system, 0, sizeof(sys.system)))
		return -EINVAL;
	if (ctl_system.sdc && memcmp(&ctl_system, &sys, sizeof(sys)))
		return -EBUSY;
	ctl_system = sys;
	return 0;
}

static long ctl_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	void __user *p = (void __user *)arg;
	long result;

	mutex_lock(&ctl_lock);
	switch (cmd) {
	case ASH_CTL_INFO:
		result = do_info(p);
		break;
	case ASH_CTL_SYSTEM:
		result = do_system(p);
		break;
	default:
		result = -ENOTTY;
	}
	mutex_unlock(&ctl_lock);
	return result;
}

static const struct file_operations ctl_fops = {
	.owner = THIS_MODULE,
	.open = ctl_open,
	.release = ctl_release,
	.unlocked_ioctl = ctl_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.llseek = no_llseek,
};

static struct miscdevice ctl_dev = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "ashlar-ctl",
	.fops = &ctl_fops,
	.mode = 0600,
};

int ask_ctl_init(void)
{
	return misc_register(&ctl_dev);
}

void ask_ctl_exit(void)
{
	misc_deregister(&ctl_dev);
}
