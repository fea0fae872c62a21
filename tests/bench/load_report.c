// SPDX-License-Identifier: MIT
#include "tests/bench/load.h"

static double seconds(const struct load *l)
{
	uint64_t end = l->stop_ns > l->start_ns ? l->stop_ns : l->start_ns + 1;

	return (double)(end - l->start_ns) / 1e9;
}

static double us(const struct ash_hist *h, unsigned permille)
{
	return (double)ash_hist_quantile(h, permille) / 1e3;
}

static const char *const side_name[] = {"read", "write", "flush"};

void load_report(FILE *out, const struct load_opts *o, const struct load *l, const char *name)
{
	for (int i = 0; i < 3; i++) {
		const struct load_side *s = &l->side[i];

		if (!s->ops)
			continue;
		fprintf(out,
			"%-8s %-5s %9.0f IOPS %9.1f MB/s   p50 %.0f us  p90 %.0f  p99 %.0f  p99.9 "
			"%.0f  max %.1f ms\n",
			name, side_name[i], (double)s->ops / seconds(l),
			(double)s->bytes / seconds(l) / 1e6, us(&s->hist, 500), us(&s->hist, 900),
			us(&s->hist, 990), us(&s->hist, 999), (double)s->hist.max / 1e6);
	}
	fprintf(out, "%-8s errors %llu  mismatches %llu  %.1f s\n", name,
		(unsigned long long)l->errors, (unsigned long long)l->mismatches, seconds(l));
}

void load_report_json(FILE *out, const struct load_opts *o, const struct load *l)
{
	uint64_t ops = 0, max = 0;

	for (int i = 0; i < 3; i++) {
		ops += i < 2 ? l->side[i].ops : 0;
		max = l->side[i].hist.max > max ? l->side[i].hist.max : max;
	}
	fprintf(out,
		"{\"bs\": %llu, \"qd\": %u, \"seconds\": %.3f, \"ops\": %llu, \"iops\": %.1f, "
		"\"errors\": %llu, \"mismatches\": %llu, \"max_ms\": %.3f",
		(unsigned long long)o->bs, o->qd, seconds(l), (unsigned long long)ops,
		(double)ops / seconds(l), (unsigned long long)l->errors,
		(unsigned long long)l->mismatches, (double)max / 1e6);
	for (int i = 0; i < 3; i++) {
		const struct load_side *s = &l->side[i];

		fprintf(out,
			", \"%s\": {\"ops\": %llu, \"iops\": %.1f, \"mb_per_s\": %.2f, \"p50_us\": "
			"%.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": "
			"%.1f}",
			side_name[i], (unsigned long long)s->ops, (double)s->ops / seconds(l),
			(double)s->bytes / seconds(l) / 1e6, us(&s->hist, 500), us(&s->hist, 900),
			us(&s->hist, 990), us(&s->hist, 999), (double)s->hist.max / 1e3);
	}
}
