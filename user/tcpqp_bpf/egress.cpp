// SPDX-License-Identifier: BSD-3-Clause
#include "egress.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/fd.hpp"

namespace tcpqp::bpf {
namespace {

constexpr uint32_t kPriority = 0x5150;  // of all helpers, on each interface

bpf_tc_hook hook_of(int ifindex) noexcept {
    bpf_tc_hook hook{};
    hook.sz = sizeof(hook);
    hook.ifindex = ifindex;
    hook.attach_point = BPF_TC_EGRESS;
    return hook;
}

bpf_tc_opts opts_of(uint32_t handle) noexcept {
    bpf_tc_opts opts{};
    opts.sz = sizeof(opts);
    opts.handle = handle;
    opts.priority = kPriority;
    return opts;
}

// libbpf would complain of one that is there already.
int make_clsact(bpf_tc_hook& hook) noexcept {
    const libbpf_print_fn_t print = libbpf_set_print(nullptr);
    const int error = bpf_tc_hook_create(&hook);
    libbpf_set_print(print);
    return error == -EEXIST ? 0 : error;
}

// The program takes an Ethernet header for granted; loopback has one.
int check_type(const std::string& ifname) noexcept {
    const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request{};
    ifname.copy(request.ifr_name, IFNAMSIZ - 1);
    if (!socket || ::ioctl(socket.get(), SIOCGIFHWADDR, &request) < 0)
        return -errno;
    const auto type = request.ifr_hwaddr.sa_family;
    return type == ARPHRD_ETHER || type == ARPHRD_LOOPBACK ? 0 : -EPROTONOSUPPORT;
}

}  // namespace

// FNV-1a.
uint32_t Egress::handle_of(uint32_t cgroup, std::string_view path) noexcept {
    constexpr uint32_t kBasis = 2166136261, kPrime = 16777619;
    uint32_t hash = kBasis ^ cgroup;
    for (const char c : path)
        hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
    return std::max(hash, 1U);
}

// clsact stays, also where we made it: others may have filters in it by now.
Egress::~Egress() {
    for (const int index : covered_) {
        bpf_tc_hook hook = hook_of(index);
        const bpf_tc_opts opts = opts_of(handle_);
        if (is_ours(index))
            bpf_tc_detach(&hook, &opts);
    }
}

bool Egress::is_ours(int ifindex) const noexcept {
    bpf_tc_hook hook = hook_of(ifindex);
    bpf_tc_opts there = opts_of(handle_);
    bpf_prog_info ours{};
    uint32_t bytes = sizeof(ours);
    return bpf_tc_query(&hook, &there) == 0 &&
           bpf_obj_get_info_by_fd(program_, &ours, &bytes) == 0 && there.prog_id == ours.id;
}

int Egress::cover(const std::string& ifname) noexcept {
    const auto index = static_cast<int>(::if_nametoindex(ifname.c_str()));
    if (index == 0)
        return -ENODEV;
    if (std::find(covered_.begin(), covered_.end(), index) != covered_.end())
        return 0;
    if (const int error = check_type(ifname); error != 0)
        return error;
    bpf_tc_hook hook = hook_of(index);
    if (const int error = make_clsact(hook); error != 0)
        return error;
    bpf_tc_opts opts = opts_of(handle_);
    opts.prog_fd = program_;
    opts.flags = BPF_TC_F_REPLACE;  // one that was killed left its own
    if (const int error = bpf_tc_attach(&hook, &opts); error != 0)
        return error;
    covered_.push_back(index);
    return 0;
}

}  // namespace tcpqp::bpf
