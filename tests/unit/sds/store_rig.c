// SPDX-License-Identifier: MIT
#include "tests/unit/sds/store_rig.h"

#include <stdlib.h>

#include "common/base/clean.h"

void rig_init(struct rig *r, uint64_t seed, uint64_t bytes, bool write_back)
{
	memset(r, 0, sizeof(*r));
	simworld_init(&r->w, seed);
	r->disk = simdisk_new(&r->w, bytes, write_back);
	r->data = sds_aligned(ASH_CHUNK_BYTES);
	assert(r->data);
	r->gen = 1;
}

void rig_done(struct rig *r)
{
	sds_store_forget(r->store);
	simdisk_free(r->disk);
	simworld_done(&r->w);
	free(r->data);
}

static void on_result(void *arg, int result)
{
	struct rig *r = arg;

	r->flag = true;
	r->result = result;
}

static void on_open(void *arg, int result, struct sds_store *store)
{
	struct rig *r = arg;

	r->store = store;
	on_result(arg, result);
}

static void on_probe(void *arg, int result, const struct sds_label *label)
{
	struct rig *r = arg;

	if (label)
		r->label = *label;
	on_result(arg, result);
}

static void on_op(struct sds_store_op *op, int status)
{
	on_result(op->owner, status);
}

static int wait_for(struct rig *r)
{
	return simworld_until(&r->w, &r->flag, RIG_STEPS) ? r->result : -ETIME;
}

int rig_format(struct rig *r, const struct sds_format_params *params)
{
	struct sds_label label = {.device = 7, .pool = 3, .longest_lease_ms = 600};

	memset(label.system, 0x11, 16);
	for (unsigned i = 0; i < 16; i++)
		label.device_uuid[i] = (uint8_t)ash_prng_next(&r->w.rng);
	r->flag = false;
	sds_store_format_params(&r->w.port, simdisk_handle(r->disk), &label, params, on_result, r);
	return wait_for(r);
}

int rig_probe(struct rig *r)
{
	r->flag = false;
	sds_store_probe(&r->w.port, simdisk_handle(r->disk), on_probe, r);
	return wait_for(r);
}

int rig_open(struct rig *r)
{
	static const uint8_t boot[16] = {1, 2, 3};

	r->flag = false;
	r->store = sds_store_open(&r->w.port, simdisk_handle(r->disk), boot, on_open, r);
	wait_for(r);
	while (r->flag && r->result && r->w.tasks) /* it frees itself from the loop */
		simworld_step(&r->w);
	return r->flag ? r->result : -ETIME;
}

int rig_close(struct rig *r)
{
	int result;

	r->flag = false;
	sds_store_close(r->store, on_result, r);
	result = wait_for(r);
	if (result == -ETIME)
		return result;
	r->store = NULL;
	while (r->w.tasks)
		simworld_step(&r->w);
	return result;
}

static void forget(struct rig *r)
{
	sds_store_forget(r->store);
	r->store = NULL;
	simworld_reset(&r->w);
}

void rig_cut(struct rig *r)
{
	simdisk_power_cut(r->disk);
	forget(r);
}

void rig_kill(struct rig *r)
{
	simdisk_kill(r->disk);
	forget(r);
}

int rig_op(struct rig *r, unsigned kind, uint64_t node, uint64_t chunk, unsigned first,
	   unsigned blocks)
{
	struct sds_store_op *op = &r->op;

	memset(op, 0, sizeof(*op));
	op->kind = (uint8_t)kind;
	op->node = node;
	op->chunk = chunk;
	op->first_block = (uint16_t)first;
	op->blocks = (uint16_t)blocks;
	op->gen = r->gen;
	op->shrunk_at = r->shrunk_at;
	op->data = r->data;
	op->crc = r->crc;
	op->state = r->state;
	op->buf_index = -1;
	op->done = on_op;
	op->owner = r;
	r->flag = false;
	sds_store_submit(r->store, op);
	return wait_for(r);
}

int rig_flush(struct rig *r)
{
	return rig_op(r, SDS_STORE_FLUSH, 0, 0, 0, 0);
}
