// SPDX-License-Identifier: MIT
/*
 * protobuf-c follows nested messages by recursion and allocates what the bytes ask for. Some of our
 * messages may contain themselves, so a few KiB could overflow the stack, and two bytes can ask for
 * a whole struct. Both are bounded here, for everything that comes from a peer.
 */
#include <stdlib.h>

#include "common/io/ctl_stream.h"

#define DEPTH_MAX 16
#define MEMORY_PER_BYTE 64
#define MEMORY_MIN 65536

struct reader {
	const uint8_t *at, *end;
};

static bool read_varint(struct reader *r, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 64 && r->at < r->end; shift += 7) {
		uint8_t byte = *r->at++;

		v |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*ret = v;
			return true;
		}
	}
	return false;
}

static bool skip(struct reader *r, uint64_t bytes)
{
	if (bytes > (uint64_t)(r->end - r->at))
		return false;
	r->at += bytes;
	return true;
}

static bool depth_ok(const ProtobufCMessageDescriptor *type, struct reader r, unsigned left)
{
	const ProtobufCFieldDescriptor *field;
	uint64_t key, n;

	while (r.at < r.end) {
		if (!read_varint(&r, &key))
			return false;
		switch (key & 7) {
		case 0:
			if (!read_varint(&r, &n))
				return false;
			break;
		case 1:
		case 5:
			if (!skip(&r, (key & 7) == 1 ? 8 : 4))
				return false;
			break;
		case 2:
			if (!read_varint(&r, &n) || n > (uint64_t)(r.end - r.at))
				return false;
			field = protobuf_c_message_descriptor_get_field(type, (unsigned)(key >> 3));
			if (field && field->type == PROTOBUF_C_TYPE_MESSAGE &&
			    (left == 0 || !depth_ok(field->descriptor,
						    (struct reader){r.at, r.at + n}, left - 1)))
				return false;
			skip(&r, n);
			break;
		default:
			return false;
		}
	}
	return true;
}

static void *budget_alloc(void *data, size_t bytes)
{
	size_t *left = data;

	/* What malloc itself adds counts too, or empty messages would be nearly free. */
	if (bytes + 16 > *left)
		return NULL;
	*left -= bytes + 16;
	return malloc(bytes);
}

static void budget_free(void *data, void *p)
{
	free(p);
}

ProtobufCMessage *ash_ctl_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *body,
				 size_t bytes)
{
	size_t left = MEMORY_MIN + bytes * MEMORY_PER_BYTE;
	ProtobufCAllocator budget = {budget_alloc, budget_free, &left};

	if (!depth_ok(type, (struct reader){body, body + bytes}, DEPTH_MAX))
		return NULL;
	return protobuf_c_message_unpack(type, &budget, bytes, body);
}
