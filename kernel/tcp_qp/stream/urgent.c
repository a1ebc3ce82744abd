// SPDX-License-Identifier: GPL-2.0
/*
 * Urgent data, and packets that were placed.
 *
 * TCP takes the urgent byte out of the packet that has it when that comes, and is lost
 * (BUG()) where it cannot: in a placed one.  A peer may announce it long before, by any
 * path.  So the receive hook lets TCP see nothing urgent of a socket that may have placed
 * packets on their way.  The first such packet that TCP would take is dropped, as if the
 * network had lost it; from then on placed ones are dropped, too, and nothing is posted any
 * more.  What is urgent is let through once every placed packet that had passed the hook is
 * with TCP, or in its backlog before it: after a grace period, as both are done under RCU.
 */
#include "stream/place.h"

enum {
	TQP_URGENT_NONE,
	TQP_URGENT_SEEN,
	TQP_URGENT_WAITS,	/* and urgent_gp is valid */
};

static bool tqp_urgent_passes(struct tqp_place *place)
{
	if (cmpxchg(&place->urgent, TQP_URGENT_NONE, TQP_URGENT_SEEN) == TQP_URGENT_NONE) {
		place->urgent_gp = start_poll_synchronize_rcu();
		smp_store_release(&place->urgent, TQP_URGENT_WAITS);	/* after it */
		return false;
	}
	/* pairs with the release above */
	return smp_load_acquire(&place->urgent) == TQP_URGENT_WAITS &&
	       poll_state_synchronize_rcu(place->urgent_gp);
}

bool tqp_urgent_may(const struct sock *sk, bool placed)
{
	const struct tqp_stream *stream = tqp_stream_rcu(sk);
	struct tqp_place *place = stream ? READ_ONCE(stream->place) : NULL;

	if (placed)	/* what nobody knows where it is comes again */
		return place && !READ_ONCE(place->urgent);
	return !place || tqp_urgent_passes(place);
}

bool tqp_urgent_is_first(const struct sock *sk)
{
	const struct tqp_stream *stream = tqp_stream_rcu(sk);
	const struct tqp_place *place = stream ? READ_ONCE(stream->place) : NULL;

	return place && !tqp_urgent_is_seen(place);
}

bool tqp_urgent_is_seen(const struct tqp_place *place)
{
	return READ_ONCE(place->urgent);
}

bool tqp_urgent_may_post(const struct sock *sk, const struct tqp_place *place)
{
	sock_owned_by_me(sk);
	return place->known && !tqp_urgent_is_seen(place);
}
