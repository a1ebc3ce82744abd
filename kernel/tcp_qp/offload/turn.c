// SPDX-License-Identifier: GPL-2.0
/*
 * Receives are completed in turns, by the NIC or by us: see struct tqp_offload_shadow.
 * Who has the turn alone completes, so there is one order, and each message is
 * completed once.  TCP may refuse what the NIC has completed; it comes again then,
 * below the mark.
 */
#include "object/trace.h"
#include "offload/offload.h"

enum {
	TQP_TURN_LOOKS = 10000,		/* at a turn that is busy, before somebody else does */
};

static u32 tqp_turn_load(const __le32 *field)
{
	/* the NIC stores what it counts before what says that there is more */
	return le32_to_cpu(smp_load_acquire(field));
}

static void tqp_turn_receives(struct tqp_conn *conn, u32 count)
{
	const struct tqp_offload_shadow *shadow = conn->offload.shadow;
	struct tqp_turn *turn = &conn->offload.turn;
	u32 solicited = le32_to_cpu(READ_ONCE(shadow->solicited));
	struct tqp_ring *rq = conn->qp->rq;

	/* user space has read it from the NIC */
	if (rq)
		rq->index = (rq->index + count) & rq->mask;
	else
		tqp_srq_taken(conn->qp->srq);
	conn->rx.next.untagged += count;
	conn->counters.rx_messages += count;
	turn->untold = true;
	turn->untold_solicited |= solicited != turn->solicited;
	turn->solicited = solicited;
}

void tqp_turn_sync(struct tqp_conn *conn)
{
	const struct tqp_offload_shadow *shadow = conn->offload.shadow;
	struct tqp_turn *turn = &conn->offload.turn;
	u32 receives, writes, last;

	if (!tqp_turn_given(conn))
		return;
	receives = tqp_turn_load(&shadow->completed) - (u32)conn->counters.rx_messages;
	writes = tqp_turn_load(&shadow->writes) - turn->writes;
	if (!receives && !writes)
		return;
	if (receives)
		tqp_turn_receives(conn, receives);
	turn->writes += writes;
	conn->rx.next.write += writes;
	last = le32_to_cpu(READ_ONCE(shadow->last));
	conn->rx.msg.kind = last & TQP_OFFLOAD_LAST_WRITE ? TCP_BTH_KIND_WRITE : TCP_BTH_KIND_SEND;
	conn->rx.msg.length = last & ~TQP_OFFLOAD_LAST_WRITE;
	tqp_count(conn->dev, TQP_C_rx_messages, receives + writes);
	tqp_count(conn->dev, TQP_C_rx_nic_messages, receives + writes);
}

u32 tqp_turn_done(const struct tqp_conn *conn, u32 seq)
{
	u32 done = tqp_turn_load(&conn->offload.shadow->done);

	return after(done, seq) ? done - seq : 0;
}

void tqp_turn_read(struct tqp_conn *conn)
{
	struct tqp_turn *turn = &conn->offload.turn;

	/* what is below the mark still comes by TCP */
	if (turn->state != TQP_TURN_LEFT || tqp_turn_done(conn, tcp_sk(conn->sk)->copied_seq))
		return;
	WRITE_ONCE(turn->state, TQP_TURN_OURS);
	if (turn->over)
		wake_up_all(&conn->wait);
}

bool tqp_turn_take(struct tqp_conn *conn)
{
	const __le32 nic = cpu_to_le32(TQP_OFFLOAD_TURN_NIC), ours = cpu_to_le32(TQP_OFFLOAD_TURN_HOST);
	struct tqp_offload_shadow *shadow = conn->offload.shadow;
	__le32 was;

	for (u32 n = 0; n < TQP_TURN_LOOKS; n++) {
		was = tqp_offload_cmpxchg(&shadow->turn, nic, ours);
		if (was == nic || was == ours) {
			WRITE_ONCE(conn->offload.turn.state, TQP_TURN_LEFT);
			tqp_turn_sync(conn);	/* for the last time */
			tqp_turn_read(conn);
			return true;
		}
		cpu_relax();
	}
	return false;
}

void tqp_turn_give(struct tqp_conn *conn, u32 seq)
{
	struct tqp_offload_shadow *shadow = conn->offload.shadow;
	struct tqp_turn *turn = &conn->offload.turn;

	WRITE_ONCE(turn->state, TQP_TURN_NICS);
	/* trains that are over: we may not look again until sequence numbers are the same once more */
	tqp_mixed_has(&conn->rx.train.mixed, seq);
	if (!tqp_in_train(&conn->rx.train, seq))
		conn->rx.train.bytes = 0;
	turn->writes = conn->rx.next.write;
	WRITE_ONCE(shadow->writes, cpu_to_le32(turn->writes));
	WRITE_ONCE(shadow->done, cpu_to_le32(seq));
	/* after all that it goes on from */
	smp_store_release(&shadow->turn, cpu_to_le32(TQP_OFFLOAD_TURN_NIC));
	tqp_count(conn->dev, TQP_C_rx_turns, 1);
}

void tqp_turn_end(struct tqp_conn *conn)
{
	sock_owned_by_me(conn->sk);
	tqp_turn_sync(conn);
	tqp_turn_tell(conn);
	conn->offload.turn.untold = false;	/* also where the NIC went while it wrote */
	WRITE_ONCE(conn->offload.turn.state, TQP_TURN_NONE);
}

/*
 * The NIC counts before what it counted is in the queue: of that who sleeps there is told
 * once more, when its packet comes.
 */
static bool tqp_turn_is_busy(const struct tqp_conn *conn)
{
	return tqp_turn_given(conn) &&
	       tqp_turn_load(&conn->offload.shadow->turn) == TQP_OFFLOAD_TURN_BUSY;
}

void tqp_turn_tell(struct tqp_conn *conn)
{
	struct tqp_turn *turn = &conn->offload.turn;
	bool solicited = turn->untold_solicited;

	if (!turn->untold)
		return;
	if (!tqp_turn_is_busy(conn)) {
		turn->untold = false;
		turn->untold_solicited = false;
	}
	tqp_cq_came_from(conn->qp->rcq, conn->sk);
	tqp_cq_came(conn->qp->rcq, solicited);
}
