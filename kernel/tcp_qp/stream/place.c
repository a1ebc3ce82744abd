// SPDX-License-Identifier: GPL-2.0
/*
 * A socket's context in the NIC that places what it receives.
 *
 * It is made when the first reader could use it, and ends with the socket, with its
 * connection, or with the NIC.  The socket ends in softirq, so a work tells the NIC.  A NIC
 * that does not answer is being reset, and then goes: until then what it may write stays.
 *
 * A NIC that goes waits for no sk lock: whoever has one may have it for as long as he likes,
 * in a page fault that he answers himself.  So a post is taken back as from one whose memory
 * changes (reg.c), and its reader finds that out.
 *
 * Locks: the sk lock, then tqp_place_mutex, then tqp_place_sk_lock.
 */
#include <linux/dma-mapping.h>
#include <linux/mm.h>
#include <net/dst.h>
#include "object/tqp.h"
#include "offload/offload.h"
#include "stream/place.h"

static DEFINE_MUTEX(tqp_place_mutex);
static DEFINE_SPINLOCK(tqp_place_sk_lock);
static LIST_HEAD(tqp_places);
static u32 tqp_places_count;		/* tqp_place_mutex */
static atomic_t tqp_place_ids = ATOMIC_INIT(0);

static const struct tqp_place_hooks *tqp_place_hooks;

void tqp_place_init(const struct tqp_place_hooks *hooks)
{
	tqp_place_hooks = hooks;
}

/* ---- what the NIC and we both see ---- */

static size_t tqp_post_bytes(void)
{
	return struct_size_t(struct tqp_offload_post, pages, TQP_PLACE_PAGES_MAX);
}

static void tqp_place_unmap_post(struct tqp_place *place, struct tqp_offload_device *odev)
{
	dma_unmap_single(odev->dma_dev, place->post_dma, tqp_post_bytes(), DMA_BIDIRECTIONAL);
}

/* Ours, and mapped: a reader looks at it even when the NIC has gone. */
static int tqp_place_map_post(struct tqp_place *place, struct tqp_offload_device *odev)
{
	place->post = alloc_pages_exact(tqp_post_bytes(), GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN);
	if (!place->post)
		return -ENOMEM;
	place->post_dma = dma_map_single(odev->dma_dev, place->post, tqp_post_bytes(),
					 DMA_BIDIRECTIONAL);
	if (dma_mapping_error(odev->dma_dev, place->post_dma))
		return -ENOMEM;
	/* nobody hands it over from the one to the other */
	if (!dma_need_sync(odev->dma_dev, place->post_dma))
		return 0;
	tqp_place_unmap_post(place, odev);
	return -EOPNOTSUPP;
}

void tqp_place_put(struct tqp_place *place)
{
	if (!refcount_dec_and_test(&place->refs))
		return;
	tqp_place_hooks->put(place->net);
	put_net(place->net);
	if (place->post && !place->post_lost)
		free_pages_exact(place->post, tqp_post_bytes());
	kvfree(place->rescued);
	kfree_rcu(place, rcu);
}

/* tqp_place_mutex.  @last: the NIC goes. */
static bool tqp_place_forget(struct tqp_place *place, bool last)
{
	struct tqp_offload_device *odev = place->odev;
	int err = odev->ops->stream_destroy(odev, place->id);

	if (err && !last)
		return false;
	if (err) {	/* it may come to life and write there: that memory is nobody's any more */
		pr_warn("tcp_qp: a NIC did not let go of a post (%d)\n", err);
		place->post_lost = true;
	} else {
		tqp_place_unmap_post(place, odev);
	}
	WRITE_ONCE(place->odev, NULL);
	list_del_init(&place->node);
	tqp_places_count--;
	return true;
}

static void tqp_place_end_now(struct tqp_place *place)
{
	bool forgotten = false;

	mutex_lock(&tqp_place_mutex);
	if (place->odev)
		forgotten = tqp_place_forget(place, false);
	mutex_unlock(&tqp_place_mutex);
	if (forgotten)
		tqp_place_put(place);	/* the list's */
	tqp_place_put(place);
}

static void tqp_place_end_work(struct work_struct *work)
{
	tqp_place_end_now(container_of(work, struct tqp_place, end_work));
}

/* From here on nobody looks for its socket. */
static void tqp_place_leave_sk(struct tqp_place *place)
{
	spin_lock_bh(&tqp_place_sk_lock);
	place->sk = NULL;
	spin_unlock_bh(&tqp_place_sk_lock);
}

void tqp_place_end(struct tqp_place *place)
{
	tqp_place_leave_sk(place);
	queue_work(tqp_wq, &place->end_work);
}

void tqp_place_leave(struct tqp_stream *stream)
{
	struct tqp_place *place = stream->place;

	tqp_post_leave(stream->sk, place);
	tqp_window_free(stream->sk, place);
	WRITE_ONCE(stream->place, NULL);
	tqp_place_end(place);
}

void tqp_place_end_wait(struct tqp_place *place)
{
	tqp_place_leave_sk(place);
	tqp_place_end_now(place);
}

/* ---- looking for one ---- */

struct tqp_place *tqp_place_find(bool (*fits)(struct tqp_place *place, void *arg), void *arg,
				 struct sock **sk)
{
	struct tqp_place *place, *found = NULL;

	if (sk)
		*sk = NULL;
	mutex_lock(&tqp_place_mutex);
	list_for_each_entry(place, &tqp_places, node) {
		if (!fits(place, arg) || found)
			continue;
		found = place;
		refcount_inc(&place->refs);
		spin_lock_bh(&tqp_place_sk_lock);
		/* It forgets the socket before that is freed; then its last reference is gone. */
		if (sk && place->sk && refcount_inc_not_zero(&place->sk->sk_refcnt))
			*sk = place->sk;
		spin_unlock_bh(&tqp_place_sk_lock);
	}
	mutex_unlock(&tqp_place_mutex);
	return found;
}

/* ---- making one ---- */

static struct tqp_place *tqp_place_alloc(struct sock *sk)
{
	struct tqp_place *place = kzalloc(sizeof(*place), GFP_KERNEL_ACCOUNT);

	if (!place)
		return NULL;
	if (tqp_place_hooks->get(sock_net(sk))) {
		kfree(place);
		return NULL;
	}
	place->net = get_net(sock_net(sk));
	refcount_set(&place->refs, 2);	/* the socket's, the list's */
	place->sk = sk;
	INIT_LIST_HEAD(&place->node);
	INIT_WORK(&place->end_work, tqp_place_end_work);
	place->id = BIT(31) | (atomic_inc_return(&tqp_place_ids) & INT_MAX);
	return place;
}

/* Where the connection's packets leave; the NIC stays while tqp_place_mutex is held. */
static struct tqp_offload_device *tqp_place_nic(struct sock *sk)
{
	struct tqp_offload_device *odev = NULL;
	struct dst_entry *dst = sk_dst_get(sk);

	if (dst)
		odev = tqp_offload_find(dst->dev);
	dst_release(dst);
	return odev && odev->ops->stream_create && odev->ops->stream_destroy ? odev : NULL;
}

/* tqp_place_mutex. */
static int tqp_place_tell(struct tqp_place *place, struct tqp_offload_device *odev,
			  struct tqp_offload_stream *os)
{
	int err;

	if (tqp_places_count == TQP_PLACES_MAX)
		return -ENOSPC;
	err = tqp_place_map_post(place, odev);
	if (err)
		return err;
	os->id = place->id;
	os->post = place->post_dma;
	os->post_pages = TQP_PLACE_PAGES_MAX;
	err = odev->ops->stream_create(odev, os);
	if (err) {
		tqp_place_unmap_post(place, odev);
		return err;
	}
	place->odev = odev;
	list_add_tail(&place->node, &tqp_places);
	tqp_places_count++;
	return 0;
}

/* It may have been connected anew meanwhile: then the context is of another connection. */
static bool tqp_place_fits(const struct sock *sk, const struct tqp_offload_flow *flow)
{
	struct tqp_offload_flow now;

	tqp_offload_flow_of(sk, &now);
	return sk->sk_state == TCP_ESTABLISHED && !memcmp(&now, flow, sizeof(now));
}

/* False: the socket is not ours any more, or has one, or another connection. */
static bool tqp_place_install(struct sock *sk, struct tqp_place *place,
			      const struct tqp_offload_flow *flow)
{
	struct tqp_stream *stream;
	bool done = false;

	lock_sock(sk);
	stream = tqp_stream_made(sk);
	if (stream && !stream->place && tqp_place_fits(sk, flow)) {
		WRITE_ONCE(stream->place, place);	/* the hook knows it from here on */
		done = true;
	}
	release_sock(sk);
	return done;
}

/*
 * After a grace period: what passed the hook before it knew of the place was with TCP, or in
 * the backlog of who had the lock, which was received before we got it.
 */
static void tqp_place_is_known(struct sock *sk, u32 id)
{
	struct tqp_place *place;

	lock_sock(sk);
	place = tqp_place_of(sk);
	if (place && place->id == id)	/* it may have gone meanwhile */
		place->known = true;
	release_sock(sk);
}

/* A NIC there is, at the moment. */
static bool tqp_place_could(struct sock *sk)
{
	struct tqp_offload_device *odev;

	mutex_lock(&tqp_place_mutex);
	odev = tqp_place_nic(sk);
	mutex_unlock(&tqp_place_mutex);
	return odev;
}

void tqp_place_make(struct sock *sk)
{
	struct tqp_offload_stream os = {};
	struct tqp_offload_device *odev;
	struct tqp_place *place;
	int err = -EOPNOTSUPP;

	place = tqp_place_could(sk) ? tqp_place_alloc(sk) : NULL;
	if (!place)
		return;
	lock_sock(sk);
	tqp_offload_flow_of(sk, &os.flow);
	os.rcv_nxt = tcp_sk(sk)->rcv_nxt;
	os.rcv_wscale = tcp_sk(sk)->rx_opt.rcv_wscale;
	release_sock(sk);
	mutex_lock(&tqp_place_mutex);
	odev = tqp_place_nic(sk);
	if (odev)
		err = tqp_place_tell(place, odev, &os);
	mutex_unlock(&tqp_place_mutex);
	if (err) {
		refcount_set(&place->refs, 1);
		tqp_place_put(place);
	} else if (!tqp_place_install(sk, place, &os.flow)) {
		tqp_place_end_wait(place);
	} else {
		tqp_end_grace_period();
		tqp_place_is_known(sk, os.id);
	}
}

/* ---- the NIC goes ---- */

/* Of @odev; from here on none waits for it, and none opens a post. */
static bool tqp_place_is_of(struct tqp_place *place, void *odev)
{
	if (place->odev != odev)
		return false;
	WRITE_ONCE(place->gone, true);
	return true;
}

void tqp_place_gone(struct tqp_offload_device *odev)
{
	struct tqp_place *place;
	bool forgotten;

	while ((place = tqp_place_find(tqp_place_is_of, odev, NULL))) {
		tqp_regs_wait_mapped();		/* who maps memory for it has seen it there */
		forgotten = false;
		mutex_lock(&tqp_place_mutex);
		if (place->odev)
			forgotten = tqp_place_forget(place, true);
		mutex_unlock(&tqp_place_mutex);
		if (forgotten)
			tqp_place_put(place);	/* the list's */
		tqp_place_put(place);
	}
	tqp_regs_gone(odev);
}

void tqp_place_renew(struct tqp_stream *stream)
{
	struct tqp_place *place = stream->place;

	if (place && READ_ONCE(place->gone) && !place->owner && !place->rescued)
		tqp_place_leave(stream);
}

/* No socket is left: works tell the NICs. */
void tqp_place_exit(void)
{
	flush_workqueue(tqp_wq);
	tqp_window_exit();
	tqp_regs_exit();
}
