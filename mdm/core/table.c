/* SPDX-License-Identifier: MIT */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clean.h"
#include "mdm/core/state.h"

#define KIND(Type, desc_, noun_, tag_, named)                                                      \
	{                                                                                          \
		.desc = &desc_, .noun = noun_, .tag = tag_, .version_at = offsetof(Type, version), \
		.name_at = named                                                                   \
	}

static const struct mdm_kind_info kinds[MDM_KINDS] = {
	[PB__KIND__KIND_DOMAIN] = KIND(Pb__Domain, pb__domain__descriptor, "protection domain",
				       "domain", offsetof(Pb__Domain, name)),
	[PB__KIND__KIND_FAULT_SET] = KIND(Pb__FaultSet, pb__fault_set__descriptor, "fault set",
					  "fault-set", offsetof(Pb__FaultSet, name)),
	[PB__KIND__KIND_SDS] =
		KIND(Pb__Sds, pb__sds__descriptor, "SDS", "sds", offsetof(Pb__Sds, name)),
	[PB__KIND__KIND_DEVICE] = KIND(Pb__Device, pb__device__descriptor, "device", "device",
				       offsetof(Pb__Device, name)),
	[PB__KIND__KIND_POOL] = KIND(Pb__Pool, pb__pool__descriptor, "storage pool", "pool",
				     offsetof(Pb__Pool, name)),
	[PB__KIND__KIND_VOLUME] = KIND(Pb__Volume, pb__volume__descriptor, "volume", "volume",
				       offsetof(Pb__Volume, name)),
	[PB__KIND__KIND_SDC] =
		KIND(Pb__Sdc, pb__sdc__descriptor, "SDC", "sdc", offsetof(Pb__Sdc, name)),
	[PB__KIND__KIND_MAPPING] =
		KIND(Pb__Mapping, pb__mapping__descriptor, "mapping", "mapping", 0),
	[PB__KIND__KIND_FENCE] = KIND(Pb__Fence, pb__fence__descriptor, "fence", "fence", 0),
	[PB__KIND__KIND_TOMBSTONE] =
		KIND(Pb__Tombstone, pb__tombstone__descriptor, "tombstone", "tombstone", 0),
	[PB__KIND__KIND_MDM] = KIND(Pb__MdmMember, pb__mdm_member__descriptor, "MDM", "mdm",
				    offsetof(Pb__MdmMember, name)),
};

#define FIRST_IS_ID(Type, field)                                                                   \
	_Static_assert(offsetof(Type, field) == offsetof(Pb__Domain, id), "id comes first")
FIRST_IS_ID(Pb__FaultSet, id);
FIRST_IS_ID(Pb__Sds, id);
FIRST_IS_ID(Pb__Device, id);
FIRST_IS_ID(Pb__Pool, id);
FIRST_IS_ID(Pb__Volume, id);
FIRST_IS_ID(Pb__Sdc, id);
FIRST_IS_ID(Pb__Mapping, id);
FIRST_IS_ID(Pb__Fence, id);
FIRST_IS_ID(Pb__Tombstone, node);
FIRST_IS_ID(Pb__MdmMember, id);

const struct mdm_kind_info *mdm_kind_info(int kind)
{
	return kind > 0 && kind < MDM_KINDS ? &kinds[kind] : NULL;
}

uint64_t *mdm_obj_version(int kind, void *obj)
{
	return (uint64_t *)(void *)((char *)obj + kinds[kind].version_at);
}

const char *mdm_obj_name(int kind, const void *obj)
{
	if (!obj || !kinds[kind].name_at)
		return "";
	return *(char *const *)(const void *)((const char *)obj + kinds[kind].name_at);
}

/* First position whose id is not below @id. */
static size_t lower_bound(const struct mdm_table *t, uint64_t id)
{
	size_t from = 0, to = t->count;

	while (from < to) {
		size_t mid = from + (to - from) / 2;

		if (mdm_obj_id(t->obj[mid]) < id)
			from = mid + 1;
		else
			to = mid;
	}
	return from;
}

void *mdm_table_find(const struct mdm_table *t, uint64_t id)
{
	size_t at = lower_bound(t, id);

	return at < t->count && mdm_obj_id(t->obj[at]) == id ? t->obj[at] : NULL;
}

void mdm_table_put(struct mdm_table *t, void *obj)
{
	size_t at = lower_bound(t, mdm_obj_id(obj));

	assert(at == t->count || mdm_obj_id(t->obj[at]) != mdm_obj_id(obj));
	if (t->count == t->room) {
		t->room = t->room ? 2 * t->room : 16;
		t->obj = ash_xrealloc(t->obj, t->room * sizeof(*t->obj));
	}
	memmove(t->obj + at + 1, t->obj + at, (t->count - at) * sizeof(*t->obj));
	t->obj[at] = obj;
	t->count++;
}

void *mdm_table_take(struct mdm_table *t, uint64_t id)
{
	size_t at = lower_bound(t, id);
	void *obj;

	if (at == t->count || mdm_obj_id(t->obj[at]) != id)
		return NULL;
	obj = t->obj[at];
	t->count--;
	memmove(t->obj + at, t->obj + at + 1, (t->count - at) * sizeof(*t->obj));
	return obj;
}

void *mdm_pb_clone(const void *message)
{
	const ProtobufCMessage *m = message;
	size_t bytes = protobuf_c_message_get_packed_size(m);
	uint8_t *data = ash_xcalloc(1, bytes + 1);
	ProtobufCMessage *copy;

	protobuf_c_message_pack(m, data);
	copy = protobuf_c_message_unpack(m->descriptor, NULL, bytes, data);
	free(data);
	assert(copy); /* what we packed ourselves unpacks, memory permitting */
	return copy;
}

void mdm_pb_free(void *message)
{
	protobuf_c_message_free_unpacked(message, NULL);
}

void mdm_set_string(char **field, const char *value)
{
	char *old = *field;

	*field = value && *value ? ash_xstrdup(value) : (char *)protobuf_c_empty_string;
	if (old && old != (char *)protobuf_c_empty_string)
		free(old);
}

void mdm_set_bytes(ProtobufCBinaryData *field, const void *data, size_t bytes)
{
	uint8_t *copy = NULL;

	if (bytes) {
		copy = ash_xcalloc(1, bytes);
		memcpy(copy, data, bytes);
	}
	free(field->data);
	field->data = copy;
	field->len = bytes;
}

void *mdm_list_grow(void *list, size_t count)
{
	return ash_xrealloc(list, (count + 1) * sizeof(void *));
}
