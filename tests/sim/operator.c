/* SPDX-License-Identifier: MIT */
/* The operator of a simulated system: a desk with a control channel. */
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "tests/sim/cluster.h"

struct answer {
	bool done;
	int result;
	uint64_t id;
	int code;
	char text[512];
};

static void operator_session(void *owner, bool up)
{
}

static void operator_push(void *owner, const Pb__Push *push)
{
}

static const struct ash_ctl_events operator_events = {.on_session = operator_session,
						      .on_push = operator_push};

static void on_answer(void *arg, int result, const Pb__Reply *reply)
{
	struct answer *a = arg;

	a->done = true;
	a->result = result;
	if (result)
		return;
	if (reply->error && reply->error->code) {
		a->code = reply->error->code;
		snprintf(a->text, sizeof(a->text), "%s", reply->error->message);
	} else if (reply->r_case == PB__REPLY__R_ADMIN) {
		a->id = reply->admin->id;
	}
}

static void call(struct sim_cluster *c, Pb__Command *cmd,
		 void (*done)(void *arg, int result, const Pb__Reply *reply), void *arg)
{
	struct ash_ctl *ctl = sim_ctl_port(c->operator_ctl);
	Pb__Request req = PB__REQUEST__INIT;
	Pb__Admin admin = PB__ADMIN__INIT;

	admin.command = cmd;
	req.r_case = PB__REQUEST__R_ADMIN;
	req.admin = &admin;
	ctl->ops->call(ctl, &req, 10000, done, arg);
}

uint64_t sim_admin(struct sim_cluster *c, Pb__Command *cmd, bool *ret_refused)
{
	struct answer a = {0};

	if (ret_refused)
		*ret_refused = false;
	call(c, cmd, on_answer, &a);
	while (!a.done && sim_step(c->w))
		;
	if (c->w->failed)
		return 0;
	if (a.result || a.code) {
		if (ret_refused)
			*ret_refused = true;
		else
			sim_fail(c->w, "setup", "command %d: result %d code %d: %s", cmd->c_case,
				 a.result, a.code, a.text);
		return 0;
	}
	return a.id ? a.id : 1;
}

struct asked {
	void (*done)(void *arg, int code, uint64_t id);
	void *arg;
};

static void on_asked(void *arg, int result, const Pb__Reply *reply)
{
	struct asked a = *(struct asked *)arg;
	struct answer answer = {0};

	free(arg);
	on_answer(&answer, result, reply);
	a.done(a.arg, result ? ASH_E_UNREACHABLE : answer.code, answer.id);
}

void sim_admin_ask(struct sim_cluster *c, Pb__Command *cmd,
		   void (*done)(void *arg, int code, uint64_t id), void *arg)
{
	struct asked *a = malloc(sizeof(*a));

	if (!a)
		abort();
	*a = (struct asked){done, arg};
	call(c, cmd, on_asked, a);
}

void sim_operator_start(struct sim_cluster *c)
{
	struct sim_ctl_id id = {.role = "cli", .name = "operator"};

	c->desk = (struct sim_host){.w = c->w, .name = "desk", .index = 30};
	sim_host_boot(&c->desk);
	c->operator_proc = sim_proc_new(&c->desk, "operator", 0);
	c->operator_ctl = sim_ctl_new(c->mdm, c->operator_proc, &id);
	sim_ctl_port(c->operator_ctl)->events = &operator_events;
}
