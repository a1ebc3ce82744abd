// SPDX-License-Identifier: BSD-3-Clause
// Three messages over a queue pair; the README shows this program.
//   hello PORT            receives
//   hello PORT ADDRESS    sends
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <tcpqp.h>

enum { MESSAGES = 3, CLOSE_LIMIT_MS = 10000, NO_LIMIT = -1 };

static void fail(const char *what) {
    perror(what);
    exit(1);
}

// Ordinary sockets: nothing here knows of queue pairs.
static int connect_to(const char *address, int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (inet_pton(AF_INET, address, &to.sin_addr) != 1) {
        fprintf(stderr, "%s is not an IPv4 address\n", address);
        exit(1);
    }
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0)
        fail("connect");
    return fd;
}

static int accept_one(int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    if (listener < 0 ||
        bind(listener, (struct sockaddr *)&at, sizeof(at)) != 0 ||
        listen(listener, 1) != 0)
        fail("listen");

    int fd = accept(listener, NULL, NULL);
    if (fd < 0)
        fail("accept");
    close(listener);
    return fd;
}

// Gives the connected socket a queue pair.  The peer does the same.
static tcpqp_conn *open_queue_pair(int fd) {
    tcpqp_conn *conn;
    uint32_t reason;
    int error = tcpqp_open(fd, NULL, &conn, &reason);

    if (error != 0) {
        fprintf(stderr, "no queue pair: %s (%s)\n", strerror(-error),
                tcpqp_reason_text(reason));
        exit(1);
    }
    return conn;
}

static int send_messages(tcpqp_conn *conn) {
    struct tcpqp_view view;

    for (int i = 0; i < MESSAGES; i++) {
        // A buffer of the connection: the message is written where it is
        // sent from.
        int error = tcpqp_buffer(conn, &view, NO_LIMIT);
        if (error != 0)
            return error;
        view.length = snprintf(view.data, view.length, "message %d", i);
        error = tcpqp_send_view(conn, &view);
        if (error != 0)
            return error;
    }
    return 0;
}

static void receive_messages(tcpqp_conn *conn) {
    struct tcpqp_view view;

    // The message is read where the network put it.  The loop ends when the
    // connection has ended and all messages were handed out.
    while (tcpqp_recv(conn, &view, NO_LIMIT) == 0) {
        printf("%.*s\n", (int)view.length, (char *)view.data);
        tcpqp_release(conn, &view);
    }
}

static void print_counters(tcpqp_conn *conn) {
    struct tcpqp_qp_info info = {.size = sizeof(info)};

    tcpqp_conn_query(conn, &info);
    fprintf(stderr, "%s: %ju bytes received, %ju copied\n",
            tcpqp_engine_name(info.engine), (uintmax_t)info.rx_bytes,
            (uintmax_t)info.rx_copied_bytes);
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: %s PORT [ADDRESS]\n", argv[0]);
        return 64;
    }
    int port = atoi(argv[1]);
    int fd = argc == 3 ? connect_to(argv[2], port) : accept_one(port);
    tcpqp_conn *conn = open_queue_pair(fd);
    int error = 0;

    if (argc == 3)
        error = send_messages(conn);
    else
        receive_messages(conn);
    print_counters(conn);

    // Waits until what was sent has left.
    int closed = tcpqp_close(conn, CLOSE_LIMIT_MS);
    close(fd);
    if (error == 0)
        error = closed;
    if (error != 0)
        fprintf(stderr, "%s: %s\n", argv[0], strerror(-error));
    return error != 0;
}
