/* SPDX-License-Identifier: MIT */
/* A store on a simulated disk, with calls that step the world until they are done. */
#ifndef ASHLAR_TESTS_UNIT_SDS_STORE_RIG_H
#define ASHLAR_TESTS_UNIT_SDS_STORE_RIG_H

#include "sds/core/store_int.h"
#include "tests/unit/sds/simdisk.h"

struct rig {
	struct simworld w;
	struct simdisk *disk;
	struct sds_store *store;
	bool flag;
	int result;
	struct sds_label label;
	uint8_t *data; /* 1 MiB, aligned */
	uint32_t crc[ASH_CHUNK_BLOCKS];
	uint8_t state[ASH_CHUNK_BLOCKS];
	struct sds_store_op op; /* of the last call */
	uint64_t gen, shrunk_at;
};

#define RIG_STEPS 2000000u /* more than any single call needs: else it hangs */

void rig_init(struct rig *r, uint64_t seed, uint64_t bytes, bool write_back);
void rig_done(struct rig *r);
int rig_format(struct rig *r, const struct sds_format_params *params);
/* Return: as sds_store_open(), -ETIME if it hangs. */
int rig_open(struct rig *r);
int rig_close(struct rig *r);
/* Power cut, or only the process dies: the store is forgotten. */
void rig_cut(struct rig *r);
void rig_kill(struct rig *r);
int rig_probe(struct rig *r);
/* One operation on r->data, r->crc, r->state. */
int rig_op(struct rig *r, unsigned kind, uint64_t node, uint64_t chunk, unsigned first,
	   unsigned blocks);
int rig_flush(struct rig *r);

#endif
