/* SPDX-License-Identifier: MIT */
/* Intrusive doubly linked list. A node that is not on a list points at itself. */
#ifndef ASHLAR_COMMON_BASE_LIST_H
#define ASHLAR_COMMON_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct ash_list {
	struct ash_list *prev, *next;
};

#define ash_container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline void ash_list_init(struct ash_list *l)
{
	l->prev = l->next = l;
}
static inline bool ash_list_empty(const struct ash_list *l)
{
	return l->next == l;
}
static inline void ash_list_push_back(struct ash_list *head, struct ash_list *n)
{
	n->prev = head->prev;
	n->next = head;
	head->prev->next = n;
	head->prev = n;
}
static inline void ash_list_push_front(struct ash_list *head, struct ash_list *n)
{
	ash_list_push_back(head->next, n);
}
/* Takes it out; fine for a node that is on no list (initialised). */
static inline void ash_list_remove(struct ash_list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	ash_list_init(n);
}
/* First node taken out, or NULL. */
static inline struct ash_list *ash_list_pop(struct ash_list *head)
{
	struct ash_list *n = head->next;

	if (n == head)
		return NULL;
	ash_list_remove(n);
	return n;
}
#define ash_list_first(head, type, member) ash_container_of((head)->next, type, member)
/* The node may be taken out (not freed with its follower) inside the loop. */
#define ash_list_each(it, head)                                                                    \
	for (struct ash_list *it = (head)->next; it != (head); it = it->next)
#define ash_list_each_safe(it, head)                                                               \
	for (struct ash_list *it = (head)->next, *it##_next = it->next; it != (head);              \
	     it = it##_next, it##_next = it->next)

#endif
