// SPDX-License-Identifier: MIT
/*
 * Writes the first corpus: a few valid inputs for each target, from the encoders themselves.
 *
 *     fuzz_seeds tests/fuzz/corpus
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/clean.h"
#include "common/base/crc.h"
#include "common/shared/wire_codec.h"
#include "proto/mgmt/frame.h"
#include "sds/core/store_format.h"
#include "tests/unit/mdm/random.h"

static const char *root;

struct bytes {
	uint8_t *data;
	size_t size;
};

static void append(struct bytes *b, const void *data, size_t size)
{
	b->data = ash_xrealloc(b->data, b->size + size);
	memcpy(b->data + b->size, data, size);
	b->size += size;
}

static void keep(struct bytes *b, const char *target, const char *name)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", root, target);
	if (mkdir(path, 0777) && errno != EEXIST) {
		perror(path);
		exit(1);
	}
	snprintf(path, sizeof(path), "%s/%s/seed-%s", root, target, name);
	file = fopen(path, "wb");
	if (!file || fwrite(b->data, 1, b->size, file) != b->size || fclose(file)) {
		perror(path);
		exit(1);
	}
	free(b->data);
	*b = (struct bytes){0};
}

/* ---- wire */

static void message(struct bytes *b, struct ash_hdr h, const void *payload, size_t bytes)
{
	struct ash_relay relay = {.sdc = 100, .session = 7, .queue = 1, .hops = 1};
	uint8_t raw[ASH_HDR_MAX_BYTES];

	h.tag = 1 + b->size;
	h.gen = 9;
	h.node = 60;
	h.place_version = 12;
	append(b, raw, ash_hdr_encode(&h, &relay, raw));
	if (bytes)
		append(b, payload, bytes);
}

static void data_message(struct bytes *b, uint8_t op, uint16_t flags, uint64_t offset,
			 uint32_t length)
{
	uint32_t crcs = ash_pieces(offset, length);
	uint8_t *payload = ash_xcalloc(1, crcs * 4 + length);

	ash_crc32c_pieces(payload + crcs * 4, offset, length, (uint32_t *)(void *)payload);
	message(b, (struct ash_hdr){.op = op, .flags = flags, .offset = offset, .length = length},
		payload, crcs * 4 + length);
	free(payload);
}

static void hello(struct bytes *b)
{
	struct ash_hello h = {.version_min = 1,
			      .version_max = 1,
			      .sender_kind = ASH_SENDER_SDC,
			      .sender = 100,
			      .session = 7,
			      .path = 1};
	struct ash_wire_hello w;

	ash_hello_encode(&h, &w);
	message(b, (struct ash_hdr){.op = ASH_OP_HELLO, .length = sizeof(w)}, &w, sizeof(w));
}

static void stale(struct bytes *b)
{
	struct ash_wire_row row = {
		.pool = ash_put64(5),
		.gen = ash_put64(9),
		.pg = ash_put32(3),
		.replicas = 2,
		.replica = {{.device = ash_put64(20),
			     .sds = ash_put64(10),
			     .state = ASH_REPLICA_IN_SYNC},
			    {.device = ash_put64(21), .left_gen = ash_put64(8)}}};

	message(b,
		(struct ash_hdr){.op = ASH_OP_READ,
				 .flags = ASH_F_REPLY,
				 .status = ASH_ST_STALE,
				 .length = sizeof(row)},
		&row, sizeof(row));
}

static void between_servers(struct bytes *b)
{
	struct ash_wire_lease lease;
	struct ash_wire_inv inv[2];
	struct ash_wire_blockhash hash[2];

	ash_lease_encode(&(struct ash_lease){.ask_id = 3, .duration_ms = 600}, &lease);
	ash_inv_encode(&(struct ash_inv){.node = 60, .chunk = 1, .stamp = 4}, &inv[0]);
	ash_inv_encode(&(struct ash_inv){.node = 61, .flags = ASH_INV_UNSETTLED}, &inv[1]);
	ash_blockhash_encode(&(struct ash_blockhash){.hash = 77, .state = ASH_BLK_DATA}, &hash[0]);
	ash_blockhash_encode(&(struct ash_blockhash){.state = ASH_BLK_ZERO}, &hash[1]);
	message(b, (struct ash_hdr){.op = ASH_OP_LEASE_ASK, .length = sizeof(lease)}, &lease,
		sizeof(lease));
	message(b,
		(struct ash_hdr){.op = ASH_OP_INVENTORY,
				 .flags = ASH_F_REPLY | ASH_F_MORE,
				 .length = sizeof(inv)},
		inv, sizeof(inv));
	message(b,
		(struct ash_hdr){.op = ASH_OP_HASH, .flags = ASH_F_REPLY, .length = sizeof(hash)},
		hash, sizeof(hash));
	message(b, (struct ash_hdr){.op = ASH_OP_XFER, .status = ASH_BLK_ZERO, .length = 8192},
		NULL, 0);
	message(b, (struct ash_hdr){.op = ASH_OP_REPL_DISCARD, .offset = 4096, .length = 4096},
		NULL, 0);
	message(b, (struct ash_hdr){.op = ASH_OP_PING}, NULL, 0);
}

static void wire_seeds(void)
{
	struct bytes b = {0};

	hello(&b);
	data_message(&b, ASH_OP_WRITE, ASH_F_FUA, 512, 1024);
	message(&b, (struct ash_hdr){.op = ASH_OP_READ, .length = 512}, NULL, 0);
	message(&b, (struct ash_hdr){.op = ASH_OP_FLUSH}, NULL, 0);
	keep(&b, "wire", "client");
	data_message(&b, ASH_OP_WRITE, ASH_F_RELAY, 4096, 512);
	data_message(&b, ASH_OP_READ, ASH_F_REPLY, 0, 512);
	stale(&b);
	keep(&b, "wire", "replies");
	between_servers(&b);
	keep(&b, "wire", "servers");
	data_message(&b, ASH_OP_REPL_WRITE, ASH_F_LEASE, 8192, 4096);
	keep(&b, "wire", "replicate");
}

/* ---- control protocol, commands, snapshots: a small system's life */

static void frame(struct bytes *b, unsigned type, const ProtobufCMessage *m)
{
	size_t bytes = protobuf_c_message_get_packed_size(m);
	uint8_t *packed = ash_xcalloc(1, bytes);
	struct ash_frame f = {.magic = ash_put32(ASH_FRAME_MAGIC),
			      .version = ash_put16(ASH_FRAME_VERSION),
			      .type = ash_put16((uint16_t)type),
			      .bytes = ash_put32((uint32_t)bytes)};

	protobuf_c_message_pack(m, packed);
	f.crc = ash_put32(ash_crc32c(packed, bytes));
	append(b, &f, sizeof(f));
	append(b, packed, bytes);
	free(packed);
}

static void map_frame(struct bytes *b, const struct mdm_state *st, uint64_t have)
{
	Pb__Push push = PB__PUSH__INIT;

	push.p_case = PB__PUSH__P_MAP;
	push.map = mdm_map_for(st, MDM_FOR_ADMIN, 0, have);
	frame(b, ASH_FRAME_PUSH, &push.base);
	pb__map__free_unpacked(push.map, NULL);
}

static void log_command(void *arg, const Pb__Command *cmd)
{
	struct bytes *b = arg;
	size_t bytes = pb__command__get_packed_size(cmd);
	uint8_t *packed = ash_xcalloc(1, bytes + 2);

	packed[0] = (uint8_t)bytes;
	packed[1] = (uint8_t)(bytes >> 8);
	pb__command__pack(cmd, packed + 2);
	append(b, packed, bytes + 2);
	free(packed);
}

static void request_frames(struct bytes *b)
{
	Pb__Request req = PB__REQUEST__INIT;
	Pb__Heartbeat beat = PB__HEARTBEAT__INIT;
	Pb__OpenVolume open = PB__OPEN_VOLUME__INIT;
	Pb__Hello hi = PB__HELLO__INIT;

	req.id = 1;
	req.r_case = PB__REQUEST__R_HELLO;
	req.hello = &hi;
	hi.version_min = hi.version_max = 1;
	hi.role = (char *)"sdc";
	frame(b, ASH_FRAME_REQUEST, &req.base);
	req.r_case = PB__REQUEST__R_HEARTBEAT;
	req.heartbeat = &beat;
	beat.map_version = 9;
	frame(b, ASH_FRAME_REQUEST, &req.base);
	req.r_case = PB__REQUEST__R_OPEN_VOLUME;
	req.open_volume = &open;
	open.volume = (char *)"v1";
	frame(b, ASH_FRAME_REQUEST, &req.base);
}

static void snapshot_seed(const struct mdm_state *st, const char *name)
{
	struct bytes b = {0};

	b.data = mdm_snapshot(st, &b.size);
	keep(&b, "snapshot", name);
}

/* The target itself creates the system. */
static void start(struct cluster *c, struct bytes *log)
{
	new_system(c);
	append(log, "", 1); /* a zero byte: "with a system" */
	c->log = log_command;
	c->log_arg = log;
	c->domain = add_domain(c, "pd1");
	c->pool = add_pool(c, "pool1", c->domain, 16);
	for (unsigned i = 0; i < 3; i++) {
		char name[16];

		snprintf(name, sizeof(name), "sds%u", i);
		c->sds[i] = add_sds(c, name, c->domain, 0, 100 + i);
		register_sds(c, 100 + i, 200 + i);
		c->dev[i] = add_device(c, c->sds[i], c->pool, 300 + i);
		open_device(c, c->dev[i], 1, 400 + i, 1ull << 30);
	}
	for (uint32_t pg = 0; pg < 16; pg++)
		place_pg(c, pg, c->dev[pg % 3], c->dev[(pg + 1) % 3]);
}

static void mdm_seeds(void)
{
	struct bytes log = {0}, frames = {0};
	struct random_run run = {.next_uuid = 1};

	start(&run.c, &log);
	map_frame(&frames, run.c.st, 0);
	snapshot_seed(run.c.st, "small");
	request_frames(&frames);
	keep(&frames, "mgmt", "small");
	keep(&log, "mdm", "small");
	free_cluster(&run.c);
	ash_prng_seed(&run.rng, 3);
	start(&run.c, &log);
	map_frame(&frames, run.c.st, 0);
	for (unsigned i = 0; i < 60; i++) {
		uint64_t have = mdm_state_version(run.c.st);

		random_step(&run);
		if (i % 10 == 0)
			map_frame(&frames, run.c.st, have);
	}
	snapshot_seed(run.c.st, "random");
	keep(&frames, "mgmt", "random");
	keep(&log, "mdm", "random");
	free_cluster(&run.c);
}

/* ---- disk */

static void label_seed(void)
{
	struct sds_label_full label = {.label = {.device = 7,
						 .pool = 3,
						 .incarnation = 2,
						 .longest_lease_ms = 600,
						 .clean = true,
						 .disk_bytes = 1ull << 30}};
	struct bytes b = {0};
	uint8_t block[ASH_BLOCK_BYTES];

	sds_geo_compute(1ull << 30, NULL, &label.geo);
	label.label.extents = label.geo.extents;
	sds_label_encode(&label, block);
	append(&b, block, 512); /* the rest is zeros */
	keep(&b, "label", "clean");
}

static void journal_seeds(void)
{
	static struct sds_csum page = {.node = 1, .chunk = 2, .birth = 3, .known = {7}, .crc = {1}};
	struct sds_entry entry = {.node = 1, .chunk = 2, .seq = 5, .flags = SDS_EXT_USED}, before;
	struct sds_jhdr hdr = {.seq = 9, .incarnation = 1, .tail = 4, .durable = 8, .records = 2};
	uint8_t block[ASH_BLOCK_BYTES] = {0}, kind;
	uint32_t crc[3] = {1, 2, 3};
	size_t at = SDS_JHDR_BYTES;
	struct bytes b = {0};

	before = entry;
	for (unsigned i = 10; i < 13; i++)
		sds_entry_set_state(&entry, i, ASH_BLK_DATA);
	at += sds_jrec_put_entry(block + at, SDS_JF_OPEN | SDS_JF_FIRST, 4, 10, 3, &entry, crc,
				 &before);
	at += sds_jrec_put_hot(block + at, 5, 1, 3);
	hdr.bytes = (uint16_t)(at - SDS_JHDR_BYTES);
	sds_jblock_encode(&hdr, block);
	kind = 0;
	append(&b, &kind, 1);
	append(&b, block, at);
	keep(&b, "journal", "block");
	kind = 1;
	append(&b, &kind, 1);
	sds_entry_encode(&entry, block);
	append(&b, block, SDS_ENTRY_BYTES);
	keep(&b, "journal", "entry");
	kind = 2;
	append(&b, &kind, 1);
	sds_csum_encode(&page, block);
	append(&b, block, 256);
	keep(&b, "journal", "csum");
}

/* Patches: page, offset, length, bytes. Pages: 0 and 256 labels, 512 the journal, 576 the table. */
static void store_seeds(void)
{
	static const uint8_t journal[] = {0x01, 0x02, 0x50, 0x00, 0x08, 1,    0,    0x18, 0, 9,
					  0,	0,    0,    0x02, 0x02, 0x08, 0x00, 0x01, 3};
	static const uint8_t table[] = {0x40, 0x02, 0x00, 0x00, 0x10, 1, 0, 0, 0, 0, 0,
					0,    0,    4,	  0,	0,    0, 0, 0, 0, 0};
	static const uint8_t label[] = {0x00, 0x00, 0x98, 0x00, 0x02, 0xff, 0xff};
	struct bytes b = {0};

	append(&b, "", 0);
	keep(&b, "store", "whole");
	append(&b, journal, sizeof(journal));
	keep(&b, "store", "journal");
	append(&b, table, sizeof(table));
	keep(&b, "store", "table");
	append(&b, label, sizeof(label));
	keep(&b, "store", "label");
}

static void text_seeds(void)
{
	static const char *const texts[][2] = {
		{"file",
		 "; sds1\n[sds]\nname = sds1\nmdm = 10.0.0.1:6611\nmdm = 10.0.0.2:6611\n"
		 "devices = /dev/disk/by-id/*\n  /dev/sdb\nlisten = [::1]:7072 ; loopback\n"},
		{"size", "1.5GiB"},
		{"percent", "25%"},
		{"uuid", "01234567-89ab-4cde-8f01-23456789abcd"},
		{"name", "pool-1.a_b"},
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct bytes b = {0};

		append(&b, texts[i][1], strlen(texts[i][1]));
		keep(&b, "conf", texts[i][0]);
	}
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: fuzz_seeds FOLDER\n");
		return 2;
	}
	root = argv[1];
	if (mkdir(root, 0777) && errno != EEXIST) {
		perror(root);
		return 1;
	}
	wire_seeds();
	mdm_seeds();
	label_seed();
	journal_seeds();
	store_seeds();
	text_seeds();
	return 0;
}
