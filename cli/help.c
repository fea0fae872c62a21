// SPDX-License-Identifier: MIT
/* Help out of the verbs' tables. */
#include <string.h>

#include "cli/cli.h"

const struct cli_verb *const cli_nouns[] = {
	cli_status_verbs,    cli_system_verbs,
	cli_mdm_verbs,	     cli_domain_verbs,
	cli_fault_set_verbs, cli_sds_verbs,
	cli_pool_verbs,	     cli_device_verbs,
	cli_volume_verbs,    cli_sdc_verbs,
	cli_mapping_verbs,   cli_nbd_verbs,
	cli_event_verbs,     NULL,
};

static const char general[] =
	"\nOptions of every command:\n"
	"  --mdm HOST:PORT[,...]  MDMs to ask; without it $ASHLAR_MDM, else 127.0.0.1:6611\n"
	"  --timeout SECONDS      for the whole command (default 20)\n"
	"  --json                 output for programs; sizes in bytes\n"
	"  --help                 this text\n";

static void one_line(FILE *out, const struct cli_verb *v)
{
	char name[64];

	snprintf(name, sizeof(name), "%s%s%s", v->noun, *v->verb ? " " : "", v->verb);
	fprintf(out, "  %-26s %s\n", name, v->help);
}

void cli_help_all(FILE *out)
{
	fputs("Usage: ashlar OBJECT VERB [--option value ...]\n\n"
	      "Manages an Ashlar system: block storage out of the disks of many servers. A protection\n"
	      "domain holds data servers (SDS), each in a fault set; their devices form a storage\n"
	      "pool, which keeps two copies of every block in two fault sets. Volumes of the pool are\n"
	      "mapped to clients (SDC). Metadata managers (MDM) know it all and answer here.\n\n",
	      out);
	for (size_t i = 0; cli_nouns[i]; i++)
		for (const struct cli_verb *v = cli_nouns[i]; v->noun; v++)
			one_line(out, v);
	fputs("  version                    the version of this program\n"
	      "  help [OBJECT [VERB]]       this text, or that of a command\n",
	      out);
	fputs(general, out);
	fputs("\nSizes are binary: 512MiB, 16GiB, 1.5TiB (K M G T P mean KiB MiB GiB TiB PiB).\n"
	      "Exit codes: 0 done, 1 refused, 2 wrong usage, 3 no MDM reachable, 4 internal.\n"
	      "`ashlar OBJECT VERB --help` shows options and an example.\n",
	      out);
}

void cli_help_noun(FILE *out, const struct cli_verb *verbs)
{
	fprintf(out, "Usage: ashlar %s VERB [--option value ...]\n\n", verbs->noun);
	for (const struct cli_verb *v = verbs; v->noun; v++)
		one_line(out, v);
	fprintf(out, "\n`ashlar %s VERB --help` shows options and an example.\n", verbs->noun);
}

static void one_option(FILE *out, const struct cli_opt *o)
{
	char left[64];

	snprintf(left, sizeof(left), "--%s%s%s%s", o->name, o->arg ? " " : "", o->arg ? o->arg : "",
		 o->many ? " ..." : "");
	fprintf(out, "  %-30s %s%s\n", left, o->help, o->required ? " (required)" : "");
}

void cli_help_verb(FILE *out, const struct cli_verb *v)
{
	fprintf(out, "Usage: ashlar %s%s%s%s\n\n%s.\n", v->noun, *v->verb ? " " : "", v->verb,
		v->opts ? " [--option value ...]" : "", v->help);
	if (v->more)
		fprintf(out, "\n%s\n", v->more);
	if (v->opts)
		fputs("\nOptions:\n", out);
	for (const struct cli_opt *o = v->opts; o && o->name; o++)
		one_option(out, o);
	fputs(general, out);
	if (v->example)
		fprintf(out, "\nExample:\n  %s\n", v->example);
}
