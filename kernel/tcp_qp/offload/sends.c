// SPDX-License-Identifier: GPL-2.0
/*
 * Sends that the NIC may complete, too (struct tqp_offload_sends): the two oldest ones
 * under way.  Who asks and answers has no more of them, and mostly has the answer, which
 * acknowledges, before TCP hears of it.  TCP copied them, so none has pages that an skb
 * may still send; and all before them are such, so they are completed in order.  Two, as
 * an SQ has that many entries more than its application counts with: it sees that they
 * are free when TCP hears of them.
 */
#include "offload/offload.h"

/* sk lock; of the WQE at sq_next, which TCP copies. */
bool tqp_sends_may(const struct tqp_conn *conn)
{
	const struct tqp_tx *tx = &conn->tx;
	u32 done, ahead;

	if (!conn->offload.sends.on)
		return false;
	done = READ_ONCE(conn->qp->sq->index);	/* may move meanwhile, but past none of these */
	ahead = (tx->sq_next - done) & tx->sq_mask;
	return !ahead || (ahead < TQP_OFFLOAD_SENDS_MAX && tx->msgs[done].nic);
}

void tqp_sends_post(struct tqp_conn *conn, const struct tqp_tx_msg *msg,
		    const struct tqp_msg_rec *rec)
{
	struct tqp_offload_sends *sends = &conn->offload.shadow->sends;
	u32 number = conn->offload.sends.posted++;
	struct tqp_offload_send *send = &sends->send[number % TQP_OFFLOAD_SENDS_MAX];

	sock_owned_by_me(conn->sk);
	send->wr_id = cpu_to_le64(msg->wr_id);
	send->end = cpu_to_le32(rec->start_seq + tqp_msg_stream_bytes(rec->length));
	send->bytes = cpu_to_le32(msg->bytes);
	send->opcode = cpu_to_le32(msg->wc_opcode);
	/* after what it says */
	smp_store_release(&sends->posted, cpu_to_le32(number + 1));
}

/* done_lock, or what is left of a conn that is over: @wc, if the NIC has not written it. */
void tqp_sends_done(struct tqp_conn *conn, const struct ib_uverbs_wc *wc)
{
	struct tqp_nic_sends *sends = &conn->offload.sends;
	struct tqp_offload_shadow *shadow = conn->offload.shadow;
	__le32 *completed = shadow ? &shadow->sends.completed : &sends->completed;

	if (!tqp_cq_post_claimed(conn->qp->scq, wc, completed, sends->heard++))
		tqp_count(conn->dev, TQP_C_tx_nic_messages, 1);
}

void tqp_sends_end(struct tqp_conn *conn)
{
	struct tqp_offload_shadow *shadow = conn->offload.shadow;
	struct tqp_nic_sends *sends = &conn->offload.sends;

	sock_owned_by_me(conn->sk);
	if (!sends->on)
		return;
	sends->on = false;
	sends->completed = READ_ONCE(shadow->sends.completed);
	/* where the NIC hangs, and may look again */
	WRITE_ONCE(shadow->sends.completed, cpu_to_le32(sends->posted));
}
