// SPDX-License-Identifier: MIT
#include "sds/core/range_lock.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "common/shared/chunk_pg.h"

enum { IDLE, WAITING, READY, HELD };

int sds_locks_init(struct sds_locks *locks, uint32_t buckets)
{
	*locks = (struct sds_locks){.mask = buckets - 1};
	ash_list_init(&locks->ready);
	locks->bucket = calloc(buckets, sizeof(*locks->bucket));
	if (!locks->bucket)
		return -ENOMEM;
	for (uint32_t i = 0; i < buckets; i++)
		ash_list_init(&locks->bucket[i]);
	return 0;
}

void sds_locks_done(struct sds_locks *locks)
{
	free(locks->bucket);
	locks->bucket = NULL;
}

static struct ash_list *bucket_of(struct sds_locks *locks, const struct sds_range *r)
{
	return &locks->bucket[ash_mix64(r->node * 0x9e3779b97f4a7c15ull + r->chunk) & locks->mask];
}

static bool conflict(const struct sds_range *a, const struct sds_range *b)
{
	return a->node == b->node && a->chunk == b->chunk && a->first < b->end &&
	       b->first < a->end && !(a->shared && b->shared);
}

/* Does anything earlier in the bucket stand in the way? */
static bool blocked(struct ash_list *bucket, const struct sds_range *r)
{
	ash_list_each(l, bucket) {
		const struct sds_range *other = ash_container_of(l, struct sds_range, in_bucket);

		if (other == r)
			return false;
		if (conflict(other, r))
			return true;
	}
	return false;
}

bool sds_range_lock(struct sds_locks *locks, struct sds_range *r)
{
	struct ash_list *bucket = bucket_of(locks, r);

	assert(r->state == IDLE && r->first < r->end);
	ash_list_init(&r->in_ready);
	ash_list_push_back(bucket, &r->in_bucket);
	if (blocked(bucket, r)) {
		r->state = WAITING;
		locks->waiting++;
		return false;
	}
	r->state = HELD;
	locks->held++;
	return true;
}

void sds_range_unlock(struct sds_locks *locks, struct sds_range *r)
{
	struct ash_list *bucket = bucket_of(locks, r), *next = r->in_bucket.next;

	if (r->state == IDLE)
		return;
	if (r->state == HELD)
		locks->held--;
	else
		locks->waiting--;
	r->state = IDLE;
	ash_list_remove(&r->in_ready);
	ash_list_remove(&r->in_bucket);
	for (; next != bucket; next = next->next) {
		struct sds_range *later = ash_container_of(next, struct sds_range, in_bucket);

		if (later->state != WAITING || !conflict(r, later) || blocked(bucket, later))
			continue;
		later->state = READY;
		ash_list_push_back(&locks->ready, &later->in_ready);
	}
}

bool sds_range_is_held(const struct sds_range *r)
{
	return r->state == HELD;
}

bool sds_locks_run(struct sds_locks *locks)
{
	struct ash_list *l;
	bool any = false;

	while ((l = ash_list_pop(&locks->ready))) {
		struct sds_range *r = ash_container_of(l, struct sds_range, in_ready);

		r->state = HELD;
		locks->waiting--;
		locks->held++;
		any = true;
		r->granted(r);
	}
	return any;
}
