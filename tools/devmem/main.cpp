// SPDX-License-Identifier: BSD-3-Clause
// devmem_tcp: header split, bound queues, reception and sending by devmem TCP, each as a command.
#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/accelerator.hpp"
#include "devmem/memory.hpp"
#include "devmem/netdev.hpp"
#include "devmem/receive.hpp"
#include "devmem/transmit.hpp"
#include "tcp_qp/nupa_accel_hw.h"

namespace {

using tcpqp::Fd;
using namespace tcpqp::devmem;

constexpr size_t kPageBytes = 4096;
constexpr uint32_t kPagesDefault = 2048;
constexpr size_t kCallBytes = 1 << 20;
constexpr uint32_t kPeriodMax = NUPA_ACCEL_PERIOD_MAX;

const std::map<std::string, MemoryKind> kKinds{{"udmabuf", MemoryKind::kUdmabuf},
                                               {"hbm", MemoryKind::kHbm}};

struct Options {
    std::string interface;
    bool on = false;
    std::vector<uint32_t> queues;
    uint32_t pages = kPagesDefault;
    MemoryKind memory = MemoryKind::kUdmabuf;
    uint32_t period = 0;  // of the pattern to check; 0: bytes go to standard output
    uint16_t port = 0;
    bool steer = true;
    bool keep = false;
    std::string to;
    uint64_t bytes = 0;  // to send, of the pattern
};

Fd accept_one(uint16_t port) {
    const Fd listener(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    sockaddr_in6 at{};
    at.sin6_family = AF_INET6;
    at.sin6_port = htons(port);
    ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)) != 0 ||
        ::listen(listener.get(), 1) != 0)
        tcpqp::throw_errno("listen");
    Fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (fd.get() < 0)
        tcpqp::throw_errno("accept");
    return fd;
}

void write_all(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::write(STDOUT_FILENO, bytes.data(), bytes.size());
        if (n < 0)
            tcpqp::throw_errno("standard output");
        bytes = bytes.subspan(static_cast<size_t>(n));
    }
}

void write_pieces(const Memory& memory, const Receiver& receiver) {
    memory.begin_read();
    for (const auto& piece : receiver.pieces())
        write_all(piece);
    memory.end_read();
}

// Until standard input ends.
void wait_for_end() {
    char any = 0;
    while (::read(STDIN_FILENO, &any, 1) > 0)
        ;
}

void bind(const Options& o) {
    const Memory memory(o.memory, o.pages * kPageBytes);
    const Binding binding(o.interface, o.queues, memory.dma_buf());
    fmt::print("bound {}\n", binding.id());
    std::fflush(stdout);
    wait_for_end();
}

// ncqp's pattern, made once by the accelerator and compared by it with what has come: no processor
// reads the payload.
class Validator {
public:
    Validator(int received, uint32_t period)
        : received_(received),
          period_(period),
          pattern_(accelerator_.allocate(kCallBytes + period)) {
        accelerator_.pattern({pattern_.get()}, kCallBytes + period, period, 0);
    }
    // @at: of the piece, in the received memory.  Throws std::runtime_error.
    void check(uint64_t at, uint64_t bytes) {
        const uint64_t right =
            accelerator_.compare({received_, at}, {pattern_.get(), total_ % period_}, bytes);
        if (right != bytes)
            throw std::runtime_error(
                fmt::format("validation failed: byte {} is not the pattern's", total_ + right));
        total_ += bytes;
    }
    [[nodiscard]] uint64_t total() const noexcept { return total_; }

private:
    tcpqp::Accelerator accelerator_;
    int received_;
    uint32_t period_;
    Fd pattern_;
    uint64_t total_ = 0;
};

void validate(Validator& validator, const Memory& memory, std::span<const std::byte> piece) {
    const std::byte* const first = memory.bytes().data();
    if (piece.data() < first || piece.data() >= first + memory.bytes().size())
        throw std::runtime_error("payload in host memory, which the accelerator can't check");
    validator.check(static_cast<uint64_t>(piece.data() - first), piece.size());
}

// What is received goes to standard output or is validated; what it took, to standard error.
void receive(const Options& o) {
    const Memory memory(o.memory, o.pages * kPageBytes);
    const Binding binding(o.interface, o.queues, memory.dma_buf());
    const Fd connection = accept_one(o.port);
    std::optional<Steering> steering;
    if (o.steer)
        steering.emplace(o.interface, connection.get(), o.queues.front());
    Receiver receiver(connection.get(), memory, binding.id());
    std::optional<Validator> validator;
    if (o.period)
        validator.emplace(memory.dma_buf(), o.period);
    while (receiver.receive(kCallBytes)) {
        if (validator)
            for (const auto& piece : receiver.pieces())
                validate(*validator, memory, piece);
        else
            write_pieces(memory, receiver);
        if (!o.keep)
            receiver.give_back();
    }
    const Counts& c = receiver.counts();
    fmt::print(stderr,
               "{{\"bytes\": {}, \"host_bytes\": {}, \"cmsgs\": {}, \"calls\": {}, "
               "\"validated\": {}}}\n",
               c.bytes, c.host_bytes, c.messages, c.calls, validator ? validator->total() : 0);
}

// The socket sends by this interface alone: no other reaches the memory.
Fd connect_by(const std::string& interface, const std::string& to, uint16_t port) {
    sockaddr_in6 there{};
    there.sin6_family = AF_INET6;
    there.sin6_port = htons(port);
    const std::string mapped = to.find(':') == std::string::npos ? "::ffff:" + to : to;
    if (::inet_pton(AF_INET6, mapped.c_str(), &there.sin6_addr) != 1)
        throw std::runtime_error(to + " is no address");
    Fd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::setsockopt(fd.get(), SOL_SOCKET, SO_BINDTODEVICE, interface.c_str(),
                     static_cast<socklen_t>(interface.size() + 1)) != 0)
        tcpqp::throw_errno(interface);
    if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&there), sizeof(there)) != 0)
        tcpqp::throw_errno("connect to " + to);
    return fd;
}

size_t read_all(std::span<std::byte> to) {
    size_t got = 0;
    while (got < to.size()) {
        const ssize_t n = ::read(STDIN_FILENO, to.data() + got, to.size() - got);
        if (n < 0)
            tcpqp::throw_errno("standard input");
        if (n == 0)
            break;
        got += static_cast<size_t>(n);
    }
    return got;
}

// A buffer full of standard input, or of the pattern as the accelerator makes it; 0: no more.
size_t fill(const Memory& memory, const Options& o, uint64_t sent) {
    if (o.period) {
        const size_t n = std::min<uint64_t>(memory.bytes().size(), o.bytes - sent);
        if (n)
            tcpqp::Accelerator().pattern({memory.dma_buf()}, n, o.period, sent);
        return n;
    }
    memory.begin_write();
    const size_t n = read_all(memory.bytes());
    memory.end_write();
    return n;
}

void send(const Options& o) {
    const Memory memory(o.memory, o.pages * kPageBytes);
    const TransmitBinding binding(o.interface, memory.dma_buf());
    const Fd connection = connect_by(o.interface, o.to, o.port);
    Transmitter transmitter(connection.get(), binding.id());
    uint64_t sent = 0;
    while (const size_t n = fill(memory, o, sent)) {
        transmitter.send(0, n);
        transmitter.finish();
        sent += n;
    }
    fmt::print(stderr, "{{\"bytes\": {}, \"calls\": {}}}\n", sent, transmitter.calls());
}

int run(int argc, char** argv) {
    Options o;
    CLI::App app{"devmem TCP: payload goes from the port to a dma-buf"};
    app.require_subcommand(1);
    CLI::App* split = app.add_subcommand("split", "header split (tcp-data-split) of an interface");
    split->add_option("interface", o.interface)->required();
    split->add_option("on", o.on, "on or off")->required();
    CLI::App* bound = app.add_subcommand("bind", "bind receive queues until standard input ends");
    CLI::App* received = app.add_subcommand("receive", "receive one connection's bytes");
    CLI::App* sent = app.add_subcommand("send", "send standard input, or the pattern");
    for (CLI::App* one : {bound, received})
        one->add_option("--queue", o.queues)->required()->delimiter(',');
    for (CLI::App* one : {bound, received, sent}) {
        one->add_option("interface", o.interface)->required();
        one->add_option("--memory", o.memory, "udmabuf, or the accelerator's: hbm")
            ->transform(CLI::CheckedTransformer(kKinds));
        one->add_option("--pages", o.pages, "of the dma-buf")->check(CLI::Range(1, 16384));
    }
    for (CLI::App* one : {received, sent})
        one->add_option("--port", o.port)->required();
    received->add_flag("!--no-steering", o.steer, "the connection reaches the queue by itself");
    received
        ->add_option("--validate", o.period, "hbm: the accelerator checks this pattern (ncqp -v)")
        ->check(CLI::Range(1u, kPeriodMax));
    received->add_flag("--keep", o.keep, "give no buffer back before the end");
    sent->add_option("--to", o.to, "the receiver's address")->required();
    sent->add_option("--pattern", o.period, "hbm: the accelerator makes this pattern (ncqp -v)")
        ->check(CLI::Range(1u, kPeriodMax));
    sent->add_option("--bytes", o.bytes, "of the pattern");
    CLI11_PARSE(app, argc, argv);
    if (o.period && o.memory != MemoryKind::kHbm)
        throw std::runtime_error("patterns are the accelerator's: --memory hbm");
    if (*split)
        set_data_split(o.interface, o.on);
    else if (*bound)
        bind(o);
    else if (*sent)
        send(o);
    else
        receive(o);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception& e) {
        fmt::print(stderr, "devmem_tcp: {}\n", e.what());
        return 1;
    }
}
