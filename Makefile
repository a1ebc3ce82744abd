# SPDX-License-Identifier: BSD-3-Clause
# The front door.  Kbuild builds kernel/, CMake the rest; this file calls them, a line of output for each.
# A bare Debian 12 machine needs only git and make: `apt-get install git make`.
# Paths are relative throughout: the checkout's own may have spaces.

PREFIX ?= /usr/local
DESTDIR ?=
CMAKE_ARGS ?=
# `make check CHECK="vm/ping"` runs what matches.
CHECK ?=
VM ?=
# `make sim SEED=77` plays one schedule and prints its last events.
SEEDS ?= 2000
SEED ?=
SOAK_MINUTES ?= 60
# `make check-debug KCSAN=1`: on the kernel that looks for data races.
KCSAN ?=
# `make kernels KERNELS=trixie KERNELS_ONLY="vm/rdma"`: whose kernels, and which tests.  USERLAND=debian13: with its programs, too.
KERNELS ?=
KERNELS_ONLY ?=
USERLAND ?=
# `make demo CXL=1`: the switch in mode cxl, and one engine more.
CXL ?=
# `make gpu PYTHON=...`: the one that has torch.
PYTHON ?= python3

# As many as `make -jN` says, or as there are processors.
JOBS ?= $(or $(patsubst -j%,%,$(filter -j%,$(MAKEFLAGS))),$(shell nproc))
# tools/front/stage: everything as it comes.
export V DEPS

CMAKE_DIR := build/cmake
STAGE := tools/front/stage
PACKAGES := tools/deps/install
PROGRAMS = $(STAGE) programs tools/front/programs
# A job server's make takes its number of jobs from there.
KERNEL = $(STAGE) modules $(MAKE) -C kernel $(if $(findstring --jobserver,$(MAKEFLAGS)),,-j $(JOBS)) all

# What may be said on the command line; the second line is for kbuild, compilers and what the tests and tools ask for.
variables := PREFIX DESTDIR CMAKE_ARGS CHECK VM SEEDS SEED SOAK_MINUTES JOBS KDIR V QUICK DEPS KERNELS KERNELS_ONLY USERLAND KCSAN PYTHON CXL
variables += CC CXX CFLAGS CXXFLAGS LDFLAGS W C KCFLAGS LLVM MAKEFLAGS TMPDIR MIRROR SECURITY DEB_WORK NUPA_% TCPQP_%
said := $(strip $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name))))
unknown := $(filter-out $(variables) MFLAGS MAKEOVERRIDES GNUMAKEFLAGS -*-%,$(said))
$(if $(unknown),$(error $(firstword $(unknown)): make has no such variable here; it has $(wordlist 1,19,$(variables)): see make help))
one_of = $(if $(filter $(2) ,$($(1))),,$(if $($(1)),$(error $(1) is $(3), not "$($(1))")))
$(call one_of,DEPS,yes no,yes or no)
$(call one_of,V,0 1,0 or 1)
$(call one_of,QUICK,0 1,0 or 1)
$(call one_of,KCSAN,0 1,0 or 1)
$(call one_of,CXL,0 1,0 or 1)
ifeq ($(V),0)
override V :=
endif
ifeq ($(QUICK),0)
override QUICK :=
endif
ifeq ($(CXL),0)
override CXL :=
endif
ifeq ($(KCSAN),0)
override KCSAN :=
endif
flavour := $(if $(KCSAN),kcsan,kasan)

numbers := JOBS SEEDS SEED SOAK_MINUTES
$(foreach name,$(numbers),$(if $(filter command environment,$(firstword $(origin $(name)))),\
	$(if $(shell printf %s '$($(name))' | grep -Ex '[0-9]*'),,$(if $($(name)),$(error $(name) is a number, not "$($(name))")))))
$(if $(filter-out trixie trixie-backports,$(KERNELS)),$(error KERNELS names suites of Debian, trixie and trixie-backports, not "$(KERNELS)"))
$(if $(filter-out debian13,$(USERLAND)),$(error USERLAND is debian13 or nothing, not "$(USERLAND)"))
$(if $(filter /%,$(PREFIX)),,$(error PREFIX is a directory's whole path, not "$(PREFIX)"))

.PHONY: all deps checkout user kernel tests debug-kernel check-debug demo compat sanitize check kernels bench latency cxl mpi devmem bars sockets nccl gpu lint sim soak install uninstall deb check-deb clean vm help
.DEFAULT_GOAL := all
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

all: checkout ## build programs, libraries, kernel modules and tests
	@$(PACKAGES) build library kernel tests
	@$(PROGRAMS) all $(JOBS) $(CMAKE_ARGS)
	+@$(KERNEL) tests

demo: checkout ## two machines, one file, three engines: a table of what it cost (CXL=1: and with buffers in the switch's pool)
	@$(PACKAGES) build kernel vm
	@$(PROGRAMS) demo $(JOBS) $(CMAKE_ARGS)
	+@$(KERNEL)
	@tools/vm/demo $(if $(CXL),--cxl)

check: all ## run every test but the long ones (selftests/run --long, make soak); the last line counts them, build/results/check.json has each
	@$(PACKAGES) vm check
	@selftests/run $(if $(CHECK),--only "$(CHECK)")

vm: user kernel ## a shell in two machines on a switch (VM="..." adds nupa-vm options)
	@$(PACKAGES) vm
	@tools/vm/nupa-vm --interactive $(VM)

user: checkout ## build programs and libraries only
	@$(PACKAGES) build library
	@$(PROGRAMS) product $(JOBS) $(CMAKE_ARGS)

kernel: checkout ## build the kernel modules only
	@$(PACKAGES) kernel
	+@$(KERNEL)

deps: ## install every Debian package that building and testing needs
	@$(PACKAGES) build library kernel tests vm check lint

checkout:
	@tools/front/checkout

tests: checkout
	@$(PACKAGES) build library tests
	@$(PROGRAMS) all $(JOBS) $(CMAKE_ARGS)

debug-kernel: checkout ## a kernel with KASAN, lockdep, kmemleak ... and our modules for it (KCSAN=1: with KCSAN)
	@$(PACKAGES) kernel debug-kernel
	@tools/debug-kernel/build $(flavour) $(JOBS)

check-debug: tests debug-kernel ## the VM tests on the debug kernel (KCSAN=1: for data races); build/results/check-{debug,kcsan}.json
	@$(PACKAGES) vm check
	@selftests/run --debug-kernel $(flavour) $(if $(CHECK),--only "$(CHECK)")

kernels: $(if $(USERLAND),checkout,tests) ## the guest tests on Debian 13's kernels, 6.12 and the newest; build/results/kernels.json
	@$(PACKAGES) vm check kernels
	@tools/kernels/kernels --jobs $(JOBS) $(if $(USERLAND),--userland) $(foreach only,$(KERNELS_ONLY),--only "$(only)") $(KERNELS)

sanitize: tests ## libtcpqp's tests under ASAN + UBSAN, TSAN and valgrind
	@$(PACKAGES) sanitize
	@JOBS=$(JOBS) selftests/stock/sanitize.sh

bars: tests ## libtcpqp's stock engine beside plain TCP, on loopback and veth: each bar, met or not
	@selftests/stock/bpf/bars.py $(CMAKE_DIR)

compat: all ## other people's programs, on both engines and beside soft RoCE, and the kernel's selftests; build/results/compat.json
	@$(PACKAGES) vm check compat kselftests
	@tools/compat/compat

bench: all ## TCP-QP beside TCP, io_uring and soft RoCE, counted and timed (QUICK=1: in 4 minutes); build/results/bench.json
	@$(PACKAGES) vm check
	@bench/run $(if $(QUICK),--quick)

latency: all ## where the nanoseconds of a 64-byte message go: counted here, priced by named parameters; build/results/latency.json
	@$(PACKAGES) vm check
	@bench/latency

cxl: all ## the switch's mode cxl beside mode pcie in one pair of guests, each bar, met or not; build/results/cxl.json
	@$(PACKAGES) vm check
	@bench/cxl

sockets: all ## unmodified programs under tcpqp-run beside plain TCP, counted and timed; build/results/sockets.json
	@$(PACKAGES) vm check compat
	@bench/sockets

mpi: all ## Open MPI, MPICH, UCX, libfabric and gloo over queue pairs, beside TCP, 2 and 4 guests; build/results/mpi.json
	@$(PACKAGES) vm check mpi
	@tools/mpi/mpi

devmem: all ## devmem TCP: the kernel's own ncdevmem, and a table beside queue pairs; build/results/devmem.json
	@$(PACKAGES) vm check devmem
	@tools/devmem/build_ncdevmem
	@selftests/run --only "vm/devmem*"
	@selftests/run --long --only "vm/devmem*"
	@bench/devmem/run

nccl: all ## collectives by NCCL's plugin beside NCCL-like sockets, here and in four guests (QUICK=1: short); build/results/nccl.json
	@$(PACKAGES) vm check
	@bench/nccl $(if $(QUICK),--quick)

gpu: user ## NCCL itself on one GPU, two ranks, by the plugin and by its sockets (PYTHON=...: the one with torch); build/results/gpu.json
	@$(PYTHON) bench/gpu/run

sim: tests ## play SEEDS (default 2000) simulated schedules, or replay one: SEED=77
	@$(CMAKE_DIR)/selftests/sim/nupa_sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

soak: all ## traffic with faults for hours (SOAK_MINUTES, default 60)
	@$(PACKAGES) vm check
	@selftests/soak --minutes $(SOAK_MINUTES)

lint: checkout ## checkpatch, sparse, clang-format, clang-tidy, shellcheck, flake8, headers alone
	@$(PACKAGES) build kernel lint
	@selftests/lint

# As root in another user's checkout: what that user has built.
owner_builds := $(filter-out $(shell stat -c %u Makefile),$(shell id -u))
install: $(if $(and $(owner_builds),$(filter 0,$(shell id -u))),,user kernel) ## install under PREFIX (default /usr/local), modules under /lib/modules
	@packaging/install --prefix "$(PREFIX)" --destdir "$(DESTDIR)"

uninstall: ## remove what `make install` with the same PREFIX put there
	@packaging/install --undo --prefix "$(PREFIX)" --destdir "$(DESTDIR)"

deb: checkout ## Debian packages in build/deb
	@$(PACKAGES) build library kernel deb
	@$(STAGE) deb packaging/build-deb $(JOBS)

check-deb: deb ## install the packages in a clean Debian, move a file by them between two guests, remove them (root)
	@$(PACKAGES) vm check-deb
	@packaging/test-deb

clean: ## remove everything that was built
	@echo "clean: removing build/"
	@$(MAKE) -C kernel clean
	@rm -rf build

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
