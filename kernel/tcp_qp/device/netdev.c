// SPDX-License-Identifier: GPL-2.0
/* Events of the netdevs below: ports go up and down, addresses change, devices leave. */
#include <linux/etherdevice.h>
#include <linux/inetdevice.h>
#include <linux/netdevice.h>
#include <net/addrconf.h>
#include "device/device.h"

static void tqp_netdev_handle(struct tqp_device *dev, unsigned long what)
{
	switch (what) {
	case NETDEV_UNREGISTER:
		tqp_device_queue_removal(dev);
		break;
	case NETDEV_UP:
	case NETDEV_CHANGE:
	case NETDEV_DOWN:
		tqp_device_event(dev, netif_running(dev->netdev) && netif_carrier_ok(dev->netdev) ?
				      IB_EVENT_PORT_ACTIVE : IB_EVENT_PORT_ERR);
		break;
	case NETDEV_CHANGEADDR:
		if (dev->netdev->addr_len == ETH_ALEN)
			ether_addr_copy(dev->mac, dev->netdev->dev_addr);
		tqp_device_event(dev, IB_EVENT_GID_CHANGE);
		break;
	case NETDEV_CHANGEMTU:
		/* The MTU is read when asked for; this makes listeners ask. */
		tqp_device_event(dev, IB_EVENT_CLIENT_REREGISTER);
		break;
	}
}

/* Under rtnl. */
static void tqp_netdev_each(const struct net_device *netdev,
			    void (*handle)(struct tqp_device *dev, unsigned long what),
			    unsigned long what)
{
	struct tqp_device *dev;

	mutex_lock(&tqp_devices_mutex);
	list_for_each_entry(dev, &tqp_devices, node)
		if (!dev->dead && dev->netdev == netdev)
			handle(dev, what);
	mutex_unlock(&tqp_devices_mutex);
}

static int tqp_netdev_event(struct notifier_block *nb, unsigned long what, void *arg)
{
	tqp_netdev_each(netdev_notifier_info_to_dev(arg), tqp_netdev_handle, what);
	return NOTIFY_DONE;
}

static void tqp_inetaddr_handle(struct tqp_device *dev, unsigned long what)
{
	tqp_device_event(dev, IB_EVENT_GID_CHANGE);
}

static int tqp_inetaddr_event(struct notifier_block *nb, unsigned long what, void *arg)
{
	const struct in_ifaddr *ifa = arg;

	tqp_netdev_each(ifa->ifa_dev->dev, tqp_inetaddr_handle, what);
	return NOTIFY_DONE;
}

static struct notifier_block tqp_netdev_nb = {
	.notifier_call = tqp_netdev_event,
};

static struct notifier_block tqp_inetaddr_nb = {
	.notifier_call = tqp_inetaddr_event,
};

#if IS_ENABLED(CONFIG_IPV6)
/* IPv6 tells in atomic context, where tqp_devices_mutex can't be had: all devices read again. */
static void tqp_inet6addr_changed(struct work_struct *work)
{
	struct tqp_device *dev;

	mutex_lock(&tqp_devices_mutex);
	list_for_each_entry(dev, &tqp_devices, node)
		if (!dev->dead)
			tqp_device_event(dev, IB_EVENT_GID_CHANGE);
	mutex_unlock(&tqp_devices_mutex);
}

static DECLARE_WORK(tqp_inet6addr_work, tqp_inet6addr_changed);

static int tqp_inet6addr_event(struct notifier_block *nb, unsigned long what, void *arg)
{
	queue_work(tqp_wq, &tqp_inet6addr_work);
	return NOTIFY_DONE;
}

static struct notifier_block tqp_inet6addr_nb = {
	.notifier_call = tqp_inet6addr_event,
};

static int tqp_inet6addr_init(void)
{
	return register_inet6addr_notifier(&tqp_inet6addr_nb);
}

static void tqp_inet6addr_exit(void)
{
	unregister_inet6addr_notifier(&tqp_inet6addr_nb);
	cancel_work_sync(&tqp_inet6addr_work);
}
#else
static int tqp_inet6addr_init(void)
{
	return 0;
}

static void tqp_inet6addr_exit(void)
{
}
#endif

int tqp_netdev_init(void)
{
	int ret;

	ret = register_netdevice_notifier(&tqp_netdev_nb);
	if (ret)
		return ret;
	ret = register_inetaddr_notifier(&tqp_inetaddr_nb);
	if (ret)
		goto err_netdev;
	ret = tqp_inet6addr_init();
	if (ret)
		goto err_inetaddr;
	return 0;

err_inetaddr:
	unregister_inetaddr_notifier(&tqp_inetaddr_nb);
err_netdev:
	unregister_netdevice_notifier(&tqp_netdev_nb);
	return ret;
}

void tqp_netdev_exit(void)
{
	tqp_inet6addr_exit();
	unregister_inetaddr_notifier(&tqp_inetaddr_nb);
	unregister_netdevice_notifier(&tqp_netdev_nb);
}
