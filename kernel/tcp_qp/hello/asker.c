// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel puts a socket into cgroups by functions that modules do not have, and always into
 * those of the running task.  So a socket that the asker's task made is the pattern, and what it
 * refers to is passed on.
 */
#include <linux/cgroup.h>
#include <linux/memcontrol.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <net/tcp.h>
#include "hello/asker.h"

/* ---- whose programs see it ---- */

#ifdef CONFIG_SOCK_CGROUP_DATA
static void tqp_cgroup_get(struct cgroup *cgroup)
{
	cgroup_get(cgroup);
	cgroup_bpf_get(cgroup);
}

static void tqp_cgroup_put(struct cgroup *cgroup)
{
	cgroup_bpf_put(cgroup);
	cgroup_put(cgroup);
}

static void tqp_asker_get_cgroup(struct tqp_asker *asker, const struct sock *sk)
{
	asker->cgroup = sk->sk_cgrp_data;
	tqp_cgroup_get(asker->cgroup.cgroup);
}

static void tqp_asker_put_cgroup(struct tqp_asker *asker)
{
	if (asker->cgroup.cgroup)
		tqp_cgroup_put(asker->cgroup.cgroup);
}

/* Packets look at it without a lock, but under RCU, which cgroups wait for before they go. */
static void tqp_asker_give_cgroup(const struct tqp_asker *asker, struct sock *sk)
{
	struct sock_cgroup_data *data = &sk->sk_cgrp_data;
	struct cgroup *now = asker->cgroup.cgroup, *was = data->cgroup;

	if (!now)
		return;
	tqp_cgroup_get(now);
	WRITE_ONCE(data->cgroup, now);
	sock_cgroup_set_classid(data, sock_cgroup_classid(&asker->cgroup));
	sock_cgroup_set_prioidx(data, sock_cgroup_prioidx(&asker->cgroup));
	tqp_cgroup_put(was);
}
#else
static void tqp_asker_get_cgroup(struct tqp_asker *asker, const struct sock *sk)
{
}

static void tqp_asker_put_cgroup(struct tqp_asker *asker)
{
}

static void tqp_asker_give_cgroup(const struct tqp_asker *asker, struct sock *sk)
{
}
#endif

/* ---- who pays ---- */

#ifdef CONFIG_MEMCG
static void tqp_asker_get_memcg(struct tqp_asker *asker, const struct sock *sk)
{
	asker->memcg = sk->sk_memcg;
	if (asker->memcg)
		css_get(&asker->memcg->css);
}

static void tqp_asker_put_memcg(struct tqp_asker *asker)
{
	if (asker->memcg)
		css_put(&asker->memcg->css);
}

/* Where there is room at once: a worker is everybody's, and is not slowed down for one cgroup. */
static void tqp_asker_charge_object(const struct tqp_asker *asker, struct sock *sk)
{
	struct mem_cgroup *was;

	if (!asker->memcg)
		return;
	was = set_active_memcg(asker->memcg);
	kmem_cache_charge(sk, GFP_NOWAIT | __GFP_NOWARN);
	set_active_memcg(was);
}

/*
 * What has come was nobody's: it is given back, and charged anew as if it came now, that is as in
 * softirq, which waits for no memory and may pass the limit.  If TCP's own limit does not let it,
 * the socket owes it until what came is freed.  Nothing has been sent yet.
 */
static int tqp_asker_charge_buffers(const struct tqp_asker *asker, struct sock *sk)
{
	int held = sk->sk_forward_alloc + atomic_read(&sk->sk_rmem_alloc);
	bool charged = true;

	sock_owned_by_me(sk);
	if (!asker->memcg || sk->sk_memcg)
		return 0;
	if (held)
		__sk_mem_reclaim(sk, held);
	css_get(&asker->memcg->css);
	sk->sk_memcg = asker->memcg;
	if (held) {
		local_bh_disable();
		charged = __sk_mem_schedule(sk, held, SK_MEM_RECV);
		local_bh_enable();
	}
	return charged ? 0 : -ENOMEM;
}
#else
static void tqp_asker_get_memcg(struct tqp_asker *asker, const struct sock *sk)
{
}

static void tqp_asker_put_memcg(struct tqp_asker *asker)
{
}

static void tqp_asker_charge_object(const struct tqp_asker *asker, struct sock *sk)
{
}

static int tqp_asker_charge_buffers(const struct tqp_asker *asker, struct sock *sk)
{
	return 0;
}
#endif

/* ---- both ---- */

void tqp_asker_get(struct tqp_asker *asker, const struct sock *sk)
{
	tqp_asker_get_cgroup(asker, sk);
	tqp_asker_get_memcg(asker, sk);
	asker->mark = READ_ONCE(sk->sk_mark);
	asker->priority = READ_ONCE(sk->sk_priority);
	asker->bound_dev_if = READ_ONCE(sk->sk_bound_dev_if);
}

void tqp_asker_put(struct tqp_asker *asker)
{
	tqp_asker_put_cgroup(asker);
	tqp_asker_put_memcg(asker);
}

/* Packets of a connection go on as they have begun. */
static void tqp_asker_mark(const struct tqp_asker *asker, struct sock *sk)
{
	if (sk->sk_state != TCP_CLOSE)
		return;
	WRITE_ONCE(sk->sk_mark, asker->mark);
	WRITE_ONCE(sk->sk_priority, asker->priority);
	WRITE_ONCE(sk->sk_bound_dev_if, asker->bound_dev_if);
}

int tqp_asker_give(const struct tqp_asker *asker, struct sock *sk)
{
	int err;

	tqp_asker_charge_object(asker, sk);
	lock_sock(sk);
	tqp_asker_mark(asker, sk);
	tqp_asker_give_cgroup(asker, sk);
	err = tqp_asker_charge_buffers(asker, sk);
	release_sock(sk);
	return err;
}
