// SPDX-License-Identifier: BSD-3-Clause
#include "egress.hpp"

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

constexpr uint32_t kHandle = 0x5150;  // ours, on each interface
constexpr uint32_t kPriority = 0x5150;

bpf_tc_hook hook_of(int ifindex) noexcept {
    bpf_tc_hook hook{};
    hook.sz = sizeof(hook);
    hook.ifindex = ifindex;
    hook.attach_point = BPF_TC_EGRESS;
    return hook;
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

Egress::~Egress() {
    for (const Interface& interface : covered_) {
        bpf_tc_hook hook = hook_of(interface.index);
        bpf_tc_opts opts{};
        opts.sz = sizeof(opts);
        opts.handle = kHandle;
        opts.priority = kPriority;
        bpf_tc_detach(&hook, &opts);
        if (interface.made_qdisc) {
            hook.attach_point = static_cast<bpf_tc_attach_point>(BPF_TC_INGRESS | BPF_TC_EGRESS);
            bpf_tc_hook_destroy(&hook);
        }
    }
}

int Egress::cover(const std::string& ifname) noexcept {
    const auto index = static_cast<int>(::if_nametoindex(ifname.c_str()));
    if (index == 0)
        return -ENODEV;
    if (std::any_of(covered_.begin(), covered_.end(),
                    [index](const Interface& i) { return i.index == index; }))
        return 0;
    if (const int error = check_type(ifname); error != 0)
        return error;
    bpf_tc_hook hook = hook_of(index);
    const int made = bpf_tc_hook_create(&hook);
    if (made != 0 && made != -EEXIST)
        return made;
    bpf_tc_opts opts{};
    opts.sz = sizeof(opts);
    opts.handle = kHandle;
    opts.priority = kPriority;
    opts.prog_fd = program_;
    opts.flags = BPF_TC_F_REPLACE;  // one that was killed left its own
    if (const int error = bpf_tc_attach(&hook, &opts); error != 0)
        return error;
    covered_.push_back({index, made == 0});
    return 0;
}

}  // namespace tcpqp::bpf
