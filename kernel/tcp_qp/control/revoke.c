// SPDX-License-Identifier: GPL-2.0
/*
 * Deregistration of memory that TCP may still send, in SENDs and WRITEs of ours
 * or in READ responses, and of windows that READs came through.  What the
 * application writes there next must never leave under an old message's name:
 * connections with unacknowledged messages from the memory are reset.  Acknowledged
 * bytes are never sent again, so what a driver still holds of those is only waited for.
 */
#include <linux/sched/signal.h>
#include "control/control.h"
#include "memory/memory.h"
#include "tx/tx.h"

enum {
	/*
	 * For messages that are as good as over.  The peer's ACK of a READ response
	 * may be as late as TCP delays one, 40 ms, if the peer has nothing to send.
	 */
	TQP_REVOKE_FIRST_MS = 60,
	TQP_REVOKE_LOOKS = 256,		/* at QPs, of whomever, under one hold of the table's lock */
};

/* What nobody may send from any more: a region, or what a window was opened to. */
struct tqp_revoked {
	struct tqp_device *dev;
	struct tqp_ucontext *uctx;
	u32 pdn;
	u32 key;
	const struct tqp_mr *mr;	/* NULL: a window */
	const refcount_t *refs;		/* its users' and one more */
	wait_queue_head_t *unused;	/* refs fell to 1 */
};

static bool tqp_wqe_holds(const struct tqp_tx_msg *msg, const struct tqp_mr *mr)
{
	if (!msg->loaded || !msg->unacked)	/* else its keys are pinned */
		return false;
	for (u32 i = 0; i < msg->nr_mrs; i++)
		if (msg->mrs[i] == mr)
			return true;
	return false;
}

static bool tqp_conn_holds(const struct tqp_conn *conn, const struct tqp_revoked *what)
{
	for (u32 i = 0; what->mr && i <= conn->tx.sq_mask; i++)
		if (tqp_wqe_holds(&conn->tx.msgs[i], what->mr))
			return true;
	return tqp_response_holds(conn, what->mr, what->key >> 8);
}

/*
 * The conn of a QP from *@index on that may send from there, with a reference.
 * NULL: there is none up to the new *@index, which is 0 if that was all.
 */
static struct tqp_conn *tqp_next_conn(const struct tqp_revoked *what, unsigned long *index)
{
	struct tqp_conn *conn = NULL;
	struct tqp_device *dev = what->dev;
	u32 left = TQP_REVOKE_LOOKS;
	struct tqp_qp *qp;

	xa_lock(&dev->qps);	/* a QP leaves before it is destroyed */
	xa_for_each_start(&dev->qps, *index, qp, *index) {
		if (qp->pd->pdn == what->pdn)
			conn = tqp_qp_conn_get(qp);
		if (conn || !--left)
			break;
	}
	*index = qp ? *index + 1 : 0;
	xa_unlock(&dev->qps);
	return conn;
}

static void tqp_revoke_from(struct tqp_conn *conn, const struct tqp_revoked *what)
{
	lock_sock(conn->sk);
	if (tqp_conn_holds(conn, what))
		tqp_conn_fail(conn, TCP_QP_REASON_LOCAL_ERROR);
	release_sock(conn->sk);
}

/* The table's and the caller's reference is the last one. */
static bool tqp_is_unused(void *of)
{
	const struct tqp_revoked *what = of;

	return refcount_read(what->refs) == 1;
}

static void tqp_revoke_from_all(const struct tqp_revoked *what)
{
	struct tqp_conn *conn;
	unsigned long index = 0;

	do {
		conn = tqp_next_conn(what, &index);
		if (conn) {
			tqp_revoke_from(conn, what);
			tqp_conn_put(conn);
		}
		cond_resched();
	} while (index && !fatal_signal_pending(current));
}

/*
 * Only QPs of its own protection domain send from a region, or through a window.  When a process or the
 * device ends they end with it, and reset their connections themselves.
 */
static void tqp_revoke(struct tqp_revoked *what)
{
	if (!tqp_end_must_wait(what->dev))
		return;
	/* most often the last acknowledgement, or a driver's completion, is on its way */
	if (tqp_end_wait(what->dev, what->uctx, what->unused, tqp_is_unused, what,
			 TQP_REVOKE_FIRST_MS))
		return;
	tqp_revoke_from_all(what);
	if (tqp_end_wait(what->dev, what->uctx, what->unused, tqp_is_unused, what,
			 TQP_DRIVER_MS) || !tqp_end_must_wait(what->dev))
		return;
	tqp_count(what->dev, TQP_C_tx_release_timeouts, 1);
	dev_warn_ratelimited(&what->dev->ib.dev, "a driver still holds pages of key 0x%x\n",
			     what->key);
}

static struct tqp_revoked tqp_revoked_mr(struct tqp_mr *mr)
{
	return (struct tqp_revoked) {
		.dev = mr->dev,
		.uctx = mr->uctx,
		.pdn = mr->pdn,
		.key = mr->key,
		.mr = mr,
		.refs = &mr->refs,
		.unused = &mr->unused,
	};
}

/*
 * Its exporter took the memory back, and waits for us.  Not tqp_end_wait(): it
 * is no program that waits here.  What a driver does not give back in time stays
 * mapped until it does; so does what is deregistered meanwhile, which waits for this.
 */
static void tqp_mr_taken(struct work_struct *work)
{
	struct tqp_mr *mr = container_of(work, struct tqp_mr, taken_work);
	struct tqp_revoked what = tqp_revoked_mr(mr);

	synchronize_rcu();	/* whoever looked it up and copies */
	tqp_revoke_from_all(&what);
	wait_event_timeout(mr->unused, tqp_is_unused(&what) || READ_ONCE(mr->withdrawn),
			   msecs_to_jiffies(TQP_DRIVER_MS));
	if (tqp_is_unused(&what))
		tqp_mr_let_go(mr);
	else if (!READ_ONCE(mr->withdrawn))
		tqp_count(mr->dev, TQP_C_tx_release_timeouts, 1);
}

struct ib_mr *tqp_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 bytes, u64 iova, int access,
			      TQP_DMAH_PARAM struct ib_udata *udata)
{
	if (TQP_DMAH)
		return ERR_PTR(-EOPNOTSUPP);
	return tqp_mr_reg_user(ibpd, start, bytes, iova, access, tqp_mr_taken);
}

struct ib_mr *tqp_reg_dmabuf_mr(struct ib_pd *ibpd, u64 offset, u64 bytes, u64 iova, int fd,
				int access, TQP_DMAH_PARAM struct uverbs_attr_bundle *attrs)
{
	if (TQP_DMAH)
		return ERR_PTR(-EOPNOTSUPP);
	return tqp_mr_reg_dmabuf(ibpd, offset, bytes, iova, fd, access, tqp_mr_taken);
}

int tqp_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct tqp_mr *mr = to_tqp_mr(ibmr);
	struct tqp_revoked what = tqp_revoked_mr(mr);

	tqp_mr_withdraw(mr);
	tqp_revoke(&what);
	tqp_mr_forget(mr);
	return 0;
}

/* What was read through it may be on its way yet, to a peer that takes its time. */
int tqp_dealloc_mw(struct ib_mw *ibmw)
{
	struct tqp_window *window = to_tqp_mw(ibmw)->window;
	struct tqp_device *dev = to_tqp_device(ibmw->device);
	struct tqp_revoked what = {
		.dev = dev,
		.uctx = to_tqp_ucontext(ibmw->pd->uobject->context),
		.pdn = window->pdn,
		.key = window->index << 8,
		.refs = &window->refs,
		.unused = &window->unused,
	};

	tqp_mw_withdraw(dev, window);
	tqp_revoke(&what);
	tqp_mw_forget(dev, window);
	return 0;
}
