// SPDX-License-Identifier: MIT
/*
 * The one check that every operation passes when it begins, holding its range lock: generation of
 * its PG, open epoch of its client, path of its sender. What does not pass is dropped unexecuted.
 */
#include "sds/core/sds_int.h"

static bool path_passed(const struct sds_op *op)
{
	return ASH_RULE(FENCE_PATH) && op->ses && op->h.path < op->ses->sender->path;
}

static uint16_t behind(struct sds *s)
{
	mdm_want_map(s);
	return ASH_ST_BEHIND;
}

/* Mapping and epoch. */
static uint16_t check_open(struct sds_op *op)
{
	struct sds *s = op->s;
	const struct ash_map_mapping *m = ash_map_mapping(s->map, op->h.node, op->ses->sender->id);
	bool ahead = op->h.mark > ash_map_version(s->map);
	bool change = op->h.op == ASH_OP_WRITE || op->h.op == ASH_OP_DISCARD ||
		      op->h.op == ASH_OP_WRITE_ZEROES;

	if (!m) {
		if (ahead)
			return behind(s);
		if (!ASH_RULE(MAPPING_CHECK))
			return 0;
		s->stats.not_mapped++;
		return ASH_ST_NOT_MAPPED;
	}
	if (op->h.mark > m->epoch)
		/* An epoch that our map should know and does not is nobody's. */
		return ahead ? behind(s) : ASH_ST_NOT_MAPPED;
	if (op->h.mark < m->epoch && ASH_RULE(FENCE_EPOCH)) {
		s->stats.fenced++;
		return ASH_ST_FENCED;
	}
	if (change && m->read_only)
		return ASH_ST_READ_ONLY;
	return 0;
}

uint16_t fence_open(struct sds_op *op)
{
	if (path_passed(op))
		return ASH_ST_STALE;
	return check_open(op);
}

static uint16_t stale(struct sds_op *op)
{
	op->s->stats.stale++;
	return ASH_ST_STALE;
}

uint16_t fence_client(struct sds_op *op)
{
	struct sds *s = op->s;
	const struct ash_map_volume *vol = ash_map_volume_by_node(s->map, op->h.node);
	uint16_t status = fence_open(op);
	struct sds_pg *pg;

	if (status)
		return status;
	pg = op->pg = pg_of(s, op->h.node, op->chunk);
	/* Beyond the end that we know: the client may have heard of a resize before us. */
	if (!pg || !pg_is_placed(pg) || op->h.offset + op->h.length > vol->size)
		return behind(s);
	if (op->h.gen > pg->row.gen)
		return behind(s);
	if (op->h.gen < pg->row.gen || pg->role != ROLE_PRIMARY)
		return stale(op);
	op->dev = pg->dev;
	return pg->ready && !pg->blocked ? 0 : FENCE_PARK;
}

/* Who may change our copy: the primary's SDS, at the gen that both know. */
static uint16_t check_copy(struct sds_op *op)
{
	struct sds *s = op->s;
	struct sds_pg *pg = op->pg;
	const struct ash_row *row;

	if (!pg || !pg_is_placed(pg))
		return behind(s);
	row = &pg->row;
	if (op->h.gen > row->gen) {
		struct sds_peer *peer = peer_find(s, op->ses->sender->id);

		if (peer)
			lease_ask_rows(peer);
		return behind(s);
	}
	if (op->h.gen < row->gen)
		return stale(op);
	if (row->primary == ASH_NO_PRIMARY || row->replica[row->primary].sds != op->ses->sender->id)
		return stale(op);
	if (pg->role != ROLE_SECONDARY && pg->role != ROLE_BUILDING)
		return ASH_ST_RETRY; /* our device is not open as the row says */
	op->dev = pg->dev;
	if (pg->role == ROLE_BUILDING &&
	    (pg->sync_from != op->ses->sender->id || pg->sync_session != op->ses->sender->session))
		return ASH_ST_RETRY; /* no session: what came before was missed */
	return 0;
}

uint16_t fence_repl(struct sds_op *op)
{
	struct sds *s = op->s;

	if (path_passed(op))
		return ASH_ST_STALE;
	op->pg = pg_of(s, op->h.node, op->chunk);
	if (!op->pg) {
		/* Deleted here; or it was created and we do not know yet. */
		if (ash_map_tombstone(s->map, op->h.node))
			return ASH_ST_NOT_MAPPED;
		return behind(s);
	}
	return check_copy(op);
}

uint16_t fence_sync(struct sds_op *op)
{
	if (path_passed(op))
		return ASH_ST_STALE;
	op->pg = pg_at(op->s, op->h.node, (uint32_t)op->h.mark);
	return check_copy(op);
}
