// SPDX-License-Identifier: GPL-2.0
/*
 * The socket of a network namespace that its devices' datagrams come to.
 *
 * It is opened with the first link of the namespace and stays until that or the module
 * goes, so that nobody else takes the port meanwhile.  It holds no reference to the
 * namespace, which would never go then; the sockets that QPs send from do.
 *
 * UDP hands datagrams over in softirq, checked and joined from fragments.  They are
 * received at once while softirq has a share of the processor left (rx/share.c), else by
 * a work item, in order.  For that one TQP_UD_BACKLOG_BYTES may wait; what comes beyond
 * is dropped, as by any full receive queue.
 */
#include <linux/module.h>
#include <net/addrconf.h>
#include <net/netns/generic.h>
#include <net/udp_tunnel.h>
#include "rx/rx.h"
#include "ud/ud.h"

static ushort ud_port = TQP_UD_PORT;
module_param(ud_port, ushort, 0444);
MODULE_PARM_DESC(ud_port, "UDP port of UD queue pairs, the same at all hosts; 0: there are none");

struct tqp_ud_net {
	struct mutex mutex;
	struct socket *sock;		/* under mutex */
	bool closed;			/* under mutex: the namespace goes */
	struct hlist_head devices;	/* RCU, changed under tqp_ud_devices_lock */
	struct sk_buff_head backlog;
	u32 backlog_bytes;		/* under backlog.lock */
	bool stopped;			/* under backlog.lock: nothing more waits */
	struct work_struct work;
};

static unsigned int tqp_ud_net_id;
static DEFINE_SPINLOCK(tqp_ud_devices_lock);

u16 tqp_ud_port(void)
{
	return ud_port;
}

/* ---- devices ---- */

/* With a reference, or NULL if it goes: a netdev may be on its way to another one. */
static struct net *tqp_ud_net_get(const struct tqp_device *dev)
{
	struct net *net;

	rcu_read_lock();
	net = maybe_get_net(read_pnet(&dev->netdev->nd_net));
	rcu_read_unlock();
	return net;
}

void tqp_ud_add_device(struct tqp_device *dev)
{
	struct net *net = tqp_ud_net_get(dev);
	struct tqp_ud_net *un;

	if (!net)
		return;
	un = net_generic(net, tqp_ud_net_id);
	spin_lock(&tqp_ud_devices_lock);
	hlist_add_head_rcu(&dev->ud_node, &un->devices);
	spin_unlock(&tqp_ud_devices_lock);
	put_net(net);
}

/* When it returns no datagram is on its way to the device. */
void tqp_ud_del_device(struct tqp_device *dev)
{
	spin_lock(&tqp_ud_devices_lock);
	hlist_del_init_rcu(&dev->ud_node);	/* a namespace that went has done it */
	spin_unlock(&tqp_ud_devices_lock);
	synchronize_rcu();
}

#if IS_ENABLED(CONFIG_IPV6)
static bool tqp_netdev_has_ipv6(struct net_device *netdev, const struct sk_buff *skb)
{
	const struct in6_addr *addr = &ipv6_hdr(skb)->daddr;

	if (ipv6_addr_type(addr) & IPV6_ADDR_LINKLOCAL && inet6_iif(skb) != netdev->ifindex)
		return false;	/* another link's neighbours may have the same */
	return ipv6_chk_addr(dev_net(netdev), addr, netdev, 1);
}
#else
static bool tqp_netdev_has_ipv6(struct net_device *netdev, const struct sk_buff *skb)
{
	return false;
}
#endif

/* An address is the GID of the device whose netdev has it, whichever way a datagram came. */
static struct tqp_device *tqp_ud_device_of(const struct tqp_ud_net *un, const struct sk_buff *skb)
{
	bool v4 = ip_hdr(skb)->version == 4;
	struct tqp_device *dev;

	hlist_for_each_entry_rcu(dev, &un->devices, ud_node)
		if (v4 ? tqp_netdev_has_ipv4(dev->netdev, ip_hdr(skb)->daddr) :
			 tqp_netdev_has_ipv6(dev->netdev, skb))
			return dev;
	return NULL;
}

/* ---- receiving ---- */

/* RCU read side, bottom halves off. */
static void tqp_ud_deliver(const struct tqp_ud_net *un, struct sk_buff *skb)
{
	struct tqp_device *dev = tqp_ud_device_of(un, skb);

	if (dev)
		tqp_ud_receive(dev, skb);
	consume_skb(skb);
}

static void tqp_ud_defer(struct tqp_ud_net *un, struct sk_buff *skb)
{
	struct tqp_device *dev;
	bool taken;

	skb_dst_drop(skb);
	skb_orphan(skb);
	spin_lock_bh(&un->backlog.lock);
	taken = !un->stopped && un->backlog_bytes + skb->truesize <= TQP_UD_BACKLOG_BYTES;
	if (taken) {
		un->backlog_bytes += skb->truesize;
		__skb_queue_tail(&un->backlog, skb);
		queue_work(tqp_wq, &un->work);
	}
	spin_unlock_bh(&un->backlog.lock);
	if (taken)
		return;
	dev = tqp_ud_device_of(un, skb);
	if (dev)
		tqp_count(dev, TQP_C_ud_rx_overload, 1);
	kfree_skb(skb);
}

static struct sk_buff *tqp_ud_next(struct tqp_ud_net *un)
{
	struct sk_buff *skb;

	spin_lock_bh(&un->backlog.lock);
	skb = __skb_dequeue(&un->backlog);
	if (skb)
		un->backlog_bytes -= skb->truesize;
	spin_unlock_bh(&un->backlog.lock);
	return skb;
}

static void tqp_ud_net_work(struct work_struct *work)
{
	struct tqp_ud_net *un = container_of(work, struct tqp_ud_net, work);
	struct sk_buff *skb;

	for (u32 i = 0; i < TQP_UD_TURN; i++) {
		skb = tqp_ud_next(un);
		if (!skb)
			return;
		local_bh_disable();
		rcu_read_lock();
		tqp_ud_deliver(un, skb);
		rcu_read_unlock();
		local_bh_enable();
		cond_resched();
	}
	queue_work(tqp_wq, &un->work);	/* others' turn; cancelling waits for this too */
}

static int tqp_ud_rcv(struct sock *sk, struct sk_buff *skb)
{
	struct tqp_ud_net *un = rcu_dereference_sk_user_data(sk);
	u64 began = tqp_share_now();

	if (!skb_queue_empty_lockless(&un->backlog) || !tqp_share_enter(began)) {
		tqp_ud_defer(un, skb);
		return 0;
	}
	tqp_ud_deliver(un, skb);
	tqp_share_leave(began);
	return 0;
}

/* ---- the socket ---- */

void tqp_ud_encap(struct socket *sock, int (*rcv)(struct sock *sk, struct sk_buff *skb))
{
	WRITE_ONCE(udp_sk(sock->sk)->encap_rcv, rcv);
	WRITE_ONCE(udp_sk(sock->sk)->encap_type, 1);	/* any but 0: there is a receiver */
	udp_tunnel_encap_enable(sock->sk);
}

static int tqp_ud_bind(struct socket *sock)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(ud_port) };
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(ud_port) };

	if (sock->sk->sk_family == AF_INET)
		return kernel_bind(sock, (struct sockaddr_unsized *)&v4, sizeof(v4));
	sock->sk->sk_ipv6only = false;
	return kernel_bind(sock, (struct sockaddr_unsized *)&v6, sizeof(v6));
}

static int tqp_ud_net_open(struct net *net, struct tqp_ud_net *un)
{
	struct socket *sock;
	int ret;

	lockdep_assert_held(&un->mutex);
	if (un->closed)
		return -ENETDOWN;
	if (un->sock)
		return 0;
	ret = sock_create_kern(net, AF_INET6, SOCK_DGRAM, IPPROTO_UDP, &sock);
	if (ret == -EAFNOSUPPORT)	/* ipv6.disable=1 */
		ret = sock_create_kern(net, AF_INET, SOCK_DGRAM, IPPROTO_UDP, &sock);
	if (ret)
		return ret;
	rcu_assign_sk_user_data(sock->sk, un);
	tqp_ud_encap(sock, tqp_ud_rcv);
	ret = tqp_ud_bind(sock);
	if (ret)
		sock_release(sock);
	else
		un->sock = sock;
	return ret;
}

int tqp_ud_open(struct tqp_device *dev)
{
	struct tqp_ud_net *un;
	struct net *net;
	int ret;

	if (!ud_port)
		return -EOPNOTSUPP;
	net = tqp_ud_net_get(dev);
	if (!net)
		return -ENETDOWN;
	un = net_generic(net, tqp_ud_net_id);
	mutex_lock(&un->mutex);
	ret = tqp_ud_net_open(net, un);
	mutex_unlock(&un->mutex);
	put_net(net);
	return ret;
}

/* ---- namespaces ---- */

static int __net_init tqp_ud_net_init(struct net *net)
{
	struct tqp_ud_net *un = net_generic(net, tqp_ud_net_id);

	mutex_init(&un->mutex);
	INIT_HLIST_HEAD(&un->devices);
	skb_queue_head_init(&un->backlog);
	INIT_WORK(&un->work, tqp_ud_net_work);
	return 0;
}

/* Its links that were moved elsewhere may still be on their way out. */
static void tqp_ud_forget_devices(struct tqp_ud_net *un)
{
	spin_lock(&tqp_ud_devices_lock);
	while (!hlist_empty(&un->devices))
		hlist_del_init_rcu(un->devices.first);
	spin_unlock(&tqp_ud_devices_lock);
}

static void tqp_ud_stop(struct tqp_ud_net *un)
{
	spin_lock_bh(&un->backlog.lock);
	un->stopped = true;
	spin_unlock_bh(&un->backlog.lock);
}

/* No QP of the namespace has a socket any more: each holds it. */
static void __net_exit tqp_ud_net_exit(struct net *net)
{
	struct tqp_ud_net *un = net_generic(net, tqp_ud_net_id);
	struct socket *sock;

	mutex_lock(&un->mutex);
	un->closed = true;
	sock = un->sock;
	un->sock = NULL;
	mutex_unlock(&un->mutex);
	tqp_ud_forget_devices(un);
	if (!sock)
		return;
	tqp_ud_stop(un);
	sock_release(sock);
	synchronize_rcu();	/* who receives for it, in softirq */
	cancel_work_sync(&un->work);
	skb_queue_purge(&un->backlog);
}

static struct pernet_operations tqp_ud_net_ops = {
	.init = tqp_ud_net_init,
	.exit = tqp_ud_net_exit,
	.id = &tqp_ud_net_id,
	.size = sizeof(struct tqp_ud_net),
};

int tqp_ud_init(void)
{
	return register_pernet_subsys(&tqp_ud_net_ops);
}

void tqp_ud_exit(void)
{
	unregister_pernet_subsys(&tqp_ud_net_ops);
	synchronize_rcu();	/* strays at the sockets of QPs, in softirq */
}
