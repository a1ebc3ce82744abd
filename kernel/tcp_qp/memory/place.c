// SPDX-License-Identifier: GPL-2.0
/* The software engine's one copy: from the skb into the posted receive buffer. */
#include "memory/copy.h"
#include "memory/memory.h"

/*
 * RCU keeps the MR's pages pinned: tqp_mr_withdraw() takes the key out of the
 * table and then waits for us.
 */
enum ib_wc_status tqp_place_at(struct tqp_conn *conn, struct sk_buff *skb, u32 skb_off, u32 key,
			       u64 addr, u32 bytes, int access)
{
	enum ib_wc_status status = IB_WC_LOC_PROT_ERR;
	struct tqp_mr *mr;

	rcu_read_lock();
	mr = tqp_key_mr(conn, key, addr, bytes, access);
	if (!mr)
		goto out;
	while (bytes) {
		u32 run;
		void *to = tqp_mr_kaddr(mr, addr, bytes, &run);

		if (!to || !tqp_copy_skb(skb, skb_off, to, run))
			goto out;
		addr += run;
		skb_off += run;
		bytes -= run;
	}
	status = IB_WC_SUCCESS;
out:
	rcu_read_unlock();
	return status;
}

enum ib_wc_status tqp_place_copy(struct tqp_conn *conn, struct sk_buff *skb, u32 skb_off, u32 at,
				 u32 bytes)
{
	const struct tqp_rx *rx = &conn->rx;
	enum ib_wc_status status;

	for (int i = 0; i < rx->wqe.nr_sge && bytes; i++) {
		u32 step;

		if (at >= rx->wqe.sges[i].length) {
			at -= rx->wqe.sges[i].length;
			continue;
		}
		step = min(bytes, rx->wqe.sges[i].length - at);
		status = tqp_place_at(conn, skb, skb_off, rx->wqe.sges[i].lkey, rx->wqe.sges[i].addr + at,
				      step, IB_ACCESS_LOCAL_WRITE);
		if (status)
			return status;
		skb_off += step;
		bytes -= step;
		at = 0;
	}
	return bytes ? IB_WC_LOC_LEN_ERR : IB_WC_SUCCESS;
}
