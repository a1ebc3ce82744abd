// SPDX-License-Identifier: GPL-2.0
/* MSS: room for the option, and payload cut at 128-byte lines. */
#include "tx/tx.h"

void tqp_mss_update(struct tqp_conn *conn)
{
	struct inet_connection_sock *icsk = inet_csk(conn->sk);
	struct tcp_sock *tp = tcp_sk(conn->sk);
	int stack_opts = tp->tcp_header_len - sizeof(struct tcphdr);
	int base, mss;

	sock_owned_by_me(conn->sk);
	if (conn->socket.ext_hdr_bytes && conn->socket.mss_pmtu == icsk->icsk_pmtu_cookie)
		return;
	icsk->icsk_ext_hdr_len -= conn->socket.ext_hdr_bytes;
	conn->socket.mss_pmtu = icsk->icsk_pmtu_cookie;
	base = min_t(int, conn->socket.mss_pmtu - icsk->icsk_af_ops->net_header_len - sizeof(struct tcphdr),
		     tp->rx_opt.mss_clamp) - icsk->icsk_ext_hdr_len;
	mss = base - TCP_BTH_OPT_MAX_BYTES;
	if (mss >= TQP_MSS_ROUND_MIN_BYTES)
		mss = rounddown(mss, TCP_BTH_MSS_MULTIPLE_BYTES);
	/* the stack takes its own options off the MSS; we write ours in their place */
	conn->socket.ext_hdr_bytes = base - stack_opts - mss;
	icsk->icsk_ext_hdr_len += conn->socket.ext_hdr_bytes;
	icsk->icsk_sync_mss(conn->sk, conn->socket.mss_pmtu);
}
