// SPDX-License-Identifier: BSD-3-Clause
// gloo's all-reduce over its ibverbs transport, which connects by number; or over its TCP
// transport.  Every value is looked at.
//   gloo_checked STORE RANK RANKS DEVICE
// DEVICE is an RDMA device, or an address for TCP.  Lines are as checked.c prints them, from rank
// 0. The ranks find each other by nupa-ctl post and get, under names that begin with STORE.
#include <arpa/inet.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier_all_to_one.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/ibverbs/device.h>
#include <gloo/transport/tcp/device.h>
#include <cstdio>
#include <cstdlib>

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int kTurns = 12, kWarm = 2;
constexpr size_t kSizes[] = {8, 4096, 65536, 1 << 20, 4 << 20};

// What the harness keeps for all guests.  A word has no blanks, hence hexadecimal digits.
class Words : public gloo::rendezvous::Store {
public:
    explicit Words(std::string name) : name_(std::move(name)) {}

    void set(const std::string& key, const std::vector<char>& data) override {
        std::string word;
        for (unsigned char byte : data) {
            char digits[3];
            std::snprintf(digits, sizeof(digits), "%02x", byte);
            word += digits;
        }
        if (std::system(("nupa-ctl post " + path(key) + " " + word).c_str()) != 0)
            throw std::runtime_error("nupa-ctl post");
    }

    std::vector<char> get(const std::string& key) override {
        std::unique_ptr<FILE, int (*)(FILE*)> answer(
            popen(("nupa-ctl get " + path(key)).c_str(), "r"), pclose);
        if (!answer)
            throw std::runtime_error("nupa-ctl get");
        std::vector<char> data;
        unsigned byte;
        while (std::fscanf(answer.get(), "%2x", &byte) == 1)
            data.push_back(static_cast<char>(byte));
        return data;
    }

    void wait(const std::vector<std::string>& keys) override {
        for (const auto& key : keys)
            get(key);
    }

private:
    std::string path(const std::string& key) const { return name_ + "." + key; }

    std::string name_;
};

std::shared_ptr<gloo::transport::Device> device(const std::string& name) {
    in_addr address;
    if (inet_pton(AF_INET, name.c_str(), &address) == 1) {
        gloo::transport::tcp::attr tcp;
        tcp.hostname = name;
        return gloo::transport::tcp::CreateDevice(tcp);
    }
    gloo::transport::ibverbs::attr verbs = {name, 1, 0};
    return gloo::transport::ibverbs::CreateDevice(verbs);
}

int64_t value(int rank, size_t at, int turn) {
    return rank * 1000003LL + static_cast<int64_t>(at) * 31 + turn * 7919LL;
}

// Algorithms keep buffers with the peers; they live until all ranks have passed a barrier.
class Rank {
public:
    Rank(std::shared_ptr<gloo::rendezvous::Context> context, int rank, int ranks)
        : context_(std::move(context)), barrier_(context_), rank_(rank), ranks_(ranks) {}

    template <typename Algorithm>
    void measure(const char* name, size_t bytes) {
        std::vector<int64_t> values(bytes / sizeof(int64_t));
        Algorithm algorithm(context_, {values.data()}, static_cast<int>(values.size()));
        std::vector<double> times;
        for (int turn = -kWarm; turn < kTurns; turn++) {
            for (size_t i = 0; i < values.size(); i++)
                values[i] = value(rank_, i, turn);
            barrier_.run();
            auto began = std::chrono::steady_clock::now();
            algorithm.run();
            std::chrono::duration<double, std::micro> took =
                std::chrono::steady_clock::now() - began;
            look(name, values, turn);
            if (turn >= 0)
                times.push_back(took.count());
        }
        barrier_.run();
        std::sort(times.begin(), times.end());
        if (rank_ == 0)
            std::printf("%s %zu %d: %.1f us\n", name, bytes, kTurns, times[kTurns / 2]);
        std::fflush(stdout);
    }

private:
    void look(const char* name, const std::vector<int64_t>& values, int turn) const {
        for (size_t i = 0; i < values.size(); i++) {
            int64_t wanted = ranks_ * value(0, i, turn) + 1000003LL * ranks_ * (ranks_ - 1) / 2;
            if (values[i] == wanted)
                continue;
            std::fprintf(stderr, "%s: rank %d, value %zu of turn %d is %jd, not %jd\n", name, rank_,
                         i, turn, static_cast<intmax_t>(values[i]), static_cast<intmax_t>(wanted));
            std::_Exit(1);
        }
    }

    std::shared_ptr<gloo::rendezvous::Context> context_;
    gloo::BarrierAllToOne barrier_;
    int rank_, ranks_;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "usage: %s STORE RANK RANKS DEVICE\n", argv[0]);
        return 64;
    }
    int rank = std::atoi(argv[2]), ranks = std::atoi(argv[3]);
    Words words(argv[1]);
    auto at = device(argv[4]);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    context->connectFullMesh(words, at);
    Rank self(context, rank, ranks);
    for (size_t bytes : kSizes) {
        self.measure<gloo::AllreduceRingChunked<int64_t>>("gloo_ring", bytes);
        self.measure<gloo::AllreduceHalvingDoubling<int64_t>>("gloo_halving", bytes);
    }
    // The context's end aborts where a peer has closed first.
    std::fflush(stdout);
    std::_Exit(0);
}
