// SPDX-License-Identifier: BSD-3-Clause
/* A thread that is cancelled inside connect(), sendto() and sendmsg() ends, and its handlers run: cancelled. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LIMIT_S = 60, BUFFER_BYTES = 1 << 20 };
enum call { CONNECT, SENDTO, SENDMSG, CALLS };

static int cleaned;
static char buffer[BUFFER_BYTES];

struct job {
	enum call call;
	int fd;
	struct sockaddr_in to;
};

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void clean(void *unused)
{
	(void)unused;
	cleaned++;
}

static void call_once(struct job *j)
{
	struct iovec iov = { buffer, sizeof(buffer) };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };

	switch (j->call) {
	case CONNECT:
		(void)!connect(j->fd, (struct sockaddr *)&j->to, sizeof(j->to));
		break;
	case SENDTO:
		(void)!sendto(j->fd, buffer, sizeof(buffer), 0, NULL, 0);
		break;
	default:
		(void)!sendmsg(j->fd, &message, 0);
	}
}

/* Until the cancellation: sends block as soon as the peer's window and our buffer are full. */
static void *work(void *at)
{
	pthread_cleanup_push(clean, NULL);
	for (;;)
		call_once(at);
	pthread_cleanup_pop(1);
	return NULL;
}

static int listener(struct sockaddr_in *at)
{
	socklen_t bytes = sizeof(*at);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	at->sin_family = AF_INET;
	at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (struct sockaddr *)at, bytes) || listen(fd, 1) || getsockname(fd, (struct sockaddr *)at, &bytes))
		fail("listener");
	return fd;
}

static void one(enum call call)
{
	struct job j = { .call = call };
	int l = listener(&j.to);
	pthread_t thread;
	void *result;

	cleaned = 0;
	j.fd = socket(AF_INET, SOCK_STREAM, 0);
	if (call != CONNECT && connect(j.fd, (struct sockaddr *)&j.to, sizeof(j.to)))
		fail("connect");
	if (pthread_create(&thread, NULL, work, &j))
		fail("thread");
	usleep(50000);
	if (pthread_cancel(thread) || pthread_join(thread, &result))
		fail("join");
	if (result != PTHREAD_CANCELED || cleaned != 1) {
		fprintf(stderr, "call %d: not cancelled as it should be\n", call);
		exit(1);
	}
	close(j.fd);
	close(l);
}

int main(void)
{
	alarm(LIMIT_S);
	for (int call = 0; call < CALLS; call++)
		one(call);
	puts("cancelled");
	return 0;
}
