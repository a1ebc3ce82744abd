// SPDX-License-Identifier: BSD-3-Clause
// A stream of bytes both ways, like netcat: standard input goes to the peer, what comes from it to
// standard output.  Either direction ends for itself.  Listener: tcpqp_pipe PORT.  Other:
// tcpqp_pipe HOST PORT.
//
// One poll(2) loop.  tcpqp_ready() is asked before each sleep, because any call may have taken the
// events that the descriptor would have told of.
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tcp.h"
#include "tcpqp.h"

struct pipe {
    tcpqp_conn* conn;
    int output;
    char input[32768];
    size_t from, to;  // of input, that the peer has not taken
    int finished;     // our direction
    int ended;        // the peer's
};

static int failed(const char* what, ssize_t error) {
    fprintf(stderr, "%s: %s\n", what, strerror((int)-error));
    return 1;
}

static int send_some(struct pipe* p) {
    const ssize_t n = tcpqp_write(p->conn, p->input + p->from, p->to - p->from, 0);
    if (n < 0)
        return n == -EAGAIN ? 0 : failed("write", n);
    p->from += (size_t)n;
    return 0;
}

static int take_input(struct pipe* p) {
    const ssize_t n = read(STDIN_FILENO, p->input, sizeof(p->input));
    if (n < 0)
        return errno == EINTR ? 0 : failed("standard input", -errno);
    p->from = 0;
    p->to = (size_t)n;
    if (n != 0)
        return send_some(p);
    p->finished = 1;
    const int error = tcpqp_finish(p->conn);
    return error == 0 ? 0 : failed("finish", error);
}

// Written from where the bytes were placed; what standard output does not take stays there.
static int take_stream(struct pipe* p) {
    struct tcpqp_view view;
    const ssize_t n = tcpqp_peek(p->conn, &view, 0);
    if (n < 0)
        return n == -EAGAIN ? 0 : failed("read", n);
    p->ended = n == 0;
    if (n == 0)
        return 0;
    const ssize_t written = write(p->output, view.data, view.length);
    if (written < 0)
        return errno == EINTR ? 0 : failed("standard output", -errno);
    return tcpqp_consume(p->conn, (size_t)written);
}

static int step(struct pipe* p) {
    const int can = tcpqp_ready(p->conn);
    const int pending = p->from < p->to;
    if ((can & TCPQP_READABLE) != 0 && !p->ended)
        return take_stream(p);
    if (pending && (can & TCPQP_WRITABLE) != 0)
        return send_some(p);
    struct pollfd wait[2] = {{.fd = tcpqp_conn_fd(p->conn), .events = POLLIN},
                             {.fd = pending || p->finished ? -1 : STDIN_FILENO, .events = POLLIN}};
    if (poll(wait, 2, -1) < 0 && errno != EINTR)
        return failed("poll", -errno);
    return wait[1].revents != 0 ? take_input(p) : 0;
}

int main(int argc, char** argv) {
    if (argc != 2 && argc != 3)
        return 64;
    struct pipe p = {.output = dup(STDOUT_FILENO)};
    if (p.output < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)  // words are no bytes of the stream
        return failed("standard output", -errno);
    const int fd = argc == 3 ? tcp_connect(argv[1], argv[2]) : tcp_accept_one(argv[1]);
    if (fd < 0)
        return 1;
    uint32_t reason;
    int error = tcpqp_open(fd, NULL, &p.conn, &reason);
    if (error != 0) {
        fprintf(stderr, "no queue pair: %s (%s)\n", strerror(-error), tcpqp_reason_text(reason));
        return 1;
    }
    int status = 0;
    while (status == 0 && (!p.finished || !p.ended))
        status = step(&p);
    error = tcpqp_flush(p.conn, 10000);
    struct tcpqp_qp_info info = {.size = sizeof(info)};
    tcpqp_conn_query(p.conn, &info);
    fprintf(stderr, "%s: %s, %llu bytes received, %llu copied\n", status == 0 ? "done" : "FAILED",
            tcpqp_engine_name(info.engine), (unsigned long long)info.rx_bytes,
            (unsigned long long)info.rx_copied_bytes);
    tcpqp_close(p.conn, 10000);
    close(fd);
    return status;
}
