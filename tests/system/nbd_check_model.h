/* SPDX-License-Identifier: MIT */
/*
 * What a disk may answer when many operations overlap in time: a set of possible contents per
 * 512-byte sector.
 *
 * Time is a counter of begins and ends. A content is possible for a read unless it was certainly
 * replaced before the read began: by a write that began after it had ended, and itself had ended;
 * or because a read that had ended before had already seen something that only later writes can
 * have put there. Contents that were replaced are kept until the last read that may still see them
 * has ended.
 */
#ifndef ASHLAR_TESTS_SYSTEM_NBD_CHECK_MODEL_H
#define ASHLAR_TESTS_SYSTEM_NBD_CHECK_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define SECTOR 512u

struct model;

/* All sectors hold zeros. */
struct model *model_new(uint64_t sectors);
void model_free(struct model *m);

/* An operation of the client. @value: 0 zeros, else unique per write. Its time begins now. */
struct model_op {
	uint64_t first, count; /* sectors */
	uint64_t value, begin;
	bool write;
	struct model_op *prev, *next; /* of those in flight */
};
void model_begin(struct model *m, struct model_op *op);
/* @sure: it was carried out. Else (an error) it may happen at any time from now on. */
void model_end_write(struct model *m, struct model_op *op, bool sure);
/* Before the end: was it allowed that this read saw @value in the sector? */
bool model_allows(const struct model *m, const struct model_op *read, uint64_t sector,
		  uint64_t value);
/* After the check of all its sectors; @seen[i] is what it saw. NULL: learn nothing. */
void model_end_read(struct model *m, struct model_op *op, const uint64_t *seen);
/* The possible values, for a message. */
void model_print(const struct model *m, uint64_t sector);

#endif
