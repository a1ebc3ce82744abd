#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The symbols that libtcpqp exports are those of symbols.txt, no more, no less.
set -eu
nm -D --defined-only "$1" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | LC_ALL=C sort | diff "$(dirname "$0")/symbols.txt" -
