// SPDX-License-Identifier: BSD-3-Clause
// A TCG plugin that counts the guest's instructions by translated block, for bench/profile.
//
// It listens on a socket DIRECTORY/PID.  One line, one answer ("ok") a connection:
//   reset        all counts are zero
//   dump PATH    lines "ADDRESS INSTRUCTIONS" (hexadecimal, decimal) of each block that ran
//
// Debian has no header of QEMU's plugin API (docs/devel/tcg-plugins), so what is used of it,
// version 1, is declared here.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

extern "C" {
struct qemu_plugin_tb;
struct qemu_info_t;
using qemu_plugin_id_t = uint64_t;
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
                                           void (*cb)(qemu_plugin_id_t, qemu_plugin_tb*));
void qemu_plugin_register_vcpu_tb_exec_inline(qemu_plugin_tb* tb, int op, void* at, uint64_t by);
size_t qemu_plugin_tb_n_insns(const qemu_plugin_tb* tb);
uint64_t qemu_plugin_tb_vaddr(const qemu_plugin_tb* tb);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;
}

namespace {

constexpr int kAdd64 = 0;  // QEMU_PLUGIN_INLINE_ADD_U64

struct Block {
    uint64_t address;
    uint64_t instructions = 0;  // executed; the translated code adds to it
};

std::mutex lock;
std::deque<Block> blocks;  // their addresses are in translated code

void translated(qemu_plugin_id_t, qemu_plugin_tb* tb) {
    const std::lock_guard guard(lock);
    Block& block = blocks.emplace_back(Block{qemu_plugin_tb_vaddr(tb)});
    qemu_plugin_register_vcpu_tb_exec_inline(tb, kAdd64, &block.instructions,
                                             qemu_plugin_tb_n_insns(tb));
}

bool dump(const char* path) {
    std::FILE* file = std::fopen(path, "w");
    if (!file)
        return false;
    for (const Block& b : blocks)
        if (b.instructions)
            std::fprintf(file, "%jx %ju\n", static_cast<uintmax_t>(b.address),
                         static_cast<uintmax_t>(b.instructions));
    return std::fclose(file) == 0;
}

bool obey(std::string line) {
    const std::lock_guard guard(lock);
    line.erase(line.find_last_not_of('\n') + 1);
    if (line == "reset") {
        for (Block& b : blocks)
            b.instructions = 0;
        return true;
    }
    return line.starts_with("dump ") && dump(line.c_str() + 5);
}

void serve(int listener) {
    for (;;) {
        const int client = ::accept(listener, nullptr, nullptr);
        char line[512];
        const ssize_t n = ::recv(client, line, sizeof line, 0);
        const char* answer = n > 0 && obey({line, static_cast<size_t>(n)}) ? "ok\n" : "no\n";
        (void)::send(client, answer, 3, MSG_NOSIGNAL);
        ::close(client);
    }
}

int listen_in(const char* directory) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::snprintf(at.sun_path, sizeof at.sun_path, "%s/%d", directory, ::getpid());
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ::bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) || ::listen(fd, 4))
        return -1;
    return fd;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id,
                                                                          const qemu_info_t*,
                                                                          int words, char** word) {
    constexpr std::string_view kDirectory = "directory=";
    if (words != 1 || !std::string_view(word[0]).starts_with(kDirectory))
        return -1;
    const int listener = listen_in(word[0] + kDirectory.size());
    if (listener < 0)
        return -1;
    std::thread(serve, listener).detach();
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
