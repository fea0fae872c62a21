// SPDX-License-Identifier: MIT
/*
 * Who is alone in sync stamps, with the generation that made it so, every chunk that may differ
 * from the copies that left: hot in the activity log, or marked unsettled. The marks are this
 * copy's own and do not travel; stamps go along to whatever is built from it.
 */
#include <stdlib.h>

#include "common/base/clean.h"
#include "sds/core/sds_int.h"

struct stamp_job {
	struct ash_list link;
	struct sds_dev *dev;
	struct sync_list list;
};

static void stamped(void *arg, int status)
{
	struct stamp_job *job = arg;
	struct sds_dev *dev = job->dev;

	/* On an error the store has failed, and says so itself. */
	ash_list_remove(&job->link);
	sync_list_done(&job->list);
	free(job);
	dev_op_ended(dev);
}

static bool due(const struct sds_dev *dev, const struct sds_pg *pg)
{
	return pg->stamp_due && pg->dev == dev;
}

/* One scan for all PGs that became ours alone by the same generation. */
static void stamp(struct sds *s, struct sds_dev *dev, uint64_t gen)
{
	struct stamp_job *job = ash_xcalloc(1, sizeof(*job));
	struct sds_chunk_info info[256];
	uint64_t cursor = 0;

	do {
		unsigned n = sds_store_scan(dev->store, cursor, info, 256, &cursor);

		for (unsigned i = 0; i < n; i++) {
			const struct sds_pg *pg;

			if (!info[i].unsettled || info[i].stamp >= gen)
				continue;
			pg = pg_of(s, info[i].node, info[i].chunk);
			if (pg && due(dev, pg) && pg->row.gen == gen)
				sync_list_add(&job->list, &info[i]);
		}
	} while (cursor);
	job->dev = dev;
	ash_list_push_back(&dev->stamping, &job->link);
	dev->ops++;
	sds_store_stamp(dev->store, job->list.entry, job->list.count, gen, stamped, job);
}

void settle_turn(struct sds *s)
{
	if (!s->stamp_due)
		return;
	s->stamp_due = false;
	ash_list_each(l, &s->local_pgs) {
		struct sds_pg *pg = ash_container_of(l, struct sds_pg, local);
		struct sds_dev *dev = pg->dev;
		uint64_t gen = pg->row.gen;

		if (!pg->stamp_due)
			continue;
		if (pg->role == ROLE_PRIMARY && dev->state == DEV_OPEN && ASH_RULE(STAMP))
			stamp(s, dev, gen);
		ash_list_each(k, &s->local_pgs) {
			struct sds_pg *same = ash_container_of(k, struct sds_pg, local);

			if (same->dev == dev && same->row.gen == gen)
				same->stamp_due = false;
		}
	}
}

void settle_free(struct sds_dev *dev)
{
	struct ash_list *l;

	while ((l = ash_list_pop(&dev->stamping))) {
		struct stamp_job *job = ash_container_of(l, struct stamp_job, link);

		sync_list_done(&job->list);
		free(job);
	}
}
