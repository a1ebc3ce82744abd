// SPDX-License-Identifier: GPL-2.0
/* Attach: a QP and a socket are joined. */
#include <linux/module.h>
#include <linux/net.h>
#include "control/control.h"
#include "handshake/handshake.h"
#include "object/trace.h"
#include "offload/offload.h"
#include "rx/rx.h"
#include "socket/socket.h"
#include "tx/tx.h"

static bool offload = true;
module_param(offload, bool, 0644);
MODULE_PARM_DESC(offload, "new connections may be offloaded (default Y); those that exist stay as they are");

void tqp_conn_ended(struct tqp_conn *conn)
{
	smp_store_release(&conn->end.over, true);	/* the flush is seen by who sees this */
	tqp_conn_notify(conn);
}

static enum tcp_qp_reason tqp_socket_reason(const struct sock *sk)
{
	if (!sk_is_tcp(sk) || sk->sk_state != TCP_ESTABLISHED)
		return TCP_QP_REASON_SOCKET_STATE;
	return TCP_QP_REASON_NONE;
}

static bool tqp_nic_can(const struct tqp_conn *conn, u32 tx_flag)
{
	return conn->dev->offload->tx_flags & tx_flag;
}

/* Which engine can serve this socket?  The reason says why not the better one. */
static enum tcp_qp_reason tqp_offload_reason(struct tqp_conn *conn)
{
	struct dst_entry *dst;
	struct net_device *dev = NULL;
	struct tqp_offload_device *odev = conn->dev->offload;

	rcu_read_lock();
	dst = __sk_dst_get(conn->sk);
	if (dst)
		dev = dst->dev;
	rcu_read_unlock();
	if (!READ_ONCE(offload))
		return TCP_QP_REASON_OFFLOAD_OFF;
	if (!odev)
		return TCP_QP_REASON_NO_OFFLOAD_DEVICE;
	if (dev != conn->dev->netdev)	/* compared, not used */
		return TCP_QP_REASON_OTHER_DEVICE;
	return TCP_QP_REASON_NONE;
}

/* ver 0 describes one segment: nobody after us may cut the packet. */
static void tqp_send_single_segments(struct tqp_conn *conn)
{
	struct sock *sk = conn->sk;

	lock_sock(sk);
	conn->socket.saved.gso_disabled = !sk->sk_gso_disabled;
	sk_gso_disable(sk);
	sk->sk_gso_max_segs = 1;
	tcp_sk(sk)->gso_segs = 1;
	release_sock(sk);
}

static void tqp_use_software(struct tqp_conn *conn, const struct tcp_qp_attach_req *req)
{
	conn->engine = TCP_QP_ENGINE_SOFTWARE;
	conn->icrc = req->flags & TCP_QP_ATTACH_F_ICRC;
	conn->host_version = req->flags & TCP_QP_ATTACH_F_WIRE_V0 || conn->icrc ? 0 : 1;
	conn->wire_version = conn->host_version;
}

static int tqp_choose_engine(struct tqp_conn *conn, const struct tcp_qp_attach_req *req)
{
	int err = 0;

	tqp_use_software(conn, req);
	if (req->engine == TCP_QP_ENGINE_SOFTWARE)
		return 0;

	conn->reason = tqp_offload_reason(conn);
	if (conn->reason == TCP_QP_REASON_NONE && conn->icrc && !conn->timestamps)
		conn->reason = TCP_QP_REASON_NO_TIMESTAMPS;
	if (conn->reason == TCP_QP_REASON_NONE) {
		/* the NIC may rewrite ver 1 to ver 0, if both have the same size */
		conn->host_version = 1;
		conn->wire_version = conn->timestamps && tqp_nic_can(conn, TQP_OFFLOAD_QP_TX_V0) &&
				     !(req->flags & TCP_QP_ATTACH_F_WIRE_V1) ? 0 : 1;
		err = conn->icrc && !tqp_nic_can(conn, TQP_OFFLOAD_QP_ICRC) ?
			      -EOPNOTSUPP : tqp_conn_offload_start(conn);
		if (!err) {
			conn->engine = TCP_QP_ENGINE_OFFLOAD;
			tqp_count(conn->dev, TQP_C_offload_qps, 1);
			return 0;
		}
		conn->reason = TCP_QP_REASON_OFFLOAD_REFUSED;
		tqp_count(conn->dev, TQP_C_offload_refused, 1);
		tqp_use_software(conn, req);
	}
	return req->engine == TCP_QP_ENGINE_OFFLOAD ? -EOPNOTSUPP : 0;
}

static bool tqp_wait_over(const struct tqp_conn *conn)
{
	return READ_ONCE(conn->handshake.rtr_seen) || READ_ONCE(conn->state) == TQP_CONN_DEAD ||
	       READ_ONCE(conn->dev->leaving);
}

static unsigned long tqp_attach_timeout(const struct tcp_qp_attach_req *req)
{
	return msecs_to_jiffies(req->timeout_ms ?: TCP_QP_ATTACH_TIMEOUT_DEFAULT_MS);
}

static int tqp_wait_peer(struct tqp_conn *conn, const struct tcp_qp_attach_req *req)
{
	long left;

	if (req->flags & TCP_QP_ATTACH_F_NOWAIT)
		return 0;
	left = wait_event_interruptible_timeout(conn->wait, tqp_wait_over(conn),
						tqp_attach_timeout(req));
	/* whatever the peer did since: it is told by completions */
	if (READ_ONCE(conn->handshake.rtr_seen))
		return 0;
	if (left < 0)
		return -EINTR;	/* never to be restarted: the time would begin anew */
	if (READ_ONCE(conn->state) == TQP_CONN_DEAD)
		return -ECONNRESET;
	if (READ_ONCE(conn->dev->leaving))
		return -ENODEV;
	conn->reason = TCP_QP_REASON_NO_PEER_QP;
	tqp_count(conn->dev, TQP_C_rtr_timeouts, 1);
	return -ETIMEDOUT;
}

/*
 * A receiver has nothing in flight: were the RST of a peer that died lost, it
 * would wait for ever, with receives posted and no completion.
 */
static void tqp_keepalive(struct sock *sk)
{
	if (sock_flag(sk, SOCK_KEEPOPEN))
		return;
	tcp_sock_set_keepidle(sk, TQP_KEEP_IDLE_S);
	tcp_sock_set_keepintvl(sk, TQP_KEEP_INTERVAL_S);
	tcp_sock_set_keepcnt(sk, TQP_KEEP_PROBES);
	sock_set_keepalive(sk);
}

static void tqp_conn_resp(const struct tqp_conn *conn, struct tcp_qp_attach_resp *resp)
{
	resp->engine = conn->engine;
	resp->reason = conn->reason;
	resp->wire_version = conn->wire_version;
	resp->mss = tcp_sk(conn->sk)->mss_cache;
}

static int tqp_conn_attach(struct tqp_qp *qp, struct tqp_conn_owner *owner, struct socket *sock,
			   const struct tcp_qp_attach_req *req, struct tcp_qp_attach_resp *resp)
{
	struct sock *sk = sock->sk;
	struct tqp_conn *conn;
	int err;

	lockdep_assert_held(&qp->mutex);
	if (qp->ib.qp_type != IB_QPT_RC)
		return -EOPNOTSUPP;
	if (qp->conn)
		return -EISCONN;
	resp->reason = tqp_socket_reason(sk);
	if (resp->reason)
		return sk_is_tcp(sk) ? -ENOTCONN : -EPROTOTYPE;
	conn = tqp_conn_create(qp, owner, sk);
	if (!conn)
		return -ENOMEM;
	conn->qpn = qp->qpn;
	err = tqp_ulp_attach(sock, conn);
	if (err) {
		resp->reason = err == -ENOTCONN ? TCP_QP_REASON_SOCKET_STATE :
						  conn->reason ?: TCP_QP_REASON_SOCKET_BUSY;
		tqp_conn_put(conn);
		return err;
	}
	/* from here the socket's side may call in; qp->conn owns the first reference */
	spin_lock_bh(&qp->lock);
	qp->conn = conn;
	spin_unlock_bh(&qp->lock);

	conn->tx.late = req->flags & TCP_QP_ATTACH_F_LATE_SENDS;
	conn->tx.room = qp->sq->mask + 1 >= TQP_TX_ROOM_MIN;
	err = tqp_choose_engine(conn, req);
	if (err)
		goto detach;
	if (conn->engine == TCP_QP_ENGINE_SOFTWARE)
		tqp_count(conn->dev, TQP_C_software_qps, 1);
	if (conn->host_version == 0)
		tqp_send_single_segments(conn);
	if (req->flags & TCP_QP_ATTACH_F_NOWAIT)
		conn->handshake.deadline = (jiffies + tqp_attach_timeout(req)) ?: 1;
	lock_sock(sk);
	tqp_rtr_start(conn);
	tqp_rx_run(conn);	/* a stock end's ACKNOWLEDGE does not wait for ours */
	release_sock(sk);
	err = tqp_wait_peer(conn, req);
	if (err)
		goto detach;
	tqp_keepalive(sk);
	tqp_conn_resp(conn, resp);
	trace_tqp_attach(qp->qpn, resp->engine, resp->reason, resp->wire_version, resp->mss);
	if (!tqp_conn_by_number(owner))
		tqp_qp_connected(qp);
	tqp_conn_doorbell(qp);
	return 0;

detach:
	tqp_conn_resp(conn, resp);
	if (err == -ECONNRESET)
		resp->reason = conn->end.reason;
	tqp_conn_detach(qp);
	return err;
}

static bool tqp_qp_attachable(struct tqp_qp *qp, const struct tqp_conn_owner *owner)
{
	enum ib_qp_state state = tqp_qp_state(qp);

	if (tqp_conn_by_number(owner))
		return state == IB_QPS_RTR || state == IB_QPS_RTS;
	return state == IB_QPS_INIT || state == IB_QPS_RTR;
}

int tqp_qp_attach(struct tqp_qp *qp, struct tqp_conn_owner *owner, struct socket *sock,
		  const struct tcp_qp_attach_req *req, struct tcp_qp_attach_resp *resp)
{
	lockdep_assert_held(&qp->mutex);
	if (qp->conn)
		return -EISCONN;
	if (qp->gone || !tqp_qp_attachable(qp, owner))
		return -EINVAL;
	if (READ_ONCE(qp->dev->leaving))
		return -ENODEV;
	if (!tqp_device_serves(qp->dev, sock_net(sock->sk))) {
		resp->reason = TCP_QP_REASON_NAMESPACE;
		return -EXDEV;
	}
	return tqp_conn_attach(qp, owner, sock, req, resp);
}

struct tqp_conn *tqp_qp_conn_get(struct tqp_qp *qp)
{
	struct tqp_conn *conn;

	spin_lock_bh(&qp->lock);
	conn = qp->conn ? tqp_conn_get(qp->conn) : NULL;
	spin_unlock_bh(&qp->lock);
	return conn;
}

void tqp_conn_look(struct tqp_conn *conn)
{
	u32 received = conn->rx.seq;

	tqp_credit_update(conn);	/* ahead of the data: the peer's answer to it may need our receive */
	tqp_tx_run(conn);
	tqp_rx_run(conn);
	if (conn->rx.seq != received)	/* receives were used */
		tqp_credit_update(conn);
}

void tqp_conn_doorbell(struct tqp_qp *qp)
{
	struct tqp_conn *conn = tqp_qp_conn_get(qp);

	if (!conn)
		return;
	lock_sock(conn->sk);
	tqp_watch_renew(conn);
	tqp_rx_hear(conn);
	tqp_conn_look(conn);
	tqp_rx_hear_held(conn);
	release_sock(conn->sk);
	tqp_conn_put(conn);
}

void tqp_conn_info(struct tqp_qp *qp, struct tcp_qp_info *info)
{
	struct tqp_conn *conn = tqp_qp_conn_get(qp);

	memset(info, 0, sizeof(*info));
	if (!conn)
		return;
	tqp_rx_look(conn);	/* who has a message finds it counted */
	lock_sock(conn->sk);
	tqp_turn_sync(conn);
	static_assert(sizeof(*info) == offsetof(struct tcp_qp_info, tx_messages) + sizeof(conn->counters));
	memcpy((u8 *)info + offsetof(struct tcp_qp_info, tx_messages), &conn->counters, sizeof(conn->counters));
	/* an attach that is not through changes these without the lock: any of its values will do */
	info->engine = READ_ONCE(conn->engine);
	info->reason = READ_ONCE(conn->reason);
	info->wire_version = READ_ONCE(conn->wire_version);
	info->mss = tcp_sk(conn->sk)->mss_cache;
	release_sock(conn->sk);
	tqp_conn_put(conn);
}

void tqp_conn_details(struct tqp_qp *qp, struct tqp_conn_details *details)
{
	struct tqp_conn *conn = tqp_qp_conn_get(qp);
	s16 credits;

	memset(details, 0, sizeof(*details));
	if (!conn)
		return;
	details->socket_cookie = atomic64_read(&conn->sk->sk_cookie);
	lock_sock(conn->sk);
	credits = READ_ONCE(conn->credit.peer_limit) - conn->tx.msn;
	release_sock(conn->sk);
	details->tx_credits = max_t(s16, credits, 0);
	tqp_conn_put(conn);
}
