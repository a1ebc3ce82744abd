// SPDX-License-Identifier: BSD-3-Clause
// What each call of level 1 refuses.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "pair.hpp"

namespace stock_test {
namespace {

struct Environment {
    explicit Environment(const char* engine) { ::setenv("TCPQP_ENGINE", engine, 1); }
    ~Environment() { ::unsetenv("TCPQP_ENGINE"); }
};

int create(tcpqp_context_opts o, uint32_t& engine, uint32_t& reason) {
    tcpqp_context* c = nullptr;
    o.size = o.size != 0 ? o.size : sizeof(o);
    const int error = tcpqp_context_create(&o, &c, &reason);
    engine = error == 0 ? tcpqp_context_engine(c) : 0;
    tcpqp_context_destroy(c);
    return error;
}

TEST(Errors, Context) {
    uint32_t engine = 0, reason = 0;
    tcpqp_context_opts o{};
    EXPECT_EQ(tcpqp_context_create(nullptr, nullptr, nullptr), -EINVAL);
    o.engine = 9;
    EXPECT_EQ(create(o, engine, reason), -EINVAL);
    o = {};
    o.reserved = 1;
    EXPECT_EQ(create(o, engine, reason), -EINVAL);
    o = {};
    o.size = 3;
    EXPECT_EQ(create(o, engine, reason), -EINVAL);
    o = {};
    o.engine = TCPQP_ENGINE_OFFLOAD;
    o.ifname = "lo";  // never has a tcp_qp device
    EXPECT_EQ(create(o, engine, reason), -ENODEV);
    EXPECT_TRUE(reason == TCPQP_REASON_NO_MODULE || reason == TCPQP_REASON_NO_DEVICE);
    o.engine = TCPQP_ENGINE_AUTO;
    EXPECT_EQ(create(o, engine, reason), 0);
    EXPECT_EQ(engine, uint32_t{TCPQP_ENGINE_STOCK});
    EXPECT_TRUE(reason == TCPQP_REASON_NO_MODULE || reason == TCPQP_REASON_NO_DEVICE);
    o.ifname = nullptr;
    EXPECT_EQ(create(o, engine, reason), 0);
    EXPECT_EQ(reason, uint32_t{TCPQP_REASON_NO_ROUTE});
}

// Programs print it whatever a call says.
TEST(Errors, AReasonIsWrittenWithEveryError) {
    constexpr uint32_t kBefore = 9999;
    const Environment misspelt("sotck");
    tcpqp_context* context = nullptr;
    tcpqp_conn* conn = nullptr;
    uint32_t reason = kBefore;
    EXPECT_EQ(tcpqp_context_create(nullptr, &context, &reason), -EINVAL);
    EXPECT_EQ(reason, uint32_t{TCPQP_REASON_NONE});
    reason = kBefore;
    EXPECT_EQ(tcpqp_open(-1, nullptr, &conn, &reason), -EINVAL);
    EXPECT_EQ(reason, uint32_t{TCPQP_REASON_NONE});
}

TEST(Errors, AReasonIsWrittenWithEveryErrorOfAQueuePair) {
    constexpr uint32_t kBefore = 9999;
    tcpqp::v1::Context context(stock_opts());
    const tcpqp::v1::Completions cq(context, tcpqp_cq_opts{});
    tcpqp_qp* qp = nullptr;
    uint32_t reason = kBefore;
    EXPECT_EQ(tcpqp_qp_create(nullptr, -1, nullptr, &qp, &reason), -EINVAL);
    EXPECT_EQ(reason, uint32_t{TCPQP_REASON_NONE});
    tcpqp_qp_opts o{};
    o.size = sizeof(o);
    o.timeout_ms = -1;
    reason = kBefore;
    EXPECT_EQ(tcpqp_qp_create(cq.get(), -1, &o, &qp, &reason), -EINVAL);
    EXPECT_EQ(reason, uint32_t{TCPQP_REASON_NONE});
    const tcpqp_work nowhere{0, nullptr, 1, 0, 0, 0, nullptr};
    o.timeout_ms = 0;
    o.first = &nowhere;
    o.first_count = 1;
    reason = kBefore;
    EXPECT_EQ(tcpqp_qp_create(cq.get(), -1, &o, &qp, &reason), -EFAULT);
    EXPECT_EQ(reason, uint32_t{TCPQP_REASON_NONE});
}

TEST(Errors, CompletionQueue) {
    tcpqp::v1::Context context(stock_opts());
    tcpqp_cq* cq = nullptr;
    tcpqp_cq_opts o{};
    o.size = sizeof(o);
    EXPECT_EQ(tcpqp_cq_create(nullptr, &o, &cq), -EINVAL);
    EXPECT_EQ(tcpqp_cq_create(context.get(), &o, nullptr), -EINVAL);
    o.entries = TCPQP_CQ_ENTRIES_MAX + 1;
    EXPECT_EQ(tcpqp_cq_create(context.get(), &o, &cq), -EINVAL);
    o.entries = 1;
    o.flags = 4;
    EXPECT_EQ(tcpqp_cq_create(context.get(), &o, &cq), -EINVAL);
    o.flags = 0;
    o.size = 1;
    EXPECT_EQ(tcpqp_cq_create(context.get(), &o, &cq), -EINVAL);
    EXPECT_EQ(cq, nullptr);
}

TEST(Errors, NothingToDestroy) {
    EXPECT_EQ(tcpqp_context_destroy(nullptr), 0);
    EXPECT_EQ(tcpqp_cq_destroy(nullptr), 0);
    EXPECT_EQ(tcpqp_mr_destroy(nullptr), 0);
    EXPECT_EQ(tcpqp_qp_destroy(nullptr), 0);
    EXPECT_EQ(tcpqp_close(nullptr, 0), 0);
}

TEST(Errors, DmabufMemory) {
    tcpqp::v1::Context context(stock_opts());
    tcpqp_mr* m = nullptr;
    const Fd file(::memfd_create("no dma-buf", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(file.get(), 8192), 0);
    tcpqp_dmabuf_opts o{};
    o.size = sizeof(o);
    EXPECT_EQ(tcpqp_mr_create_dmabuf(nullptr, file.get(), 1, &o, &m), -EINVAL);
    EXPECT_EQ(tcpqp_mr_create_dmabuf(context.get(), file.get(), 1, &o, nullptr), -EINVAL);
    EXPECT_EQ(tcpqp_mr_create_dmabuf(context.get(), -1, 1, &o, &m), -EBADF);
    EXPECT_EQ(tcpqp_mr_create_dmabuf(context.get(), file.get(), 1, &o, &m), -EINVAL);
    EXPECT_EQ(tcpqp_mr_create_dmabuf(context.get(), file.get(), 1, nullptr, &m), -EINVAL);
    o.size = 3;
    EXPECT_EQ(tcpqp_mr_create_dmabuf(context.get(), file.get(), 1, &o, &m), -EINVAL);
    EXPECT_EQ(m, nullptr);
}

TEST(Errors, PoolMemory) {
    tcpqp_pool_memory memory{};
    tcpqp_pool_opts o{};
    o.size = sizeof(o);
    o.path = "/nowhere/nupa_pool0";
    EXPECT_EQ(tcpqp_pool_alloc(4096, &o, nullptr), -EINVAL);
    EXPECT_EQ(tcpqp_pool_alloc(0, &o, &memory), -EINVAL);
    EXPECT_EQ(tcpqp_pool_alloc(SIZE_MAX, &o, &memory), -ENOSPC);
    EXPECT_EQ(tcpqp_pool_alloc(4096, &o, &memory), -ENOENT);
    o.path = "/dev/null";
    EXPECT_EQ(tcpqp_pool_alloc(4096, &o, &memory), -ENOTTY);
    o.size = 3;
    EXPECT_EQ(tcpqp_pool_alloc(4096, &o, &memory), -EINVAL);
    EXPECT_EQ(memory.addr, nullptr);
    EXPECT_EQ(tcpqp_pool_free(&memory), 0) << "never had";
    EXPECT_EQ(tcpqp_pool_free(nullptr), 0);
}

TEST(Errors, EngineByEnvironment) {
    uint32_t engine = 0, reason = 0;
    tcpqp_context_opts o{};
    o.engine = TCPQP_ENGINE_OFFLOAD;
    {
        Environment e("stock");
        EXPECT_EQ(create(o, engine, reason), 0);
        EXPECT_EQ(engine, uint32_t{TCPQP_ENGINE_STOCK});
    }
    Environment e("warp");
    EXPECT_EQ(create(o, engine, reason), -EINVAL);
}

// A caller built with a longer struct is understood if it asks for nothing new.
TEST(Errors, LongerOptions) {
    struct {
        tcpqp_context_opts known{};
        uint64_t newer = 0;
    } o;
    o.known.size = sizeof(o);
    o.known.engine = TCPQP_ENGINE_STOCK;
    tcpqp_context* c = nullptr;
    EXPECT_EQ(tcpqp_context_create(&o.known, &c, nullptr), 0);
    tcpqp_context_destroy(c);
    o.newer = 1;
    EXPECT_EQ(tcpqp_context_create(&o.known, &c, nullptr), -EINVAL);
}

TEST(Errors, DestroyInTheWrongOrder) {
    Pair pair;
    EXPECT_EQ(tcpqp_cq_destroy(pair.end_a->cq.get()), -EBUSY);
    EXPECT_EQ(tcpqp_context_destroy(pair.end_a->context.get()), -EBUSY);
}

TEST(Errors, Memory) {
    Pair pair;
    std::vector<std::byte> memory(4096);
    tcpqp_mr* mr = nullptr;
    EXPECT_EQ(tcpqp_mr_create(pair.end_a->context.get(), memory.data(), 0, &mr), -EINVAL);
    EXPECT_EQ(tcpqp_mr_create(pair.end_a->context.get(), nullptr, 1, &mr), -EINVAL);
    EXPECT_EQ(tcpqp_mr_create(nullptr, memory.data(), 1, &mr), -EINVAL);
    EXPECT_EQ(tcpqp_mr_create(pair.end_a->context.get(), memory.data(), 1, nullptr), -EINVAL);
    ASSERT_EQ(tcpqp_mr_create(pair.end_a->context.get(), memory.data(), memory.size(), &mr), 0);
    tcpqp_work w{1, memory.data(), 4096, 0, 0, 0, mr};
    EXPECT_EQ(pair.end_b->qp.post_recv({&w, 1}), -EFAULT);  // another context's
    EXPECT_EQ(pair.end_a->qp.post_recv({&w, 1}), 1);
    EXPECT_EQ(tcpqp_mr_destroy(mr), -EBUSY);
    w.length = 4097;
    EXPECT_EQ(pair.end_a->qp.post_send({&w, 1}), -EFAULT);
    w.length = 1;
    w.addr = memory.data() - 1;
    EXPECT_EQ(pair.end_a->qp.post_send({&w, 1}), -EFAULT);
    w.addr = memory.data() + 4096;
    EXPECT_EQ(pair.end_a->qp.post_send({&w, 1}), -EFAULT);
    EXPECT_EQ(pair.end_a->qp.cancel(), 0);
    EXPECT_EQ(pair.end_a->next().status, -ECANCELED);
    EXPECT_EQ(tcpqp_mr_destroy(mr), 0);
}

TEST(Errors, Works) {
    tcpqp_qp_opts opts{};
    opts.sends = opts.receives = 2;
    Pair pair(opts);
    std::byte memory[8];
    const tcpqp_work good{1, memory, 8, 0, 0, 0, nullptr};
    tcpqp_work w = good;
    EXPECT_EQ(tcpqp_post_send(pair.end_a->qp.get(), nullptr, 1), -EINVAL);
    EXPECT_EQ(tcpqp_post_send(pair.end_a->qp.get(), &w, 0), -EINVAL);
    EXPECT_EQ(tcpqp_post_recv(nullptr, &w, 1), -EINVAL);
    EXPECT_EQ(tcpqp_post_send(nullptr, &w, 1), -EINVAL);
    EXPECT_EQ(tcpqp_post_recv(pair.end_a->qp.get(), nullptr, 1), -EINVAL);
    EXPECT_EQ(tcpqp_post_recv(pair.end_a->qp.get(), &w, 0), -EINVAL);
    w.length = TCPQP_MESSAGE_MAX_BYTES + 1u;
    EXPECT_EQ(pair.end_a->qp.post_send({&w, 1}), -EINVAL);
    w = good;
    w.flags = 4;
    EXPECT_EQ(pair.end_a->qp.post_send({&w, 1}), -EINVAL);
    w = good;
    w.reserved = 1;
    EXPECT_EQ(pair.end_a->qp.post_recv({&w, 1}), -EINVAL);
    w = good;
    w.addr = nullptr;
    EXPECT_EQ(pair.end_a->qp.post_recv({&w, 1}), -EFAULT);
    const tcpqp_work three[] = {good, good, good};
    EXPECT_EQ(pair.end_a->qp.post_recv(three), 2);
    EXPECT_EQ(pair.end_a->qp.post_recv(three), -EAGAIN);
}

// A slot is free when its completion was polled: completions have a bound.
TEST(Errors, UnpolledCompletionsFillTheQueue) {
    tcpqp_qp_opts opts{};
    opts.sends = opts.receives = 2;
    Pair pair(opts);
    const std::vector<std::byte> out(8);
    ASSERT_EQ(pair.end_a->send(0, out.data(), 8), 1);
    ASSERT_EQ(pair.end_a->send(1, out.data(), 8), 1);
    ASSERT_EQ(pair.end_a->next().id, 0u);
    EXPECT_EQ(pair.end_a->send(2, out.data(), 8), 1);
    EXPECT_EQ(pair.end_a->send(3, out.data(), 8), -EAGAIN);
}

TEST(Errors, QueuePair) {
    tcpqp::v1::Context context(stock_opts());
    tcpqp::v1::Completions cq(context);
    tcpqp_qp* qp = nullptr;
    EXPECT_EQ(tcpqp_qp_create(nullptr, 0, nullptr, &qp, nullptr), -EINVAL);
    EXPECT_EQ(tcpqp_qp_create(cq.get(), 0, nullptr, nullptr, nullptr), -EINVAL);
    EXPECT_EQ(tcpqp_qp_create(cq.get(), -1, nullptr, &qp, nullptr), -EBADF);
    Fd udp(::socket(AF_INET, SOCK_DGRAM, 0)), tcp(::socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_EQ(tcpqp_qp_create(cq.get(), udp.get(), nullptr, &qp, nullptr), -ENOTCONN);
    EXPECT_EQ(tcpqp_qp_create(cq.get(), tcp.get(), nullptr, &qp, nullptr), -ENOTCONN);
    tcpqp_qp_opts o{};
    o.size = sizeof(o);
    o.sends = TCPQP_DEPTH_MAX + 1;
    EXPECT_EQ(tcpqp_qp_create(cq.get(), tcp.get(), &o, &qp, nullptr), -EINVAL);
    o.sends = 0;
    o.flags = 8;
    EXPECT_EQ(tcpqp_qp_create(cq.get(), tcp.get(), &o, &qp, nullptr), -EINVAL);
    o.flags = 0;
    o.first_count = 1;
    EXPECT_EQ(tcpqp_qp_create(cq.get(), tcp.get(), &o, &qp, nullptr), -EINVAL);
    tcpqp_work first[2]{};
    o.first = first;
    first[0].length = 1;
    EXPECT_EQ(tcpqp_qp_create(cq.get(), tcp.get(), &o, &qp, nullptr), -EFAULT);
    o.receives = 1;
    o.first_count = 2;
    EXPECT_EQ(tcpqp_qp_create(cq.get(), tcp.get(), &o, &qp, nullptr), -EINVAL);
    o.first = nullptr;
    o.first_count = 0;
    o.timeout_ms = -1;
    EXPECT_EQ(tcpqp_qp_create(cq.get(), tcp.get(), &o, &qp, nullptr), -EINVAL);
    EXPECT_EQ(tcpqp_qp_cancel(nullptr), -EINVAL);
}

TEST(Errors, PollWaitAndQuery) {
    Pair pair;
    tcpqp_completion c{};
    EXPECT_EQ(tcpqp_poll(nullptr, &c, 1), -EINVAL);
    EXPECT_EQ(tcpqp_poll(pair.end_a->cq.get(), nullptr, 1), -EINVAL);
    EXPECT_EQ(tcpqp_poll(pair.end_a->cq.get(), &c, 0), -EINVAL);
    EXPECT_EQ(tcpqp_wait(nullptr, 0), -EINVAL);
    EXPECT_EQ(tcpqp_cq_fd(nullptr), -EINVAL);
    tcpqp_qp_info i{};
    EXPECT_EQ(tcpqp_qp_query(pair.end_a->qp.get(), &i), -EINVAL);
    EXPECT_EQ(tcpqp_qp_query(pair.end_a->qp.get(), nullptr), -EINVAL);
    i.size = sizeof(i);
    EXPECT_EQ(tcpqp_qp_query(pair.end_a->qp.get(), &i), 0);
    EXPECT_EQ(i.engine, uint32_t{TCPQP_ENGINE_STOCK});
}

TEST(Errors, EveryReasonHasItsWords) {
    for (uint32_t r = TCPQP_REASON_OWN; r < TCPQP_REASON_END; r++) {
        EXPECT_STRNE(tcpqp_reason_name(r), "UNKNOWN");
        EXPECT_NE(tcpqp_reason_text(r)[0], '\0');
    }
    EXPECT_STREQ(tcpqp_reason_name(TCPQP_REASON_END), "UNKNOWN");
    EXPECT_STREQ(tcpqp_reason_name(5), "NO_PEER_QP");
    EXPECT_STREQ(tcpqp_engine_name(TCPQP_ENGINE_STOCK), "stock");
}

}  // namespace
}  // namespace stock_test
