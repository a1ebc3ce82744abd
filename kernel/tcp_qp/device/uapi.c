// SPDX-License-Identifier: GPL-2.0
/* What verbs lack: driver methods on UVERBS_OBJECT_QP and UVERBS_OBJECT_CQ, see tcp_qp.h. */
#include <linux/net.h>
#include <linux/file.h>
#include <net/sock.h>
#define UVERBS_MODULE_NAME tcp_qp
#include <rdma/uverbs_named_ioctl.h>
#include <rdma/uverbs_std_types.h>
#include "control/control.h"
#include "device/device.h"

enum {
	TQP_ATTACH_FLAGS = TCP_QP_ATTACH_F_WIRE_V0 | TCP_QP_ATTACH_F_WIRE_V1 |
			   TCP_QP_ATTACH_F_NOWAIT | TCP_QP_ATTACH_F_ICRC |
			   TCP_QP_ATTACH_F_LATE_SENDS,
	TQP_ATTACH_ICRC_V1 = TCP_QP_ATTACH_F_ICRC | TCP_QP_ATTACH_F_WIRE_V1,	/* ver 1 has none */
};

static int tqp_attach_check(struct tcp_qp_attach_req *req)
{
	if (req->engine > TCP_QP_ENGINE_OFFLOAD || (req->flags & ~TQP_ATTACH_FLAGS) ||
	    (req->flags & TQP_ATTACH_ICRC_V1) == TQP_ATTACH_ICRC_V1 || req->reserved ||
	    req->timeout_ms > TCP_QP_ATTACH_TIMEOUT_MAX_MS)
		return -EINVAL;
	if (!req->timeout_ms)
		req->timeout_ms = TCP_QP_ATTACH_TIMEOUT_DEFAULT_MS;
	return 0;
}

static int tqp_attach(struct tqp_qp *qp, int fd, const struct tcp_qp_attach_req *req,
		      struct tcp_qp_attach_resp *resp)
{
	struct socket *sock;
	int ret;

	sock = sockfd_lookup(fd, &ret);
	if (!sock)
		return ret;
	ret = -EINTR;
	if (!mutex_lock_interruptible(&qp->mutex)) {
		ret = qp->ep || qp->number ? -EBUSY :
					     tqp_qp_attach(qp, NULL, sock, req, resp);
		mutex_unlock(&qp->mutex);
	}
	sockfd_put(sock);
	return ret;
}

static int UVERBS_HANDLER(TCP_QP_METHOD_ATTACH)(struct uverbs_attr_bundle *attrs)
{
	struct ib_qp *ibqp = uverbs_attr_get_obj(attrs, TCP_QP_ATTR_ATTACH_HANDLE);
	struct tcp_qp_attach_resp resp = {};
	struct tcp_qp_attach_req req;
	int fd, ret, copied;

	if (IS_ERR(ibqp))
		return PTR_ERR(ibqp);
	ret = uverbs_copy_from(&req, attrs, TCP_QP_ATTR_ATTACH_REQ);
	if (ret)
		return ret;
	ret = uverbs_get_raw_fd(&fd, attrs, TCP_QP_ATTR_ATTACH_SOCKET);
	if (ret)
		return ret;
	ret = tqp_attach_check(&req);
	if (ret)
		return ret;
	ret = tqp_attach(to_tqp_qp(ibqp), fd, &req, &resp);
	if (ret && !resp.reason)
		return ret;
	/* The core copies nothing on errors, but this goes straight to user space. */
	copied = uverbs_copy_to(attrs, TCP_QP_ATTR_ATTACH_RESP, &resp, sizeof(resp));
	return ret ?: copied;
}

static int UVERBS_HANDLER(TCP_QP_METHOD_QUERY)(struct uverbs_attr_bundle *attrs)
{
	struct ib_qp *ibqp = uverbs_attr_get_obj(attrs, TCP_QP_ATTR_QUERY_HANDLE);
	struct tcp_qp_info info = {};

	if (IS_ERR(ibqp))
		return PTR_ERR(ibqp);
	tqp_conn_info(to_tqp_qp(ibqp), &info);
	return uverbs_copy_to(attrs, TCP_QP_ATTR_QUERY_INFO, &info, sizeof(info));
}

static int UVERBS_HANDLER(TCP_QP_METHOD_SQ)(struct uverbs_attr_bundle *attrs)
{
	struct ib_qp *ibqp = uverbs_attr_get_obj(attrs, TCP_QP_ATTR_SQ_HANDLE);
	struct tcp_qp_sq resp = {};
	const struct tqp_qp *qp;

	if (IS_ERR(ibqp))
		return PTR_ERR(ibqp);
	qp = to_tqp_qp(ibqp);
	resp.offset = rdma_user_mmap_get_offset(&qp->sq->mmap_entry);
	resp.bytes = qp->sq->bytes;
	resp.slot_bytes = 1 << qp->sq->log2_elem;
	resp.slots = qp->sq->mask + 1;
	resp.inline_bytes = qp->cap.max_inline_data;
	resp.flags = qp->ud ? 0 : TCP_QP_SQ_F_WATCHED;
	return uverbs_copy_to(attrs, TCP_QP_ATTR_SQ_RESP, &resp, sizeof(resp));
}

static int UVERBS_HANDLER(TCP_QP_METHOD_BELL)(struct uverbs_attr_bundle *attrs)
{
	struct ib_qp *ibqp = uverbs_attr_get_obj(attrs, TCP_QP_ATTR_BELL_HANDLE);
	struct tcp_qp_bell req;
	struct tqp_qp *qp;
	int ret;

	if (IS_ERR(ibqp))
		return PTR_ERR(ibqp);
	ret = uverbs_copy_from(&req, attrs, TCP_QP_ATTR_BELL_REQ);
	if (ret)
		return ret;
	qp = to_tqp_qp(ibqp);
	if (mutex_lock_interruptible(&qp->mutex))
		return -EINTR;
	ret = tqp_bell_set(qp, &req);
	mutex_unlock(&qp->mutex);
	return ret;
}

static int UVERBS_HANDLER(TCP_QP_METHOD_CQ_FD)(struct uverbs_attr_bundle *attrs)
{
	struct ib_cq *ibcq = uverbs_attr_get_obj(attrs, TCP_QP_ATTR_CQ_FD_HANDLE);
	struct file *file;
	s32 fd;
	int ret;

	if (IS_ERR(ibcq))
		return PTR_ERR(ibcq);
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	file = tqp_cq_fd_open(to_tqp_cq(ibcq));
	ret = PTR_ERR_OR_ZERO(file);
	if (ret)
		goto err_fd;
	ret = uverbs_copy_to(attrs, TCP_QP_ATTR_CQ_FD_RESP, &fd, sizeof(fd));
	if (ret)
		goto err_file;
	fd_install(fd, file);
	return 0;

err_file:
	fput(file);
err_fd:
	put_unused_fd(fd);
	return ret;
}

/*
 * Access READ, which is shared: an attach may wait for its peer, and doorbells
 * of other threads need the QP meanwhile.  Destroy needs it alone and gets
 * -EBUSY until then.  Exclusion among attach and modify is by qp->mutex.
 */
DECLARE_UVERBS_NAMED_METHOD(TCP_QP_METHOD_ATTACH,
	UVERBS_ATTR_IDR(TCP_QP_ATTR_ATTACH_HANDLE, UVERBS_OBJECT_QP, UVERBS_ACCESS_READ,
			UA_MANDATORY),
	UVERBS_ATTR_RAW_FD(TCP_QP_ATTR_ATTACH_SOCKET, UA_MANDATORY),
	UVERBS_ATTR_PTR_IN(TCP_QP_ATTR_ATTACH_REQ,
			   UVERBS_ATTR_STRUCT(struct tcp_qp_attach_req, reserved), UA_MANDATORY),
	UVERBS_ATTR_PTR_OUT(TCP_QP_ATTR_ATTACH_RESP,
			    UVERBS_ATTR_STRUCT(struct tcp_qp_attach_resp, mss), UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD(TCP_QP_METHOD_QUERY,
	UVERBS_ATTR_IDR(TCP_QP_ATTR_QUERY_HANDLE, UVERBS_OBJECT_QP, UVERBS_ACCESS_READ,
			UA_MANDATORY),
	UVERBS_ATTR_PTR_OUT(TCP_QP_ATTR_QUERY_INFO,
			    UVERBS_ATTR_STRUCT(struct tcp_qp_info, tx_credit_waits), UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD(TCP_QP_METHOD_SQ,
	UVERBS_ATTR_IDR(TCP_QP_ATTR_SQ_HANDLE, UVERBS_OBJECT_QP, UVERBS_ACCESS_READ,
			UA_MANDATORY),
	UVERBS_ATTR_PTR_OUT(TCP_QP_ATTR_SQ_RESP,
			    UVERBS_ATTR_STRUCT(struct tcp_qp_sq, inline_bytes), UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD(TCP_QP_METHOD_BELL,
	UVERBS_ATTR_IDR(TCP_QP_ATTR_BELL_HANDLE, UVERBS_OBJECT_QP, UVERBS_ACCESS_READ,
			UA_MANDATORY),
	UVERBS_ATTR_PTR_IN(TCP_QP_ATTR_BELL_REQ, UVERBS_ATTR_STRUCT(struct tcp_qp_bell, count),
			   UA_MANDATORY));

ADD_UVERBS_METHODS(tqp_qp_methods, UVERBS_OBJECT_QP, &UVERBS_METHOD(TCP_QP_METHOD_ATTACH),
		   &UVERBS_METHOD(TCP_QP_METHOD_QUERY), &UVERBS_METHOD(TCP_QP_METHOD_SQ),
		   &UVERBS_METHOD(TCP_QP_METHOD_BELL));

DECLARE_UVERBS_NAMED_METHOD(TCP_QP_METHOD_CQ_FD,
	UVERBS_ATTR_IDR(TCP_QP_ATTR_CQ_FD_HANDLE, UVERBS_OBJECT_CQ, UVERBS_ACCESS_READ,
			UA_MANDATORY),
	UVERBS_ATTR_PTR_OUT(TCP_QP_ATTR_CQ_FD_RESP, UVERBS_ATTR_TYPE(s32), UA_MANDATORY));

ADD_UVERBS_METHODS(tqp_cq_methods, UVERBS_OBJECT_CQ, &UVERBS_METHOD(TCP_QP_METHOD_CQ_FD));

const struct uapi_definition tqp_uapi[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_QP, &tqp_qp_methods),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_CQ, &tqp_cq_methods),
	{},
};
