// SPDX-License-Identifier: BSD-3-Clause
#include "processes.hpp"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace tcpqp::stat {
namespace {

namespace fs = std::filesystem;

// NCCL's plugin has the library in itself.
constexpr std::string_view kLibrary = "/libtcpqp.so.", kNcclPlugin = "/libnccl-net-tcpqp.so";

bool uses_library(const fs::path& process) {
    std::ifstream maps(process / "maps");
    for (std::string line; std::getline(maps, line);)
        if (line.find(kLibrary) != std::string::npos || line.find(kNcclPlugin) != std::string::npos)
            return true;
    return false;
}

template <typename Number>
bool parse(std::string_view text, Number& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size();
}

// Processes and descriptors come and go meanwhile.
template <typename Each>
void each_entry(const fs::path& directory, Each each) {
    std::error_code error;
    for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
        each(at->path());
}

template <typename Each>
void each_process(Each each) {
    each_entry("/proc", [&](const fs::path& process) {
        int pid = 0;
        if (parse(process.filename().string(), pid))
            each(process, pid);
    });
}

void add_sockets(const fs::path& process, int pid, std::map<uint64_t, int>& all) {
    each_entry(process / "fd", [&](const fs::path& descriptor) {
        constexpr std::string_view kBefore = "socket:[";
        std::error_code error;
        const std::string target = fs::read_symlink(descriptor, error).string();
        uint64_t inode = 0;
        if (target.starts_with(kBefore) &&
            parse(
                std::string_view(target).substr(kBefore.size(), target.size() - kBefore.size() - 1),
                inode))
            all.emplace(inode, pid);
    });
}

}  // namespace

std::string process_name(int pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
    std::string name;
    std::getline(file, name);
    for (char& c : name)
        if (c < ' ' || c > '~')
            c = '?';
    return name;
}

std::map<uint64_t, int> library_sockets() {
    std::map<uint64_t, int> all;
    each_process([&](const fs::path& process, int pid) {
        if (uses_library(process))
            add_sockets(process, pid, all);
    });
    return all;
}

std::map<uint64_t, int> users_of(const std::set<uint64_t>& inodes) {
    std::map<uint64_t, int> all;
    if (inodes.empty())
        return all;
    each_process([&](const fs::path& process, int pid) { add_sockets(process, pid, all); });
    std::erase_if(all, [&](const auto& one) { return !inodes.contains(one.first); });
    return all;
}

}  // namespace tcpqp::stat
