// SPDX-License-Identifier: GPL-2.0
/*
 * The right edge of the receive window, while a reader's post is open.
 *
 * What comes behind the end of a post, before the reader has posted again, is copied.  The
 * peer sends as far as the window lets it: half a burst or more on average.  So of a reader
 * that comes back at once, the edge stands a little behind the end of what it has posted;
 * the next post moves it, and tells the peer.  The peer then has nothing to send for a round
 * trip, and its program goes on writing meanwhile.
 *
 * That is for readers that do nothing but read, and for short round trips.  Who works on what
 * it got wants the peer to go on; and so does the network, if a round trip is long beside a
 * post, or if it is what limits the rate: then little waits when a reader posts, which is
 * looked at, without an edge, now and then.
 *
 * The edge never goes back, as of TCP.  It is held by rcv_ssthresh, which TCP enlarges as it
 * sees fit once the post has ended, and which never goes below two segments here: whatever
 * else reads from the socket, the peer never finds the window closed because of a post.
 *
 * TCP acknowledges a segment in softirq, before the reader runs.  Hence sk_data_ready is
 * ours while the post is open; and TCP takes its slow path then, which calls that before it
 * acknowledges.
 */
#include "object/tqp.h"
#include "stream/place.h"

void tqp_edge_call(struct tqp_place *place)
{
	u64 now = ktime_get_ns();

	place->prompt = place->left_at && (now - place->left_at) * TQP_EDGE_PART < place->call_ns;
	place->called_at = now;
}

void tqp_edge_return(struct tqp_place *place)
{
	place->left_at = ktime_get_ns();
	place->call_ns = place->left_at - place->called_at;
}

/* ---- while it is held ---- */

/* No further than to the edge; the right edge of what the peer was told is no further back for it. */
static u32 tqp_edge_room(const struct sock *sk, const struct tqp_place *place)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	s32 room = place->edge - tp->rcv_nxt;

	return min_t(u32, max_t(s32, room, 2 * tp->advmss), tp->window_clamp);
}

void tqp_edge_keep(struct sock *sk, struct tqp_place *place)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (!place->edged)
		return;
	tp->rcv_ssthresh = min(tp->rcv_ssthresh, tqp_edge_room(sk, place));
	tp->pred_flags = 0;	/* the next segment, too, is seen before it is acknowledged */
}

/* The sk lock, or softirq's. */
static void tqp_edge_data_ready(struct sock *sk)
{
	struct tqp_stream *stream = tqp_stream_of(sk);

	if (!stream || !stream->data_ready)	/* somebody kept this function, and gave it back too late */
		return;
	if (stream->place)
		tqp_edge_keep(sk, stream->place);
	stream->data_ready(sk);
}

/* Until tqp_post_cancel(), which is before the reader returns, and before another ULP comes. */
static void tqp_edge_hook(struct sock *sk)
{
	struct tqp_stream *stream = tqp_stream_of(sk);

	write_lock_bh(&sk->sk_callback_lock);
	if (sk->sk_data_ready != tqp_edge_data_ready) {
		stream->data_ready = sk->sk_data_ready;
		WRITE_ONCE(sk->sk_data_ready, tqp_edge_data_ready);
	}
	write_unlock_bh(&sk->sk_callback_lock);
}

static void tqp_edge_unhook(struct sock *sk)
{
	struct tqp_stream *stream = tqp_stream_of(sk);

	write_lock_bh(&sk->sk_callback_lock);
	if (sk->sk_data_ready == tqp_edge_data_ready)
		WRITE_ONCE(sk->sk_data_ready, stream->data_ready);
	write_unlock_bh(&sk->sk_callback_lock);
}

/* ---- from a post's opening to its end ---- */

/* With an edge little waits at the next post whatever the peer does: one in TQP_EDGES is without. */
static void tqp_edge_count(struct tqp_place *place)
{
	if (place->edges)
		place->edges = (place->edges + 1) % TQP_EDGES;
	else
		place->edges = place->owner->queued >= TQP_EDGE_BEHIND_BYTES;
}

/* @bytes: that are posted. */
static bool tqp_edge_pays(const struct sock *sk, const struct tqp_place *place, u32 bytes)
{
	u64 rtt = min(tqp_window_rtt_ns(sk), (u64)tcp_min_rtt(tcp_sk(sk)) * NSEC_PER_USEC);

	return place->edges && place->prompt && bytes >= TQP_PLACE_POST_BYTES / 2 &&
	       rtt * TQP_EDGE_RTTS < place->post_ns;
}

void tqp_edge_open(struct sock *sk, struct tqp_place *place)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 bytes = tqp_recv_posted_bytes(place->owner);
	u32 window = tcp_receive_window(tp);

	sock_owned_by_me(sk);
	place->opened_at = ktime_get_ns();
	tqp_edge_count(place);
	if (!tqp_edge_pays(sk, place, bytes))
		return;
	place->edge = place->posted + bytes + TQP_EDGE_BEHIND_BYTES;
	place->edged = true;
	tqp_edge_hook(sk);
	tp->rcv_ssthresh = tqp_edge_room(sk, place);
	tp->pred_flags = 0;
	if (min_t(u32, max(tcp_space(sk), 0), tp->rcv_ssthresh) >= 2 * window)
		__tcp_send_ack(sk, tp->rcv_nxt, 0);
}

void tqp_edge_close(struct sock *sk, struct tqp_place *place)
{
	struct tcp_sock *tp = tcp_sk(sk);

	sock_owned_by_me(sk);
	place->post_ns += (s64)(ktime_get_ns() - place->opened_at - place->post_ns) / TQP_WINDOW_CALLS;
	if (!place->edged)
		return;
	place->edged = false;
	tqp_edge_unhook(sk);
	tp->rcv_ssthresh = max_t(u32, tp->rcv_ssthresh, min_t(u32, TQP_EDGE_BEHIND_BYTES, tp->window_clamp));
}
