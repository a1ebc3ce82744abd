// SPDX-License-Identifier: BSD-3-Clause
// A fuzzer of the kernel's user boundary: processes of several users, each with several threads, do
// at random what there is to do with verbs, sockets, rings, rdma_cm and (root) links, and are
// killed at random.  One watches over them: the kernel's log, and that who was killed dies.
//
//   user_fuzz --seed N --seconds S [--peer ADDR --port PORT] ...
//
// A seed decides what each thread draws; what the draws meet is up to the scheduler.  Prints a JSON
// object of outcomes and leaves the last calls of all threads in FOLDER/calls.
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <utility>

#include "command.hpp"
#include "user_fuzz_link.hpp"
#include "user_fuzz_loyal.hpp"
#include "user_fuzz_world.hpp"

namespace {

using namespace nupa::fuzz;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr uid_t kUsers[] = {65534, 1000, 65534, 0};  // by process, over and over
constexpr uint32_t kLifeMinMs = 500, kLifeMaxMs = 12000;
constexpr uint32_t kWorkerLimitS = 30;
constexpr rlim_t kLockedMaxBytes = 32 << 20, kFilesMax = 1024, kProcessesMax = 200;
constexpr int kTurnMs = 20;
constexpr size_t kMailboxBytes = 64 << 10;
const std::regex kComplaint(
    "WARNING: |BUG: |BUG at |Oops|general protection fault|KASAN|UBSAN|KCSAN|possible "
    "(circular|recursive)"
    "|inconsistent lock|INFO: task .* blocked|rcu.*(stall|expedited)|soft "
    "lockup|refcount_t|list_(add|del) "
    "corruption|unregister_netdevice: waiting|sleeping function|scheduling while atomic|Bad page");

// Data races within the kernel itself are not looked at: nupavm/dmesg.py says why.
constexpr const char* kRace = "BUG: KCSAN: ";
constexpr const char* kReportEnd = "============================================================";
const std::regex kOurCode("\\[(tcp_qp|nupa_dev|nupa_accel)\\b");

struct Worker {
    size_t place;
    Clock::time_point killed_at;  // when it will be, or was
    bool killed = false;
};

class KernelLog {
public:
    KernelLog() : fd_(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
        if (!fd_)
            tcpqp::throw_errno("open /dev/kmsg");
        lseek(fd_.get(), 0, SEEK_END);
    }
    // The first complaint since, or nothing.
    std::string complaint() {
        char line[2048];
        for (;;) {
            const ssize_t n = read(fd_.get(), line, sizeof line - 1);
            if (n <= 0 && errno != EPIPE)
                return "";
            if (n <= 0)
                continue;
            std::string text(line, static_cast<size_t>(n));
            if (text.find(kRace) != std::string::npos)
                race_ = text;
            else if (!race_.empty() && std::regex_search(text, kOurCode))
                return std::exchange(race_, {});
            else if (text.find(kReportEnd) != std::string::npos)
                race_.clear();
            else if (std::regex_search(text, kComplaint))
                return text;
        }
    }

private:
    tcpqp::Fd fd_;
    std::string race_;  // KCSAN's report that is being read
};

// At its commas.
std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> words;
    std::istringstream from(text);
    for (std::string word; std::getline(from, word, ',');)
        words.push_back(word);
    return words;
}

class Supervisor {
public:
    explicit Supervisor(const Options& o) : o_(o), shared_(Shared::make()), dice_(o.seed) {
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, mail_))
            tcpqp::throw_errno("make a mailbox");
        setsockopt(mail_[0], SOL_SOCKET, SO_SNDBUF, &kMailboxBytes, sizeof(int));
    }

    int run() {
        const auto began = Clock::now();
        std::string trouble;
        while (trouble.empty() && Clock::now() - began < std::chrono::seconds(o_.seconds)) {
            start_missing();
            kill_some();
            reap();
            trouble = look();
            poll(nullptr, 0, kTurnMs);
        }
        if (trouble.empty())
            trouble = end();
        const double took = Seconds(Clock::now() - began).count();
        dump(shared_, all_ops(), o_.report + "/calls");
        remove_links();
        std::printf("%s\n", outcomes_json(shared_, all_ops(), took).c_str());
        if (trouble.empty())
            return 0;
        std::fprintf(
            stderr,
            "user_fuzz: seed %llu, after %.1f s: %s\nuser_fuzz: the last calls are in %s/calls\n",
            static_cast<unsigned long long>(o_.seed), took, trouble.c_str(), o_.report.c_str());
        for (const auto& [pid, worker] : workers_)
            kill(pid, SIGKILL);
        return 1;
    }

private:
    void start_missing() {
        for (size_t place = 0; place < o_.processes; place++)
            if (!places_[place])
                start(place);
    }

    void start(size_t place) {
        const uint64_t seed = dice_.next();
        const uid_t user = kUsers[place % std::size(kUsers)];
        const pid_t pid = fork();
        if (pid < 0)
            return;
        if (pid == 0) {
            become(user);
            work(o_, shared_, mail_[place % 2], place * o_.threads, seed, kWorkerLimitS);
        }
        shared_.started++;
        places_[place] = pid;
        const auto life =
            std::chrono::milliseconds(kLifeMinMs + dice_.below(kLifeMaxMs - kLifeMinMs));
        workers_[pid] = {place, Clock::now() + life};
    }

    static void become(uid_t user) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        const auto limit = [](auto what, rlim_t most) {
            const rlimit r{most, most};
            setrlimit(what, &r);
        };
        limit(RLIMIT_CORE, 0);
        limit(RLIMIT_NOFILE, kFilesMax);
        if (!user)
            return;
        limit(RLIMIT_MEMLOCK, kLockedMaxBytes);
        limit(RLIMIT_NPROC, kProcessesMax);
        if (setgroups(0, nullptr) || setgid(user) || setuid(user))
            _exit(1);
        prctl(PR_SET_DUMPABLE, 1);
    }

    void kill_some() {
        for (auto& [pid, worker] : workers_)
            if (!worker.killed && Clock::now() >= worker.killed_at) {
                kill(pid, SIGKILL);
                worker.killed = true;
                worker.killed_at = Clock::now();
                places_[worker.place] = 0;  // its successor need not wait for its end
            }
    }

    void reap() {
        for (pid_t pid; (pid = waitpid(-1, nullptr, WNOHANG)) > 0;) {
            const auto found = workers_.find(pid);
            if (found == workers_.end())
                continue;  // a child of a child
            if (places_[found->second.place] == pid)
                places_[found->second.place] = 0;
            workers_.erase(found);
        }
    }

    // What there is to complain of, by the kernel or of it.
    std::string look() {
        if (const std::string line = log_.complaint(); !line.empty())
            return "the kernel says: " + line;
        if (access(kWronged, F_OK) == 0)
            return "an honest process was wronged";
        for (const auto& [pid, worker] : workers_)
            if (worker.killed && Clock::now() - worker.killed_at > std::chrono::seconds(o_.death_s))
                return "process " + std::to_string(pid) + " was killed " +
                       std::to_string(o_.death_s) + " s ago and is still there\n" + where(pid);
        return "";
    }

    static std::string where(pid_t pid) {
        std::string text;
        std::error_code ignored;
        for (const auto& task : std::filesystem::directory_iterator(
                 "/proc/" + std::to_string(pid) + "/task", ignored)) {
            std::ifstream stack(task.path() / "stack");
            text += task.path().filename().string() + ":\n" +
                    std::string(std::istreambuf_iterator<char>(stack), {});
        }
        return text;
    }

    // All are killed; all must be gone in time.
    std::string end() {
        for (auto& [pid, worker] : workers_) {
            kill(pid, SIGKILL);
            worker.killed_at = worker.killed ? worker.killed_at : Clock::now();
            worker.killed = true;
        }
        for (const auto limit = Clock::now() + std::chrono::seconds(o_.death_s);;) {
            reap();
            if (std::string trouble = look(); !trouble.empty())
                return trouble;
            if (waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD)
                return "";
            if (Clock::now() > limit)
                return "children of killed processes are still there";
            poll(nullptr, 0, kTurnMs);
        }
    }

    const Options& o_;
    Shared& shared_;
    Dice dice_;
    KernelLog log_;
    int mail_[2] = {-1, -1};
    std::map<size_t, pid_t> places_;
    std::map<pid_t, Worker> workers_;
};

}  // namespace

int main(int argc, char** argv) {
    Options o;
    std::string only, without;
    return nupa::programs::Command("user_fuzz", "Fuzz the kernel's user boundary")
        .option("--seed", o.seed)
        .option("--seconds", o.seconds)
        .option("--processes", o.processes, {1, 12})
        .option("--threads", o.threads, {1, 4})
        .option("--death-s", o.death_s, "that a killed process may take to die")
        .option("--peer", o.peer, "where the honest side accepts")
        .option("--port", o.port, "of it; 0: there is none")
        .option("--local", o.local, "an address of this machine on the device's interface")
        .option("--engine", o.engine)
        .option("--interface", o.interface, "of the RDMA device")
        .option("--report", o.report, "a folder")
        .option("--only", only, "operations whose names begin so, with commas between")
        .option("--without", without, "the same")
        .flag("!--no-links", o.links, "root makes no devices")
        .run(argc, argv, [&] {
            o.only = split(only), o.without = split(without);
            return Supervisor(o).run();
        });
}
