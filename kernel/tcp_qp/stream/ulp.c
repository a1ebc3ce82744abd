// SPDX-License-Identifier: GPL-2.0
/*
 * The ULP: which of a socket's operations are ours, from setsockopt to the socket's end.
 *
 * sendmsg, recvmsg, setsockopt, getsockopt and disconnect; splice_read of one that posts
 * (splice.c).  All else is TCP's, so that every other call means what it means without us.  A
 * listener's children inherit it.  It yields to any other ULP (kTLS, a queue pair), since TCP
 * has room for one.
 *
 * A listener is cloned without its lock, and no child may have our operations without a
 * reference to this module.  So one that listens gets the ULP before the operations, and
 * keeps both.
 */
#include <linux/hashtable.h>
#include <linux/inet_diag.h>
#include <linux/module.h>
#include <net/inet_connection_sock.h>
#include <net/ipv6.h>
#include <net/transp_v6.h>
#include "object/compat.h"
#include "stream/place.h"
#include "stream/stream.h"

/* Our copies of a family's operations, made when the module is loaded. */
static struct tqp_stream_family {
	struct proto *base;
	struct proto prot;
} tqp_stream_families[] = {
	{ .base = &tcp_prot },
#if IS_ENABLED(CONFIG_IPV6)
	{ .base = &tcpv6_prot },
#endif
};

/* NULL: somebody else replaced them. */
static struct proto *tqp_stream_prot_for(const struct sock *sk)
{
	for (u32 i = 0; i < ARRAY_SIZE(tqp_stream_families); i++)
		if (tqp_stream_families[i].base == sk->sk_prot)
			return &tqp_stream_families[i].prot;
	return NULL;
}

struct proto *tqp_stream_base(const struct proto *prot)
{
	for (u32 i = 0; i < ARRAY_SIZE(tqp_stream_families); i++)
		if (&tqp_stream_families[i].prot == prot)
			return tqp_stream_families[i].base;
	return (struct proto *)prot;
}

/* ---- install, inherit, release ---- */

/*
 * One that listens, or did: TCP has set this ever since, and softirq that found it then
 * may still be at it.  Who copies our operations must copy the ULP, too.
 */
static void tqp_stream_wait_cloned(const struct sock *sk)
{
	if (sock_flag(sk, SOCK_RCU_FREE))
		synchronize_rcu();
}

static void tqp_stream_put_on(struct sock *sk, struct proto *prot)
{
	WRITE_ONCE(inet_csk(sk)->icsk_ulp_ops, &tqp_stream_ulp_ops);
	tqp_stream_wait_cloned(sk);
	WRITE_ONCE(sk->sk_prot, prot);
}

/* Under the sk lock, by setsockopt(), which then sets icsk_ulp_ops. */
static int tqp_stream_ulp_init(struct sock *sk)
{
	struct proto *prot = tqp_stream_prot_for(sk);

	if (!prot)
		return -EBUSY;
	RCU_INIT_POINTER(inet_csk(sk)->icsk_ulp_data, NULL);
	tqp_stream_put_on(sk, prot);
	if (sk->sk_socket)
		set_bit(SOCK_SUPPORT_ZC, &sk->sk_socket->flags);	/* as it was before the ULP */
	return 0;
}

/*
 * As TCP installs a ULP, but without its lock, which is not to be had where BPF programs
 * run: the socket is in no table and in no process's hands, or they have the lock.
 */
int tqp_stream_install_new(struct sock *sk)
{
	struct proto *prot = tqp_stream_prot_for(sk);

	if (!prot || sk->sk_state != TCP_CLOSE || sock_flag(sk, SOCK_RCU_FREE) ||
	    sock_flag(sk, SOCK_DEAD) || inet_csk(sk)->icsk_ulp_ops)
		return -EINVAL;
	if (!try_module_get(THIS_MODULE))
		return -ENOENT;
	RCU_INIT_POINTER(inet_csk(sk)->icsk_ulp_data, NULL);
	tqp_stream_put_on(sk, prot);
	return 0;
}

/* In softirq, of a listener that is not locked; the child is. */
static void tqp_stream_ulp_clone(const struct request_sock *req, struct sock *child,
				 const gfp_t priority)
{
	__module_get(THIS_MODULE);
	RCU_INIT_POINTER(inet_csk(child)->icsk_ulp_data, NULL);
	/* It may have been copied when the listener had the ULP and not yet our operations. */
	child->sk_prot = tqp_stream_prot_for(child) ?: child->sk_prot;
	/* The child's memory is given back by them, when it has no ULP any more. */
	child->sk_prot_creator = tqp_stream_base(child->sk_prot_creator);
}

static struct tqp_stream *tqp_stream_take(struct sock *sk)
{
	struct tqp_stream *stream = tqp_stream_of(sk);

	tqp_splice_take_off(sk);
	RCU_INIT_POINTER(inet_csk(sk)->icsk_ulp_data, NULL);
	WRITE_ONCE(sk->sk_prot, tqp_stream_base(sk->sk_prot));
	return stream;
}

/* Of a socket that is being destroyed: nobody else has it, whether it is locked or not. */
static void tqp_stream_ulp_release(struct sock *sk)
{
	struct tqp_stream *stream = tqp_stream_take(sk);

	if (stream)
		tqp_stream_destroy(stream);
}

/* ---- the module's last users ---- */

static atomic_t tqp_stream_unused = ATOMIC_INIT(0);

static void tqp_stream_put_module(struct work_struct *work)
{
	for (int n = atomic_xchg(&tqp_stream_unused, 0); n > 0; n--)
		module_put(THIS_MODULE);
}

static DECLARE_WORK(tqp_stream_put_work, tqp_stream_put_module);

/* No reference is dropped by code that returns here: unloading waits for the work. */
static void tqp_stream_put_later(void)
{
	atomic_inc(&tqp_stream_unused);
	schedule_work(&tqp_stream_put_work);
}

/* A socket that had the ULP, and how it is freed without us. */
struct tqp_stream_held {
	struct hlist_node node;
	struct sock *sk;
	void (*destruct)(struct sock *sk);
};

static DEFINE_HASHTABLE(tqp_stream_held, TQP_STREAM_HELD_BITS);
static DEFINE_SPINLOCK(tqp_stream_held_lock);

/* The latest of a socket is found first, as its ends are called in turn. */
static struct tqp_stream_held *tqp_stream_held_take(const struct sock *sk)
{
	struct tqp_stream_held *held, *found = NULL;

	spin_lock_bh(&tqp_stream_held_lock);
	hash_for_each_possible(tqp_stream_held, held, node, (unsigned long)sk) {
		if (held->sk == sk) {
			found = held;
			hash_del(&held->node);
			break;
		}
	}
	spin_unlock_bh(&tqp_stream_held_lock);
	return found;
}

static void tqp_stream_destruct(struct sock *sk)
{
	struct tqp_stream_held *held = tqp_stream_held_take(sk);

	if (WARN_ON_ONCE(!held))
		return;
	held->destruct(sk);
	kfree(held);
	tqp_stream_put_later();
}

/*
 * The socket has another ULP.  Who still runs our operations, or is about to, has the
 * socket's file, so the module stays until the socket goes.
 */
static void tqp_stream_hold_module(struct sock *sk, struct tqp_stream_held *held)
{
	held->sk = sk;
	held->destruct = sk->sk_destruct;
	spin_lock_bh(&tqp_stream_held_lock);
	hash_add(tqp_stream_held, &held->node, (unsigned long)sk);
	spin_unlock_bh(&tqp_stream_held_lock);
	sk->sk_destruct = tqp_stream_destruct;
}

/* ---- yielding ---- */

struct tqp_stream_yielded {
	struct tqp_stream_held *held;	/* made before, in case that it is needed */
	struct tqp_stream *stream;
	struct tqp_place *place;
	bool yielded;
};

static bool tqp_stream_is_name(sockptr_t optval, unsigned int optlen)
{
	char name[TCP_ULP_NAME_MAX] = {};

	return optlen && strncpy_from_sockptr(name, optval,
					      min_t(size_t, sizeof(name) - 1, optlen)) >= 0 &&
	       !strcmp(name, TCP_QP_STREAM_ULP_NAME);
}

/*
 * Whoever comes reads the socket by other ways than ours, and may be a queue pair that
 * the NIC has to know.  False: it has placed bytes that were not read yet.
 */
static bool tqp_stream_unplace(struct sock *sk, struct tqp_stream_yielded *was)
{
	struct tqp_stream *stream = tqp_stream_of(sk);
	struct tqp_place *place = stream ? stream->place : NULL;

	if (!place)
		return true;
	tqp_post_leave(sk, place);
	tqp_window_free(sk, place);
	if (place->rescued && before(tcp_sk(sk)->copied_seq, place->end))
		return false;
	was->place = place;
	WRITE_ONCE(stream->place, NULL);
	return true;
}

static int tqp_stream_yield(struct sock *sk, struct tqp_stream_yielded *was)
{
	struct inet_connection_sock *icsk = inet_csk(sk);
	int err = 0;

	was->held = kmalloc(sizeof(*was->held), GFP_KERNEL_ACCOUNT);
	if (!was->held)
		return -ENOMEM;
	lock_sock(sk);
	if (icsk->icsk_ulp_ops != &tqp_stream_ulp_ops || sk->sk_state == TCP_LISTEN) {
		/* not ours, or for good */
	} else if (!tqp_stream_unplace(sk, was)) {
		err = -EBUSY;
	} else {
		was->stream = tqp_stream_take(sk);
		was->yielded = true;
		tqp_stream_wait_cloned(sk);
		/* sock_diag and others look without the lock: no ULP before another's data. */
		smp_store_release(&icsk->icsk_ulp_ops, NULL);
	}
	release_sock(sk);
	if (was->place)
		tqp_place_end_wait(was->place);
	return err;
}

/* Nobody else came: the ULP is again what it was, with its reference to the module. */
static bool tqp_stream_back(struct sock *sk, struct tqp_stream *stream)
{
	struct inet_connection_sock *icsk = inet_csk(sk);
	struct proto *prot = tqp_stream_prot_for(sk);

	if (icsk->icsk_ulp_ops || !prot)
		return false;
	tqp_stream_put_on(sk, prot);
	rcu_assign_pointer(icsk->icsk_ulp_data, stream);
	return true;
}

/*
 * The socket is not ours any more, and keeps our reference to the module: until it goes,
 * or, where it may listen, for good.  A child would have our sk_destruct, and be nobody's.
 */
static void tqp_stream_leave(struct sock *sk, struct tqp_stream_yielded *was)
{
	const struct tcp_ulp_ops *ops = inet_csk(sk)->icsk_ulp_ops;

	if (ops && ops->owner == THIS_MODULE) {		/* it has a reference of its own */
		module_put(THIS_MODULE);
	} else if (ops && !ops->clone) {
		tqp_stream_hold_module(sk, was->held);
		was->held = NULL;
	}
}

static void tqp_stream_yielded(struct sock *sk, struct tqp_stream_yielded *was)
{
	lock_sock(sk);
	if (!tqp_stream_back(sk, was->stream)) {
		if (was->stream)
			tqp_stream_destroy(was->stream);
		tqp_stream_leave(sk, was);
	}
	release_sock(sk);
}

/* Calls that ask for the socket to be TCP's own: another ULP, and an IPv6 socket that becomes an IPv4 one. */
static bool tqp_stream_in_the_way(int level, int optname, sockptr_t optval, unsigned int optlen)
{
	return (level == SOL_TCP && optname == TCP_ULP && !tqp_stream_is_name(optval, optlen)) ||
	       (level == SOL_IPV6 && optname == IPV6_ADDRFORM);
}

/*
 * A listener keeps our operations and the ULP.  TCP looks at these before it looks at the
 * state, for which a listener without them is refused.
 */
static bool tqp_stream_kept(const struct sock *sk, int level, int err)
{
	return READ_ONCE(sk->sk_state) == TCP_LISTEN && err == (level == SOL_TCP ? -EEXIST : -EBUSY);
}

static int tqp_stream_setsockopt(struct sock *sk, int level, int optname, sockptr_t optval,
				 unsigned int optlen)
{
	bool in_the_way = tqp_stream_in_the_way(level, optname, optval, optlen);
	struct tqp_stream_yielded was = {};
	int err;

	if (in_the_way) {
		err = tqp_stream_yield(sk, &was);
		if (err) {
			kfree(was.held);
			return err;
		}
	}
	/* Another thread may have made it another ULP's by now. */
	err = tqp_stream_base(READ_ONCE(sk->sk_prot))->setsockopt(sk, level, optname, optval,
								  optlen);
	if (was.yielded)
		tqp_stream_yielded(sk, &was);
	kfree(was.held);
	return in_the_way && tqp_stream_kept(sk, level, err) ? -ENOTCONN : err;
}

/* The sk lock.  What was placed and not read is purged as all that was received. */
static int tqp_stream_disconnect(struct sock *sk, int flags)
{
	struct tqp_stream *stream = tqp_stream_of(sk);

	if (stream && stream->place)
		tqp_place_leave(stream);
	tqp_splice_take_off(sk);
	return tqp_stream_base(sk->sk_prot)->disconnect(sk, flags);
}

/* ---- what ss shows ---- */

static size_t tqp_stream_get_info_size(TQP_ULP_INFO_PARAMS(const struct sock *sk))
{
	return nla_total_size(sizeof(struct tcp_qp_stream_info));
}

/* Without the sk lock. */
static int tqp_stream_get_info(TQP_ULP_INFO_PARAMS(struct sock *sk, struct sk_buff *skb))
{
	struct tcp_qp_stream_info info = {};
	const struct tqp_stream *stream;

	rcu_read_lock();
	stream = tqp_stream_rcu(sk);
	if (stream) {
		info.tx_large_bytes = READ_ONCE(stream->large_bytes);
		info.tx_other_bytes = READ_ONCE(stream->other_bytes);
		info.pool_bytes = READ_ONCE(stream->bytes);
		info.rx_placed_bytes = READ_ONCE(stream->placed_bytes);
		info.rx_posts = READ_ONCE(stream->posts);
		info.rx_rescued_bytes = READ_ONCE(stream->rescued_bytes);
	}
	rcu_read_unlock();
	return nla_put(skb, TCP_QP_STREAM_DIAG_INFO, sizeof(info), &info);
}

/* Who may load modules does so by asking for it. */
MODULE_ALIAS_TCP_ULP(TCP_QP_STREAM_ULP_NAME);

struct tcp_ulp_ops tqp_stream_ulp_ops = {
	.name = TCP_QP_STREAM_ULP_NAME,
	.owner = THIS_MODULE,
	.init = tqp_stream_ulp_init,
	.clone = tqp_stream_ulp_clone,
	.release = tqp_stream_ulp_release,
	.get_info = tqp_stream_get_info,
	.get_info_size = tqp_stream_get_info_size,
};

int tqp_stream_init(void)
{
	int err = tqp_stream_flush_init();

	if (err)
		return err;
	for (u32 i = 0; i < ARRAY_SIZE(tqp_stream_families); i++) {
		tqp_stream_families[i].prot = *tqp_stream_families[i].base;
		tqp_stream_families[i].prot.sendmsg = tqp_stream_sendmsg;
		tqp_stream_recv_ops(&tqp_stream_families[i].prot);
		tqp_stream_families[i].prot.disconnect = tqp_stream_disconnect;
		tqp_stream_families[i].prot.setsockopt = tqp_stream_setsockopt;
		tqp_stream_families[i].prot.getsockopt = tqp_stream_getsockopt;
	}
	err = tcp_register_ulp(&tqp_stream_ulp_ops);
	if (err) {
		tqp_stream_flush_exit();
		return err;
	}
	tqp_stream_kfunc_init();
	return 0;
}

void tqp_stream_exit(void)
{
	tcp_unregister_ulp(&tqp_stream_ulp_ops);
	tqp_place_exit();
	tqp_stream_pages_exit();
	tqp_stream_flush_exit();
	flush_work(&tqp_stream_put_work);
	rcu_barrier();	/* sockets that are freed after a grace period, and pages' books */
}
