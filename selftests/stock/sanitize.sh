#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# libtcpqp's and the NCCL plugin's tests under address + undefined behaviour, thread and valgrind's checkers: `make sanitize`.
# Not in `make check`: two builds more.  Arguments choose: asan, tsan, valgrind.
set -eu
cd "$(dirname "$0")/../.."
jobs=${JOBS:-2}
[ $# -gt 0 ] || set -- asan tsan valgrind

build() { # NAME OPTION
	cmake -S . -B "build/$1" -G Ninja "-D$2=ON" >"build/$1.log" || { cat "build/$1.log"; exit 1; }
	ninja -C "build/$1" -j "$jobs" stock_tests nccl_harness nccl_tests >>"build/$1.log" || { cat "build/$1.log"; exit 1; }
}

nccl_units() { # BUILD
	TCPQP_ENGINE='' "$1/selftests/nccl/nccl_tests" --gtest_brief=1
}

nccl_cases() { # BUILD
	TCPQP_ENGINE='' NCCL_SOCKET_IFNAME=lo NUPA_SLOWNESS=3 "$1/tools/nccl_harness/nccl_harness" --plugin "$1/user/nccl/libnccl-net-tcpqp.so"
}

for checker in "$@"; do
	echo "sanitize: $checker"
	case $checker in
	asan)
		build asan TCP_QP_SANITIZE
		TCPQP_ENGINE='' build/asan/selftests/stock/stock_tests --gtest_brief=1
		nccl_units build/asan
		nccl_cases build/asan
		;;
	tsan)
		build tsan TCP_QP_TSAN
		TCPQP_ENGINE='' TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1" build/tsan/selftests/stock/stock_tests --gtest_brief=1
		# liburing maps its rings unseen by the checker, so comms of several threads (nccl_cases) would look like races
		TSAN_OPTIONS=halt_on_error=1 nccl_units build/tsan
		;;
	valgrind)
		# Debian 12's holds its one lock over io_uring_enter(), so no other thread runs while one waits in the
		# ring: only the tests in which one thread does all.  CPU times are not ours there, either.
		TCPQP_ENGINE='' valgrind --quiet --error-exitcode=1 --leak-check=full --show-leak-kinds=definite \
			--errors-for-leak-kinds=definite --fair-sched=yes build/cmake/selftests/stock/stock_tests --gtest_brief=1 \
			--gtest_filter='Errors.*:Exchange.*:Frame.*:Receiver.*:Hostile.*:Hello.*:Wait.*-*WithoutSpinning*:*FromAnotherThread*:Wait.ALargeMessage*:Exchange.RandomBothWays:Exchange.SmallOnes*:Exchange.LargeOnes*:Exchange.NonBlocking*:Exchange.ZeroCopy*'
		;;
	*)
		echo "sanitize: no checker is called $checker"
		exit 64
		;;
	esac
done
