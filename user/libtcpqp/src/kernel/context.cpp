// SPDX-License-Identifier: BSD-3-Clause
#include "kernel/context.hpp"

#include <cerrno>
#include <system_error>

#include "base/route.hpp"
#include "kernel/cq.hpp"
#include "kernel/mr.hpp"
#include "kernel/qp.hpp"
#include "verbs/device.hpp"

namespace tcpqp {
namespace module {
namespace {

class Context final : public tcpqp_context {
public:
    Context(std::unique_ptr<tcpqp::Context> device, uint32_t engine) noexcept
        : tcpqp_context(true), device_(std::move(device)), engine_(engine) {}

    [[nodiscard]] uint32_t engine() const noexcept override { return engine_; }

    Made<tcpqp_mr> create_mr(void* at, size_t bytes) override {
        tcpqp::Mr mr(*device_, at, bytes, IBV_ACCESS_LOCAL_WRITE);
        if (!mr)
            return {nullptr, -errno, TCPQP_REASON_NONE};
        return {std::make_unique<Mr>(*this, std::move(mr), at, bytes), 0, TCPQP_REASON_NONE};
    }
    Made<tcpqp_mr> create_mr(const DmabufRegion& r) override {
        tcpqp::Mr mr(*device_, r.fd, r.offset, r.bytes, reinterpret_cast<uint64_t>(r.address),
                     IBV_ACCESS_LOCAL_WRITE);
        if (!mr)
            return {nullptr, -errno, TCPQP_REASON_NONE};
        return {std::make_unique<Mr>(*this, std::move(mr), r.address, r.bytes), 0,
                TCPQP_REASON_NONE};
    }
    Made<tcpqp_cq> create_cq(uint32_t entries, uint32_t) override {
        return {std::make_unique<Cq>(*this, *device_, entries), 0, TCPQP_REASON_NONE};
    }
    Made<tcpqp_qp> create_qp(tcpqp_cq& cq, const QpRequest& request) override {
        Made<tcpqp_qp> made;
        auto qp = std::make_unique<Qp>(static_cast<Cq&>(cq), request);
        made.error = qp->attach(request, engine_, made.reason);
        if (made.error == 0)
            made.object = std::move(qp);
        return made;
    }

private:
    std::unique_ptr<tcpqp::Context> device_;
    const uint32_t engine_;
};

}  // namespace
}  // namespace module

Made<tcpqp_context> make_verbs(uint32_t engine, const char* ifname, int socket) {
    std::string name = ifname != nullptr ? ifname : "";
    if (name.empty() && (socket < 0 || route_interface(socket, name) != 0))
        return {nullptr, -ENODEV, TCPQP_REASON_NO_ROUTE};
    try {
        require_module(name);
    } catch (const DeviceMissing&) {
        return {nullptr, -ENODEV, TCPQP_REASON_NO_MODULE};
    }
    try {
        auto device = open_device(name);
        if (!has_cq_descriptors(*device))
            return {nullptr, -ENODEV, TCPQP_REASON_OLD_MODULE};
        return {std::make_unique<module::Context>(std::move(device), engine), 0, TCPQP_REASON_NONE};
    } catch (const DeviceMissing&) {
        return {nullptr, -ENODEV, TCPQP_REASON_NO_DEVICE};
    } catch (const std::system_error& e) {
        return {nullptr, -e.code().value(), TCPQP_REASON_NO_DEVICE};
    }
}

}  // namespace tcpqp
