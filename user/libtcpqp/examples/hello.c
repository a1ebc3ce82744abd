// SPDX-License-Identifier: BSD-3-Clause
// The README's example.  hello PORT receives; hello PORT ADDRESS sends three messages.
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <tcpqp.h>

int main(int argc, char **argv) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(argc > 1 ? atoi(argv[1]) : 5000)};
    int fd = socket(AF_INET, SOCK_STREAM, 0); // an ordinary TCP connection
    if (argc > 2)
        inet_pton(AF_INET, argv[2], &at.sin_addr);
    if (argc > 2 ? connect(fd, (struct sockaddr *)&at, sizeof(at)) : bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, 1))
        return perror(argv[0]), 1;
    tcpqp_conn *conn;
    uint32_t reason;
    if (tcpqp_open(argc > 2 ? fd : accept(fd, NULL, NULL), NULL, &conn, &reason)) // is given a queue pair
        return fprintf(stderr, "%s\n", tcpqp_reason_text(reason)), 1;
    struct tcpqp_view view;
    for (int i = 0; argc > 2 && i < 3 && tcpqp_buffer(conn, &view, -1) == 0; i++) {
        view.length = snprintf(view.data, view.length, "message %d", i); // written where it is sent from
        tcpqp_send_view(conn, &view);
    }
    while (argc <= 2 && tcpqp_recv(conn, &view, -1) == 0) { // read where the network put it
        printf("%.*s\n", (int)view.length, (char *)view.data);
        tcpqp_release(conn, &view);
    }
    struct tcpqp_qp_info info = {.size = sizeof(info)};
    tcpqp_conn_query(conn, &info);
    fprintf(stderr, "%s: %ju bytes received, %ju copied\n", tcpqp_engine_name(info.engine), info.rx_bytes, info.rx_copied_bytes);
    return tcpqp_close(conn, 10000);
}
