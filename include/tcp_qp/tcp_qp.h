/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause */
/*
 * tcp_qp: user ABI of the tcp_qp RDMA device beyond standard verbs.
 *
 * Everything else is rdma-core's own: the device speaks the rxe user ABI
 * (RDMA_DRIVER_RXE), so the librxe provider drives its rings.  What verbs
 * lack is giving an existing, connected TCP socket a queue pair, and waiting for
 * completions in the system call that posts.  These are driver methods on
 * UVERBS_OBJECT_QP and UVERBS_OBJECT_CQ, issued by RDMA_VERBS_IOCTL on the
 * context's cmd_fd: the core resolves the handle in the caller's own file.
 */
#ifndef TCP_QP_TCP_QP_H
#define TCP_QP_TCP_QP_H

#include <linux/ioctl.h>
#include <linux/types.h>
#include <rdma/ib_user_ioctl_cmds.h>

#define TCP_QP_ULP_NAME "tcp_qp"
/*
 * TCP_ULP of a TCP socket that stays what it is (no QP), and sends large sends from large
 * pages; of large receives with MSG_WAITALL the NIC writes into the reader's memory what it
 * waits for, where it can.  Before listen(), connect() or after it; what a listener accepts
 * inherits it.
 */
#define TCP_QP_STREAM_ULP_NAME "tcp_qp_stream"

/* In INET_DIAG_ULP_INFO, beside INET_ULP_INFO_NAME: struct tcp_qp_stream_info. */
#define TCP_QP_STREAM_DIAG_INFO 64

struct tcp_qp_stream_info {
	__u64 tx_large_bytes;	/* copied into large pages */
	__u64 tx_other_bytes;	/* of large sends, into TCP's pages: no large one was to be had */
	__u32 pool_bytes;	/* of large pages that the socket has now */
	__u32 flags;		/* 0 */
	/* since 0.2.0 */
	__u64 rx_placed_bytes;	/* received without a copy: the NIC wrote them where a reader waited */
	__u64 rx_posts;		/* readers that waited so */
	__u64 rx_rescued_bytes;	/* placed, and then copied after all: their reader had gone */
};

/*
 * Where hosts connect QPs by number, unless the module's number_port says otherwise.
 * Below 1024: no ordinary user can be there in the kernel's place.
 */
#define TCP_QP_NUMBER_PORT 791
/*
 * A program learns the module's from ibv_query_device(): fw_ver is the version << 32, in
 * libibverbs a string, "4.0.0".
 */
#define TCP_QP_ABI_VERSION 4	/* 2: completion descriptors; 3: watched send queues, bells; 4: LATE_SENDS */

enum tcp_qp_methods {
	TCP_QP_METHOD_ATTACH = (1U << UVERBS_ID_NS_SHIFT),
	TCP_QP_METHOD_QUERY,
	TCP_QP_METHOD_SQ,
	TCP_QP_METHOD_BELL,
};

enum tcp_qp_attach_attrs {
	TCP_QP_ATTR_ATTACH_HANDLE = (1U << UVERBS_ID_NS_SHIFT),	/* IDR, UVERBS_OBJECT_QP, read */
	TCP_QP_ATTR_ATTACH_SOCKET,	/* RAW_FD */
	TCP_QP_ATTR_ATTACH_REQ,		/* PTR_IN struct tcp_qp_attach_req */
	TCP_QP_ATTR_ATTACH_RESP,	/* PTR_OUT struct tcp_qp_attach_resp; also written on errors that have a reason */
};

enum tcp_qp_query_attrs {
	TCP_QP_ATTR_QUERY_HANDLE = (1U << UVERBS_ID_NS_SHIFT),	/* IDR, UVERBS_OBJECT_QP, read */
	TCP_QP_ATTR_QUERY_INFO,		/* PTR_OUT struct tcp_qp_info */
};

enum tcp_qp_sq_attrs {
	TCP_QP_ATTR_SQ_HANDLE = (1U << UVERBS_ID_NS_SHIFT),	/* IDR, UVERBS_OBJECT_QP, read */
	TCP_QP_ATTR_SQ_RESP,		/* PTR_OUT struct tcp_qp_sq */
};

enum tcp_qp_bell_attrs {
	TCP_QP_ATTR_BELL_HANDLE = (1U << UVERBS_ID_NS_SHIFT),	/* IDR, UVERBS_OBJECT_QP, read */
	TCP_QP_ATTR_BELL_REQ,		/* PTR_IN struct tcp_qp_bell: eight bytes, so in the attribute itself */
};

enum tcp_qp_cq_methods {
	TCP_QP_METHOD_CQ_FD = (1U << UVERBS_ID_NS_SHIFT),
};

enum tcp_qp_cq_fd_attrs {
	TCP_QP_ATTR_CQ_FD_HANDLE = (1U << UVERBS_ID_NS_SHIFT),	/* IDR, UVERBS_OBJECT_CQ, read */
	TCP_QP_ATTR_CQ_FD_RESP,		/* PTR_OUT __s32: a completion descriptor, close-on-exec */
};

/*
 * A completion descriptor waits for a CQ without arming it, and without events
 * to read: it is readable (poll, select, epoll, io_uring) while the CQ holds
 * completions that user space has not taken, by the ring's own indices.
 * EPOLLERR: the CQ overflowed.  EPOLLHUP, EPOLLERR: it was destroyed, or its
 * device is gone.  Any number may be open, and they know nothing of
 * ibv_req_notify_cq() and its channels.
 *
 * Who holds one, also by fork() or SCM_RIGHTS, may wait and have what is
 * posted looked at, and no more: the rings are not reached through it.
 */
enum {
	TCP_QP_CQ_DOORBELL = 1 << 0,	/* what was posted to qpn, whose send or receive CQ this is */
	TCP_QP_CQ_WAIT = 1 << 1,	/* until readable */
	TCP_QP_CQ_TIMEOUT = 1 << 2,	/* with WAIT: at most timeout_ns */
	TCP_QP_CQ_SIGNAL = 1 << 3,	/* readable from now on, completions or not */
	TCP_QP_CQ_CLEAR = 1 << 4,	/* readable for completions alone again, after SIGNAL */
};

/*
 * TCP_QP_IOCTL_CQ, on a completion descriptor: signal or clear, then the
 * doorbell, then the wait, whichever are asked for.
 *
 * The wait looks into the NIC's queue itself before it sleeps, as recv() does,
 * if the socket that the last receive came from has SO_BUSY_POLL (or had
 * net.core.busy_read when it was made), for that time, and once where
 * timeout_ns is 0.
 *
 *   EINVAL     unknown flag, a field that is set and not asked for, or a QP
 *              that takes no doorbell in its state
 *   ENOENT     no such QP on this CQ
 *   ETIMEDOUT  not readable in time
 *   EINTR      a signal; the doorbell was rung, or its QP is in error
 *   EOVERFLOW  nothing to take, and the CQ overflowed
 *   EIDRM      the CQ is destroyed, or its device gone
 */
struct tcp_qp_cq_call {
	__u32 flags;		/* TCP_QP_CQ_* */
	__u32 qpn;		/* of DOORBELL, else zero */
	__u64 timeout_ns;	/* of TIMEOUT, from now on, else zero */
};

#define TCP_QP_IOCTL_CQ _IOW(0xb9, 0x01, struct tcp_qp_cq_call)

/*
 * Where the send queue is: mmap() of the context's cmd_fd, once more than the
 * provider did.  Who writes struct rxe_send_wqe there itself may leave the
 * doorbell to TCP_QP_IOCTL_CQ; ibv_post_send() rings on each call.  A queue
 * has one producer: use one or the other.
 */
struct tcp_qp_sq {
	__u64 offset;		/* of mmap() */
	__u32 bytes;
	__u32 slot_bytes;
	__u32 slots;		/* a power of two; one stays empty */
	__u32 inline_bytes;	/* of one work request, at most */
	__u32 flags;		/* TCP_QP_SQ_F_*; 0 of a module of ABI 2 */
	__u32 reserved;		/* zero */
};

enum {
	TCP_QP_SQ_F_WATCHED = 1 << 0,	/* the words below mean something */
};

/*
 * Words of the send queue's header (struct rxe_queue_buf) that rxe's ABI leaves
 * unused, by which a doorbell may be left out (docs/verbs.md).  Who sets WANTED
 * stores the producer index, then has a full barrier, then reads AWAKE: if it is
 * not zero, what was posted is found without a doorbell, soon.  The kernel keeps
 * its own of what it says here, and reads WANTED alone.
 */
#define TCP_QP_SQ_WANTED(buf) ((buf)->pad_1[0])	/* user space: not zero: I look before I ring */
#define TCP_QP_SQ_AWAKE(buf) ((buf)->pad_3[0])	/* kernel: not zero: it will look */
#define TCP_QP_SQ_TAKEN(buf) ((buf)->pad_3[1])	/* kernel: index of the first that it has not taken */

/*
 * A bell: each time that an eventfd is signalled, by a device's driver or by a
 * write(), whatever number that adds, @count more work requests of the send
 * queue may go.  What is posted waits for it, so no process has to run when it
 * is sent.  Rings add up, also ahead of what is posted, to as many as the queue
 * holds: one less than it has slots.
 *
 * What was posted before the call is not held.  A further call takes another
 * eventfd, and what is held stays held; eventfd -1 takes the bell off and lets
 * everything go.  When the eventfd's last descriptor is closed nobody rings any
 * more, and what is held stays held.  The bell ends with the connection, whose
 * end flushes what is held.
 *
 * Who holds the eventfd may let the owner's posted requests go, and no more.
 *
 *   EBADF       no open descriptor
 *   EINVAL      no eventfd, or a count that is 0 or more than the queue holds
 *   ENOTCONN    no connection
 *   ENOSPC      the eventfd is the bell of TCP_QP_BELL_QPS_MAX queue pairs
 *   EOPNOTSUPP  a UD queue pair
 */
enum {
	TCP_QP_BELL_QPS_MAX = 16,
};

struct tcp_qp_bell {
	__s32 eventfd;		/* -1: none any more, with count 0 */
	__u32 count;
};

/*
 * TCP_QP_METHOD_ATTACH, of an RC queue pair in INIT or RTR and a connected TCP socket: waits
 * until the peer has attached, too.  If it fails, the QP has no connection, and the socket is
 * the plain one that it was.  In brackets: the reason in the response (enum tcp_qp_reason).
 *
 *   EINVAL      an unknown engine or flag, F_ICRC with F_WIRE_V1, a timeout_ms of more than
 *               TCP_QP_ATTACH_TIMEOUT_MAX_MS, a reserved field that is set; or the QP is
 *               neither in INIT nor in RTR
 *   EBADF       no open descriptor
 *   ENOTSOCK    a descriptor that is no socket
 *   EPROTOTYPE  no TCP socket [SOCKET_STATE]
 *   ENOTCONN    not established, or not any more [SOCKET_STATE]
 *   EBUSY       the QP is rdma_cm's, or connected by number; or the socket cannot have one now
 *               [SOCKET_BUSY, NO_SG, SOCKET_IN_USE]
 *   EISCONN     the QP has a connection
 *   EXDEV       the socket is of another network namespace [NAMESPACE]
 *   EPERM       the port of connections by number [RESERVED_PORT]; or a BPF program or security
 *               module refuses TCP_ULP [SOCKET_BUSY]
 *   EOPNOTSUPP  a UD queue pair; or ENGINE_OFFLOAD cannot be had [why: NO_OFFLOAD_DEVICE,
 *               OTHER_DEVICE, OFFLOAD_OFF, OFFLOAD_REFUSED, NO_TIMESTAMPS]
 *   ETIMEDOUT   the peer has not attached in timeout_ms [NO_PEER_QP]
 *   ECONNRESET  the connection ended meanwhile [PEER_CLOSED, PROTOCOL ..]
 *   ENODEV      the RDMA device is being removed
 *   ENOMEM      no memory
 *   EINTR       a signal; never restarted, since the time would begin anew
 *
 * With F_NOWAIT nothing is waited for: what of the peer fails ends the QP later.
 */
enum tcp_qp_engine {
	TCP_QP_ENGINE_AUTO = 0,		/* offload, or software with a reason */
	TCP_QP_ENGINE_SOFTWARE = 1,
	TCP_QP_ENGINE_OFFLOAD = 2,	/* fail with a reason if it can't be had */
};

/* Why an engine or a QP could not be had.  Stable numbers, see docs/reasons.md. */
#define TCP_QP_REASONS(X) \
	X(NONE, "no reason") \
	X(NO_OFFLOAD_DEVICE, "the socket's route leaves by a device without QP offload") \
	X(OTHER_DEVICE, "the socket's route does not leave by this RDMA device's netdev") \
	X(OFFLOAD_REFUSED, "the switch refused the QP context") \
	X(OFFLOAD_GONE, "the offload device was removed or reset") \
	X(NO_PEER_QP, "the peer did not attach a QP in time") \
	X(SOCKET_STATE, "the socket is not an established TCP connection") \
	X(SOCKET_BUSY, "the socket has another ULP, BPF psock, MPTCP, MD5 or repair") \
	X(NO_SG, "the device cannot send scattered pages") \
	X(PEER_CLOSED, "the peer closed or reset the connection") \
	X(PROTOCOL, "the peer broke the tcp_bth protocol") \
	X(LOCAL_ERROR, "a local work request failed: protection, length or opcode") \
	X(URGENT, "the peer sent urgent data on a QP flow") \
	X(REMOTE_ACCESS, "the peer asked for memory it has no right to") \
	X(REMOTE_ERROR, "the peer refused a work request of ours") \
	X(NO_TIMESTAMPS, "ICRC by the switch needs TCP timestamps, which are off") \
	X(OFFLOAD_OFF, "the administrator turned QP offload off") \
	X(PEER_STOCK_ICRC, "ICRC was asked for, and the peer is a stock end, which has none") \
	X(SOCKET_IN_USE, "a send() or recv() that began before attach is under way on the socket") \
	X(NAMESPACE, "the socket is of another network namespace than the RDMA device") \
	X(RESERVED_PORT, "the socket is of the port where queue pairs are connected by number") \
	X(DEVICE_QUEUE, "payload that was not placed came by a receive queue of device memory") \
	X(EARLIER_QP, "payload was placed for an earlier queue pair of the same addresses and ports")

#define TCP_QP_REASON_ENUM(name, text) TCP_QP_REASON_##name,
enum tcp_qp_reason { TCP_QP_REASONS(TCP_QP_REASON_ENUM) TCP_QP_REASON_COUNT };
#undef TCP_QP_REASON_ENUM

enum {
	TCP_QP_ATTACH_F_WIRE_V0 = 1 << 0,	/* software engine: ver 0, one option per segment */
	TCP_QP_ATTACH_F_WIRE_V1 = 1 << 1,	/* offload engine: leave ver 1 on the wire */
	TCP_QP_ATTACH_F_NOWAIT = 1 << 2,	/* do not wait for the peer: sends wait instead */
	TCP_QP_ATTACH_F_ICRC = 1 << 3,		/* a CRC over option and payload of all we send; messages up to 16 MiB */
	TCP_QP_ATTACH_F_LATE_SENDS = 1 << 4,	/* sends may complete after receives that answer them (ABI 4) */

	TCP_QP_ATTACH_TIMEOUT_DEFAULT_MS = 10000,
	TCP_QP_ATTACH_TIMEOUT_MAX_MS = 600000,
};

struct tcp_qp_attach_req {
	__u32 engine;		/* enum tcp_qp_engine */
	__u32 flags;		/* TCP_QP_ATTACH_F_* */
	__u32 timeout_ms;	/* for the peer's QP; 0: the default */
	__u32 reserved;		/* zero */
};

struct tcp_qp_attach_resp {
	__u32 engine;		/* the one that serves this QP */
	__u32 reason;		/* enum tcp_qp_reason: why not the better one, or why it failed */
	__u32 wire_version;	/* of tcp_bth on sent segments */
	__u32 mss;		/* bytes */
};

/* Counters of one QP.  rx_placed + rx_copied == rx_delivered, in bytes, at every instant. */
struct tcp_qp_info {
	__u32 engine;
	__u32 reason;		/* last one */
	__u32 wire_version;
	__u32 mss;
	__u64 tx_messages;
	__u64 tx_bytes;
	__u64 tx_zerocopy_bytes;	/* handed to TCP as the application's own pages */
	__u64 tx_copied_bytes;		/* inline data, and small messages that share segments */
	__u64 rx_messages;
	__u64 rx_delivered_bytes;	/* in order, to this QP's receive buffers */
	__u64 rx_placed_bytes;		/* of these, written by the switch */
	__u64 rx_copied_bytes;		/* of these, copied by this CPU */
	__u64 tx_segments;		/* data packets handed to IP, a TSO burst counts once */
	__u64 tx_sack_stripped;
	__u64 rx_stalls;		/* data waited for a posted receive */
	__u64 tx_credit_waits;
};

#endif
