// SPDX-License-Identifier: BSD-3-Clause
#include "qp_table.hpp"

#include <new>

namespace nupa {

namespace {

constexpr std::uint32_t kTwoIndicesBytes = 32;

}  // namespace

nupa_admin_status QpTable::create(const HostMemory& memory, std::uint32_t qpn,
                                  const nupa_cmd_qp& cmd) noexcept {
    if (find(qpn))
        return NUPA_E_EXISTS;
    if (size() >= max_)
        return NUPA_E_NOSPACE;
    if (cmd.rq_pages > NUPA_RQ_PAGES_MAX)
        return NUPA_E_INVALID;
    const auto footprint = static_cast<std::uint32_t>(
        sizeof(QpContext) + sizeof(Name) + cmd.rq_pages * sizeof(std::byte*) + kTwoIndicesBytes);
    if (!budget_.take(footprint))
        return NUPA_E_QUOTA;
    try {
        flows_.make_room();
        numbers_.make_room();
        names_.reserve();
        qps_.reserve();
    } catch (const std::bad_alloc&) {
        budget_.give_back(footprint);
        return NUPA_E_NOSPACE;
    }
    const std::uint32_t n = names_.take(), context = qps_.take();
    QpContext& qp = qps_[context];
    qp.lengths.use(budget_);
    nupa_admin_status status = qp.init(memory, qpn, cmd);
    if (status == NUPA_OK && find(qp.flow()))
        status = NUPA_E_EXISTS;
    names_[n] = {qp.flow(), &qp, context, footprint};
    if (status != NUPA_OK) {
        forget(n);
        return status;
    }
    flows_.insert(hash(qp.flow()), n);
    numbers_.insert(hash_number(qpn, seed_), n);
    return NUPA_OK;
}

void QpTable::forget(std::uint32_t name) noexcept {
    budget_.give_back(names_[name].footprint);
    qps_.give_back(names_[name].context);
    names_.give_back(name);
}

nupa_admin_status QpTable::destroy(std::uint32_t qpn) noexcept {
    const std::uint32_t n = number(qpn);
    if (n == HashIndex::kNone)
        return NUPA_E_NOENT;
    flows_.erase(hash(names_[n].flow), n);
    numbers_.erase(hash_number(qpn, seed_), n);
    last_ = nullptr;
    forget(n);
    return NUPA_OK;
}

void QpTable::expect(std::span<const FlowKey> flows, Guesses& guesses) const noexcept {
    for (std::size_t i = 0; i < flows.size(); i++)
        flows_.prefetch(guesses[i] = hash(flows[i]));
    for (std::size_t i = 0; i < flows.size(); i++) {
        guesses[i] = flows_.guess(guesses[i]);
        if (guesses[i] != HashIndex::kNone)
            prefetch(&names_[guesses[i]]);
    }
}

std::uint32_t QpTable::number(std::uint32_t qpn) const noexcept {
    return numbers_.find(hash_number(qpn, seed_),
                         [&](std::uint32_t n) { return names_[n].qp->qpn() == qpn; });
}

QpContext* QpTable::find(std::uint32_t qpn) const noexcept {
    const std::uint32_t n = number(qpn);
    return n == HashIndex::kNone ? nullptr : names_[n].qp;
}

void QpTable::clear() noexcept {
    flows_.clear();
    numbers_.clear();
    names_.clear();
    qps_.clear();
    last_ = nullptr;
}

}  // namespace nupa
