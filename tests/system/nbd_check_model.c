// SPDX-License-Identifier: MIT
#include "tests/system/nbd_check_model.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/clean.h"

#define NEVER UINT64_MAX

/* One possible content of a sector. */
struct content {
	struct content *next;
	uint64_t value;
	uint64_t begin, end; /* of its write; end NEVER: in flight, or of unknown outcome */
	uint64_t gone;	     /* reads that begin later cannot see it; NEVER */
};

struct model {
	uint64_t sectors, now;
	struct content **at;
	struct content *spare;
	struct model_op flying; /* head */
};

struct model *model_new(uint64_t sectors)
{
	struct model *m = ash_xcalloc(1, sizeof(*m));

	m->sectors = sectors;
	m->now = 1;
	m->at = ash_xcalloc(sectors, sizeof(*m->at));
	m->flying.next = m->flying.prev = &m->flying;
	for (uint64_t i = 0; i < sectors; i++) {
		m->at[i] = ash_xcalloc(1, sizeof(**m->at));
		m->at[i]->gone = NEVER;
	}
	return m;
}

void model_free(struct model *m)
{
	struct content *c;

	for (uint64_t i = 0; i < m->sectors; i++)
		while ((c = m->at[i])) {
			m->at[i] = c->next;
			free(c);
		}
	while ((c = m->spare)) {
		m->spare = c->next;
		free(c);
	}
	free(m->at);
	free(m);
}

/* Begin of the oldest operation in flight: nothing that was gone before it matters any more. */
static uint64_t horizon(const struct model *m)
{
	return m->flying.next == &m->flying ? m->now : m->flying.next->begin;
}

static void prune(struct model *m, uint64_t sector)
{
	struct content **at = &m->at[sector], *c;
	uint64_t old = horizon(m);

	while ((c = *at)) {
		if (c->gone >= old) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		c->next = m->spare;
		m->spare = c;
	}
}

void model_begin(struct model *m, struct model_op *op)
{
	op->begin = ++m->now;
	op->next = &m->flying;
	op->prev = m->flying.prev;
	op->prev->next = op->next->prev = op;
	if (!op->write)
		return;
	for (uint64_t i = op->first; i < op->first + op->count; i++) {
		struct content *c = m->spare;

		prune(m, i);
		if (m->spare) {
			c = m->spare;
			m->spare = c->next;
		} else {
			c = ash_xcalloc(1, sizeof(*c));
		}
		*c = (struct content){m->at[i], op->value, op->begin, NEVER, NEVER};
		m->at[i] = c;
	}
}

static void unlink_op(struct model_op *op)
{
	op->prev->next = op->next;
	op->next->prev = op->prev;
}

void model_end_write(struct model *m, struct model_op *op, bool sure)
{
	uint64_t now = ++m->now;

	unlink_op(op);
	for (uint64_t i = op->first; sure && i < op->first + op->count; i++) {
		for (struct content *c = m->at[i]; c; c = c->next) {
			if (c->begin == op->begin)
				c->end = now;
			else if (c->end < op->begin && c->gone == NEVER)
				c->gone = now; /* replaced; who began before now may still see it */
		}
		prune(m, i);
	}
}

bool model_allows(const struct model *m, const struct model_op *read, uint64_t sector,
		  uint64_t value)
{
	for (const struct content *c = m->at[sector]; c; c = c->next)
		if (c->value == value && c->gone > read->begin)
			return true;
	return false;
}

void model_end_read(struct model *m, struct model_op *op, const uint64_t *seen)
{
	uint64_t now = ++m->now;

	unlink_op(op);
	for (uint64_t k = 0; seen && k < op->count; k++) {
		uint64_t i = op->first + k, matches = 0;

		for (struct content *c = m->at[i]; c; c = c->next)
			matches += c->value == seen[k] && c->gone > op->begin;
		/* Several writes of zeros cannot be told apart: then nothing was learned. */
		if (matches != 1)
			continue;
		for (struct content *c = m->at[i]; c; c = c->next)
			/* It had ended before the read began, and was not seen: it came before. */
			if (c->value != seen[k] && c->end < op->begin && c->gone == NEVER)
				c->gone = now;
		prune(m, i);
	}
}

void model_print(const struct model *m, uint64_t sector)
{
	for (const struct content *c = m->at[sector]; c; c = c->next)
		fprintf(stderr, "  possible: write %llu, begun %llu, ended %lld, replaced %lld\n",
			(unsigned long long)c->value, (unsigned long long)c->begin,
			c->end == NEVER ? -1 : (long long)c->end,
			c->gone == NEVER ? -1 : (long long)c->gone);
}
