/* SPDX-License-Identifier: MIT */
/*
 * Mutations that know protobuf: numbers, lists, strings and parts of messages change, and all
 * lengths around them fit again, so that a fuzzer gets past the decoder.
 */
#ifndef ASHLAR_TESTS_FUZZ_PBMUTATE_H
#define ASHLAR_TESTS_FUZZ_PBMUTATE_H

#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

#include "common/base/prng.h"

/**
 * struct fuzz_format - how a target's input is cut into messages. A target that has one defines
 * `const struct fuzz_format fuzz_format`.
 * @prefix: bytes before the first record.
 * @header: bytes before each record's message.
 * @split:  type and size of the message behind a header; @left: bytes behind it. NULL: unknown
 * type.
 * @join:   writes the size of a new message into its header.
 */
struct fuzz_format {
	size_t prefix, header;
	const ProtobufCMessageDescriptor *(*split)(const uint8_t *header, size_t left,
						   size_t *ret_bytes);
	void (*join)(uint8_t *header, size_t bytes);
};
extern const struct fuzz_format fuzz_format __attribute__((weak));

/* Changes one thing somewhere in the message. */
void fuzz_pb_mutate(ProtobufCMessage *m, struct ash_prng *rng);

/**
 * fuzz_mutate() - mutate an input of the target's format in place.
 * @max: room at @data. Return: the new size, or 0 if there is no message to mutate or no room.
 */
size_t fuzz_mutate(const struct fuzz_format *fmt, uint8_t *data, size_t size, size_t max,
		   struct ash_prng *rng);

#endif
