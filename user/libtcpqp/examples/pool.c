// SPDX-License-Identifier: BSD-3-Clause
// One message from a lease of the switch's pool to another host's lease (docs/cxl-mode.md).
// Server: tcpqp_pool PORT.  Client: tcpqp_pool HOST PORT TEXT.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tcp.h"
#include "tcpqp.h"

enum { BYTES = 4096 };

struct end {
    struct tcpqp_pool_memory memory;
    tcpqp_context* context;
    tcpqp_mr* mr;
    tcpqp_cq* cq;
    tcpqp_qp* qp;
};

static int fail(const char* what, int error) {
    fprintf(stderr, "%s: %s\n", what, strerror(-error));
    return error;
}

static int set_up(struct end* e, int fd) {
    int error = tcpqp_pool_alloc(BYTES, NULL, &e->memory);
    if (error != 0)
        return fail("no memory of a pool", error);
    const struct tcpqp_context_opts context = {.size = sizeof(context), .socket = fd};
    const struct tcpqp_dmabuf_opts region = {.size = sizeof(region), .addr = e->memory.addr};
    error = tcpqp_context_create(&context, &e->context, NULL);
    if (error == 0)
        error =
            tcpqp_mr_create_dmabuf(e->context, e->memory.dmabuf, e->memory.bytes, &region, &e->mr);
    if (error == 0)
        error = tcpqp_cq_create(e->context, NULL, &e->cq);
    const struct tcpqp_work receive = {.addr = e->memory.addr, .length = BYTES, .mr = e->mr};
    const struct tcpqp_qp_opts qp = {.size = sizeof(qp), .first = &receive, .first_count = 1};
    if (error == 0)
        error = tcpqp_qp_create(e->cq, fd, &qp, &e->qp, NULL);
    return error == 0 ? 0 : fail("no queue pair", error);
}

static void tear_down(struct end* e) {
    tcpqp_qp_destroy(e->qp);
    tcpqp_cq_destroy(e->cq);
    tcpqp_mr_destroy(e->mr);
    tcpqp_context_destroy(e->context);
    tcpqp_pool_free(&e->memory);
}

// Sleeps until something has completed: its length, or an error.
static int complete(struct end* e) {
    struct tcpqp_completion c;
    for (;;) {
        int n = tcpqp_poll(e->cq, &c, 1);
        if (n == 1)
            return c.status != 0 ? c.status : (int)c.length;
        if (n == 0)
            n = tcpqp_wait(e->cq, -1);
        if (n < 0 && n != -4)  // EINTR: a signal
            return n;
    }
}

static int send_text(struct end* e, const char* text) {
    const struct tcpqp_work send = {
        .addr = e->memory.addr, .length = (uint32_t)strnlen(text, BYTES), .mr = e->mr};
    memcpy(e->memory.addr, text, send.length);
    const int n = tcpqp_post_send(e->qp, &send, 1);
    return n == 1 ? complete(e) : n;
}

int main(int argc, char** argv) {
    if (argc != 2 && argc != 4)
        return 64;
    const int fd = argc == 2 ? tcp_accept_one(argv[1]) : tcp_connect(argv[1], argv[2]);
    static struct end e;
    if (fd < 0)
        return 1;
    int n = set_up(&e, fd);
    if (n == 0)
        n = argc == 2 ? complete(&e) : send_text(&e, argv[3]);
    if (n >= 0 && argc == 2)
        printf("in a lease of the pool: %.*s\n", n, (const char*)e.memory.addr);
    else if (n < 0)
        fail("failed", n);
    tear_down(&e);
    close(fd);
    return n < 0;
}
