// SPDX-License-Identifier: MIT
/* Which chunks of a PG a returning copy has to be compared in. Pure. */
#include <stdlib.h>

#include "common/base/clean.h"
#include "sds/core/sds_int.h"

void sync_list_add(struct sync_list *list, const struct sds_chunk_info *info)
{
	if (list->count == list->room) {
		list->room = list->room ? 2 * list->room : 64;
		list->entry = ash_xrealloc(list->entry, list->room * sizeof(*list->entry));
	}
	list->entry[list->count++] = *info;
}

void sync_list_done(struct sync_list *list)
{
	free(list->entry);
	*list = (struct sync_list){0};
}

static int order(const struct sds_chunk_info *a, const struct sds_chunk_info *b)
{
	if (a->node != b->node)
		return a->node < b->node ? -1 : 1;
	if (a->chunk != b->chunk)
		return a->chunk < b->chunk ? -1 : 1;
	return 0;
}

static int compare(const void *a, const void *b)
{
	return order(a, b);
}

static void sort(struct sync_list *list)
{
	if (list->count)
		qsort(list->entry, list->count, sizeof(*list->entry), compare);
}

/*
 * Changed since the copy left; or possibly different, by the marks of either side, whether or not
 * it restarted; or in one inventory only. @left_gen 0: never in sync, so everything.
 */
uint32_t sync_set(struct sync_list *mine, struct sync_list *theirs, uint64_t left_gen,
		  struct sync_list *set)
{
	uint32_t m = 0, t = 0;

	sort(mine);
	sort(theirs);
	while (m < mine->count || t < theirs->count) {
		const struct sds_chunk_info *a = m < mine->count ? &mine->entry[m] : NULL;
		const struct sds_chunk_info *b = t < theirs->count ? &theirs->entry[t] : NULL;
		int o = !a ? 1 : !b ? -1 : order(a, b);
		bool marked;

		if (o) {
			sync_list_add(set, o < 0 ? a : b);
			m += o < 0;
			t += o > 0;
			continue;
		}
		marked = (a->unsettled && ASH_RULE(RESYNC_HOT)) ||
			 (b->unsettled && ASH_RULE(RESYNC_UNION));
		if (a->stamp >= left_gen || marked)
			sync_list_add(set, a);
		m++;
		t++;
	}
	return set->count;
}
