/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libtcpqp: queue pairs for programs that use sockets.
 *
 * A TCP connection that you made (connect, accept) is given a queue pair.
 * Messages then go from memory you posted to memory the peer posted.  Who
 * moves them is the engine: a switch (offload), the kernel module (software),
 * or, with no module at all, this library with io_uring (stock).
 *
 * Level 1 is verbs-like: context, mr, cq, qp, post, poll.  Level 2 is
 * sockets-like: one tcpqp_conn per connection, tcpqp_send, tcpqp_recv.
 *
 * Every call that can fail returns a negative errno.  Lengths are bytes,
 * times are milliseconds; a call's timeout_ms of -1 is "no limit", 0 is "do not
 * wait".  Option structs begin with their size; zero in any other field is the
 * default, and a NULL pointer is all defaults.
 *
 * Threads: any call may be made by any thread.  Calls on one cq and its qps,
 * and calls on one conn, are serialised by the library; different cqs share
 * nothing.  A destroy must be the last call on its object.  One thread at a
 * time should wait on a cq: another that polls takes its completions.
 *
 * No call spins, and none needs to be repeated for posted sends to leave: what
 * the socket has no room for goes on by itself (stock: by a thread of the cq,
 * started when first needed).  Receives go on when the cq is polled or waited
 * for: its descriptor says when.  A child of fork() can't use the parent's objects.
 */
#ifndef TCPQP_H
#define TCPQP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

typedef struct tcpqp_context tcpqp_context;
typedef struct tcpqp_mr tcpqp_mr;
typedef struct tcpqp_cq tcpqp_cq;
typedef struct tcpqp_qp tcpqp_qp;
typedef struct tcpqp_conn tcpqp_conn;

enum tcpqp_engine {
	TCPQP_ENGINE_AUTO = 0,     /* the best there is, see tcpqp_context_create() */
	TCPQP_ENGINE_SOFTWARE = 1, /* tcp_qp.ko, placement by the CPU */
	TCPQP_ENGINE_OFFLOAD = 2,  /* tcp_qp.ko, placement by the switch */
	TCPQP_ENGINE_STOCK = 3,    /* no module: io_uring; enum tcpqp_framing */
};

/*
 * Why a better engine could not be had, or why a connection ended.  Numbers
 * below TCPQP_REASON_OWN are enum tcp_qp_reason of tcp_qp/tcp_qp.h.  Stable.
 */
enum tcpqp_reason {
	TCPQP_REASON_NONE = 0,
	TCPQP_REASON_OWN = 64,
	TCPQP_REASON_NO_MODULE = 64,  /* the kernel module tcp_qp is not loaded */
	TCPQP_REASON_NO_DEVICE,       /* the interface has no tcp_qp device */
	TCPQP_REASON_NO_ROUTE,        /* the connection's interface is not known */
	TCPQP_REASON_NO_IO_URING,     /* the kernel refuses io_uring */
	TCPQP_REASON_PEER_STOCK,      /* the peer speaks stock frames */
	TCPQP_REASON_PEER_NOT_STOCK,  /* the peer's first bytes are no stock hello */
	TCPQP_REASON_VERSION,         /* the peer speaks another version of stock frames */
	TCPQP_REASON_NO_HELLO,        /* the peer said nothing in time */
	TCPQP_REASON_BAD_FRAME,       /* a frame header that no stock end writes */
	TCPQP_REASON_TOO_LONG,        /* a message longer than the posted receive */
	TCPQP_REASON_TRUNCATED,       /* the peer closed within a message */
	TCPQP_REASON_CLOSED,          /* the peer closed between messages */
	TCPQP_REASON_RESET,           /* the connection broke: reset, timed out, unreachable */
	TCPQP_REASON_CANCELED,        /* tcpqp_qp_cancel() */
	TCPQP_REASON_DEVICE_GONE,     /* the RDMA device was removed */
	TCPQP_REASON_NO_BPF_HELPER,   /* no tcpqp-bpf answers: stock ends only, and this is none */
	TCPQP_REASON_BPF_REFUSED,     /* tcpqp-bpf refused the connection: as above */
	TCPQP_REASON_FRAMING,         /* option framing was asked for, and the peer has none */
	TCPQP_REASON_NO_BOUNDARY,     /* bytes came without the option that says whose they are */
	TCPQP_REASON_NOT_A_SEND,      /* the peer asked for what a stock end does not do */
	TCPQP_REASON_OLD_MODULE,      /* the module tcp_qp lacks what this library needs */
	TCPQP_REASON_END,             /* one more than the last */
};

enum {
	TCPQP_MESSAGE_MAX_BYTES = 1 << 30,
	TCPQP_DEPTH_MAX = 4096,          /* work requests of a queue */
	TCPQP_DEPTH_DEFAULT = 64,
	TCPQP_CQ_ENTRIES_MAX = 65536,
	TCPQP_CQ_ENTRIES_DEFAULT = 1024,
	TCPQP_TIMEOUT_DEFAULT_MS = 10000,
	TCPQP_BUFFER_DEFAULT_BYTES = 65536, /* of a conn */
	TCPQP_BUFFERS_DEFAULT = 16,
	TCPQP_BUFFERS_MAX = 1024,
	TCPQP_BUFFERS_MAX_BYTES = 1 << 30,  /* of a conn, all together */
};

/* The engine's word ("offload"), a reason's name ("NO_MODULE") and sentence.  Never NULL. */
const char *tcpqp_engine_name(uint32_t engine);
const char *tcpqp_reason_name(uint32_t reason);
const char *tcpqp_reason_text(uint32_t reason);

/* ---- context ---------------------------------------------------------- */

struct tcpqp_context_opts {
	size_t size;        /* sizeof(struct tcpqp_context_opts) */
	uint32_t engine;    /* enum tcpqp_engine */
	uint32_t reserved;  /* zero */
	const char *ifname; /* network interface; NULL: that of the socket's route */
	int socket;         /* a connected socket, used in this call only; 0 or -1: none */
	int reserved2;      /* zero */
};

/*
 * Chooses the engine.  AUTO takes a tcp_qp device on the interface if there is
 * one (offload or software: known when a qp is made), else stock.  The
 * environment variable TCPQP_ENGINE (auto, software, offload, stock) overrides
 * opts->engine.  Why the better engine could not be had: tcpqp_context_reason().
 *
 * -EINVAL: opts or TCPQP_ENGINE make no sense.  -ENODEV: a forced kernel
 * engine has no device.  -EPERM, -ENOSYS: stock, and the kernel refuses
 * io_uring.  @reason (may be NULL) is written on failure and on success.
 */
int tcpqp_context_create(const struct tcpqp_context_opts *opts, tcpqp_context **out, uint32_t *reason);
/* Gives the engine up; NULL is allowed.  -EBUSY: mrs or cqs of it exist. */
int tcpqp_context_destroy(tcpqp_context *context);
/*
 * The engine that was forced or chosen; AUTO for the kernel's engines, of which
 * a qp tells which (tcpqp_qp_query()).
 */
uint32_t tcpqp_context_engine(const tcpqp_context *context);
/* Why it is not the better engine: an enum tcpqp_reason. */
uint32_t tcpqp_context_reason(const tcpqp_context *context);

/* ---- memory ----------------------------------------------------------- */

/*
 * Registers @bytes of host memory at @addr, of pages of any size, for sends and
 * receives.  The stock engine needs none (work requests may have mr = NULL
 * there), and checks it when given.  -EINVAL: empty.  -ENOMEM: `ulimit -l`.  -EFAULT: not ours.
 */
int tcpqp_mr_create(tcpqp_context *context, void *addr, size_t bytes, tcpqp_mr **out);

struct tcpqp_dmabuf_opts {
	size_t size;
	uint64_t offset;  /* of the region within the dma-buf */
	void *addr;       /* where work requests say the region is: your mapping of it, or any
			   * other number; NULL: 0, so that their addr is an offset in the region */
};

/*
 * Registers @bytes of the dma-buf @dmabuf, which stays yours and may be closed
 * (the region keeps the memory).  offset and addr must be equal modulo the page
 * size.  The stock engine reads and writes through your mapping at opts->addr,
 * which must outlive the region.  A dma-buf that the CPU has to be told about
 * (DMA_BUF_IOCTL_SYNC) is yours to sync.
 * -EINVAL: empty, outside the dma-buf, or @dmabuf is none.  -EBADF.
 * -EOPNOTSUPP: its memory can't be mapped by the CPU; stock: no opts->addr.
 * -ENOMEM.
 */
int tcpqp_mr_create_dmabuf(tcpqp_context *context, int dmabuf, size_t bytes, const struct tcpqp_dmabuf_opts *opts, tcpqp_mr **out);

struct tcpqp_pool_opts {
	size_t size;
	const char *path;  /* of the window's device; NULL: /dev/nupa_pool0 */
};

struct tcpqp_pool_memory {
	void *addr;    /* mapped, for reading and writing */
	size_t bytes;  /* whole pages */
	int dmabuf;    /* the lease: close-on-exec, may be passed on */
};

/*
 * Leases @bytes of the switch's pool of memory (its mode cxl), rounded up to
 * pages, all zero, and maps them.  Register them by tcpqp_mr_create_dmabuf() with
 * opts->addr = memory->addr, for any engine.  The lease ends when its descriptor,
 * mapping and regions are gone, also by the process's end.
 * -EINVAL: opts, or empty.  -ENOENT: no pool.  -EACCES.  -ENODEV: the window has gone.
 * -ENOSPC: no range of the pool is free that long, or the host has too many.
 * -EDQUOT: more than is left of the host's share of the pool.
 */
int tcpqp_pool_alloc(size_t bytes, const struct tcpqp_pool_opts *opts, struct tcpqp_pool_memory *memory);
/*
 * Unmaps and closes; regions of it keep the lease until they are destroyed, but
 * the stock engine's, which must be gone before.  NULL, and freed already: allowed.
 */
int tcpqp_pool_free(struct tcpqp_pool_memory *memory);
/*
 * Stock: -EBUSY while posted work refers to it.  Kernel engines: the
 * connections that may still send from the region end.
 */
int tcpqp_mr_destroy(tcpqp_mr *mr);

/* ---- completion queue -------------------------------------------------- */

/*
 * The cq and its qps are one thread's, but for tcpqp_qp_cancel().  Stock: then nobody
 * needs to wake it, and tcpqp_wait() without a limit costs less; like recv(2) it goes
 * on after a signal whose handler restarts system calls (SA_RESTART).
 */
enum { TCPQP_CQ_F_SINGLE_THREADED = 1 << 0 };
/*
 * Somebody calls tcpqp_poll() all the time.  Stock: each call that finds nothing asks the
 * sockets, where otherwise the second one leaves them to io_uring: a system call more for
 * each, and a message is seen sooner.  Others: no effect.
 */
enum { TCPQP_CQ_F_SPINNING = 1 << 1 };

struct tcpqp_cq_opts {
	size_t size;
	uint32_t entries; /* kernel engines: at least the sum of its qps' depths */
	uint32_t flags;   /* TCPQP_CQ_F_* */
};

enum tcpqp_opcode { TCPQP_OP_SEND = 0, TCPQP_OP_RECV = 1 };
enum {
	TCPQP_F_IMM = 1 << 0,  /* imm is valid */
	TCPQP_F_MORE = 1 << 1, /* work: of the last in a call, see tcpqp_post_send() */
};

struct tcpqp_completion {
	uint64_t id;     /* of the work request */
	tcpqp_qp *qp;
	uint32_t length; /* receives: bytes of the message */
	uint32_t imm;    /* if TCPQP_F_IMM */
	uint16_t opcode; /* enum tcpqp_opcode */
	uint16_t flags;
	int32_t status;  /* 0; -ECANCELED: the qp ended first (tcpqp_qp_query() says
			  * why); -EMSGSIZE: the message was longer than this receive;
			  * other errors of the kernel's engines as they are */
};

/* Completions of any number of qps of @context.  -EINVAL, -ENOMEM: or another of io_uring or verbs. */
int tcpqp_cq_create(tcpqp_context *context, const struct tcpqp_cq_opts *opts, tcpqp_cq **out);
/* Gives the queue up; NULL is allowed.  -EBUSY: qps of it exist. */
int tcpqp_cq_destroy(tcpqp_cq *cq);
/*
 * A descriptor for poll, select and epoll (level triggered): readable means
 * "call tcpqp_poll()", which may find nothing.  The cq owns it.  io_uring may
 * make epoll_wait() return EINTR without a signal: try again, as always.
 */
int tcpqp_cq_fd(tcpqp_cq *cq);
/* Writes up to @max completions to @out, never waits.  Number written.  -ENODEV: the device is gone. */
int tcpqp_poll(tcpqp_cq *cq, struct tcpqp_completion *out, size_t max);
/*
 * Sleeps until tcpqp_poll() may find something.  -ETIMEDOUT: it did not come.  -EINTR: a signal,
 * but of one in the first 10 ms of its sleep it may say 0.
 */
int tcpqp_wait(tcpqp_cq *cq, int timeout_ms);

/* ---- queue pair -------------------------------------------------------- */

struct tcpqp_work {
	uint64_t id;     /* comes back in the completion */
	void *addr;
	uint32_t length; /* sends may be empty, receives too */
	uint32_t imm;    /* sends: with TCPQP_F_IMM */
	uint32_t flags;  /* TCPQP_F_* */
	uint32_t reserved; /* zero */
	tcpqp_mr *mr;    /* that the buffer lies in; NULL: stock only */
};

enum { TCPQP_QP_F_NOWAIT = 1 << 0 }; /* do not wait for the peer: sends wait instead */

struct tcpqp_qp_opts {
	size_t size;
	uint32_t sends;        /* depth, work requests */
	uint32_t receives;
	uint32_t flags;        /* TCPQP_QP_F_* */
	int timeout_ms;        /* for the peer's queue pair, 1 .. 600000; 0: the default */
	uint32_t zerocopy_bytes; /* stock: messages from this size on go by SEND_ZC, until
				  * the kernel says that it copies all the same; 0: never */
	uint32_t first_count;  /* of first: at most the depth */
	const struct tcpqp_work *first; /* receives that are posted before the peer can send:
				  * so on offload the first message, too, is placed */
};

/*
 * Gives the connected socket @socket a queue pair.  The peer must do the same
 * with an engine that understands this one.  The socket stays yours: close it
 * after tcpqp_qp_destroy().  Do not read from or write to it meanwhile, but
 * shutdown(SHUT_WR), once your sends have completed, is how you say "no more".
 * (Stock in option framing, to a stock end: that also says that at most 2,048
 * messages more can come, since credit for them goes the same way.)
 *
 * No signal ends it.  -EINVAL: options.  -EFAULT: opts->first, as
 * tcpqp_post_recv().  -ENOTCONN: not a connected TCP socket.  -EPROTO: the peer
 * speaks something else (the bytes read are lost).  -ETIMEDOUT: it said
 * nothing.  -ECONNRESET.  -EOPNOTSUPP: TCPQP_FRAMING asks for the option, and
 * tcpqp-bpf does not give it.  @reason (may be NULL) has more.
 */
int tcpqp_qp_create(tcpqp_cq *cq, int socket, const struct tcpqp_qp_opts *opts, tcpqp_qp **out, uint32_t *reason);
/*
 * Buffers of posted work are yours again when it returns; completions not
 * polled yet are gone, sends not completed may be lost, a stream cut within a
 * message is of no more use.  Stock: with SEND_ZC not yet notified the
 * connection is reset, since TCP would send the buffer's later contents.
 */
int tcpqp_qp_destroy(tcpqp_qp *qp);
/* Ends it, from any thread: posted work completes with -ECANCELED, the peer sees a reset. */
int tcpqp_qp_cancel(tcpqp_qp *qp);

/*
 * Posts work requests in order, as many as the queue has room for: a batch
 * costs one system call (stock: one for many messages in one segment, too).
 * The buffer belongs to the library until the completion:
 *   send, stock: bytes were handed to TCP (or the peer acknowledged them, with
 *     SEND_ZC); it does not say that the peer has them;
 *   send, kernel engines: the peer's TCP acknowledged all of it.
 *
 * With TCPQP_F_MORE on the last, the work may be handed over later, at the
 * latest by the next post to the qp without the flag, or by tcpqp_wait(): who
 * sends and then waits for the answer saves a system call (stock: no effect).
 *
 * Number posted, > 0.  -EAGAIN: the queue is full.  -EINVAL: no work, too
 * long, reserved not zero.  -EFAULT: outside its mr, or mr missing.
 * -ENOTCONN: the qp has ended.
 */
int tcpqp_post_send(tcpqp_qp *qp, const struct tcpqp_work *works, size_t count);
int tcpqp_post_recv(tcpqp_qp *qp, const struct tcpqp_work *works, size_t count);

/*
 * How a stock end marks its messages.  With the helper tcpqp-bpf it can speak
 * to ends that have the module (option); two stock ends use frames.  The
 * environment variable TCPQP_FRAMING (auto, stream, option) overrides.
 */
enum tcpqp_framing {
	TCPQP_FRAMING_NONE = 0,   /* not known yet, or not a stock end */
	TCPQP_FRAMING_STREAM = 1, /* frames between the messages */
	TCPQP_FRAMING_OPTION = 2, /* the TCP option tcp_bth, by BPF */
};

struct tcpqp_qp_info {
	size_t size;          /* set by the caller */
	uint32_t engine;      /* the one that serves this qp */
	uint32_t reason;      /* why it ended, or why not the better engine */
	uint64_t tx_messages;
	uint64_t tx_bytes;
	uint64_t tx_zerocopy_bytes; /* read from the buffer by the network */
	uint64_t rx_messages;
	uint64_t rx_bytes;
	uint64_t rx_placed_bytes;   /* written to the buffer by the switch */
	uint64_t rx_copied_bytes;   /* ... by a CPU; placed + copied = delivered */
	uint64_t rx_staged_bytes;   /* stock: of the copied, copied twice (small messages) */
	uint32_t framing;           /* stock: enum tcpqp_framing */
	uint32_t reserved;
	/* tcpqp_conn_query(), of messages by reference, which rx_bytes and tx_bytes do not count */
	uint64_t tx_reference_bytes;
	uint64_t rx_reference_bytes;
};

/* Engine, reason and counters; fills as much as the caller's size has room for.  -EINVAL: size. */
int tcpqp_qp_query(tcpqp_qp *qp, struct tcpqp_qp_info *info);

/* ---- level 2: a connection that sends and receives messages, or a stream --- */

/*
 * Messages by reference: where both ends are hosts of one pool of memory (the
 * switch's mode cxl), a long message that was written to a view of tcpqp_buffer()
 * changes hands with the memory it lies in, and TCP carries a few bytes that name
 * it.  Shorter ones, those of tcpqp_send(), and all between other hosts go as ever.
 * Both ends must say so.  It needs two buffers at least, also first_buffers, and
 * the calls of streams (tcpqp_write() ...) end with -EOPNOTSUPP then.
 */
enum { TCPQP_CONN_F_REFERENCES = 1 << 0 };

struct tcpqp_conn_opts {
	size_t size;
	uint32_t engine;       /* enum tcpqp_engine; TCPQP_ENGINE overrides */
	int timeout_ms;        /* for the peer, 1 .. 600000; 0: the default */
	uint32_t buffer_bytes; /* the longest message; both ends' own choice */
	uint32_t buffers;      /* for each direction */
	const char *ifname;    /* as in tcpqp_context_opts */
	uint32_t first_buffers; /* of these at first, and twice as many each time that all are in
				 * use, or a long message comes: with kernel engines each is pinned
				 * memory; 0: all */
	uint32_t flags;        /* TCPQP_CONN_F_* */
};

/* A message in memory of the connection. */
struct tcpqp_view {
	void *data;
	uint32_t length;   /* tcpqp_buffer(): room; you set what to send */
	uint32_t imm;
	uint32_t flags;    /* TCPQP_F_IMM */
	uint32_t slot;     /* the library's */
};

/*
 * Context, memory, cq and qp for one connected socket, in one call.  AUTO
 * takes a kernel engine if the peer has one too, else stock on the same
 * connection, within timeout_ms; the reason is in tcpqp_conn_query().
 * Errors: those of tcpqp_context_create() and tcpqp_qp_create().  With
 * TCPQP_CONN_F_REFERENCES: -EPROTO, the peer says nothing of references.
 */
int tcpqp_open(int socket, const struct tcpqp_conn_opts *opts, tcpqp_conn **out, uint32_t *reason);
/*
 * Waits up to @timeout_ms until the sends have completed, and messages by
 * reference have been received, unless the peer is gone, then gives up all memory,
 * views too.  The socket stays yours.  0, or -ETIMEDOUT (closed all the same).
 */
int tcpqp_close(tcpqp_conn *conn, int timeout_ms);

/*
 * Copies @length bytes and sends them as one message.  -EMSGSIZE: longer than
 * buffer_bytes.  -EAGAIN (timeout 0), -ETIMEDOUT: no buffer free.  -EINTR: a signal,
 * and nothing was sent.  -ENOTCONN: ended.
 */
int tcpqp_send(tcpqp_conn *conn, const void *data, size_t length, int timeout_ms);
/*
 * The next message, in place: @view is yours until tcpqp_release() or
 * tcpqp_send_view().  Held views are receives that the peer can't use: it is
 * stopped when all are held.  A message by reference whose sender is gone ends the
 * connection.  -EDQUOT, -ENOSPC, -EMFILE, -ENFILE, -ENOMEM: there is no room for its
 * memory, and it is the next one still: call again when there is.  -EAGAIN (timeout 0),
 * -ETIMEDOUT: none came.  -EINTR: a signal.  -ENOTCONN: the connection ended and all
 * messages were handed out (tcpqp_conn_query() says why).  -EMSGSIZE: the peer sent a
 * longer message.
 */
int tcpqp_recv(tcpqp_conn *conn, struct tcpqp_view *view, int timeout_ms);
/* Gives a view back.  -EINVAL: not one that you hold. */
int tcpqp_release(tcpqp_conn *conn, struct tcpqp_view *view);
/*
 * A buffer to write the next message into, sent without a copy by
 * tcpqp_send_view().  -EAGAIN, -ETIMEDOUT: none is free.  -EINTR: a signal.
 * -ENOTCONN: ended.
 */
int tcpqp_buffer(tcpqp_conn *conn, struct tcpqp_view *view, int timeout_ms);
/*
 * Sends view->length bytes of a view from tcpqp_buffer() or tcpqp_recv(), which
 * it gives back.  -EINVAL: not one that you hold.  -EMSGSIZE: longer than
 * buffer_bytes, or than what was received by reference has room for: whole pages.
 * The view is still yours after -ENOTCONN, ended, and -EIO: the pool has gone, or
 * does not answer, and the message is lost.
 */
int tcpqp_send_view(tcpqp_conn *conn, struct tcpqp_view *view);
/* For epoll: readable means that tcpqp_recv(), or tcpqp_ready(), may find something. */
int tcpqp_conn_fd(tcpqp_conn *conn);
/* As tcpqp_qp_query(), of the connection's qp. */
int tcpqp_conn_query(tcpqp_conn *conn, struct tcpqp_qp_info *info);
/* Ends it, from any thread; waiting calls return -ENOTCONN. */
int tcpqp_conn_cancel(tcpqp_conn *conn);

/* ---- level 2: the same connection as a stream of bytes --------------------- */

/*
 * Both ends use these calls instead of tcpqp_send() and tcpqp_recv().  Bytes go
 * as messages of at most buffer_bytes, whose cuts mean nothing; so the reader's
 * buffer_bytes must not be less than the writer's.  The end of the stream is an
 * empty message with this immediate: each direction ends for itself, and a
 * connection that breaks can't be taken for one that ended.
 */
enum { TCPQP_STREAM_END = 0x656e6400 };

/*
 * Copies up to @length bytes into the stream.  While half of the connection's
 * buffers are under way, bytes that fill no buffer wait for more of them, or
 * until these have completed, which the next call on this conn sees
 * (tcpqp_conn_fd() then is readable); else they leave before this returns.
 * Bytes taken: less than @length only if the time was over or a signal came.
 * -EAGAIN (timeout 0), -ETIMEDOUT, -EINTR: none taken.
 * -EPIPE: after tcpqp_finish().  -ECONNRESET: the connection broke,
 * tcpqp_conn_query() says why.  -ENOTCONN: tcpqp_conn_cancel().
 */
ssize_t tcpqp_write(tcpqp_conn *conn, const void *data, size_t length, int timeout_ms);
/*
 * Copies what has come of the stream, at most @length bytes, as soon as there is
 * any.  Bytes copied; 0: the peer's tcpqp_finish(), or @length is 0.  -EAGAIN
 * (timeout 0), -ETIMEDOUT, -EINTR: none came.  -ECONNRESET: the connection broke, and all
 * that came before was read.  -ENOTCONN: tcpqp_conn_cancel().
 * -EMSGSIZE: the peer's buffers are longer than ours.
 */
ssize_t tcpqp_read(tcpqp_conn *conn, void *data, size_t length, int timeout_ms);
/*
 * The next bytes of the stream where they were placed, view->length of them,
 * until tcpqp_consume(); not for tcpqp_release().  Their number; 0 and errors
 * as tcpqp_read().
 */
ssize_t tcpqp_peek(tcpqp_conn *conn, struct tcpqp_view *view, int timeout_ms);
/* Gives the first @bytes of what tcpqp_peek() showed back.  -EINVAL: it showed fewer. */
int tcpqp_consume(tcpqp_conn *conn, size_t bytes);
/*
 * Hands all that tcpqp_write() took to the network, and waits up to @timeout_ms
 * until it has completed: see tcpqp_post_send() for what that says.  With
 * timeout 0 it is handed over as well.  -EAGAIN (timeout 0), -ETIMEDOUT, -EINTR: it
 * has not.  -ECONNRESET, -ENOTCONN: as tcpqp_write().
 */
int tcpqp_flush(tcpqp_conn *conn, int timeout_ms);
/*
 * Ends our direction of the stream, behind all that was written; never waits.
 * Reads go on.  tcpqp_close() waits until it has left.  -EPIPE: done before.
 * -ECONNRESET, -ENOTCONN: as tcpqp_write().
 */
int tcpqp_finish(tcpqp_conn *conn);

enum {
	TCPQP_READABLE = 1 << 0, /* tcpqp_read() may return bytes, the end or an error at once */
	TCPQP_WRITABLE = 1 << 1, /* tcpqp_write() takes a byte, or returns an error, at once */
	TCPQP_FLUSHED = 1 << 2,  /* nothing that was written is under way */
	TCPQP_BROKEN = 1 << 3,   /* no write can succeed; what has come can be read */
};

/*
 * For event loops: takes all events from tcpqp_conn_fd(), which is not readable
 * any more until there are others, and says what can be done: TCPQP_READABLE,
 * ...  All calls take events, so ask this one last before you sleep on the
 * descriptor, and sleep only if it names nothing that you want.  Never waits.  -EINVAL.
 */
int tcpqp_ready(tcpqp_conn *conn);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif
#endif
