// SPDX-License-Identifier: BSD-3-Clause
#include "identity.hpp"

#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/fd.hpp"

namespace tcpqp::bpf {
namespace {

constexpr std::array kNeeded{CAP_NET_ADMIN, CAP_PERFMON, CAP_BPF};

void set_capabilities() {
    __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
    std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
    for (const int capability : kNeeded) {
        auto& set = sets[CAP_TO_INDEX(static_cast<unsigned>(capability))];
        set.effective |= CAP_TO_MASK(static_cast<unsigned>(capability));
        set.permitted = set.effective;
    }
    if (::syscall(SYS_capset, &head, sets.data()) != 0)
        throw_errno("keep the capabilities that are needed");
}

}  // namespace

void become(const std::string& user) {
    errno = ENOENT;
    const passwd* found = ::getpwnam(user.c_str());
    if (found == nullptr)
        throw_errno("user " + user);
    // none can come back by an exec
    for (int capability = 0; ::prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++)
        if (::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0)
            throw_errno("drop capabilities");
    if (::prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0 || ::setgroups(0, nullptr) != 0 ||
        ::setresgid(found->pw_gid, found->pw_gid, found->pw_gid) != 0 ||
        ::setresuid(found->pw_uid, found->pw_uid, found->pw_uid) != 0)
        throw_errno("become user " + user);
    set_capabilities();
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        throw_errno("no new privileges");
}

}  // namespace tcpqp::bpf
