// SPDX-License-Identifier: GPL-2.0
/*
 * The socket side: what of a TCP socket is ours while it carries a QP.
 *
 * Replaced from attach to close: sk_prot, socket ops, the four sk callbacks.
 * Replaced from attach to the socket's destruction, since TCP may retransmit
 * after close: icsk_af_ops, icsk_clean_acked.
 */
#include <linux/module.h>
#include <linux/net.h>
#include <net/inet_common.h>
#include <net/transp_v6.h>
#include "conn.h"

enum { TQP_FAMILIES_MAX = 8 };

static struct tqp_family *tqp_families[TQP_FAMILIES_MAX];
static DEFINE_MUTEX(tqp_family_mutex);

/* Attaches whose TCP_ULP setsockopt is on its way into our init. */
struct tqp_pending {
	struct list_head node;
	struct tqp_conn *conn;
};
static LIST_HEAD(tqp_pending_list);
static DEFINE_SPINLOCK(tqp_pending_lock);

/* ---- what the application may still do with the socket ---- */

/* Bytes that arrived before the peer's first message are plain TCP. */
static u32 tqp_plain_bytes(struct sock *sk)
{
	u32 seq = tcp_sk(sk)->copied_seq, bytes = 0;
	struct sk_buff *skb;

	skb_queue_walk(&sk->sk_receive_queue, skb) {
		if (tqp_skb_map(skb) || skb->decrypted)
			break;
		if (before(seq, TCP_SKB_CB(skb)->seq + skb->len))
			bytes = TCP_SKB_CB(skb)->seq + skb->len - seq;
	}
	return bytes;
}

static int tqp_recvmsg(struct sock *sk, struct msghdr *msg, size_t len, int flags, int *addr_len)
{
	struct tqp_conn *conn = tqp_conn_of(sk);
	bool drained;
	u32 plain;

	lock_sock(sk);
	plain = conn->rx_started ? 0 : tqp_plain_bytes(sk);
	drained = skb_queue_empty(&sk->sk_receive_queue);
	release_sock(sk);
	if (!plain && !(drained && (sk->sk_shutdown & RCV_SHUTDOWN || sk->sk_err)))
		return -EAGAIN;
	flags &= ~(MSG_WAITALL | MSG_OOB);
	return conn->family->base_prot->recvmsg(sk, msg, min_t(size_t, len, plain),
						flags | MSG_DONTWAIT, addr_len);
}

static int tqp_sendmsg(struct sock *sk, struct msghdr *msg, size_t size)
{
	return -EOPNOTSUPP;	/* a byte here would belong to no message */
}

static int tqp_disconnect(struct sock *sk, int flags)
{
	return -EOPNOTSUPP;
}

static int tqp_setsockopt(struct sock *sk, int level, int optname, sockptr_t optval,
			  unsigned int optlen)
{
	struct tqp_conn *conn = tqp_conn_of(sk);

	/* these would change the header space that ext_hdr_bytes accounts for */
	if (level == SOL_TCP && (optname == TCP_REPAIR || optname == TCP_MD5SIG ||
				 optname == TCP_MD5SIG_EXT))
		return -EBUSY;
	if (level == SOL_IPV6 && (optname == IPV6_HOPOPTS || optname == IPV6_RTHDR ||
				  optname == IPV6_RTHDRDSTOPTS || optname == IPV6_DSTOPTS ||
				  optname == IPV6_2292PKTOPTIONS || optname == IPV6_ADDRFORM))
		return -EBUSY;
	return conn->family->base_prot->setsockopt(sk, level, optname, optval, optlen);
}

static int tqp_getsockopt(struct sock *sk, int level, int optname, char __user *optval,
			  int __user *optlen)
{
	struct tqp_conn *conn = tqp_conn_of(sk);

	if (level == SOL_TCP && optname == TCP_ZEROCOPY_RECEIVE)
		return -EOPNOTSUPP;
	return conn->family->base_prot->getsockopt(sk, level, optname, optval, optlen);
}

static int tqp_set_rcvlowat(struct sock *sk, int val)
{
	return -EOPNOTSUPP;	/* the receive loop must hear of every byte */
}

static void tqp_close(struct sock *sk, long timeout)
{
	struct tqp_conn *conn;
	struct proto *base;

	lock_sock(sk);
	conn = tqp_conn_get(tqp_conn_of(sk));
	base = conn->family->base_prot;
	tqp_conn_fail(conn, TCP_QP_REASON_PEER_CLOSED);
	tqp_ulp_restore(conn);
	release_sock(sk);
	tqp_conn_offload_stop(conn);
	base->close(sk, timeout);
	tqp_conn_put(conn);
}

static bool tqp_sock_is_readable(struct sock *sk)
{
	return tqp_plain_bytes(sk) || sk->sk_err || sk->sk_shutdown & RCV_SHUTDOWN;
}

/* ---- our copies of a family's operations ---- */

static struct tqp_family *tqp_family_make(struct sock *sk)
{
	struct tqp_family *family = kzalloc(sizeof(*family), GFP_KERNEL);

	if (!family)
		return NULL;
	family->base_prot = sk->sk_prot;
	family->base_ops = sk->sk_socket->ops;
	family->base_af = inet_csk(sk)->icsk_af_ops;

	family->prot = *family->base_prot;
	family->prot.close = tqp_close;
	family->prot.disconnect = tqp_disconnect;
	family->prot.setsockopt = tqp_setsockopt;
	family->prot.getsockopt = tqp_getsockopt;
	family->prot.sendmsg = tqp_sendmsg;
	family->prot.recvmsg = tqp_recvmsg;
	family->prot.splice_eof = NULL;
	family->prot.sock_is_readable = tqp_sock_is_readable;
#ifdef CONFIG_BPF_SYSCALL
	family->prot.psock_update_sk_prot = NULL;
#endif

	family->ops = *family->base_ops;
	family->ops.splice_read = NULL;		/* the generic one goes through recvmsg */
	family->ops.splice_eof = NULL;
	family->ops.read_sock = NULL;
	family->ops.read_skb = NULL;
	family->ops.mmap = sock_no_mmap;
	family->ops.set_rcvlowat = tqp_set_rcvlowat;

	family->af = *family->base_af;
	family->af.queue_xmit = tqp_queue_xmit;
	return family;
}

static const struct tqp_family *tqp_family_get(struct sock *sk)
{
	struct tqp_family *family = NULL;
	int i;

	mutex_lock(&tqp_family_mutex);
	for (i = 0; i < TQP_FAMILIES_MAX; i++) {
		family = tqp_families[i];
		if (!family)
			family = tqp_families[i] = tqp_family_make(sk);
		if (!family || (family->base_prot == sk->sk_prot &&
				family->base_ops == sk->sk_socket->ops &&
				family->base_af == inet_csk(sk)->icsk_af_ops))
			break;
		family = NULL;
	}
	mutex_unlock(&tqp_family_mutex);
	return family;
}

/* ---- callbacks, sk lock held by whoever calls ---- */

static void tqp_data_ready(struct sock *sk)
{
	struct tqp_conn *conn = tqp_conn_of(sk);

	tqp_rx_run(conn);
	if (!conn->rx_started && tcp_sk(sk)->rcv_nxt != tcp_sk(sk)->copied_seq)
		conn->saved_data_ready(sk);
}

static void tqp_write_space(struct sock *sk)
{
	struct tqp_conn *conn = tqp_conn_of(sk);

	if (conn->state == TQP_CONN_DEAD && conn->tx_wait_space) {
		WRITE_ONCE(conn->tx_wait_space, false);
		wake_up_all(&conn->wait);	/* of TERMINATE */
	} else if (conn->tx_wait_space) {
		tqp_tx_kick(conn);
	}
	conn->saved_write_space(sk);
}

/* Everything received before the end is delivered before the QP fails. */
static void tqp_state_change(struct sock *sk)
{
	struct tqp_conn *conn = tqp_conn_of(sk);

	tqp_rx_run(conn);
	if (sk->sk_state == TCP_CLOSE) {
		if (conn->qp)
			tqp_count(conn->dev, TQP_C_peer_resets, 1);
		tqp_conn_fail(conn, TCP_QP_REASON_PEER_CLOSED);
	}
	tqp_conn_notify(conn);
	conn->saved_state_change(sk);
}

static void tqp_error_report(struct sock *sk)
{
	struct tqp_conn *conn = tqp_conn_of(sk);

	tqp_rx_run(conn);
	conn->sk_err = sk->sk_err;
	if (sk->sk_err && sk->sk_state == TCP_CLOSE)
		tqp_conn_fail(conn, TCP_QP_REASON_PEER_CLOSED);
	conn->saved_error_report(sk);
}

/* ---- MSS: room for the option, and payload cut at 128-byte lines ---- */

void tqp_mss_update(struct tqp_conn *conn)
{
	struct inet_connection_sock *icsk = inet_csk(conn->sk);
	struct tcp_sock *tp = tcp_sk(conn->sk);
	int stack_opts = tp->tcp_header_len - sizeof(struct tcphdr);
	int base, mss;

	sock_owned_by_me(conn->sk);
	if (conn->ext_hdr_bytes && conn->mss_pmtu == icsk->icsk_pmtu_cookie)
		return;
	icsk->icsk_ext_hdr_len -= conn->ext_hdr_bytes;
	conn->mss_pmtu = icsk->icsk_pmtu_cookie;
	base = min_t(int, conn->mss_pmtu - icsk->icsk_af_ops->net_header_len - sizeof(struct tcphdr),
		     tp->rx_opt.mss_clamp) - icsk->icsk_ext_hdr_len;
	mss = base - TCP_BTH_OPT_MAX_BYTES;
	if (mss >= TQP_MSS_ROUND_MIN_BYTES)
		mss = rounddown(mss, TCP_BTH_MSS_MULTIPLE_BYTES);
	/* the stack takes its own options off the MSS; we write ours in their place */
	conn->ext_hdr_bytes = base - stack_opts - mss;
	icsk->icsk_ext_hdr_len += conn->ext_hdr_bytes;
	icsk->icsk_sync_mss(conn->sk, conn->mss_pmtu);
}

/* ---- install and remove ---- */

static void tqp_ulp_install(struct tqp_conn *conn)
{
	struct sock *sk = conn->sk;
	struct inet_connection_sock *icsk = inet_csk(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	tcp_write_collapse_fence(sk);
	conn->timestamps = tp->rx_opt.tstamp_ok;
	clean_acked_data_enable(icsk, tqp_clean_acked);
	tqp_mss_update(conn);
	tp->nonagle |= TCP_NAGLE_OFF;
	WRITE_ONCE(sk->sk_rcvlowat, 1);
	if (sk->sk_sndbuf < TQP_SNDBUF_BYTES) {
		WRITE_ONCE(sk->sk_sndbuf, TQP_SNDBUF_BYTES);
		sk->sk_userlocks |= SOCK_SNDBUF_LOCK;
	}
	rcu_assign_pointer(icsk->icsk_ulp_data, conn);

	write_lock_bh(&sk->sk_callback_lock);
	conn->saved_data_ready = sk->sk_data_ready;
	conn->saved_write_space = sk->sk_write_space;
	conn->saved_state_change = sk->sk_state_change;
	conn->saved_error_report = sk->sk_error_report;
	WRITE_ONCE(sk->sk_prot, (struct proto *)&conn->family->prot);
	WRITE_ONCE(sk->sk_data_ready, tqp_data_ready);
	WRITE_ONCE(sk->sk_write_space, tqp_write_space);
	sk->sk_state_change = tqp_state_change;
	sk->sk_error_report = tqp_error_report;
	write_unlock_bh(&sk->sk_callback_lock);
	WRITE_ONCE(sk->sk_socket->ops, &conn->family->ops);
	WRITE_ONCE(icsk->icsk_af_ops, &conn->family->af);
	conn->installed = true;
}

void tqp_ulp_restore(struct tqp_conn *conn)
{
	struct sock *sk = conn->sk;

	sock_owned_by_me(sk);
	if (!conn->installed)
		return;
	conn->installed = false;
	write_lock_bh(&sk->sk_callback_lock);
	WRITE_ONCE(sk->sk_prot, conn->family->base_prot);
	WRITE_ONCE(sk->sk_data_ready, conn->saved_data_ready);
	WRITE_ONCE(sk->sk_write_space, conn->saved_write_space);
	sk->sk_state_change = conn->saved_state_change;
	sk->sk_error_report = conn->saved_error_report;
	write_unlock_bh(&sk->sk_callback_lock);
	if (sk->sk_socket)
		WRITE_ONCE(sk->sk_socket->ops, conn->family->base_ops);
}

/* The af_ops side ends with the socket, or with a QP that never sent. */
static void tqp_ulp_release_tx(struct tqp_conn *conn)
{
	struct inet_connection_sock *icsk = inet_csk(conn->sk);

	if (icsk->icsk_af_ops == &conn->family->af) {
		WRITE_ONCE(icsk->icsk_af_ops, conn->family->base_af);
		clean_acked_data_disable(icsk);
	}
	icsk->icsk_ext_hdr_len -= conn->ext_hdr_bytes;
	conn->ext_hdr_bytes = 0;
}

static bool tqp_socket_usable(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (sk->sk_user_data || sk_is_mptcp(sk) || tp->repair)
		return false;
#ifdef CONFIG_TCP_MD5SIG
	if (rcu_dereference_protected(tp->md5sig_info, lockdep_sock_is_held(sk)))
		return false;
#endif
	return sk->sk_socket && sk->sk_route_caps & NETIF_F_SG;
}

static int tqp_ulp_setup(struct sock *sk, struct tqp_conn *conn)
{
	if (sk->sk_state != TCP_ESTABLISHED)
		return -ENOTCONN;
	if (!tqp_socket_usable(sk))
		return -EBUSY;
	conn->family = tqp_family_get(sk);
	if (!conn->family)
		return -EBUSY;
	tqp_ulp_install(tqp_conn_get(conn));	/* the socket's reference */
	return 0;
}

static struct tqp_conn *tqp_pending_find(const struct sock *sk)
{
	struct tqp_pending *p;
	struct tqp_conn *conn = NULL;

	spin_lock(&tqp_pending_lock);
	list_for_each_entry(p, &tqp_pending_list, node)
		if (p->conn->sk == sk)
			conn = p->conn;
	spin_unlock(&tqp_pending_lock);
	return conn;
}

/* TCP_ULP by an application alone would make a QP without a QP. */
static int tqp_ulp_sk_init(struct sock *sk)
{
	struct tqp_conn *conn = tqp_pending_find(sk);

	return conn ? tqp_ulp_setup(sk, conn) : -EPERM;
}

static void tqp_ulp_sk_release(struct sock *sk)
{
	struct inet_connection_sock *icsk = inet_csk(sk);
	struct tqp_conn *conn = tqp_conn_of(sk);

	tqp_conn_fail(conn, TCP_QP_REASON_PEER_CLOSED);
	tqp_tx_drop(conn);
	tqp_ulp_release_tx(conn);
	rcu_assign_pointer(icsk->icsk_ulp_data, NULL);
	tqp_conn_put(conn);
}

static void tqp_ulp_sk_update(struct sock *sk, struct proto *proto,
			      void (*write_space)(struct sock *sk))
{
	/* sockmap cannot have taken this socket: psock_update_sk_prot is NULL */
	WARN_ON_ONCE(1);
}

struct tcp_ulp_ops tqp_ulp_ops = {
	.name = TCP_QP_ULP_NAME,
	.owner = THIS_MODULE,
	.init = tqp_ulp_sk_init,
	.update = tqp_ulp_sk_update,
	.release = tqp_ulp_sk_release,
};

/* The socket had a QP that ended before its first byte: the ULP is still there. */
static int tqp_ulp_reattach(struct sock *sk, struct tqp_conn *conn)
{
	struct tqp_conn *old;
	int err = -EEXIST;

	lock_sock(sk);
	if (inet_csk(sk)->icsk_ulp_ops == &tqp_ulp_ops) {
		old = tqp_conn_of(sk);
		err = -EBUSY;
		if (!old->installed && old->state == TQP_CONN_DEAD && !old->rx_started &&
		    !old->tx_msn) {
			tqp_ulp_release_tx(old);
			err = tqp_ulp_setup(sk, conn);
			if (!err)
				tqp_conn_put(old);
		}
	}
	release_sock(sk);
	return err;
}

int tqp_ulp_attach(struct socket *sock, struct tqp_conn *conn)
{
	struct tqp_pending pending = { .conn = conn };
	char name[] = TCP_QP_ULP_NAME;
	int err;

	spin_lock(&tqp_pending_lock);
	list_add(&pending.node, &tqp_pending_list);
	spin_unlock(&tqp_pending_lock);
	err = do_sock_setsockopt(sock, false, SOL_TCP, TCP_ULP, KERNEL_SOCKPTR(name),
				 sizeof(name) - 1);
	spin_lock(&tqp_pending_lock);
	list_del(&pending.node);
	spin_unlock(&tqp_pending_lock);
	if (err == -EEXIST)
		err = tqp_ulp_reattach(sock->sk, conn);
	return err;
}

int tqp_ulp_init(void)
{
	return tcp_register_ulp(&tqp_ulp_ops);
}

void tqp_ulp_exit(void)
{
	tcp_unregister_ulp(&tqp_ulp_ops);	/* waits for RCU readers of the ops */
	clean_acked_data_flush();
	for (int i = 0; i < TQP_FAMILIES_MAX; i++)
		kfree(tqp_families[i]);
}
