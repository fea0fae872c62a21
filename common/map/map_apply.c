// SPDX-License-Identifier: MIT
/*
 * Taking over a full map or a delta: check all of it, then change, then tell. What can fail for
 * lack of memory comes first as far as possible.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/uuid.h"
#include "common/map/map_int.h"

/* Ids that a message lists, by kind. */
struct listed {
	struct ash_htab ids[MAP_KINDS];
};

static void listed_done(struct listed *l)
{
	for (enum map_kind k = 0; k < MAP_KINDS; k++)
		ash_htab_done(&l->ids[k]);
}

/* Return 0; -EINVAL an object is malformed or named twice; -ENOMEM. */
static int check_kind(const struct ash_map *map, const Pb__Map *pb, enum map_kind k,
		      struct ash_htab *ids)
{
	void *const *list;
	size_t n = map_kinds[k].list(pb, &list);

	if (n > 0 && ash_htab_reserve(ids, n))
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		uint64_t id = map_kinds[k].pb_id(list[i]);

		if (map_kinds[k].check(map, list[i]) || ash_htab_get(ids, id))
			return -EINVAL;
		if (ash_htab_put(ids, id, list[i]))
			return -ENOMEM;
	}
	return 0;
}

static int check_system(const struct ash_map *map, const Pb__System *s)
{
	if (!s)
		return 0;
	if (s->uuid.len != 16 && s->uuid.len != 0)
		return -EINVAL;
	/* Somebody else's map must never be mixed into ours. */
	if (s->uuid.len == 16 && !ash_uuid_is_zero(map->system_uuid) &&
	    !ash_uuid_equal(map->system_uuid, s->uuid.data))
		return -EINVAL;
	return 0;
}

static int check_all(const struct ash_map *map, const Pb__Map *pb, struct listed *ret_listed)
{
	int err = check_system(map, pb->system);

	for (enum map_kind k = 0; k < MAP_KINDS && !err; k++)
		err = check_kind(map, pb, k, &ret_listed->ids[k]);
	for (size_t i = 0; i < pb->n_rows && !err; i++)
		err = map_row_check(map, pb, pb->rows[i]);
	return err;
}

/* ---- changes kept for the watch */

static int changes_init(struct map_changes *c, const struct ash_map *map, const Pb__Map *pb,
			const struct ash_map_watch *watch)
{
	size_t most = pb->n_removed;

	*c = (struct map_changes){.watch = watch};
	if (!watch)
		return 0;
	for (enum map_kind k = 0; k < MAP_KINDS; k++) {
		void *const *list;

		most += map_kinds[k].list(pb, &list);
		if (pb->base_version == 0)
			most += map->table[k].count;
	}
	c->object = malloc((most + 1) * sizeof(*c->object));
	c->row = malloc((pb->n_rows + 1) * sizeof(*c->row));
	return c->object && c->row ? 0 : -ENOMEM;
}

static void changes_done(struct map_changes *c)
{
	free(c->object);
	free(c->row);
}

static void changed(struct map_changes *c, int pb_kind, uint64_t id, bool removed)
{
	if (c->watch)
		c->object[c->objects++] =
			(struct map_change){.pb_kind = pb_kind, .removed = removed, .id = id};
}

static void tell(const struct map_changes *c)
{
	const struct ash_map_watch *w = c->watch;

	for (size_t i = 0; i < c->objects; i++) {
		const struct map_change *o = &c->object[i];

		if (o->removed && w->removed)
			w->removed(w->arg, o->pb_kind, o->id);
		else if (!o->removed && w->object)
			w->object(w->arg, o->pb_kind, o->id);
	}
	for (size_t i = 0; i < c->rows && w->row; i++)
		w->row(w->arg, c->row[i].pool, c->row[i].pg, &c->row[i].old);
}

/* ---- objects */

static int apply_object(struct ash_map *map, enum map_kind k, const void *pb,
			struct map_changes *changes)
{
	const struct map_kind_ops *ops = &map_kinds[k];
	uint64_t id = ops->pb_id(pb);
	void *obj = map_find(map, k, id);
	bool fresh = !obj;
	int err;

	if (obj && *map_obj_version(k, obj) >= ops->pb_version(pb))
		return 0;
	if (fresh && !(obj = calloc(1, ops->bytes)))
		return -ENOMEM;
	err = ops->fill(map, obj, pb);
	if (!err && fresh)
		err = map_insert(map, k, obj);
	if (err) {
		if (fresh) {
			ops->drop(map, obj);
			free(obj);
		}
		return err;
	}
	*map_obj_version(k, obj) = ops->pb_version(pb);
	changed(changes, ops->pb_kind, id, false);
	return 0;
}

static void remove_one(struct ash_map *map, enum map_kind k, uint64_t id,
		       struct map_changes *changes)
{
	map_remove(map, k, id);
	changed(changes, map_kinds[k].pb_kind, id, true);
}

static void apply_removals(struct ash_map *map, const Pb__Map *pb, struct map_changes *changes)
{
	for (size_t i = 0; i < pb->n_removed; i++)
		for (enum map_kind k = 0; k < MAP_KINDS; k++) {
			void *obj;

			if (map_kinds[k].pb_kind != (int)pb->removed[i]->kind)
				continue;
			obj = map_find(map, k, pb->removed[i]->id);
			if (obj && *map_obj_version(k, obj) <= pb->removed[i]->version)
				remove_one(map, k, pb->removed[i]->id, changes);
		}
}

/* A full map is all there is: what it does not name is gone. */
static void remove_unlisted(struct ash_map *map, const struct listed *listed,
			    struct map_changes *changes)
{
	for (enum map_kind k = 0; k < MAP_KINDS; k++)
		for (size_t i = map->table[k].count; i-- > 0;) {
			uint64_t id = map_obj_id(k, map->table[k].obj[i]);

			if (!ash_htab_get(&listed->ids[k], id))
				remove_one(map, k, id, changes);
		}
}

static void apply_system(struct ash_map *map, const Pb__System *s)
{
	if (!s || (s->version <= map->system_version && map->system_version))
		return;
	map->system_version = s->version;
	if (s->uuid.len == 16)
		memcpy(map->system_uuid, s->uuid.data, 16);
	map->dr_epoch = s->dr_epoch;
	map->lease_ms = s->lease_ms;
	map->op_deadline_ms = s->op_deadline_ms;
}

/* Everything but the versions. Return 0 or -ENOMEM. */
static int apply_contents(struct ash_map *map, const Pb__Map *pb, const struct listed *listed,
			  struct map_changes *changes)
{
	apply_system(map, pb->system);
	if (pb->base_version == 0)
		remove_unlisted(map, listed, changes);
	else
		apply_removals(map, pb, changes);
	for (enum map_kind k = 0; k < MAP_KINDS; k++) {
		void *const *list;
		size_t n = map_kinds[k].list(pb, &list);

		for (size_t i = 0; i < n; i++)
			if (apply_object(map, k, list[i], changes))
				return -ENOMEM;
	}
	if (map->endpoints_dirty)
		map_rows_refresh_endpoints(map);
	for (size_t i = 0; i < pb->n_rows; i++)
		map_row_apply(map, pb->rows[i], changes);
	return 0;
}

int ash_map_apply(struct ash_map *map, const Pb__Map *pb, const struct ash_map_watch *watch)
{
	struct listed listed = {0};
	struct map_changes changes;
	int err;

	if (pb->base_version != 0 && pb->base_version > map->version)
		return -ESTALE;
	/* Late or repeated. It may name objects that were removed since: nothing of it counts. */
	if (pb->version < map->version || (pb->version == map->version && map->version > 0))
		return 0;
	err = changes_init(&changes, map, pb, watch);
	if (!err)
		err = check_all(map, pb, &listed);
	if (!err) {
		err = apply_contents(map, pb, &listed, &changes);
		if (!err) {
			map->version = pb->version;
			ash_map_raise_place_version(map, pb->place_version);
		}
		tell(&changes);
	}
	changes_done(&changes);
	listed_done(&listed);
	return err;
}

void ash_map_raise_place_version(struct ash_map *map, uint64_t place_version)
{
	if (place_version > map->place_version)
		map->place_version = place_version;
}
