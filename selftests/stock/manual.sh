#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# manual.sh DIRECTORY: a page for each exported call, no more, and none that groff complains about.
set -eu
(cd "$1" && ls ./*.3) | sed 's,^\./,,; s/\.3$//' | LC_ALL=C sort | diff "$(dirname "$0")/symbols.txt" -
complaints=$(groff -man -Tutf8 -ww -z "$1"/*.3 "$1"/tcpqp.7 "$(dirname "$0")/../../user/tcpqp_run/tcpqp-run.1" 2>&1)  # what man --warnings runs
[ -z "$complaints" ] || { echo "$complaints"; exit 1; }
# none is empty
for page in "$1"/*.3; do
	if ! grep -q '^\.SH DESCRIPTION' "$page" || [ "$(wc -w <"$page")" -le 40 ]; then
		echo "$page says too little"
		exit 1
	fi
done
# each error has a heading of its own
if grep -n '^\.B .*;' "$1"/*.3 || grep -n '^\\-E' "$1"/*.3; then
	echo "an error has no heading, or one with others and their text"
	exit 1
fi
