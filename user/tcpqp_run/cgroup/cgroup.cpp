// SPDX-License-Identifier: BSD-3-Clause
#include "cgroup/cgroup.hpp"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <linux/bpf.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "base/fd.hpp"

namespace tcpqp::run {
namespace {

constexpr const char* kProgram = "tcpqp_stream";  // how --off finds it
constexpr std::string_view kModule = "tcp_qp";
constexpr const char* kFunction = "tqp_stream_kfunc";
constexpr auto kHook = BPF_CGROUP_INET_SOCK_CREATE;
constexpr size_t kAttachedMax = 64;  // the kernel's own bound

struct FreeBtf {
    void operator()(btf* b) const noexcept { ::btf__free(b); }
};
using Btf = std::unique_ptr<btf, FreeBtf>;

// libbpf's functions say what went wrong by a negative number.
int good(int result, const char* what) {
    if (result == -EPERM || result == -EACCES)
        throw std::runtime_error("needs root (CAP_SYS_ADMIN, CAP_BPF and CAP_NET_ADMIN)");
    if (result < 0)
        throw_errno(what, -result);
    return result;
}

Fd open_cgroup(const std::string& path) {
    Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd)
        throw_errno("no such cgroup");
    return fd;
}

// The kernel keeps each module's types under the module's name.
struct ModuleTypes {
    uint32_t id = 0;
    Fd fd;
};

ModuleTypes find_module() {
    for (uint32_t id = 0;;) {
        const int next = ::bpf_btf_get_next_id(id, &id);
        if (next == -ENOENT)
            throw std::runtime_error("the tcp_qp module has no BTF that fits this kernel");
        good(next, "BTF");
        Fd fd(::bpf_btf_get_fd_by_id(id));
        if (!fd)
            continue;  // gone since
        std::array<char, 64> name{};
        bpf_btf_info info{};
        info.name = reinterpret_cast<uintptr_t>(name.data());
        info.name_len = name.size();
        uint32_t bytes = sizeof(info);
        good(::bpf_obj_get_info_by_fd(fd.get(), &info, &bytes), "BTF");
        if (info.kernel_btf != 0 && name.data() == kModule)
            return {id, std::move(fd)};
    }
}

int find_function(const ModuleTypes& module) {
    const Btf kernel(::btf__load_vmlinux_btf());
    if (!kernel)
        throw_errno("the kernel's BTF");
    const Btf own(::btf__load_from_kernel_by_id_split(module.id, kernel.get()));
    if (!own)
        throw_errno("the module's BTF");
    return good(::btf__find_by_name_kind(own.get(), kFunction, BTF_KIND_FUNC), kFunction);
}

// Calls the function with its own argument, and lets the socket be made, whatever came of it.
Fd load_program() {
    const ModuleTypes module = find_module();
    std::array<bpf_insn, 3> code{};
    code[0].code = BPF_JMP | BPF_CALL;
    code[0].src_reg = BPF_PSEUDO_KFUNC_CALL;
    code[0].off = 1;  // in fds; 0 is the kernel itself
    code[0].imm = find_function(module);
    code[1].code = BPF_ALU64 | BPF_MOV | BPF_K;
    code[1].imm = 1;
    code[2].code = BPF_JMP | BPF_EXIT;
    const std::array<int, 2> fds{-1, module.fd.get()};
    LIBBPF_OPTS(bpf_prog_load_opts, options, .expected_attach_type = kHook);
    options.fd_array = fds.data();
    return Fd(good(::bpf_prog_load(BPF_PROG_TYPE_CGROUP_SOCK, kProgram, "GPL", code.data(),
                                   code.size(), &options),
                   "BPF program"));
}

bpf_prog_info info_of(const Fd& program) {
    bpf_prog_info info{};
    uint32_t bytes = sizeof(info);
    good(::bpf_obj_get_info_by_fd(program.get(), &info, &bytes), "cgroup");
    return info;
}

// The first of ours, of those that are attached to this very cgroup; none: empty.
Fd find_attached(int cgroup) {
    std::array<uint32_t, kAttachedMax> ids{};
    uint32_t count = ids.size();
    good(::bpf_prog_query(cgroup, kHook, 0, nullptr, ids.data(), &count), "cgroup");
    for (uint32_t i = 0; i < count; i++) {
        const int result = ::bpf_prog_get_fd_by_id(ids[i]);
        if (result == -ENOENT)
            continue;  // gone since
        Fd fd(good(result, "cgroup"));
        if (std::string_view(info_of(fd).name) == kProgram)
            return fd;
    }
    return {};
}

// The kernel has looked at our rights when it loaded the program.
void attach(int cgroup, const Fd& program) {
    const int result = ::bpf_prog_attach(program.get(), cgroup, kHook, BPF_F_ALLOW_MULTI);
    if (result == -EPERM)
        throw std::runtime_error("a BPF program there, or above, allows no other beside it");
    good(result, "cgroup");
}

void detach(int cgroup, const Fd& program) {
    const int result = ::bpf_prog_detach2(program.get(), cgroup, kHook);
    if (result != -ENOENT)  // somebody else was quicker
        good(result, "cgroup");
}

void be_silent() { ::libbpf_set_print(nullptr); }

}  // namespace

void serve_cgroup(const std::string& path) {
    be_silent();
    const Fd cgroup = open_cgroup(path);
    if (find_attached(cgroup.get()))
        return;
    const Fd program = load_program();
    attach(cgroup.get(), program);
    // Of those that came at the same time one stays, which all agree on.
    const Fd first = find_attached(cgroup.get());
    if (first && info_of(first).id != info_of(program).id)
        detach(cgroup.get(), program);
}

void leave_cgroup(const std::string& path) {
    be_silent();
    const Fd cgroup = open_cgroup(path);
    Fd program = find_attached(cgroup.get());
    if (!program)
        throw std::runtime_error("was not served");
    for (; program; program = find_attached(cgroup.get()))
        detach(cgroup.get(), program);
}

}  // namespace tcpqp::run
