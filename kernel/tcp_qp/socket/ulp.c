// SPDX-License-Identifier: GPL-2.0
/*
 * The socket side: what of a TCP socket is ours while it carries a QP.
 *
 * Replaced from attach to close: sk_prot, socket ops, three sk callbacks.
 * Replaced from attach to the socket's destruction, since TCP may retransmit
 * after close: icsk_af_ops, icsk_clean_acked.  A QP that parts before its first
 * byte leaves all of them as they were.
 *
 * sk_error_report stays TCP's: sock_queue_err_skb() calls it from drivers,
 * qdiscs and in the middle of tcp_ack(), for a timestamp or a notification, and
 * never tells of an end that sk_state_change does not tell of under the lock.
 */
#include <linux/module.h>
#include <linux/net.h>
#include "rx/rx.h"
#include "socket/socket.h"
#include "tx/tx.h"

/* An attach whose TCP_ULP setsockopt is on its way into our init, in the same task. */
struct tqp_pending {
	struct list_head node;
	const struct task_struct *task;
	struct sock *sk;
	struct tqp_conn *conn;
	bool attached;			/* init succeeded; sk lock */
};

static LIST_HEAD(tqp_pending_list);
static DEFINE_SPINLOCK(tqp_pending_lock);

/*
 * ---- callbacks ----
 *
 * Each of them is called under the socket lock, in either of its forms, and
 * relies on it: the conn is the ULP's, which ends under that lock, too.
 */

/* tcp_data_ready(), from tcp_rcv_established() and the like: softirq, or backlog in process context. */
static void tqp_data_ready(struct sock *sk)
{
	struct tqp_conn *conn = tqp_conn_of(sk);

	sock_owned_by_me(sk);
	tqp_rx_ready(conn);
	if (!conn->rx.started && tcp_sk(sk)->rcv_nxt != tcp_sk(sk)->copied_seq)
		conn->socket.saved.data_ready(sk);
}

/*
 * tcp_new_space(), as data_ready; SO_SNDBUF, in process context.  Not sock_wfree(): a
 * TCP socket has SOCK_USE_WRITE_QUEUE.
 */
static void tqp_write_space(struct sock *sk)
{
	struct tqp_conn *conn = tqp_conn_of(sk);

	sock_owned_by_me(sk);
	if (conn->state == TQP_CONN_DEAD && tqp_tx_waits(&conn->tx, TQP_TX_WAIT_SPACE)) {
		tqp_tx_wait_over(&conn->tx, TQP_TX_WAIT_SPACE);
		wake_up_all(&conn->wait);	/* of TERMINATE */
	} else if (tqp_tx_waits(&conn->tx, TQP_TX_WAIT_SPACE)) {
		tqp_tx_kick(conn);
	}
	conn->socket.saved.write_space(sk);
}

/*
 * tcp_fin(), tcp_done() of a reset, a timer or tcp_abort(): as data_ready, and timers;
 * shutdown(2), in process context.  Everything received before the end is delivered
 * before the QP fails.
 */
static void tqp_state_change(struct sock *sk)
{
	struct tqp_conn *conn = tqp_conn_of(sk);

	sock_owned_by_me(sk);
	tqp_rx_run(conn);
	conn->end.sk_err = sk->sk_err;	/* tcp_done_with_error() set it; the application may take it away */
	if (sk->sk_state == TCP_CLOSE) {
		if (conn->qp)
			tqp_count(conn->dev, TQP_C_peer_resets, 1);
		if (!tqp_rx_goes_on(conn))
			tqp_conn_fail(conn, TCP_QP_REASON_PEER_CLOSED);
		tqp_end_wake(conn);	/* why we end was heard, or never will be */
	}
	tqp_conn_notify(conn);
	conn->socket.saved.state_change(sk);
}

/* ---- install and remove ---- */

/* SO_SNDBUF's bound, or the one of TCP's own tuning; who may say SO_SNDBUFFORCE has what it needs. */
static int tqp_sndbuf_bytes(const struct tqp_conn *conn)
{
	struct net *net = sock_net(conn->sk);
	u32 most = max_t(u32, READ_ONCE(net->ipv4.sysctl_tcp_wmem[2]),
			 2 * min_t(u32, READ_ONCE(sysctl_wmem_max), TQP_SNDBUF_BYTES));

	return conn->qp->net_admin ? TQP_SNDBUF_BYTES : min_t(u32, most, TQP_SNDBUF_BYTES);
}

static void tqp_sock_tune(struct tqp_conn *conn)
{
	struct sock *sk = conn->sk;
	struct tqp_sock_saved *saved = &conn->socket.saved;
	int sndbuf = tqp_sndbuf_bytes(conn);

	saved->nagle_off = tcp_sk(sk)->nonagle & TCP_NAGLE_OFF;
	saved->rcvlowat = sk->sk_rcvlowat;
	saved->sndbuf = sk->sk_sndbuf;
	saved->sndbuf_locked = sk->sk_userlocks & SOCK_SNDBUF_LOCK;
	tcp_sk(sk)->nonagle |= TCP_NAGLE_OFF;
	WRITE_ONCE(sk->sk_rcvlowat, 1);
	if (sk->sk_sndbuf < sndbuf) {
		WRITE_ONCE(sk->sk_sndbuf, sndbuf);
		sk->sk_userlocks |= SOCK_SNDBUF_LOCK;
	}
}

static void tqp_sock_untune(struct tqp_conn *conn)
{
	struct sock *sk = conn->sk;
	const struct tqp_sock_saved *saved = &conn->socket.saved;
	struct dst_entry *dst;

	if (!saved->nagle_off)
		tcp_sk(sk)->nonagle &= ~TCP_NAGLE_OFF;
	WRITE_ONCE(sk->sk_rcvlowat, saved->rcvlowat);
	if (sk->sk_sndbuf == tqp_sndbuf_bytes(conn)) {	/* else the application changed it */
		WRITE_ONCE(sk->sk_sndbuf, saved->sndbuf);
		if (!saved->sndbuf_locked)
			sk->sk_userlocks &= ~SOCK_SNDBUF_LOCK;
	}
	if (!saved->gso_disabled)
		return;
	sk->sk_gso_disabled = 0;
	dst = sk_dst_get(sk);
	if (dst)
		sk_setup_caps(sk, dst);		/* takes the reference */
}

static void tqp_ulp_install(struct tqp_conn *conn)
{
	struct sock *sk = conn->sk;
	struct inet_connection_sock *icsk = inet_csk(sk);

	tcp_write_collapse_fence(sk);
	conn->rx.told_ack = tcp_sk(sk)->rcv_wup;
	conn->rx.told_edge = conn->rx.told_ack + tcp_sk(sk)->rcv_wnd;
	conn->timestamps = tcp_sk(sk)->rx_opt.tstamp_ok;
	clean_acked_data_enable(tqp_clean_acked_sk(sk), tqp_clean_acked);
	tqp_mss_update(conn);
	tqp_sock_tune(conn);
	rcu_assign_pointer(icsk->icsk_ulp_data, conn);
	conn->socket.saved.delack_max = icsk->icsk_delack_max;
	icsk->icsk_delack_max = min_t(u32, icsk->icsk_delack_max, msecs_to_jiffies(TQP_DELACK_MAX_MS));

	write_lock_bh(&sk->sk_callback_lock);
	conn->socket.saved.data_ready = sk->sk_data_ready;
	conn->socket.saved.write_space = sk->sk_write_space;
	conn->socket.saved.state_change = sk->sk_state_change;
	/* psocks, KCM and whoever else would replace the callbacks look at this */
	rcu_assign_sk_user_data(sk, (void *)conn->socket.family);
	WRITE_ONCE(sk->sk_prot, (struct proto *)&conn->socket.family->prot);
	WRITE_ONCE(sk->sk_data_ready, tqp_data_ready);
	WRITE_ONCE(sk->sk_write_space, tqp_write_space);
	sk->sk_state_change = tqp_state_change;
	write_unlock_bh(&sk->sk_callback_lock);
	WRITE_ONCE(sk->sk_socket->ops, &conn->socket.family->ops);
	WRITE_ONCE(icsk->icsk_af_ops, &conn->socket.family->af);
	conn->socket.installed = true;
}

void tqp_ulp_restore(struct tqp_conn *conn)
{
	struct sock *sk = conn->sk;

	sock_owned_by_me(sk);
	if (!conn->socket.installed)
		return;
	spin_lock_bh(&sk->sk_lock.slock);	/* no tqp_release_cb() from here on */
	conn->socket.installed = false;
	tqp_deferred_queue(conn);
	spin_unlock_bh(&sk->sk_lock.slock);
	inet_csk(sk)->icsk_delack_max = conn->socket.saved.delack_max;
	write_lock_bh(&sk->sk_callback_lock);
	WRITE_ONCE(sk->sk_prot, conn->socket.family->base_prot);
	WRITE_ONCE(sk->sk_data_ready, conn->socket.saved.data_ready);
	WRITE_ONCE(sk->sk_write_space, conn->socket.saved.write_space);
	sk->sk_state_change = conn->socket.saved.state_change;
	rcu_assign_sk_user_data(sk, NULL);
	write_unlock_bh(&sk->sk_callback_lock);
	if (sk->sk_socket)
		WRITE_ONCE(sk->sk_socket->ops, conn->socket.family->base_ops);
}

/* The af_ops side ends with the socket, or with a QP that never sent. */
static void tqp_ulp_release_tx(struct tqp_conn *conn)
{
	struct inet_connection_sock *icsk = inet_csk(conn->sk);

	if (icsk->icsk_af_ops == &conn->socket.family->af) {
		WRITE_ONCE(icsk->icsk_af_ops, conn->socket.family->base_af);
		clean_acked_data_disable(tqp_clean_acked_sk(conn->sk));
	}
	icsk->icsk_ext_hdr_len -= conn->socket.ext_hdr_bytes;
	conn->socket.ext_hdr_bytes = 0;
}

void tqp_ulp_undo(struct tqp_conn *conn)
{
	struct sock *sk = conn->sk;

	sock_owned_by_me(sk);
	if (!conn->socket.installed)
		return;
	conn->socket.undone = true;
	tqp_ulp_restore(conn);
	tqp_ulp_release_tx(conn);
	tqp_sock_untune(conn);
	inet_csk(sk)->icsk_sync_mss(sk, inet_csk(sk)->icsk_pmtu_cookie);
}

/* ---- which sockets ---- */

ushort tqp_number_port = TCP_QP_NUMBER_PORT;
module_param_named(number_port, tqp_number_port, ushort, 0444);
MODULE_PARM_DESC(number_port,
		 "TCP port of connections by number, the same on all hosts (default 791); 0: none");

/*
 * What is said there is believed: a QP has there whoever the kernel at the other end found,
 * not who says that he is it.
 */
static bool tqp_socket_reserved(const struct sock *sk, const struct tqp_conn *conn)
{
	const struct inet_sock *inet = inet_sk(sk);
	__be16 port = htons(tqp_number_port);

	return !conn->owner && port && (inet->inet_sport == port || inet->inet_dport == port);
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
	return sk->sk_socket;
}

/*
 * A thread that sleeps in send() or recv() goes on with TCP's own operation,
 * however long the QP has been there by then.  sk_wait_data() and
 * sk_stream_wait_memory() leave the queue after they have the lock again, so
 * under the lock all of them are seen, and none of those who poll.
 */
static bool tqp_socket_in_use(struct sock *sk)
{
	struct wait_queue_head *wait = sk_sleep(sk);
	struct wait_queue_entry *entry;
	unsigned long flags;
	bool found = false;

	sock_owned_by_me(sk);
	spin_lock_irqsave(&wait->lock, flags);
	list_for_each_entry(entry, &wait->head, entry) {
		found = entry->func == woken_wake_function;
		if (found)
			break;
	}
	spin_unlock_irqrestore(&wait->lock, flags);
	return found;
}

static int tqp_ulp_setup(struct sock *sk, struct tqp_conn *conn)
{
	if (sk->sk_state != TCP_ESTABLISHED)
		return -ENOTCONN;
	if (tqp_socket_reserved(sk, conn)) {
		conn->reason = TCP_QP_REASON_RESERVED_PORT;
		return -EPERM;
	}
	if (!tqp_socket_usable(sk))
		return -EBUSY;
	if (!(sk->sk_route_caps & NETIF_F_SG)) {
		conn->reason = TCP_QP_REASON_NO_SG;
		return -EBUSY;
	}
	if (tqp_socket_in_use(sk)) {
		conn->reason = TCP_QP_REASON_SOCKET_IN_USE;
		return -EBUSY;
	}
	conn->socket.family = tqp_family_get(sk);
	if (!conn->socket.family)
		return -EBUSY;
	tqp_ulp_install(tqp_conn_get(conn));	/* the socket's reference */
	return 0;
}

/* ---- the ULP ---- */

/*
 * What this very task is attaching to this socket, once.  The list is the capability: no
 * setsockopt of another task finds it, whatever socket it is for.
 */
static struct tqp_pending *tqp_pending_take(const struct sock *sk)
{
	struct tqp_pending *p, *found = NULL;

	spin_lock(&tqp_pending_lock);
	list_for_each_entry(p, &tqp_pending_list, node) {
		if (p->task == current && p->sk == sk) {
			found = p;
			list_del_init(&p->node);
			break;
		}
	}
	spin_unlock(&tqp_pending_lock);
	return found;
}

/* TCP_ULP by an application alone would make a QP without a QP. */
static int tqp_ulp_sk_init(struct sock *sk)
{
	struct tqp_pending *pending = tqp_pending_take(sk);
	int err;

	if (!pending)
		return -EPERM;
	err = tqp_ulp_setup(sk, pending->conn);
	pending->attached = !err;
	return err;
}

/* Of a socket that is being destroyed: nobody else has it, whether it is locked or not. */
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

/* ---- attach ---- */

/* The socket had a QP that parted before its first byte: the ULP is still there. */
static int tqp_ulp_reattach(struct sock *sk, struct tqp_conn *conn)
{
	struct tqp_conn *old;
	int err = -EEXIST;

	lock_sock(sk);
	if (inet_csk(sk)->icsk_ulp_ops == &tqp_ulp_ops) {
		old = tqp_conn_of(sk);
		err = old->socket.undone ? tqp_ulp_setup(sk, conn) : -EBUSY;
		if (!err)
			tqp_conn_put(old);	/* RCU: the hook may look at it */
	}
	release_sock(sk);
	return err;
}

int tqp_ulp_attach(struct socket *sock, struct tqp_conn *conn)
{
	struct tqp_pending pending = { .task = current, .sk = sock->sk, .conn = conn };
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
		return tqp_ulp_reattach(sock->sk, conn);
	if (!err && !pending.attached)
		return -EPERM;		/* a BPF program of the cgroup answered in TCP's place */
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
	tqp_family_exit();
}
