// SPDX-License-Identifier: BSD-3-Clause
#define _GNU_SOURCE
#include "tcp.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int tcp_connect(const char *host, const char *port) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    if (getaddrinfo(host, port, &hints, &list) != 0) {
        fprintf(stderr, "%s port %s: no such address\n", host, port);
        return -1;
    }
    int fd = -1;
    for (struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    if (fd < 0)
        perror("connect");
    return fd;
}

int tcp_accept_one(const char *port) {
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons((unsigned short)atoi(port))};
    socklen_t bytes = sizeof(at);
    const int on = 1;
    int listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(listener, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&at, &bytes) != 0) {
        perror("listen");
        return -1;
    }
    printf("listening on %d\n", ntohs(at.sin6_port));
    fflush(stdout);
    const int fd = accept(listener, NULL, NULL);
    if (fd < 0)
        perror("accept");
    close(listener);
    return fd;
}
