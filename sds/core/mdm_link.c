// SPDX-License-Identifier: MIT
/* The talk with the MDM: registration, heartbeats, the map. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "common/base/err.h"
#include "sds/core/sds_int.h"

/* A registration waits for the Raft log's disk: one that is given up while it is under way is
 * repeated and commits twice. */
#define REGISTER_MS 5000

/* ------------------------------------------------------------ the map */

static void on_object(void *arg, int kind, uint64_t id)
{
	if (kind == PB__KIND__KIND_POOL)
		pg_pool_added(arg, id);
}

static void on_removed(void *arg, int kind, uint64_t id)
{
	if (kind == PB__KIND__KIND_POOL)
		pg_pool_removed(arg, id);
}

static void map_moved(struct sds *s)
{
	const struct ash_map_sds *self = ash_map_sds_by_uuid(s->map, s->cfg.uuid);

	if (self)
		s->self = self->id;
	peer_refresh(s);
	lease_version_moved(s);
	s->devs_due = s->pending_due = true;
	ash_list_each(l, &s->devs) {
		struct sds_dev *dev = ash_container_of(l, struct sds_dev, link);

		if (dev->state == DEV_OPEN)
			sds_store_note_map_version(dev->store, ash_map_version(s->map),
						   ash_map_lease_ms(s->map));
	}
}

static void take_map(struct sds *s, const Pb__Map *map)
{
	struct ash_map_watch watch = {
		.row = pg_on_row, .object = on_object, .removed = on_removed, .arg = s};
	uint64_t before = ash_map_version(s->map);
	int err = ash_map_apply(s->map, map, &watch);

	if (err) {
		sds_trace(s, ASH_LOG_WARN, "event=map_not_taken version=%llu base=%llu error=%d",
			  (unsigned long long)map->version, (unsigned long long)map->base_version,
			  err);
		mdm_want_map(s);
	}
	if (ash_map_version(s->map) != before)
		map_moved(s);
}

int mdm_take_row(struct sds *s, const struct ash_wire_row *row)
{
	struct ash_map_watch watch = {
		.row = pg_on_row, .object = on_object, .removed = on_removed, .arg = s};
	int taken = ash_map_apply_row(s->map, row, &watch);

	if (taken)
		mdm_want_map(s); /* there is more than this row, or it is of a pool unknown here */
	return taken;
}

void mdm_want_map(struct sds *s)
{
	s->map_wanted = true;
}

static void got_map(void *arg, int result, const Pb__Reply *reply)
{
	struct sds *s = arg;

	s->getting_map = false;
	s->map_ns = sds_now(s) + (result ? 100 : 20) * MS;
	if (!result && reply->r_case == PB__REPLY__R_MAP)
		take_map(s, reply->map);
}

static void get_map(struct sds *s)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__GetMap get = PB__GET_MAP__INIT;

	get.have_version = ash_map_version(s->map);
	req.r_case = PB__REQUEST__R_GET_MAP;
	req.get_map = &get;
	s->getting_map = true;
	s->map_wanted = false;
	s->ctl->ops->call(s->ctl, &req, 1000, got_map, s);
}

/* ------------------------------------------------------------ registration */

static void registered(void *arg, int result, const Pb__Reply *reply)
{
	struct sds *s = arg;
	uint64_t now = sds_now(s);

	s->registering = false;
	if (result || (reply->error && reply->error->code)) {
		bool waits = !result && reply->error->code == ASH_E_NOT_FOUND;

		s->register_ns = now + (waits ? 500 : 200) * MS;
		if (!result && (!s->told_ns || now > s->told_ns + 10 * SEC)) {
			s->told_ns = now;
			sds_trace(s, ASH_LOG_WARN, "event=not_registered code=%d why=\"%s\"",
				  reply->error->code, reply->error->message);
		}
		return;
	}
	s->told_ns = 0;
	if (reply->r_case == PB__REPLY__R_MAP)
		take_map(s, reply->map);
	if (!s->registered)
		sds_trace(s, ASH_LOG_NOTICE, "event=registered sds=%llu map=%llu",
			  (unsigned long long)s->self, (unsigned long long)ash_map_version(s->map));
	s->registered = s->ctl_up;
	s->devs_due = s->pending_due = true;
	s->beat_ns = 0;
}

static void register_now(struct sds *s)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__SdsRegister reg = PB__SDS_REGISTER__INIT;
	Pb__Endpoint *endpoints[64], endpoint = PB__ENDPOINT__INIT;
	Pb__FoundDevice *found;
	Pb__FoundDevice **list;
	unsigned n = 0, count = 0;

	ash_list_each(l, &s->devs)
		count++;
	found = ash_xcalloc(count + 1, sizeof(*found));
	list = ash_xcalloc(count + 1, sizeof(*list));
	ash_list_each(l, &s->devs) {
		struct sds_dev *dev = ash_container_of(l, struct sds_dev, link);

		if (dev->state != DEV_OPEN)
			continue;
		pb__found_device__init(&found[n]);
		dev_fill_found(dev, &found[n]);
		list[n] = &found[n];
		n++;
	}
	reg.uuid.data = s->cfg.uuid;
	reg.session.data = s->cfg.session;
	reg.uuid.len = reg.session.len = 16;
	endpoint.ip.data = s->cfg.endpoint.ip;
	endpoint.ip.len = 16;
	endpoint.port = s->cfg.endpoint.port;
	endpoint.transport = s->cfg.endpoint.transport;
	endpoints[0] = &endpoint;
	reg.n_endpoints = 1;
	reg.endpoints = endpoints;
	reg.n_devices = n;
	reg.devices = list;
	reg.map_version = ash_map_version(s->map);
	req.r_case = PB__REQUEST__R_SDS_REGISTER;
	req.sds_register = &reg;
	s->registering = true;
	s->ctl->ops->call(s->ctl, &req, REGISTER_MS, registered, s);
	free(found);
	free(list);
}

void mdm_session(void *owner, bool up)
{
	struct sds *s = owner;

	s->ctl_up = up;
	s->registered = false;
	s->register_ns = 0;
}

void mdm_push(void *owner, const Pb__Push *push)
{
	struct sds *s = owner;

	if (push->p_case == PB__PUSH__P_MAP)
		take_map(s, push->map);
}

/* ------------------------------------------------------------ heartbeats */

static void beaten(void *arg, int result, const Pb__Reply *reply)
{
	struct sds *s = arg;

	s->beating = false;
	if (result || reply->r_case != PB__REPLY__R_HEARTBEAT)
		return;
	if (!reply->heartbeat->registered && s->registered) {
		s->registered = false;
		s->register_ns = 0;
	}
	/* A push may be on its way; if it is not here at the next beat, ask. */
	if (reply->heartbeat->map_version > ash_map_version(s->map)) {
		if (s->map_due)
			mdm_want_map(s);
		s->map_due = !s->map_due;
	} else {
		s->map_due = false;
	}
}

/* What one heartbeat points into. */
struct beat {
	Pb__DeviceStats *dev;
	Pb__DeviceStats **devs;
	Pb__NodeUse *node;
	size_t n_devs, n_nodes, room_nodes;
	size_t *first_node;
	Pb__PeerSilent *silent;
	Pb__PeerSilent **silents;
	size_t n_silent;
	Pb__PgProgress *sync;
	Pb__PgProgress **syncs;
	size_t n_syncs;
};

static void put_node(void *arg, uint64_t node, uint64_t extents)
{
	struct beat *b = arg;

	if (b->n_nodes == b->room_nodes) {
		b->room_nodes = b->room_nodes ? 2 * b->room_nodes : 64;
		b->node = ash_xrealloc(b->node, b->room_nodes * sizeof(*b->node));
	}
	pb__node_use__init(&b->node[b->n_nodes]);
	b->node[b->n_nodes].node = node;
	b->node[b->n_nodes++].extents = extents;
}

static void put_devices(struct sds *s, struct beat *b, bool slow)
{
	size_t count = 0;

	ash_list_each(l, &s->devs)
		count++;
	b->dev = ash_xcalloc(count + 1, sizeof(*b->dev));
	b->devs = ash_xcalloc(count + 1, sizeof(*b->devs));
	b->first_node = ash_xcalloc(count + 2, sizeof(*b->first_node));
	ash_list_each(l, &s->devs) {
		struct sds_dev *dev = ash_container_of(l, struct sds_dev, link);
		struct sds_store_stats st;
		Pb__DeviceStats *d = &b->dev[b->n_devs];

		if (dev->state != DEV_OPEN)
			continue;
		sds_store_stats(dev->store, &st);
		pb__device_stats__init(d);
		d->device = dev->id;
		d->used = st.used * ASH_CHUNK_BYTES;
		d->free = (st.extents - st.used - st.retired) * ASH_CHUNK_BYTES;
		d->reads = st.reads;
		d->writes = st.writes;
		d->read_bytes = st.read_bytes;
		d->write_bytes = st.write_bytes;
		d->checksum_errors = st.checksum_errors;
		d->medium_errors = st.medium_errors;
		b->devs[b->n_devs] = d;
		b->first_node[b->n_devs++] = b->n_nodes;
		if (slow)
			sds_store_node_use(dev->store, put_node, b);
	}
	b->first_node[b->n_devs] = b->n_nodes;
}

static void put_silent(struct sds *s, struct beat *b, uint64_t now)
{
	size_t count = 0;

	for (struct sds_peer *p = s->peers; p; p = p->next)
		count++;
	b->silent = ash_xcalloc(count + 1, sizeof(*b->silent));
	b->silents = ash_xcalloc(count + 1, sizeof(*b->silents));
	for (struct sds_peer *p = s->peers; p; p = p->next) {
		if (!p->shared || now < p->heard_ns + 500 * MS)
			continue;
		pb__peer_silent__init(&b->silent[b->n_silent]);
		b->silent[b->n_silent].sds = p->sds;
		b->silent[b->n_silent].silent_ms = (uint32_t)((now - p->heard_ns) / MS);
		b->silents[b->n_silent] = &b->silent[b->n_silent];
		b->n_silent++;
	}
}

static void put_syncs(struct sds *s, struct beat *b)
{
	b->sync = ash_xcalloc(SYNCS_MAX, sizeof(*b->sync));
	b->syncs = ash_xcalloc(SYNCS_MAX, sizeof(*b->syncs));
	for (unsigned i = 0; i < SYNCS_MAX; i++) {
		const struct sds_sync *y = &s->sync[i];
		Pb__PgProgress *p = &b->sync[b->n_syncs];

		if (!y->pg)
			continue;
		pb__pg_progress__init(p);
		p->pool = y->pg->pool->id;
		p->pg = y->pg->pg;
		p->done = y->done_blocks * ASH_BLOCK_BYTES;
		p->left = (uint64_t)(y->set.count - y->at) * ASH_CHUNK_BYTES;
		b->syncs[b->n_syncs++] = p;
	}
}

static void beat_free(struct beat *b)
{
	free(b->dev);
	free(b->devs);
	free(b->node);
	free(b->first_node);
	free(b->silent);
	free(b->silents);
	free(b->sync);
	free(b->syncs);
}

static void beat(struct sds *s, uint64_t now)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__Heartbeat hb = PB__HEARTBEAT__INIT;
	struct beat b = {0};
	bool slow = now >= s->slow_beat_ns;
	Pb__NodeUse **nodes;

	put_devices(s, &b, slow);
	put_silent(s, &b, now);
	put_syncs(s, &b);
	nodes = ash_xcalloc(b.n_nodes + 1, sizeof(*nodes));
	for (size_t i = 0; i < b.n_nodes; i++)
		nodes[i] = &b.node[i];
	for (size_t i = 0; i < b.n_devs; i++) {
		b.dev[i].nodes = nodes + b.first_node[i];
		b.dev[i].n_nodes = b.first_node[i + 1] - b.first_node[i];
	}
	if (slow)
		s->slow_beat_ns = now + 2 * SEC;
	hb.map_version = ash_map_version(s->map);
	hb.n_devices = b.n_devs;
	hb.devices = b.devs;
	hb.n_silent = b.n_silent;
	hb.silent = b.silents;
	hb.n_resync = b.n_syncs;
	hb.resync = b.syncs;
	hb.worst_turn_ms = s->worst_turn_ms;
	hb.session.data = s->cfg.session;
	hb.session.len = 16;
	hb.sds = s->self;
	s->worst_turn_ms = 0;
	req.r_case = PB__REQUEST__R_HEARTBEAT;
	req.heartbeat = &hb;
	s->beating = true;
	s->ctl->ops->call(s->ctl, &req, 1000, beaten, s);
	free(nodes);
	beat_free(&b);
}

/* ------------------------------------------------------------ turn and tick */

void mdm_turn(struct sds *s)
{
	uint64_t now;

	if (!s->ctl_up || s->stopping)
		return;
	now = sds_now(s);
	if (!s->registered && !s->registering && now >= s->register_ns)
		register_now(s);
	if (s->map_wanted && s->registered && !s->getting_map && now >= s->map_ns)
		get_map(s);
	mdm_report(s);
}

void mdm_tick(struct sds *s, uint64_t now)
{
	/* mdm_turn() follows in this turn for the rest. */
	if (s->ctl_up && s->registered && !s->stopping && now >= s->beat_ns &&
	    (!s->beating || now >= s->beat_ns + s->cfg.heartbeat_ms * MS)) {
		s->beat_ns = now + s->cfg.heartbeat_ms * MS;
		beat(s, now);
	}
}
