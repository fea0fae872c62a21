// SPDX-License-Identifier: MIT
/* What an answer means for its request. */
#include <errno.h>
#include <string.h>

#include "common/base/crc.h"
#include "common/base/log.h"
#include "sdc/core/sdc_int.h"

bool sdc_reply_place(struct sdc_req *req, const struct ash_hdr *h, uint8_t **ret_data,
		     uint32_t **ret_crc)
{
	/* After two mismatches into a buffer of our own: then nobody else can have written there.
	 */
	if (req->op != ASH_OP_READ || h->op != ASH_OP_READ || !req->data || req->placed ||
	    req->badsums >= 2 || req->vol->dead || h->length != req->length ||
	    h->offset != req->offset)
		return false;
	req->placed = true;
	*ret_data = req->data;
	*ret_crc = req->crc;
	return true;
}

static void scatter(struct sdc_req *req, const uint8_t *data)
{
	const struct iovec *iov = &req->io->iov[req->iov_at];
	size_t skip = req->iov_skip, at = 0;

	for (; at < req->length; iov++, skip = 0) {
		size_t n = iov->iov_len - skip;

		if (n > req->length - at)
			n = req->length - at;
		if (n)
			memcpy((uint8_t *)iov->iov_base + skip, data + at, n);
		at += n;
	}
}

static int bad_sum(struct sdc_req *req, const char *where)
{
	struct sdc *sdc = req->sdc;

	sdc->stats.checksum_errors++;
	req->badsums++;
	req->prepared = false;
	if (sdc_may_tell(sdc, &sdc->sum_told_ns))
		sdc_trace(sdc, ASH_LOG_WARN,
			  "event=checksum_mismatch in=%s volume=%s offset=%llu length=%u sds=%llu "
			  "times=%u in_all=%llu",
			  where, req->vol->name, (unsigned long long)req->offset, req->length,
			  (unsigned long long)req->peer->sds, req->badsums,
			  (unsigned long long)sdc->stats.checksum_errors);
	if (req->badsums >= BADSUM_MAX)
		return -EIO;
	return req->badsums == 1 ? REQ_AGAIN : REQ_LATER;
}

static int got_data(struct sdc_req *req, const struct ash_msg *msg)
{
	if (msg->h.length != req->length || msg->h.offset != req->offset ||
	    msg->data_bytes != req->length || msg->crcs != ash_pieces(req->offset, req->length))
		return -EPROTO;
	if (ash_crc32c_check(msg->data, req->offset, req->length, msg->crc) >= 0)
		return bad_sum(req, "read");
	if (msg->data != req->data)
		scatter(req, msg->data);
	return 0;
}

static int succeeded(struct sdc_req *req, const struct ash_msg *msg)
{
	if (req->op == ASH_OP_READ)
		return got_data(req, msg);
	if (req->op == ASH_OP_STATUS) {
		uint32_t blocks = ash_pieces(req->offset, req->length);

		if (msg->data_bytes != blocks)
			return -EPROTO;
		sdc_status_reply(req, msg->data, blocks);
	}
	return 0;
}

/* The sender's map is old, or so the SDS says: its row decides. */
static int stale(struct sdc_req *req, const struct ash_msg *msg)
{
	struct sdc *sdc = req->sdc;
	struct ash_wire_row row;
	struct ash_row *have;
	int taken;

	sdc->stats.stale++;
	if (msg->data_bytes >= sizeof(row)) {
		memcpy(&row, msg->data, sizeof(row));
		sdc_apply_row(sdc, &row, &taken);
	} else {
		sdc_want_map(sdc);
	}
	if (req->op == ASH_OP_FLUSH)
		return REQ_LATER;
	have = sdc_route_row(req->vol, req->offset, NULL);
	/* Newer than what we asked with: at once. The same: not in a hot loop. */
	return have && have->gen > req->gen ? REQ_AGAIN : REQ_LATER;
}

/* "Not mapped" and "fenced" end the open, not only the request. */
static int gone(struct sdc_req *req, uint16_t status)
{
	sdc_vol_die(req->vol, -ESHUTDOWN,
		    status == ASH_ST_FENCED ? "a newer open of this SDC has taken the volume"
					    : "the volume is not mapped to this SDC any more");
	return -ESHUTDOWN;
}

int sdc_reply_handle(struct sdc_req *req, struct ash_msg *msg)
{
	int result;

	if (msg->h.op != req->op)
		return -EPROTO;
	switch (msg->h.status) {
	case ASH_ST_OK:
		result = succeeded(req, msg);
		break;
	case ASH_ST_STALE:
		result = stale(req, msg);
		break;
	case ASH_ST_BEHIND:
	case ASH_ST_RETRY:
	case ASH_ST_NO_ROUTE:
		result = REQ_LATER;
		break;
	case ASH_ST_NOT_MAPPED:
	case ASH_ST_FENCED:
		return gone(req, msg->h.status);
	case ASH_ST_BADSUM:
		result = req->op == ASH_OP_WRITE ? bad_sum(req, "write") : REQ_LATER;
		break;
	case ASH_ST_NOSPACE:
	case ASH_ST_MEDIUM:
	case ASH_ST_INVALID:
	case ASH_ST_READ_ONLY:
		result = ash_status_errno(msg->h.status);
		if (msg->h.status == ASH_ST_INVALID)
			sdc_trace(req->sdc, ASH_LOG_ERROR,
				  "event=request_invalid op=%s volume=%s offset=%llu length=%u",
				  ash_op_text(req->op), req->vol->name,
				  (unsigned long long)req->offset, req->length);
		break;
	default:
		return -EPROTO;
	}
	if (req->op == ASH_OP_FLUSH && result != -EPROTO && result <= 0)
		sdc_flush_reply(req, result, msg->h.place_version);
	return result;
}
