// SPDX-License-Identifier: BSD-3-Clause
#include "faults.hpp"

#include <tcp_qp/tcp_bth_option.h>
#include <algorithm>
#include <bit>
#include <new>

#include "checksum.hpp"
#include "endian.hpp"

namespace nupa {

namespace {

std::uint64_t splitmix64(std::uint64_t& state) noexcept {
    std::uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

constexpr std::uint8_t kOptionEnd = 0, kOptionNop = 1;

}  // namespace

bool FaultConfig::any() const noexcept {
    return loss_ppm || duplicate_ppm || reorder_ppm || corrupt_ppm || truncate_ppm || bleach_ppm ||
           mangle_ppm || copy_ppm || delay_ppm;
}

bool FaultConfig::valid() const noexcept {
    const std::array rates = {loss_ppm,   duplicate_ppm, reorder_ppm, corrupt_ppm, truncate_ppm,
                              bleach_ppm, mangle_ppm,    copy_ppm,    delay_ppm};
    return std::all_of(rates.begin(), rates.end(), [](std::uint32_t r) { return r <= kPpm; }) &&
           delay_min_ns <= delay_max_ns && (reorder_ppm == 0 || reorder_packets_max > 0);
}

bool FaultDecision::any() const noexcept {
    return lose || duplicate || corrupt || truncate || bleach || mangle || copy ||
           reorder_packets || delay_ns;
}

Random::Random(std::uint64_t seed) noexcept {
    for (std::uint64_t& word : s_)
        word = splitmix64(seed);
}

std::uint64_t Random::next() noexcept {
    const std::uint64_t result = std::rotl(s_[1] * 5, 7) * 9;
    const std::uint64_t t = s_[1] << 17;
    s_[2] ^= s_[0];
    s_[3] ^= s_[1];
    s_[1] ^= s_[2];
    s_[0] ^= s_[3];
    s_[2] ^= t;
    s_[3] = std::rotl(s_[3], 45);
    return result;
}

std::uint64_t Random::below(std::uint64_t bound) noexcept {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>(static_cast<Wide>(next()) * bound >> 64);
}

Faults::Faults(const FaultConfig& config) noexcept : config_(config), any_(config.any()) {
    std::uint64_t state = config.seed;
    for (Random& r : random_)
        r = Random(splitmix64(state));
}

// Each stream draws the same number of times for every packet, whatever the rates.
FaultDecision Faults::decide() noexcept {
    FaultDecision d;
    if (!any_)
        return d;
    const auto draw = [&](Stream stream, std::uint32_t ppm, std::uint64_t& extra) {
        const bool hit = random_[stream].chance(ppm);
        extra = random_[stream].next();
        return hit;
    };
    std::uint64_t extra = 0;
    d.lose = draw(kLoss, config_.loss_ppm, extra);
    d.duplicate = draw(kDuplicate, config_.duplicate_ppm, extra);
    if (draw(kReorder, config_.reorder_ppm, extra))
        d.reorder_packets = 1 + static_cast<std::uint32_t>(extra % config_.reorder_packets_max);
    d.corrupt = draw(kCorrupt, config_.corrupt_ppm, extra);
    d.where = extra;
    d.truncate = draw(kTruncate, config_.truncate_ppm, extra);
    d.bleach = draw(kBleach, config_.bleach_ppm, extra);
    if (draw(kDelay, config_.delay_ppm, extra)) {
        const std::uint64_t range = config_.delay_max_ns - config_.delay_min_ns;
        d.delay_ns = config_.delay_min_ns + (range == UINT64_MAX ? extra : extra % (range + 1));
    }
    if (draw(kMangle, config_.mangle_ppm, extra)) {
        d.mangle = true;
        d.mangle_where = extra;
    }
    d.copy = draw(kCopy, config_.copy_ppm, extra);
    return d;
}

// The whole frame as its receiver would see it on a wire, after @change(bytes, length).
template <class Change>
static bool rewrite_frame(Packet& packet, Change change) noexcept {
    packet.fill_checksums();
    std::uint32_t bytes = packet.bytes();
    std::unique_ptr<std::byte[]> frame(new (std::nothrow) std::byte[bytes]);
    if (!frame)
        return false;
    packet.write_to(frame.get());
    bytes = change(frame.get(), bytes);
    const Bytes whole{frame.get(), bytes};
    packet.assign({&whole, 1});
    packet.owned = std::move(frame);
    return true;
}

bool fault_corrupt(Packet& packet, std::uint64_t where) noexcept {
    if (packet.bytes() == 0)
        return true;
    return rewrite_frame(packet, [where](std::byte* frame, std::uint32_t bytes) {
        const std::uint64_t bit = where % (std::uint64_t{bytes} * 8);
        frame[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
        return bytes;
    });
}

bool fault_truncate(Packet& packet, std::uint64_t where) noexcept {
    if (packet.bytes() <= kEthernetBytes)
        return true;
    return rewrite_frame(packet, [where](std::byte*, std::uint32_t bytes) {
        return kEthernetBytes + static_cast<std::uint32_t>(where % (bytes - kEthernetBytes));
    });
}

namespace {

// TCP's options after @change(options, bytes), with a checksum that is as right as before.
template <class Change>
void edit_options(Packet& packet, Change change) noexcept {
    std::uint8_t* options = packet.header.data() + packet.at.options_at;
    const std::uint32_t bytes = packet.at.option_bytes();
    std::array<std::uint8_t, TCP_BTH_OPT_MAX_BYTES> before;
    std::memcpy(before.data(), options, bytes);
    change(options, bytes);
    if (packet.csum == Csum::kPartial)
        return;
    std::uint8_t* field = packet.header.data() + packet.at.l4_at + kTcpCheckAt;
    std::uint16_t check = get_be16(field);
    for (std::uint32_t i = 0; i < bytes; i += 2)
        check = checksum_update16(check, get_be16(before.data() + i), get_be16(options + i));
    put_be16(field, check);
}

// The tcp_bth option of a data segment, whatever it says; its bytes, or none.
std::span<const std::uint8_t> option_of(const Packet& packet, std::uint32_t& at) noexcept {
    if (!packet.at.tcp() || packet.payload.bytes() == 0)
        return {};
    const std::uint8_t* options = packet.header.data() + packet.at.options_at;
    tcp_bth b;
    unsigned int found = 0;
    if (tcp_bth_find(options, packet.at.option_bytes(), packet.at.seq, packet.payload.bytes(), &b,
                     &found) != TCP_BTH_OK)
        return {};
    at = found;
    return {options + found, options[found + 1]};
}

}  // namespace

bool fault_bleach(Packet& packet) noexcept {
    bool changed = false;
    if (!packet.at.tcp())
        return changed;
    edit_options(packet, [&changed](std::uint8_t* options, std::uint32_t bytes) {
        for (std::uint32_t i = 0; i + 1 < bytes && options[i] != kOptionEnd;) {
            if (options[i] == kOptionNop) {
                i++;
                continue;
            }
            const std::uint32_t length = options[i + 1];
            if (length < 2 || length > bytes - i)
                break;
            if (options[i] == TCP_BTH_KIND) {
                std::memset(options + i, kOptionNop, length);
                changed = true;
            }
            i += length;
        }
    });
    return changed;
}

bool fault_mangle(Packet& packet, std::uint64_t where) noexcept {
    std::uint32_t at = 0;
    const auto option = option_of(packet, at);
    if (option.empty())
        return false;
    // Kind, length and experiment stay, so that it is still read as ours.
    const auto byte = at + TCP_BTH_HEAD_BYTES +
                      static_cast<std::uint32_t>(where % (option.size() - TCP_BTH_HEAD_BYTES));
    const auto change = static_cast<std::uint8_t>(1 + (where >> 32) % 255);
    edit_options(packet, [&](std::uint8_t* options, std::uint32_t) { options[byte] ^= change; });
    return true;
}

std::size_t OptionMemory::place_of(const FlowKey& flow) noexcept {
    return flow.hash(0) % kFlowsMax;
}

bool OptionMemory::pass(Packet& packet, bool copy) noexcept {
    std::uint32_t at = 0;
    const auto option = option_of(packet, at);
    if (option.empty())
        return false;
    const FlowKey flow = packet.flow();
    Entry& e = entries_[place_of(flow)];
    const Entry last = e;
    e.flow = flow;
    e.bytes = static_cast<std::uint8_t>(option.size());
    std::memcpy(e.option.data(), option.data(), option.size());
    if (!copy || last.bytes != e.bytes || !(last.flow == flow) ||
        std::memcmp(last.option.data(), e.option.data(), e.bytes) == 0)
        return false;
    edit_options(packet, [&](std::uint8_t* options, std::uint32_t) {
        std::memcpy(options + at, last.option.data(), last.bytes);
    });
    return true;
}

bool packet_copy(Packet& to, const Packet& from) noexcept {
    std::memcpy(to.header.data(), from.header.data(), from.at.header_bytes);
    to.at = from.at;
    to.csum = from.csum;
    to.tso = from.tso;
    to.mss = from.mss;
    to.ingress = from.ingress;
    to.payload = from.payload;
    to.owned.reset();
    return to.own();
}

}  // namespace nupa
