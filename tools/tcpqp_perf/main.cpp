// SPDX-License-Identifier: BSD-3-Clause
// tcpqp_perf: a queue pair against plain send() and recv(), in the same run.
//
// The client makes three connections: control (lines), plain, queue pair.  For
// each round it says on the first what is measured and on which of the others.
#include <algorithm>
#include <cstdio>
#include <sstream>
#include <stdexcept>

#include "bars.hpp"
#include "options.hpp"
#include "plain.hpp"
#include "queue.hpp"
#include "report.hpp"
#include "sockets.hpp"

namespace perf {
namespace {

constexpr uint64_t kRoundBytes = uint64_t{512} << 20;  // of a bandwidth round, about
constexpr uint64_t kRoundMessages = 200000;
constexpr uint64_t kRoundTrips = 5000;
constexpr uint64_t kMemoryBytes = uint64_t{256} << 20;  // of receives
constexpr uint64_t kPoolBytes = uint64_t{32} << 20;     // the same, of a pool
constexpr const char* kNext = "next";

Round round_of(const Options& o, uint32_t bytes) {
    Round r{o.test, bytes, o.messages, o.batch, o.events};
    if (r.messages == 0)
        r.messages = o.test == Test::kLatency
                         ? kRoundTrips
                         : std::clamp<uint64_t>(kRoundBytes / bytes, 16, kRoundMessages);
    return r;
}

// The largest message of a client, and the most messages of its rounds.
struct Extent {
    uint32_t bytes = 0;
    uint64_t messages = 0;
};

Extent extent_of(const Options& o) {
    Extent e;
    for (uint32_t bytes : o.sizes)
        e = {std::max(e.bytes, bytes), std::max(e.messages, round_of(o, bytes).messages)};
    return e;
}

struct Link {
    Link(Socket line, Socket plain_socket, Socket queue_socket, const Options& o, const Extent& e)
        : control(std::move(line)),
          queue(std::move(queue_socket), opts(o), e.bytes, depth(o, e), o.pool),
          plain(std::move(plain_socket), queue.receive_memory(), e.bytes) {}

    static tcpqp_context_opts opts(const Options& o) {
        tcpqp_context_opts c{};
        c.engine = o.engine;
        return c;
    }
    static Depth depth(const Options& o, const Extent& e) {
        const uint64_t memory = o.pool ? kPoolBytes : kMemoryBytes;
        const uint64_t fit = std::max<uint64_t>(std::min(memory / e.bytes, e.messages), 2);
        return {o.depth.sends, static_cast<uint32_t>(std::min<uint64_t>(o.depth.receives, fit))};
    }
    Transport& of(const std::string& word) {
        return word == "plain" ? static_cast<Transport&>(plain) : queue;
    }

    Socket control;
    Queue queue;
    Plain plain;
};

Sample ask(Link& link, const std::string& word, const Round& r) {
    std::ostringstream line;
    line << word << ' ' << static_cast<uint32_t>(r.test) << ' ' << r.bytes << ' ' << r.messages
         << ' ' << r.batch << ' ' << r.events;
    send_line(link.control, line.str());
    receive_line(link.control);  // it is ready
    return link.of(word).ask(r);
}

tcpqp_qp_info server_info(Link& link) {
    tcpqp_qp_info i{};
    send_line(link.control, "info");
    std::istringstream(receive_line(link.control)) >> i.rx_placed_bytes >> i.rx_copied_bytes;
    return i;
}

Result measure(Link& link, const Options& o, uint32_t bytes) {
    Result result;
    result.round = round_of(o, bytes);
    const tcpqp_qp_info client = link.queue.info(), server = server_info(link);
    Round warm = result.round;
    warm.messages = std::max<uint64_t>(warm.messages / 10, 1);
    ask(link, "plain", warm);
    ask(link, "queue", warm);
    for (uint32_t i = 0; i < o.rounds; i++) {
        result.plain.push_back(ask(link, "plain", result.round));
        result.queue.push_back(ask(link, "queue", result.round));
    }
    result.client = link.queue.info();
    result.server = server_info(link);
    result.client.tx_zerocopy_bytes -= client.tx_zerocopy_bytes;
    result.server.rx_placed_bytes -= server.rx_placed_bytes;
    result.server.rx_copied_bytes -= server.rx_copied_bytes;
    return result;
}

// One after the other: handshakes overtake each other, and accept() takes what ends first.
Socket connect_next(const Socket& control, const Options& o) {
    if (receive_line(control) != kNext)
        throw std::runtime_error("the server speaks another version");
    return connect_to(o.host, o.port);
}

Socket accept_next(const Socket& control, const Socket& listener) {
    send_line(control, kNext);
    return accept_from(listener);
}

// Connections of their own: buffers of its largest message, and no larger, nor more than a round
// has messages.
template <typename Then>
void measure_each(const Options& o, Then then) {
    const Extent extent = extent_of(o);
    Socket control = connect_to(o.host, o.port);
    send_line(control, std::to_string(extent.bytes) + " " + std::to_string(extent.messages));
    Socket plain = connect_next(control, o), queue = connect_next(control, o);
    Link link(std::move(control), std::move(plain), std::move(queue), o, extent);
    for (uint32_t bytes : o.sizes)
        then(measure(link, o, bytes));
    send_line(link.control, "end");
}

void run_client(const Options& o) {
    std::vector<Result> results;
    if (!o.json)
        print_header(o.test);
    measure_each(o, [&](Result r) {
        results.push_back(std::move(r));
        if (!o.json)
            print_row(results.back());
    });
    if (o.json)
        print_json(results);
}

int run_bars(const Options& o) {
    bool met = true;
    print_bar_header();
    for (const BarTest& bar : bar_tests()) {
        std::vector<Result> connections;
        while (connections.size() < kBarConnections)
            measure_each(options_of(bar, o),
                         [&](Result r) { connections.push_back(std::move(r)); });
        met &= print_bar(connections);
    }
    return met ? 0 : 1;
}

// What a client may ask for is bounded by what was set up for it.
void serve_line(Link& link, const std::string& line, uint32_t bytes_max) {
    std::string word;
    uint32_t test = 0;
    Round r;
    std::istringstream in(line);
    in >> word;
    if (word == "info") {
        const tcpqp_qp_info i = link.queue.info();
        send_line(link.control,
                  std::to_string(i.rx_placed_bytes) + " " + std::to_string(i.rx_copied_bytes));
        return;
    }
    in >> test >> r.bytes >> r.messages >> r.batch >> r.events;
    if (!in || test > static_cast<uint32_t>(Test::kRate) || r.bytes == 0 || r.bytes > bytes_max)
        throw std::runtime_error("the client asked for something else: " + line);
    r.test = static_cast<Test>(test);
    send_line(link.control, "ready");
    link.of(word).serve(r);
}

void serve_client(const Socket& listener, const Options& o) {
    Socket control = accept_from(listener);
    Extent extent;
    std::istringstream(receive_line(control)) >> extent.bytes >> extent.messages;
    if (extent.bytes == 0 || extent.bytes > TCPQP_MESSAGE_MAX_BYTES)
        throw std::runtime_error("the client names no size");
    Socket plain = accept_next(control, listener), queue = accept_next(control, listener);
    Link link(std::move(control), std::move(plain), std::move(queue), o, extent);
    for (std::string line = receive_line(link.control); line != "end";
         line = receive_line(link.control))
        serve_line(link, line, extent.bytes);
}

int run_server(const Options& o) {
    const Socket listener = listen_on(o.port);
    for (;;) {
        int status = 0;
        try {
            serve_client(listener, o);
        } catch (const std::exception& e) {
            std::fprintf(stderr, "tcpqp_perf: %s\n", e.what());
            status = 1;
        }
        if (o.once)
            return status;
    }
}

}  // namespace
}  // namespace perf

int main(int argc, char** argv) {
    const perf::Options o = perf::parse(argc, argv);
    try {
        if (o.host.empty())
            return perf::run_server(o);
        if (o.bars)
            return perf::run_bars(o);
        perf::run_client(o);
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "tcpqp_perf: %s\n", e.what());
        return 1;
    }
}
