// SPDX-License-Identifier: MIT
/* Contents that tell where they come from, and the journal of acknowledged writes. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clean.h"
#include "common/shared/chunk_pg.h"
#include "tests/bench/load.h"

#define ACK_MAGIC 0x6b63416873414131ull
#define SECTOR 512u

static void sector_pattern(uint64_t *out, uint64_t offset, uint64_t seq)
{
	uint64_t fill = ash_mix64(seq ^ ash_mix64(offset));

	out[0] = seq;
	out[1] = offset;
	for (unsigned i = 2; i < SECTOR / 8; i++)
		out[i] = fill + i * 0x9e3779b97f4a7c15ull;
}

void load_pattern(uint8_t *data, uint64_t offset, uint64_t bytes, uint64_t seq)
{
	for (uint64_t at = 0; at < bytes; at += SECTOR)
		sector_pattern((uint64_t *)(void *)(data + at), offset + at, seq);
}

uint64_t load_sector(const uint8_t *data, uint64_t offset)
{
	uint64_t want[SECTOR / 8], seq;

	memcpy(&seq, data, 8);
	memset(want, 0, sizeof(want));
	if (seq)
		sector_pattern(want, offset, seq);
	return memcmp(want, data, SECTOR) ? UINT64_MAX : seq;
}

/* ------------------------------------------------------------ journal */

struct ack_head {
	uint64_t magic, bs;
};
struct ack {
	uint64_t block, seq;
};

int load_ack_open(const char *path, uint64_t bs)
{
	struct ack_head head = {ACK_MAGIC, bs};
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, &head, sizeof(head)) != sizeof(head)) {
		fprintf(stderr, "ashlar-load: cannot write %s: %s\n", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	return fd;
}

/* One write(2) per record: what was handed to the kernel outlives a kill. */
void load_ack_put(int fd, uint64_t block, uint64_t seq)
{
	struct ack a = {block, seq};

	if (write(fd, &a, sizeof(a)) != sizeof(a)) {
		fprintf(stderr, "ashlar-load: cannot write the journal: %s\n", strerror(errno));
		_exit(4);
	}
}

/* Newest acknowledged write per block. NULL after a message. */
static uint64_t *read_journal(const char *path, uint64_t *ret_bs, uint64_t *ret_blocks,
			      uint64_t *ret_acks)
{
	FILE *f = fopen(path, "re");
	struct ack_head head;
	uint64_t *last = NULL, room = 0, acks = 0;
	struct ack a;

	if (!f || fread(&head, sizeof(head), 1, f) != 1 || head.magic != ACK_MAGIC ||
	    head.bs < SECTOR || head.bs % SECTOR || head.bs > 1 << 26) {
		fprintf(stderr, "ashlar-load: %s is no journal of acknowledged writes\n", path);
		if (f)
			fclose(f);
		return NULL;
	}
	/* The last record may be cut off: it was not finished, so it does not count. */
	while (fread(&a, sizeof(a), 1, f) == 1) {
		if (a.block >= 1ull << 40)
			continue;
		if (a.block >= room) {
			uint64_t more = a.block * 2 + 1024;

			last = ash_xrealloc(last, more * sizeof(*last));
			memset(last + room, 0, (more - room) * sizeof(*last));
			room = more;
		}
		if (a.seq > last[a.block])
			last[a.block] = a.seq;
		acks++;
	}
	fclose(f);
	*ret_bs = head.bs;
	*ret_blocks = room;
	*ret_acks = acks;
	return last ? last : ash_xcalloc(1, sizeof(*last));
}

#define CHECK_QD 16

struct check {
	struct load_engine *engine;
	struct load_slot slot[CHECK_QD];
	uint64_t *last;
	uint64_t bs, blocks, at, checked, lost, errors;
	unsigned in_flight;
};

static void check_block(struct check *c, const struct load_slot *s)
{
	uint64_t acked = c->last[s->block];

	c->checked++;
	for (uint64_t i = 0; i < c->bs / SECTOR; i++) {
		uint64_t offset = s->block * c->bs + i * SECTOR;
		uint64_t got = load_sector(s->data + i * SECTOR, offset);

		/* A later write that was not acknowledged may have arrived. */
		if (got != UINT64_MAX && got >= acked)
			continue;
		if (c->lost++ < 20)
			fprintf(stderr,
				"ashlar-load: LOST at byte %llu: write %llu was acknowledged, "
				"found %s (%llu)\n",
				(unsigned long long)offset, (unsigned long long)acked,
				got == UINT64_MAX ? "damage" : "an older one",
				(unsigned long long)got);
	}
}

static void check_next(struct check *c, struct load_slot *s)
{
	while (c->at < c->blocks && !c->last[c->at])
		c->at++;
	if (c->at < c->blocks && c->errors < 20) {
		s->block = c->at++;
		c->in_flight++;
		c->engine->submit(c->engine, s, s->block * c->bs, c->bs);
	}
}

static void check_done(struct load_slot *s, int status)
{
	struct check *c = s->load;

	c->in_flight--;
	if (status) {
		c->errors++;
		fprintf(stderr, "ashlar-load: read at byte %llu failed: %s\n",
			(unsigned long long)(s->block * c->bs), strerror(-status));
	} else {
		check_block(c, s);
	}
	check_next(c, s);
	if (!c->in_flight)
		c->engine->finish(c->engine);
}

static void check_start(void *arg)
{
	struct check *c = arg;

	for (int i = 0; i < CHECK_QD; i++)
		check_next(c, &c->slot[i]);
	if (!c->in_flight)
		c->engine->finish(c->engine);
}

int load_check(const struct load_opts *o, struct load_engine *e)
{
	uint64_t bytes, acks = 0;
	struct check c = {.engine = e};
	int err;

	c.last = read_journal(o->check, &c.bs, &c.blocks, &acks);
	if (!c.last)
		return 2;
	err = e->open(e, o, CHECK_QD, &bytes);
	if (err) {
		free(c.last);
		return err;
	}
	for (int i = 0; i < CHECK_QD; i++) {
		c.slot[i].load = &c;
		c.slot[i].kind = LOAD_READ;
		c.slot[i].done = check_done;
		c.slot[i].data = aligned_alloc(4096, (c.bs + 4095) & ~4095ull);
		if (!c.slot[i].data)
			abort();
	}
	e->run(e, check_start, &c);
	e->close(e);
	for (int i = 0; i < CHECK_QD; i++)
		free(c.slot[i].data);
	free(c.last);
	printf("acknowledged=%llu blocks=%llu lost=%llu errors=%llu\n", (unsigned long long)acks,
	       (unsigned long long)c.checked, (unsigned long long)c.lost,
	       (unsigned long long)c.errors);
	return c.lost || c.errors ? 1 : 0;
}
