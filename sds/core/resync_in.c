// SPDX-License-Identifier: MIT
/* Copy being built: opening a session, and listing what is here. */
#include <string.h>

#include "sds/core/sds_int.h"

#define SCAN_AT_ONCE 256u
#define SCANS_MAX 32u

static void answer_stale(struct sds_session *ses, const struct ash_msg *msg,
			 const struct sds_pg *pg)
{
	struct sds *s = ses->s;
	const struct ash_map_pool *pool = ash_map_pool(s->map, pg->pool->id);
	struct ash_buf *buf = pool ? ash_buf_get(s->port->bufs, 4096, ASH_BUF_PEER) : NULL;
	struct ash_wire_row row;

	if (buf) {
		ash_map_encode_row(s->map, pool, pg->pg, &row);
		memcpy(buf->base, &row, sizeof(row));
	}
	session_answer(ses, &msg->h, ASH_ST_STALE, 0, 0, buf, buf ? sizeof(row) : 0);
}

/* The PG, if its row makes us the copy that the sender builds; else an answer went out. */
static struct sds_pg *built_by(struct sds_session *ses, struct ash_msg *msg)
{
	struct sds *s = ses->s;
	struct sds_pg *pg = pg_at(s, msg->h.node, (uint32_t)msg->h.mark);

	if (!pg || !pg_is_placed(pg) || msg->h.gen > pg->row.gen) {
		struct sds_peer *peer = peer_find(s, ses->sender->id);

		if (peer)
			lease_ask_rows(peer);
		mdm_want_map(s);
		session_answer(ses, &msg->h, ASH_ST_BEHIND, 0, 0, NULL, 0);
		return NULL;
	}
	if (msg->h.gen < pg->row.gen || msg->h.path < ses->sender->path ||
	    pg->row.primary == ASH_NO_PRIMARY ||
	    pg->row.replica[pg->row.primary].sds != ses->sender->id) {
		answer_stale(ses, msg, pg);
		return NULL;
	}
	if (pg->role != ROLE_BUILDING) {
		session_answer(ses, &msg->h, ASH_ST_RETRY, 0, 0, NULL, 0);
		return NULL;
	}
	return pg;
}

static void inventory(struct sds_session *ses, struct ash_msg *msg, struct sds_pg *pg)
{
	struct sds *s = ses->s;
	struct ash_buf *buf;
	struct sds_chunk_info info[SCAN_AT_ONCE];
	uint64_t cursor = msg->h.offset;
	uint32_t bytes = 0;

	if (pg->sync_from != ses->sender->id || pg->sync_session != ses->sender->session) {
		session_answer(ses, &msg->h, ASH_ST_RETRY, 0, 0, NULL, 0);
		return;
	}
	buf = ash_buf_get(s->port->bufs, ASH_AUX_MAX_BYTES, ASH_BUF_PEER);
	if (!buf) {
		session_answer(ses, &msg->h, ASH_ST_BEHIND, 0, 0, NULL, 0); /* ask again */
		return;
	}
	for (unsigned round = 0; round < SCANS_MAX; round++) {
		unsigned n = sds_store_scan(pg->dev->store, cursor, info, SCAN_AT_ONCE, &cursor);

		for (unsigned i = 0; i < n; i++) {
			struct ash_inv e = {.node = info[i].node,
					    .chunk = info[i].chunk,
					    .stamp = info[i].stamp,
					    .flags = info[i].unsettled ? ASH_INV_UNSETTLED : 0};
			struct ash_wire_inv wire;

			if (pg_of(s, e.node, e.chunk) != pg)
				continue;
			ash_inv_encode(&e, &wire);
			memcpy(buf->base + bytes, &wire, sizeof(wire));
			bytes += (uint32_t)sizeof(wire);
		}
		if (!cursor || bytes + SCAN_AT_ONCE * sizeof(struct ash_wire_inv) > buf->bytes ||
		    bytes + SCAN_AT_ONCE * sizeof(struct ash_wire_inv) > ASH_AUX_MAX_BYTES)
			break;
	}
	session_answer(ses, &msg->h, ASH_ST_OK, cursor ? ASH_F_MORE : 0, cursor, buf, bytes);
}

void sync_message(struct sds_session *ses, struct ash_msg *msg)
{
	struct sds_pg *pg = built_by(ses, msg);

	if (!pg)
		return;
	if (msg->h.op == ASH_OP_INVENTORY) {
		inventory(ses, msg, pg);
		return;
	}
	pg->sync_from = ses->sender->id;
	pg->sync_session = ses->sender->session;
	session_answer(ses, &msg->h, ASH_ST_OK, 0, 0, NULL, 0);
}
