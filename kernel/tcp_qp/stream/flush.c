// SPDX-License-Identifier: GPL-2.0
/*
 * Packets that were read here on another CPU than they were made on.
 *
 * The kernel keeps them, and so our pages, on a list of the CPU that made them, until that
 * one next receives: on a quiet machine, never (skb_attempt_defer_free()).  A NAPI of ours
 * that has nothing to poll makes each CPU look through its list.
 */
#include <linux/cpu.h>
#include <linux/netdevice.h>
#include <linux/percpu.h>
#include <linux/workqueue.h>
#include "stream/stream.h"

struct tqp_stream_flush {
	struct napi_struct napi;
	struct work_struct work;
};

static struct tqp_stream_flush __percpu *tqp_stream_flushes;
static struct net_device *tqp_stream_dummy;

static int tqp_stream_flush_poll(struct napi_struct *napi, int budget)
{
	napi_complete_done(napi, 0);
	return 0;
}

/* On its CPU: the softirq runs when BHs are enabled. */
static void tqp_stream_flush_here(struct work_struct *work)
{
	struct tqp_stream_flush *flush = container_of(work, struct tqp_stream_flush, work);

	local_bh_disable();
	napi_schedule(&flush->napi);
	local_bh_enable();
}

/* Does not wait: who looks for pages looks again. */
void tqp_stream_flush(void)
{
	int cpu;

	cpus_read_lock();
	for_each_online_cpu(cpu)
		schedule_work_on(cpu, &per_cpu_ptr(tqp_stream_flushes, cpu)->work);
	cpus_read_unlock();
}

int tqp_stream_flush_init(void)
{
	int cpu;

	tqp_stream_flushes = alloc_percpu(struct tqp_stream_flush);
	if (!tqp_stream_flushes)
		return -ENOMEM;
	tqp_stream_dummy = alloc_netdev_dummy(0);
	if (!tqp_stream_dummy) {
		free_percpu(tqp_stream_flushes);
		return -ENOMEM;
	}
	for_each_possible_cpu(cpu) {
		struct tqp_stream_flush *flush = per_cpu_ptr(tqp_stream_flushes, cpu);

		INIT_WORK(&flush->work, tqp_stream_flush_here);
		set_bit(NAPI_STATE_NO_BUSY_POLL, &flush->napi.state);
		netif_napi_add(tqp_stream_dummy, &flush->napi, tqp_stream_flush_poll);
		napi_enable(&flush->napi);
	}
	return 0;
}

void tqp_stream_flush_exit(void)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		struct tqp_stream_flush *flush = per_cpu_ptr(tqp_stream_flushes, cpu);

		flush_work(&flush->work);
		napi_disable(&flush->napi);
		netif_napi_del(&flush->napi);
	}
	free_netdev(tqp_stream_dummy);
	free_percpu(tqp_stream_flushes);
}
