/* SPDX-License-Identifier: MIT */
/* `ashlar nbd`: volumes of an Ashlar system for NBD clients (QEMU, nbdcopy, fio, nbd-client). */
#ifndef ASHLAR_SDC_NBD_NBD_H
#define ASHLAR_SDC_NBD_NBD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * struct ash_nbd_opts - zeroed members mean the default.
 * @volumes:     names; each is one export of that name, the first also the default export.
 * @socket_path: UNIX socket; a stale one is replaced, removed at the end. And/or
 * @listen:      "IP:port"; anybody who reaches it can read and write.
 * @mdms, guid, sdc_name, state_dir: as in struct ash_connect_opts.
 * @open_timeout_ms: 30000. @io_timeout_ms: 0 = for ever.
 */
struct ash_nbd_opts {
	const char *const *volumes;
	size_t volume_count;
	const char *socket_path, *listen;
	const char *mdms, *guid, *sdc_name, *state_dir;
	bool read_only;
	uint32_t open_timeout_ms, io_timeout_ms, spin_us;
};

/**
 * ash_nbd_main() - serves until SIGTERM or SIGINT; then finishes what was begun and returns. A
 * second signal, or 25 s without an end, leaves at once.
 * Return: exit code: 0 done, 1 refused (no such volume, not mapped), 2 usage, 3 unreachable,
 * 4 internal. What went wrong is on stderr.
 */
int ash_nbd_main(const struct ash_nbd_opts *opts);

#endif
