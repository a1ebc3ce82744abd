// SPDX-License-Identifier: GPL-2.0
/*
 * A connection to the listener, until a QP takes it.
 *
 * Numbers and addresses prove little, so a request gets nothing but a place in its
 * namespace's list: TQP_NUMBER_HELLO_MS to say which QP it wants, and, where that QP is
 * there and not in RTR yet, TQP_NUMBER_PARK_MS more.  A QP that is not there and one with
 * another peer are answered alike.
 */
#include <linux/slab.h>
#include <net/sock.h>
#include "number/number.h"

static atomic_t tqp_requests_live = ATOMIC_INIT(0);
static DECLARE_WAIT_QUEUE_HEAD(tqp_requests_gone);

static void tqp_request_release(struct kref *ref)
{
	kfree(container_of(ref, struct tqp_request, ref));
	if (atomic_dec_and_test(&tqp_requests_live))
		wake_up_all(&tqp_requests_gone);
}

static void tqp_request_put(struct tqp_request *request)
{
	kref_put(&request->ref, tqp_request_release);
}

void tqp_request_wait_gone(void)
{
	wait_event(tqp_requests_gone, atomic_read(&tqp_requests_live) == 0);
}

void tqp_request_wake(struct tqp_request *request)
{
	u32 left;

	kref_get(&request->ref);
	for (left = tqp_work_now(&request->work); left; left--)
		tqp_request_put(request);
}

static void tqp_request_event(struct tqp_hello_sock *hs)
{
	tqp_request_wake(container_of(hs, struct tqp_request, hs));
}

void tqp_request_evict(struct tqp_request *request)
{
	lockdep_assert_held(&request->tn->lock);
	WRITE_ONCE(request->evicted, true);
	tqp_request_wake(request);
}

/* ---- the namespace's list ---- */

static struct tqp_request *tqp_requests_oldest(struct tqp_number_net *tn)
{
	struct tqp_request *request;

	list_for_each_entry(request, &tn->requests, node)
		if (!READ_ONCE(request->evicted))
			return request;
	return NULL;
}

static void tqp_request_join(struct tqp_request *request)
{
	struct tqp_number_net *tn = request->tn;
	struct tqp_request *oldest;

	spin_lock(&tn->lock);
	oldest = tn->nr_requests >= TQP_NUMBER_REQUESTS_MAX ? tqp_requests_oldest(tn) : NULL;
	if (oldest)
		tqp_request_evict(oldest);
	kref_get(&request->ref);	/* the list's */
	list_add_tail(&request->node, &tn->requests);
	tn->nr_requests++;
	spin_unlock(&tn->lock);
}

/* While its socket keeps the namespace. */
static void tqp_request_leave(struct tqp_request *request)
{
	struct tqp_number_net *tn = request->tn;

	lockdep_assert_held(&request->mutex);
	spin_lock(&tn->lock);
	list_del_init(&request->node);
	tn->nr_requests--;
	if (!tn->nr_requests)
		wake_up_all(&tn->empty);
	spin_unlock(&tn->lock);
	request->tn = NULL;
	tqp_request_put(request);
}

/* It is known from here on whom it is for.  Of those for one QP the oldest goes, if there are many. */
static void tqp_request_heard(struct tqp_request *request, const struct tqp_hello_number *said)
{
	struct tqp_request *other, *oldest = NULL;
	u32 parked = 0;

	spin_lock(&request->tn->lock);
	list_for_each_entry(other, &request->tn->requests, node) {
		if (!other->heard || other->said.dest_qpn != said->dest_qpn ||
		    READ_ONCE(other->evicted))
			continue;
		oldest = oldest ?: other;
		parked++;
	}
	if (parked >= TQP_NUMBER_PARKED_MAX)
		tqp_request_evict(oldest);
	request->said = *said;
	request->heard = true;
	spin_unlock(&request->tn->lock);
	request->deadline = jiffies + msecs_to_jiffies(TQP_NUMBER_PARK_MS);
}

/* ---- whom it is for ---- */

/* Of a QP without a number: may it come to have one? */
static int tqp_request_early(struct tqp_qp *qp)
{
	enum ib_qp_state state = tqp_qp_state(qp);

	return state == IB_QPS_RESET || state == IB_QPS_INIT ? -EAGAIN : -ECONNREFUSED;
}

static int tqp_request_offer(struct tqp_request *request, struct tqp_qp *qp)
{
	struct tqp_number *number = tqp_number_get(qp);
	int err;

	if (!number)
		return tqp_request_early(qp);
	err = tqp_number_offer(number, &request->hs, &request->said);
	tqp_number_put(number);
	return err;
}

static int tqp_request_find(struct tqp_request *request, bool first)
{
	const struct sock *sk = request->hs.sock->sk;
	struct in6_addr local, remote;
	struct tqp_qp *qp;
	int err;

	tqp_number_ends(sk, &local, &remote);
	qp = tqp_number_find_qp(sock_net(sk), &local, request->said.dest_qpn);
	if (!qp)
		return -ECONNREFUSED;
	err = tqp_request_offer(request, qp);
	if (err && err != -EAGAIN)
		tqp_count(qp->dev, TQP_C_number_refused, 1);
	else if (first)
		tqp_count(qp->dev, err ? TQP_C_number_parked : TQP_C_number_taken, 1);
	tqp_qp_put(qp);
	return err;
}

/* ---- the work ---- */

static int tqp_request_hear(struct tqp_request *request)
{
	struct tqp_hello_number said;
	int err = tqp_hello_read(&request->hs, TQP_HELLO_NUMBER);

	if (err)
		return err;
	if (tqp_hello_get_number(request->hs.rx, &said))
		return -EPROTO;
	tqp_request_heard(request, &said);
	return 0;
}

/* Until a QP answers, the peer has nothing more to say. */
static int tqp_request_listen(struct tqp_request *request)
{
	u8 byte;
	int got = tqp_hello_recv(&request->hs, &byte, sizeof(byte));

	return got < 0 ? got : -EPROTO;
}

static int tqp_request_step(struct tqp_request *request)
{
	bool first = !request->heard;
	int err;

	if (READ_ONCE(request->evicted))
		return -ECONNABORTED;
	err = first ? tqp_request_hear(request) : tqp_request_listen(request);
	if (!err || (err == -EAGAIN && !first))
		err = tqp_request_find(request, first);
	if (err == -EAGAIN && time_after_eq(jiffies, request->deadline))
		err = -ETIMEDOUT;
	return err;
}

static void tqp_request_rearm(struct tqp_request *request)
{
	long left = (long)(request->deadline - jiffies);

	kref_get(&request->ref);
	if (!queue_delayed_work(tqp_wq, &request->work, max(left, 1L)))
		tqp_request_put(request);
}

static void tqp_request_work(struct work_struct *work)
{
	struct tqp_request *request = container_of(to_delayed_work(work), struct tqp_request, work);

	mutex_lock(&request->mutex);
	if (request->tn) {
		if (tqp_request_step(request) == -EAGAIN) {
			tqp_request_rearm(request);
		} else {
			/* the socket is a number's now, or gets a reset */
			tqp_request_leave(request);
			tqp_hello_release(&request->hs, true);
		}
	}
	mutex_unlock(&request->mutex);
	tqp_request_put(request);
}

void tqp_request_take(struct tqp_number_net *tn, struct socket *sock,
		      void (*saved_data_ready)(struct sock *sk))
{
	struct tqp_request *request = kzalloc(sizeof(*request), GFP_KERNEL);

	if (!request) {
		sock_release(sock);
		return;
	}
	atomic_inc(&tqp_requests_live);
	kref_init(&request->ref);	/* ours */
	mutex_init(&request->mutex);
	request->tn = tn;
	request->hs.event = tqp_request_event;
	request->hs.sock = sock;
	INIT_DELAYED_WORK(&request->work, tqp_request_work);
	request->deadline = jiffies + msecs_to_jiffies(TQP_NUMBER_HELLO_MS);
	mutex_lock(&request->mutex);	/* bytes that come now wake it, and it is not listed yet */
	tqp_hello_install(&request->hs, saved_data_ready);
	tqp_request_join(request);
	mutex_unlock(&request->mutex);
	tqp_request_wake(request);	/* the hello may be here already */
	tqp_request_put(request);
}
