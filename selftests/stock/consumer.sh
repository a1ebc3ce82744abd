#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# consumer.sh SOURCE BUILD: installs libtcpqp, builds the README's example by pkg-config and by CMake, and runs it.
set -eu
source=$1 build=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
DESTDIR="$scratch/root" cmake --install "$build/user/libtcpqp" --prefix /opt/tcpqp >"$scratch/log" || { cat "$scratch/log"; exit 1; }
prefix="$scratch/root/opt/tcpqp"
libdir=$(dirname "$(find "$prefix" -name pkgconfig)")

# the example is what the README shows
awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$source/README.md" >"$scratch/hello.c"
diff "$scratch/hello.c" "$source/user/libtcpqp/examples/hello.c"

# no other package's files: a consumer need not have what the library was built with
PKG_CONFIG_LIBDIR="$libdir/pkgconfig" export PKG_CONFIG_LIBDIR
# shellcheck disable=SC2046
cc -Wall -Wextra -Werror -o "$scratch/hello" "$scratch/hello.c" $(pkg-config --cflags --libs tcpqp)

mkdir "$scratch/project"
cat >"$scratch/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(hello C)
find_package(tcpqp 0.2 REQUIRED)
add_executable(hello ../hello.c)
target_link_libraries(hello PRIVATE tcpqp::tcpqp)
END
{ cmake -S "$scratch/project" -B "$scratch/project/build" -DCMAKE_PREFIX_PATH="$prefix" && cmake --build "$scratch/project/build"; } >"$scratch/log" || {
	cat "$scratch/log"
	exit 1
}

# run both against each other: one of either kind
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
LD_LIBRARY_PATH="$libdir" export LD_LIBRARY_PATH
timeout 20 "$scratch/hello" "$port" >"$scratch/got" 2>"$scratch/got.err" &
receiver=$!
tries=0
until timeout 20 "$scratch/project/build/hello" "$port" 127.0.0.1 2>"$scratch/sent.err"; do
	tries=$((tries + 1))
	[ "$tries" -lt 100 ] || { cat "$scratch/sent.err"; exit 1; }
	sleep 0.1 # the receiver does not listen yet
done
wait "$receiver"
printf 'message 0\nmessage 1\nmessage 2\n' | diff "$scratch/got" -
grep -q '^stock: 27 bytes received, 27 copied$' "$scratch/got.err" || { cat "$scratch/got.err"; exit 1; }
