// SPDX-License-Identifier: BSD-3-Clause
// Admits connections, and takes note of their ends.  Each user's desk calls in a thread of its own:
// calls on a user's socket may last as long as the user likes, so no lock is held over one.
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <span>

#include "egress.hpp"
#include "program.hpp"
#include "slots.hpp"

namespace tcpqp::bpf {

class Admission {
public:
    // @egress_handle: of no other helper's programs on interfaces.
    Admission(Program& program, uint32_t egress_handle, bool verbose);
    Admission(const Admission&) = delete;
    Admission& operator=(const Admission&) = delete;

    struct Admitted {
        Slots::Place place;
        Program::Slot slot;
    };
    // Throws std::system_error.
    [[nodiscard]] Admitted admit(int socket, uid_t uid);
    // The client was told, or could not be.
    void finish(Admitted& admitted);

    // Ends of connections, until @stop is readable: one thread's.
    void collect(int stop);
    // For good: interfaces are as they were.
    void close() noexcept;

private:
    struct Ended {
        Slots::Place place;
        uint32_t map;  // Program::id_of(), as a user may keep it
    };

    void cover(int socket);
    [[nodiscard]] Slots::Place take(uid_t uid);
    void forget(std::span<const Ended> ended);
    [[nodiscard]] Ended over(const Slots::Place& place, const Fd& map) const;

    Program& program_;
    const bool verbose_;
    const uint64_t namespace_;
    Slots slots_;
    std::mutex egress_lock_;
    std::unique_ptr<Egress> egress_;  // none: we are about to end
};

}  // namespace tcpqp::bpf
