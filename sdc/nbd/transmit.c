// SPDX-License-Identifier: MIT
/* Commands and their replies. */
#include <errno.h>
#include <string.h>

#include "sdc/nbd/server_int.h"

static uint32_t wire_error(int status)
{
	switch (-status) {
	case 0:
		return 0;
	case EPERM:
	case EACCES:
	case EROFS:
		return NBD_EPERM;
	case ENOMEM:
		return NBD_ENOMEM;
	case EINVAL:
		return NBD_EINVAL;
	case ENOSPC:
		return NBD_ENOSPC;
	case EOVERFLOW:
		return NBD_EOVERFLOW;
	case EOPNOTSUPP:
		return NBD_ENOTSUP;
	case ESHUTDOWN:
		return NBD_ESHUTDOWN;
	default:
		return NBD_EIO;
	}
}

/* ------------------------------------------------------------ replies */

static void simple_head(struct nbd_req *req, uint32_t error)
{
	uint8_t *p = req->head;

	p = nbd_put32(p, NBD_SIMPLE_MAGIC);
	p = nbd_put32(p, error);
	nbd_put64(p, req->cookie);
	req->head_bytes = 16;
}

/* @fixed: bytes of the chunk's payload that follow the header inside head[]. */
static uint8_t *chunk_head(struct nbd_req *req, uint16_t type, uint32_t payload, uint32_t fixed)
{
	uint8_t *p = req->head;

	p = nbd_put32(p, NBD_CHUNK_MAGIC);
	p = nbd_put16(p, NBD_CHUNK_DONE);
	p = nbd_put16(p, type);
	p = nbd_put64(p, req->cookie);
	p = nbd_put32(p, payload);
	req->head_bytes = 20 + fixed;
	return p;
}

static void send_reply(struct nbd_req *req)
{
	struct nbd_conn *c = req->conn;

	if (c->broken) {
		nbd_srv_req_put(req);
	} else {
		/* A payload that was received is not needed any more. */
		if (req->mem && !req->data_bytes) {
			c->mem -= 4096u << req->mem_class;
			nbd_srv_mem_put(c->srv, req->mem, req->mem_class);
			req->mem = NULL;
		}
		ash_list_push_back(&c->out, &req->link);
	}
	nbd_conn_dirty(c);
}

static void send_result(struct nbd_req *req, int status)
{
	struct nbd_conn *c = req->conn;
	uint32_t error = wire_error(status);
	uint8_t *p;

	c->srv->stats.errors += error != 0;
	req->data_bytes = 0;
	/* Simple replies are allowed where no data can be expected. */
	if (!c->structured || (req->type != NBD_CMD_READ && req->type != NBD_CMD_BLOCK_STATUS)) {
		simple_head(req, error);
		if (!error && req->type == NBD_CMD_READ)
			req->data_bytes = req->length;
	} else if (error) {
		p = chunk_head(req, NBD_CHUNK_ERROR, 6, 6);
		p = nbd_put32(p, error);
		nbd_put16(p, 0);
	} else {
		p = chunk_head(req, NBD_CHUNK_OFFSET_DATA, 8 + req->length, 8);
		nbd_put64(p, req->offset);
		req->data_bytes = req->length;
	}
	send_reply(req);
}

static void back(struct nbd_req *req)
{
	req->conn->in_flight--;
	req->conn->srv->stats.in_flight--;
}

static void io_done(struct sdc_io *io, int status)
{
	struct nbd_req *req = ash_container_of(io, struct nbd_req, io);

	back(req);
	send_result(req, status);
}

static void status_done(void *arg, int status, const struct sdc_extent *ext, unsigned n)
{
	struct nbd_req *req = arg;
	uint32_t most = req->flags & NBD_CMD_FLAG_REQ_ONE ? 1 : STATUS_MAX_EXTENTS;
	uint8_t *p = req->mem;

	back(req);
	if (status || !n) {
		send_result(req, status ? status : -EIO);
		return;
	}
	n = n < most ? n : most;
	for (unsigned i = 0; i < n; i++) {
		p = nbd_put32(p, (uint32_t)ext[i].bytes);
		p = nbd_put32(p, ext[i].data ? 0 : NBD_STATE_HOLE | NBD_STATE_ZERO);
	}
	req->data_bytes = 8 * n;
	nbd_put32(chunk_head(req, NBD_CHUNK_BLOCK_STATUS, 4 + 8 * n, 4), META_ID);
	send_reply(req);
}

/* ------------------------------------------------------------ commands */

static void submit(struct nbd_req *req)
{
	struct nbd_conn *c = req->conn;
	struct sdc_io *io = &req->io;
	static const uint8_t kinds[] = {[NBD_CMD_READ] = SDC_READ,
					[NBD_CMD_WRITE] = SDC_WRITE,
					[NBD_CMD_FLUSH] = SDC_FLUSH,
					[NBD_CMD_TRIM] = SDC_DISCARD,
					[NBD_CMD_WRITE_ZEROES] = SDC_WRITE_ZEROES};

	c->in_flight++;
	c->srv->stats.in_flight++;
	if (req->type == NBD_CMD_BLOCK_STATUS) {
		c->exp->ops->block_status(c->exp->backend, req->offset, req->length, status_done,
					  req);
		return;
	}
	io->kind = kinds[req->type];
	io->fua = req->flags & NBD_CMD_FLAG_FUA;
	io->no_unmap = req->flags & NBD_CMD_FLAG_NO_HOLE;
	io->offset = req->type == NBD_CMD_FLUSH ? 0 : req->offset;
	io->bytes = req->type == NBD_CMD_FLUSH ? 0 : req->length;
	io->iov1 = (struct iovec){req->mem, req->length};
	io->iov = &io->iov1;
	io->iovcnt = req->mem ? 1 : 0;
	io->done = io_done;
	c->exp->ops->submit(c->exp->backend, io);
}

void nbd_transmit_payload_done(struct nbd_conn *c)
{
	struct nbd_req *req = c->writing;

	c->writing = NULL;
	submit(req);
}

static int check_flags(const struct nbd_req *req)
{
	static const uint16_t allowed[] = {
		[NBD_CMD_READ] = NBD_CMD_FLAG_DF,
		[NBD_CMD_TRIM] = 0,
		[NBD_CMD_WRITE_ZEROES] = NBD_CMD_FLAG_NO_HOLE | NBD_CMD_FLAG_FAST_ZERO,
		[NBD_CMD_BLOCK_STATUS] = NBD_CMD_FLAG_REQ_ONE,
	};

	/* FUA may come with anything; where nothing is written it means nothing. */
	return req->flags & ~(allowed[req->type] | NBD_CMD_FLAG_FUA) ? -EINVAL : 0;
}

/* What can be refused without the backend. */
static int check(const struct nbd_conn *c, const struct nbd_req *req)
{
	const struct nbd_export *exp = c->exp;
	bool write = req->type == NBD_CMD_WRITE || req->type == NBD_CMD_TRIM ||
		     req->type == NBD_CMD_WRITE_ZEROES;

	if (req->type > NBD_CMD_BLOCK_STATUS || req->type == NBD_CMD_DISC ||
	    req->type == 5 /* CACHE */ || check_flags(req))
		return -EINVAL;
	if (write && exp->read_only)
		return -EPERM;
	if (req->type == NBD_CMD_FLUSH)
		return 0;
	if (!req->length || req->length % NBD_BLOCK_MIN || req->offset % NBD_BLOCK_MIN)
		return -EINVAL;
	if (req->offset > exp->size_bytes || req->length > exp->size_bytes - req->offset)
		return write ? -ENOSPC : -EINVAL;
	if (req->type == NBD_CMD_BLOCK_STATUS && !c->meta)
		return -EINVAL;
	if ((req->type == NBD_CMD_READ || req->type == NBD_CMD_WRITE) &&
	    req->length > NBD_PAYLOAD_MAX)
		return -EINVAL;
	return 0;
}

static uint32_t memory_of(const struct nbd_req *req)
{
	if (req->type == NBD_CMD_READ || req->type == NBD_CMD_WRITE)
		return req->length;
	return req->type == NBD_CMD_BLOCK_STATUS ? 8 * STATUS_MAX_EXTENTS : 0;
}

/* A connection alone may always have one request, so that everybody gets on. */
static bool must_wait(const struct nbd_conn *c, uint32_t bytes)
{
	if (c->reqs >= REQS_CONN)
		return true;
	return c->mem && (c->mem + bytes > MEM_CONN || c->srv->mem + bytes > MEM_SERVER);
}

static void parse(const uint8_t *p, struct nbd_req *req)
{
	req->flags = nbd_get16(p + 4);
	req->type = nbd_get16(p + 6);
	req->cookie = nbd_get64(p + 8);
	req->offset = nbd_get64(p + 16);
	req->length = nbd_get32(p + 24);
}

/* Answers at once; the payload that follows a write is thrown away. */
static void refuse(struct nbd_conn *c, const struct nbd_req *cmd, int status)
{
	struct nbd_req *req;

	if (cmd->type == NBD_CMD_WRITE) {
		if (cmd->length > 2 * NBD_PAYLOAD_MAX) {
			nbd_conn_end(c); /* no client means that */
			return;
		}
		c->skip = cmd->length;
	}
	req = nbd_srv_req_get(c);
	parse(c->in + c->in_at - NBD_REQUEST_BYTES, req);
	send_result(req, status);
}

bool nbd_transmit_step(struct nbd_conn *c)
{
	const uint8_t *p = c->in + c->in_at;
	struct nbd_req cmd, *req;
	uint32_t bytes;
	int err;

	if (c->in_end - c->in_at < NBD_REQUEST_BYTES)
		return false;
	parse(p, &cmd);
	if (nbd_get32(p) != NBD_REQUEST_MAGIC || cmd.type == NBD_CMD_DISC) {
		nbd_conn_end(c);
		return false;
	}
	err = check(c, &cmd);
	bytes = err ? 0 : memory_of(&cmd);
	if (must_wait(c, bytes)) {
		c->stalled = true;
		c->srv->stalled++;
		ev_io_stop(c->srv->loop, &c->rd);
		return false;
	}
	c->in_at += NBD_REQUEST_BYTES;
	c->srv->stats.requests++;
	if (err) {
		refuse(c, &cmd, err);
		return true;
	}
	req = nbd_srv_req_get(c);
	parse(p, req);
	if (bytes) {
		req->mem = nbd_srv_mem_get(c->srv, bytes, &req->mem_class);
		if (!req->mem) {
			nbd_srv_req_put(req);
			refuse(c, &cmd, -ENOMEM);
			return true;
		}
		c->mem += 4096u << req->mem_class;
	}
	if (req->type == NBD_CMD_BLOCK_STATUS && req->length > STATUS_MAX_BYTES)
		req->length = STATUS_MAX_BYTES;
	if (req->type == NBD_CMD_WRITE) {
		c->writing = req;
		c->write_have = 0;
	} else {
		submit(req);
	}
	return true;
}
