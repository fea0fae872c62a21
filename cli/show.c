// SPDX-License-Identifier: MIT
/* One JSON value for programs, a table of the same for people. */
#include <string.h>

#include "cli/cli.h"
#include "common/base/clean.h"
#include "common/base/size.h"
#include "common/base/uuid.h"

#define CELL 512

json_t *cli_json_text(const char *text)
{
	json_t *value = json_string(text ? text : "");
	ash_auto_free char *copy = NULL;

	if (value)
		return value;
	copy = ash_xstrdup(text);
	for (char *c = copy; *c; c++)
		if ((unsigned char)*c >= 0x80)
			*c = '?';
	return json_string(copy);
}

json_t *cli_json_number(uint64_t number)
{
	return json_integer(number > INT64_MAX ? INT64_MAX : (json_int_t)number);
}

json_t *cli_json_uuid(const ProtobufCBinaryData *uuid)
{
	char text[ASH_UUID_TEXT];

	if (uuid->len != 16)
		return json_string("");
	return json_string(ash_uuid_format(uuid->data, text));
}

/* ---------------------------------------------------------------- cells */

/* Text of others must not steer the terminal. */
static void copy_clean(char *buf, size_t room, const char *text)
{
	snprintf(buf, room, "%s", text && *text ? text : "-");
	for (char *c = buf; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
}

static void cell(const json_t *row, const struct cli_col *col, char *buf, size_t room)
{
	const json_t *value = json_object_get(row, col->key);
	const json_t *item;
	size_t i, at = 0;

	if (!value || json_is_null(value)) {
		copy_clean(buf, room, NULL);
	} else if (col->type == CLI_COL_SIZE) {
		ash_size_format((uint64_t)json_integer_value(value), buf, room);
	} else if (col->type == CLI_COL_NUMBER) {
		snprintf(buf, room, "%lld", (long long)json_integer_value(value));
	} else if (col->type == CLI_COL_FLAG) {
		snprintf(buf, room, "%s", json_is_true(value) ? "yes" : "no");
	} else if (col->type == CLI_COL_LIST) {
		copy_clean(buf, room, NULL);
		json_array_foreach(value, i, item)
		{
			char one[CELL];

			copy_clean(one, sizeof(one), json_string_value(item));
			if (at < room)
				at += (size_t)snprintf(buf + at, room - at, "%s%s", i ? "," : "",
						       one);
		}
	} else {
		copy_clean(buf, room, json_string_value(value));
	}
}

/* Columns, not bytes: the trailing bytes of UTF-8 take no room. */
static size_t width(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

static void put(FILE *out, const char *text, size_t room, bool right, bool last)
{
	int pad = (int)(room - width(text));

	if (right)
		fprintf(out, "%*s%s", pad, "", text);
	else
		fprintf(out, "%s%*s", text, last ? 0 : pad, "");
	fputs(last ? "\n" : "  ", out);
}

static bool is_right(const struct cli_col *col)
{
	return col->type == CLI_COL_SIZE || col->type == CLI_COL_NUMBER;
}

void cli_table(FILE *out, const json_t *rows, const struct cli_col *cols)
{
	size_t widths[CLI_OPTS_MAX], n = 0, i;
	const json_t *row;
	char text[CELL];

	for (; cols[n].title; n++)
		widths[n] = width(cols[n].title);
	json_array_foreach(rows, i, row) for (size_t c = 0; c < n; c++)
	{
		cell(row, &cols[c], text, sizeof(text));
		if (width(text) > widths[c])
			widths[c] = width(text);
	}
	for (size_t c = 0; c < n; c++)
		put(out, cols[c].title, widths[c], is_right(&cols[c]), c + 1 == n);
	json_array_foreach(rows, i, row) for (size_t c = 0; c < n; c++)
	{
		cell(row, &cols[c], text, sizeof(text));
		put(out, text, widths[c], is_right(&cols[c]), c + 1 == n);
	}
}

void cli_fields(FILE *out, const json_t *object, const struct cli_col *cols)
{
	size_t widest = 0;
	char text[CELL];

	for (const struct cli_col *c = cols; c->title; c++)
		if (width(c->title) > widest)
			widest = width(c->title);
	for (const struct cli_col *c = cols; c->title; c++) {
		cell(object, c, text, sizeof(text));
		put(out, c->title, widest, false, false);
		fprintf(out, "%s\n", text);
	}
}

/* ---------------------------------------------------------------- whole answers */

int cli_written(const struct cli_args *a)
{
	if (!fflush(a->out) && !ferror(a->out))
		return 0;
	fprintf(stderr, "ashlar: the output could not be written\n");
	return 4;
}

int cli_show_json(const struct cli_args *a, json_t *value)
{
	json_dumpf(value, a->out, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
	fputc('\n', a->out);
	json_decref(value);
	return cli_written(a);
}

int cli_show_list(const struct cli_args *a, const char *key, json_t *rows,
		  const struct cli_col *cols)
{
	if (a->json)
		return cli_show_json(a, json_pack("{s:o}", key, rows));
	cli_table(a->out, rows, cols);
	json_decref(rows);
	return cli_written(a);
}

int cli_show_object(const struct cli_args *a, json_t *object, const struct cli_col *cols)
{
	if (a->json)
		return cli_show_json(a, object);
	cli_fields(a->out, object, cols);
	json_decref(object);
	return cli_written(a);
}

json_t *cli_json_error(const struct ash_error *err)
{
	return json_pack("{s:s, s:o}", "code", ash_code_name(err->code), "message",
			 cli_json_text(err->message));
}

int cli_fail(const struct cli_args *a, const struct ash_error *err)
{
	fprintf(stderr, "ashlar: %s\n", err->message);
	if (a->json)
		cli_show_json(a, json_pack("{s:o}", "error", cli_json_error(err)));
	return ash_code_exit(err->code);
}
