/* SPDX-License-Identifier: MIT */
/* Numbers of the NBD protocol (fixed newstyle, structured replies). All fields are big-endian. */
#ifndef ASHLAR_SDC_NBD_PROTO_H
#define ASHLAR_SDC_NBD_PROTO_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

#define NBD_MAGIC 0x4e42444d41474943ull	    /* "NBDMAGIC" */
#define NBD_OPT_MAGIC 0x49484156454f5054ull /* "IHAVEOPT" */
#define NBD_REP_MAGIC 0x3e889045565a9ull
#define NBD_REQUEST_MAGIC 0x25609513u
#define NBD_SIMPLE_MAGIC 0x67446698u
#define NBD_CHUNK_MAGIC 0x668e33efu

enum { NBD_F_FIXED_NEWSTYLE = 1, NBD_F_NO_ZEROES = 2 };

enum nbd_opt {
	NBD_OPT_EXPORT_NAME = 1,
	NBD_OPT_ABORT = 2,
	NBD_OPT_LIST = 3,
	NBD_OPT_INFO = 6,
	NBD_OPT_GO = 7,
	NBD_OPT_STRUCTURED_REPLY = 8,
	NBD_OPT_LIST_META_CONTEXT = 9,
	NBD_OPT_SET_META_CONTEXT = 10,
};

#define NBD_REP_ACK 1u
#define NBD_REP_SERVER 2u
#define NBD_REP_INFO 3u
#define NBD_REP_META_CONTEXT 4u
#define NBD_REP_ERR_UNSUP 0x80000001u
#define NBD_REP_ERR_INVALID 0x80000003u
#define NBD_REP_ERR_UNKNOWN 0x80000006u
#define NBD_REP_ERR_TOO_BIG 0x80000009u

enum { NBD_INFO_EXPORT = 0, NBD_INFO_NAME = 1, NBD_INFO_DESCRIPTION = 2, NBD_INFO_BLOCK_SIZE = 3 };

enum nbd_export_flag {
	NBD_FLAG_HAS_FLAGS = 1 << 0,
	NBD_FLAG_READ_ONLY = 1 << 1,
	NBD_FLAG_SEND_FLUSH = 1 << 2,
	NBD_FLAG_SEND_FUA = 1 << 3,
	NBD_FLAG_SEND_TRIM = 1 << 5,
	NBD_FLAG_SEND_WRITE_ZEROES = 1 << 6,
	NBD_FLAG_SEND_DF = 1 << 7,
	NBD_FLAG_CAN_MULTI_CONN = 1 << 8,
	NBD_FLAG_SEND_FAST_ZERO = 1 << 11,
};

enum nbd_cmd {
	NBD_CMD_READ = 0,
	NBD_CMD_WRITE = 1,
	NBD_CMD_DISC = 2,
	NBD_CMD_FLUSH = 3,
	NBD_CMD_TRIM = 4,
	NBD_CMD_WRITE_ZEROES = 6,
	NBD_CMD_BLOCK_STATUS = 7,
};

enum nbd_cmd_flag {
	NBD_CMD_FLAG_FUA = 1 << 0,
	NBD_CMD_FLAG_NO_HOLE = 1 << 1,
	NBD_CMD_FLAG_DF = 1 << 2,
	NBD_CMD_FLAG_REQ_ONE = 1 << 3,
	NBD_CMD_FLAG_FAST_ZERO = 1 << 4,
};

enum { NBD_CHUNK_DONE = 1 };
enum {
	NBD_CHUNK_NONE = 0,
	NBD_CHUNK_OFFSET_DATA = 1,
	NBD_CHUNK_BLOCK_STATUS = 5,
	NBD_CHUNK_ERROR = 32769,
};
enum { NBD_STATE_HOLE = 1, NBD_STATE_ZERO = 2 };

enum nbd_error {
	NBD_EPERM = 1,
	NBD_EIO = 5,
	NBD_ENOMEM = 12,
	NBD_EINVAL = 22,
	NBD_ENOSPC = 28,
	NBD_EOVERFLOW = 75,
	NBD_ENOTSUP = 95,
	NBD_ESHUTDOWN = 108,
};

#define NBD_BLOCK_MIN 512u
#define NBD_BLOCK_PREFERRED 4096u
#define NBD_PAYLOAD_MAX (32u << 20)
#define NBD_REQUEST_BYTES 28u

static inline uint16_t nbd_get16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, 2);
	return be16toh(v);
}
static inline uint32_t nbd_get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, 4);
	return be32toh(v);
}
static inline uint64_t nbd_get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, 8);
	return be64toh(v);
}
static inline uint8_t *nbd_put16(uint8_t *p, uint16_t v)
{
	v = htobe16(v);
	memcpy(p, &v, 2);
	return p + 2;
}
static inline uint8_t *nbd_put32(uint8_t *p, uint32_t v)
{
	v = htobe32(v);
	memcpy(p, &v, 4);
	return p + 4;
}
static inline uint8_t *nbd_put64(uint8_t *p, uint64_t v)
{
	v = htobe64(v);
	memcpy(p, &v, 8);
	return p + 8;
}

#endif
