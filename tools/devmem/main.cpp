// SPDX-License-Identifier: BSD-3-Clause
// devmem_tcp: header split, bound queues and reception by devmem TCP, each as a command.
#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
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

namespace {

using tcpqp::Fd;
using namespace tcpqp::devmem;

constexpr size_t kPageBytes = 4096;
constexpr uint32_t kPagesDefault = 2048;
constexpr size_t kCallBytes = 1 << 20;

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

int run(int argc, char** argv) {
    Options o;
    CLI::App app{"devmem TCP: payload goes from the port to a dma-buf"};
    app.require_subcommand(1);
    CLI::App* split = app.add_subcommand("split", "header split (tcp-data-split) of an interface");
    split->add_option("interface", o.interface)->required();
    split->add_option("on", o.on, "on or off")->required();
    CLI::App* bound = app.add_subcommand("bind", "bind receive queues until standard input ends");
    CLI::App* received = app.add_subcommand("receive", "receive one connection's bytes");
    for (CLI::App* one : {bound, received}) {
        one->add_option("interface", o.interface)->required();
        one->add_option("--queue", o.queues)->required()->delimiter(',');
        one->add_option("--memory", o.memory, "udmabuf, or the accelerator's: hbm")
            ->transform(CLI::CheckedTransformer(kKinds));
        one->add_option("--pages", o.pages, "of the dma-buf")->check(CLI::Range(1, 16384));
    }
    received->add_option("--port", o.port)->required();
    received->add_flag("!--no-steering", o.steer, "the connection reaches the queue by itself");
    received
        ->add_option("--validate", o.period, "hbm: the accelerator checks this pattern (ncqp -v)")
        ->check(CLI::Range(1, 4096));
    received->add_flag("--keep", o.keep, "give no buffer back before the end");
    CLI11_PARSE(app, argc, argv);
    if (o.period && o.memory != MemoryKind::kHbm)
        throw std::runtime_error("--validate is the accelerator's: --memory hbm");
    if (*split)
        set_data_split(o.interface, o.on);
    else if (*bound)
        bind(o);
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
