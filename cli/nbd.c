// SPDX-License-Identifier: MIT
/* ashlar nbd */
#include "sdc/nbd/nbd.h"

#include "cli/cli.h"

static const struct cli_opt opts[] = {
	{.name = "volume",
	 .type = CLI_NAME,
	 .arg = "NAME",
	 .many = true,
	 .required = true,
	 .help = "to export under its name; the first also as the default export"},
	{.name = "socket", .type = CLI_TEXT, .arg = "PATH", .help = "UNIX socket to listen on"},
	{.name = "listen",
	 .type = CLI_TEXT,
	 .arg = "IP:PORT",
	 .help = "TCP; whoever reaches it can read and write"},
	{.name = "sdc-name", .type = CLI_NAME, .arg = "NAME", .help = "of this client"},
	{.name = "guid", .type = CLI_GUID, .arg = "GUID", .help = "of this client"},
	{.name = "state-dir",
	 .type = CLI_TEXT,
	 .arg = "DIR",
	 .help = "where this client keeps its GUID"},
	{.name = "read-only", .type = CLI_FLAG, .help = "export read-only"},
	{.name = "io-timeout",
	 .type = CLI_NUMBER,
	 .arg = "MS",
	 .min = 1,
	 .max = UINT32_MAX,
	 .help = "fail an I/O that nobody can serve (default: wait)"},
	{.name = "spin",
	 .type = CLI_NUMBER,
	 .arg = "US",
	 .max = 1000000,
	 .help = "poll so long before sleeping"},
	{0},
};

static const char *text_or_null(const struct cli_args *a, const char *name)
{
	return cli_value(a, name)->text;
}

static int nbd(const struct cli_args *a)
{
	const struct cli_value *volumes = cli_value(a, "volume");
	struct ash_nbd_opts o = {
		.volumes = (const char *const *)volumes->list,
		.volume_count = volumes->count,
		.socket_path = text_or_null(a, "socket"),
		.listen = text_or_null(a, "listen"),
		.mdms = a->mdms,
		.guid = text_or_null(a, "guid"),
		.sdc_name = text_or_null(a, "sdc-name"),
		.state_dir = text_or_null(a, "state-dir"),
		.read_only = cli_given(a, "read-only"),
		.io_timeout_ms = (uint32_t)cli_number(a, "io-timeout"),
		.spin_us = (uint32_t)cli_number(a, "spin"),
	};

	return ash_nbd_main(&o);
}

const struct cli_verb cli_nbd_verbs[] = {
	{"nbd", "", "Exports volumes to NBD clients (QEMU, nbdcopy, fio) until SIGTERM",
	 "Who this client is comes from --guid or --sdc-name, else $ASHLAR_SDC_GUID or\n"
	 "$ASHLAR_SDC_NAME. It must be known (`ashlar sdc add`) and the volume mapped to it\n"
	 "(`ashlar volume map`).",
	 "ashlar nbd --volume v1 --socket /run/v1.sock &", opts, nbd, NULL},
	{0},
};
