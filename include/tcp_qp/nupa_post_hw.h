/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause */
/* nupa_post_hw: where the bytes of a stream without messages go (NUPA_QP_F_STREAM). */
#ifndef TCP_QP_NUPA_POST_HW_H
#define TCP_QP_NUPA_POST_HW_H

#include <tcp_qp/nupa_hw.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Where the bytes of a stream from @seq on belong: a reader waits for them, and its
 * memory lies at these pages.  Host memory, one for each QP of NUPA_QP_F_STREAM.
 *
 * Both sides change the state.  The host opens the post (NONE to OPEN, by a store
 * with release after all the rest) and takes it back (OPEN to NONE, by compare and
 * swap).  The switch takes it for each segment (OPEN to BUSY, by compare and swap),
 * and gives it back (BUSY to OPEN, by a store with release after what it wrote).
 * While it is BUSY, the host waits and writes nothing.  So once it is NONE no byte
 * of these pages is written any more, and @placed says which may have been.
 *
 * A segment is placed if it is the next one that the host gets (all before it was
 * passed up, nothing behind it was) and lies within the post.  All others are delivered,
 * for the host to copy.  The completions of both have NUPA_RX_F_STREAM.
 */
enum nupa_post_state {
	NUPA_POST_NONE = 0,
	NUPA_POST_OPEN = 1,
	NUPA_POST_BUSY = 2,
};

struct nupa_post {
	__le32 state;			/* enum nupa_post_state */
	__le32 placed;			/* sequence number behind the last byte placed; host: seq, switch: rising */
	/* host, while the state is NONE */
	__le32 seq;			/* of the first byte */
	__le32 bytes;
	__le32 offset;			/* of the first byte in the first page */
	__le32 reserved[11];
	/* __le64[]: addresses of the pages that hold offset + bytes, NUPA_POST_PAGE_BYTES each, aligned to it */
};
NUPA_STATIC_ASSERT(sizeof(struct nupa_post) == 64, "nupa_post");

#ifdef __cplusplus
}
#endif
#endif
