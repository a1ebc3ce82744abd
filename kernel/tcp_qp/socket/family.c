// SPDX-License-Identifier: GPL-2.0
/*
 * Our copies of a socket family's operations: what the application may still
 * do with a socket that has a QP.
 *
 * Whoever is about to call one may have read its address before attach or
 * before the QP parted, so each of them finds what it needs from sk_prot, and
 * touches a conn only under the socket lock or with a reference taken there.
 */
#include <linux/net.h>
#include <net/inet_common.h>
#include <net/transp_v6.h>
#include "conn/skb_map.h"
#include "handshake/handshake.h"
#include "offload/offload.h"
#include "rx/rx.h"
#include "socket/socket.h"
#include "tx/tx.h"

enum {
	TQP_FAMILIES_MAX = 8,
};

static struct tqp_family *tqp_families[TQP_FAMILIES_MAX];
static DEFINE_MUTEX(tqp_family_mutex);

static void tqp_close(struct sock *sk, long timeout);

/* The family whose operations @sk has now; NULL: they are TCP's own. */
static const struct tqp_family *tqp_family_of(const struct sock *sk)
{
	const struct proto *prot = READ_ONCE(sk->sk_prot);

	return prot->close == tqp_close ? container_of(prot, struct tqp_family, prot) : NULL;
}

static const struct proto *tqp_base_prot(const struct sock *sk)
{
	const struct tqp_family *family = tqp_family_of(sk);

	return family ? family->base_prot : READ_ONCE(sk->sk_prot);
}

/* ---- bytes that are not the QP's ---- */

/* Bytes that arrived before the peer's first message are plain TCP. */
static u32 tqp_plain_bytes(struct sock *sk)
{
	u32 seq = tcp_sk(sk)->copied_seq, bytes = 0;
	struct sk_buff *skb;

	sock_owned_by_me(sk);
	skb_queue_walk(&sk->sk_receive_queue, skb) {
		if (tqp_skb_ext(skb) || skb->decrypted)
			break;
		if (before(seq, TCP_SKB_CB(skb)->seq + skb->len))
			bytes = TCP_SKB_CB(skb)->seq + skb->len - seq;
	}
	return bytes - tqp_stock_hello(sk, seq, bytes);
}

/* How much of @len is recv()'s to take now, or -EAGAIN. */
static ssize_t tqp_plain_share(struct tqp_conn *conn, size_t len)
{
	struct sock *sk = conn->sk;
	ssize_t share = len;
	bool ended;

	lock_sock(sk);
	if (conn->socket.installed) {
		share = min_t(size_t, len, conn->rx.started ? 0 : tqp_plain_bytes(sk));
		ended = skb_queue_empty(&sk->sk_receive_queue) &&
			(sk->sk_shutdown & RCV_SHUTDOWN || sk->sk_err);
		if (!share && !ended)
			share = -EAGAIN;
	}
	release_sock(sk);
	return share;
}

/* One reader at a time: what one counted as plain the other might take, and more. */
static int tqp_plain_recvmsg(struct tqp_conn *conn, struct msghdr *msg, size_t len,
			     TQP_RECV_FLAGS_PARAMS)
{
	ssize_t share;
	int rc;

	if (mutex_lock_interruptible(&conn->socket.plain_mutex))
		return -EINTR;
	share = tqp_plain_share(conn, len);
	rc = share;
	if (share >= 0)
		rc = conn->socket.family->base_prot->recvmsg(conn->sk, msg, share,
							     TQP_RECV_FLAGS(flags | MSG_DONTWAIT));
	mutex_unlock(&conn->socket.plain_mutex);
	lock_sock(conn->sk);
	if (conn->socket.installed)
		tqp_rx_run(conn);	/* a message may have waited behind what was taken */
	release_sock(conn->sk);
	return rc;
}

static int tqp_recvmsg(struct sock *sk, struct msghdr *msg, size_t len, TQP_RECV_FLAGS_PARAMS)
{
	struct tqp_conn *conn = NULL;
	int rc;

	if (!(flags & MSG_ERRQUEUE)) {
		lock_sock(sk);
		if (tqp_family_of(sk))
			conn = tqp_conn_get(tqp_conn_of(sk));
		release_sock(sk);
	}
	if (!conn)
		return tqp_base_prot(sk)->recvmsg(sk, msg, len, TQP_RECV_FLAGS(flags));
	rc = tqp_plain_recvmsg(conn, msg, len, TQP_RECV_FLAGS(flags & ~(MSG_WAITALL | MSG_OOB)));
	tqp_conn_put(conn);
	return rc;
}

/* ---- the rest of what the application may do ---- */

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
	/* these would change the header space that ext_hdr_bytes accounts for */
	if (level == SOL_TCP && (optname == TCP_REPAIR || optname == TCP_MD5SIG ||
				 optname == TCP_MD5SIG_EXT))
		return -EBUSY;
	if (level == SOL_IPV6 && (optname == IPV6_HOPOPTS || optname == IPV6_RTHDR ||
				  optname == IPV6_RTHDRDSTOPTS || optname == IPV6_DSTOPTS ||
				  optname == IPV6_2292PKTOPTIONS || optname == IPV6_ADDRFORM))
		return -EBUSY;
	return tqp_base_prot(sk)->setsockopt(sk, level, optname, optval, optlen);
}

static int tqp_getsockopt(struct sock *sk, int level, int optname, char __user *optval,
			  int __user *optlen)
{
	if (level == SOL_TCP && optname == TCP_ZEROCOPY_RECEIVE)
		return -EOPNOTSUPP;
	return tqp_base_prot(sk)->getsockopt(sk, level, optname, optval, optlen);
}

static int tqp_set_rcvlowat(struct sock *sk, int val)
{
	return -EOPNOTSUPP;	/* the receive loop must hear of every byte */
}

/*
 * A task that owns the socket is about to release it, or works off its backlog in the middle of
 * sending.  It holds the spinlock, the backlog is empty, and grows again after that only.
 */
static void tqp_release_cb(struct sock *sk)
{
	const struct tqp_family *family = tqp_family_of(sk);
	struct tqp_conn *conn = tqp_conn_of(sk);

	tqp_tx_answer(conn);
	if (conn->rx.window_late)
		tqp_rx_tell_window(conn);
	if (unlikely(conn->deferred))
		tqp_deferred_queue(conn);
	family->base_prot->release_cb(sk);
}

/* The last file is gone, and with it every caller of the operations above; an attach has one. */
static void tqp_close(struct sock *sk, long timeout)
{
	struct tqp_conn *conn;
	struct proto *base;

	lock_sock(sk);
	conn = tqp_conn_get(tqp_conn_of(sk));
	base = conn->socket.family->base_prot;
	release_sock(sk);
	tqp_rx_settle(conn);
	lock_sock(sk);
	tqp_conn_fail(conn, TCP_QP_REASON_PEER_CLOSED);
	tqp_ulp_restore(conn);
	release_sock(sk);
	tqp_conn_offload_stop(conn);
	base->close(sk, timeout);
	tqp_conn_put(conn);
}

/* With the lock.  FIN says how much came, hence also what as yet the NIC alone knows of. */
static void tqp_shutdown(struct sock *sk, int how)
{
	const struct tqp_family *family = tqp_family_of(sk);
	struct tqp_conn *conn = family && how & SEND_SHUTDOWN ? tqp_conn_of(sk) : NULL;
	const struct proto *base = tqp_base_prot(sk);

	if (conn) {
		tqp_conn_get(conn);
		release_sock(sk);
		tqp_rx_settle(conn);
		lock_sock(sk);
		tqp_conn_put(conn);
	}
	base->shutdown(sk, how);
}

/* ---- the copies ---- */

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
	family->prot.shutdown = tqp_shutdown;
	family->prot.disconnect = tqp_disconnect;
	family->prot.setsockopt = tqp_setsockopt;
	family->prot.getsockopt = tqp_getsockopt;
	family->prot.sendmsg = tqp_sendmsg;
	family->prot.recvmsg = tqp_recvmsg;
	family->prot.splice_eof = NULL;
	family->prot.release_cb = tqp_release_cb;
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

const struct tqp_family *tqp_family_get(struct sock *sk)
{
	struct tqp_family *family = NULL;
	int i;

	mutex_lock(&tqp_family_mutex);
	for (i = 0; i < TQP_FAMILIES_MAX; i++) {
		if (!tqp_families[i])
			tqp_families[i] = tqp_family_make(sk);
		family = tqp_families[i];
		if (!family || (family->base_prot == sk->sk_prot &&
				family->base_ops == sk->sk_socket->ops &&
				family->base_af == inet_csk(sk)->icsk_af_ops))
			break;
		family = NULL;
	}
	mutex_unlock(&tqp_family_mutex);
	return family;
}

void tqp_family_exit(void)
{
	for (int i = 0; i < TQP_FAMILIES_MAX; i++)
		kfree(tqp_families[i]);
}
