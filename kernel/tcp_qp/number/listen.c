// SPDX-License-Identifier: GPL-2.0
/*
 * One TCP listener for each network namespace, while a QP there is connected by number.
 * It keeps its namespace, as an application's would: with the last QP it goes.
 *
 * Everything of the listener is done by one work: so it needs no lock, and root's
 * privilege to have the port, whoever asked.
 */
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>
#include <net/sock.h>
#include "number/number.h"
#include "socket/socket.h"

static unsigned int tqp_number_net_id;

static struct tqp_number_net *tqp_number_net_of(const struct net *net)
{
	return net_generic(net, tqp_number_net_id);
}

/* ---- who wants it ---- */

static void tqp_number_use(struct net *net, int more)
{
	struct tqp_number_net *tn = tqp_number_net_of(net);
	bool turns;

	spin_lock(&tn->lock);
	turns = tn->users == (more > 0 ? 0 : 1);
	tn->users += more;
	spin_unlock(&tn->lock);
	if (turns)
		mod_delayed_work(tqp_wq, &tn->work, 0);
}

void tqp_number_listen(struct net *net)
{
	tqp_number_use(net, 1);
}

void tqp_number_unlisten(struct net *net)
{
	tqp_number_use(net, -1);
}

void tqp_number_unpark(struct net *net, u32 qpn)
{
	struct tqp_number_net *tn = tqp_number_net_of(net);
	struct tqp_request *request;

	spin_lock(&tn->lock);
	list_for_each_entry(request, &tn->requests, node)
		if (request->heard && request->said.dest_qpn == qpn)
			tqp_request_wake(request);
	spin_unlock(&tn->lock);
}

/* ---- open and close ---- */

/* Connections inherit this and the pointer, until they are taken: those it must not serve. */
static void tqp_number_data_ready(struct sock *sk)
{
	struct tqp_number_net *tn;

	read_lock_bh(&sk->sk_callback_lock);
	tn = sk->sk_user_data;
	if (tn && sk->sk_state == TCP_LISTEN)
		mod_delayed_work(tqp_wq, &tn->work, 0);
	read_unlock_bh(&sk->sk_callback_lock);
}

static void tqp_number_install(struct tqp_number_net *tn, struct sock *sk)
{
	write_lock_bh(&sk->sk_callback_lock);
	tn->saved_data_ready = sk->sk_data_ready;
	sk->sk_user_data = tn;
	WRITE_ONCE(sk->sk_data_ready, tqp_number_data_ready);
	write_unlock_bh(&sk->sk_callback_lock);
}

static void tqp_number_uninstall(struct tqp_number_net *tn, struct sock *sk)
{
	write_lock_bh(&sk->sk_callback_lock);
	sk->sk_user_data = NULL;
	WRITE_ONCE(sk->sk_data_ready, tn->saved_data_ready);
	write_unlock_bh(&sk->sk_callback_lock);
}

/* For both families, or for IPv4 where there is no other. */
static int tqp_number_listener(struct net *net, struct socket **sock, struct sockaddr_storage *at)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)at;
	struct sockaddr_in *four = (struct sockaddr_in *)at;

	memset(at, 0, sizeof(*at));
	if (!__sock_create(net, AF_INET6, SOCK_STREAM, IPPROTO_TCP, sock, 0)) {
		(*sock)->sk->sk_ipv6only = 0;	/* whatever bindv6only says */
		six->sin6_family = AF_INET6;
		six->sin6_port = htons(tqp_number_port);
		return 0;
	}
	four->sin_family = AF_INET;
	four->sin_port = htons(tqp_number_port);
	return __sock_create(net, AF_INET, SOCK_STREAM, IPPROTO_TCP, sock, 0);
}

static int tqp_number_net_open(struct tqp_number_net *tn)
{
	struct sockaddr_storage at;
	struct socket *sock;
	int err = tqp_number_listener(tn->net, &sock, &at);

	if (err)
		return err;
	sock->sk->sk_use_task_frag = false;
	sock_set_reuseaddr(sock->sk);
	err = kernel_bind(sock, (struct sockaddr_unsized *)&at,
			  at.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) :
						     sizeof(struct sockaddr_in));
	if (err)
		goto release;
	tqp_number_install(tn, sock->sk);
	err = kernel_listen(sock, TQP_NUMBER_BACKLOG);
	if (err)
		goto uninstall;
	tn->listener = sock;
	return 0;
uninstall:
	tqp_number_uninstall(tn, sock->sk);
release:
	sock_release(sock);
	return err;
}

static void tqp_number_net_close(struct tqp_number_net *tn)
{
	struct socket *sock = tn->listener;
	struct tqp_request *request;

	tn->listener = NULL;
	tqp_number_uninstall(tn, sock->sk);
	spin_lock(&tn->lock);
	list_for_each_entry(request, &tn->requests, node)
		tqp_request_evict(request);
	spin_unlock(&tn->lock);
	sock_release(sock);	/* perhaps the namespace's last: nothing of it after this */
}

/* ---- the work ---- */

static void tqp_number_net_accept(struct tqp_number_net *tn)
{
	struct socket *sock;
	int err = 0;

	for (int i = 0; i < TQP_NUMBER_ACCEPT_MAX && !err; i++) {
		err = kernel_accept(tn->listener, &sock, O_NONBLOCK);
		if (!err)
			tqp_request_take(tn, sock, tn->saved_data_ready);
	}
	if (err == -EAGAIN)
		return;
	/* others' turn, or there was no memory for one; cancelling waits for this too */
	mod_delayed_work(tqp_wq, &tn->work, err ? msecs_to_jiffies(TQP_NUMBER_ACCEPT_MS) : 0);
}

/* A number of its own namespace keeps that, so one that is gone here has none. */
static void tqp_number_net_work(struct work_struct *work)
{
	struct tqp_number_net *tn = container_of(to_delayed_work(work), struct tqp_number_net, work);
	bool wanted;

	spin_lock(&tn->lock);
	wanted = tn->users;
	spin_unlock(&tn->lock);
	if (!wanted) {
		if (tn->listener)
			tqp_number_net_close(tn);
		return;
	}
	if (!tn->listener && tqp_number_net_open(tn)) {
		pr_warn_ratelimited("tcp_qp: port %u is taken: no connections by number to here\n",
				    tqp_number_port);
		mod_delayed_work(tqp_wq, &tn->work, msecs_to_jiffies(TQP_NUMBER_LISTEN_MS));
		return;
	}
	tqp_number_net_accept(tn);
}

/* ---- namespaces ---- */

static int __net_init tqp_number_net_begin(struct net *net)
{
	struct tqp_number_net *tn = tqp_number_net_of(net);

	tn->net = net;
	spin_lock_init(&tn->lock);
	INIT_LIST_HEAD(&tn->requests);
	init_waitqueue_head(&tn->empty);
	INIT_DELAYED_WORK(&tn->work, tqp_number_net_work);
	return 0;
}

/* With the module, its listener may still be there. */
static void __net_exit tqp_number_net_end(struct net *net)
{
	struct tqp_number_net *tn = tqp_number_net_of(net);

	WARN_ON_ONCE(tn->users);
	disable_delayed_work_sync(&tn->work);	/* connections still come to the listener */
	if (tn->listener)
		tqp_number_net_close(tn);
	wait_event(tn->empty, !READ_ONCE(tn->nr_requests));
	spin_lock(&tn->lock);	/* whoever was the last has let go of it */
	spin_unlock(&tn->lock);
}

static struct pernet_operations tqp_number_net_ops = {
	.init = tqp_number_net_begin,
	.exit = tqp_number_net_end,
	.id = &tqp_number_net_id,
	.size = sizeof(struct tqp_number_net),
};

int tqp_number_net_init(void)
{
	return register_pernet_subsys(&tqp_number_net_ops);
}

void tqp_number_net_exit(void)
{
	unregister_pernet_subsys(&tqp_number_net_ops);
}
