// SPDX-License-Identifier: BSD-3-Clause
// The relay: one thread, one epoll, all links.  What it needs to wait for beyond descriptors (the
// module's attach) is the opener's.
#pragma once

#include <sys/epoll.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "relay/choice.hpp"
#include "relay/link.hpp"
#include "relay/program.hpp"

namespace tcpqp::run {

class Relay {
public:
    // Listens at @path.  Throws std::system_error.
    Relay(uint32_t engine, const std::string& path);

    // Until the program has ended, nobody of its is left, and no link.  @front is told how the
    // program ended as soon as none of its bytes is here any more.
    void run(Program& program, bool print_stats);

private:
    // What an event is of: the low bits of its number; the others are a link's or asker's.
    enum class Of : uint64_t {
        kProgram,
        kCarrier,
        kTcp,
        kAsker,
        kListener,
        kOpener,
        kChildren,
        kEnd
    };

    void watch(int fd, Of of, uint64_t id, uint32_t events);
    void step(int timeout_ms);
    void on(Of of, uint64_t id);
    void accept_askers();
    void on_asker(uint64_t id);
    void answer(const Fd& asker);
    Reply relay(const Request& request, Fd tcp, int asker);
    Reply find(Fd& shown);
    void start(uint64_t id, Link& link, bool connecting);
    void give_up(uint64_t id);
    void open(uint64_t id, Link& link);
    void on_connected(uint64_t id, Link& link);
    void on_opened(const Opened& opened);
    void carry(uint64_t id, Link& link, std::unique_ptr<Carrier> carrier, uint32_t events);
    void without_queue_pair(uint64_t id, Link& link, const Opened& opened);
    void pump(uint64_t id);
    [[nodiscard]] int wait_limit_ms() const noexcept;  // milliseconds; -1: until there is an event
    void refuse(uint64_t id, int error);
    [[nodiscard]] bool is_anything_leaving() noexcept;

    const uint32_t engine_;
    size_t links_max_ = 0;  // descriptors there are for
    Stats stats_;
    Choice choice_;
    Fd epoll_;
    Fd listener_;
    uint64_t next_id_ = 1;
    std::map<uint64_t, Fd> askers_;
    std::map<uint64_t, Link> links_;
    std::map<uint64_t, int> refused_;  // errno of connections that were never made
    std::set<uint64_t> again_;
    std::set<uint64_t> lingering_;  // pumped after kLingerStep, too
    Opener opener_;                 // last: its threads use links' sockets
};

}  // namespace tcpqp::run
