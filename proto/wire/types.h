/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Little-endian field types of the wire and disk formats.
 *
 * A field of these types cannot be used in arithmetic by accident: in user space it is a
 * one-member struct, in the kernel a sparse-checked __le type. Convert only in encode and decode
 * functions; everything else works on host-order structs.
 */
#ifndef ASHLAR_PROTO_WIRE_TYPES_H
#define ASHLAR_PROTO_WIRE_TYPES_H

#ifdef __KERNEL__
#include <asm/byteorder.h>
#include <linux/types.h>

typedef __le16 ash_le16;
typedef __le32 ash_le32;
typedef __le64 ash_le64;

static inline u16 ash_get16(ash_le16 x)
{
	return le16_to_cpu(x);
}
static inline u32 ash_get32(ash_le32 x)
{
	return le32_to_cpu(x);
}
static inline u64 ash_get64(ash_le64 x)
{
	return le64_to_cpu(x);
}
static inline ash_le16 ash_put16(u16 v)
{
	return cpu_to_le16(v);
}
static inline ash_le32 ash_put32(u32 v)
{
	return cpu_to_le32(v);
}
static inline ash_le64 ash_put64(u64 v)
{
	return cpu_to_le64(v);
}
#else
#include <endian.h>
#include <stdint.h>

typedef struct {
	uint16_t le;
} ash_le16;
typedef struct {
	uint32_t le;
} ash_le32;
typedef struct {
	uint64_t le;
} ash_le64;

static inline uint16_t ash_get16(ash_le16 x)
{
	return le16toh(x.le);
}
static inline uint32_t ash_get32(ash_le32 x)
{
	return le32toh(x.le);
}
static inline uint64_t ash_get64(ash_le64 x)
{
	return le64toh(x.le);
}
static inline ash_le16 ash_put16(uint16_t v)
{
	return (ash_le16){htole16(v)};
}
static inline ash_le32 ash_put32(uint32_t v)
{
	return (ash_le32){htole32(v)};
}
static inline ash_le64 ash_put64(uint64_t v)
{
	return (ash_le64){htole64(v)};
}
#endif

#endif
