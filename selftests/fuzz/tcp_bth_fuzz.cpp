// SPDX-License-Identifier: BSD-3-Clause
// tcp_bth.h: parser, builder and finder agree with each other, for any bytes.
#include <tcp_qp/tcp_bth.h>
#include <tcp_qp/tcp_bth_option.h>

#include <memory>
#include <vector>

#include "input.hpp"

namespace {

using fuzz::Input;
using fuzz::require;

// Without what its flags say is absent.
tcp_bth meant(tcp_bth b) {
    if (!(b.flags & TCP_BTH_F_ICRC))
        b.icrc = 0;
    if (!(b.flags & TCP_BTH_F_TIMESTAMP))
        b.tsval = b.tsecr = 0;
    return b;
}

bool equal(const tcp_bth& x, const tcp_bth& y) {
    const tcp_bth a = meant(x), b = meant(y);
    return a.ver == b.ver && a.flags == b.flags && a.opcode == b.opcode &&
           a.ext_bytes == b.ext_bytes && a.msn == b.msn && a.segno == b.segno &&
           a.reserved == b.reserved && a.start_seq == b.start_seq && a.length == b.length &&
           a.mbo == b.mbo && a.icrc == b.icrc && a.tsval == b.tsval && a.tsecr == b.tsecr &&
           a.ext4 == b.ext4 && a.rkey == b.rkey && a.dma_length == b.dma_length && a.va == b.va;
}

// A copy of exactly its size, so that reading beyond it is seen.
std::unique_ptr<std::uint8_t[]> exact(std::span<const std::uint8_t> bytes) {
    auto copy = std::make_unique<std::uint8_t[]>(bytes.size());
    std::copy(bytes.begin(), bytes.end(), copy.get());
    return copy;
}

// Bytes of @opt that a parser may ignore: ver 0 has room for what its flags say is absent.
bool ignored(const std::uint8_t* opt, std::size_t at) {
    const bool v0 = (opt[4] & TCP_BTH_F_VER_MASK) == 0;
    return v0 && ((at >= 12 && at < 16 && !(opt[4] & TCP_BTH_F_ICRC)) ||
                  (at >= 16 && at < 24 && !(opt[4] & TCP_BTH_F_TIMESTAMP)));
}

// Whatever is accepted can be written, and is the same when it is read again.
void accepted(const std::uint8_t* opt, std::uint32_t seq, std::uint32_t payload, const tcp_bth& b) {
    const tcp_bth said = meant(b);
    std::vector<std::uint8_t> again(tcp_bth_opt_bytes(&said));
    require(again.size() == opt[1] && again.size() <= TCP_BTH_OPT_MAX_BYTES, "length rebuilt");
    require(tcp_bth_build(again.data(), &said) == again.size(), "bytes written");
    for (std::size_t i = 0; i < again.size(); i++)
        require(ignored(opt, i) ? again[i] == 0 : again[i] == opt[i], "build(parse(x)) == x");
    tcp_bth second;
    require(tcp_bth_parse(again.data(), opt[1], seq, payload, &second) == TCP_BTH_OK, "parses");
    require(equal(b, second), "parse(build(x)) == x");
    if (b.ver == 1 && payload) {
        const std::uint64_t end = std::uint64_t{b.mbo} + payload;
        require(end <= tcp_bth_stream_bytes(&b), "the segment lies in its message");
    }
}

void parse_anything(Input& in) {
    const std::uint32_t seq = in.u32(), payload = in.u32();
    const auto raw = in.bytes(in.u8() % 64);
    const auto opt = exact(raw);
    tcp_bth b;
    std::memset(&b, 0xee, sizeof b);
    const tcp_bth untouched = b;
    if (tcp_bth_parse(opt.get(), static_cast<unsigned>(raw.size()), seq, payload, &b) == TCP_BTH_OK)
        accepted(opt.get(), seq, payload, b);
    else
        require(std::memcmp(&b, &untouched, sizeof b) == 0, "untouched on an error");
}

// A train as long as may be; how many bytes of the stream it takes.
std::uint32_t make_train(Input& in, tcp_bth& b) {
    const std::uint32_t messages = 1 + in.u16() % std::uint32_t{TCP_BTH_TRAIN_MAX_MESSAGES};
    b.length = 1 + in.u32() % (UINT32_MAX / TCP_BTH_TRAIN_MAX_MESSAGES);
    b.ext_bytes = static_cast<std::uint8_t>(tcp_bth_ext_bytes(b.opcode));
    if (tcp_bth_is_mixed_train(b.opcode)) {
        b.ext4 = b.length;
        b.length = in.u32();
        return b.ext4;
    }
    if (b.opcode == TCP_BTH_OP_SEND_TRAIN)
        b.ext4 = b.length * messages;
    else
        b.dma_length = tcp_bth_train_word(static_cast<std::uint16_t>(messages),
                                          static_cast<std::uint16_t>(1 + in.u16() % UINT16_MAX));
    return b.length * messages;
}

// Any description that follows the rules of the header, and a segment it may stand on.
tcp_bth describe(Input& in, std::uint32_t& seq, std::uint32_t& payload) {
    tcp_bth b{};
    static constexpr std::uint8_t kExt[] = {0, TCP_BTH_EXT4_BYTES, TCP_BTH_RETH_BYTES};
    b.ver = in.u8() & 1;
    b.flags = in.u8() & (TCP_BTH_F_TIMESTAMP | TCP_BTH_F_MORE | TCP_BTH_F_RTR | TCP_BTH_F_RTR_ACK |
                         (b.ver ? 0 : TCP_BTH_F_ICRC));
    b.opcode = in.u8() % TCP_BTH_OP_COUNT;
    b.ext_bytes = kExt[in.below(3)];
    b.msn = in.u16();
    seq = in.u32(), payload = in.u32();
    const bool train = b.ver == 1 && tcp_bth_is_train(b.opcode);
    if (b.ver == 0) {
        if (tcp_bth_is_train(b.opcode))
            b.opcode = TCP_BTH_OP_SEND_ONLY;
        const bool first = payload && tcp_bth_position(b.opcode) & TCP_BTH_POS_FIRST;
        b.mbo = first ? 0 : in.u32() % TCP_BTH_V0_MESSAGE_MAX_BYTES;
        b.segno = in.u8();
        b.icrc = b.flags & TCP_BTH_F_ICRC ? in.u32() : 0;
        b.start_seq = seq - b.mbo;
    } else {
        b.opcode = tcp_bth_position(b.opcode) == TCP_BTH_POS_ONLY
                       ? b.opcode
                       : std::uint8_t{TCP_BTH_OP_SEND_ONLY};
        b.length = train ? 0 : in.u32();
        const std::uint32_t stream = train ? make_train(in, b) : b.length ? b.length : 1;
        payload %= stream + std::uint64_t{1};
        b.mbo = payload
                    ? static_cast<std::uint32_t>(in.u32() % (std::uint64_t{stream} - payload + 1))
                    : 0;
        b.start_seq = payload ? seq - b.mbo : in.u32();
    }
    if (b.flags & TCP_BTH_F_TIMESTAMP)
        b.tsval = in.u32(), b.tsecr = in.u32();
    if (b.ext_bytes == TCP_BTH_EXT4_BYTES && !train)
        b.ext4 = in.u32();
    if (b.ext_bytes == TCP_BTH_RETH_BYTES) {
        b.va = in.u64(), b.rkey = in.u32();
        if (!train)
            b.dma_length = in.u32();
    }
    return b;
}

void build_anything(Input& in) {
    std::uint32_t seq, payload;
    const tcp_bth b = describe(in, seq, payload);
    const std::vector<std::uint8_t> guard(tcp_bth_opt_bytes(&b), 0xee);
    const auto opt = exact(guard);
    require(guard.size() % 4 == 0 && guard.size() >= TCP_BTH_OPT_MIN_BYTES, "a multiple of four");
    // ver 1 with timestamps and RETH is the longest that a TCP header holds
    require(guard.size() <= TCP_BTH_OPT_MAX_BYTES, "fits a TCP header");
    require(tcp_bth_build(opt.get(), &b) == guard.size(), "bytes written");
    tcp_bth read;
    require(tcp_bth_parse(opt.get(), static_cast<unsigned>(guard.size()), seq, payload, &read) ==
                TCP_BTH_OK,
            "what was built parses");
    require(equal(b, read), "parse(build(x)) == x");
}

// RFC 9293: kind 0 ends, kind 1 stands alone, all else has a length.
struct Expected {
    unsigned count = 0, at = 0;
};

Expected look(std::span<const std::uint8_t> o) {
    Expected e;
    for (std::size_t i = 0; i < o.size() && o[i] != 0;) {
        if (o[i] == 1) {
            i++;
            continue;
        }
        if (o.size() - i < 2 || o[i + 1] < 2 || o[i + 1] > o.size() - i)
            break;
        const bool ours =
            o[i] == TCP_BTH_KIND && o[i + 1] >= 4 && o[i + 2] == 0x51 && o[i + 3] == 0x50;
        if (ours && e.count++ == 0)
            e.at = static_cast<unsigned>(i);
        i += o[i + 1];
    }
    return e;
}

void find_in(std::span<const std::uint8_t> soup, std::uint32_t seq, std::uint32_t payload) {
    const auto opts = exact(soup);
    const Expected expected = look(soup);
    const auto room = static_cast<unsigned>(soup.size());
    tcp_bth b;
    unsigned at = ~0u;
    const tcp_bth_error error = tcp_bth_find(opts.get(), room, seq, payload, &b, &at);
    require((error == TCP_BTH_E_NONE) == (expected.count == 0), "found or not");
    require((error == TCP_BTH_E_TWICE) == (expected.count > 1), "twice or not");
    tcp_bth without;
    require(tcp_bth_find(opts.get(), room, seq, payload, &without, nullptr) == error,
            "no position asked");
    if (expected.count != 1)
        return;
    require(at == expected.at, "where");
    tcp_bth parsed;
    require(tcp_bth_parse(opts.get() + at, opts[at + 1], seq, payload, &parsed) == error,
            "same verdict");
    if (error != TCP_BTH_OK)
        return;
    require(equal(b, parsed), "same content");
    accepted(opts.get() + at, seq, payload, b);
}

void find_anything(Input& in) {
    const std::uint32_t seq = in.u32(), payload = in.u32();
    find_in(in.bytes(in.u8() % 64), seq, payload);
}

// Proper options of others around, between and instead of ours.
void find_among_others(Input& in) {
    std::uint32_t seq = 0, payload = 0;
    std::vector<std::uint8_t> soup;
    while (!in.empty() && soup.size() < 60) {
        switch (in.below(4)) {
            case 0:
                soup.push_back(1);
                break;
            case 1: {
                const std::uint8_t body = in.below(12);
                soup.push_back(in.u8()), soup.push_back(static_cast<std::uint8_t>(body + 2));
                for (const std::uint8_t v : in.bytes(body))
                    soup.push_back(v);
                break;
            }
            default: {
                const tcp_bth b = describe(in, seq, payload);
                const std::size_t at = soup.size();
                soup.resize(at + tcp_bth_opt_bytes(&b));
                tcp_bth_build(soup.data() + at, &b);
                if (const std::uint8_t damage = in.u8(); damage & 0x80)
                    soup[at + damage % (soup.size() - at)] ^= in.u8();
            }
        }
    }
    find_in(soup, seq, payload);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    Input in(data, bytes);
    switch (in.below(4)) {
        case 0:
            parse_anything(in);
            break;
        case 1:
            build_anything(in);
            break;
        case 2:
            find_anything(in);
            break;
        default:
            find_among_others(in);
    }
    return 0;
}
