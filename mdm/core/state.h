/* SPDX-License-Identifier: MIT */
/*
 * Inside of the replicated state; shared by the files of mdm/core and opened by its tests.
 *
 * Objects are the protobuf messages themselves, in tables sorted by id (ids only grow, so adding is
 * appending). PG rows are plain structs, per pool, chained by gen, so that a delta walks only what
 * changed. Iteration is always in id order: apply must do the same on every member.
 */
#ifndef ASHLAR_MDM_CORE_STATE_H
#define ASHLAR_MDM_CORE_STATE_H

#include "mdm/core/mdm.h"
#include "proto/wire/wire.h"

#define MDM_KINDS 12	     /* table index = Pb__Kind */
#define MDM_EVENTS_MAX 1000  /* kept in the state */
#define MDM_REMOVED_MAX 4096 /* deltas reach back this many removals */
#define MDM_VOLUME_MAX (1ull << 50)
#define MDM_DEVICE_MIN (256ull << 20)
#define MDM_OVERPROVISION 10 /* thin volumes of a pool: up to this many times its usable bytes */
#define MDM_REPLICAS_GOOD 32 /* below this many replicas per device the balance gets coarse */
#define MDM_PG_MIN 16
#define MDM_PG_MAX 65536
#define MDM_PG_DEFAULT 4096
#define MDM_NO_ROW UINT32_MAX
#define MDM_ENDPOINTS_MAX 64 /* reactors of an SDS; map readers have no room for more */

struct mdm_table {
	void **obj;
	size_t count, room;
};

struct mdm_replica {
	uint64_t device, incarnation, left_gen;
	uint8_t state; /* enum ash_replica_state */
};

struct mdm_row {
	uint64_t gen, shrunk_at; /* gen 0: never placed */
	uint32_t newer, older;	 /* chain by gen; MDM_NO_ROW ends it */
	uint8_t replicas;
	uint8_t primary;    /* index + 1, 0 = nobody serves */
	uint8_t handover;   /* index + 1, 0 = none */
	uint8_t last_count; /* last in-sync set while nobody serves; the old primary first */
	struct mdm_replica replica[ASH_ROW_REPLICAS_MAX];
	uint64_t last[ASH_ROW_REPLICAS_MAX];
};

struct mdm_rows {
	uint64_t pool;
	uint32_t pg_count;
	uint32_t newest; /* heads of the chain; rows with gen 0 are not in it */
	struct mdm_row *row;
};

struct mdm_state {
	uint64_t version, applied;
	uint64_t making;  /* version that the running command makes if it changes anything */
	uint64_t unix_ms; /* of the running command */
	bool changed;
	Pb__System *system; /* NULL before system create */
	struct mdm_table table[MDM_KINDS];
	struct mdm_rows **rows; /* sorted by pool */
	size_t rows_count;
	uint64_t next_id, next_event;
	Pb__Event **events;
	size_t events_count;
	Pb__Removed **removed; /* by version */
	size_t removed_count;
	uint64_t removed_floor;
};

/* ---------------------------------------------------------------- table.c: objects of any kind */

struct mdm_kind_info {
	const ProtobufCMessageDescriptor *desc;
	const char *noun;	    /* "fault set" */
	const char *tag;	    /* "fault-set", in events */
	size_t version_at, name_at; /* name_at 0 = has no name */
};
const struct mdm_kind_info *mdm_kind_info(int kind); /* NULL unknown */

static inline uint64_t mdm_obj_id(const void *obj)
{
	return ((const Pb__Domain *)obj)
		->id; /* the first field of every kind; asserted in table.c */
}
uint64_t *mdm_obj_version(int kind, void *obj);
/* "" when the object or its name is unknown. */
const char *mdm_obj_name(int kind, const void *obj);

void *mdm_table_find(const struct mdm_table *t, uint64_t id);
/* Inserts by id; usually at the end. */
void mdm_table_put(struct mdm_table *t, void *obj);
void *mdm_table_take(struct mdm_table *t, uint64_t id);

/* Deep copy, to be freed with protobuf_c_message_free_unpacked(). */
void *mdm_pb_clone(const void *message);
void mdm_pb_free(void *message);
void mdm_set_string(char **field, const char *value);
void mdm_set_bytes(ProtobufCBinaryData *field, const void *data, size_t bytes);
static inline bool mdm_bytes_equal(const ProtobufCBinaryData *a, const ProtobufCBinaryData *b)
{
	return a->len == b->len && (!a->len || !__builtin_memcmp(a->data, b->data, a->len));
}
static inline bool mdm_is_uuid(const ProtobufCBinaryData *b)
{
	return b->len == 16;
}
/* Room for one more pointer. */
void *mdm_list_grow(void *list, size_t count);

/* ---------------------------------------------------------------- state.c */

#define MDM_EACH(st, kind, Type, it)                                                               \
	for (size_t it##_i = 0; it##_i < (st)->table[kind].count; it##_i++)                        \
		for (Type *it = (st)->table[kind].obj[it##_i]; it; it = NULL)

static inline void *mdm_find(const struct mdm_state *st, int kind, uint64_t id)
{
	return mdm_table_find(&st->table[kind], id);
}
#define MDM_FINDER(fn, Type, kind)                                                                 \
	static inline Type *fn(const struct mdm_state *st, uint64_t id)                            \
	{                                                                                          \
		return mdm_find(st, kind, id);                                                     \
	}
MDM_FINDER(mdm_domain, Pb__Domain, PB__KIND__KIND_DOMAIN)
MDM_FINDER(mdm_fault_set, Pb__FaultSet, PB__KIND__KIND_FAULT_SET)
MDM_FINDER(mdm_sds, Pb__Sds, PB__KIND__KIND_SDS)
MDM_FINDER(mdm_device, Pb__Device, PB__KIND__KIND_DEVICE)
MDM_FINDER(mdm_pool, Pb__Pool, PB__KIND__KIND_POOL)
MDM_FINDER(mdm_volume, Pb__Volume, PB__KIND__KIND_VOLUME)
MDM_FINDER(mdm_sdc, Pb__Sdc, PB__KIND__KIND_SDC)
MDM_FINDER(mdm_mapping, Pb__Mapping, PB__KIND__KIND_MAPPING)
MDM_FINDER(mdm_fence, Pb__Fence, PB__KIND__KIND_FENCE)
MDM_FINDER(mdm_tombstone, Pb__Tombstone, PB__KIND__KIND_TOMBSTONE)

/* Name of an object for messages; "?" if there is none. */
const char *mdm_name(const struct mdm_state *st, int kind, uint64_t id);
/* NULL if none. @domain 0 = any; *ret_many (may be NULL): more than one matches. */
void *mdm_find_name(const struct mdm_state *st, int kind, const char *name, uint64_t domain,
		    bool *ret_many);
Pb__Mapping *mdm_find_mapping(const struct mdm_state *st, uint64_t volume, uint64_t sdc);
Pb__Sdc *mdm_find_sdc_guid(const struct mdm_state *st, const ProtobufCBinaryData *guid);
Pb__Sds *mdm_find_sds_uuid(const struct mdm_state *st, const ProtobufCBinaryData *uuid);
Pb__Device *mdm_find_device_uuid(const struct mdm_state *st, const ProtobufCBinaryData *uuid);
/* The fault set, or the SDS itself: what must not hold two copies. 0 unknown device. */
uint64_t mdm_unit_of_sds(const Pb__Sds *sds);
uint64_t mdm_unit_of(const struct mdm_state *st, uint64_t device);
bool mdm_device_usable(const struct mdm_state *st, const Pb__Device *dev);

/* For apply only. */
uint64_t mdm_new_id(struct mdm_state *st);
void mdm_add(struct mdm_state *st, int kind, void *obj); /* takes obj; stamps version */
void mdm_touch(struct mdm_state *st, int kind, void *obj);
void mdm_remove(struct mdm_state *st, int kind, uint64_t id); /* frees, records the removal */
void mdm_event(struct mdm_state *st, Pb__Severity severity, const char *code, int kind,
	       const char *name, const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/* ---------------------------------------------------------------- rows.c */

struct mdm_rows *mdm_rows(const struct mdm_state *st, uint64_t pool);
struct mdm_rows *mdm_rows_add(struct mdm_state *st, uint64_t pool, uint32_t pg_count);
void mdm_rows_remove(struct mdm_state *st, uint64_t pool);
void mdm_rows_free(struct mdm_rows *rows);
/* Gives the row the gen being made. */
void mdm_row_touch(struct mdm_state *st, struct mdm_rows *rows, uint32_t pg);
/* Chains rows by the gens they have (restore). */
void mdm_rows_chain(struct mdm_rows *rows);
int mdm_row_find(const struct mdm_row *row, uint64_t device); /* index, or -1 */
unsigned mdm_row_in_sync(const struct mdm_row *row);
/* Takes the replica out of the list and mends the indices. */
void mdm_row_cut(struct mdm_row *row, unsigned i);
Pb__Row *mdm_row_pb(const struct mdm_rows *rows, uint32_t pg); /* deep, owned */
/* Highest gen in a domain (0 = all), and the version at which the domain itself last changed. */
uint64_t mdm_place_version(const struct mdm_state *st, uint64_t domain);

/**
 * mdm_rows_lose() - devices have lost what they held in sync (closed, opened again, failed).
 * In every row: copies on them become absent. Where another copy is in sync it stays, alone if the
 * primary left (the others may miss what the old primary had in flight to them). Where none is,
 * nobody serves and the last in-sync set is remembered.
 */
void mdm_rows_lose(struct mdm_state *st, const uint64_t *devices, size_t count);
/* As mdm_rows_lose() for one copy of one row, which the caller then touches with @gen. */
void mdm_row_lose(struct mdm_row *row, uint64_t device, uint64_t gen);
/* What a device held in sync counts for its new opening: only where that rule is left out. */
void mdm_rows_adopt(struct mdm_state *st, uint64_t device, uint64_t incarnation);

/* ---------------------------------------------------------------- capacity.c */

struct mdm_capacity {
	uint64_t raw;	       /* all devices in service or expected back */
	uint64_t spare;	       /* of raw, held back */
	uint64_t usable;       /* for data, one copy counted */
	uint64_t thick, thin;  /* sizes of volumes */
	uint64_t largest_unit; /* raw bytes of the largest fault unit */
	uint32_t units, devices;
};
void mdm_capacity(const struct mdm_state *st, const Pb__Pool *pool, uint32_t spare_pct,
		  struct mdm_capacity *ret_cap);

/* ---------------------------------------------------------------- apply.c: one command */

struct mdm_verb {
	struct ash_error (*check)(const struct mdm_state *st, const void *body);
	void (*apply)(struct mdm_state *st, const void *body, struct mdm_result *res);
};
#define MDM_VERB(name) extern const struct mdm_verb mdm_verb_##name
MDM_VERB(system_create);
MDM_VERB(mdm_set);
MDM_VERB(event);
MDM_VERB(domain_add);
MDM_VERB(fault_set_add);
MDM_VERB(sds_add);
MDM_VERB(sds_register);
MDM_VERB(sds_state);
MDM_VERB(device_add);
MDM_VERB(device_opened);
MDM_VERB(device_failed);
MDM_VERB(pool_add);
MDM_VERB(pool_set);
MDM_VERB(volume_add);
MDM_VERB(volume_set);
MDM_VERB(sdc_add);
MDM_VERB(map);
MDM_VERB(map_set);
MDM_VERB(unmap);
MDM_VERB(open);
MDM_VERB(fence_done);
MDM_VERB(tombstone_done);
MDM_VERB(remove);
MDM_VERB(rename);
MDM_VERB(pg_batch);

/* Shared checks. */
struct ash_error mdm_check_name(const struct mdm_state *st, int kind, const char *name,
				uint64_t domain, uint64_t self);
struct ash_error mdm_no_such(int kind, uint64_t id);

/* Is the SDS registered just so, and up? */
bool mdm_sds_is_registered(const struct mdm_state *st, const Pb__CmdSdsRegister *c,
			   uint64_t *ret_sds);

/* Parts of removal, one per family. */
struct ash_error mdm_check_remove_device(const struct mdm_state *st, const Pb__CmdRemove *c);
void mdm_apply_remove_device(struct mdm_state *st, Pb__Device *dev);
struct ash_error mdm_check_remove_volume(const struct mdm_state *st, const Pb__CmdRemove *c);
void mdm_apply_remove_volume(struct mdm_state *st, Pb__Volume *vol, bool force);
void mdm_apply_unmap(struct mdm_state *st, Pb__Mapping *m, bool force);
/* The SDS has no pending part in any fence any more (restarted, removed). */
void mdm_fences_forget_sds(struct mdm_state *st, uint64_t sds);
void mdm_fence_drop_sds(struct mdm_state *st, Pb__Fence *f, uint64_t sds);
void mdm_tombstones_forget_device(struct mdm_state *st, uint64_t device);

#endif
