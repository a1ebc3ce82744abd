// SPDX-License-Identifier: BSD-3-Clause
#include "nccl_harness/memory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <new>
#include <vector>

#include "base/accelerator.hpp"
#include "nccl_harness/plugin.hpp"

namespace tcpqp::harness {
namespace {

constexpr size_t kPage = 4096;

size_t whole_pages(size_t bytes) noexcept {
    return (std::max<size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
}

class HostBlock final : public Block {
public:
    explicit HostBlock(size_t bytes)
        : Block(new (std::align_val_t{kPage}) std::byte[whole_pages(bytes)](), bytes, -1) {}
    ~HostBlock() override { ::operator delete[](data(), std::align_val_t{kPage}); }
    void write(std::span<const std::byte> from) override {
        std::copy(from.begin(), from.end(), data());
    }
    void read(std::span<std::byte> to) const override { std::copy_n(data(), to.size(), to.data()); }
};

// What a GPU would do, so it should cost the rank little.
void sum(const Step& s) noexcept {
#pragma GCC ivdep  // they lie apart, or in one place
    for (size_t i = 0; i < s.count; i++)
        s.to[i] = s.from[i] + s.other[i];
}

class HostMemory final : public Memory {
public:
    std::unique_ptr<Block> allocate(size_t bytes) override {
        return std::make_unique<HostBlock>(bytes);
    }
    void run(std::span<const Step> steps) override {
        for (const Step& s : steps) {
            if (s.other == nullptr)
                std::copy_n(s.from, s.count, s.to);
            else
                sum(s);
        }
    }
    [[nodiscard]] uint64_t touched() const override { return 0; }
    [[nodiscard]] bool is_host() const noexcept override { return true; }
};

// A mapping, or addresses alone.
class Range {
public:
    Range(int fd, size_t bytes) : bytes_(bytes) {
        void* at = fd >= 0 ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                           : ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
            throw_errno("mmap of accelerator memory");
        data_ = static_cast<std::byte*>(at);
    }
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;
    ~Range() { ::munmap(data_, bytes_); }
    [[nodiscard]] std::byte* data() const noexcept { return data_; }

private:
    std::byte* data_;
    size_t bytes_;
};

class AcceleratorMemory;

// The parts of a block that its address is taken from, and so are there before it.
struct Parts {
    Parts(const Accelerator& accelerator, size_t bytes, bool mapped)
        : buffer(accelerator.allocate(whole_pages(bytes))),
          range(mapped ? buffer.get() : -1, whole_pages(bytes)) {}
    Fd buffer;
    Range range;
};

class AcceleratorBlock final : private Parts, public Block {
public:
    AcceleratorBlock(AcceleratorMemory& owner, const Accelerator& accelerator, size_t bytes,
                     bool mapped);
    ~AcceleratorBlock() override;
    void write(std::span<const std::byte> from) override {
        std::copy(from.begin(), from.end(), Range(buffer.get(), whole_pages(bytes())).data());
    }
    void read(std::span<std::byte> to) const override {
        const Range whole(buffer.get(), whole_pages(bytes()));
        std::copy_n(whole.data(), to.size(), to.data());
    }
    [[nodiscard]] AccelPlace place(const void* at) const noexcept {
        return {buffer.get(), static_cast<uint64_t>(static_cast<const std::byte*>(at) - data())};
    }

private:
    AcceleratorMemory& owner_;
};

class AcceleratorMemory final : public Memory {
public:
    AcceleratorMemory(const std::string& path, bool mapped) : accelerator_(path), mapped_(mapped) {}

    std::unique_ptr<Block> allocate(size_t bytes) override {
        return std::make_unique<AcceleratorBlock>(*this, accelerator_, bytes, mapped_);
    }
    void run(std::span<const Step> steps) override {
        std::vector<nupa_accel_call> calls;
        for (const Step& s : steps) {
            if (s.count == 0)
                continue;
            const size_t bytes = s.count * sizeof(float);
            calls.push_back(s.other == nullptr
                                ? accel_call(NUPA_ACCEL_COPY, bytes, place(s.to), place(s.from))
                                : accel_call(NUPA_ACCEL_SUM, bytes, place(s.to), place(s.from),
                                             place(s.other)));
        }
        if (calls.empty())
            return;
        const int error = accelerator_.submit(calls);
        if (error != 0)
            throw_errno("accelerator", error);
        for (const nupa_accel_call& call : calls)
            check(call.status == NUPA_ACCEL_OK,
                  fmt::format("the accelerator says {} to operation {}", call.status, call.op));
    }
    [[nodiscard]] uint64_t touched() const override { return accelerator_.info().cpu_mapped_bytes; }
    [[nodiscard]] bool is_host() const noexcept override { return false; }

    void know(const AcceleratorBlock& block) { blocks_[block.data()] = &block; }
    void forget(const AcceleratorBlock& block) noexcept { blocks_.erase(block.data()); }

private:
    AccelPlace place(const void* at) const {
        auto next = blocks_.upper_bound(static_cast<const std::byte*>(at));
        check(next != blocks_.begin(), "an address lies in no block");
        return std::prev(next)->second->place(at);
    }

    Accelerator accelerator_;
    bool mapped_;
    std::map<const std::byte*, const AcceleratorBlock*> blocks_;  // by their begin
};

AcceleratorBlock::AcceleratorBlock(AcceleratorMemory& owner, const Accelerator& accelerator,
                                   size_t bytes, bool mapped)
    : Parts(accelerator, bytes, mapped),
      Block(range.data(), bytes, mapped ? -1 : buffer.get()),
      owner_(owner) {
    owner_.know(*this);
}

AcceleratorBlock::~AcceleratorBlock() { owner_.forget(*this); }

}  // namespace

Memory& host_memory() {
    static HostMemory memory;
    return memory;
}

std::unique_ptr<Memory> make_memory(const std::string& accelerator, bool mapped) {
    if (accelerator.empty())
        return std::make_unique<HostMemory>();
    return std::make_unique<AcceleratorMemory>(accelerator, mapped);
}

}  // namespace tcpqp::harness
