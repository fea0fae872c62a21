/* SPDX-License-Identifier: MIT */
/* Sets a simulated system up with an operator's commands. */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/cluster.h"

/* ------------------------------------------------------------ set-up */

#define COMMAND(which, WHICH, Type, type)                                                          \
	Pb__Command cmd = PB__COMMAND__INIT;                                                       \
	Pb__##Type which = PB__##WHICH##__INIT;                                                    \
	cmd.c_case = PB__COMMAND__C_##type;                                                        \
	cmd.which = &which

static uint64_t add_fault_set(struct sim_cluster *c, unsigned i)
{
	char name[16];
	COMMAND(fault_set_add, CMD_FAULT_SET_ADD, CmdFaultSetAdd, FAULT_SET_ADD);

	snprintf(name, sizeof(name), "fs%u", i + 1);
	fault_set_add.name = name;
	fault_set_add.domain = c->domain;
	return sim_admin(c, &cmd, NULL);
}

static uint64_t add_sds(struct sim_cluster *c, struct sim_sds *s)
{
	char address[32];
	COMMAND(sds_add, CMD_SDS_ADD, CmdSdsAdd, SDS_ADD);

	snprintf(address, sizeof(address), "10.0.0.%u:7072", s->host.index);
	sds_add.name = s->host.name;
	sds_add.domain = c->domain;
	sds_add.fault_set = c->fault_set[c->shape.fault_set_of[s->index]];
	sds_add.control_address = address;
	sds_add.uuid.data = s->uuid;
	sds_add.uuid.len = 16;
	return sim_admin(c, &cmd, NULL);
}

static uint64_t add_device(struct sim_cluster *c, struct sim_sds *s, unsigned d)
{
	char name[32], path[64];
	uint8_t uuid[16];
	COMMAND(device_add, CMD_DEVICE_ADD, CmdDeviceAdd, DEVICE_ADD);

	sim_draw_bytes(c->w, uuid, 16);
	snprintf(name, sizeof(name), "%s-d%u", s->host.name, d + 1);
	snprintf(path, sizeof(path), "%s", sim_disk_path(s->disk[d]));
	device_add.name = name;
	device_add.sds = s->id;
	device_add.pool = c->pool;
	device_add.path = path;
	device_add.uuid.data = uuid;
	device_add.uuid.len = 16;
	return sim_admin(c, &cmd, NULL);
}

static uint64_t add_pool(struct sim_cluster *c)
{
	char name[] = "pool1";
	COMMAND(pool_add, CMD_POOL_ADD, CmdPoolAdd, POOL_ADD);

	pool_add.name = name;
	pool_add.domain = c->domain;
	pool_add.pg_count = c->shape.pg_count;
	pool_add.spare_pct = 10;
	pool_add.zero_padding = true;
	return sim_admin(c, &cmd, NULL);
}

static uint64_t create_system(struct sim_cluster *c)
{
	Pb__MdmMember member[SIM_MDMS], *list[SIM_MDMS];
	char name[SIM_MDMS][16], address[SIM_MDMS][32], raft[SIM_MDMS][32], system[] = "sim";
	uint8_t uuid[16];
	COMMAND(system_create, CMD_SYSTEM_CREATE, CmdSystemCreate, SYSTEM_CREATE);

	sim_draw_bytes(c->w, uuid, 16);
	for (unsigned i = 0; i < c->shape.mdms; i++) {
		snprintf(name[i], sizeof(name[i]), "mdm%u", i + 1);
		snprintf(address[i], sizeof(address[i]), "10.0.0.%u:6611", i + 1);
		snprintf(raft[i], sizeof(raft[i]), "10.0.0.%u:9011", i + 1);
		pb__mdm_member__init(&member[i]);
		member[i].id = i + 1;
		member[i].name = name[i];
		member[i].client_address = address[i];
		member[i].raft_address = raft[i];
		list[i] = &member[i];
	}
	system_create.uuid.data = uuid;
	system_create.uuid.len = 16;
	system_create.name = system;
	system_create.lease_ms = c->shape.lease_ms;
	system_create.n_mdms = c->shape.mdms;
	system_create.mdms = list;
	return sim_admin(c, &cmd, NULL);
}

static uint64_t add_domain(struct sim_cluster *c)
{
	char name[] = "pd1";
	COMMAND(domain_add, CMD_DOMAIN_ADD, CmdDomainAdd, DOMAIN_ADD);

	domain_add.name = name;
	return sim_admin(c, &cmd, NULL);
}

static uint64_t add_volume(struct sim_cluster *c, unsigned v)
{
	COMMAND(volume_add, CMD_VOLUME_ADD, CmdVolumeAdd, VOLUME_ADD);

	volume_add.name = c->volume_name[v];
	volume_add.pool = c->pool;
	volume_add.size = c->shape.volume_bytes[v];
	volume_add.thin = true;
	return sim_admin(c, &cmd, NULL);
}

static uint64_t add_sdc(struct sim_cluster *c, struct sim_sdc *s)
{
	COMMAND(sdc_add, CMD_SDC_ADD, CmdSdcAdd, SDC_ADD);

	sdc_add.name = s->host.name;
	sdc_add.guid.data = s->guid;
	sdc_add.guid.len = 16;
	return sim_admin(c, &cmd, NULL);
}

static uint64_t map_volume(struct sim_cluster *c, uint64_t volume, const struct sim_sdc *s,
			   bool shared)
{
	COMMAND(map, CMD_MAP, CmdMap, MAP);

	map.volume = volume;
	map.sdc = s->id;
	map.shared = shared;
	return sim_admin(c, &cmd, NULL);
}

static bool set_up_storage(struct sim_cluster *c)
{
	if (!create_system(c) || !(c->domain = add_domain(c)))
		return false;
	for (unsigned i = 0; i < c->shape.fault_sets; i++)
		if (!(c->fault_set[i] = add_fault_set(c, i)))
			return false;
	if (!(c->pool = add_pool(c)))
		return false;
	for (unsigned i = 0; i < c->shape.sdss; i++)
		if (!(c->sds[i].id = add_sds(c, &c->sds[i])))
			return false;
	for (unsigned i = 0; i < c->shape.sdss; i++)
		sim_sds_start_in(&c->sds[i], sim_below(c->w, 20 * SIM_MS));
	for (unsigned i = 0; i < c->shape.sdss; i++)
		for (unsigned d = 0; d < c->shape.disks; d++)
			if (!(c->sds[i].device[d] = add_device(c, &c->sds[i], d)))
				return false;
	return true;
}

/* All devices are up, so placement is at rest, and all PGs are placed. */
static bool placed(struct sim_cluster *c)
{
	for (unsigned i = 0; i < c->shape.sdss; i++)
		for (unsigned d = 0; d < c->shape.disks; d++) {
			const struct ash_map_device *dev =
				ash_map_device(c->map, c->sds[i].device[d]);

			if (!dev || dev->state != PB__DEVICE_STATE__DEVICE_UP)
				return false;
		}
	return sim_all_in_sync(c);
}

static bool set_up_volumes(struct sim_cluster *c)
{
	for (unsigned i = 0; i < c->shape.sdcs; i++)
		if (!(c->sdc[i].id = add_sdc(c, &c->sdc[i])))
			return false;
	for (unsigned v = 0; v < c->shape.volumes; v++) {
		const struct ash_map_volume *vol;
		uint64_t id;

		snprintf(c->volume_name[v], sizeof(c->volume_name[v]), "vol%u", v + 1);
		if (!(id = add_volume(c, v)))
			return false;
		vol = ash_map_volume(c->map, id);
		if (!vol) {
			sim_fail(c->w, "setup", "volume %u is not in the map", v + 1);
			return false;
		}
		c->volume_node[v] = vol->node;
		c->volume_history[v] = hist_add_volume(c->history, c->volume_name[v],
						       c->shape.volume_bytes[v] / SIM_SECTOR,
						       c->shape.any_write_back, c->shape.shared[v]);
		for (unsigned i = 0; i < c->shape.sdcs; i++)
			if ((c->shape.shared[v] || c->shape.mapped_to[v] == i) &&
			    !map_volume(c, id, &c->sdc[i], c->shape.shared[v]))
				return false;
	}
	return true;
}

bool sim_set_up(struct sim_cluster *c)
{
	if (!set_up_storage(c))
		return false;
	if (!sim_run_until(c, placed, 60 * SIM_S)) {
		sim_fail(c->w, "setup", "devices are not up and placed after 60 s");
		return false;
	}
	return set_up_volumes(c);
}
