// SPDX-License-Identifier: MIT
#include "sdc/lib/client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clean.h"
#include "common/base/log.h"
#include "common/base/uuid.h"

#define DEFAULT_STATE_DIR "/var/lib/ashlar/sdc"
#define LOOKUP_MS 10000u

static void random_bytes(void *out, size_t bytes)
{
	if (getrandom(out, bytes, 0) != (ssize_t)bytes)
		abort();
}

/* ------------------------------------------------------------ identity */

static struct ash_error parse_guid(const char *text, const char *from, uint8_t guid[16])
{
	if (ash_uuid_parse(text, guid))
		return ash_error_make(ASH_E_INVALID,
				      "%s is \"%s\", which is no GUID; it looks like "
				      "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
				      from, text);
	return ash_error_ok();
}

static struct ash_error look_up(const char *name, const char *mdms, struct sdc_identity *id)
{
	struct ash_mgmt_opts opts = {.mdms = mdms, .role = "cli"};
	Pb__Request req = PB__REQUEST__INIT;
	Pb__Query query = PB__QUERY__INIT;
	struct ash_error err = ash_error_ok();
	const Pb__Map *map;
	Pb__Reply *reply;
	bool found = false;

	random_bytes(opts.session, 16);
	query.what = (char *)"map";
	req.r_case = PB__REQUEST__R_QUERY;
	req.query = &query;
	reply = ash_mgmt_call_sync(&opts, &req, true, LOOKUP_MS, &err);
	if (!reply)
		return err;
	map = reply->r_case == PB__REPLY__R_QUERY ? reply->query->map : NULL;
	for (size_t i = 0; map && i < map->n_sdcs && !found; i++)
		if (!strcmp(map->sdcs[i]->name, name) && map->sdcs[i]->guid.len == 16) {
			memcpy(id->guid, map->sdcs[i]->guid.data, 16);
			found = true;
		}
	pb__reply__free_unpacked(reply, NULL);
	if (!found)
		return ash_error_make(
			ASH_E_NOT_FOUND,
			"no SDC \"%s\" is known; add it with: ashlar sdc add --name %s "
			"--guid GUID",
			name, name);
	return ash_error_ok();
}

/* The folders above a file. What cannot be made is told when the file cannot. */
static void make_dirs(const char *file)
{
	char path[512];

	snprintf(path, sizeof(path), "%s", file);
	for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = '\0';
		mkdir(path, 0755);
		*p = '/';
	}
}

/* Reads the GUID of this host, or makes one. */
static struct ash_error from_file(const char *dir, uint8_t guid[16])
{
	char path[512], tmp[530], text[64] = "", uuid[ASH_UUID_TEXT];
	ash_auto_close int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/guid", dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, text, sizeof(text) - 1);
		text[n > 0 ? n : 0] = '\0';
		text[strcspn(text, " \n")] = '\0';
		return parse_guid(text, path, guid);
	}
	if (errno != ENOENT)
		return ash_error_make(ASH_E_INTERNAL, "cannot read %s: %s", path, strerror(errno));
	random_bytes(guid, 16);
	guid[6] = (uint8_t)((guid[6] & 0x0f) | 0x40);
	guid[8] = (uint8_t)((guid[8] & 0x3f) | 0x80);
	snprintf(text, sizeof(text), "%s\n", ash_uuid_format(guid, uuid));
	make_dirs(path);
	snprintf(tmp, sizeof(tmp), "%s.%d", path, (int)getpid());
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || fsync(fd) ||
	    rename(tmp, path)) {
		int e = errno;

		unlink(tmp);
		return ash_error_make(ASH_E_INTERNAL,
				      "cannot write the SDC's GUID to %s: %s; give --guid, or "
				      "--state-dir with a folder that can be written",
				      path, strerror(e));
	}
	return ash_error_ok();
}

struct ash_error sdc_identity_find(const char *guid, const char *name, const char *state_dir,
				   const char *mdms, struct sdc_identity *ret_id)
{
	const char *env_guid = getenv("ASHLAR_SDC_GUID"), *env_name = getenv("ASHLAR_SDC_NAME");
	char host[64] = "sdc";

	memset(ret_id, 0, sizeof(*ret_id));
	gethostname(host, sizeof(host) - 1);
	if (!name && !guid && env_guid && *env_guid) {
		snprintf(ret_id->name, sizeof(ret_id->name), "%s",
			 env_name && *env_name ? env_name : host);
		return parse_guid(env_guid, "$ASHLAR_SDC_GUID", ret_id->guid);
	}
	if (!name && !guid && env_name && *env_name)
		name = env_name;
	snprintf(ret_id->name, sizeof(ret_id->name), "%s", name ? name : host);
	if (guid)
		return parse_guid(guid, "the SDC's GUID", ret_id->guid);
	if (name)
		return look_up(name, mdms, ret_id);
	return from_file(state_dir ? state_dir : DEFAULT_STATE_DIR, ret_id->guid);
}

/* ------------------------------------------------------------ wiring */

static void on_turn(void *arg)
{
	struct sdc_client *c = arg;

	if (c->sdc)
		sdc_turn(c->sdc);
	if (c->on_turn)
		c->on_turn(c->on_turn_arg);
}

struct ash_error sdc_client_init(struct sdc_client *c, const struct sdc_client_opts *opts)
{
	struct ash_reactor_opts ropts = {.spin_us = opts->spin_us,
					 .buffer_bytes = opts->buffer_bytes};
	struct ash_mgmt_opts mopts = {.mdms = opts->mdms, .role = "sdc"};
	struct sdc_cfg cfg = {.requests = opts->requests, .io_timeout_ms = opts->io_timeout_ms};
	struct ash_error err = ash_error_ok();
	struct ash_ctl *ctl;

	memset(c, 0, sizeof(*c));
	c->reactor = ash_reactor_new(&ropts, &err);
	if (!c->reactor)
		return err;
	memcpy(mopts.uuid, opts->id.guid, 16);
	memcpy(mopts.name, opts->id.name, sizeof(mopts.name));
	memcpy(cfg.guid, opts->id.guid, 16);
	memcpy(cfg.name, opts->id.name, sizeof(cfg.name));
	random_bytes(&cfg.session, sizeof(cfg.session));
	memcpy(mopts.session, &cfg.session, 8);
	memcpy(mopts.session + 8, &cfg.session, 8);
	c->mgmt = ash_mgmt_new(ash_reactor_loop(c->reactor), &mopts, &err);
	if (!c->mgmt)
		return err;
	ctl = ash_mgmt_ctl(c->mgmt);
	c->sdc = sdc_new(ash_reactor_port(c->reactor), ctl, &cfg);
	if (!c->sdc)
		return ash_error_make(ASH_E_INTERNAL, "out of memory for %u requests",
				      cfg.requests);
	ctl->events = &sdc_ctl_events;
	ctl->owner = c->sdc;
	ash_reactor_on_turn(c->reactor, on_turn, c);
	return ash_error_ok();
}

static void stopped(void *arg)
{
	struct sdc_client *c = arg;

	ash_reactor_stop(c->reactor);
}

void sdc_client_stop(struct sdc_client *c)
{
	sdc_stop(c->sdc, stopped, c);
}

void sdc_client_done(struct sdc_client *c)
{
	if (c->mgmt)
		ash_mgmt_free(c->mgmt);
	sdc_free(c->sdc);
	if (c->reactor)
		ash_reactor_free(c->reactor);
	memset(c, 0, sizeof(*c));
}
