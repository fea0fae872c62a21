/* SPDX-License-Identifier: MIT */
/* Log lines for people: "time level event key=value ...", to stderr. Only shells log. Any thread.
 */
#ifndef ASHLAR_COMMON_BASE_LOG_H
#define ASHLAR_COMMON_BASE_LOG_H

enum ash_log_level {
	ASH_LOG_ERROR = 0,  /* somebody must act */
	ASH_LOG_WARN = 1,   /* handled, worth knowing */
	ASH_LOG_NOTICE = 2, /* state changes */
	ASH_LOG_INFO = 3,
	ASH_LOG_DEBUG = 4,
};

/* Default NOTICE; $ASHLAR_LOG=error|warn|notice|info|debug. @program is put on each line. */
void ash_log_init(const char *program);
void ash_log_set_level(int level);
int ash_log_level(void);
void ash_log(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
