/* SPDX-License-Identifier: MIT */
/* Sizes for people, in binary units. Pure; any thread. */
#ifndef ASHLAR_COMMON_BASE_SIZE_H
#define ASHLAR_COMMON_BASE_SIZE_H

#include <stddef.h>
#include <stdint.h>

/**
 * ash_size_parse() - "16GiB", "512MiB", "512M", "1048576" to bytes. Units K M G T P, optionally
 * followed by iB or B, any case; always powers of 1024. Fractions ("1.5GiB") are allowed when the
 * result is a whole number of bytes.
 * Return: 0; -EINVAL not a size; -ERANGE above 2^63 - 1.
 */
int ash_size_parse(const char *text, uint64_t *ret_bytes);

/* "16 GiB", "1.5 GiB", "512 B": at most one decimal; @buf of at least 16 bytes; returns buf. */
const char *ash_size_format(uint64_t bytes, char *buf, size_t room);

/* "10%" or "10" to 10. Return: 0; -EINVAL; -ERANGE above 100. */
int ash_percent_parse(const char *text, uint32_t *ret_percent);
/* Decimal number in [min, max]. Return: 0; -EINVAL; -ERANGE. */
int ash_u64_parse(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value);

#endif
