// SPDX-License-Identifier: BSD-3-Clause
// Cases about coming and going: symbols, properties, connections, strays, ends, threads.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "nccl_harness/cases.hpp"

extern char** environ;

namespace tcpqp::harness {
namespace {

constexpr double kSettleS = 3;
constexpr uint64_t kVictimSeed = 9;
constexpr int kSilent = 60;  // fewer than any backlog

size_t entries(const char* folder) {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder))
        count++;
    return count;
}

// One message to each other; or to ourselves.
void send_and_check(const Comm& to, const Comm& from, size_t bytes, uint64_t seed) {
    const Buffer out(to, bytes), in(from, bytes);
    fill_pattern(out.data(), bytes, seed);
    const Part there{in.data(), bytes, 7, in.region()};
    void* received = receive(from, {&there, 1});
    void* sent = send(to, {out.data(), bytes, 7, out.region()});
    const auto sizes = wait_both(to, sent, from, received);
    check(sizes[0] == static_cast<int>(bytes), "a size is wrong");
    check(check_pattern(in.data(), bytes, seed) == bytes, "a byte is wrong");
}

void exchange(const Pair& pair, size_t bytes, uint64_t seed) {
    send_and_check(pair.send, pair.receive, bytes, seed);
}

std::set<int> listening_sockets() {
    std::set<int> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        const int fd = std::stoi(entry.path().filename());
        int listens = 0;
        socklen_t length = sizeof(listens);
        if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0)
            found.insert(fd);
    }
    return found;
}

Fd knock(int listener, const void* words, size_t bytes) {
    sockaddr_storage at{};
    socklen_t length = sizeof(at);
    check(::getsockname(listener, reinterpret_cast<sockaddr*>(&at), &length) == 0, "getsockname");
    Fd fd(::socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    check(::connect(fd.get(), reinterpret_cast<sockaddr*>(&at), length) == 0, "a stray's connect");
    if (bytes != 0)
        check(::send(fd.get(), words, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes),
              "a stray's send");
    return fd;
}

// A file of the same contents, which is another library to the loader.
class Copy {
public:
    explicit Copy(const std::string& of) : fd_(::memfd_create("plugin", 0)) {
        check(static_cast<bool>(fd_), "memfd_create");
        std::ifstream in(of, std::ios::binary);
        std::ofstream(path(), std::ios::binary) << in.rdbuf();
    }
    [[nodiscard]] std::string path() const { return fmt::format("/proc/self/fd/{}", fd_.get()); }

private:
    Fd fd_;
};

void knock_badly(int door, const HandleBytes& handle, uint64_t seed, std::vector<Fd>& strays) {
    std::vector<std::byte> noise(4 * kKib);
    fill_pattern(noise.data(), noise.size(), seed);
    knock(door, nullptr, 0);  // and closes
    knock(door, "GET / HTTP/1.0\r\n\r\n", 18);
    for (int i = 0; i < kSilent; i++)
        strays.push_back(knock(door, nullptr, 0));  // says nothing
    strays.push_back(knock(door, noise.data(), noise.size()));
    for (const size_t part : {1u, 2u, 7u, 24u})
        strays.push_back(knock(door, handle.data(), part));  // half of a magic
    strays.push_back(knock(door, handle.data(), handle.size()));
}

std::string hex(const HandleBytes& handle) {
    std::string text;
    for (const std::byte b : handle)
        text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
    return text;
}

pid_t start_victim(const Env& env, const HandleBytes& handle) {
    std::vector<std::string> words = {env.program,
                                      "--plugin",
                                      env.plugin.path(),
                                      "--api",
                                      std::to_string(env.plugin.api()),
                                      "--device",
                                      std::to_string(env.device),
                                      "--victim",
                                      hex(handle)};
    if (!env.merge.empty())
        words.insert(words.end(), {"--merge", env.merge});
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (std::string& word : words)
        argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_t pid = 0;
    check(::posix_spawn(&pid, env.program.c_str(), nullptr, nullptr, argv.data(), environ) == 0,
          "cannot start a victim");
    return pid;
}

// What threads 0 to @count - 1 do at once; the first of their problems is ours.
template <typename F>
void in_threads(size_t count, F work) {
    std::vector<std::thread> threads;
    std::vector<std::string> problems(count);
    for (size_t i = 0; i < count; i++)
        threads.emplace_back([&, i] {
            try {
                work(i);
            } catch (const std::exception& e) {
                problems[i] = e.what();
            }
        });
    for (std::thread& thread : threads)
        thread.join();
    for (const std::string& problem : problems)
        check(problem.empty(), problem);
}

// Comms from here to here, in turns of connect and accept, while others do the same.
void threads_of_their_own(Env& env, size_t count, size_t messages) {
    in_threads(count, [&](size_t i) {
        const Pair pair = connect_self(env.plugin, env.device);
        for (size_t m = 0; m < messages; m++)
            send_and_check(pair.send, pair.receive, 1 + 4093 * m, i * 1000 + m);
    });
}

// Until the comm says that its peer has gone.  Where the kernel sends what it was given before it
// hears of the death, the message may be there: whole then.
void wait_for_the_end(const Comm& comm, void* request, const Buffer& in, size_t bytes) {
    int done = 0;
    int sizes[nccl::kGroupMax] = {};
    for (const Limit limit(kStepLimitS);; idle()) {
        if (comm.plugin().try_test(request, &done, sizes) != nccl::kSuccess)
            return;
        if (done != 0) {
            check(static_cast<size_t>(sizes[0]) == bytes &&
                      check_pattern(in.data(), bytes, kVictimSeed) == bytes,
                  "a receive of a killed peer is done, and not all of it is there");
            return;
        }
        limit.check("a killed peer");
    }
}

// Receives and a send that nobody waits for; refused or not is no matter.
void leave_requests(const Pair& pair) {
    const Buffer out(pair.send, kKib), in(pair.receive, kKib);
    void* data = in.data();
    void* region = in.region();
    size_t bytes = kKib;
    int tag = 0;
    for (int i = 0; i < 4; i++) {
        void* request = nullptr;
        static_cast<void>(pair.receive.plugin().try_receive(pair.receive.get(), 1, &data, &bytes,
                                                            &tag, &region, &request));
    }
    void* request = nullptr;
    static_cast<void>(
        pair.send.plugin().try_send(pair.send.get(), out.data(), kKib, 0, out.region(), &request));
}

}  // namespace

Usage usage() { return {entries("/proc/self/fd"), entries("/proc/self/task")}; }

Pair Env::pair() const {
    if (is_end())
        return connect_pair(plugin, ranks, device, peer());
    static_cast<void>(connect_mesh(plugin, ranks, device, {}, {}));
    return {};
}

// A thread that was joined may still be seen for a moment.
void check_usage(const Usage& before) {
    for (const Limit limit(kSettleS);; idle()) {
        const Usage after = usage();
        if (after.descriptors == before.descriptors && after.threads == before.threads)
            return;
        limit.check(fmt::format("{} descriptors and {} threads became {} and {}",
                                before.descriptors, before.threads, after.descriptors,
                                after.threads)
                        .c_str());
    }
}

void case_symbols(Env& env) {
    for (int api = 8; api <= 12; api++)
        check(env.plugin.symbol(api) != nullptr, fmt::format("ncclNetPlugin_v{} is missing", api));
    for (int api = 8; api <= 12; api++) {
        Plugin again(env.plugin.path(), api);
        check(again.name() != nullptr && *again.name() != '\0', "it has no name");
        again.init();
        again.init();
        check(again.devices() > 0, "it has no device");
        again.finalize();
        again.finalize();
    }
    // A copy, since ours stays loaded and would keep it from being unloaded.
    const Copy copy(env.plugin.path());
    const auto load_once = [&copy] {
        Plugin again(copy.path(), 0);
        again.init();
        again.finalize();
    };
    load_once();  // what libraries under it keep for ever, they keep once
    const Usage before = usage();
    for (int i = 0; i < 100; i++)
        load_once();
    check_usage(before);
}

void case_properties(Env& env) {
    for (int device = 0; device < env.plugin.devices(); device++) {
        const Properties p = env.plugin.properties(device), again = env.plugin.properties(device);
        check(!p.name.empty() && p.name == again.name && p.guid == again.guid,
              "a device is not the same twice");
        check((p.pointers & nccl::kPointerHost) != 0, "it takes no host memory");
        check(p.speed_mbps > 0 && p.comms_max > 0, "a limit is not positive");
        check(p.receives_max >= 1 && p.receives_max <= nccl::kGroupMax, "maxRecvs");
        check(p.device_kind == nccl::kDeviceHost || p.device_kind == nccl::kDeviceUnpack,
              "netDeviceType");
        check(!p.has_limits || (p.p2p_max_bytes > 0 && p.p2p_max_bytes <= nccl::kTransferMaxBytes),
              "maxP2pBytes");
        check(p.pci_path.empty() || std::filesystem::exists(p.pci_path), "pciPath");
    }
}

void case_connect(Env& env) {
    const Usage before = usage();
    if (env.to_self) {
        const Pair self = connect_self(env.plugin, env.device);
        send_and_check(self.send, self.receive, 100 * kKib, 1);
    }
    { const Listener never(env.plugin, env.device); }  // shared comms close such
    {
        Listener nobody(env.plugin, env.device);  // the peer never comes
        for (int i = 0; i < 200; i++)
            check(!nobody.try_accept(), "a comm from nobody");
    }
    if (env.to_self) {
        Listener twice(env.plugin, env.device);
        for (int i = 0; i < 2; i++) {
            HandleBytes handle = twice.handle;
            Comm to, from;
            for (const Limit limit(kStepLimitS); !to || !from; idle()) {
                if (!to)
                    to = {env.plugin, Role::kSend, env.plugin.connect(env.device, handle)};
                if (!from)
                    from = twice.try_accept();
                limit.check("a listener's next comm");
            }
            send_and_check(to, from, 10, 2);
        }
    }
    if (env.to_self)
        threads_of_their_own(env, env.thorough ? 64 : 16, 1);
    check_usage(before);
    const Pair pair = env.pair();
    if (env.is_end()) {
        const Buffer out(pair.send, kKib), in(pair.receive, kKib);
        fill_pattern(out.data(), kKib, 5);
        const Part there{in.data(), kKib, 0, in.region()};
        void* received = receive(pair.receive, {&there, 1});
        void* sent = send(pair.send, {out.data(), kKib, 0, out.region()});
        wait_both(pair.send, sent, pair.receive, received);
        check(check_pattern(in.data(), kKib, 5) == kKib, "a byte is wrong");
    }
    env.ranks.barrier();
}

// Port scanners and health checks find a listening socket sooner or later.  Rank 0 has it, and the
// real peer is rank 1.
void case_strays(Env& env) {
    std::unique_ptr<Listener> listener;
    std::vector<Fd> strays;
    HandleBytes handle{};
    if (env.ranks.rank() == 0) {
        const std::set<int> before = listening_sockets();
        listener = std::make_unique<Listener>(env.plugin, env.device);
        handle = listener->handle;
        std::vector<int> doors;
        for (const int fd : listening_sockets())
            if (!before.contains(fd))
                doors.push_back(fd);
        check(!doors.empty(), "it listens nowhere");
        for (const int door : doors)
            knock_badly(door, handle, env.seed, strays);
        for (int i = 0; i < 100; i++)
            check(!listener->try_accept(), "a stray became a comm");
        if (env.is_ib())
            strays.clear();
    }
    handle = env.ranks.all_gather_values(handle)[0];
    const Limit limit(kStepLimitS);
    const size_t bytes = 64 * kKib;
    if (env.ranks.rank() == 0) {
        Comm from;
        for (; !from; idle()) {
            from = listener->try_accept();
            limit.check("the real peer among strays");
        }
        const Buffer in(from, bytes);
        const Part there{in.data(), bytes, 0, in.region()};
        wait(from, receive(from, {&there, 1}));
        check(check_pattern(in.data(), bytes, 3) == bytes, "a byte is wrong");
    } else if (env.ranks.rank() == 1) {
        Comm to;
        for (; !to; idle()) {
            to = {env.plugin, Role::kSend, env.plugin.connect(env.device, handle)};
            limit.check("a listener among strays");
        }
        const Buffer out(to, bytes);
        fill_pattern(out.data(), bytes, 3);
        wait(to, send(to, {out.data(), bytes, 0, out.region()}));
    }
    env.ranks.barrier();
}

void be_victim(Plugin& plugin, int device, const std::string& text) {
    HandleBytes handle{};
    check(text.size() == 2 * handle.size(), "--victim takes a handle");
    for (size_t i = 0; i < handle.size(); i++)
        handle[i] = static_cast<std::byte>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
    Comm comm;
    for (const Limit limit(kStepLimitS); !comm; idle()) {
        comm = {plugin, Role::kSend, plugin.connect(device, handle)};
        limit.check("the victim's connect");
    }
    const size_t bytes = 64 * kKib * kKib;
    const Buffer out(comm, bytes);
    fill_pattern(out.data(), bytes, kVictimSeed);
    send(comm, {out.data(), kKib, 0, out.region()});
    send(comm, {out.data(), bytes, 0, out.region()});
    ::raise(SIGKILL);
}

// Rank 1 starts a process that is killed while its message is under way to rank 0.
void case_ends(Env& env) {
    const Usage before = usage();
    if (env.is_end()) {
        // Requests in flight when their comms are closed; the peer may have closed before, but
        // not while we still connect.
        Pair pair = env.pair();
        env.ranks.barrier();
        leave_requests(pair);
        pair = {};
    } else {
        static_cast<void>(env.pair());
        env.ranks.barrier();
    }
    env.ranks.barrier();
    std::unique_ptr<Listener> listener;
    HandleBytes handle{};
    if (env.ranks.rank() == 0) {
        listener = std::make_unique<Listener>(env.plugin, env.device);
        handle = listener->handle;
    }
    handle = env.ranks.all_gather_values(handle)[0];
    if (env.ranks.rank() == 1) {
        const pid_t pid = start_victim(env, handle);
        int status = 0;
        check(
            ::waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
            fmt::format("the victim ended with status {:#x}", status));
    } else if (env.ranks.rank() == 0) {
        Comm comm;
        for (const Limit limit(kStepLimitS); !comm; idle()) {
            comm = listener->try_accept();
            limit.check("the victim");
        }
        const size_t bytes = 64 * kKib * kKib;
        const Buffer in(comm, bytes);
        const Part small{in.data(), kKib, 0, in.region()}, large{in.data(), bytes, 0, in.region()};
        wait(comm, receive(comm, {&small, 1}));
        wait_for_the_end(comm, receive(comm, {&large, 1}), in, bytes);
    }
    listener.reset();
    env.ranks.barrier();
    check_usage(before);
}

// A comm each way for each thread, all of them in use at once.
void case_threads(Env& env) {
    constexpr size_t kThreads = 8;
    const size_t messages = env.thorough ? 200 : 20;
    if (env.to_self)
        threads_of_their_own(env, kThreads, messages);
    std::vector<Pair> pairs;
    for (size_t i = 0; i < kThreads; i++)
        pairs.push_back(env.pair());
    in_threads(env.is_end() ? kThreads : 0, [&](size_t i) {
        for (size_t m = 0; m < messages; m++)
            exchange(pairs[i], 1 + 4093 * m, i * 1000 + m);
    });
    env.ranks.barrier();
}

}  // namespace tcpqp::harness
