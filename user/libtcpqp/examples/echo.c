// SPDX-License-Identifier: BSD-3-Clause
// Messages there and back.  Server: tcpqp_echo PORT.  Client: tcpqp_echo HOST PORT [COUNT [BYTES]].
// The server sends each message from where it was received: no copy at all on offload.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tcp.h"
#include "tcpqp.h"

static int serve(tcpqp_conn *conn) {
    struct tcpqp_view view;
    while (tcpqp_recv(conn, &view, -1) == 0)
        if (tcpqp_send_view(conn, &view) != 0)
            return 1;
    return 0;
}

static int ask(tcpqp_conn *conn, unsigned count, unsigned length) {
    struct tcpqp_view out, in;
    for (unsigned i = 0; i < count; i++) {
        if (tcpqp_buffer(conn, &out, -1) != 0 || length > out.length)
            return 1;
        memset(out.data, (int)(i + 1), out.length = length);
        if (tcpqp_send_view(conn, &out) != 0 || tcpqp_recv(conn, &in, -1) != 0)
            return 1;
        const unsigned char *bytes = in.data;
        if (in.length != length || (length != 0 && (bytes[0] != (unsigned char)(i + 1) || bytes[length - 1] != bytes[0])))
            return 1;
        tcpqp_release(conn, &in);
    }
    return 0;
}

int main(int argc, char **argv) {
    const int server = argc == 2;
    if (argc < 2 || argc > 5)
        return 64;
    const int fd = server ? tcp_accept_one(argv[1]) : tcp_connect(argv[1], argv[2]);
    if (fd < 0)
        return 1;
    tcpqp_conn *conn;
    uint32_t reason;
    const int error = tcpqp_open(fd, NULL, &conn, &reason);
    if (error != 0) {
        fprintf(stderr, "no queue pair: %s (%s)\n", strerror(-error), tcpqp_reason_text(reason));
        return 1;
    }
    const unsigned count = argc > 3 ? (unsigned)atoi(argv[3]) : 10, length = argc > 4 ? (unsigned)atoi(argv[4]) : 1000;
    int status = server ? serve(conn) : ask(conn, count, length);
    struct tcpqp_qp_info info = {.size = sizeof(info)};
    tcpqp_conn_query(conn, &info);
    printf("%s (%s): %s, %llu bytes received, %llu placed by the switch, %llu copied\n", status == 0 ? "done" : "FAILED",
           tcpqp_reason_name(info.reason), tcpqp_engine_name(info.engine), (unsigned long long)info.rx_bytes,
           (unsigned long long)info.rx_placed_bytes, (unsigned long long)info.rx_copied_bytes);
    tcpqp_close(conn, 10000);
    close(fd);
    return status;
}
