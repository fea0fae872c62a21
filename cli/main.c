// SPDX-License-Identifier: MIT
#include <signal.h>

#include "cli/cli.h"
#include "common/base/log.h"

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	ash_log_init("ashlar");
	return cli_run(argc, argv, stdout);
}
