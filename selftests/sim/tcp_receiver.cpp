// SPDX-License-Identifier: BSD-3-Clause
#include "tcp_receiver.hpp"

#include <algorithm>
#include <cstring>

namespace sim {

namespace {

constexpr std::uint32_t kWindowFieldMax = 65535;

// As tcp_try_coalesce(): skbs join only with equal extensions and equal decrypted.
bool same_kind(const Skb& a, const Skb& b) {
    return a.decrypted == b.decrypted && a.mapped == b.mapped &&
           (!a.mapped || std::memcmp(&a.map, &b.map, sizeof a.map) == 0);
}

}  // namespace

TcpReceiver::TcpReceiver(Stream& stream, std::uint32_t buffer_bytes, std::uint8_t wscale,
                         Dice& dice, Coverage& coverage)
    : stream_(stream),
      dice_(dice),
      coverage_(coverage),
      buffer_bytes_(buffer_bytes),
      wscale_(wscale) {}

// Linux often finds room for it, not always.
bool TcpReceiver::coalesce(Skb& to, Skb& from) {
    if (to.end() != from.at || !same_kind(to, from) || dice_.percent(40))
        return false;
    to.len += from.len;
    to.tampered |= from.tampered;
    to.data.insert(to.data.end(), from.data.begin(), from.data.end());
    return true;
}

bool TcpReceiver::acceptable(std::uint32_t at, std::uint32_t len) const noexcept {
    return at + len > next_ && at < right_edge_;
}

void TcpReceiver::accept(Skb&& skb) {
    stream_.mark(skb.at, skb.len, kByteHeld);
    if (skb.at > next_) {
        insert(std::move(skb));
        return;
    }
    queue(std::move(skb));
    drain();
}

void TcpReceiver::queue(Skb&& skb) {
    next_ = skb.end();
    if (queue_.empty() || !coalesce(queue_.back(), skb))
        queue_.push_back(std::move(skb));
}

void TcpReceiver::drain() {
    std::size_t gone = 0;
    for (; gone < ooo_.size() && ooo_[gone].at <= next_; gone++)
        if (ooo_[gone].end() > next_)
            queue(std::move(ooo_[gone]));
    ooo_.erase(ooo_.begin(), ooo_.begin() + static_cast<std::ptrdiff_t>(gone));
}

// As tcp_data_queue_ofo(): what an older skb covers is dropped, what the new
// one covers is replaced by it, partial overlaps stay.
void TcpReceiver::insert(Skb&& skb) {
    for (const Skb& old : ooo_)
        if (old.at <= skb.at && skb.end() <= old.end())
            return;
    const auto covered = [&](const Skb& old) { return skb.at <= old.at && old.end() <= skb.end(); };
    coverage_.add(k_replaced, static_cast<std::uint64_t>(std::erase_if(ooo_, covered)));
    const auto after =
        std::find_if(ooo_.begin(), ooo_.end(), [&](const Skb& old) { return old.at > skb.at; });
    if (after != ooo_.begin() && coalesce(*std::prev(after), skb))
        return;
    ooo_.insert(after, std::move(skb));
}

std::uint16_t TcpReceiver::advertise() noexcept {
    const std::uint32_t unit = 1u << wscale_;
    const std::uint32_t most = std::min(buffer_bytes_, kWindowFieldMax << wscale_);
    std::uint32_t window = unread() >= most ? 0 : (most - unread()) / unit * unit;
    if (next_ + window < right_edge_)
        window = (right_edge_ - next_ + unit - 1) / unit * unit;
    right_edge_ = next_ + window;
    return static_cast<std::uint16_t>(window >> wscale_);
}

const Skb* TcpReceiver::front() noexcept {
    while (!queue_.empty() && queue_.front().end() <= copied_)
        queue_.pop_front();
    return queue_.empty() ? nullptr : &queue_.front();
}

std::vector<Range> TcpReceiver::islands() const {
    std::vector<Range> all;
    for (const Skb& skb : ooo_) {
        if (!all.empty() && skb.at <= all.back().end)
            all.back().end = std::max(all.back().end, skb.end());
        else
            all.push_back({skb.at, skb.end()});
    }
    return all;
}

void TcpReceiver::renege() {
    if (ooo_.empty())
        return;
    coverage_.add(k_reneged);
    const std::size_t keep = dice_.below(static_cast<std::uint32_t>(ooo_.size()));
    for (std::size_t i = keep; i < ooo_.size(); i++)
        stream_.clear(ooo_[i].at, ooo_[i].len, kByteHeld);
    ooo_.resize(keep);
    for (const Skb& skb : ooo_)
        stream_.mark(skb.at, skb.len, kByteHeld);
    stream_.mark(0, next_, kByteHeld);
}

// As tcp_collapse(): neighbours of one kind are copied into new skbs, cut
// anywhere; the extension moves to the first, so a later one may have none.
void TcpReceiver::collapse() {
    if (!front() || queue_.size() < 2)
        return;
    for (std::size_t i = 0; i + 1 < queue_.size(); i++) {
        Skb& to = queue_[i];
        Skb& from = queue_[i + 1];
        if (to.end() != from.at || !same_kind(to, from) || from.len < 2)
            continue;
        const std::uint32_t n = dice_.below(from.len);
        to.len += n;
        to.tampered |= from.tampered;
        from.at += n, from.len -= n;
        if (!from.decrypted) {
            const auto cut = from.data.begin() + n;
            to.data.insert(to.data.end(), from.data.begin(), cut);
            from.data.erase(from.data.begin(), cut);
        }
        from.mapped = from.mapped && n == 0;
        coverage_.add(k_collapsed);
    }
}

}  // namespace sim
