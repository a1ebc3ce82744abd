// SPDX-License-Identifier: BSD-3-Clause
#include "report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "processes.hpp"

namespace tcpqp::stat {
namespace {

using Json = nlohmann::ordered_json;

using Sockets = std::unordered_map<uint64_t, Socket>;

constexpr const char* kStock = "stock?";
constexpr const char* kStream = "stream";

// A connection without a queue pair: its bytes are as TCP knows them.
Line plain_line(const char* engine, const Socket& socket, int pid) {
    QueuePair qp;
    qp.engine = engine;
    qp.socket_cookie = socket.cookie;
    qp.tx_bytes = socket.bytes_acked;
    qp.rx_delivered = socket.bytes_received;
    qp.rx_placed = socket.stream ? socket.stream->rx_placed_bytes : 0;
    qp.rx_copied = qp.rx_delivered - std::min(qp.rx_placed, qp.rx_delivered);
    qp.pid = pid;
    return {std::move(qp), socket, pid != 0 ? process_name(pid) : std::string()};
}

void add_streams(std::vector<Line>& lines, const Sockets& all) {
    std::set<uint64_t> inodes;
    for (const auto& [cookie, socket] : all)
        if (socket.stream)
            inodes.insert(socket.inode);
    const std::map<uint64_t, int> users = users_of(inodes);
    for (const auto& [cookie, socket] : all) {
        const auto user = users.find(socket.inode);
        if (socket.stream)
            lines.push_back(plain_line(kStream, socket, user == users.end() ? 0 : user->second));
    }
}

void add_stock(std::vector<Line>& lines, const Sockets& all) {
    std::set<uint64_t> taken;
    for (const Line& line : lines)
        taken.insert(line.qp.socket_cookie);
    const std::map<uint64_t, int> users = library_sockets();
    for (const auto& [cookie, socket] : all) {
        const auto user = users.find(socket.inode);
        if (user == users.end() || !socket.established || taken.contains(cookie))
            continue;
        lines.push_back(plain_line(kStock, socket, user->second));
    }
}

bool has_queue_pair(const Line& line) { return !line.qp.device.empty(); }

bool is_stream(const Line& line) { return line.qp.engine == kStream; }

std::string process_of(const Line& line) {
    return line.qp.pid == 0 ? "-" : fmt::format("{}({})", line.process, line.qp.pid);
}

std::vector<std::string> cells(const Line& line) {
    const QueuePair& qp = line.qp;
    const bool paired = has_queue_pair(line);
    const bool stream = is_stream(line);
    std::vector<std::string> row{
        paired ? qp.device : "-",
        paired ? std::to_string(qp.qpn) : "-",
        paired ? qp.state : "-",
        line.socket ? line.socket->local : "-",
        line.socket ? line.socket->peer : "-",
        qp.engine,
        qp.reason == 0 ? "-" : reason_name(qp.reason),
        paired ? std::to_string(qp.credits) : "-",
        std::to_string(qp.tx_bytes),
        stream ? std::to_string(line.socket->stream->tx_large_bytes) : "-",
        stream ? std::to_string(line.socket->stream->tx_other_bytes) : "-",
        std::to_string(qp.rx_placed),
        std::to_string(qp.rx_copied),
        line.socket ? fmt::format("{:.3f}", line.socket->rtt_ms) : "-",
        line.socket ? std::to_string(line.socket->cwnd) : "-",
        line.socket ? std::to_string(line.socket->retransmits) : "-",
        process_of(line),
    };
    return row;
}

Json json_of(const Line& line) {
    const QueuePair& qp = line.qp;
    Json json{{"engine", qp.engine}};
    if (has_queue_pair(line))
        json.update({{"device", qp.device},
                     {"qpn", qp.qpn},
                     {"state", qp.state},
                     {"reason", reason_name(qp.reason)},
                     {"reason_text", reason_text(qp.reason)},
                     {"credits", qp.credits},
                     {"tx_messages", qp.tx_messages},
                     {"rx_messages", qp.rx_messages}});
    json.update({{"tx_bytes", qp.tx_bytes},
                 {"rx_delivered_bytes", qp.rx_delivered},
                 {"rx_placed_bytes", qp.rx_placed},
                 {"rx_copied_bytes", qp.rx_copied},
                 {"socket_cookie", qp.socket_cookie}});
    if (is_stream(line))
        json.update({{"tx_large_bytes", line.socket->stream->tx_large_bytes},
                     {"tx_other_bytes", line.socket->stream->tx_other_bytes},
                     {"pool_bytes", line.socket->stream->pool_bytes},
                     {"rx_posts", line.socket->stream->rx_posts},
                     {"rx_rescued_bytes", line.socket->stream->rx_rescued_bytes}});
    if (const auto& socket = line.socket)
        json.update({{"local", socket->local},
                     {"peer", socket->peer},
                     {"rtt_ms", socket->rtt_ms},
                     {"cwnd", socket->cwnd},
                     {"retransmits", socket->retransmits},
                     {"congestion", socket->congestion}});
    if (qp.pid != 0)
        json.update({{"pid", qp.pid}, {"process", line.process}});
    return json;
}

}  // namespace

std::vector<Line> look(const Choice& choice) {
    // a socket has a cookie from when it is first shown on
    const Sockets all = sockets();
    std::vector<QueuePair> qps = queue_pairs();
    std::vector<Line> lines;
    for (QueuePair& qp : qps) {
        if (qp.engine == "none" && !choice.unconnected)
            continue;
        const auto socket = all.find(qp.socket_cookie);
        std::string process = qp.pid != 0 ? process_name(qp.pid) : std::string();
        lines.push_back({std::move(qp),
                         socket != all.end() ? std::optional(socket->second) : std::nullopt,
                         std::move(process)});
    }
    add_streams(lines, all);
    if (choice.stock)
        add_stock(lines, all);
    std::sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
        return std::tie(a.qp.device, a.qp.qpn, a.qp.socket_cookie) <
               std::tie(b.qp.device, b.qp.qpn, b.qp.socket_cookie);
    });
    return lines;
}

std::string as_table(const std::vector<Line>& lines) {
    std::vector<std::vector<std::string>> rows{
        {"DEVICE", "QPN", "STATE", "LOCAL", "PEER", "ENGINE", "REASON", "CREDITS", "SENT", "LARGE",
         "OTHER", "PLACED", "COPIED", "RTT ms", "CWND", "RETRANS", "PROCESS"}};
    for (const Line& line : lines)
        rows.push_back(cells(line));
    std::vector<size_t> widths(rows[0].size());
    for (const auto& row : rows)
        for (size_t i = 0; i < row.size(); i++)
            widths[i] = std::max(widths[i], row[i].size());
    std::string text;
    for (const auto& row : rows) {
        for (size_t i = 0; i + 1 < row.size(); i++)
            text += fmt::format("{:<{}}  ", row[i], widths[i]);
        text += row.back() + "\n";
    }
    return text;
}

std::string as_json(const std::vector<Line>& lines) {
    Json all = Json::array();
    for (const Line& line : lines)
        all.push_back(json_of(line));
    return all.dump(1) + "\n";
}

}  // namespace tcpqp::stat
