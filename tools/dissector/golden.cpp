// SPDX-License-Identifier: BSD-3-Clause
// Writes the captures that the dissector's test reads, and what the parser that
// kernel and switch use makes of each packet.  The options come from their
// builder, so the bytes are the real ones.
//   tcp_bth_golden DIRECTORY   writes NAME.pcap and NAME.parse
#include <tcp_qp/tcp_bth.h>
#include <tcp_qp/tcp_bth_option.h>

#include <array>
#include <cstdio>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <vector>

namespace {

using Bytes = std::vector<uint8_t>;

constexpr uint32_t kIsn = 0xfffffc00;  // sequence numbers wrap within the captures
constexpr uint32_t kPeerSeq = 0x20000000;
constexpr uint16_t kPort = 5000;
constexpr uint16_t kPeerPort = 40000;
constexpr uint32_t kInterval_us = 1000;
constexpr uint32_t kLinkEthernet = 1;
constexpr uint32_t kTsval = 1000, kTsecr = 2000;

void put16(Bytes& out, uint16_t v) {
    out.push_back(static_cast<uint8_t>(v >> 8));
    out.push_back(static_cast<uint8_t>(v));
}

void put32(Bytes& out, uint32_t v) {
    put16(out, static_cast<uint16_t>(v >> 16));
    put16(out, static_cast<uint16_t>(v));
}

void append(Bytes& out, std::span<const uint8_t> more) {
    for (uint8_t byte : more)
        out.push_back(byte);
}

uint32_t sum16(std::span<const uint8_t> in, uint32_t sum) {
    for (size_t i = 0; i < in.size(); i++)
        sum += i % 2 == 0 ? in[i] * 256u : in[i];
    return sum;
}

uint16_t fold(uint32_t sum) {
    while (sum >> 16 != 0)
        sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<uint16_t>(~sum);
}

struct Segment {
    bool reply = false;  // from the peer
    uint32_t seq = 0;
    uint32_t ack = 0;
    Bytes options;
    uint32_t payload = 0;
};

// One capture file, of one connection.
class Capture {
public:
    explicit Capture(bool six) : six_(six) {
        append(header_, std::array<uint8_t, 8>{0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0});
        header_.resize(16, 0);
        put_le32(header_, 65535);
        put_le32(header_, kLinkEthernet);
    }

    void add(const Segment& s) {
        const Bytes tcp = tcp_of(s);
        Bytes frame{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2};
        put16(frame, six_ ? 0x86dd : 0x0800);
        append(frame, ip_of(s, static_cast<uint16_t>(tcp.size())));
        append(frame, tcp);
        put_le32(header_, 1700000000);
        put_le32(header_, kInterval_us * count_++);
        put_le32(header_, static_cast<uint32_t>(frame.size()));
        put_le32(header_, static_cast<uint32_t>(frame.size()));
        append(header_, frame);
        parsed_ += parse(s);
    }

    // @path.pcap, @path.parse
    [[nodiscard]] bool write(const std::string& path) const {
        return write_file(path + ".pcap", header_) &&
               write_file(path + ".parse", {parsed_.begin(), parsed_.end()});
    }

private:
    static bool write_file(const std::string& path, const Bytes& content) {
        FILE* file = std::fopen(path.c_str(), "wb");
        if (file == nullptr)
            return false;
        const bool whole = std::fwrite(content.data(), 1, content.size(), file) == content.size();
        return std::fclose(file) == 0 && whole;
    }

    // One line: frame, error, then what a good option says.
    [[nodiscard]] std::string parse(const Segment& s) const {
        static constexpr const char* kErrors[] = {"OK",       "NONE",   "LENGTH", "VERSION",
                                                  "RESERVED", "OPCODE", "RANGE",  "TWICE"};
        static_assert(std::size(kErrors) == TCP_BTH_E_COUNT);
        tcp_bth b{};
        const auto bytes = static_cast<unsigned>(s.options.size());
        const auto error = tcp_bth_find(s.options.data(), bytes, s.seq, s.payload, &b, nullptr);
        std::string line = std::to_string(count_) + " " + kErrors[error];
        if (error == TCP_BTH_OK) {
            char text[160];
            std::snprintf(text, sizeof(text),
                          " ver=%u flags=%#x op=%#x msn=%u start=%u len=%u ext4=%#x", b.ver,
                          unsigned{b.flags}, unsigned{b.opcode}, unsigned{b.msn}, b.start_seq,
                          b.length, b.ext4);
            line += text;
            std::snprintf(text, sizeof(text),
                          " mbo=%u segno=%u icrc=%#x ts=%u,%u va=%#llx key=%#x dma=%#x", b.mbo,
                          unsigned{b.segno}, b.icrc, b.flags & TCP_BTH_F_TIMESTAMP ? b.tsval : 0,
                          b.flags & TCP_BTH_F_TIMESTAMP ? b.tsecr : 0,
                          static_cast<unsigned long long>(b.va), b.rkey, b.dma_length);
            line += text;
        }
        return line + "\n";
    }

    static void put_le32(Bytes& out, uint32_t v) {
        for (int i = 0; i < 4; i++)
            out.push_back(static_cast<uint8_t>(v >> 8 * i));
    }

    // Both addresses, in the order source, destination.
    [[nodiscard]] Bytes addresses(const Segment& s) const {
        Bytes out;
        for (uint8_t host : {uint8_t(s.reply ? 2 : 1), uint8_t(s.reply ? 1 : 2)}) {
            if (six_)
                append(out, std::array<uint8_t, 16>{0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                                    0, host});
            else
                append(out, std::array<uint8_t, 4>{10, 77, 0, host});
        }
        return out;
    }

    [[nodiscard]] Bytes ip_of(const Segment& s, uint16_t bytes) const {
        Bytes ip;
        if (six_) {
            put32(ip, 0x60000000);
            put16(ip, bytes);
            put16(ip, 0x0640);
            append(ip, addresses(s));
            return ip;
        }
        put16(ip, 0x4500);
        put16(ip, static_cast<uint16_t>(bytes + 20));
        put32(ip, 0x00004000);
        put32(ip, 0x40060000);
        append(ip, addresses(s));
        const uint16_t sum = fold(sum16(ip, 0));
        ip[10] = static_cast<uint8_t>(sum >> 8);
        ip[11] = static_cast<uint8_t>(sum);
        return ip;
    }

    [[nodiscard]] Bytes tcp_of(const Segment& s) const {
        Bytes tcp;
        Bytes options = s.options;
        while (options.size() % 4 != 0)
            options.push_back(1);
        put16(tcp, s.reply ? kPeerPort : kPort);
        put16(tcp, s.reply ? kPort : kPeerPort);
        put32(tcp, s.seq);
        put32(tcp, s.ack);
        put16(tcp, static_cast<uint16_t>((20 + options.size()) / 4 << 12 | 0x10));
        put16(tcp, 0xffff);
        put32(tcp, 0);
        append(tcp, options);
        for (uint32_t i = 0; i < s.payload; i++)
            tcp.push_back(static_cast<uint8_t>('a' + i % 26));
        uint32_t sum = sum16(addresses(s), 6 + static_cast<uint32_t>(tcp.size()));
        const uint16_t checksum = fold(sum16(tcp, sum));
        tcp[16] = static_cast<uint8_t>(checksum >> 8);
        tcp[17] = static_cast<uint8_t>(checksum);
        return tcp;
    }

    bool six_;
    Bytes header_;
    std::string parsed_;
    uint32_t count_ = 0;
};

Bytes build(const tcp_bth& b) {
    std::array<uint8_t, TCP_BTH_OPT_MAX_BYTES> option{};
    const unsigned n = tcp_bth_build(option.data(), &b);
    return {option.begin(), option.begin() + n};
}

tcp_bth make(uint8_t version, uint8_t opcode, uint16_t msn, uint8_t flags = 0) {
    tcp_bth b{};
    b.ver = version;
    b.opcode = opcode;
    b.msn = msn;
    b.flags = flags;
    b.ext_bytes = static_cast<uint8_t>(tcp_bth_ext_bytes(tcp_bth_only(opcode)));
    b.tsval = kTsval;
    b.tsecr = kTsecr;
    b.ext4 = 0x01020304;
    b.va = 0x7f0011223344;
    b.rkey = 0xabcd01;
    b.dma_length = 300;
    return b;
}

Segment data(uint32_t seq, uint32_t payload, const tcp_bth& b) {
    return {false, seq, kPeerSeq, build(b), payload};
}

// ver 1: the same option on each segment; a retransmission is cut elsewhere.
void add_v1(Capture& c) {
    tcp_bth b = make(1, TCP_BTH_OP_SEND_ONLY, 7, TCP_BTH_F_TIMESTAMP);
    b.start_seq = kIsn;
    b.length = 3000;
    c.add(data(kIsn, 1000, b));
    c.add(data(kIsn + 1000, 1000, b));
    c.add(data(kIsn + 500, 1000, b));
    c.add(data(kIsn + 2000, 1000, b));
    uint32_t seq = kIsn + 3000;
    for (uint8_t opcode :
         {TCP_BTH_OP_SEND_ONLY_IMM, TCP_BTH_OP_SEND_ONLY_INV, TCP_BTH_OP_WRITE_ONLY,
          TCP_BTH_OP_WRITE_ONLY_IMM, TCP_BTH_OP_READ_REQUEST, TCP_BTH_OP_READ_RESPONSE_ONLY,
          TCP_BTH_OP_CMP_SWAP, TCP_BTH_OP_FETCH_ADD, TCP_BTH_OP_ATOMIC_ACKNOWLEDGE,
          TCP_BTH_OP_TERMINATE}) {
        b = make(1, opcode, opcode, opcode % 2 != 0 ? TCP_BTH_F_TIMESTAMP : TCP_BTH_F_MORE);
        b.start_seq = seq;
        b.length = 28;
        c.add(data(seq, 28, b));
        seq += 28;
    }
    b = make(1, TCP_BTH_OP_SEND_TRAIN, 30, TCP_BTH_F_TIMESTAMP);
    b.start_seq = seq;
    b.length = 64;
    b.ext4 = 20 * 64;
    c.add(data(seq, 800, b));
    c.add(data(seq + 800, 480, b));
    seq += 1280;
    b = make(1, TCP_BTH_OP_WRITE_TRAIN, 31, TCP_BTH_F_TIMESTAMP);
    b.start_seq = seq;
    b.length = 100;
    b.dma_length = tcp_bth_train_word(20, 3);
    c.add(data(seq, 850, b));
    c.add(data(seq + 850, 1150, b));
    seq += 2000;
    b = make(1, TCP_BTH_OP_LENGTHS, 32, TCP_BTH_F_TIMESTAMP);
    b.start_seq = seq;
    b.length = 12;
    c.add(data(seq, 12, b));
    seq += 12;
    b = make(1, TCP_BTH_OP_MIXED_TRAIN, 32, TCP_BTH_F_TIMESTAMP);
    b.start_seq = seq;
    b.length = 0xfeedbeef;  // the check of its lengths
    b.ext4 = 1000;
    c.add(data(seq, 600, b));
    c.add(data(seq + 600, 400, b));
    seq += 1000;
    b = make(1, TCP_BTH_OP_TARGETS, 33, TCP_BTH_F_TIMESTAMP);
    b.start_seq = seq;
    b.length = 28;
    c.add(data(seq, 28, b));
    seq += 28;
    b = make(1, TCP_BTH_OP_WRITE_MIXED_TRAIN, 33, TCP_BTH_F_TIMESTAMP);
    b.start_seq = seq;
    b.length = 0xfeedbea7;  // the check of its targets
    b.ext4 = 700;
    c.add(data(seq, 600, b));
    c.add(data(seq + 600, 100, b));
}

// ver 0: one description per segment.
void add_v0(Capture& c) {
    const uint8_t variants[][4] = {{TCP_BTH_OP_SEND_ONLY_IMM, TCP_BTH_OP_SEND_FIRST,
                                    TCP_BTH_OP_SEND_MIDDLE, TCP_BTH_OP_SEND_LAST_IMM},
                                   {TCP_BTH_OP_SEND_ONLY_INV, TCP_BTH_OP_SEND_FIRST,
                                    TCP_BTH_OP_SEND_MIDDLE, TCP_BTH_OP_SEND_LAST_INV},
                                   {TCP_BTH_OP_WRITE_ONLY, TCP_BTH_OP_WRITE_FIRST,
                                    TCP_BTH_OP_WRITE_MIDDLE, TCP_BTH_OP_WRITE_LAST}};
    uint32_t start = kIsn;
    uint16_t msn = 65535;
    for (const auto& v : variants) {
        for (uint32_t i = 0; i < 3; i++) {
            tcp_bth b = make(0, v[i + 1], msn, TCP_BTH_F_TIMESTAMP | TCP_BTH_F_ICRC);
            b.ext_bytes = static_cast<uint8_t>(tcp_bth_ext_bytes(v[0]));
            b.mbo = i * 512;
            b.segno = static_cast<uint8_t>(i);
            b.icrc = 0xfeed0000 + i;
            c.add(data(start + i * 512, 512, b));
        }
        start += 3 * 512;
        msn++;
    }
    c.add(data(start, 64, make(0, TCP_BTH_OP_SEND_ONLY, msn)));
}

void add_acks(Capture& c) {
    for (int flags : {int{TCP_BTH_F_RTR}, TCP_BTH_F_RTR | TCP_BTH_F_RTR_ACK, 0}) {
        tcp_bth b = make(1, TCP_BTH_OP_ACKNOWLEDGE, 16, static_cast<uint8_t>(flags));
        b.ext4 = tcp_bth_aeth_credits(16) | (flags ? uint32_t{TCP_BTH_AETH_TRAINS} : 0);
        // behind the stack's own timestamps
        Bytes options{1, 1, 8, 10, 0, 0, 3, 232, 0, 0, 7, 208};
        append(options, build(b));
        c.add({true, kPeerSeq, kIsn, options, 0});
    }
    c.add({true, kPeerSeq, kIsn, {}, 0});  // plain
}

// What a receiver refuses, and a segment that contradicts its message.
void add_hostile(Capture& c) {
    tcp_bth good = make(1, TCP_BTH_OP_SEND_ONLY, 1);
    good.start_seq = kIsn;
    good.length = 1000;
    const Bytes option = build(good);
    const auto patched = [&](size_t at, uint8_t value) {
        Bytes bad = option;
        bad[at] = value;
        c.add({false, kIsn, kPeerSeq, bad, 100});
    };
    c.add({false, kIsn, kPeerSeq, option, 100});
    patched(1, 12);                                     // too short for any layout
    patched(4, 2);                                      // version
    patched(4, 1 | TCP_BTH_F_SOLICITED);                // fine
    patched(4, 1 | TCP_BTH_F_ICRC);                     // ver 1 has no ICRC
    patched(4, 1 | TCP_BTH_F_TIMESTAMP);                // no room for timestamps
    patched(5, 0x99);                                   // no such opcode
    patched(5, TCP_BTH_OP_SEND_FIRST);                  // ver 1 names whole messages
    c.add({false, kIsn + 950, kPeerSeq, option, 100});  // beyond the end
    c.add({false, kIsn - 10, kPeerSeq, option, 100});   // before the start
    Bytes twice = option;
    append(twice, option);
    c.add({false, kIsn, kPeerSeq, twice, 100});
    Bytes other{253, 6, 0x12, 0x34, 1, 2};  // another experiment
    c.add({false, kIsn, kPeerSeq, other, 100});
    good.start_seq = kIsn + 8;  // same message, another start
    c.add(data(kIsn + 200, 100, good));
    tcp_bth v0 = make(0, TCP_BTH_OP_SEND_MIDDLE, 2);
    v0.mbo = 512;
    c.add(data(kIsn + 1512, 512, v0));
    v0.mbo = 1000;  // 24 bytes off
    c.add(data(kIsn + 2024, 512, v0));
    for (uint32_t bytes : {0u, 100u, 64 * 16385u}) {  // no such trains
        tcp_bth train = make(1, TCP_BTH_OP_SEND_TRAIN, 3);
        train.start_seq = kIsn;
        train.length = 64;
        train.ext4 = bytes;
        c.add(data(kIsn, 64, train));
    }
    v0.opcode = TCP_BTH_OP_SEND_FIRST;  // a first segment that is not at 0
    c.add(data(kIsn + 2024, 512, v0));
    for (uint16_t messages : {0, 1, TCP_BTH_TRAIN_MAX_MESSAGES + 1}) {  // none, too short, too long
        tcp_bth train = make(1, TCP_BTH_OP_WRITE_TRAIN, 4);
        train.start_seq = kIsn;
        train.length = 32;
        train.dma_length = tcp_bth_train_word(messages, 1);
        c.add(data(kIsn, 64, train));
    }
}

// Opcodes of which @wanted holds, as a Lua set.
void print_set(const char* name, bool (*wanted)(const tcp_bth_op_info&)) {
    std::printf("local %s = {", name);
    const char* separator = " ";
    for (int op = 0; op < TCP_BTH_OP_COUNT; op++)
        if (wanted(*tcp_bth_op(static_cast<__u8>(op)))) {
            std::printf("%s[0x%02x] = true", separator, op);
            separator = ", ";
        }
    std::puts(" }");
}

// The part of tcp_bth.lua that knows opcodes; test_dissector.py compares.
void print_opcodes() {
    std::puts("local opcodes = {");
#define TCP_BTH_OPCODE_TEXT(name, value, kind, position, family, pair, ext, operands, text) \
    std::printf("\t[0x%02x] = \"%s\",\n", value, text);
    TCP_BTH_OPCODES(TCP_BTH_OPCODE_TEXT)
#undef TCP_BTH_OPCODE_TEXT
    std::puts("}");
    std::printf("local OP_COUNT, TRAIN, WRITE_TRAIN = 0x%02x, 0x%02x, 0x%02x\n", TCP_BTH_OP_COUNT,
                TCP_BTH_OP_SEND_TRAIN, TCP_BTH_OP_WRITE_TRAIN);
    print_set("MIXED_TRAIN", [](const tcp_bth_op_info& o) {
        return o.kind == TCP_BTH_KIND_MIXED_TRAIN || o.kind == TCP_BTH_KIND_WRITE_MIXED_TRAIN;
    });
    print_set("FIRST", [](const tcp_bth_op_info& o) { return o.position == TCP_BTH_POS_FIRST; });
    print_set("MIDDLE", [](const tcp_bth_op_info& o) { return o.position == TCP_BTH_POS_MIDDLE; });
    print_set("LAST", [](const tcp_bth_op_info& o) { return o.position == TCP_BTH_POS_LAST; });
    print_set("IMM", [](const tcp_bth_op_info& o) { return o.ext == TCP_BTH_EXT_IMM; });
    print_set("INVALIDATE", [](const tcp_bth_op_info& o) { return o.ext == TCP_BTH_EXT_IETH; });
    print_set("WITH_IMM", [](const tcp_bth_op_info& o) { return o.ext == TCP_BTH_EXT_RETH_IMM; });
    std::puts("-- Message numbers of these are a space of their own.");
    print_set("TAGGED", [](const tcp_bth_op_info& o) {
        return o.kind == TCP_BTH_KIND_WRITE || o.kind == TCP_BTH_KIND_WRITE_TRAIN ||
               o.kind == TCP_BTH_KIND_WRITE_MIXED_TRAIN || o.kind == TCP_BTH_KIND_READ_RESPONSE;
    });
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: tcp_bth_golden DIRECTORY | --opcodes\n");
        return 64;
    }
    if (std::string(argv[1]) == "--opcodes") {
        print_opcodes();
        return 0;
    }
    const struct {
        const char* name;
        bool six;
        std::function<void(Capture&)> fill;
    } captures[] = {{"v0", false, add_v0},
                    {"v1", true, add_v1},
                    {"acks", false, add_acks},
                    {"hostile", false, add_hostile}};
    for (const auto& c : captures) {
        Capture capture(c.six);
        c.fill(capture);
        if (!capture.write(std::string(argv[1]) + "/" + c.name)) {
            std::perror(c.name);
            return 1;
        }
    }
    return 0;
}
