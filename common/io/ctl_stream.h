/* SPDX-License-Identifier: MIT */
/*
 * Frames of the control protocol over one TCP connection on a libev loop, for both of its ends.
 *
 * Nothing is freed or ended from inside a call: an end is reported by on_end, once, from the loop,
 * and only there may the owner free what holds the stream.
 */
#ifndef ASHLAR_COMMON_IO_CTL_STREAM_H
#define ASHLAR_COMMON_IO_CTL_STREAM_H

#include <ev.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/port/net.h"
#include "proto/mgmt/frame.h"

struct ash_ctl_stream;
struct ash_ctl_chunk;

struct ash_ctl_stream_events {
	void (*on_up)(struct ash_ctl_stream *s); /* connecting ends only */
	void (*on_frame)(struct ash_ctl_stream *s, int type, const uint8_t *body, size_t bytes);
	void (*on_end)(struct ash_ctl_stream *s);
};

/**
 * struct ash_ctl_stream - one end.
 * @rx_max:    largest message accepted; 64 MiB unless the owner lowers it.
 * @queue_max: bytes that may wait for a peer that does not read.
 * @why:       what ended it, for people; @bad: the peer broke the protocol.
 */
struct ash_ctl_stream {
	const struct ash_ctl_stream_events *events;
	struct ev_loop *loop;
	ev_io rd, wr;
	ev_timer end;
	int fd;
	bool connecting, ending, bad;
	uint32_t rx_max;
	uint8_t *rx;
	size_t rx_bytes, rx_room;
	struct ash_ctl_chunk *tx, **tx_end;
	size_t queued, queue_max;
	int reason; /* -errno */
	char why[256];
};

/* Takes the non-blocking socket @fd, connected or connecting. */
void ash_ctl_stream_init(struct ash_ctl_stream *s, struct ev_loop *loop, int fd, bool connecting,
			 const struct ash_ctl_stream_events *events);
/* Starts a connection and takes it. Return: 0 or -errno (then the stream is not initialised). */
int ash_ctl_stream_connect(struct ash_ctl_stream *s, struct ev_loop *loop,
			   const struct ash_endpoint *to,
			   const struct ash_ctl_stream_events *events);
/* Packs now. Return: 0; -EMSGSIZE nothing was queued; -ESHUTDOWN it is ending. */
int ash_ctl_stream_send(struct ash_ctl_stream *s, int type, const ProtobufCMessage *msg);
/* The same for a message packed before. */
int ash_ctl_stream_send_packed(struct ash_ctl_stream *s, int type, const void *body, size_t bytes);
/* on_end follows from the loop; what is queued is dropped. */
void ash_ctl_stream_end(struct ash_ctl_stream *s, int reason, const char *why);
/* Closes and frees at once, without on_end. Not from inside on_frame or on_up. */
void ash_ctl_stream_done(struct ash_ctl_stream *s);

/*
 * Unpacks what came from outside: bounded nesting and memory, whatever the bytes say. NULL when it
 * is malformed. Free as usual (protobuf_c_message_free_unpacked with no allocator).
 */
ProtobufCMessage *ash_ctl_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *body,
				 size_t bytes);

#endif
