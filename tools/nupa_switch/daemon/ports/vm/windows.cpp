// SPDX-License-Identifier: BSD-3-Clause
#include "ports/vm/windows.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "ivshmem/shared_field.hpp"
#include "tcp_qp/nupa_accel_hw.h"

namespace nupa::daemon {
namespace {

constexpr uint64_t kPageBytes = 4096;

// The id that an accelerator's file says it has; 0: it is none.  Its host may write there: what it
// can change is the name of its own memory.
uint64_t id_of(const Mapping& map) noexcept {
    const auto& regs = *reinterpret_cast<const nupa_accel_regs*>(map.data());
    return load_acquire(regs.magic) == NUPA_ACCEL_MAGIC ? load_relaxed(regs.id) : 0;
}

Mapping map_file(const std::string& path) {
    const Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    struct stat st {};
    if (!fd || ::fstat(fd.get(), &st) < 0)
        throw_errno("accelerator memory " + path);
    if (st.st_size < NUPA_ACCEL_BAR2_BYTES_MIN) {
        errno = EINVAL;
        throw_errno("accelerator memory " + path + " is too small");
    }
    return {fd.get(), static_cast<size_t>(st.st_size), path};
}

}  // namespace

// They are mapped when first asked for, as the accelerator makes its file when it starts.
const Windows::Backing* Windows::find(uint64_t id) noexcept {
    const auto known = std::find_if(backings_.begin(), backings_.end(),
                                    [id](const Backing& b) { return b.id == id; });
    if (known != backings_.end())
        return &*known;
    // Each file once, also if it says of itself something else each time.
    if (id == 0 || backings_.size() >= files_.size())
        return nullptr;
    for (const std::string& path : files_) {
        try {
            Mapping map = map_file(path);
            if (id_of(map) != id)
                continue;
            backings_.push_back({id, std::move(map)});
            return &backings_.back();
        } catch (const std::exception& e) {
            log_.line("{}", e.what());
        }
    }
    return nullptr;
}

nupa_admin_status Windows::set(HostMemory& memory, uint32_t number,
                               const nupa_cmd_window& cmd) noexcept {
    if (number >= bases_.size() || cmd.base % kPageBytes != 0)
        return NUPA_E_INVALID;
    if (bases_[number])
        return NUPA_E_EXISTS;
    const bool pool = pool_ && cmd.memory != 0 && cmd.memory == pool_->id();
    const nupa_admin_status status = pool ? set_pool_at(memory, cmd) : set_file_at(memory, cmd);
    if (status != NUPA_OK)
        return status;
    bases_[number] = cmd.base;
    if (pool)
        pool_number_ = number;
    return NUPA_OK;
}

nupa_admin_status Windows::set_pool_at(HostMemory& memory,
                                       const nupa_cmd_window& cmd) const noexcept {
    if (cmd.bytes != pool_->memory().bytes())
        return NUPA_E_INVALID;
    return memory.add_leased(cmd.base, pool_->memory()) ? NUPA_OK : NUPA_E_ADDRESS;
}

nupa_admin_status Windows::set_file_at(HostMemory& memory, const nupa_cmd_window& cmd) noexcept {
    const Backing* backing = find(cmd.memory);
    if (!backing)
        return NUPA_E_NOENT;
    const std::span<std::byte> whole(backing->map.data(), backing->map.bytes());
    const std::span<std::byte> bytes = whole.subspan(NUPA_ACCEL_CONTROL_BYTES);
    if (cmd.bytes != bytes.size())
        return NUPA_E_INVALID;
    if (!memory.add(cmd.base, bytes))
        return NUPA_E_ADDRESS;
    return NUPA_OK;
}

nupa_admin_status Windows::clear(HostMemory& memory, uint32_t number) noexcept {
    if (number >= bases_.size() || !bases_[number])
        return NUPA_E_NOENT;
    if (pool_number_ == number) {
        memory.remove_leased();
        pool_number_.reset();
    } else {
        memory.remove(*bases_[number]);
    }
    bases_[number].reset();
    return NUPA_OK;
}

void Windows::clear_pool(HostMemory& memory) noexcept {
    if (pool_number_)
        clear(memory, *pool_number_);
}

void Windows::reset(HostMemory& memory) noexcept {
    for (uint32_t number = 0; number < bases_.size(); number++)
        clear(memory, number);
    backings_.clear();
}

}  // namespace nupa::daemon
