/* SPDX-License-Identifier: MIT */
/*
 * Framing of the control protocol over TCP: a 16-byte little-endian header, then one packed
 * protobuf message.
 */
#ifndef ASHLAR_PROTO_MGMT_FRAME_H
#define ASHLAR_PROTO_MGMT_FRAME_H

#include "proto/wire/types.h"

#define ASH_FRAME_MAGIC 0x4d4c5341u /* "ASLM" */
#define ASH_FRAME_VERSION 1
#define ASH_FRAME_MAX_BYTES (64u * 1024u * 1024u)

enum ash_frame_type {
	ASH_FRAME_REQUEST = 1, /* pb.Request */
	ASH_FRAME_REPLY = 2,   /* pb.Reply */
	ASH_FRAME_PUSH = 3,    /* pb.Push */
};

struct ash_frame {
	ash_le32 magic;
	ash_le16 version;
	ash_le16 type;
	ash_le32 bytes; /* of the message that follows, <= ASH_FRAME_MAX_BYTES */
	ash_le32 crc;	/* crc32c of the message */
};
_Static_assert(sizeof(struct ash_frame) == 16, "control frame header is 16 bytes");

#endif
