/* SPDX-License-Identifier: MIT */
#include "tests/sim/medium.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SECTORS (SIM_PAGE / 512u)
#define PAGES_PER_GROUP 256u
#define VOLATILE_MAX 4096u /* then the cache writes its oldest back by itself */

/* @dur: what a power loss would leave, NULL = same as cur. cur NULL = zeros. */
struct page {
	uint8_t *cur, *dur;
	uint32_t records; /* volatile records of this page */
	bool bad;
};

struct medium_group {
	struct page page[PAGES_PER_GROUP];
};

/* One page of a completed write that is only in the cache. */
struct medium_record {
	struct medium_record *next;
	uint64_t seq, index;
	bool fua; /* is on the medium whatever happens; kept for its place in the order */
	uint8_t data[SIM_PAGE];
};

/* ------------------------------------------------------------ medium */

static struct page *page_at(const struct sim_medium *m, uint64_t index, bool make)
{
	struct medium_group **g = &m->groups[index / PAGES_PER_GROUP];

	if (!*g) {
		if (!make)
			return NULL;
		*g = calloc(1, sizeof(**g));
		if (!*g)
			abort();
	}
	return &(*g)->page[index % PAGES_PER_GROUP];
}

static uint8_t *page_memory(void)
{
	uint8_t *page = malloc(SIM_PAGE);

	if (!page)
		abort();
	return page;
}

static void load(const uint8_t *from, uint8_t *to)
{
	if (from)
		memcpy(to, from, SIM_PAGE);
	else
		memset(to, 0, SIM_PAGE);
}

static void store_page(uint8_t **at, const uint8_t *from)
{
	if (!*at)
		*at = page_memory();
	memcpy(*at, from, SIM_PAGE);
}

static struct medium_record *record_new(struct sim_medium *m)
{
	struct medium_record *r = m->free_records;

	if (r)
		m->free_records = r->next;
	else
		r = malloc(sizeof(*r));
	if (!r)
		abort();
	return r;
}

/* The oldest volatile record reaches the medium. */
static void destage_oldest(struct sim_medium *m)
{
	struct medium_record *r = m->oldest;
	struct page *pg = page_at(m, r->index, true);

	m->oldest = r->next;
	if (!m->oldest)
		m->newest = &m->oldest;
	m->volatile_count--;
	if (--pg->records == 0) {
		free(pg->dur);
		pg->dur = NULL;
	} else {
		store_page(&pg->dur, r->data);
	}
	r->next = m->free_records;
	m->free_records = r;
}

void medium_write(struct sim_medium *m, uint64_t index, const uint8_t *data, bool fua)
{
	struct page *pg = page_at(m, index, true);
	struct medium_record *r;

	pg->bad = false;
	if (m->write_back && !(fua && !pg->records)) {
		if (!pg->records++) {
			pg->dur = page_memory();
			load(pg->cur, pg->dur);
		}
		r = record_new(m);
		r->next = NULL;
		r->seq = m->seq;
		r->index = index;
		r->fua = fua;
		memcpy(r->data, data, SIM_PAGE);
		*m->newest = r;
		m->newest = &r->next;
		m->volatile_count++;
	}
	store_page(&pg->cur, data);
	while (m->volatile_count > VOLATILE_MAX)
		destage_oldest(m);
}

void medium_flush(struct sim_medium *m, uint64_t seq)
{
	while (m->oldest && m->oldest->seq <= seq)
		destage_oldest(m);
}

void medium_tear(struct sim_medium *m, uint64_t index, const uint8_t *data)
{
	struct page *pg = page_at(m, index, true);
	uint8_t mixed[SIM_PAGE];

	load(pg->cur, mixed);
	for (unsigned s = 0; s < SECTORS; s++)
		if (sim_chance(m->w, 500))
			memcpy(mixed + s * 512, data + s * 512, 512);
	store_page(&pg->cur, mixed);
	pg->bad = false;
	m->w->n.torn_writes++;
}

/* The cache's contents are gone but for what it had written back, in whatever order. */
unsigned medium_lose_cache(struct sim_medium *m)
{
	struct sim_world *w = m->w;
	unsigned mode = (unsigned)sim_below(w, 10), lost = 0;
	struct medium_record *r;

	for (r = m->oldest; r; r = r->next) {
		struct page *pg = page_at(m, r->index, true);

		/* fewer than 3: all is lost; 3: nothing; 4 to 6: by record; else by sector */
		if (r->fua || mode == 3 || (mode > 3 && mode < 7 && sim_chance(w, 500))) {
			memcpy(pg->dur, r->data, SIM_PAGE);
			continue;
		}
		for (unsigned s = 0; s < SECTORS && mode >= 7; s++)
			if (sim_chance(w, 500))
				memcpy(pg->dur + s * 512, r->data + s * 512, 512);
		lost++;
	}
	while ((r = m->oldest)) {
		struct page *pg = page_at(m, r->index, true);

		m->oldest = r->next;
		if (--pg->records == 0) {
			memcpy(pg->cur, pg->dur, SIM_PAGE);
			free(pg->dur);
			pg->dur = NULL;
		}
		r->next = m->free_records;
		m->free_records = r;
	}
	m->newest = &m->oldest;
	m->volatile_count = 0;
	return lost;
}

uint64_t medium_pick(struct sim_medium *m, bool (*wanted)(void *arg, const uint8_t page[SIM_PAGE]),
		     void *arg)
{
	uint64_t first = sim_below(m->w, m->group_count);

	for (uint64_t k = 0; k < m->group_count; k++) {
		uint64_t g = (first + k) % m->group_count;
		unsigned start = (unsigned)sim_below(m->w, PAGES_PER_GROUP);

		for (unsigned i = 0; m->groups[g] && i < PAGES_PER_GROUP; i++) {
			unsigned at = (start + i) % PAGES_PER_GROUP;
			const struct page *pg = &m->groups[g]->page[at];

			if (pg->cur && !pg->bad && wanted(arg, pg->cur))
				return g * PAGES_PER_GROUP + at;
		}
	}
	return UINT64_MAX;
}

void medium_rot(struct sim_medium *m, uint64_t index)
{
	struct page *pg = page_at(m, index, true);
	unsigned at = (unsigned)sim_below(m->w, SIM_PAGE);

	if (!pg->cur)
		return;
	pg->cur[at] ^= (uint8_t)(1u << sim_below(m->w, 8));
	if (pg->dur)
		pg->dur[at] = pg->cur[at];
}

void medium_spoil(struct sim_medium *m, uint64_t index)
{
	page_at(m, index, true)->bad = true;
}

bool medium_read(const struct sim_medium *m, uint64_t index, uint8_t *page)
{
	const struct page *pg = page_at(m, index, false);

	if (pg && pg->bad) {
		memset(page, 0xbb, SIM_PAGE);
		return false;
	}
	load(pg ? pg->cur : NULL, page);
	return true;
}

void medium_init(struct sim_medium *m, struct sim_world *w, uint64_t bytes, bool write_back)
{
	memset(m, 0, sizeof(*m));
	m->w = w;
	m->write_back = write_back;
	m->newest = &m->oldest;
	m->group_count = bytes / SIM_PAGE / PAGES_PER_GROUP + 1;
	m->groups = calloc(m->group_count, sizeof(*m->groups));
	if (!m->groups)
		abort();
}

void medium_done(struct sim_medium *m)
{
	struct medium_record *r;

	*m->newest = m->free_records;
	while ((r = m->oldest)) {
		m->oldest = r->next;
		free(r);
	}
	for (uint64_t g = 0; g < m->group_count; g++) {
		for (unsigned i = 0; m->groups[g] && i < PAGES_PER_GROUP; i++) {
			free(m->groups[g]->page[i].cur);
			free(m->groups[g]->page[i].dur);
		}
		free(m->groups[g]);
	}
	free(m->groups);
}
