// SPDX-License-Identifier: GPL-2.0
/*
 * splice() from a socket that posts.
 *
 * TCP's own stops before a placed packet, and has nothing then: to its caller the stream has
 * ended.  Whoever comes to such a packet gets a copy of its bytes, which recvmsg makes.
 *
 * splice_read is an operation of struct socket, and they are shared by all sockets of a
 * family.  So a socket has our copy of them, from its first post on until it has another ULP
 * or is disconnected: none that listens ever has, since who is accepted gets its listener's.
 */
#include <linux/mutex.h>
#include <linux/net.h>
#include <linux/splice.h>
#include <net/inet_common.h>
#include "stream/place.h"

static struct tqp_splice_family {
	const struct proto_ops *base;
	struct proto_ops ops;
} tqp_splice_families[2];	/* IPv4, IPv6 */

static DEFINE_MUTEX(tqp_splice_mutex);

static u32 tqp_splice_placed(struct sock *sk)
{
	u32 placed;

	lock_sock(sk);
	placed = tqp_post_next(sk);
	release_sock(sk);
	return placed;
}

/*
 * Before a placed packet TCP tells of an error, of an end, or that nothing waits.  So that is looked
 * for before, and once more, since TCP may have waited until it came.
 */
static ssize_t tqp_splice_read(struct socket *sock, loff_t *ppos, struct pipe_inode_info *pipe,
			       size_t len, unsigned int flags)
{
	struct sock *sk = sock->sk;
	u32 placed = tqp_splice_placed(sk);
	ssize_t ret = 0;

	while (!placed) {
		u64 before = tqp_recv_taken(sk);

		ret = inet_stream_ops.splice_read(sock, ppos, pipe, len, flags);
		if (ret > 0)
			return ret;
		placed = tqp_splice_placed(sk);
		/* another reader may have taken what TCP stopped at */
		if (!placed && ((ret && ret != -EAGAIN) || tqp_recv_taken(sk) == before))
			return ret;
	}
	if (ret)
		tqp_recv_tell_later(sk, ret);
	return copy_splice_read(sock->file, ppos, pipe, min_t(size_t, len, placed), flags);
}

static struct tqp_splice_family *tqp_splice_family_of(const struct proto_ops *base)
{
	struct tqp_splice_family *family = NULL;

	mutex_lock(&tqp_splice_mutex);
	for (u32 i = 0; i < ARRAY_SIZE(tqp_splice_families) && !family; i++) {
		if (!tqp_splice_families[i].base) {
			tqp_splice_families[i].ops = *base;
			tqp_splice_families[i].ops.splice_read = tqp_splice_read;
			tqp_splice_families[i].base = base;
		}
		if (tqp_splice_families[i].base == base)
			family = &tqp_splice_families[i];
	}
	mutex_unlock(&tqp_splice_mutex);
	return family;
}

bool tqp_splice_put_on(struct sock *sk)
{
	struct socket *sock = sk->sk_socket;
	struct tqp_splice_family *family;

	sock_owned_by_me(sk);
	if (!sock)
		return false;
	if (sock->ops->splice_read == tqp_splice_read)
		return true;
	/* Any other than TCP's would not know of placed packets, either. */
	if (sock->ops->splice_read != inet_stream_ops.splice_read)
		return false;
	family = tqp_splice_family_of(sock->ops);
	if (!family)
		return false;
	WRITE_ONCE(sock->ops, &family->ops);
	return true;
}

void tqp_splice_take_off(struct sock *sk)
{
	struct socket *sock = sk->sk_socket;

	if (sock && sock->ops->splice_read == tqp_splice_read)
		WRITE_ONCE(sock->ops, container_of(sock->ops, struct tqp_splice_family, ops)->base);
}
