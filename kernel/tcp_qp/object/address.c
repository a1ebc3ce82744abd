// SPDX-License-Identifier: GPL-2.0
/* Whose is an address? */
#include <linux/inetdevice.h>
#include "object/tqp.h"

bool tqp_netdev_has_ipv4(const struct net_device *netdev, __be32 address)
{
	const struct in_device *in_dev = __in_dev_get_rcu(netdev);
	const struct in_ifaddr *ifa;

	if (!in_dev)
		return false;
	in_dev_for_each_ifa_rcu(ifa, in_dev)
		if (ifa->ifa_local == address)
			return true;
	return false;
}
