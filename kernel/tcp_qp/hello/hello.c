// SPDX-License-Identifier: GPL-2.0
#include <net/ip.h>
#include <net/sock.h>
#include <net/tcp.h>
#include "hello/hello.h"

static void tqp_hello_event(struct sock *sk)
{
	struct tqp_hello_sock *hs;

	read_lock_bh(&sk->sk_callback_lock);
	hs = sk->sk_user_data;
	if (hs)
		hs->event(hs);
	read_unlock_bh(&sk->sk_callback_lock);
}

void tqp_hello_install(struct tqp_hello_sock *hs, void (*saved_data_ready)(struct sock *sk))
{
	struct sock *sk = hs->sock->sk;

	write_lock_bh(&sk->sk_callback_lock);
	hs->saved_data_ready = saved_data_ready;
	hs->saved_state_change = sk->sk_state_change;
	sk->sk_user_data = hs;
	WRITE_ONCE(sk->sk_data_ready, tqp_hello_event);
	sk->sk_state_change = tqp_hello_event;
	write_unlock_bh(&sk->sk_callback_lock);
	hs->installed = true;
}

void tqp_hello_uninstall(struct tqp_hello_sock *hs)
{
	struct sock *sk;

	if (!hs->installed)
		return;
	sk = hs->sock->sk;
	hs->installed = false;
	write_lock_bh(&sk->sk_callback_lock);
	sk->sk_user_data = NULL;
	WRITE_ONCE(sk->sk_data_ready, hs->saved_data_ready);
	sk->sk_state_change = hs->saved_state_change;
	write_unlock_bh(&sk->sk_callback_lock);
}

void tqp_hello_set_tos(struct socket *sock, u8 tos)
{
	int tclass = tos;

	ip_sock_set_tos(sock->sk, tos);
	if (sock->sk->sk_family == AF_INET6)
		sock->ops->setsockopt(sock, SOL_IPV6, IPV6_TCLASS, KERNEL_SOCKPTR(&tclass),
				      sizeof(tclass));
}

int tqp_hello_send(struct tqp_hello_sock *hs)
{
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	struct kvec kv = { hs->tx, hs->tx_bytes };
	int sent = kernel_sendmsg(hs->sock, &msg, &kv, 1, hs->tx_bytes);

	/* the send buffer is empty and far larger: less than all means trouble */
	if (sent < 0)
		return sent;
	return sent == hs->tx_bytes ? 0 : -EPIPE;
}

int tqp_hello_recv(struct tqp_hello_sock *hs, void *buf, size_t bytes)
{
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	struct kvec kv = { buf, bytes };
	int got = kernel_recvmsg(hs->sock, &msg, &kv, 1, bytes, msg.msg_flags);

	return got ?: -ECONNRESET;
}

int tqp_hello_read(struct tqp_hello_sock *hs, enum tqp_hello_kind kind)
{
	int missing, got;

	while ((missing = tqp_hello_parse(hs->rx, hs->rx_bytes, kind, &hs->hello))) {
		if (missing < 0)
			return -EPROTO;
		got = tqp_hello_recv(hs, hs->rx + hs->rx_bytes, missing);
		if (got < 0)
			return got;
		hs->rx_bytes += got;
	}
	return 0;
}

bool tqp_hello_unread(struct tqp_hello_sock *hs)
{
	struct sock *sk = hs->sock->sk;
	bool unread;

	lock_sock(sk);
	unread = tcp_sk(sk)->rcv_nxt != tcp_sk(sk)->copied_seq;
	release_sock(sk);
	return unread;
}

void tqp_hello_release(struct tqp_hello_sock *hs, bool reset)
{
	if (!hs->sock)
		return;
	tqp_hello_uninstall(hs);
	if (reset)
		sock_no_linger(hs->sock->sk);
	sock_release(hs->sock);
	hs->sock = NULL;
}
