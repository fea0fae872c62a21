// SPDX-License-Identifier: MIT
/*
 * Runs a target over files and folders of inputs without libFuzzer, each input also cut short and
 * mutated: the same mutations every time, so that a failure repeats.
 *
 *     fuzz_wire [--mutate N] PATH...
 *
 * The input that ended the process badly is left in the file "finding" of the current folder.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clean.h"
#include "common/base/hash.h"
#include "common/base/prng.h"
#include "common/base/size.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/pbmutate.h"

#define INPUT_MAX (4u << 20)

static uint64_t mutations = 50;
static unsigned long files, inputs;
static const char *running;

static const uint8_t *input;
static size_t input_bytes;

static void keep_finding(int sig)
{
	int fd = open("finding", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

	if (fd >= 0 && write(fd, input, input_bytes) < 0)
		fd = -1;
	if (running && write(2, running, strlen(running)) > 0)
		(void)!write(2, " or a mutation of it\n", 21);
	signal(sig, SIG_DFL);
	raise(sig);
}

/* Each input is copied to memory of exactly its size, so that sanitizers see an overrun. */
static void run_one(const uint8_t *data, size_t size)
{
	uint8_t *copy = ash_xcalloc(1, size);

	memcpy(copy, data, size);
	input = copy;
	input_bytes = size;
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
	inputs++;
}

static void mutate(uint8_t *data, size_t size, struct ash_prng *rng)
{
	static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff};

	for (uint64_t n = 1 + ash_prng_below(rng, 6); n > 0; n--) {
		size_t at = (size_t)ash_prng_below(rng, size);

		switch (ash_prng_below(rng, 4)) {
		case 0:
			data[at] ^= (uint8_t)(1u << ash_prng_below(rng, 8));
			break;
		case 1:
			data[at] = edges[ash_prng_below(rng, sizeof(edges))];
			break;
		case 2:
			data[at] = (uint8_t)ash_prng_next(rng);
			break;
		default: { /* a piece from elsewhere in the input */
			size_t from = (size_t)ash_prng_below(rng, size);
			size_t room = size - (at > from ? at : from);

			memmove(data + at, data + from, (size_t)ash_prng_below(rng, room + 1) % 64);
		}
		}
	}
}

/* Mutations that know the target's format, if it has one. */
static void run_formed(const uint8_t *data, size_t size, struct ash_prng *rng)
{
	size_t max = size * 2 + 1024, n = size;
	ash_auto_free uint8_t *copy = ash_xcalloc(1, max);

	memcpy(copy, data, size);
	for (int i = 0; i < 4; i++) {
		size_t m = fuzz_mutate(&fuzz_format, copy, n, max, rng);

		n = m ? m : n;
	}
	run_one(copy, n);
}

static void run_input(const uint8_t *data, size_t size)
{
	struct ash_prng rng;
	uint8_t *copy = ash_xcalloc(1, size);

	run_one(data, size);
	ash_prng_seed(&rng, ash_hash64(data, size));
	for (uint64_t i = 0; i < mutations && size > 0; i++) {
		size_t keep = size;

		if (&fuzz_format && ash_prng_below(&rng, 2)) {
			run_formed(data, size, &rng);
			continue;
		}
		if (ash_prng_below(&rng, 4) == 0)
			keep = (size_t)ash_prng_below(&rng, size);
		memcpy(copy, data, size);
		if (keep > 0)
			mutate(copy, keep, &rng);
		run_one(copy, keep);
	}
	free(copy);
}

static bool run_file(const char *path)
{
	uint8_t *data = ash_xcalloc(1, INPUT_MAX);
	FILE *file = fopen(path, "rb");
	size_t n;

	if (!file) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		free(data);
		return false;
	}
	n = fread(data, 1, INPUT_MAX, file);
	fclose(file);
	running = path;
	files++;
	run_input(data, n);
	free(data);
	return true;
}

static bool run_path(const char *path)
{
	char below[4096];
	struct dirent *entry;
	struct stat st;
	bool good = true;
	DIR *dir;

	if (stat(path, &st) || !S_ISDIR(st.st_mode))
		return run_file(path);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(below, sizeof(below), "%s/%s", path, entry->d_name);
		good &= run_path(below);
	}
	if (dir)
		closedir(dir);
	return good && dir;
}

int main(int argc, char **argv)
{
	bool good = true;
	int i = 1;

	if (i + 1 < argc && !strcmp(argv[i], "--mutate")) {
		if (ash_u64_parse(argv[i + 1], 0, 1000000, &mutations)) {
			fprintf(stderr, "--mutate %s: not a number up to 1000000\n", argv[i + 1]);
			return 2;
		}
		i += 2;
	}
	signal(SIGABRT, keep_finding);
	signal(SIGSEGV, keep_finding);
	signal(SIGBUS, keep_finding);
	for (; i < argc; i++)
		good &= run_path(argv[i]);
	printf("%lu files, %lu inputs\n", files, inputs);
	/* An empty corpus would test nothing. */
	return good && files > 0 ? 0 : 1;
}
