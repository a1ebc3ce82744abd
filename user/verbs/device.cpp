// SPDX-License-Identifier: BSD-3-Clause
#include "verbs/device.hpp"

#include <filesystem>
#include <fstream>
#include <span>
#include <string_view>

#include "base/fd.hpp"
#include "verbs/attach.hpp"

namespace tcpqp {
namespace {

class DeviceList {
public:
    DeviceList() : list_(ibv_get_device_list(&count_)) {
        // ENOSYS, ENOENT: no RDMA module is loaded at all, which is an empty list
        if (!list_ && errno != ENOSYS && errno != ENOENT)
            throw_errno("list RDMA devices");
    }
    ~DeviceList() {
        if (list_)
            ibv_free_device_list(list_);
    }
    DeviceList(const DeviceList&) = delete;
    DeviceList& operator=(const DeviceList&) = delete;
    [[nodiscard]] std::span<ibv_device*> all() const noexcept {
        return {list_, list_ ? static_cast<size_t>(count_) : 0};
    }

private:
    int count_ = 0;
    ibv_device** list_ = nullptr;
};

// One GID per port and netdev: the kernel names the netdev beside it.
std::string netdev_of(const ibv_device* device) {
    std::ifstream file(std::string(device->ibdev_path) + "/ports/1/gid_attrs/ndevs/0");
    std::string name;
    std::getline(file, name);
    return name;
}

std::string link_add(const std::string& ifname) {
    return "rdma link add tcpqp0 type tcp_qp netdev " + ifname;
}

}  // namespace

void require_module(const std::string& ifname) {
    if (!std::filesystem::exists("/sys/module/tcp_qp"))
        throw DeviceMissing("the kernel module tcp_qp is not loaded; run: modprobe tcp_qp && " +
                            link_add(ifname));
}

std::unique_ptr<Context> open_device(const std::string& ifname) {
    bool opened_other = false;
    DeviceList list;
    for (ibv_device* device : list.all()) {
        if (netdev_of(device) != ifname)
            continue;
        auto context = std::make_unique<Context>(device);
        if (is_tcp_qp(*context))
            return context;
        opened_other = true;
    }
    require_module(ifname);
    throw DeviceMissing("interface " + ifname + " has no tcp_qp device" +
                        (opened_other ? " (its RDMA device is of another kind)" : "") +
                        "; run: " + link_add(ifname));
}

}  // namespace tcpqp
