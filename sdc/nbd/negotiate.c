// SPDX-License-Identifier: MIT
/* Haggling: options and their replies. Whatever makes no sense is answered or ends the connection.
 */
#include <stdio.h>
#include <string.h>

#include "sdc/nbd/server_int.h"

#define BASE_ALLOCATION "base:allocation"

static void reply(struct nbd_conn *c, uint32_t opt, uint32_t type, const void *data, uint32_t bytes)
{
	uint8_t head[20], *p = head;

	p = nbd_put64(p, NBD_REP_MAGIC);
	p = nbd_put32(p, opt);
	p = nbd_put32(p, type);
	nbd_put32(p, bytes);
	nbd_conn_text(c, head, sizeof(head));
	if (bytes)
		nbd_conn_text(c, data, bytes);
}

static void refuse(struct nbd_conn *c, uint32_t opt, uint32_t type, const char *why)
{
	reply(c, opt, type, why, (uint32_t)strlen(why));
}

uint16_t nbd_export_flags(const struct nbd_conn *c, const struct nbd_export *exp)
{
	uint16_t flags = NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH | NBD_FLAG_SEND_FUA |
			 NBD_FLAG_SEND_TRIM | NBD_FLAG_SEND_WRITE_ZEROES | NBD_FLAG_SEND_FAST_ZERO |
			 NBD_FLAG_CAN_MULTI_CONN;

	if (c->structured)
		flags |= NBD_FLAG_SEND_DF;
	if (exp->read_only)
		flags = (uint16_t)((flags & ~(NBD_FLAG_SEND_TRIM | NBD_FLAG_SEND_WRITE_ZEROES |
					      NBD_FLAG_SEND_FAST_ZERO)) |
				   NBD_FLAG_READ_ONLY);
	return flags;
}

static void begin_serving(struct nbd_conn *c, struct nbd_export *exp)
{
	if (c->state == CONN_ENDING)
		return; /* it did not read our answers */
	c->exp = exp;
	/* A context chosen for one export says nothing about another. */
	c->meta = c->meta && !strcmp(c->meta_export, exp->name);
	c->state = CONN_TRANSMIT;
	ev_timer_stop(c->srv->loop, &c->deadline);
}

static void opt_export_name(struct nbd_conn *c, const uint8_t *data, uint32_t bytes)
{
	struct nbd_export *exp = nbd_srv_export(c->srv, (const char *)data, bytes);
	uint8_t out[10 + 124] = {0};

	if (!exp) {
		nbd_conn_end(c); /* this option knows no other refusal */
		return;
	}
	nbd_put64(out, exp->size_bytes);
	nbd_put16(out + 8, nbd_export_flags(c, exp));
	nbd_conn_text(c, out, c->no_zeroes ? 10 : sizeof(out));
	begin_serving(c, exp);
}

static void opt_list(struct nbd_conn *c, uint32_t bytes)
{
	if (bytes) {
		refuse(c, NBD_OPT_LIST, NBD_REP_ERR_INVALID, "LIST has no data");
		return;
	}
	for (struct nbd_export *e = c->srv->exports; e; e = e->next) {
		uint8_t out[4 + sizeof(e->name)];
		uint32_t n = (uint32_t)strlen(e->name);

		nbd_put32(out, n);
		memcpy(out + 4, e->name, n);
		reply(c, NBD_OPT_LIST, NBD_REP_SERVER, out, 4 + n);
	}
	reply(c, NBD_OPT_LIST, NBD_REP_ACK, NULL, 0);
}

static void info_text(struct nbd_conn *c, uint32_t opt, uint16_t kind, const char *text)
{
	uint8_t out[2 + 128];
	size_t n = strlen(text);

	nbd_put16(out, kind);
	memcpy(out + 2, text, n);
	reply(c, opt, NBD_REP_INFO, out, (uint32_t)(2 + n));
}

static void send_infos(struct nbd_conn *c, uint32_t opt, struct nbd_export *exp,
		       const uint8_t *kinds, uint16_t count)
{
	uint8_t out[14], *p = out;

	p = nbd_put16(p, NBD_INFO_EXPORT);
	p = nbd_put64(p, exp->size_bytes);
	nbd_put16(p, nbd_export_flags(c, exp));
	reply(c, opt, NBD_REP_INFO, out, 12);
	/* Also unasked: the smallest block is not what clients take for granted. */
	p = nbd_put16(out, NBD_INFO_BLOCK_SIZE);
	p = nbd_put32(p, NBD_BLOCK_MIN);
	p = nbd_put32(p, NBD_BLOCK_PREFERRED);
	nbd_put32(p, NBD_PAYLOAD_MAX);
	reply(c, opt, NBD_REP_INFO, out, 14);
	for (uint16_t i = 0; i < count && c->state == CONN_OPTIONS; i++) {
		uint16_t kind = nbd_get16(kinds + 2 * i);

		if (kind == NBD_INFO_NAME)
			info_text(c, opt, kind, exp->name);
		else if (kind == NBD_INFO_DESCRIPTION && exp->description[0])
			info_text(c, opt, kind, exp->description);
	}
	reply(c, opt, NBD_REP_ACK, NULL, 0);
}

static void opt_info(struct nbd_conn *c, uint32_t opt, const uint8_t *data, uint32_t bytes)
{
	struct nbd_export *exp;
	uint32_t name;
	uint16_t count;

	if (bytes < 6 || (name = nbd_get32(data)) > bytes - 6) {
		refuse(c, opt, NBD_REP_ERR_INVALID, "name and data do not fit together");
		return;
	}
	count = nbd_get16(data + 4 + name);
	if (bytes != 6 + name + 2u * count) {
		refuse(c, opt, NBD_REP_ERR_INVALID, "list of information is cut short");
		return;
	}
	exp = nbd_srv_export(c->srv, (const char *)data + 4, name);
	if (!exp) {
		refuse(c, opt, NBD_REP_ERR_UNKNOWN, "no such export; LIST names them");
		return;
	}
	send_infos(c, opt, exp, data + 6 + name, count);
	if (opt == NBD_OPT_GO && c->state == CONN_OPTIONS)
		begin_serving(c, exp);
}

/* Does a query ask for base:allocation? */
static bool query_matches(uint32_t opt, const char *query, uint32_t bytes)
{
	if (bytes == strlen(BASE_ALLOCATION) && !memcmp(query, BASE_ALLOCATION, bytes))
		return true;
	return opt == NBD_OPT_LIST_META_CONTEXT && bytes == 5 && !memcmp(query, "base:", 5);
}

/* Return: queries that match, or -1 when the data makes no sense. */
static int match_queries(uint32_t opt, const uint8_t *p, uint32_t left)
{
	uint32_t count;
	int found = 0;

	if (left < 4)
		return -1;
	count = nbd_get32(p);
	p += 4;
	left -= 4;
	if (!count && !left)
		return opt == NBD_OPT_LIST_META_CONTEXT;
	while (count--) {
		uint32_t n;

		if (left < 4 || (n = nbd_get32(p)) > left - 4)
			return -1;
		found += query_matches(opt, (const char *)p + 4, n);
		p += 4 + n;
		left -= 4 + n;
	}
	return left ? -1 : found;
}

static void opt_meta(struct nbd_conn *c, uint32_t opt, const uint8_t *data, uint32_t bytes)
{
	bool set = opt == NBD_OPT_SET_META_CONTEXT;
	struct nbd_export *exp;
	uint8_t out[4 + sizeof(BASE_ALLOCATION) - 1];
	uint32_t name;
	int found;

	if (set)
		c->meta = false;
	if (!c->structured) {
		refuse(c, opt, NBD_REP_ERR_INVALID, "ask for structured replies first");
		return;
	}
	if (bytes < 8 || (name = nbd_get32(data)) > bytes - 8 ||
	    (found = match_queries(opt, data + 4 + name, bytes - 4 - name)) < 0) {
		refuse(c, opt, NBD_REP_ERR_INVALID, "the queries do not fit the data");
		return;
	}
	exp = nbd_srv_export(c->srv, (const char *)data + 4, name);
	if (!exp) {
		refuse(c, opt, NBD_REP_ERR_UNKNOWN, "no such export; LIST names them");
		return;
	}
	if (found) {
		nbd_put32(out, set ? META_ID : 0);
		memcpy(out + 4, BASE_ALLOCATION, sizeof(out) - 4);
		reply(c, opt, NBD_REP_META_CONTEXT, out, sizeof(out));
		if (set) {
			c->meta = true;
			snprintf(c->meta_export, sizeof(c->meta_export), "%s", exp->name);
		}
	}
	reply(c, opt, NBD_REP_ACK, NULL, 0);
}

static void option(struct nbd_conn *c, uint32_t opt, const uint8_t *data, uint32_t bytes)
{
	switch (opt) {
	case NBD_OPT_EXPORT_NAME:
		opt_export_name(c, data, bytes);
		return;
	case NBD_OPT_ABORT:
		reply(c, opt, NBD_REP_ACK, NULL, 0);
		nbd_conn_end(c);
		return;
	case NBD_OPT_LIST:
		opt_list(c, bytes);
		return;
	case NBD_OPT_INFO:
	case NBD_OPT_GO:
		opt_info(c, opt, data, bytes);
		return;
	case NBD_OPT_STRUCTURED_REPLY:
		if (bytes) {
			refuse(c, opt, NBD_REP_ERR_INVALID, "STRUCTURED_REPLY has no data");
			return;
		}
		c->structured = true;
		reply(c, opt, NBD_REP_ACK, NULL, 0);
		return;
	case NBD_OPT_LIST_META_CONTEXT:
	case NBD_OPT_SET_META_CONTEXT:
		opt_meta(c, opt, data, bytes);
		return;
	default:
		refuse(c, opt, NBD_REP_ERR_UNSUP, "not supported");
		return;
	}
}

bool nbd_negotiate_step(struct nbd_conn *c)
{
	const uint8_t *p = c->in + c->in_at;
	uint32_t have = c->in_end - c->in_at, flags, bytes, opt;

	if (c->state == CONN_FLAGS) {
		if (have < 4)
			return false;
		flags = nbd_get32(p);
		c->in_at += 4;
		/* Both are needed to understand each other; unknown ones mean that we do not. */
		if (!(flags & NBD_F_FIXED_NEWSTYLE) ||
		    (flags & ~(uint32_t)(NBD_F_FIXED_NEWSTYLE | NBD_F_NO_ZEROES))) {
			nbd_conn_end(c);
			return false;
		}
		c->no_zeroes = flags & NBD_F_NO_ZEROES;
		c->state = CONN_OPTIONS;
		return true;
	}
	if (have < 16)
		return false;
	opt = nbd_get32(p + 8);
	bytes = nbd_get32(p + 12);
	if (nbd_get64(p) != NBD_OPT_MAGIC || bytes > OPTION_MAX || ++c->options > OPTIONS_MAX) {
		nbd_conn_end(c);
		return false;
	}
	if (have < 16 + bytes) {
		c->options--;
		return false;
	}
	c->in_at += 16 + bytes;
	option(c, opt, p + 16, bytes);
	return true;
}
