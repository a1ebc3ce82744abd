// SPDX-License-Identifier: GPL-2.0
/* Module: init, and exit in the opposite order. */
#include <linux/module.h>
#include "cm/cm.h"
#include "control/control.h"
#include "device/device.h"
#include "memory/memory.h"
#include "number/number.h"
#include "offload/offload.h"
#include "stream/place.h"
#include "stream/stream.h"
#include "ud/ud.h"

/* A NIC that places goes: nothing of ours may be in it any more. */
static void tqp_offload_goes(struct tqp_offload_device *odev)
{
	tqp_link_remove(odev);
	tqp_place_gone(odev);
}

static int __init tqp_init(void)
{
	int ret;

	ret = tqp_device_check_params();
	if (ret)
		return ret;
	tqp_end_init();
	ret = tqp_work_init();
	if (ret)
		return ret;
	ret = tqp_conn_init();
	if (ret)
		goto err_work;
	ret = tqp_number_init();
	if (ret)
		goto err_conn;
	ret = tqp_offload_init(tqp_offload_goes);
	if (ret)
		goto err_number;
	ret = tqp_ud_init();
	if (ret)
		goto err_offload;
	ret = tqp_netdev_init();
	if (ret)
		goto err_ud;
	ret = tqp_link_init();
	if (ret)
		goto err_netdev;
	ret = tqp_stream_init();
	if (ret)
		goto err_link;
	tqp_mr_mapped_init();
	return 0;

err_link:
	tqp_link_exit();
	tqp_cm_exit();
err_netdev:
	tqp_netdev_exit();
err_ud:
	tqp_ud_exit();
err_offload:
	tqp_offload_exit();
err_number:
	tqp_number_exit();
err_conn:
	tqp_conn_exit();
err_work:
	tqp_work_exit();
	return ret;
}

static void __exit tqp_exit(void)
{
	tqp_stream_exit();
	tqp_link_exit();
	tqp_cm_exit();
	tqp_netdev_exit();
	tqp_ud_exit();
	tqp_offload_exit();
	tqp_number_exit();
	tqp_conn_exit();
	rcu_barrier();	/* regions and windows let go by callbacks of ours */
	/* Drains the releases of MRs whose last pages conn let go. */
	tqp_work_exit();
}

module_init(tqp_init);
module_exit(tqp_exit);

MODULE_DESCRIPTION("RDMA queue pairs on Linux TCP connections");
MODULE_LICENSE("GPL");
