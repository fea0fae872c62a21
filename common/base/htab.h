/* SPDX-License-Identifier: MIT */
/*
 * Hash table from u64 to pointer: open addressing, linear probing, no tombstones. Grows only in
 * ash_htab_put(); a table reserved large enough never allocates. One thread.
 */
#ifndef ASHLAR_COMMON_BASE_HTAB_H
#define ASHLAR_COMMON_BASE_HTAB_H

#include <stddef.h>
#include <stdint.h>

struct ash_htab {
	uint64_t *keys;
	void **values; /* NULL = free slot */
	size_t room;   /* power of two, or 0 */
	size_t count;
};

/* Room for @count entries without growing. Return 0 or -ENOMEM. Zeroed memory is an empty table. */
int ash_htab_reserve(struct ash_htab *t, size_t count);
void ash_htab_done(struct ash_htab *t);
/* @value not NULL. Replaces. Return 0 or -ENOMEM. */
int ash_htab_put(struct ash_htab *t, uint64_t key, void *value);
void *ash_htab_get(const struct ash_htab *t, uint64_t key);
/* What was there, or NULL. */
void *ash_htab_remove(struct ash_htab *t, uint64_t key);
/* Iteration in no order: *cursor 0 first; NULL at the end. Nothing may be put or removed between.
 */
void *ash_htab_next(const struct ash_htab *t, size_t *cursor, uint64_t *ret_key);

#endif
