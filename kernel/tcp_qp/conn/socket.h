/* SPDX-License-Identifier: GPL-2.0 */
/* What of a TCP socket is a conn's, and how it was before. */
#ifndef TQP_CONN_SOCKET_H
#define TQP_CONN_SOCKET_H

#include <linux/mutex.h>
#include <linux/net.h>
#include <net/tcp.h>

enum {
	TQP_MSS_ROUND_MIN_BYTES = 1024,		/* below this, rounding to 128 costs too much */
	TQP_DELACK_MAX_MS = 4,			/* a send that nothing answers is done no later */
	TQP_KEEP_IDLE_S = 30,			/* keepalive, unless the application set its own */
	TQP_KEEP_INTERVAL_S = 5,
	TQP_KEEP_PROBES = 6,
};

/* Our copies of a socket family's operations, made once each and kept till unload. */
struct tqp_family {
	struct proto *base_prot;
	const struct proto_ops *base_ops;
	const struct inet_connection_sock_af_ops *base_af;
	struct proto prot;
	struct proto_ops ops;
	struct inet_connection_sock_af_ops af;
};

/* What of the socket was otherwise before attach. */
struct tqp_sock_saved {
	void (*data_ready)(struct sock *sk);
	void (*write_space)(struct sock *sk);
	void (*state_change)(struct sock *sk);
	u32 delack_max;
	int rcvlowat;
	int sndbuf;
	bool sndbuf_locked;
	bool nagle_off;
	bool gso_disabled;		/* by us */
};

/* Lock: the sk lock, and plain_mutex is taken outside of it. */
struct tqp_conn_socket {
	const struct tqp_family *family;
	bool installed;			/* its callbacks are ours */
	bool undone;			/* it is as it was before attach */
	u16 ext_hdr_bytes;		/* what we added to icsk_ext_hdr_len */
	u32 mss_pmtu;			/* the path MTU for which ext_hdr_bytes was chosen */
	struct mutex plain_mutex;	/* one recv() of plain bytes */
	struct tqp_sock_saved saved;
};

#endif
