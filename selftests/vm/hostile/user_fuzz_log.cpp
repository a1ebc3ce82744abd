// SPDX-License-Identifier: BSD-3-Clause
#include "user_fuzz_log.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "user_fuzz_world.hpp"

namespace nupa::fuzz {
namespace {

std::string error_name(int error) {
    const char* name = error > 0 ? strerrorname_np(error) : nullptr;
    return error == kUnderWay  ? "UNDER WAY"
           : error == kNothing ? "idle"
           : error == 0        ? "ok"
           : name              ? name
                               : "errno " + std::to_string(error);
}

}  // namespace

Shared& Shared::make() {
    void* at =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        tcpqp::throw_errno("map the log");
    return *new (at) Shared{};
}

void Shared::count(size_t op, int error) noexcept {
    calls.fetch_add(1, std::memory_order_relaxed);
    if (error == kNothing)
        idle[op].fetch_add(1, std::memory_order_relaxed);
    else
        outcomes[op][std::min<size_t>(static_cast<size_t>(error), kErrorsMax - 1)].fetch_add(
            1, std::memory_order_relaxed);
}

void dump(const Shared& shared, std::span<const Op> ops, const std::string& path) {
    struct Line {
        Entry entry;
        size_t track;
    };
    std::vector<Line> lines;
    for (size_t t = 0; t < shared.tracks.size(); t++)
        for (const Entry& e : shared.tracks[t].entries)
            if (e.ns)
                lines.push_back({e, t});
    std::sort(lines.begin(), lines.end(),
              [](const Line& a, const Line& b) { return a.entry.ns < b.entry.ns; });
    const std::unique_ptr<FILE, int (*)(FILE*)> out(std::fopen(path.c_str(), "w"), std::fclose);
    if (!out)
        return;
    for (const auto& [e, track] : lines)
        std::fprintf(
            out.get(), "%10.6f track %zu pid %d %s(%#llx, %#llx, %#llx) = %s\n",
            static_cast<double>(e.ns) / 1e9, track, e.pid, ops[static_cast<size_t>(e.op)].name,
            static_cast<unsigned long long>(e.args[0]), static_cast<unsigned long long>(e.args[1]),
            static_cast<unsigned long long>(e.args[2]), error_name(e.error).c_str());
}

std::string outcomes_json(const Shared& shared, std::span<const Op> ops, double seconds) {
    std::string table;
    for (size_t op = 0; op < ops.size(); op++) {
        std::string row;
        row = "\"cpu_us\": " + std::to_string(shared.cpu_ns[op] / 1000);
        if (const uint32_t idle = shared.idle[op])
            row += ", \"idle\": " + std::to_string(idle);
        for (size_t error = 0; error < kErrorsMax; error++)
            if (const uint32_t count = shared.outcomes[op][error])
                row +=
                    ", \"" + error_name(static_cast<int>(error)) + "\": " + std::to_string(count);
        table += (table.empty() ? "\"" : ", \"") + std::string(ops[op].name) + "\": {" + row + "}";
    }
    return "{\"calls\": " + std::to_string(shared.calls) +
           ", \"seconds\": " + std::to_string(seconds) +
           ", \"processes\": " + std::to_string(shared.started) +
           ", \"crashed\": " + std::to_string(shared.crashed) +
           ", \"loyal_messages\": " + std::to_string(shared.loyal_messages) +
           ", \"operations\": {" + table + "}}";
}

}  // namespace nupa::fuzz
