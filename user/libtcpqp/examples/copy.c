// SPDX-License-Identifier: BSD-3-Clause
// One file to another machine.  Receiver: tcpqp_copy PORT FILE.  Sender: tcpqp_copy FILE HOST PORT.
// The file is read into, and written from, the connection's own memory.  An empty message is its end.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tcp.h"
#include "tcpqp.h"

static int send_file(tcpqp_conn *conn, int file, unsigned long long *total) {
    for (;;) {
        struct tcpqp_view view;
        if (tcpqp_buffer(conn, &view, -1) != 0)
            return 1;
        const ssize_t n = read(file, view.data, view.length);
        if (n < 0) {
            perror("read");
            return 1;
        }
        view.length = (uint32_t)n;
        *total += (unsigned long long)n;
        if (tcpqp_send_view(conn, &view) != 0)
            return 1;
        if (n == 0)
            return 0;
    }
}

static int write_all(int file, const char *at, size_t bytes) {
    while (bytes != 0) {
        const ssize_t n = write(file, at, bytes);
        if (n < 0) {
            perror("write");
            return 1;
        }
        at += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static int receive_file(tcpqp_conn *conn, int file, unsigned long long *total) {
    struct tcpqp_view view;
    while (tcpqp_recv(conn, &view, -1) == 0) {
        const int last = view.length == 0;
        *total += view.length;
        const int error = write_all(file, view.data, view.length);
        tcpqp_release(conn, &view);
        if (last || error)
            return error;
    }
    fprintf(stderr, "the sender ended before the file did\n");
    return 1;
}

int main(int argc, char **argv) {
    const int sender = argc == 4;
    if (argc != 3 && argc != 4)
        return 64;
    const int file = sender ? open(argv[1], O_RDONLY) : open(argv[2], O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file < 0) {
        perror(sender ? argv[1] : argv[2]);
        return 1;
    }
    const int fd = sender ? tcp_connect(argv[2], argv[3]) : tcp_accept_one(argv[1]);
    if (fd < 0)
        return 1;
    const struct tcpqp_conn_opts opts = {.size = sizeof(opts), .buffer_bytes = 256 * 1024, .buffers = 8};
    tcpqp_conn *conn;
    uint32_t reason;
    int error = tcpqp_open(fd, &opts, &conn, &reason);
    if (error != 0) {
        fprintf(stderr, "no queue pair: %s (%s)\n", strerror(-error), tcpqp_reason_text(reason));
        return 1;
    }
    unsigned long long total = 0;
    int status = sender ? send_file(conn, file, &total) : receive_file(conn, file, &total);
    struct tcpqp_qp_info info = {.size = sizeof(info)};
    tcpqp_conn_query(conn, &info);
    error = tcpqp_close(conn, 10000); // the sender's last messages
    status |= error != 0;
    printf("%s: %s, %llu bytes\n", status == 0 ? "done" : "FAILED", tcpqp_engine_name(info.engine), total);
    close(fd);
    return status;
}
