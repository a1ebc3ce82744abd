// SPDX-License-Identifier: GPL-2.0
/* The QP that a request names: its connection's local address says on which device. */
#include <net/addrconf.h>
#include <net/ipv6.h>
#include "number/number.h"

static LIST_HEAD(tqp_number_devices);
static DEFINE_SPINLOCK(tqp_number_devices_lock);

void tqp_number_add_device(struct tqp_device *dev)
{
	spin_lock(&tqp_number_devices_lock);
	list_add_tail(&dev->number_node, &tqp_number_devices);
	spin_unlock(&tqp_number_devices_lock);
}

void tqp_number_remove_device(struct tqp_device *dev)
{
	spin_lock(&tqp_number_devices_lock);
	list_del_init(&dev->number_node);
	spin_unlock(&tqp_number_devices_lock);
}

static bool tqp_netdev_has(const struct net_device *netdev, const struct in6_addr *address)
{
	if (ipv6_addr_v4mapped(address))
		return tqp_netdev_has_ipv4(netdev, address->s6_addr32[3]);
#if IS_ENABLED(CONFIG_IPV6)
	return ipv6_chk_addr(dev_net(netdev), address, netdev, 1);
#else
	return false;
#endif
}

struct tqp_qp *tqp_number_find_qp(const struct net *net, const struct in6_addr *address, u32 qpn)
{
	struct tqp_qp *qp = NULL;
	struct tqp_device *dev;

	rcu_read_lock();
	spin_lock(&tqp_number_devices_lock);
	list_for_each_entry(dev, &tqp_number_devices, number_node) {
		if (!net_eq(dev_net(dev->netdev), net) || !tqp_netdev_has(dev->netdev, address))
			continue;
		qp = tqp_qp_lookup(dev, qpn);
		if (qp)
			break;
	}
	spin_unlock(&tqp_number_devices_lock);
	rcu_read_unlock();
	return qp;
}
