/* SPDX-License-Identifier: MIT */
/* The simulated disk must be as bad as a real one, and no worse. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sim/disk.h"

#define PAGE 4096u

static struct sim_world w;
static struct sim_host host;
static struct sim_proc *p;
static struct sim_disk *disk;
static struct ash_disk *open_disk;
static int open_result;

static void on_open(void *arg, int result, struct ash_disk *d)
{
	open_result = result;
	open_disk = d;
}

static void run_all(void)
{
	while (sim_step(&w))
		;
}

static void start(void)
{
	p = sim_proc_new(&host, "proc", 0);
	open_result = 1;
	sim_disk_open(p, disk, on_open, NULL, NULL);
	run_all();
}

static void begin(uint64_t seed, bool write_back)
{
	sim_world_init(&w, seed);
	host = (struct sim_host){.w = &w, .name = "host"};
	sim_host_boot(&host);
	disk = sim_disk_new(&host, "/dev/a", 1u << 20, write_back);
	start();
	assert_int_equal(open_result, 0);
}

static void stop(bool power)
{
	sim_proc_kill(p);
	sim_disks_kill(p);
	sim_proc_free(p);
	if (power)
		sim_disk_power_loss(disk);
}

static void end(void)
{
	stop(true);
	sim_disk_free(disk);
	sim_world_done(&w);
}

struct op {
	struct ash_disk_op op;
	uint8_t *mem;
	bool done;
	int result;
};

static void on_done(struct ash_disk_op *op, int result)
{
	struct op *o = sim_container(op, struct op, op);

	assert_false(o->done);
	o->done = true;
	o->result = result;
}

static struct op *submit(int kind, uint64_t offset, uint8_t fill, bool fua)
{
	struct op *o = calloc(1, sizeof(*o));

	o->mem = aligned_alloc(PAGE, PAGE);
	memset(o->mem, fill, PAGE);
	o->op.kind = (uint8_t)kind;
	o->op.offset = offset;
	o->op.fua = fua;
	if (kind <= ASH_DISK_WRITE) {
		o->op.bytes = PAGE;
		o->op.iov1 = (struct iovec){o->mem, PAGE};
		o->op.iov = &o->op.iov1;
		o->op.iovcnt = 1;
	}
	o->op.done = on_done;
	ash_disk_submit(open_disk, &o->op);
	assert_false(o->done);
	return o;
}

static void forget(struct op *o)
{
	free(o->mem);
	free(o);
}

static int finish(struct op *o)
{
	int result;

	run_all();
	assert_true(o->done);
	result = o->result;
	forget(o);
	return result;
}

static int do_write(uint64_t offset, uint8_t fill, bool fua)
{
	return finish(submit(ASH_DISK_WRITE, offset, fill, fua));
}

static int do_read(uint64_t offset, uint8_t page[PAGE])
{
	struct op *o = submit(ASH_DISK_READ, offset, 0xcc, false);

	run_all();
	memcpy(page, o->mem, PAGE);
	return finish(o);
}

/* What a sector holds after the power came back, from the first byte. */
static uint8_t after(uint64_t offset)
{
	uint8_t page[PAGE];

	sim_disk_peek(disk, offset, page);
	for (unsigned s = 0; s < 8; s++)
		for (unsigned i = 1; i < 512; i++)
			assert_int_equal(page[s * 512 + i], page[s * 512]);
	return page[0];
}

static void reads_what_was_written(void **state)
{
	uint8_t page[PAGE];

	begin(1, false);
	assert_int_equal(do_read(8192, page), 0);
	assert_int_equal(page[17], 0);
	assert_int_equal(do_write(8192, 7, false), 0);
	assert_int_equal(do_read(8192, page), 0);
	assert_int_equal(page[17], 7);
	end();
}

static void unflushed_is_lost_sometimes_flushed_never(void **state)
{
	unsigned lost = 0, kept = 0;

	for (uint64_t seed = 1; seed <= 200; seed++) {
		begin(seed, true);
		do_write(0, 1, false);
		assert_int_equal(finish(submit(ASH_DISK_FLUSH, 0, 0, false)), 0);
		do_write(4096, 2, true);
		do_write(8192, 3, false);
		stop(true);
		assert_int_equal(after(0), 1);
		assert_int_equal(after(4096), 2);
		kept += after(8192) == 3;
		lost += after(8192) == 0;
		start();
		end();
	}
	assert_true(lost > 40 && kept > 40);
}

static void write_through_survives(void **state)
{
	for (uint64_t seed = 1; seed <= 50; seed++) {
		begin(seed, false);
		do_write(0, 1, false);
		stop(true);
		assert_int_equal(after(0), 1);
		start();
		end();
	}
}

static void older_cached_write_never_covers_a_newer_durable_one(void **state)
{
	for (uint64_t seed = 1; seed <= 200; seed++) {
		begin(seed, true);
		do_write(0, 1, false);
		do_write(0, 2, true);
		stop(true);
		assert_int_equal(after(0), 2);
		start();
		end();
	}
}

static void a_flush_covers_only_what_had_ended_before(void **state)
{
	unsigned lost = 0;

	for (uint64_t seed = 1; seed <= 400; seed++) {
		struct op *write, *flush;

		begin(seed, true);
		flush = submit(ASH_DISK_FLUSH, 0, 0, false);
		write = submit(ASH_DISK_WRITE, 0, 9, false);
		run_all();
		assert_true(write->done && flush->done);
		stop(true);
		lost += after(0) == 0;
		forget(write);
		forget(flush);
		start();
		end();
	}
	assert_true(lost > 50);
}

static void write_in_flight_tears_by_sector(void **state)
{
	unsigned torn = 0;

	for (uint64_t seed = 1; seed <= 200; seed++) {
		struct op *o;
		uint8_t page[PAGE];
		unsigned old = 0, new = 0;

		begin(seed, false);
		do_write(0, 1, false);
		o = submit(ASH_DISK_WRITE, 0, 2, false);
		stop(true);
		sim_disk_peek(disk, 0, page);
		for (unsigned s = 0; s < 8; s++) {
			for (unsigned i = 1; i < 512; i++)
				assert_int_equal(page[s * 512 + i], page[s * 512]);
			old += page[s * 512] == 1;
			new += page[s * 512] == 2;
		}
		assert_int_equal(old + new, 8);
		torn += old && new;
		assert_false(o->done);
		forget(o);
		start();
		end();
	}
	assert_true(torn > 30);
}

static void killed_process_may_write_late_and_keeps_the_lock(void **state)
{
	unsigned late = 0;

	for (uint64_t seed = 1; seed <= 50; seed++) {
		struct op *o;

		begin(seed, false);
		sim_disk_slow(disk, UINT64_MAX, 1000);
		o = submit(ASH_DISK_WRITE, 0, 5, false);
		stop(false);
		memset(o->mem, 0, PAGE); /* the memory is gone with the process */
		forget(o);
		p = sim_proc_new(&host, "next", 0);
		open_result = 1;
		sim_disk_open(p, disk, on_open, NULL, NULL);
		while (open_result == 1 && sim_step(&w))
			;
		assert_int_equal(open_result, 0);
		assert_int_equal(sim_disk_inflight(disk), 0);
		late += after(0) == 5;
		assert_true(after(0) == 5 || after(0) == 0);
		end();
	}
	assert_true(late > 5 && late < 45);
}

static void second_open_is_busy(void **state)
{
	begin(1, false);
	sim_disk_open(p, disk, on_open, NULL, NULL);
	open_result = 1;
	run_all();
	assert_int_equal(open_result, -EBUSY);
	end();
}

static void medium_error_until_overwritten(void **state)
{
	uint8_t page[PAGE];

	begin(1, true);
	do_write(0, 1, false);
	sim_disk_medium_error(disk, 0);
	assert_int_equal(do_read(0, page), -EIO);
	do_write(0, 2, false);
	assert_int_equal(do_read(0, page), 0);
	assert_int_equal(page[5], 2);
	end();
}

static void rot_flips_one_bit(void **state)
{
	uint8_t page[PAGE];
	unsigned differs = 0;

	begin(3, false);
	do_write(0, 0, false);
	sim_disk_rot(disk, 0);
	do_read(0, page);
	for (unsigned i = 0; i < PAGE; i++)
		differs += (unsigned)__builtin_popcount(page[i]);
	assert_int_equal(differs, 1);
	end();
}

static void stuck_disk_goes_on(void **state)
{
	struct op *o;

	begin(1, false);
	sim_disk_stick(disk, w.now + 3 * SIM_S);
	o = submit(ASH_DISK_WRITE, 0, 1, false);
	while (w.now < 3 * SIM_S && sim_step(&w))
		assert_false(o->done);
	assert_int_equal(finish(o), 0);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_what_was_written),
		cmocka_unit_test(unflushed_is_lost_sometimes_flushed_never),
		cmocka_unit_test(write_through_survives),
		cmocka_unit_test(older_cached_write_never_covers_a_newer_durable_one),
		cmocka_unit_test(a_flush_covers_only_what_had_ended_before),
		cmocka_unit_test(write_in_flight_tears_by_sector),
		cmocka_unit_test(killed_process_may_write_late_and_keeps_the_lock),
		cmocka_unit_test(second_open_is_busy),
		cmocka_unit_test(medium_error_until_overwritten),
		cmocka_unit_test(rot_flips_one_bit),
		cmocka_unit_test(stuck_disk_goes_on),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
