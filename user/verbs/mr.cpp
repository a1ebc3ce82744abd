// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/mr.hpp"

#include "verbs/ioctl.hpp"

namespace tcpqp {

// ibv_reg_mr() is a macro that wants a constant access to choose its symbol;
// the parenthesised name is the function.
Mr::Mr(const Context& context, void* address, size_t bytes, int access) noexcept
    : mr_((ibv_reg_mr)(context.pd(), address, bytes, access)), lkey_(mr_ ? mr_->lkey : 0) {}

Mr::Mr(const Context& context, int dmabuf, uint64_t offset, size_t bytes, uint64_t iova,
       int access) noexcept {
    uint32_t rkey = 0;
    std::array attrs{
        value_attr(UVERBS_ATTR_REG_DMABUF_MR_HANDLE, 0),
        value_attr(UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, context.pd()->handle),
        value_attr(UVERBS_ATTR_REG_DMABUF_MR_OFFSET, offset, sizeof(offset)),
        value_attr(UVERBS_ATTR_REG_DMABUF_MR_LENGTH, bytes, sizeof(uint64_t)),
        value_attr(UVERBS_ATTR_REG_DMABUF_MR_IOVA, iova, sizeof(iova)),
        value_attr(UVERBS_ATTR_REG_DMABUF_MR_FD, static_cast<uint32_t>(dmabuf), sizeof(uint32_t)),
        value_attr(UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, static_cast<uint64_t>(access),
                   sizeof(uint32_t)),
        pointer_attr(UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, &lkey_, sizeof(lkey_)),
        pointer_attr(UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, &rkey, sizeof(rkey)),
    };
    if (int error = invoke(context.cmd_fd(), UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR, attrs);
        error != 0) {
        lkey_ = 0;
        errno = error;
        return;
    }
    cmd_fd_ = context.cmd_fd();
    handle_ = static_cast<uint32_t>(attrs[0].data);
}

Mr::~Mr() {
    if (mr_)
        ibv_dereg_mr(mr_);
    if (cmd_fd_ < 0)
        return;
    std::array attrs{value_attr(UVERBS_ATTR_DESTROY_MR_HANDLE, handle_)};
    (void)invoke(cmd_fd_, UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, attrs);
}

}  // namespace tcpqp
