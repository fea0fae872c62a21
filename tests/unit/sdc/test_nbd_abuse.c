// SPDX-License-Identifier: MIT
/* The NBD server and clients that die, lie, do not read, and talk nonsense. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/sdc/nbd_rig.h"

static void test_fifty_clients_killed_with_requests_in_flight(void **state)
{
	struct nbd_handle *healthy = client("v2", true);
	uint8_t data[8192], back[8192];
	struct nbd_server_stats s;

	for (unsigned k = 0; k < 50; k++) {
		int fd = raw_client();

		raw_go(fd, "v1");
		__atomic_store_n(&w.hold, k % 2, __ATOMIC_RELEASE);
		for (unsigned i = 0; i < 64; i++) {
			bool write = i % 2;

			raw_request(fd, write, i, (uint64_t)i * 65536, 4096 * (1 + i % 16));
			/* The last write breaks off within its payload. */
			if (write)
				put(fd, w.mem, i == 63 ? 100 * k : 4096u * (1 + i % 16));
		}
		close(fd); /* replies unread: the server gets a reset */
		__atomic_store_n(&w.hold, false, __ATOMIC_RELEASE);
		random_fill(data, sizeof(data), k);
		assert_int_equal(nbd_pwrite(healthy, data, 8192, 32 << 20, 0), 0);
		assert_int_equal(nbd_pread(healthy, back, 8192, 32 << 20, 0), 0);
		assert_memory_equal(data, back, 8192);
	}
	s = settled(1);
	assert_int_equal(s.in_flight, 0);
	nbd_close(healthy);
	s = settled(0);
	assert_int_equal(s.bytes_held, 0);
	assert_int_equal(s.connections, 51);
}

static void test_a_client_that_does_not_read_is_held_back(void **state)
{
	int fd = raw_client();
	struct nbd_server_stats s;
	struct nbd_handle *other;
	uint8_t head[16], *data = malloc(1 << 20);
	bool seen[400] = {0};

	raw_go(fd, "v1");
	for (unsigned i = 0; i < 400; i++)
		raw_request(fd, NBD_CMD_READ, i, 0, 1 << 20);
	other = client("v2", true);
	for (int i = 0; i < 200; i++)
		assert_int_equal(nbd_pread(other, data, 1 << 20, 0, 0), 0);
	on_server(get_stats, &s);
	assert_true(s.bytes_held > 0 && s.bytes_held <= (66u << 20));
	/* All answers come once it reads. */
	for (unsigned i = 0; i < 400; i++) {
		get(fd, head, 16);
		assert_int_equal(nbd_get32(head + 4), 0);
		assert_true(nbd_get64(head + 8) < 400 && !seen[nbd_get64(head + 8)]);
		seen[nbd_get64(head + 8)] = true;
		get(fd, data, 1 << 20);
	}
	close(fd);
	nbd_close(other);
	free(data);
	assert_int_equal(settled(0).bytes_held, 0);
}

static void test_nonsense_commands_are_refused_or_end_the_connection(void **state)
{
	static uint8_t big[1 << 20];
	uint8_t in[64], junk[512];
	int fd = raw_client();

	raw_go(fd, "v1");
	raw_request(fd, 99, 1, 0, 512);
	get(fd, in, 16);
	assert_int_equal(nbd_get32(in + 4), NBD_EINVAL);
	raw_request(fd, NBD_CMD_READ, 2, UINT64_MAX - 511, 512);
	get(fd, in, 16);
	assert_int_equal(nbd_get32(in + 4), NBD_EINVAL);
	raw_request(fd, NBD_CMD_READ, 3, 0, UINT32_MAX & ~511u);
	get(fd, in, 16);
	assert_int_equal(nbd_get32(in + 4), NBD_EINVAL);
	raw_request(fd, NBD_CMD_BLOCK_STATUS, 4, 0, 512); /* no context was chosen */
	get(fd, in, 16);
	assert_int_equal(nbd_get32(in + 4), NBD_EINVAL);
	/* Longer than the limit that was told: its payload is skipped. Absurdly long: good-bye. */
	raw_request(fd, NBD_CMD_WRITE, 5, 0, 33 << 20);
	for (int i = 0; i < 33; i++)
		put(fd, big, sizeof(big));
	get(fd, in, 16);
	assert_int_equal(nbd_get32(in + 4), NBD_EINVAL);
	raw_request(fd, NBD_CMD_READ, 6, 0, 512);
	get(fd, in, 16);
	assert_int_equal(nbd_get32(in + 4), 0);
	get(fd, junk, 512);
	raw_request(fd, NBD_CMD_WRITE, 7, 0, UINT32_MAX & ~511u);
	assert_int_equal(recv(fd, in, 1, 0), 0);
	close(fd);
	fd = raw_client();
	raw_go(fd, "v1");
	memset(junk, 0x5a, sizeof(junk));
	put(fd, junk, sizeof(junk));
	assert_true(recv(fd, in, 1, 0) <= 0);
	close(fd);
	settled(0);
}

/* A sensible conversation, bytes of which are then changed, dropped, doubled. */
static size_t draft(struct ash_prng *r, uint8_t *out)
{
	uint8_t *p = nbd_put32(out, 3);

	for (uint64_t n = ash_prng_below(r, 8); n; n--) {
		static const uint32_t opts[] = {1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 77};
		uint32_t opt =
			n == 1 && ash_prng_below(r, 2) ? NBD_OPT_GO : opts[ash_prng_below(r, 11)];

		p = nbd_put64(p, NBD_OPT_MAGIC);
		p = nbd_put32(p, opt);
		if (opt == 6 || opt == 7) {
			p = nbd_put32(p, 12);
			p = nbd_put32(p, 2);
			memcpy(p, "v1", 2);
			p = nbd_put16(p + 2, 2);
			p = nbd_put16(p, 1);
			p = nbd_put16(p, 3);
		} else if (opt == 9 || opt == 10) {
			p = nbd_put32(p, 4 + 2 + 4 + 4 + 15);
			p = nbd_put32(p, 2);
			memcpy(p, "v1", 2);
			p = nbd_put32(p + 2, 1);
			p = nbd_put32(p, 15);
			memcpy(p, "base:allocation", 15);
			p += 15;
		} else if (opt == 1) {
			p = nbd_put32(p, 2);
			memcpy(p, "v2", 2);
			p += 2;
		} else {
			p = nbd_put32(p, 0);
		}
	}
	for (uint64_t n = ash_prng_below(r, 6); n; n--) {
		p = nbd_put32(p, NBD_REQUEST_MAGIC);
		p = nbd_put16(p, (uint16_t)ash_prng_below(r, 32));
		p = nbd_put16(p, (uint16_t)ash_prng_below(r, 9));
		p = nbd_put64(p, n);
		p = nbd_put64(p, 512 * ash_prng_below(r, SIZE / 512));
		p = nbd_put32(p, 512 * (uint32_t)ash_prng_below(r, 8));
	}
	return (size_t)(p - out);
}

static size_t spoil(struct ash_prng *r, uint8_t *p, size_t n)
{
	for (uint64_t k = ash_prng_below(r, 4); k && n > 8; k--) {
		size_t at = ash_prng_below(r, n);

		switch (ash_prng_below(r, 4)) {
		case 0:
			p[at] ^= (uint8_t)(1u << ash_prng_below(r, 8));
			break;
		case 1:
			p[at] = (uint8_t)ash_prng_next(r);
			break;
		case 2:
			memmove(p + at, p + at + 1, n - at - 1);
			n--;
			break;
		default:
			memmove(p + at + 1, p + at, n - at);
			n++;
		}
	}
	return n;
}

#define CONVERSATIONS 4000

/* Return: bytes that a polite client was told. */
static size_t converse(struct ash_prng *r, bool polite)
{
	static uint8_t buf[4096], in[65536];
	int fd = raw_client();
	size_t n = spoil(r, buf, draft(r, buf));
	size_t first = ash_prng_below(r, n + 1), heard = 0;
	ssize_t k;

	put(fd, buf, first);
	put(fd, buf + first, n - first);
	if (polite) {
		/* Everything is answered until the server closes. */
		shutdown(fd, SHUT_WR);
		while ((k = recv(fd, in, sizeof(in), 0)) > 0)
			heard += (size_t)k;
	}
	close(fd);
	return heard;
}

static struct nbd_server_stats stats(void)
{
	struct nbd_server_stats s;

	on_server(get_stats, &s);
	return s;
}

/*
 * What a client gets through that listens to the end follows from its bytes alone. Of one that is
 * gone before, the server takes what it had read when it failed to answer: that is a matter of
 * timing. So all are polite at first, to learn what each is owed; then some are not.
 */
static void test_spoilt_conversations_do_no_harm(void **state)
{
	static uint64_t owed[CONVERSATIONS];
	static size_t told[CONVERSATIONS];
	struct ash_prng r;
	struct nbd_server_stats s;
	uint64_t before = 0, least = 0, most = 0;

	w.no_holes = true;
	ash_prng_seed(&r, 11);
	for (int k = 0; k < CONVERSATIONS; k++) {
		told[k] = converse(&r, true);
		s = stats();
		assert_int_equal(s.open, 0);
		owed[k] = s.requests - before;
		before = s.requests;
	}
	ash_prng_seed(&r, 11);
	for (int k = 0; k < CONVERSATIONS; k++) {
		size_t heard = converse(&r, k % 4);

		if (k % 4)
			assert_int_equal(heard, told[k]);
		least += k % 4 ? owed[k] : 0;
		most += owed[k];
	}
	s = settled(0);
	assert_int_equal(s.in_flight, 0);
	assert_int_equal(s.bytes_held, 0);
	assert_int_equal(s.connections, 2 * CONVERSATIONS);
	print_message("%llu requests got through, %llu of polite clients\n",
		      (unsigned long long)(s.requests - before), (unsigned long long)least);
	assert_in_range(s.requests - before, least, most);
	assert_true(least > 500); /* many got far */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(test_fifty_clients_killed_with_requests_in_flight),
		RIG_TEST(test_a_client_that_does_not_read_is_held_back),
		RIG_TEST(test_nonsense_commands_are_refused_or_end_the_connection),
		RIG_TEST(test_spoilt_conversations_do_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
