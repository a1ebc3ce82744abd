// SPDX-License-Identifier: BSD-3-Clause
// The memory that regions are made of, taken away, replaced, protected and written while they are
// used.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "user_fuzz_world.hpp"

namespace nupa::fuzz {
namespace {

uint8_t* part(Player& p, size_t& bytes) {
    const Arena& memory = p.world.memory;
    const size_t pages = memory.slot_bytes() / 4096,
                 first = p.dice.one_in(2) ? 0 : p.dice.below(pages);
    bytes = size_t{4096} * (1 + p.dice.below(pages - first));
    return memory.slot(p.dice.below(memory.slots())) + first * 4096;
}

// Another kind of pages at the same address.
int op_replace(Player& p) {
    size_t bytes = 0;
    uint8_t* at = part(p, bytes);
    const int rights =
        p.dice.one_in(4) ? static_cast<int>(p.dice.below(8)) : PROT_READ | PROT_WRITE;
    p.note(reinterpret_cast<int64_t>(at), static_cast<int64_t>(bytes), rights);
    const uint32_t kind = p.dice.below(5);
    const tcpqp::Fd file(kind == 0   ? memfd_create("fuzz", MFD_CLOEXEC)
                         : kind == 1 ? open("/proc/self/exe", O_RDONLY | O_CLOEXEC)
                                     : -1);
    if (kind == 0 &&
        (!file || (!p.dice.one_in(4) && ftruncate(file.get(), static_cast<off_t>(bytes)))))
        return errno;
    return map_at(p, at, bytes, [&] {
        switch (kind) {
            case 0:
                return mmap(at, bytes, rights, MAP_SHARED | MAP_FIXED, file.get(), 0);
            case 1:
                return mmap(at, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, file.get(), 0);
            case 2:
                return mmap(at, bytes, rights, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            case 3:
                return mmap(at, bytes, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
            default:
                return mmap(at, bytes, rights,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
        }
    });
}

int op_advise(Player& p) {
    static constexpr int kAdvice[] = {MADV_DONTNEED,  MADV_FREE,       MADV_REMOVE,
                                      MADV_DONTFORK,  MADV_DOFORK,     MADV_HUGEPAGE,
                                      MADV_COLD,      MADV_PAGEOUT,    MADV_NOHUGEPAGE,
                                      MADV_MERGEABLE, MADV_WIPEONFORK, MADV_POPULATE_WRITE};
    size_t bytes = 0;
    uint8_t* at = part(p, bytes);
    const int advice = p.dice.of(kAdvice);
    p.note(reinterpret_cast<int64_t>(at), static_cast<int64_t>(bytes), advice);
    return result(madvise(at, bytes, advice));
}

int op_protect(Player& p) {
    size_t bytes = 0;
    uint8_t* at = part(p, bytes);
    return result(mprotect(
        at, bytes, p.dice.one_in(3) ? static_cast<int>(p.dice.below(8)) : PROT_READ | PROT_WRITE));
}

int op_move(Player& p) {
    size_t bytes = 0;
    uint8_t* from = part(p, bytes);
    uint8_t* to = p.world.memory.slot(p.dice.below(p.world.memory.slots()));
    return map_at(p, to, bytes, [&] {
        return mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to);
    });
}

int op_lock(Player& p) {
    size_t bytes = 0;
    uint8_t* at = part(p, bytes);
    return result(p.dice.one_in(2) ? mlock(at, bytes) : munlock(at, bytes));
}

int op_write(Player& p) {
    size_t bytes = 0;
    uint8_t* at = part(p, bytes);
    return guarded([&] {
        for (size_t i = 0; i < bytes; i += 512)
            __atomic_store_n(at + i, static_cast<uint8_t>(i), __ATOMIC_RELAXED);
    });
}

constexpr Op kOps[] = {
    {"memory_replace", 3, op_replace}, {"memory_advise", 3, op_advise},
    {"memory_protect", 2, op_protect}, {"memory_move", 1, op_move},
    {"memory_lock", 1, op_lock},       {"memory_write", 3, op_write},
};

}  // namespace

std::span<const Op> memory_ops() { return kOps; }

}  // namespace nupa::fuzz
