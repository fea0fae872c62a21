// SPDX-License-Identifier: MIT
/* Where a chunk's requests go. */
#include "common/shared/chunk_pg.h"
#include "sdc/core/sdc_int.h"

struct ash_row *sdc_route_row(const struct sdc_vol *vol, uint64_t offset, uint32_t *ret_pg)
{
	uint32_t pg;

	if (!vol->pool)
		return NULL;
	pg = ash_chunk_pg(vol->first_pg, offset / ASH_CHUNK_BYTES, vol->pool->pg_shift,
			  vol->pool->pg_count);
	if (ret_pg)
		*ret_pg = pg;
	return &vol->pool->rows[pg];
}

struct sdc_peer *sdc_route_primary(struct sdc *sdc, const struct ash_row *row)
{
	const struct ash_map_device *device;
	const struct ash_replica *r;
	struct ash_endpoint endpoint;
	uint64_t sds;
	uint16_t reactor = 0;

	if (!row || row->gen == 0 || row->primary >= row->replicas)
		return NULL;
	r = &row->replica[row->primary];
	sds = r->sds;
	endpoint = r->endpoint;
	device = ash_map_device(sdc->map, r->device);
	if (device) {
		reactor = (uint16_t)device->reactor;
		if (!sds)
			sds = device->sds;
	}
	if (endpoint.port == 0) {
		const struct ash_map_sds *s = sds ? ash_map_sds(sdc->map, sds) : NULL;

		if (!s || reactor >= s->endpoints)
			return NULL;
		endpoint = s->endpoint[reactor];
	}
	if (!sds || endpoint.port == 0)
		return NULL;
	return sdc_peer_of(sdc, sds, reactor, &endpoint);
}
