// SPDX-License-Identifier: BSD-3-Clause
#include "stream_post.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "disorder.hpp"
#include "limits.hpp"
#include "payload_reader.hpp"

namespace nupa {

namespace {

constexpr std::uint32_t kPostPageBytes = NUPA_POST_PAGE_BYTES;

}  // namespace

nupa_admin_status StreamPost::init(const HostMemory& memory, const nupa_cmd_qp& cmd) noexcept {
    post_ = nullptr;
    if (!(cmd.flags & NUPA_QP_F_STREAM))
        return cmd.post_addr || cmd.post_pages ? NUPA_E_INVALID : NUPA_OK;
    if (cmd.post_pages == 0 || cmd.post_pages > NUPA_POST_PAGES_MAX ||
        cmd.post_addr % alignof(std::uint64_t) != 0)
        return NUPA_E_INVALID;
    std::byte* at =
        memory.at(cmd.post_addr, sizeof(nupa_post) + cmd.post_pages * sizeof(std::uint64_t));
    if (!at)
        return NUPA_E_ADDRESS;
    memory_ = &memory;
    post_ = reinterpret_cast<nupa_post*>(at);
    pages_ = reinterpret_cast<const std::uint64_t*>(at + sizeof(nupa_post));
    pages_max_ = cmd.post_pages;
    return NUPA_OK;
}

bool StreamPost::read(Window& window) const noexcept {
    window = {load(post_->seq), load(post_->bytes), load(post_->offset)};
    const std::uint64_t room = std::uint64_t{pages_max_} * kPostPageBytes;
    return window.offset < kPostPageBytes && std::uint64_t{window.offset} + window.bytes <= room;
}

std::uint32_t StreamPost::posted(std::uint32_t seq) const noexcept {
    Window window;
    if (!post_ || __atomic_load_n(&post_->state, __ATOMIC_ACQUIRE) != NUPA_POST_OPEN ||
        !read(window))
        return 0;
    const std::uint32_t before = seq - window.seq;
    return before < window.bytes ? window.bytes - before : 0;
}

Reason StreamPost::place(std::uint32_t seq, const Payload& payload) noexcept {
    std::uint32_t state = NUPA_POST_OPEN;
    if (!post_ || !__atomic_compare_exchange_n(&post_->state, &state, NUPA_POST_BUSY, false,
                                               __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return Reason::kNoReceive;
    const Reason reason = fill(seq, payload);
    __atomic_store_n(&post_->state, NUPA_POST_OPEN, __ATOMIC_RELEASE);
    return reason;
}

// All pages are looked at before the first byte is written.
Reason StreamPost::fill(std::uint32_t seq, const Payload& payload) noexcept {
    Window window;
    const std::uint32_t bytes = payload.bytes();
    if (!read(window))
        return Reason::kBounds;
    const std::uint32_t before = seq - window.seq;
    if (before >= window.bytes || bytes > window.bytes - before)
        return Reason::kNoReceive;
    std::array<std::span<std::byte>, kPiecesMax> pieces;
    std::size_t count = 0;
    std::uint32_t at = window.offset + before;
    for (std::uint32_t left = bytes; left;) {
        const std::uint64_t page = __atomic_load_n(&pages_[at / kPostPageBytes], __ATOMIC_RELAXED);
        const std::uint32_t in_page = at % kPostPageBytes,
                            n = std::min(kPostPageBytes - in_page, left);
        std::byte* to = memory_->at(page + in_page, n);
        if (page % kPostPageBytes || !to)
            return Reason::kBounds;
        if (count && pieces[count - 1].data() + pieces[count - 1].size() == to)
            pieces[count - 1] = {pieces[count - 1].data(), pieces[count - 1].size() + n};
        else if (count == kPiecesMax)
            return Reason::kBounds;
        else
            pieces[count++] = {to, n};
        at += n, left -= n;
    }
    PayloadReader reader(payload);
    for (std::size_t i = 0; i < count; i++)
        reader.read(pieces[i]);
    __atomic_store_n(&post_->placed, seq + bytes, __ATOMIC_RELAXED);
    return Reason::kPlaced;
}

}  // namespace nupa
