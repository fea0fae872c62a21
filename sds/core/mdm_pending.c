// SPDX-License-Identifier: MIT
/*
 * What the map waits for from us. A fence: changes of an SDC that was unmapped have ended here. A
 * tombstone: nothing of a deleted node is left on a device. Both first wait for what had begun when
 * the map was taken over; nothing of the kind can begin after that.
 */
#include <stdlib.h>

#include "common/base/clean.h"
#include "sds/core/sds_int.h"

struct sds_pending {
	struct ash_list link; /* s->pendings */
	struct sds *s;
	uint64_t fence;	       /* or 0: */
	uint64_t node, device; /* tombstone on a device */
	uint64_t seq;	       /* operations up to this one have to end */
	bool dropping, dropped, confirming, confirmed;
	struct sds_dev *dev; /* while dropping */
	uint64_t again_ns;
};

static struct sds_pending *find(struct sds *s, uint64_t fence, uint64_t node, uint64_t device)
{
	struct sds_pending *p;

	ash_list_each(l, &s->pendings) {
		p = ash_container_of(l, struct sds_pending, link);
		if (p->fence == fence && p->node == node && p->device == device)
			return p;
	}
	p = ash_xcalloc(1, sizeof(*p));
	p->s = s;
	p->fence = fence;
	p->node = node;
	p->device = device;
	p->seq = s->seq;
	ash_list_push_back(&s->pendings, &p->link);
	return p;
}

static bool listed(const uint64_t *ids, uint32_t count, uint64_t id)
{
	for (uint32_t i = 0; i < count; i++)
		if (ids[i] == id)
			return true;
	return false;
}

static void take(struct sds *s)
{
	const struct ash_map_fence *f = NULL;
	const struct ash_map_tombstone *t = NULL;

	while ((f = ash_map_next_fence(s->map, f ? f->id : 0)))
		if (listed(f->pending_sds, f->pending, s->self))
			find(s, f->id, f->node, 0);
	while ((t = ash_map_next_tombstone(s->map, t ? t->node : 0)))
		for (uint32_t i = 0; i < t->pending; i++)
			if (dev_by_id(s, t->pending_devices[i]))
				find(s, 0, t->node, t->pending_devices[i]);
}

/* The map does not wait for it any more. */
static bool over(const struct sds_pending *p)
{
	const struct ash_map_tombstone *t;
	const struct ash_map_fence *f = NULL;

	if (!p->fence) {
		t = ash_map_tombstone(p->s->map, p->node);
		return !t || !listed(t->pending_devices, t->pending, p->device);
	}
	f = ash_map_next_fence(p->s->map, p->fence - 1);
	return !f || f->id != p->fence || !listed(f->pending_sds, f->pending, p->s->self);
}

static void confirmed(void *arg, int result, const Pb__Reply *reply)
{
	struct sds_pending *p = arg;

	p->confirming = false;
	p->confirmed = !result && !(reply->error && reply->error->code);
	p->again_ns = sds_now(p->s) + (p->confirmed ? 1000 : 200) * MS;
	p->s->pending_due = true;
}

static void confirm(struct sds_pending *p)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__Confirm c = PB__CONFIRM__INIT;

	c.fence = p->fence;
	c.node = p->fence ? 0 : p->node;
	c.n_devices = p->fence ? 0 : 1;
	c.devices = &p->device;
	c.sds = p->s->self;
	req.r_case = PB__REQUEST__R_CONFIRM;
	req.confirm = &c;
	p->confirming = true;
	p->s->ctl->ops->call(p->s->ctl, &req, 2000, confirmed, p);
}

static void dropped(void *arg, int status)
{
	struct sds_pending *p = arg;
	struct sds_dev *dev = p->dev;

	p->dropping = false;
	p->dropped = status == 0;
	p->dev = NULL;
	p->s->pending_due = true;
	dev_op_ended(dev);
}

static void drop(struct sds_pending *p, struct sds_dev *dev)
{
	if (!ASH_RULE(DROP_GONE)) {
		p->dropped = true;
		return;
	}
	p->dropping = true;
	p->dev = dev;
	dev->ops++;
	sds_store_drop_node(dev->store, p->node, dropped, p);
}

static void go_on(struct sds_pending *p, uint64_t now)
{
	struct sds *s = p->s;
	struct sds_dev *dev = p->fence ? NULL : dev_by_id(s, p->device);

	if (p->confirming || p->dropping || now < p->again_ns)
		return;
	if (op_node_busy(s, p->node, p->seq))
		return;
	if (!p->fence && !p->dropped) {
		if (dev)
			drop(p, dev);
		return;
	}
	if (s->registered)
		confirm(p);
}

void pending_turn(struct sds *s)
{
	uint64_t now;

	if ((!s->pending_due && ash_list_empty(&s->pendings)) || !s->self || s->stopping)
		return;
	now = sds_now(s);
	if (s->pending_due)
		take(s);
	s->pending_due = false;
	ash_list_each_safe(l, &s->pendings) {
		struct sds_pending *p = ash_container_of(l, struct sds_pending, link);

		if (p->confirming || p->dropping)
			continue;
		if (over(p) || (!p->fence && !dev_by_id(s, p->device))) {
			ash_list_remove(&p->link);
			free(p);
			continue;
		}
		go_on(p, now);
	}
}

void pending_free(struct sds *s)
{
	struct ash_list *l;

	while ((l = ash_list_pop(&s->pendings)))
		free(ash_container_of(l, struct sds_pending, link));
}
