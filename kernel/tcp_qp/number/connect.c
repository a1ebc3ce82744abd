// SPDX-License-Identifier: GPL-2.0
/* The active side's socket, and what an address vector says of either side's. */
#include <linux/cred.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/sock.h>
#include <net/tcp.h>
#include "number/number.h"
#include "socket/socket.h"

/* As an AF_INET or AF_INET6 address; its bytes. */
static int tqp_number_sockaddr(const struct tqp_number *number, const struct in6_addr *address,
			       __be16 port, struct sockaddr_storage *to)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)to;
	struct sockaddr_in *four = (struct sockaddr_in *)to;

	memset(to, 0, sizeof(*to));
	if (ipv6_addr_v4mapped(address)) {
		four->sin_family = AF_INET;
		four->sin_port = port;
		four->sin_addr.s_addr = address->s6_addr32[3];
		return sizeof(*four);
	}
	six->sin6_family = AF_INET6;
	six->sin6_port = port;
	six->sin6_addr = *address;
	if (ipv6_addr_type(address) & IPV6_ADDR_LINKLOCAL)
		six->sin6_scope_id = number->qp->dev->netdev->ifindex;
	return sizeof(*six);
}

static bool tqp_number_is_ipv6(const struct tqp_number *number)
{
	return !ipv6_addr_v4mapped(&number->local);
}

void tqp_number_tune(struct tqp_number *number)
{
	tqp_hello_set_tos(number->hs.sock, number->tos);
}

static int tqp_number_bind(struct tqp_number *number)
{
	struct sockaddr_storage from;
	int bytes = tqp_number_sockaddr(number, &number->local, 0, &from);

	/* The port is chosen by connect(), which knows whom it is for: others may have the same. */
	if (!number->self)
		inet_set_bit(BIND_ADDRESS_NO_PORT, number->hs.sock->sk);
	return kernel_bind(number->hs.sock, (struct sockaddr_unsized *)&from, bytes);
}

/* Not a "kernel" socket: it must keep its namespace, and retransmit its FIN. */
static int tqp_number_make_socket(const struct tqp_number *number, struct socket **sock)
{
	int family = tqp_number_is_ipv6(number) ? AF_INET6 : AF_INET;

	return __sock_create(number->net, family, SOCK_STREAM, IPPROTO_TCP, sock, 0);
}

/* Either side's: what may not make a socket gets none by waiting for a peer to connect. */
int tqp_number_ask(struct tqp_number *number)
{
	struct socket *sock;
	int err = tqp_number_make_socket(number, &sock);

	if (err)
		return err;
	tqp_asker_get(&number->asker, sock->sk);
	sock_release(sock);
	return 0;
}

static int tqp_number_make_askers(struct tqp_number *number)
{
	const struct cred *old = override_creds(number->cred);
	int err = tqp_number_make_socket(number, &number->hs.sock);

	revert_creds(old);
	return err ?: tqp_asker_give(&number->asker, number->hs.sock->sk);
}

int tqp_number_open(struct tqp_number *number)
{
	int err = tqp_number_make_askers(number);

	if (err)
		goto release;
	number->hs.sock->sk->sk_use_task_frag = false;
	tcp_sock_set_syncnt(number->hs.sock->sk, TQP_NUMBER_SYN_RETRIES);
	tqp_number_tune(number);
	err = tqp_number_bind(number);
	if (err)
		goto release;
	tqp_hello_install(&number->hs, number->hs.sock->sk->sk_data_ready);
	return 0;
release:
	tqp_hello_release(&number->hs, false);
	return err;
}

/* A QP that is its own peer connects to its own port: TCP's simultaneous open, of one socket. */
int tqp_number_connect(struct tqp_number *number)
{
	__be16 port = htons(tqp_number_port);
	struct sockaddr_storage to;
	int bytes, err;

	if (number->self)
		port = inet_sk(number->hs.sock->sk)->inet_sport;
	bytes = tqp_number_sockaddr(number, &number->remote, port, &to);
	err = kernel_connect(number->hs.sock, (struct sockaddr_unsized *)&to, bytes, O_NONBLOCK);
	return err == -EALREADY || err == -EINPROGRESS ? -EAGAIN : err;
}

void tqp_number_ends(const struct sock *sk, struct in6_addr *local, struct in6_addr *remote)
{
#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6) {
		*local = sk->sk_v6_rcv_saddr;
		*remote = sk->sk_v6_daddr;
		return;
	}
#endif
	ipv6_addr_set_v4mapped(sk->sk_rcv_saddr, local);
	ipv6_addr_set_v4mapped(sk->sk_daddr, remote);
}
