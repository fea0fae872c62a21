// SPDX-License-Identifier: MIT
/* Settings files, and every parser of what people write. */
#include <string.h>

#include "common/base/clean.h"
#include "common/base/conf.h"
#include "common/base/name.h"
#include "common/base/size.h"
#include "common/base/uuid.h"
#include "tests/fuzz/fuzz.h"

static void parse_value(const char *text)
{
	char buf[ASH_UUID_TEXT];
	struct ash_error err;
	uint8_t uuid[16], again[16];
	uint32_t percent;
	uint64_t v;

	if (ash_size_parse(text, &v) == 0)
		FUZZ_CHECK(v <= INT64_MAX && ash_size_format(v, buf, 16)[0] != '\0');
	if (ash_u64_parse(text, 3, 1ull << 40, &v) == 0)
		FUZZ_CHECK(v >= 3 && v <= 1ull << 40);
	if (ash_percent_parse(text, &percent) == 0)
		FUZZ_CHECK(percent <= 100);
	if (ash_uuid_parse(text, uuid) == 0) {
		FUZZ_CHECK(ash_uuid_parse(ash_uuid_format(uuid, buf), again) == 0);
		FUZZ_CHECK(ash_uuid_equal(uuid, again));
	}
	err = ash_name_check("thing", text);
	FUZZ_CHECK(!ash_failed(&err) == (err.message[0] == '\0'));
	FUZZ_CHECK(ash_failed(&err) || strlen(text) <= ASH_NAME_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const known[] = {"name", "mdm", "devices", "listen", NULL};
	ash_auto_free char *text = ash_xcalloc(1, size + 1);
	struct ash_conf conf = {0};
	struct ash_error err;

	memcpy(text, data, size);
	parse_value(text);
	err = ash_conf_parse(&conf, text, "file", known);
	FUZZ_CHECK(!ash_failed(&err) == (err.message[0] == '\0'));
	for (size_t k = 0; known[k]; k++) {
		const char *value;

		for (size_t i = 0; (value = ash_conf_nth(&conf, known[k], i)); i++)
			parse_value(value);
		FUZZ_CHECK(ash_conf_get(&conf, known[k], "otherwise"));
	}
	ash_conf_done(&conf);
	return 0;
}
