// SPDX-License-Identifier: MIT
#include "tests/fuzz/pbmutate.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"

#define FIELDS_MAX 4096u
#define RECORDS_MAX 128u

/* One field of one message in the tree. */
struct place {
	ProtobufCMessage *m;
	const ProtobufCFieldDescriptor *f;
};

static uint64_t below(struct ash_prng *rng, uint64_t n)
{
	return ash_prng_below(rng, n);
}

static void *at(const struct place *p)
{
	return (uint8_t *)p->m + p->f->offset;
}
static size_t *count_of(const struct place *p)
{
	return (size_t *)(void *)((uint8_t *)p->m + p->f->quantifier_offset);
}
static uint32_t *case_of(const struct place *p)
{
	return (uint32_t *)(void *)((uint8_t *)p->m + p->f->quantifier_offset);
}
static bool in_oneof(const ProtobufCFieldDescriptor *f)
{
	return f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
}

static size_t bytes_of(const ProtobufCFieldDescriptor *f)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SINT64:
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return 8;
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_MESSAGE:
		return sizeof(void *);
	case PROTOBUF_C_TYPE_BYTES:
		return sizeof(ProtobufCBinaryData);
	default:
		return 4;
	}
}

/* ---- every field of the tree */

static size_t collect(ProtobufCMessage *m, struct place *places, size_t n)
{
	const ProtobufCMessageDescriptor *d = m->descriptor;

	for (unsigned i = 0; i < d->n_fields && n < FIELDS_MAX; i++) {
		struct place p = {m, &d->fields[i]};

		places[n++] = p;
		if (p.f->type != PROTOBUF_C_TYPE_MESSAGE ||
		    (in_oneof(p.f) && *case_of(&p) != p.f->id))
			continue;
		if (p.f->label == PROTOBUF_C_LABEL_REPEATED) {
			ProtobufCMessage **list = *(ProtobufCMessage ***)at(&p);

			for (size_t j = 0; j < *count_of(&p); j++)
				n = collect(list[j], places, n);
		} else if (*(ProtobufCMessage **)at(&p)) {
			n = collect(*(ProtobufCMessage **)at(&p), places, n);
		}
	}
	return n;
}

/* ---- values */

static ProtobufCMessage *clone(const ProtobufCMessage *m)
{
	size_t bytes = protobuf_c_message_get_packed_size(m);
	ash_auto_free uint8_t *packed = ash_xcalloc(1, bytes);
	ProtobufCMessage *copy;

	protobuf_c_message_pack(m, packed);
	copy = protobuf_c_message_unpack(m->descriptor, NULL, bytes, packed);
	return copy ? copy : protobuf_c_message_unpack(m->descriptor, NULL, 0, packed);
}

/* A number that matters: an edge, a small one, near the old one, or one used elsewhere. */
static uint64_t number(struct ash_prng *rng, uint64_t old, const struct place *places, size_t n)
{
	static const uint64_t edges[] = {0,	     1,		63,	   64,	     255,
					 4096,	     65535,	1u << 16,  1u << 20, UINT32_MAX,
					 1ull << 62, INT64_MAX, UINT64_MAX};

	switch (below(rng, 8)) {
	case 6:
		return old << below(rng, 4);
	case 7:
		return 1ull << below(rng, 20);
	case 0:
		return edges[below(rng, sizeof(edges) / sizeof(edges[0]))];
	case 1:
		return below(rng, 32);
	case 2:
		return old + below(rng, 5) - 2;
	case 3:
		return old ^ 1ull << below(rng, 64);
	default:
		break;
	}
	for (int tries = 0; tries < 20; tries++) {
		const struct place *p = &places[below(rng, n)];

		if (p->f->label != PROTOBUF_C_LABEL_REPEATED && !in_oneof(p->f) &&
		    p->f->type == PROTOBUF_C_TYPE_UINT64)
			return *(uint64_t *)at(p);
	}
	return old;
}

static void change_string(struct ash_prng *rng, char **s, const void *never_free)
{
	size_t n = *s ? strlen(*s) : 0, keep = below(rng, 3) ? n : below(rng, n + 1);
	char *fresh = ash_xcalloc(1, n + 66);

	memcpy(fresh, *s ? *s : "", keep);
	if (below(rng, 2) && keep > 0)
		fresh[below(rng, keep)] = (char)(1 + below(rng, 255));
	else
		memset(fresh + keep, 'a', below(rng, 2) ? below(rng, 65) : 0);
	if (*s && *s != never_free && *s != protobuf_c_empty_string)
		free(*s);
	*s = fresh;
}

static void change_bytes(struct ash_prng *rng, ProtobufCBinaryData *b)
{
	static const size_t sizes[] = {0, 1, 15, 16, 17, 40};
	size_t n = below(rng, 2) ? 16 : sizes[below(rng, 6)];
	uint8_t *fresh = ash_xcalloc(1, n);

	if (b->data)
		memcpy(fresh, b->data, b->len < n ? b->len : n);
	if (n > 0 && below(rng, 2))
		fresh[below(rng, n)] = (uint8_t)ash_prng_next(rng);
	free(b->data);
	b->data = fresh;
	b->len = n;
}

/* @value: where one value of the field's type lies. */
static void change_value(struct ash_prng *rng, const struct place *p, void *value,
			 const struct place *places, size_t n)
{
	switch (p->f->type) {
	case PROTOBUF_C_TYPE_STRING:
		change_string(rng, value, p->f->default_value);
		return;
	case PROTOBUF_C_TYPE_BYTES:
		change_bytes(rng, value);
		return;
	case PROTOBUF_C_TYPE_BOOL:
		*(protobuf_c_boolean *)value = !*(protobuf_c_boolean *)value;
		return;
	case PROTOBUF_C_TYPE_MESSAGE:
		fuzz_pb_mutate(*(ProtobufCMessage **)value, rng);
		return;
	default:
		if (bytes_of(p->f) == 8)
			*(uint64_t *)value = number(rng, *(uint64_t *)value, places, n);
		else
			*(uint32_t *)value = (uint32_t)number(rng, *(uint32_t *)value, places, n);
	}
}

/* ---- lists */

static void drop_element(const struct place *p, uint8_t *element)
{
	if (p->f->type == PROTOBUF_C_TYPE_MESSAGE)
		protobuf_c_message_free_unpacked(*(ProtobufCMessage **)(void *)element, NULL);
	else if (p->f->type == PROTOBUF_C_TYPE_STRING)
		free(*(char **)(void *)element);
	else if (p->f->type == PROTOBUF_C_TYPE_BYTES)
		free(((ProtobufCBinaryData *)(void *)element)->data);
}

/* Zeroed memory becomes an element: a copy of one at hand, or an empty one. */
static void make_element(const struct place *p, uint8_t *element, const uint8_t *like)
{
	if (p->f->type == PROTOBUF_C_TYPE_MESSAGE)
		*(ProtobufCMessage **)(void *)element =
			like ? clone(*(ProtobufCMessage *const *)(const void *)like)
			     : protobuf_c_message_unpack(p->f->descriptor, NULL, 0, element);
	else if (p->f->type == PROTOBUF_C_TYPE_STRING)
		*(char **)(void *)element =
			ash_xstrdup(like ? *(char *const *)(const void *)like : "");
	else if (p->f->type != PROTOBUF_C_TYPE_BYTES && like)
		memcpy(element, like, bytes_of(p->f));
}

static void change_list(struct ash_prng *rng, const struct place *p, const struct place *places,
			size_t places_count)
{
	size_t size = bytes_of(p->f), *n = count_of(p), i = below(rng, *n + 1);
	uint8_t **list = at(p), tmp[sizeof(ProtobufCBinaryData)];

	switch (*n == 0 ? 0 : below(rng, 4)) {
	case 0: /* one more */
		*list = ash_xrealloc(*list, (*n + 1) * size);
		memset(*list + *n * size, 0, size);
		make_element(p, *list + *n * size, i < *n ? *list + i * size : NULL);
		(*n)++;
		/* Like another, but not quite. */
		for (i = below(rng, 7); i > 0 && p->f->type == PROTOBUF_C_TYPE_MESSAGE; i--)
			fuzz_pb_mutate(*(ProtobufCMessage **)(void *)(*list + (*n - 1) * size),
				       rng);
		break;
	case 1: /* one less */
		i %= *n;
		drop_element(p, *list + i * size);
		memmove(*list + i * size, *list + (i + 1) * size, (*n - i - 1) * size);
		(*n)--;
		break;
	case 2: { /* another order */
		uint8_t *a = *list + (i % *n) * size, *b = *list + below(rng, *n) * size;

		memcpy(tmp, a, size);
		memmove(a, b, size);
		memcpy(b, tmp, size);
		break;
	}
	default:
		change_value(rng, p, *list + (i % *n) * size, places, places_count);
	}
}

/* ---- messages */

/* A part that is there goes, or changes; one that is not comes. */
static void change_part(struct ash_prng *rng, const struct place *p)
{
	ProtobufCMessage **part = at(p);

	if (in_oneof(p->f) && *case_of(p) != p->f->id) {
		/* Only from nothing: what another case holds would have to be freed first. */
		if (*case_of(p) != 0)
			return;
		*case_of(p) = p->f->id;
		*part = protobuf_c_message_unpack(p->f->descriptor, NULL, 0, (const uint8_t *)"");
	} else if (!*part) {
		*part = protobuf_c_message_unpack(p->f->descriptor, NULL, 0, (const uint8_t *)"");
	} else if (below(rng, 8)) {
		fuzz_pb_mutate(*part, rng);
	} else {
		protobuf_c_message_free_unpacked(*part, NULL);
		*part = NULL;
		if (in_oneof(p->f))
			*case_of(p) = 0;
	}
}

/* Each kind of field is as likely as any other, however many messages of its type there are. */
static const struct place *choose(const struct place *places, size_t n, struct ash_prng *rng)
{
	const struct place *p = NULL;

	for (int tries = 0; tries < 64; tries++) {
		uint64_t alike = 0;

		p = &places[below(rng, n)];
		for (size_t i = 0; i < n; i++)
			alike += places[i].f == p->f;
		if (below(rng, alike) == 0)
			break;
	}
	return p;
}

void fuzz_pb_mutate(ProtobufCMessage *m, struct ash_prng *rng)
{
	ash_auto_free struct place *places = ash_xcalloc(FIELDS_MAX, sizeof(*places));
	size_t n = collect(m, places, 0);
	const struct place *p;

	if (n == 0)
		return;
	p = choose(places, n, rng);
	if (p->f->label == PROTOBUF_C_LABEL_REPEATED)
		change_list(rng, p, places, n);
	else if (p->f->type == PROTOBUF_C_TYPE_MESSAGE)
		change_part(rng, p);
	else if (!in_oneof(p->f) || *case_of(p) == p->f->id)
		change_value(rng, p, at(p), places, n);
}

/* ---- inputs of several records */

struct record {
	size_t start, bytes; /* of header and message; of the message */
	const ProtobufCMessageDescriptor *type;
};

static size_t cut(const struct fuzz_format *fmt, const uint8_t *data, size_t size,
		  struct record *records)
{
	size_t pos = fmt->prefix, n = 0;

	while (pos < size && size - pos >= fmt->header && n < RECORDS_MAX) {
		struct record *r = &records[n];
		size_t left = size - pos - fmt->header;

		r->start = pos;
		r->type = fmt->split(data + pos, left, &r->bytes);
		if (r->bytes > left)
			break;
		pos += fmt->header + r->bytes;
		n++;
	}
	return n;
}

/* Puts @bytes of @fresh in place of @old_bytes at @pos. Return: the new size, 0 no room. */
static size_t splice(uint8_t *data, size_t size, size_t max, size_t pos, size_t old_bytes,
		     const uint8_t *fresh, size_t bytes)
{
	if (size - old_bytes + bytes > max)
		return 0;
	memmove(data + pos + bytes, data + pos + old_bytes, size - pos - old_bytes);
	if (bytes)
		memcpy(data + pos, fresh, bytes);
	return size - old_bytes + bytes;
}

static size_t change_record(const struct fuzz_format *fmt, uint8_t *data, size_t size, size_t max,
			    const struct record *r, struct ash_prng *rng)
{
	size_t body = r->start + fmt->header, bytes;
	ash_auto_free uint8_t *packed = NULL;
	ProtobufCMessage *m =
		r->type ? protobuf_c_message_unpack(r->type, NULL, r->bytes, data + body) : NULL;

	if (!m)
		return 0;
	for (uint64_t i = 1 + below(rng, 4); i > 0; i--)
		fuzz_pb_mutate(m, rng);
	bytes = protobuf_c_message_get_packed_size(m);
	packed = ash_xcalloc(1, bytes);
	protobuf_c_message_pack(m, packed);
	protobuf_c_message_free_unpacked(m, NULL);
	size = splice(data, size, max, body, r->bytes, packed, bytes);
	if (size)
		fmt->join(data + r->start, bytes);
	return size;
}

size_t fuzz_mutate(const struct fuzz_format *fmt, uint8_t *data, size_t size, size_t max,
		   struct ash_prng *rng)
{
	struct record records[RECORDS_MAX];
	size_t n = cut(fmt, data, size, records);
	const struct record *r = &records[below(rng, n)], *to = &records[below(rng, n)];
	ash_auto_free uint8_t *copy = NULL;

	if (n == 0)
		return 0;
	if (fmt->header == 0 || below(rng, 8) > 1)
		return change_record(fmt, data, size, max, r, rng);
	if (below(rng, 4) == 0)
		return splice(data, size, max, r->start, fmt->header + r->bytes, NULL, 0);
	/* The same again, earlier or later: late and repeated messages. */
	copy = ash_xcalloc(1, fmt->header + r->bytes);
	memcpy(copy, data + r->start, fmt->header + r->bytes);
	return splice(data, size, max, to->start, 0, copy, fmt->header + r->bytes);
}
