// SPDX-License-Identifier: MIT
/*
 * Checksum pages in memory: a bounded cache. Writes set checksums without reading the page first;
 * what was not set is merged in when the page is read, which a read does alongside its data and a
 * chunk that leaves the activity log does before its page is written. A page that is damaged, torn
 * or older than the chunk's last crash makes checksums unknown; it never makes data bad.
 */
#include <stdlib.h>

#include "sds/core/store_int.h"

int sds_pages_init(struct sds_store *s)
{
	struct sds_pages *p = &s->pages;
	uint64_t extra = s->extents / 4 + 2;
	uint64_t count =
		s->label.geo.al_capacity + (extra < SDS_PAGES_EXTRA ? extra : SDS_PAGES_EXTRA);

	ash_list_init(&p->lru);
	ash_list_init(&p->queue);
	if (count > s->extents)
		count = (uint64_t)s->extents + 8; /* pages of freed extents may linger */
	p->count = (uint32_t)count;
	p->pages = calloc(p->count, sizeof(*p->pages));
	if (!p->pages)
		return -ENOMEM;
	for (unsigned i = 0; i < SDS_PBUFS; i++) {
		p->bufs[i].buf = sds_aligned(ASH_BLOCK_BYTES);
		if (!p->bufs[i].buf)
			return -ENOMEM;
		p->bufs[i].next = p->free;
		p->free = &p->bufs[i];
	}
	return 0;
}

void sds_pages_done(struct sds_store *s)
{
	for (unsigned i = 0; i < SDS_PBUFS; i++)
		free(s->pages.bufs[i].buf);
	free(s->pages.pages);
}

static uint32_t page_index(const struct sds_store *s, const struct sds_page *page)
{
	return (uint32_t)(page - s->pages.pages);
}

/* ------------------------------------------------------------ cache */

bool sds_page_can_get(struct sds_store *s, uint32_t ext)
{
	const struct sds_pages *p = &s->pages;

	if (ext != SDS_NONE && s->ext[ext].page != SDS_NONE)
		return true;
	return (p->used < p->count || !ash_list_empty(&p->lru)) && (!s->q_page.head || s->retrying);
}

static struct sds_page *page_take(struct sds_store *s)
{
	struct sds_pages *p = &s->pages;
	struct sds_page *page;
	struct ash_list *l;

	if (p->used < p->count) {
		page = &p->pages[p->used++];
		ash_list_init(&page->lru);
		ash_list_init(&page->queue);
		return page;
	}
	l = ash_list_pop(&p->lru);
	if (!l)
		return NULL;
	page = ash_container_of(l, struct sds_page, lru);
	if (page->ext != SDS_NONE)
		s->ext[page->ext].page = SDS_NONE;
	return page;
}

struct sds_page *sds_page_get(struct sds_store *s, uint32_t ext, bool fresh)
{
	struct sds_page *page;

	if (s->ext[ext].page != SDS_NONE) {
		page = &s->pages.pages[s->ext[ext].page];
		ash_list_remove(&page->lru);
		page->pins++;
		return page;
	}
	page = page_take(s);
	if (!page)
		return NULL;
	page->ext = ext;
	page->state = fresh ? SDS_PAGE_LOADED : SDS_PAGE_EMPTY;
	page->dirty = page->writing = page->want_write = page->want_load = false;
	page->pins = 1;
	page->readers = NULL;
	memset(page->known, 0, sizeof(page->known));
	memset(page->have, 0, sizeof(page->have));
	s->ext[ext].page = page_index(s, page);
	return page;
}

void sds_page_unpin(struct sds_store *s, struct sds_page *page)
{
	assert(page->pins > 0);
	if (--page->pins)
		return;
	if (page->ext == SDS_NONE)
		ash_list_push_front(&s->pages.lru, &page->lru);
	else if (!page->dirty)
		ash_list_push_back(&s->pages.lru, &page->lru);
	else
		return;
	if (s->q_page.head)
		s->wake_page = s->again = true;
}

void sds_page_drop(struct sds_store *s, uint32_t ext)
{
	struct sds_page *page;

	if (s->ext[ext].page == SDS_NONE)
		return;
	page = &s->pages.pages[s->ext[ext].page];
	s->ext[ext].page = SDS_NONE;
	page->ext = SDS_NONE;
	page->dirty = page->want_write = page->want_load = false;
	if (!ash_list_empty(&page->queue)) {
		ash_list_remove(&page->queue);
		sds_page_unpin(s, page); /* what it waited for */
	} else if (page->pins == 0) {
		ash_list_remove(&page->lru);
		page->pins = 1;
		sds_page_unpin(s, page);
	}
}

bool sds_page_covers(const struct sds_page *page, const struct sds_entry *e, unsigned first,
		     unsigned count)
{
	if (page->state == SDS_PAGE_LOADED)
		return true;
	for (unsigned b = first; b < first + count; b++)
		if (sds_entry_state(e, b) == ASH_BLK_DATA && !(page->have[b / 64] >> (b % 64) & 1))
			return false;
	return true;
}

void sds_page_set(struct sds_page *page, unsigned block, uint32_t crc)
{
	page->crc[block] = crc;
	page->known[block / 64] |= 1ull << (block % 64);
	page->have[block / 64] |= 1ull << (block % 64);
}

/* ------------------------------------------------------------ reading and writing pages */

static void pbuf_put(struct sds_store *s, struct sds_pbuf *b)
{
	b->next = s->pages.free;
	s->pages.free = b;
	if (!ash_list_empty(&s->pages.queue))
		s->again = true;
}

static void merge(struct sds_store *s, struct sds_page *page, const uint8_t *block, int result)
{
	const struct sds_entry *e = &s->ext[page->ext].e;
	struct sds_csum c;
	bool ours = result == 0 && sds_csum_decode(block, &c) == 0 && c.node == e->node &&
		    c.chunk == e->chunk && c.birth == e->birth;
	bool trusted = ours && (c.incarnation >= e->distrust || !ASH_RULE(CSUM_DISTRUST));

	for (unsigned b = 0; b < ASH_CHUNK_BLOCKS; b++) {
		uint64_t bit = 1ull << (b % 64);

		if (page->have[b / 64] & bit)
			continue;
		page->crc[b] = ours ? c.crc[b] : 0;
		if (trusted)
			page->known[b / 64] |= c.known[b / 64] & bit;
	}
}

static void load_done(struct ash_disk_op *d, int result)
{
	struct sds_store *s = d->owner;
	struct sds_pbuf *b = ash_container_of(sds_io_of(d), struct sds_pbuf, io);
	struct sds_page *page = &s->pages.pages[b->page];
	struct sds_store_op *op;

	if (sds_io_end(s, &b->io))
		return;
	s->stats.csum_page_reads++;
	if (page->ext != SDS_NONE)
		merge(s, page, b->buf, result);
	page->state = SDS_PAGE_LOADED;
	sds_ext_unpin(s, b->ext);
	op = page->readers;
	page->readers = NULL;
	while (op) {
		struct sds_store_op *next = op->next;

		sds_read_page_ready(s, op);
		op = next;
	}
	if (page->want_write) {
		page->want_write = false;
		sds_page_write(s, page);
	}
	sds_page_unpin(s, page);
	pbuf_put(s, b);
	sds_store_turn(s);
}

static void write_done(struct ash_disk_op *d, int result)
{
	struct sds_store *s = d->owner;
	struct sds_pbuf *b = ash_container_of(sds_io_of(d), struct sds_pbuf, io);
	struct sds_page *page = &s->pages.pages[b->page];

	if (sds_io_end(s, &b->io))
		return;
	page->writing = false;
	sds_ext_unpin(s, b->ext);
	if (result)
		sds_fail(s, result, "checksum page");
	else if (page->ext == b->ext)
		sds_al_page_written(s, page->ext, page->dirty);
	sds_page_unpin(s, page);
	pbuf_put(s, b);
	sds_store_turn(s);
}

static void start(struct sds_store *s, struct sds_page *page, struct sds_pbuf *b)
{
	struct sds_ext *ext = &s->ext[page->ext];
	bool load = page->want_load;

	b->page = page_index(s, page);
	b->ext = page->ext;
	ext->io++;
	b->io.d.buf_index = -1;
	if (load) {
		page->want_load = false;
	} else {
		struct sds_csum c = {.node = ext->e.node,
				     .chunk = ext->e.chunk,
				     .birth = ext->e.birth,
				     .seq = s->j.next_seq,
				     .incarnation = s->label.label.incarnation};

		memcpy(c.known, page->known, sizeof(c.known));
		memcpy(c.crc, page->crc, sizeof(c.crc));
		sds_csum_encode(&c, b->buf);
		page->writing = true;
		page->want_write = page->dirty = false;
	}
	sds_io_submit(s, &b->io, load ? ASH_DISK_READ : ASH_DISK_WRITE,
		      sds_csum_offset(s, page->ext), b->buf, ASH_BLOCK_BYTES, false,
		      load ? load_done : write_done);
}

/* Takes a pin for as long as the page waits or is on its way. */
static void enqueue(struct sds_store *s, struct sds_page *page)
{
	struct sds_pbuf *b = s->pages.free;

	if (!ash_list_empty(&page->queue))
		return;
	ash_list_remove(&page->lru);
	page->pins++;
	if (!b) {
		ash_list_push_back(&s->pages.queue, &page->queue);
		return;
	}
	s->pages.free = b->next;
	start(s, page, b);
}

void sds_page_load(struct sds_store *s, struct sds_page *page, struct sds_store_op *reader)
{
	if (reader) {
		reader->next = page->readers;
		page->readers = reader;
	}
	if (page->state != SDS_PAGE_EMPTY)
		return;
	page->state = SDS_PAGE_LOADING;
	page->want_load = true;
	enqueue(s, page);
}

void sds_page_write(struct sds_store *s, struct sds_page *page)
{
	if (page->state != SDS_PAGE_LOADED) {
		page->want_write = true;
		sds_page_load(s, page, NULL);
		return;
	}
	if (page->writing || page->want_write)
		return; /* its end looks whether the page is dirty again */
	page->want_write = true;
	enqueue(s, page);
}

void sds_pages_run(struct sds_store *s)
{
	struct sds_pages *p = &s->pages;

	while (p->free && !ash_list_empty(&p->queue)) {
		struct sds_page *page =
			ash_container_of(ash_list_pop(&p->queue), struct sds_page, queue);
		struct sds_pbuf *b = p->free;

		p->free = b->next;
		start(s, page, b);
	}
}
