// SPDX-License-Identifier: MIT
#include "common/base/switches.h"

#include <string.h>

#ifdef ASHLAR_TEST_SWITCHES
bool ash_rule_left_out[ASH_RULE_COUNT];
#endif

static const struct {
	const char *name, *text;
} rules[] = {
#define RULE_ENTRY(name, text) {#name, text},
	ASH_RULES(RULE_ENTRY)
#undef RULE_ENTRY
};

const char *ash_rule_name(int rule)
{
	return rule >= 0 && rule < ASH_RULE_COUNT ? rules[rule].name : "?";
}

const char *ash_rule_text(int rule)
{
	return rule >= 0 && rule < ASH_RULE_COUNT ? rules[rule].text : "?";
}

int ash_rule_find(const char *name)
{
	for (int i = 0; i < ASH_RULE_COUNT; i++)
		if (strcmp(rules[i].name, name) == 0)
			return i;
	return -1;
}
