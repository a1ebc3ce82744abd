// SPDX-License-Identifier: GPL-2.0
/*
 * What the peer asks of our memory: READs, atomics, and the right to WRITE.
 *
 * Requests are checked, and atomics executed, when they are received in order.
 * Their responses wait in a ring for the transmit side.  A READ's pages go to
 * TCP as they are.
 */
#include "memory/memory.h"
#include "tx/tx.h"

static_assert((TQP_RESPONSES_MAX & (TQP_RESPONSES_MAX - 1)) == 0);

static struct tqp_response *tqp_response_at(const struct tqp_conn *conn, u32 index)
{
	return &conn->responder.responses[index % TQP_RESPONSES_MAX];
}

static int tqp_qp_access(const struct tqp_conn *conn)
{
	return READ_ONCE(conn->qp->attr.qp_access_flags);
}

bool tqp_may_write(const struct tqp_conn *conn, u32 rkey, u64 va, u64 bytes)
{
	bool ok;

	if (!(tqp_qp_access(conn) & IB_ACCESS_REMOTE_WRITE))
		return false;
	if (!bytes)	/* IBTA: no key is looked at */
		return true;
	rcu_read_lock();
	ok = tqp_key_mr(conn, rkey, va, bytes, IB_ACCESS_REMOTE_WRITE);
	rcu_read_unlock();
	return ok;
}

int tqp_write_check(struct tqp_conn *conn)
{
	const struct tqp_rx_msg *msg = &conn->rx.msg;

	if (!msg->length_known)
		return TCP_BTH_NAK_INVALID_REQUEST;
	return tqp_may_write(conn, msg->rkey, msg->va, msg->length) ? 0 : TCP_BTH_NAK_REMOTE_ACCESS;
}

bool tqp_response_room(struct tqp_conn *conn)
{
	if (!conn->responder.responses)
		conn->responder.responses = kcalloc(TQP_RESPONSES_MAX, sizeof(*conn->responder.responses),
					  GFP_ATOMIC | __GFP_NOWARN | __GFP_ACCOUNT);
	if (!conn->responder.responses)
		return false;	/* the stall timer comes back */
	WRITE_ONCE(conn->responder.rx_waits, true);
	smp_mb();	/* pairs with tqp_response_done(): it sees us wait, or we see it done */
	/* the slot's last use was before that */
	if (smp_load_acquire(&tqp_response_at(conn, conn->responder.tail)->busy))
		return false;
	WRITE_ONCE(conn->responder.rx_waits, false);
	return true;
}

/* ---- requests ---- */

/* Take what @response will read, and through which window; tqp_revoke() finds it there. */
static bool tqp_response_pin(struct tqp_conn *conn, struct tqp_response *response,
			     const struct tcp_bth_read_request *request)
{
	response->mr = tqp_key_pin(conn, request->rkey, request->va, request->length,
				   IB_ACCESS_REMOTE_READ, &response->binding);
	return response->mr;
}

static int tqp_read_request(struct tqp_conn *conn, struct tqp_response *response)
{
	struct tcp_bth_read_request request;

	tcp_bth_get_read_request(conn->rx.operands, &request);
	if (request.length > tqp_message_max(conn))
		return TCP_BTH_NAK_INVALID_REQUEST;
	if (!(tqp_qp_access(conn) & IB_ACCESS_REMOTE_READ))
		return TCP_BTH_NAK_REMOTE_ACCESS;
	if (request.length && !tqp_response_pin(conn, response, &request))
		return TCP_BTH_NAK_REMOTE_ACCESS;
	response->opcode = TCP_BTH_OP_READ_RESPONSE_ONLY;
	response->source = (struct ib_sge) {
		.addr = request.va,
		.length = request.length,
		.lkey = request.rkey,
	};
	response->length = request.length;
	response->sink_va = request.sink_va;
	response->sink_key = request.sink_key;
	return 0;
}

/*
 * Locked instructions on the page itself: atomic with this CPU, the others, and whoever shares
 * the page with this machine, hence sync_cmpxchg() (see tqp_offload_cmpxchg()).
 */
static u64 tqp_atomic_execute(u8 opcode, u64 *at, const struct tcp_bth_atomic_request *request)
{
	u64 was, before;

	if (opcode == TCP_BTH_OP_CMP_SWAP)
		return sync_cmpxchg(at, request->compare, request->swap_add);
	before = READ_ONCE(*at);
	do {
		was = before;
		before = sync_cmpxchg(at, was, was + request->swap_add);
	} while (before != was);
	return was;
}

static int tqp_atomic_request(struct tqp_conn *conn, struct tqp_response *response)
{
	struct tcp_bth_atomic_request request;
	struct tqp_mr *mr;
	u64 before = 0;
	u32 run;

	tcp_bth_get_atomic_request(conn->rx.operands, &request);
	if (!IS_ALIGNED(request.va, sizeof(u64)))
		return TCP_BTH_NAK_INVALID_REQUEST;
	/* rdma_cm has no word for atomics: there the MR alone permits them */
	if (!(tqp_qp_access(conn) & (IB_ACCESS_REMOTE_ATOMIC | IB_ACCESS_REMOTE_READ)))
		return TCP_BTH_NAK_REMOTE_ACCESS;
	rcu_read_lock();
	mr = tqp_key_mr(conn, request.rkey, request.va, sizeof(u64), IB_ACCESS_REMOTE_ATOMIC);
	if (mr)
		before = tqp_atomic_execute(conn->rx.msg.opcode,
					    tqp_mr_kaddr(mr, request.va, sizeof(u64), &run),
					    &request);
	rcu_read_unlock();
	if (!mr)
		return TCP_BTH_NAK_REMOTE_ACCESS;
	tcp_bth_put64(response->value, before);
	response->opcode = TCP_BTH_OP_ATOMIC_ACKNOWLEDGE;
	response->length = TCP_BTH_ATOMIC_RESPONSE_BYTES;
	return 0;
}

int tqp_request(struct tqp_conn *conn)
{
	struct tqp_response *response = tqp_response_at(conn, conn->responder.tail);
	int syndrome;

	response->mr = NULL;
	response->binding = NULL;
	response->source.lkey = 0;	/* an atomic has none, and the slot may have had one */
	response->msn = conn->rx.msg.msn;
	syndrome = conn->rx.msg.kind == TCP_BTH_KIND_READ_REQUEST ?
		   tqp_read_request(conn, response) : tqp_atomic_request(conn, response);
	if (syndrome)
		return syndrome;
	tqp_count(conn->dev, response->opcode == TCP_BTH_OP_READ_RESPONSE_ONLY ?
		  TQP_C_rx_read_requests : TQP_C_rx_atomics, 1);
	tqp_tx_msg_init(&response->msg, conn);
	response->msg.is_response = true;
	response->msg.mrs = &response->mr;
	response->msg.nr_mrs = response->mr ? 1 : 0;
	response->busy = true;
	conn->responder.tail++;		/* tqp_tx_answer() sends it */
	return 0;
}

/* ---- responses ---- */

static void tqp_response_begin(struct tqp_conn *conn, struct tqp_response *response)
{
	bool atomic = response->opcode == TCP_BTH_OP_ATOMIC_ACKNOWLEDGE;
	struct tqp_tx_source source = {
		.msg = &response->msg,
		.rec = {
			.length = response->length,
			.msn = response->msn,
			.opcode = response->opcode,
			.ext_bytes = tcp_bth_ext_bytes(response->opcode),
			.va = response->sink_va,
			.rkey = response->sink_key,
			.dma_length = response->length,
		},
		.sges = &response->source,
		.nr_sge = 1,
		.data = atomic ? response->value : NULL,
	};

	tqp_tx_begin(conn, &source);
}

bool tqp_response_next(struct tqp_conn *conn)
{
	if (!tqp_response_waits(conn))
		return false;
	tqp_response_begin(conn, tqp_response_at(conn, conn->responder.head++));
	return true;
}

/* TCP has let go of the pages, or never had them. */
void tqp_response_done(struct tqp_tx_msg *msg)
{
	struct tqp_response *response = container_of(msg, struct tqp_response, msg);
	struct tqp_conn *conn = msg->conn;

	if (response->mr)
		tqp_mr_put(response->mr);
	if (response->binding)
		tqp_binding_put(response->binding);
	/* after the last use of the slot */
	smp_store_release(&response->busy, false);
	smp_mb();	/* pairs with tqp_response_room(): it sees us, or we see it wait */
	if (tqp_tx_waits(&conn->tx, TQP_TX_WAIT_RESPONSE))
		tqp_tx_kick(conn);
	if (READ_ONCE(conn->responder.rx_waits) && READ_ONCE(conn->state) != TQP_CONN_DEAD)
		tqp_queue_delayed(conn, &conn->rx.work, 0);
}

bool tqp_response_uses(const struct tqp_conn *conn, u32 key)
{
	for (u32 i = 0; conn->responder.responses && i < TQP_RESPONSES_MAX; i++)
		/* pairs with tqp_response_done() */
		if (smp_load_acquire(&conn->responder.responses[i].busy) &&
		    conn->responder.responses[i].source.lkey == key)
			return true;
	return false;
}

bool tqp_response_holds(const struct tqp_conn *conn, const struct tqp_mr *mr, u32 window)
{
	for (u32 i = 0; conn->responder.responses && i < TQP_RESPONSES_MAX; i++) {
		const struct tqp_response *response = tqp_response_at(conn, conn->responder.head + i);
		bool waits = i < conn->responder.tail - conn->responder.head;

		if (response->busy && (waits || response->msg.unacked) &&
		    (mr ? response->mr == mr : response->source.lkey >> 8 == window))
			return true;
	}
	return false;
}
