// SPDX-License-Identifier: BSD-3-Clause
#include "plain.hpp"

#include <algorithm>

#include "clock.hpp"

namespace perf {
namespace {

constexpr uint32_t kSinkBytes = 65536;  // of one recv() when the rate is what counts

}  // namespace

Plain::Plain(Socket socket, std::span<std::byte> receives, uint32_t bytes_max)
    : socket_(std::move(socket)),
      receives_(receives),
      stride_(bytes_max),
      buffer_(std::max(bytes_max, kSinkBytes), std::byte{'p'}) {}

std::byte* Plain::next() noexcept {
    if (receives_.size() - at_ < stride_)
        at_ = 0;
    std::byte* const to = &receives_[at_];
    at_ += stride_;
    return to;
}

Sample Plain::ask(const Round& round) {
    return round.test == Test::kLatency ? ping(round) : send_stream(round);
}

// One send per message, whatever the test.
Sample Plain::send_stream(const Round& round) {
    const Stopwatch watch;
    for (uint64_t i = 0; i < round.messages; i++)
        send_all(socket_, buffer_.data(), round.bytes);
    receive_all(socket_, buffer_.data(), kAckBytes);
    return {watch.seconds(), {}};
}

Sample Plain::ping(const Round& round) {
    return time_trips(round.messages, [&] {
        send_all(socket_, buffer_.data(), round.bytes);
        receive_all(socket_, next(), round.bytes);
    });
}

void Plain::serve(const Round& round) {
    if (round.test != Test::kLatency)
        return sink(round);
    for (uint64_t i = 0; i < round.messages; i++) {
        receive_all(socket_, next(), round.bytes);
        send_all(socket_, buffer_.data(), round.bytes);
    }
}

void Plain::sink(const Round& round) {
    if (round.test == Test::kBandwidth) {
        for (uint64_t i = 0; i < round.messages; i++)
            receive_all(socket_, next(), round.bytes);
    } else {
        for (uint64_t left = round.messages * round.bytes; left != 0;)
            left -= receive_some(socket_, buffer_.data(), std::min<uint64_t>(left, kSinkBytes));
    }
    send_all(socket_, buffer_.data(), kAckBytes);
}

}  // namespace perf
