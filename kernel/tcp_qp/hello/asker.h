/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who asked for a connection, as his own sockets would show it.  Work items belong to the root
 * cgroup, and so do the sockets that they make or accept: until they are given to the asker.
 */
#ifndef TQP_ASKER_H
#define TQP_ASKER_H

#include <linux/cgroup-defs.h>
#include <net/sock.h>

/* All zero: nobody. */
struct tqp_asker {
	struct sock_cgroup_data cgroup;	/* whose programs see the sockets; we hold references */
	struct mem_cgroup *memcg;	/* which pays, or NULL; we hold a reference */
	u32 mark, priority;		/* what programs at sock_create want, with the next one */
	int bound_dev_if;
};

/* As @sk has it, which the asker's own task made. */
void tqp_asker_get(struct tqp_asker *asker, const struct sock *sk);
void tqp_asker_put(struct tqp_asker *asker);	/* any context */
/*
 * @sk is as if the asker had made it, or, where it is connected, accepted it; no file has it.
 * -ENOMEM: there is no memory for what it holds, and it must go.  Sleeps, for its lock alone.
 */
int tqp_asker_give(const struct tqp_asker *asker, struct sock *sk);

#endif
