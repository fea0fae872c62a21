// SPDX-License-Identifier: GPL-2.0-only OR MIT
#include "common/shared/wire_codec.h"

#ifdef __KERNEL__
#include <linux/errno.h>
#include <linux/string.h>
#else
#include <errno.h>
#include <string.h>
#endif

#include "common/shared/crc32c.h"

static bool all_zero(const uint8_t *bytes, size_t count)
{
	uint8_t any = 0;

	while (count-- > 0)
		any |= *bytes++;
	return any == 0;
}

static bool op_known(uint8_t op)
{
	return (op >= ASH_OP_READ && op <= ASH_OP_STATUS) ||
	       (op >= ASH_OP_REPL_WRITE && op <= ASH_OP_LEASE_ASK) ||
	       (op >= ASH_OP_INVENTORY && op <= ASH_OP_READ_COPY) ||
	       (op >= ASH_OP_HELLO && op <= ASH_OP_PING);
}

size_t ash_hdr_encode(const struct ash_hdr *h, const struct ash_relay *relay, uint8_t *out)
{
	struct ash_wire_hdr w = {
		.op = h->op,
		.version = ASH_WIRE_VERSION,
		.flags = ash_put16(h->flags),
		.path = ash_put16(h->path),
		.status = ash_put16(h->status),
		.tag = ash_put64(h->tag),
		.gen = ash_put64(h->gen),
		.node = ash_put64(h->node),
		.offset = ash_put64(h->offset),
		.length = ash_put32(h->length),
		.place_version = ash_put64(h->place_version),
		.epoch_or_mark = ash_put64(h->mark),
	};
	struct ash_wire_relay r;

	w.crc = ash_put32(ash_crc32c(&w, sizeof(w)));
	memcpy(out, &w, sizeof(w));
	if (!(h->flags & ASH_F_RELAY))
		return sizeof(w);
	memset(&r, 0, sizeof(r));
	r.sdc = ash_put64(relay->sdc);
	r.session = ash_put64(relay->session);
	r.queue = ash_put16(relay->queue);
	r.hops = relay->hops;
	r.crc = ash_put32(ash_crc32c(&r, offsetof(struct ash_wire_relay, crc)));
	memcpy(out + sizeof(w), &r, sizeof(r));
	return sizeof(w) + sizeof(r);
}

int ash_hdr_decode(const uint8_t in[ASH_HDR_BYTES], struct ash_hdr *ret_h)
{
	struct ash_wire_hdr w;
	uint32_t crc;

	memcpy(&w, in, sizeof(w));
	if (w.version < ASH_WIRE_VERSION_MIN || w.version > ASH_WIRE_VERSION)
		return -EPROTONOSUPPORT;
	crc = ash_get32(w.crc);
	w.crc = ash_put32(0);
#ifndef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
	if (crc != ash_crc32c(&w, sizeof(w)))
		return -EBADMSG;
#else
	(void)crc;
#endif
	if (!op_known(w.op))
		return -EBADMSG;
	*ret_h = (struct ash_hdr){
		.op = w.op,
		.flags = ash_get16(w.flags),
		.path = ash_get16(w.path),
		.status = ash_get16(w.status),
		.tag = ash_get64(w.tag),
		.gen = ash_get64(w.gen),
		.node = ash_get64(w.node),
		.offset = ash_get64(w.offset),
		.length = ash_get32(w.length),
		.place_version = ash_get64(w.place_version),
		.mark = ash_get64(w.epoch_or_mark),
	};
	return 0;
}

int ash_relay_decode(const uint8_t in[ASH_RELAY_BYTES], struct ash_relay *ret_relay)
{
	struct ash_wire_relay r;

	memcpy(&r, in, sizeof(r));
	if (!all_zero(r.reserved, sizeof(r.reserved)))
		return -EBADMSG;
#ifndef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
	if (ash_get32(r.crc) != ash_crc32c(&r, offsetof(struct ash_wire_relay, crc)))
		return -EBADMSG;
#endif
	*ret_relay = (struct ash_relay){.sdc = ash_get64(r.sdc),
					.session = ash_get64(r.session),
					.queue = ash_get16(r.queue),
					.hops = r.hops};
	return 0;
}

bool ash_range_ok(uint64_t offset, uint32_t length)
{
	uint64_t in_chunk = offset % ASH_CHUNK_BYTES;

	return length != 0 && length <= ASH_CHUNK_BYTES && offset % ASH_SECTOR_BYTES == 0 &&
	       length % ASH_SECTOR_BYTES == 0 && in_chunk + length <= ASH_CHUNK_BYTES &&
	       offset < ASH_NODE_MAX_BYTES - ASH_CHUNK_BYTES;
}

/* Requests whose range must be checked, data or not. */
static bool op_has_range(uint8_t op)
{
	switch (op) {
	case ASH_OP_READ:
	case ASH_OP_WRITE:
	case ASH_OP_DISCARD:
	case ASH_OP_WRITE_ZEROES:
	case ASH_OP_STATUS:
	case ASH_OP_REPL_WRITE:
	case ASH_OP_REPL_DISCARD:
	case ASH_OP_REPL_ZEROES:
	case ASH_OP_REPL_UNDO:
	case ASH_OP_HASH:
	case ASH_OP_XFER:
	case ASH_OP_READ_COPY:
		return true;
	default:
		return false;
	}
}

static bool op_of_client(uint8_t op)
{
	return op < ASH_OP_REPL_WRITE;
}

static bool range_fits_op(const struct ash_hdr *h)
{
	if (!ash_range_ok(h->offset, h->length))
		return false;
	return op_of_client(h->op) ||
	       (h->offset % ASH_BLOCK_BYTES == 0 && h->length % ASH_BLOCK_BYTES == 0);
}

static bool carries_data(const struct ash_hdr *h)
{
	bool reply = h->flags & ASH_F_REPLY;

	if (reply)
		return (h->op == ASH_OP_READ || h->op == ASH_OP_READ_COPY) &&
		       h->status == ASH_ST_OK;
	return h->op == ASH_OP_WRITE || h->op == ASH_OP_REPL_WRITE ||
	       (h->op == ASH_OP_XFER && h->status == ASH_BLK_DATA);
}

/* Requests other than data whose payload is `length` bytes. */
static bool request_has_aux(uint8_t op)
{
	return op == ASH_OP_HELLO || op == ASH_OP_LEASE_ASK || op == ASH_OP_ROWS;
}

int64_t ash_hdr_payload(const struct ash_hdr *h, uint32_t *ret_crcs, uint32_t *ret_data_bytes)
{
	bool reply = h->flags & ASH_F_REPLY;

	*ret_crcs = 0;
	*ret_data_bytes = 0;
	if (!reply && h->op == ASH_OP_XFER && h->status > ASH_BLK_BAD)
		return -EINVAL;
	if (carries_data(h)) {
		if (!range_fits_op(h))
			return -EINVAL;
		*ret_crcs = ash_pieces(h->offset, h->length);
		*ret_data_bytes = h->length;
		return (int64_t)*ret_crcs * 4 + h->length;
	}
	if (!reply && op_has_range(h->op))
		return range_fits_op(h) ? 0 : -EINVAL;
	if (!reply && !request_has_aux(h->op))
		return h->length == 0 ? 0 : -EINVAL;
	if (h->length > ASH_AUX_MAX_BYTES)
		return -EINVAL;
	*ret_data_bytes = h->length;
	return h->length;
}

const char *ash_op_text(uint8_t op)
{
	static const char *const names[] = {
		[ASH_OP_READ] = "READ",
		[ASH_OP_WRITE] = "WRITE",
		[ASH_OP_FLUSH] = "FLUSH",
		[ASH_OP_DISCARD] = "DISCARD",
		[ASH_OP_WRITE_ZEROES] = "WRITE_ZEROES",
		[ASH_OP_STATUS] = "STATUS",
		[ASH_OP_REPL_WRITE] = "REPL_WRITE",
		[ASH_OP_REPL_DISCARD] = "REPL_DISCARD",
		[ASH_OP_REPL_ZEROES] = "REPL_ZEROES",
		[ASH_OP_REPL_FLUSH] = "REPL_FLUSH",
		[ASH_OP_REPL_UNDO] = "REPL_UNDO",
		[ASH_OP_SETTLE] = "SETTLE",
		[ASH_OP_LEASE_ASK] = "LEASE_ASK",
		[ASH_OP_INVENTORY] = "INVENTORY",
		[ASH_OP_HASH] = "HASH",
		[ASH_OP_XFER] = "XFER",
		[ASH_OP_DROP_CHUNK] = "DROP_CHUNK",
		[ASH_OP_SYNC_BEGIN] = "SYNC_BEGIN",
		[ASH_OP_SYNC_END] = "SYNC_END",
		[ASH_OP_READ_COPY] = "READ_COPY",
		[ASH_OP_HELLO] = "HELLO",
		[ASH_OP_ROWS] = "ROWS",
		[ASH_OP_PING] = "PING",
	};

	return op < sizeof(names) / sizeof(names[0]) && names[op] ? names[op] : "?";
}

static const struct {
	const char *text;
	int err;
} statuses[] = {
	[ASH_ST_OK] = {"OK", 0},
	[ASH_ST_STALE] = {"STALE", -EAGAIN},
	[ASH_ST_BEHIND] = {"BEHIND", -EAGAIN},
	[ASH_ST_NOT_MAPPED] = {"NOT_MAPPED", -EACCES},
	[ASH_ST_FENCED] = {"FENCED", -ESHUTDOWN},
	[ASH_ST_NO_ROUTE] = {"NO_ROUTE", -EAGAIN},
	[ASH_ST_RETRY] = {"RETRY", -EAGAIN},
	[ASH_ST_NOSPACE] = {"NOSPACE", -ENOSPC},
	[ASH_ST_MEDIUM] = {"MEDIUM", -EIO},
	[ASH_ST_BADSUM] = {"BADSUM", -EAGAIN},
	[ASH_ST_INVALID] = {"INVALID", -EINVAL},
	[ASH_ST_READ_ONLY] = {"READ_ONLY", -EROFS},
	[ASH_ST_REFUSED] = {"REFUSED", -EACCES},
};

const char *ash_status_text(uint16_t status)
{
	return status < sizeof(statuses) / sizeof(statuses[0]) ? statuses[status].text : "?";
}

int ash_status_errno(uint16_t status)
{
	return status < sizeof(statuses) / sizeof(statuses[0]) ? statuses[status].err : -EIO;
}

void ash_hello_encode(const struct ash_hello *h, struct ash_wire_hello *out)
{
	memset(out, 0, sizeof(*out));
	out->magic = ash_put64(ASH_HELLO_MAGIC);
	out->version_min = h->version_min;
	out->version_max = h->version_max;
	out->sender_kind = h->sender_kind;
	out->dr_epoch = ash_put32(h->dr_epoch);
	memcpy(out->system, h->system, sizeof(out->system));
	out->sender = ash_put64(h->sender);
	out->session = ash_put64(h->session);
	out->features = ash_put64(h->features);
	out->queue = ash_put16(h->queue);
	out->reactor = ash_put16(h->reactor);
	out->path = ash_put16(h->path);
	out->auth_kind = ash_put16(h->auth_kind);
	out->auth_bytes = ash_put32(h->auth_bytes);
}

int ash_hello_decode(const void *in, size_t bytes, struct ash_hello *ret_h)
{
	struct ash_wire_hello w;

	if (bytes < sizeof(w))
		return -EBADMSG;
	memcpy(&w, in, sizeof(w));
	if (ash_get64(w.magic) != ASH_HELLO_MAGIC)
		return -EBADMSG;
	if (w.reserved0 || !all_zero(w.reserved1, sizeof(w.reserved1)))
		return -EBADMSG;
	if (w.version_min > w.version_max || w.version_min > ASH_WIRE_VERSION ||
	    w.version_max < ASH_WIRE_VERSION_MIN)
		return -EPROTONOSUPPORT;
	if (w.sender_kind != ASH_SENDER_SDC && w.sender_kind != ASH_SENDER_SDS)
		return -EBADMSG;
	if (ash_get32(w.auth_bytes) > 4096 || sizeof(w) + ash_get32(w.auth_bytes) > bytes)
		return -EBADMSG;
	*ret_h = (struct ash_hello){
		.version_min = w.version_min,
		.version_max = w.version_max,
		.sender_kind = w.sender_kind,
		.dr_epoch = ash_get32(w.dr_epoch),
		.sender = ash_get64(w.sender),
		.session = ash_get64(w.session),
		.features = ash_get64(w.features),
		.queue = ash_get16(w.queue),
		.reactor = ash_get16(w.reactor),
		.path = ash_get16(w.path),
		.auth_kind = ash_get16(w.auth_kind),
		.auth_bytes = ash_get32(w.auth_bytes),
	};
	memcpy(ret_h->system, w.system, sizeof(ret_h->system));
	return 0;
}

void ash_lease_encode(const struct ash_lease *l, struct ash_wire_lease *out)
{
	memset(out, 0, sizeof(*out));
	out->ask_id = ash_put64(l->ask_id);
	out->duration_ms = ash_put32(l->duration_ms);
}

int ash_lease_decode(const void *in, size_t bytes, struct ash_lease *ret_l)
{
	struct ash_wire_lease w;

	if (bytes < sizeof(w))
		return -EBADMSG;
	memcpy(&w, in, sizeof(w));
	if (ash_get32(w.reserved) != 0)
		return -EBADMSG;
	ret_l->ask_id = ash_get64(w.ask_id);
	ret_l->duration_ms = ash_get32(w.duration_ms);
	return 0;
}

void ash_inv_encode(const struct ash_inv *e, struct ash_wire_inv *out)
{
	memset(out, 0, sizeof(*out));
	out->node = ash_put64(e->node);
	out->chunk = ash_put64(e->chunk);
	out->stamp = ash_put64(e->stamp);
	out->flags = ash_put32(e->flags);
}

int ash_inv_decode(const struct ash_wire_inv *in, struct ash_inv *ret_e)
{
	struct ash_wire_inv w;

	memcpy(&w, in, sizeof(w));
	if (ash_get32(w.reserved) != 0 || (ash_get32(w.flags) & ~ASH_INV_UNSETTLED) ||
	    ash_get64(w.node) == 0 || ash_get64(w.chunk) >= ASH_NODE_MAX_BYTES / ASH_CHUNK_BYTES)
		return -EBADMSG;
	*ret_e = (struct ash_inv){.node = ash_get64(w.node),
				  .chunk = ash_get64(w.chunk),
				  .stamp = ash_get64(w.stamp),
				  .flags = ash_get32(w.flags)};
	return 0;
}

void ash_blockhash_encode(const struct ash_blockhash *b, struct ash_wire_blockhash *out)
{
	memset(out, 0, sizeof(*out));
	out->hash = ash_put64(b->hash);
	out->state = b->state;
}

int ash_blockhash_decode(const struct ash_wire_blockhash *in, struct ash_blockhash *ret_b)
{
	struct ash_wire_blockhash w;

	memcpy(&w, in, sizeof(w));
	if (!all_zero(w.reserved, sizeof(w.reserved)) || w.state > ASH_BLK_BAD ||
	    (w.state != ASH_BLK_DATA && ash_get64(w.hash) != 0))
		return -EBADMSG;
	ret_b->hash = ash_get64(w.hash);
	ret_b->state = w.state;
	return 0;
}
