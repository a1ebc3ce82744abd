// SPDX-License-Identifier: GPL-2.0
/* What iw_cm is told of a connection.  Each of these is said at most once. */
#include <net/ipv6.h>
#include "cm/cm.h"

/* An IPv4 peer of a dual-stack listener: rdma_cm knows no mapped addresses. */
static void tqp_unmap_address(struct sockaddr_storage *address)
{
	struct sockaddr_in6 in6 = *(struct sockaddr_in6 *)address;
	struct sockaddr_in *in = (struct sockaddr_in *)address;

	if (in6.sin6_family != AF_INET6 || !ipv6_addr_v4mapped(&in6.sin6_addr))
		return;
	memset(address, 0, sizeof(*address));
	in->sin_family = AF_INET;
	in->sin_port = in6.sin6_port;
	in->sin_addr.s_addr = in6.sin6_addr.s6_addr32[3];
}

/* False: the connection is lost already, and there are none. */
static bool tqp_event_addresses(struct socket *sock, struct iw_cm_event *event)
{
	if (kernel_getsockname(sock, (struct sockaddr *)&event->local_addr) < 0 ||
	    kernel_getpeername(sock, (struct sockaddr *)&event->remote_addr) < 0)
		return false;
	tqp_unmap_address(&event->local_addr);
	tqp_unmap_address(&event->remote_addr);
	return true;
}

static void tqp_event_private(struct tqp_ep *ep, struct iw_cm_event *event)
{
	event->private_data_len = ep->hs.hello.private_bytes;
	if (event->private_data_len)
		event->private_data = ep->hs.rx + TQP_HELLO_HEAD_BYTES;
}

/*
 * Fails when the listen is over or its backlog full.  The listener's lock is
 * what keeps its cm_id from going away, and new requests from coming after.
 */
int tqp_ep_tell_request(struct tqp_ep *ep)
{
	struct tqp_listener *listener = ep->listener;
	struct iw_cm_event event = {
		.event = IW_CM_EVENT_CONNECT_REQUEST,
		.provider_data = (void *)(uintptr_t)ep->id,
		.ird = min_t(u16, ep->hs.hello.ird, TQP_HELLO_DEPTH_MAX),
		.ord = min_t(u16, ep->hs.hello.ord, TQP_HELLO_DEPTH_MAX),
	};
	int err = -ECONNABORTED;

	lockdep_assert_held(&ep->mutex);
	tqp_event_private(ep, &event);
	if (!tqp_event_addresses(ep->hs.sock, &event))
		return -ENOTCONN;
	spin_lock(&listener->lock);
	if (!listener->closing)
		err = listener->cm_id->event_handler(listener->cm_id, &event);
	spin_unlock(&listener->lock);
	return err;
}

static void tqp_ep_tell(struct tqp_ep *ep, struct iw_cm_event *event)
{
	int err = ep->cm_id->event_handler(ep->cm_id, event);

	lockdep_assert_held(&ep->mutex);
	if (err && event->private_data_len) {
		/* no memory for a copy: without the data is better than never */
		event->private_data = NULL;
		event->private_data_len = 0;
		err = ep->cm_id->event_handler(ep->cm_id, event);
	}
	WARN_ON_ONCE(err);	/* iw_cm set the work entries aside beforehand */
}

void tqp_ep_tell_connected(struct tqp_ep *ep, int status)
{
	struct iw_cm_event event = {
		.event = ep->active ? IW_CM_EVENT_CONNECT_REPLY : IW_CM_EVENT_ESTABLISHED,
		.status = status,
		.ird = ep->ird,
		.ord = ep->ord,
	};

	if (ep->active && (!status || status == -ECONNREFUSED))
		tqp_event_private(ep, &event);
	if (ep->hs.sock)
		tqp_event_addresses(ep->hs.sock, &event);
	if (status)
		ibdev_dbg(&ep->dev->ib, "connect: %d, %s\n", status, iwcm_reject_msg(status));
	tqp_ep_tell(ep, &event);
}

/* iw_cm wants both: the first stops its users, the second lets go of the QP. */
void tqp_ep_tell_closed(struct tqp_ep *ep)
{
	struct iw_cm_event event = { .event = IW_CM_EVENT_DISCONNECT };

	tqp_ep_tell(ep, &event);
	event.event = IW_CM_EVENT_CLOSE;
	tqp_ep_tell(ep, &event);
}
