/* SPDX-License-Identifier: MIT */
/* Data servers: admission, registration of a process, failure. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/base/switches.h"
#include "mdm/core/state.h"

#define SDS_PORT_DEFAULT 7072

/* "10.0.0.1:7072", "[::1]:7072" */
static void endpoint_text(const Pb__Endpoint *ep, char *buf, size_t room)
{
	static const uint8_t v4[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
	char ip[INET6_ADDRSTRLEN] = "?";

	if (ep->ip.len == 16 && !memcmp(ep->ip.data, v4, 12)) {
		inet_ntop(AF_INET, ep->ip.data + 12, ip, sizeof(ip));
		snprintf(buf, room, "%s:%u", ip, ep->port);
		return;
	}
	if (ep->ip.len == 16)
		inet_ntop(AF_INET6, ep->ip.data, ip, sizeof(ip));
	snprintf(buf, room, "[%s]:%u", ip, ep->port);
}

/* Adds the default port to an address given without one. */
static void full_address(const char *address, char *buf, size_t room)
{
	const char *colon = strrchr(address, ':'), *bracket = strrchr(address, ']');

	if (!*address || (colon && (!bracket || colon > bracket)))
		snprintf(buf, room, "%s", address);
	else
		snprintf(buf, room, "%s:%d", address, SDS_PORT_DEFAULT);
}

static Pb__Sds *find_by_address(const struct mdm_state *st, const char *address)
{
	MDM_EACH(st, PB__KIND__KIND_SDS, Pb__Sds, sds)
		if (*sds->control_address && !strcmp(sds->control_address, address))
			return sds;
	return NULL;
}

/* ---------------------------------------------------------------- add */

static struct ash_error add_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdSdsAdd *c = body;
	const Pb__FaultSet *fs;
	const Pb__Sds *other;
	char address[256];

	if (!mdm_domain(st, c->domain))
		return mdm_no_such(PB__KIND__KIND_DOMAIN, c->domain);
	fs = mdm_fault_set(st, c->fault_set);
	if (c->fault_set && !fs)
		return mdm_no_such(PB__KIND__KIND_FAULT_SET, c->fault_set);
	if (fs && fs->domain != c->domain)
		return ash_error_make(
			ASH_E_INVALID,
			"fault set \"%s\" is in protection domain \"%s\", not \"%s\"; name a fault "
			"set of the SDS's own domain",
			fs->name, mdm_name(st, PB__KIND__KIND_DOMAIN, fs->domain),
			mdm_name(st, PB__KIND__KIND_DOMAIN, c->domain));
	if (c->uuid.len && !mdm_is_uuid(&c->uuid))
		return ash_error_make(ASH_E_INVALID, "SDS \"%s\": the UUID has %zu bytes, not 16",
				      c->name, c->uuid.len);
	if (strlen(c->control_address) > 240)
		return ash_error_make(
			ASH_E_INVALID,
			"SDS \"%s\": the address has %zu characters; 240 are the limit", c->name,
			strlen(c->control_address));
	if (!c->uuid.len && !*c->control_address)
		return ash_error_make(
			ASH_E_INVALID,
			"SDS \"%s\": neither address nor UUID is given; give --address "
			"HOST[:PORT], where it listens for data",
			c->name);
	other = mdm_find_sds_uuid(st, &c->uuid);
	if (other)
		return ash_error_make(ASH_E_EXISTS, "SDS \"%s\": its UUID belongs to SDS \"%s\"",
				      c->name, other->name);
	full_address(c->control_address, address, sizeof(address));
	other = find_by_address(st, address);
	if (other)
		return ash_error_make(
			ASH_E_EXISTS,
			"SDS \"%s\": address %s belongs to SDS \"%s\"; remove that or "
			"give another address",
			c->name, address, other->name);
	return mdm_check_name(st, PB__KIND__KIND_SDS, c->name, 0, 0);
}

static void add_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdSdsAdd *c = body;
	Pb__Sds *sds = ash_xcalloc(1, sizeof(*sds));
	char address[256];

	pb__sds__init(sds);
	sds->id = res->id = mdm_new_id(st);
	sds->domain = c->domain;
	sds->fault_set = c->fault_set;
	mdm_set_string(&sds->name, c->name);
	full_address(c->control_address, address, sizeof(address));
	mdm_set_string(&sds->control_address, address);
	mdm_set_bytes(&sds->uuid, c->uuid.data, c->uuid.len);
	mdm_add(st, PB__KIND__KIND_SDS, sds);
	mdm_event(st, PB__SEVERITY__SEV_INFO, "SDS_ADDED", PB__KIND__KIND_SDS, c->name,
		  "SDS \"%s\" was admitted to protection domain \"%s\"", c->name,
		  mdm_name(st, PB__KIND__KIND_DOMAIN, c->domain));
}

const struct mdm_verb mdm_verb_sds_add = {add_check, add_apply};

/* ---------------------------------------------------------------- register */

/* By UUID; the first time an admitted SDS is seen, by one of the addresses that it listens at. */
static Pb__Sds *who_registers(const struct mdm_state *st, const Pb__CmdSdsRegister *c)
{
	Pb__Sds *sds = mdm_find_sds_uuid(st, &c->uuid);
	char address[256];

	if (sds)
		return sds;
	for (size_t i = 0; i < c->n_endpoints; i++) {
		endpoint_text(c->endpoints[i], address, sizeof(address));
		sds = find_by_address(st, address);
		if (sds && !sds->uuid.len)
			return sds;
	}
	full_address(c->control_address, address, sizeof(address));
	sds = *address ? find_by_address(st, address) : NULL;
	return sds && !sds->uuid.len ? sds : NULL;
}

static struct ash_error register_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdSdsRegister *c = body;
	char address[256] = "unknown";

	if (!mdm_is_uuid(&c->uuid) || !mdm_is_uuid(&c->session))
		return ash_error_make(ASH_E_INVALID,
				      "an SDS registers with a UUID of %zu and a "
				      "session of %zu bytes; both have 16",
				      c->uuid.len, c->session.len);
	if (!c->n_endpoints || c->n_endpoints > MDM_ENDPOINTS_MAX)
		return ash_error_make(ASH_E_INVALID,
				      "an SDS registers with %zu endpoints; 1 to %d are possible",
				      c->n_endpoints, MDM_ENDPOINTS_MAX);
	for (size_t i = 0; i < c->n_endpoints; i++)
		if (c->endpoints[i]->ip.len != 16 || !c->endpoints[i]->port ||
		    c->endpoints[i]->port > 65535 || c->endpoints[i]->transport > UINT8_MAX)
			return ash_error_make(ASH_E_INVALID,
					      "endpoint %zu of an SDS has no usable "
					      "address; set --advertise IP:PORT",
					      i);
	endpoint_text(c->endpoints[0], address, sizeof(address));
	if (!who_registers(st, c))
		return ash_error_make(ASH_E_NOT_FOUND,
				      "the SDS at %s is not admitted; run `ashlar sds add --name "
				      "NAME --protection-domain PD --address %s`",
				      address, address);
	return ash_error_ok();
}

static bool same_endpoints(const Pb__Sds *sds, const Pb__CmdSdsRegister *c)
{
	if (sds->n_endpoints != c->n_endpoints)
		return false;
	for (size_t i = 0; i < c->n_endpoints; i++) {
		const Pb__Endpoint *a = sds->endpoints[i], *b = c->endpoints[i];

		if (!mdm_bytes_equal(&a->ip, &b->ip) || a->port != b->port ||
		    a->transport != b->transport)
			return false;
	}
	return true;
}

static void set_endpoints(Pb__Sds *sds, const Pb__CmdSdsRegister *c)
{
	for (size_t i = 0; i < sds->n_endpoints; i++)
		mdm_pb_free(sds->endpoints[i]);
	free(sds->endpoints);
	sds->n_endpoints = c->n_endpoints;
	sds->endpoints = ash_xcalloc(c->n_endpoints, sizeof(*sds->endpoints));
	for (size_t i = 0; i < c->n_endpoints; i++)
		sds->endpoints[i] = mdm_pb_clone(c->endpoints[i]);
}

/* Its devices are open no more: what they held in sync is lost. */
static void close_devices(struct mdm_state *st, Pb__Sds *const *sdss, size_t count)
{
	size_t most = st->table[PB__KIND__KIND_DEVICE].count, n = 0;
	uint64_t *lost = ash_xcalloc(most + 1, sizeof(*lost));

	MDM_EACH(st, PB__KIND__KIND_DEVICE, Pb__Device, dev) {
		bool here = false;

		for (size_t i = 0; i < count; i++)
			here |= dev->sds == sdss[i]->id;
		if (!here)
			continue;
		lost[n++] = dev->id;
		if (dev->state != PB__DEVICE_STATE__DEVICE_UP)
			continue;
		dev->state = PB__DEVICE_STATE__DEVICE_DOWN;
		mdm_touch(st, PB__KIND__KIND_DEVICE, dev);
	}
	mdm_rows_lose(st, lost, n);
	free(lost);
}

bool mdm_sds_is_registered(const struct mdm_state *st, const Pb__CmdSdsRegister *c,
			   uint64_t *ret_sds)
{
	const Pb__Sds *sds = who_registers(st, c);

	if (!sds || !sds->up || !mdm_bytes_equal(&sds->session, &c->session) ||
	    !same_endpoints(sds, c))
		return false;
	*ret_sds = sds->id;
	return true;
}

static void register_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdSdsRegister *c = body;
	Pb__Sds *sds = who_registers(st, c);
	bool restarted = !mdm_bytes_equal(&sds->session, &c->session), was_up = sds->up;

	res->id = sds->id;
	if (mdm_sds_is_registered(st, c, &res->id))
		return;
	if (restarted) {
		/* The process before this one is over, its openings and promises with it. */
		if (ASH_RULE(INCARNATION))
			close_devices(st, &sds, 1);
		mdm_fences_forget_sds(st, sds->id);
		mdm_set_bytes(&sds->uuid, c->uuid.data, c->uuid.len);
		mdm_set_bytes(&sds->session, c->session.data, c->session.len);
	}
	set_endpoints(sds, c);
	sds->up = true;
	mdm_touch(st, PB__KIND__KIND_SDS, sds);
	if (restarted || !was_up)
		mdm_event(st, PB__SEVERITY__SEV_INFO, "SDS_UP", PB__KIND__KIND_SDS, sds->name,
			  "SDS \"%s\" has registered%s", sds->name,
			  restarted ? " as a new process" : " again");
}

const struct mdm_verb mdm_verb_sds_register = {register_check, register_apply};

/* ---------------------------------------------------------------- failure */

/* NULL and *ret_err unless the SDS is up with that session. */
static Pb__Sds *still_up(const struct mdm_state *st, const Pb__CmdSdsState *c,
			 struct ash_error *ret_err)
{
	Pb__Sds *sds = mdm_sds(st, c->sds);

	if (!sds)
		*ret_err = mdm_no_such(PB__KIND__KIND_SDS, c->sds);
	else if (!sds->up)
		*ret_err = ash_error_make(ASH_E_STALE, "SDS \"%s\" is down already", sds->name);
	else if (!mdm_bytes_equal(&sds->session, &c->session))
		*ret_err = ash_error_make(ASH_E_STALE, "SDS \"%s\" was restarted meanwhile",
					  sds->name);
	else
		return sds;
	return NULL;
}

/* Each is judged alone; if any of them still stands, the command is applied to those. */
static size_t fallen(const struct mdm_state *st, const Pb__CmdSdsState *c, Pb__Sds **ret_sdss,
		     struct ash_error *ret_err)
{
	struct ash_error err;
	size_t n = 0;

	ret_sdss[n] = still_up(st, c, ret_err);
	n += ret_sdss[n] != NULL;
	for (size_t i = 0; i < c->n_also; i++) {
		bool twice = false;

		ret_sdss[n] = still_up(st, c->also[i], &err);
		for (size_t k = 0; k < n; k++)
			twice |= ret_sdss[k] == ret_sdss[n];
		n += ret_sdss[n] && !twice;
	}
	return n;
}

static struct ash_error state_check(const struct mdm_state *st, const void *body)
{
	const Pb__CmdSdsState *c = body;
	struct ash_error err = ash_error_ok();
	Pb__Sds **sdss;

	if (c->up)
		return ash_error_make(ASH_E_INVALID, "an SDS comes up by registering");
	sdss = ash_xcalloc(c->n_also + 1, sizeof(*sdss));
	if (fallen(st, c, sdss, &err))
		err = ash_error_ok();
	free(sdss);
	return err;
}

static void state_apply(struct mdm_state *st, const void *body, struct mdm_result *res)
{
	const Pb__CmdSdsState *c = body;
	Pb__Sds **sdss = ash_xcalloc(c->n_also + 1, sizeof(*sdss));
	struct ash_error err;
	size_t n = fallen(st, c, sdss, &err);

	res->id = c->sds;
	for (size_t i = 0; i < n; i++) {
		sdss[i]->up = false;
		mdm_touch(st, PB__KIND__KIND_SDS, sdss[i]);
		mdm_event(st, PB__SEVERITY__SEV_ERROR, "SDS_DOWN", PB__KIND__KIND_SDS,
			  sdss[i]->name, "SDS \"%s\" was declared failed: %s", sdss[i]->name,
			  *c->reason ? c->reason : "no reason given");
	}
	close_devices(st, sdss, n);
	free(sdss);
}

const struct mdm_verb mdm_verb_sds_state = {state_check, state_apply};
