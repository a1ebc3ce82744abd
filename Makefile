# SPDX-License-Identifier: BSD-3-Clause
# The front door.  Kbuild builds kernel/, CMake the rest; this file calls them.
# A bare Debian 12 machine needs only git and make: `apt-get install git make`.

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
DESTDIR ?=
CMAKE_ARGS ?=
# `make check CHECK="vm/ping"` runs what matches.
CHECK ?=
VM ?=
# `make sim SEED=77` plays one schedule and prints its last events.
SEEDS ?= 2000
SEED ?=

BUILD := build
CMAKE_DIR := $(BUILD)/cmake
# The newest 6.12: the kernel that guests boot.
export KDIR ?= $(shell ls -d /usr/src/linux-headers-6.12.*-amd64 2>/dev/null | sort -V | tail -n 1)
DEPS_LIST := tools/deps/debian-12
DEPS_STAMP := $(BUILD)/.deps

.PHONY: all deps user kernel debug-kernel check-debug demo compat sanitize check bench bars lint sim soak install clean vm help
.DEFAULT_GOAL := all
MAKEFLAGS += --no-print-directory

all: user kernel ## build programs, libraries and kernel modules

deps: $(DEPS_STAMP) ## install the Debian packages that are missing

$(DEPS_STAMP): $(DEPS_LIST) tools/deps/install
	@echo "deps: looking for missing packages"
	@tools/deps/install $(DEPS_LIST)
	@mkdir -p $(BUILD)
	@touch $@

user: deps
	@echo "all: programs and libraries in $(CMAKE_DIR)"
	@test -f $(CMAKE_DIR)/build.ninja || cmake -S . -B $(CMAKE_DIR) -G Ninja $(CMAKE_ARGS)
	@ninja -C $(CMAKE_DIR) -j $(JOBS)

kernel: deps
	@echo "all: kernel modules in $(BUILD)/kernel"
	@$(MAKE) -C kernel -j $(JOBS)

check: all ## run every test; the last line counts them, build/results/check.json has each
	@selftests/run $(if $(CHECK),--only "$(CHECK)")

debug-kernel: deps ## a kernel with KASAN, lockdep, kmemleak ... and our modules for it (build/debug-kernel)
	@tools/deps/install tools/deps/debug-kernel
	@tools/debug-kernel/build $(JOBS)

check-debug: user debug-kernel ## the VM tests on the debug kernel; build/results/check-debug.json has each
	@selftests/run --debug-kernel $(if $(CHECK),--only "$(CHECK)")

demo: all ## two machines, one file, three engines: a table of what it cost
	@tools/vm/demo

sanitize: user ## libtcpqp's tests under ASAN + UBSAN, TSAN and valgrind
	@JOBS=$(JOBS) selftests/stock/sanitize

bars: user ## libtcpqp's stock engine beside plain TCP, on loopback and veth: each bar, met or not
	@selftests/stock/bpf/bars $(CMAKE_DIR)

compat: all ## other people's RDMA programs on both engines, and soft RoCE beside them; build/results/compat.json
	@tools/deps/install tools/deps/compat
	@tools/compat/compat

bench: all ## TCP-QP beside TCP, io_uring and soft RoCE, counted and timed (QUICK=1: in 4 minutes); build/results/bench.json
	@bench/run $(if $(QUICK),--quick)

sim: deps ## play SEEDS (default 2000) simulated schedules, or replay one: SEED=77
	@test -f $(CMAKE_DIR)/build.ninja || cmake -S . -B $(CMAKE_DIR) -G Ninja $(CMAKE_ARGS)
	@ninja -C $(CMAKE_DIR) -j $(JOBS) --quiet nupa_sim
	@$(CMAKE_DIR)/selftests/sim/nupa_sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

soak: all ## traffic with faults for hours (SOAK_MINUTES, default 60)
	@selftests/soak --minutes $(or $(SOAK_MINUTES),60)

lint: deps ## checkpatch, sparse, clang-format, clang-tidy, shellcheck, headers alone
	@selftests/lint

vm: all ## a shell in two machines on a switch (VM="..." adds nupa-vm options)
	@tools/vm/nupa-vm --interactive $(VM)

install: all ## install under PREFIX (default /usr/local), modules under /lib/modules
	@echo "install: programs and libraries under $(DESTDIR)$(PREFIX)"
	@DESTDIR=$(DESTDIR) cmake --install $(CMAKE_DIR) --prefix $(PREFIX)
	@$(MAKE) -C kernel modules_install $(if $(DESTDIR),INSTALL_MOD_PATH=$(DESTDIR))
	@$(if $(DESTDIR),:,depmod $(patsubst linux-headers-%,%,$(notdir $(KDIR))))

clean: ## remove everything that was built
	@echo "clean: removing $(BUILD)"
	@rm -rf $(BUILD)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
