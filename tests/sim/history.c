/* SPDX-License-Identifier: MIT */
#include "tests/sim/history.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NEVER UINT64_MAX
#define WORDS (SIM_SECTOR / 8)
#define OPS_PER_SLAB 512

/* One value that a sector had, has, or may get. */
struct value {
	struct value *next;
	uint64_t id;	   /* of the write; of zeros, too (0 = never written) */
	uint64_t f, s;	   /* see history.h */
	uint64_t seen;	   /* on a shared volume: some time before which it was in place once */
	uint64_t start;	   /* of its write */
	uint64_t deadline; /* it happened before that, if at all */
	bool zero, fua;
	bool uncertain; /* it failed or its client died, and it may still happen */
	bool ended;	/* its write has been answered, or its client is dead */
};

struct volume {
	char name[32];
	uint64_t sectors;
	bool write_back, shared;
	uint64_t flushed; /* all that ended before this is durable */
	struct value **sector;
};

struct history {
	struct sim_world *w;
	uint64_t clock; /* counts starts and ends: a total order */
	struct volume *volume;
	unsigned volumes;
	struct hist_op *first, **last; /* in flight */
	unsigned in_flight;
	struct hist_op **slab; /* all ops, by id */
	size_t slabs;
	uint64_t ops;
	struct value *spare;
	uint64_t magic;
};

/* ------------------------------------------------------------ memory */

static struct value *value_new(struct history *h)
{
	struct value *v = h->spare;

	if (v)
		h->spare = v->next;
	else
		v = malloc(sizeof(*v));
	if (!v)
		abort();
	memset(v, 0, sizeof(*v));
	return v;
}

static void value_free(struct history *h, struct value *v)
{
	v->next = h->spare;
	h->spare = v;
}

static struct hist_op *op_by_id(const struct history *h, uint64_t id)
{
	if (!id || id > h->ops)
		return NULL;
	return &h->slab[(id - 1) / OPS_PER_SLAB][(id - 1) % OPS_PER_SLAB];
}

static struct hist_op *op_new(struct history *h)
{
	if (h->ops == h->slabs * OPS_PER_SLAB) {
		h->slab = realloc(h->slab, (h->slabs + 1) * sizeof(*h->slab));
		if (!h->slab)
			abort();
		h->slab[h->slabs] = calloc(OPS_PER_SLAB, sizeof(struct hist_op));
		if (!h->slab[h->slabs++])
			abort();
	}
	h->ops++;
	return op_by_id(h, h->ops);
}

struct history *hist_new(struct sim_world *w)
{
	struct history *h = calloc(1, sizeof(*h));

	if (!h)
		abort();
	h->w = w;
	h->clock = 1;
	h->last = &h->first;
	h->magic = 0x41736c5eed000000ull ^ (w->seed * 0x9e3779b97f4a7c15ull);
	return h;
}

void hist_free(struct history *h)
{
	struct value *v;

	for (unsigned i = 0; i < h->volumes; i++) {
		for (uint64_t k = 0; k < h->volume[i].sectors; k++)
			while ((v = h->volume[i].sector[k])) {
				h->volume[i].sector[k] = v->next;
				free(v);
			}
		free(h->volume[i].sector);
	}
	while ((v = h->spare)) {
		h->spare = v->next;
		free(v);
	}
	for (size_t i = 0; i < h->slabs; i++)
		free(h->slab[i]);
	free(h->slab);
	free(h->volume);
	free(h);
}

unsigned hist_add_volume(struct history *h, const char *name, uint64_t sectors, bool write_back,
			 bool shared)
{
	struct volume *vol;

	h->volume = realloc(h->volume, (h->volumes + 1) * sizeof(*h->volume));
	if (!h->volume)
		abort();
	vol = &h->volume[h->volumes];
	memset(vol, 0, sizeof(*vol));
	snprintf(vol->name, sizeof(vol->name), "%s", name);
	vol->sectors = sectors;
	vol->write_back = write_back;
	vol->shared = shared;
	vol->sector = calloc(sectors, sizeof(*vol->sector));
	if (!vol->sector)
		abort();
	return h->volumes++;
}

uint64_t hist_sectors(const struct history *h, unsigned volume)
{
	return h->volume[volume].sectors;
}

unsigned hist_volumes(const struct history *h)
{
	return h->volumes;
}

/* ------------------------------------------------------------ what a sector holds */

static uint64_t word_at(uint64_t id, uint64_t place, unsigned i)
{
	return (id + i) * 0xd6e8feb86659fd93ull ^ (place + i) * 0xa0761d6478bd642full;
}

static void fill_sector(const struct history *h, uint64_t id, unsigned volume, uint64_t lba,
			uint64_t *word)
{
	uint64_t place = (uint64_t)volume << 48 | lba;

	word[0] = h->magic;
	word[1] = id;
	word[2] = place;
	for (unsigned i = 3; i < WORDS; i++)
		word[i] = word_at(id, place, i);
}

void hist_fill(const struct history *h, const struct hist_op *op, uint8_t *data)
{
	for (uint32_t i = 0; i < op->sectors; i++)
		fill_sector(h, op->id, op->volume, op->lba + i,
			    (uint64_t *)(void *)(data + (size_t)i * SIM_SECTOR));
}

static bool is_zero(const uint64_t *word)
{
	return !word[0] && !memcmp(word, word + 1, SIM_SECTOR - sizeof(*word));
}

bool hist_recognise(const struct history *h, const uint8_t *sector, unsigned *ret_volume,
		    uint64_t *ret_lba)
{
	uint64_t word[3];

	memcpy(word, sector, sizeof(word));
	if (word[0] != h->magic || (word[2] >> 48) >= h->volumes)
		return false;
	*ret_volume = (unsigned)(word[2] >> 48);
	*ret_lba = word[2] & 0xffffffffffffull;
	return *ret_lba < h->volume[*ret_volume].sectors;
}

/* ------------------------------------------------------------ the rule */

/* @b was in place, for the first time, after @a for the last; and @a was seen after that. */
static bool came_back(const struct value *a, const struct value *b)
{
	return a->f < b->start && b->seen < a->s;
}

static bool conflict(const struct value *a, const struct value *b)
{
	return (a->f < b->s && b->f < a->s) || came_back(a, b) || came_back(b, a);
}

static const char *describe(const struct history *h, const struct value *v, char *buf, size_t room)
{
	const struct hist_op *op = op_by_id(h, v->id);

	if (!op)
		snprintf(buf, room, "zeros (never written) f=%lld s=%llu", (long long)v->f,
			 (unsigned long long)v->s);
	else
		snprintf(buf, room,
			 "%s #%llu of client %u (lba %llu+%u, begun %llu, ended %lld status %d) "
			 "f=%lld s=%llu",
			 op->kind == HIST_WRITE ? "write" : "zeroing", (unsigned long long)op->id,
			 op->client, (unsigned long long)op->lba, op->sectors,
			 (unsigned long long)op->start, op->in_flight ? -1 : (long long)op->end,
			 op->status, (long long)v->f, (unsigned long long)v->s);
	return buf;
}

static void check_value(struct history *h, const struct volume *vol, uint64_t lba,
			const struct value *v, const struct hist_op *because)
{
	char a[256], b[256];

	for (struct value *o = vol->sector[lba]; o; o = o->next) {
		if (o == v || !conflict(v, o))
			continue;
		sim_fail(h->w, "history",
			 "volume %s sector %llu: each of two values was replaced by the other: %s; "
			 "%s; seen by %s #%llu of client %u (%llu to %llu)",
			 vol->name, (unsigned long long)lba, describe(h, v, a, sizeof(a)),
			 describe(h, o, b, sizeof(b)),
			 because->kind == HIST_READ ? "read" : "the end of",
			 (unsigned long long)because->id, because->client,
			 (unsigned long long)because->start, (unsigned long long)because->end);
		return;
	}
}

static bool durable(const struct volume *vol, const struct value *v)
{
	return !vol->write_back || (v->fua && v->ended) || v->f < vol->flushed;
}

/* If it happened at all, it was in place by then. */
static uint64_t in_place(const struct value *v)
{
	return v->f < v->deadline ? v->f : v->deadline;
}

/* Values that no read that is to come may return are forgotten. */
static void prune(struct history *h, struct volume *vol, uint64_t lba)
{
	uint64_t oldest = h->first ? h->first->start : h->clock;
	struct value **at = &vol->sector[lba], *v, *o;

	while ((v = *at)) {
		for (o = vol->sector[lba]; o; o = o->next)
			if (o != v && in_place(v) < o->s && o->f < oldest && durable(vol, o))
				break;
		if (!o) {
			at = &v->next;
			continue;
		}
		*at = v->next;
		value_free(h, v);
	}
}

/* The value that was there before anything was written. */
static void need_initial(struct history *h, struct volume *vol, uint64_t lba)
{
	struct value *v;

	if (vol->sector[lba])
		return;
	v = value_new(h);
	v->zero = v->ended = v->fua = true;
	v->deadline = NEVER;
	vol->sector[lba] = v;
}

static struct value *find(struct volume *vol, uint64_t lba, uint64_t id)
{
	struct value *v;

	for (v = vol->sector[lba]; v && v->id != id; v = v->next)
		;
	return v;
}

/* ------------------------------------------------------------ operations */

static void in_flight_add(struct history *h, struct hist_op *op)
{
	op->in_flight = true;
	op->next = NULL;
	op->prev = h->last;
	*h->last = op;
	h->last = &op->next;
	h->in_flight++;
}

static void in_flight_del(struct history *h, struct hist_op *op)
{
	op->in_flight = false;
	*op->prev = op->next;
	if (op->next)
		op->next->prev = op->prev;
	else
		h->last = op->prev;
	h->in_flight--;
}

struct hist_op *hist_begin(struct history *h, enum hist_kind kind, unsigned volume, unsigned client,
			   uint64_t lba, uint32_t sectors, bool fua)
{
	struct volume *vol = &h->volume[volume];
	struct hist_op *op = op_new(h);

	assert(lba + sectors <= vol->sectors);
	op->id = h->ops;
	op->kind = (uint8_t)kind;
	op->volume = (uint16_t)volume;
	op->client = (uint16_t)client;
	op->lba = lba;
	op->sectors = sectors;
	op->fua = fua;
	op->start = h->clock++;
	in_flight_add(h, op);
	for (uint64_t k = lba; k < lba + sectors; k++) {
		struct value *v;

		need_initial(h, vol, k);
		if (kind != HIST_WRITE && kind != HIST_ZERO)
			continue;
		prune(h, vol, k);
		v = value_new(h);
		v->id = op->id;
		v->zero = kind == HIST_ZERO;
		v->fua = fua;
		v->f = v->seen = v->deadline = NEVER;
		v->s = v->start = op->start;
		v->next = vol->sector[k];
		vol->sector[k] = v;
	}
	return op;
}

static void end_write(struct history *h, struct hist_op *op, bool later)
{
	struct volume *vol = &h->volume[op->volume];
	uint64_t end;

	for (uint64_t k = op->lba; k < op->lba + op->sectors; k++) {
		struct value *v = find(vol, k, op->id);

		if (!v)
			continue; /* pruned: it was read and then replaced before it ended */
		v->ended = true;
		if (op->status) {
			/* It may have been done, but not after the answer (unless @later). */
			v->fua = false;
			v->uncertain = later;
			if (!later && op->end < v->deadline)
				v->deadline = op->end;
			continue;
		}
		/* The answer may have come late, the write cannot (see hist_client_fenced()). */
		end = op->end < v->deadline ? op->end : v->deadline;
		if (end < v->f)
			v->f = end;
		if (end < v->seen)
			v->seen = end;
		check_value(h, vol, k, v, op);
		prune(h, vol, k);
	}
	op->uncertain = op->status && later;
}

/* What the value's bounds become when @op, a read that has ended, saw it. */
static void note_seen(const struct volume *vol, struct value *v, const struct hist_op *op)
{
	uint64_t f = op->end < v->deadline ? op->end : v->deadline;

	if (f < v->seen)
		v->seen = f;
	/* Until it is answered its client may send it again, after another client's write. */
	if (vol->shared && !v->ended)
		f = NEVER;
	else if (vol->shared && v->deadline != NEVER)
		f = v->deadline;
	else if (vol->shared && v->uncertain)
		f = NEVER;
	if (f < v->f)
		v->f = f;
	if (op->start > v->s)
		v->s = op->start;
}

static void see(struct history *h, struct volume *vol, uint64_t lba, struct value *v,
		const struct hist_op *op)
{
	note_seen(vol, v, op);
	check_value(h, vol, lba, v, op);
}

static bool explains(struct volume *vol, uint64_t lba, const struct value *v,
		     const struct hist_op *op)
{
	struct value would = *v;

	note_seen(vol, &would, op);
	for (struct value *o = vol->sector[lba]; o; o = o->next)
		if (o != v && conflict(&would, o))
			return false;
	return true;
}

static void see_zeros(struct history *h, struct volume *vol, uint64_t lba, const struct hist_op *op)
{
	struct value *v, *only = NULL, *any = NULL;
	unsigned could = 0;
	char text[256];

	for (v = vol->sector[lba]; v; v = v->next) {
		any = v;
		if (v->zero && explains(vol, lba, v, op)) {
			could++;
			only = v;
		}
	}
	if (could == 1)
		see(h, vol, lba, only, op);
	else if (!could)
		sim_fail(h->w, "history",
			 "volume %s sector %llu: read #%llu of client %u (%llu to %llu) got zeros, "
			 "which were replaced; oldest known value: %s",
			 vol->name, (unsigned long long)lba, (unsigned long long)op->id, op->client,
			 (unsigned long long)op->start, (unsigned long long)op->end,
			 describe(h, any, text, sizeof(text)));
}

static void bad_data(struct history *h, const struct volume *vol, uint64_t lba,
		     const struct hist_op *op, const uint64_t *word)
{
	const struct hist_op *wrote = op_by_id(h, word[1]);
	const char *what = "bytes that nobody wrote";
	char origin[160] = "";

	if (word[0] == h->magic && wrote) {
		unsigned volume = (unsigned)(word[2] >> 48);
		uint64_t place = word[2] & 0xffffffffffffull;

		if (volume != op->volume)
			what = "data of another volume";
		else if (place != lba)
			what = "data of another place";
		else
			what = "a value that was replaced, or a mix of values";
		snprintf(origin, sizeof(origin),
			 ", written by #%llu of client %u at volume %u sector %llu (%llu to %lld, "
			 "status %d)",
			 (unsigned long long)wrote->id, wrote->client, volume,
			 (unsigned long long)place, (unsigned long long)wrote->start,
			 wrote->in_flight ? -1 : (long long)wrote->end, wrote->status);
	}
	sim_fail(h->w, "history",
		 "volume %s sector %llu: read #%llu of client %u (%llu to %llu) got %s%s; first "
		 "words %016llx %016llx %016llx",
		 vol->name, (unsigned long long)lba, (unsigned long long)op->id, op->client,
		 (unsigned long long)op->start, (unsigned long long)op->end, what, origin,
		 (unsigned long long)word[0], (unsigned long long)word[1],
		 (unsigned long long)word[2]);
}

static void end_read(struct history *h, struct hist_op *op, const uint8_t *data)
{
	struct volume *vol = &h->volume[op->volume];
	uint64_t word[WORDS], want[WORDS];

	for (uint32_t i = 0; i < op->sectors && !h->w->failed; i++) {
		uint64_t lba = op->lba + i;
		struct value *v;

		memcpy(word, data + (size_t)i * SIM_SECTOR, SIM_SECTOR);
		if (is_zero(word)) {
			see_zeros(h, vol, lba, op);
			continue;
		}
		fill_sector(h, word[1], op->volume, lba, want);
		v = find(vol, lba, word[1]);
		if (!v || v->zero || memcmp(word, want, SIM_SECTOR))
			bad_data(h, vol, lba, op, word);
		else
			see(h, vol, lba, v, op);
	}
}

void hist_end(struct history *h, struct hist_op *op, int status, const uint8_t *data, bool later)
{
	assert(op->in_flight);
	op->end = h->clock++;
	op->status = status;
	in_flight_del(h, op);
	if (op->kind == HIST_WRITE || op->kind == HIST_ZERO)
		end_write(h, op, later);
	else if (op->kind == HIST_READ && !status)
		end_read(h, op, data);
	else if (op->kind == HIST_FLUSH && !status && op->start > h->volume[op->volume].flushed)
		h->volume[op->volume].flushed = op->start;
}

/* ------------------------------------------------------------ deaths */

void hist_client_died(struct history *h, unsigned client)
{
	struct hist_op *op, *next;

	for (op = h->first; op; op = next) {
		next = op->next;
		if (op->client == client)
			hist_end(h, op, -ESHUTDOWN, NULL, true);
	}
}

void hist_client_fenced(struct history *h, unsigned client, unsigned volume)
{
	for (uint64_t id = 1; id <= h->ops; id++) {
		struct hist_op *op = op_by_id(h, id);

		if (!(op->uncertain || op->in_flight) || op->client != client ||
		    op->volume != volume || (op->kind != HIST_WRITE && op->kind != HIST_ZERO))
			continue;
		op->uncertain = false;
		for (uint64_t k = op->lba; k < op->lba + op->sectors; k++) {
			struct value *v = find(&h->volume[volume], k, id);

			if (v && h->clock < v->deadline)
				v->deadline = h->clock;
		}
	}
	h->clock++;
}

void hist_lose_caches(struct history *h, unsigned volume, uint64_t lba, uint64_t sectors)
{
	struct volume *vol = &h->volume[volume];

	if (!vol->write_back)
		return;
	for (uint64_t k = lba; k < lba + sectors && k < vol->sectors; k++) {
		struct value *v;

		prune(h, vol, k);
		if (!vol->sector[k] || !vol->sector[k]->next)
			continue;
		for (v = vol->sector[k]; v; v = v->next) {
			const struct hist_op *op = op_by_id(h, v->id);
			bool open = op && (op->in_flight || op->uncertain);

			v->f = v->seen = NEVER;
			if (!open && h->clock < v->deadline)
				v->deadline = h->clock;
			v->s = open ? op->start : 0;
			v->start = v->s;
		}
	}
	h->clock++;
}

unsigned hist_in_flight(const struct history *h)
{
	return h->in_flight;
}

uint64_t hist_ops(const struct history *h)
{
	return h->ops;
}

const struct hist_op *hist_oldest(const struct history *h)
{
	return h->first;
}
