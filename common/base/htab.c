// SPDX-License-Identifier: MIT
#include "common/base/htab.h"

#include <errno.h>
#include <stdlib.h>

#include "common/shared/chunk_pg.h"

static size_t home(const struct ash_htab *t, uint64_t key)
{
	return (size_t)ash_mix64(key) & (t->room - 1);
}

static void place(struct ash_htab *t, uint64_t key, void *value)
{
	size_t i = home(t, key);

	while (t->values[i])
		i = (i + 1) & (t->room - 1);
	t->keys[i] = key;
	t->values[i] = value;
	t->count++;
}

static int grow(struct ash_htab *t, size_t room)
{
	struct ash_htab fresh = {.room = room};

	fresh.keys = calloc(room, sizeof(*fresh.keys));
	fresh.values = calloc(room, sizeof(*fresh.values));
	if (!fresh.keys || !fresh.values) {
		ash_htab_done(&fresh);
		return -ENOMEM;
	}
	for (size_t i = 0; i < t->room; i++)
		if (t->values[i])
			place(&fresh, t->keys[i], t->values[i]);
	ash_htab_done(t);
	*t = fresh;
	return 0;
}

int ash_htab_reserve(struct ash_htab *t, size_t count)
{
	size_t room = 16;

	while (room * 3 / 4 < count)
		room *= 2;
	return room > t->room ? grow(t, room) : 0;
}

void ash_htab_done(struct ash_htab *t)
{
	free(t->keys);
	free(t->values);
	*t = (struct ash_htab){0};
}

/* Slot of the key, or room when it is not there. */
static size_t find(const struct ash_htab *t, uint64_t key)
{
	if (t->room == 0)
		return 0;
	for (size_t i = home(t, key); t->values[i]; i = (i + 1) & (t->room - 1))
		if (t->keys[i] == key)
			return i;
	return t->room;
}

int ash_htab_put(struct ash_htab *t, uint64_t key, void *value)
{
	size_t i = find(t, key);
	int err;

	if (i < t->room) {
		t->values[i] = value;
		return 0;
	}
	err = ash_htab_reserve(t, t->count + 1);
	if (err)
		return err;
	place(t, key, value);
	return 0;
}

void *ash_htab_get(const struct ash_htab *t, uint64_t key)
{
	size_t i = find(t, key);

	return i < t->room ? t->values[i] : NULL;
}

/* Closes the gap at @hole: moves back every follower whose home is not after the hole. */
static void close_gap(struct ash_htab *t, size_t hole)
{
	size_t mask = t->room - 1;

	for (size_t i = (hole + 1) & mask; t->values[i]; i = (i + 1) & mask) {
		size_t h = home(t, t->keys[i]);

		if (((i - h) & mask) < ((i - hole) & mask))
			continue;
		t->keys[hole] = t->keys[i];
		t->values[hole] = t->values[i];
		t->values[i] = NULL;
		hole = i;
	}
}

void *ash_htab_remove(struct ash_htab *t, uint64_t key)
{
	size_t i = find(t, key);
	void *value;

	if (i >= t->room)
		return NULL;
	value = t->values[i];
	t->values[i] = NULL;
	t->count--;
	close_gap(t, i);
	return value;
}

void *ash_htab_next(const struct ash_htab *t, size_t *cursor, uint64_t *ret_key)
{
	while (*cursor < t->room) {
		size_t i = (*cursor)++;

		if (t->values[i]) {
			if (ret_key)
				*ret_key = t->keys[i];
			return t->values[i];
		}
	}
	return NULL;
}
