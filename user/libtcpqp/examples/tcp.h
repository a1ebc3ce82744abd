/* SPDX-License-Identifier: BSD-3-Clause */
/* Ordinary sockets for the examples: nothing of tcpqp in here. */
#ifndef EXAMPLES_TCP_H
#define EXAMPLES_TCP_H

/* A connected socket, or -1 after a message on stderr. */
int tcp_connect(const char *host, const char *port);
/* Prints "listening on PORT" and accepts one connection; port "0" picks one. */
int tcp_accept_one(const char *port);

#endif
