// SPDX-License-Identifier: BSD-3-Clause
/* A program that has a TCP socket and, at its end, words that the C library still holds. */
#include <stdio.h>
#include <sys/socket.h>

int main(void)
{
	if (listen(socket(AF_INET, SOCK_STREAM, 0), 1) != 0)
		return 1;
	fputs("words", stdout);
	return 0;
}
