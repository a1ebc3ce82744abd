// SPDX-License-Identifier: BSD-3-Clause
// Back-pressure: a source that could produce for ever and a sink that is slow.
// Sink: tcpqp_stream PORT [MICROSECONDS].  Source: tcpqp_stream HOST PORT MESSAGES.
//
// The sink keeps each message for a while.  When it holds all its buffers, nothing more is taken
// from the network, the source's queue fills, and tcpqp_send() with timeout 0 says so: -EAGAIN.
// The source then waits for its descriptor in an ordinary poll(2) loop; nobody's memory grows.
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tcp.h"
#include "tcpqp.h"

enum { BYTES = 32 * 1024, BUFFERS = 4 };

// Room for another message, or the peer's word that it has all.
static int wait_for_room(tcpqp_conn *conn) {
    struct pollfd p = {.fd = tcpqp_conn_fd(conn), .events = POLLIN};
    return poll(&p, 1, 10000) < 0 && errno != EINTR;
}

static int produce(tcpqp_conn *conn, unsigned count) {
    static unsigned message[BYTES / sizeof(unsigned)];
    unsigned refused = 0;
    for (unsigned i = 0; i < count;) {
        message[0] = i;
        const int error = tcpqp_send(conn, message, sizeof(message), 0);
        if (error == -EAGAIN) {
            refused++;
            if (wait_for_room(conn) != 0)
                return 1;
            continue;
        }
        if (error != 0)
            return 1;
        i++;
    }
    printf("sent %u messages, was stopped %s\n", count, refused != 0 ? "now and then" : "never");
    return 0;
}

static int consume(tcpqp_conn *conn, unsigned microseconds) {
    struct tcpqp_view view;
    unsigned next = 0;
    while (tcpqp_recv(conn, &view, -1) == 0) {
        unsigned number;
        memcpy(&number, view.data, sizeof(number));
        if (view.length != BYTES || number != next++)
            return 1;
        usleep(microseconds); // the work
        tcpqp_release(conn, &view);
    }
    printf("received %u messages, in order\n", next);
    return 0;
}

int main(int argc, char **argv) {
    const int source = argc == 4;
    if (argc < 2 || argc > 4)
        return 64;
    const int sink = !source && (argc == 2 || argc == 3);
    const int fd = sink ? tcp_accept_one(argv[1]) : tcp_connect(argv[1], argv[2]);
    if (fd < 0)
        return 1;
    const struct tcpqp_conn_opts opts = {.size = sizeof(opts), .buffer_bytes = BYTES, .buffers = BUFFERS};
    tcpqp_conn *conn;
    uint32_t reason;
    const int error = tcpqp_open(fd, &opts, &conn, &reason);
    if (error != 0) {
        fprintf(stderr, "no queue pair: %s (%s)\n", strerror(-error), tcpqp_reason_text(reason));
        return 1;
    }
    int status = source ? produce(conn, (unsigned)atoi(argv[3])) : consume(conn, argc == 3 ? (unsigned)atoi(argv[2]) : 0);
    status |= tcpqp_close(conn, 20000) != 0;
    close(fd);
    return status;
}
