// SPDX-License-Identifier: GPL-2.0
/*
 * READs and atomics of ours, from the request to the end of the response.
 *
 * Slot msn % TQP_OFFLOAD_READS_MAX says where the response goes, here and, for the
 * switch, in the shadow.  The responder answers in order, so the slot that
 * waits longest is the only one whose response may begin.
 */
#include "memory/memory.h"
#include "offload/offload.h"
#include "tx/wqe.h"

static struct tqp_read *tqp_read_slot(const struct tqp_conn *conn, u16 msn)
{
	return &conn->requester.reads[msn % TQP_OFFLOAD_READS_MAX];
}

/* The slot of the response being received. */
static struct tqp_read *tqp_read_cur(const struct tqp_conn *conn)
{
	return tqp_read_slot(conn, conn->rx.msg.msn);
}

static u16 tqp_reads_max(const struct tqp_conn *conn)
{
	return READ_ONCE(conn->qp->attr.max_rd_atomic) ?: TQP_READS_DEFAULT;
}

bool tqp_read_room(struct tqp_conn *conn)
{
	if (!conn->requester.reads) {
		conn->requester.reads = kcalloc(TQP_OFFLOAD_READS_MAX, sizeof(*conn->requester.reads), GFP_KERNEL_ACCOUNT);
		tqp_shadow_add_reads(conn);
	}
	if (conn->requester.reads && conn->requester.out < tqp_reads_max(conn))
		return true;
	tqp_tx_wait(&conn->tx, TQP_TX_WAIT_READ);
	if (!conn->requester.reads)
		tqp_tx_wait_memory(conn);
	return false;
}

/* Before the request can be answered the switch must know where to. */
static void tqp_read_shadow(struct tqp_conn *conn, u16 msn, const struct tqp_read *read)
{
	struct tqp_offload_read *slot;

	if (!conn->offload.reads || read->atomic)
		return;
	slot = &conn->offload.reads->read[msn % TQP_OFFLOAD_READS_MAX];
	WRITE_ONCE(slot->va, cpu_to_le64(read->va));
	WRITE_ONCE(slot->key, cpu_to_le32(read->key));
	WRITE_ONCE(slot->length, cpu_to_le32(read->length));
	/* the switch reads valid first, and again last */
	smp_store_release(&slot->valid, cpu_to_le32(TQP_OFFLOAD_READ_VALID | msn));
}

static void tqp_read_begin(struct tqp_conn *conn, struct tqp_tx_msg *msg, u16 msn,
		    const struct tqp_read *read)
{
	struct tqp_read *slot = tqp_read_slot(conn, msn);

	*slot = *read;
	slot->msg = msg;
	conn->requester.out++;
	msg->awaited++;
	refcount_inc(&msg->ubuf.refcnt);
	tqp_read_shadow(conn, msn, read);
}

static void tqp_atomic_operands(struct tqp_wqe *wqe)
{
	bool swap = wqe->op->bth_opcode == TCP_BTH_OP_CMP_SWAP;
	struct tcp_bth_atomic_request request = {
		.va = wqe->remote_addr,
		.rkey = wqe->rkey,
		.swap_add = swap ? wqe->swap : wqe->compare_add,
		.compare = swap ? wqe->compare_add : 0,
	};

	tcp_bth_put_atomic_request(wqe->operands, &request);
}

static void tqp_read_operands(struct tqp_wqe *wqe, const struct ib_sge *sink)
{
	struct tcp_bth_read_request request = {
		.va = wqe->remote_addr,
		.rkey = wqe->rkey,
		.length = sink->length,
		.sink_va = sink->addr,
		.sink_key = sink->lkey,
	};

	tcp_bth_put_read_request(wqe->operands, &request);
}

void tqp_request_begin(struct tqp_conn *conn)
{
	static const struct ib_sge nothing;
	struct tqp_wqe *wqe = &conn->tx.wqe;
	const struct ib_sge *sink = wqe->nr_sge ? &wqe->sges[wqe->part] : &nothing;
	struct tqp_read read = {
		.va = sink->addr,
		.key = sink->lkey,
		.length = sink->length,
		.atomic = tqp_is_atomic(wqe->op),
	};
	struct tqp_tx_source source = {
		.msg = tqp_wqe_msg(conn),
		.rec = tqp_wqe_record(wqe, read.atomic ? TCP_BTH_ATOMIC_REQUEST_BYTES :
							 TCP_BTH_READ_REQUEST_BYTES),
		.data = wqe->operands,
		.ends_wqe = wqe->part + 1 >= wqe->nr_sge,
	};

	if (read.atomic)
		tqp_atomic_operands(wqe);
	else
		tqp_read_operands(wqe, sink);
	wqe->part++;
	wqe->remote_addr += sink->length;
	source.rec.msn = conn->tx.request_msn++;
	tqp_read_begin(conn, source.msg, source.rec.msn, &read);
	tqp_tx_begin(conn, &source);
}

bool tqp_read_expected(const struct tqp_conn *conn)
{
	const struct tqp_rx_msg *msg = &conn->rx.msg;
	const struct tqp_read *slot;

	if (!conn->requester.reads || !conn->requester.out)
		return false;
	slot = tqp_read_cur(conn);
	if (!slot->msg)
		return false;
	if (msg->kind == TCP_BTH_KIND_ATOMIC_RESPONSE)
		return slot->atomic;
	return !slot->atomic && msg->length_known && msg->length == slot->length &&
	       msg->va == slot->va && msg->rkey == slot->key;
}

enum ib_wc_status tqp_read_copy(struct tqp_conn *conn, struct sk_buff *skb, u32 skb_off, u32 bytes)
{
	const struct tqp_read *slot = tqp_read_cur(conn);

	return tqp_place_at(conn, skb, skb_off, slot->key, slot->va + conn->rx.msg.done, bytes,
			    IB_ACCESS_LOCAL_WRITE);
}

enum ib_wc_status tqp_atomic_result(struct tqp_conn *conn)
{
	u64 value = tcp_bth_get64(conn->rx.operands);
	const struct tqp_read *slot = tqp_read_cur(conn);
	enum ib_wc_status status = IB_WC_LOC_PROT_ERR;
	const u8 *from = (const u8 *)&value;
	u32 left = sizeof(value), run;
	struct tqp_mr *mr;

	rcu_read_lock();
	mr = tqp_mr_lookup(conn->dev, slot->key);
	if (mr && !tqp_mr_check(mr, conn->qp->pd->pdn, slot->va, left, IB_ACCESS_LOCAL_WRITE)) {
		for (; left; left -= run, from += run) {
			void *to = tqp_mr_kaddr(mr, slot->va + sizeof(value) - left, left, &run);

			memcpy(to, from, run);
		}
		status = IB_WC_SUCCESS;
	}
	rcu_read_unlock();
	return status;
}

static void tqp_read_end(struct tqp_conn *conn, u16 msn)
{
	struct tqp_read *slot = tqp_read_slot(conn, msn);
	struct tqp_tx_msg *msg = slot->msg;

	/* the switch must have forgotten it before the application can know */
	if (conn->offload.reads)
		WRITE_ONCE(conn->offload.reads->read[msn % TQP_OFFLOAD_READS_MAX].valid, 0);
	slot->msg = NULL;
	conn->requester.out--;
	msg->awaited--;
	tqp_tx_msg_put(msg);
}

void tqp_read_done(struct tqp_conn *conn)
{
	tqp_read_end(conn, conn->rx.msg.msn);
	if (tqp_tx_waits(&conn->tx, TQP_TX_WAIT_READ)) {
		tqp_tx_wait_over(&conn->tx, TQP_TX_WAIT_READ);
		tqp_tx_kick(conn);
	}
}

void tqp_read_fail(struct tqp_conn *conn, enum ib_wc_status status)
{
	conn->end.failed_msg = tqp_read_cur(conn)->msg;
	conn->end.failed_status = status;
}

void tqp_read_drop(struct tqp_conn *conn)
{
	for (u32 i = 0; conn->requester.reads && i < TQP_OFFLOAD_READS_MAX; i++) {
		struct tqp_tx_msg *msg = conn->requester.reads[i].msg;

		conn->requester.reads[i].msg = NULL;
		if (msg)	/* awaited stays: it was not answered */
			tqp_tx_msg_put(msg);
	}
	conn->requester.out = 0;
}
