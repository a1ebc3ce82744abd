// SPDX-License-Identifier: BSD-3-Clause
// Round trips with level 1: own memory, posted work, completions.
// Server: tcpqp_pingpong PORT.  Client: tcpqp_pingpong HOST PORT [COUNT].
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tcp.h"
#include "tcpqp.h"

enum { BYTES = 64 };

struct end {
    tcpqp_context *context;
    tcpqp_mr *mr;
    tcpqp_cq *cq;
    tcpqp_qp *qp;
    char memory[2 * BYTES]; // what is received, what is sent
};

static int set_up(struct end *e, int fd) {
    const struct tcpqp_context_opts context = {.size = sizeof(context), .socket = fd};
    uint32_t reason = TCPQP_REASON_NONE;
    int error = tcpqp_context_create(&context, &e->context, &reason);
    if (error == 0)
        error = tcpqp_mr_create(e->context, e->memory, sizeof(e->memory), &e->mr);
    if (error == 0)
        error = tcpqp_cq_create(e->context, NULL, &e->cq);
    const struct tcpqp_work receive = {.addr = e->memory, .length = BYTES, .mr = e->mr};
    const struct tcpqp_qp_opts qp = {.size = sizeof(qp), .first = &receive, .first_count = 1};
    if (error == 0)
        error = tcpqp_qp_create(e->cq, fd, &qp, &e->qp, &reason);
    if (error != 0)
        fprintf(stderr, "no queue pair: %s (%s)\n", strerror(-error), tcpqp_reason_text(reason));
    return error;
}

static void tear_down(struct end *e) {
    tcpqp_qp_destroy(e->qp);
    tcpqp_cq_destroy(e->cq);
    tcpqp_mr_destroy(e->mr);
    tcpqp_context_destroy(e->context);
}

// Sleeps until a message has come.  0, or an error when the connection has ended.
static int next_message(struct end *e) {
    struct tcpqp_completion c;
    for (;;) {
        int n = tcpqp_poll(e->cq, &c, 1);
        if (n == 0)
            n = tcpqp_wait(e->cq, -1);
        if (n < 0 && n != -4) // EINTR: a signal
            return n;
        if (n == 1 && c.status != 0)
            return c.status;
        if (n == 1 && c.opcode == TCPQP_OP_RECV)
            return 0;
    }
}

static int send_one(struct end *e) {
    const struct tcpqp_work receive = {.addr = e->memory, .length = BYTES, .mr = e->mr};
    const struct tcpqp_work send = {.addr = e->memory + BYTES, .length = BYTES, .mr = e->mr};
    const int n = tcpqp_post_recv(e->qp, &receive, 1);
    return n == 1 ? tcpqp_post_send(e->qp, &send, 1) : n;
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int ask(struct end *e, unsigned count) {
    const double start = now_us();
    for (unsigned i = 0; i < count; i++) {
        const uint32_t ask = i;
        uint32_t answer;
        memcpy(e->memory + BYTES, &ask, sizeof(ask));
        // the receive of the first answer is posted already
        const struct tcpqp_work send = {.addr = e->memory + BYTES, .length = BYTES, .mr = e->mr};
        if ((i == 0 ? tcpqp_post_send(e->qp, &send, 1) : send_one(e)) != 1 || next_message(e) != 0)
            return 1;
        memcpy(&answer, e->memory, sizeof(answer));
        if (answer != ask)
            return 1;
    }
    printf("%u round trips of %d bytes, %.2f us each\n", count, BYTES, (now_us() - start) / count);
    return 0;
}

static int answer(struct end *e) {
    while (next_message(e) == 0) {
        memcpy(e->memory + BYTES, e->memory, BYTES);
        if (send_one(e) != 1)
            return 1;
    }
    return 0; // the client closed
}

int main(int argc, char **argv) {
    const int server = argc == 2;
    if (argc < 2 || argc > 4)
        return 64;
    const int fd = server ? tcp_accept_one(argv[1]) : tcp_connect(argv[1], argv[2]);
    static struct end e;
    if (fd < 0 || set_up(&e, fd) != 0)
        return 1;
    const int status = server ? answer(&e) : ask(&e, argc > 3 ? (unsigned)atoi(argv[3]) : 1000);
    struct tcpqp_qp_info info = {.size = sizeof(info)};
    tcpqp_qp_query(e.qp, &info);
    printf("%s: %s\n", status == 0 ? "done" : "FAILED", tcpqp_engine_name(info.engine));
    tear_down(&e);
    close(fd);
    return status;
}
