#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the first run costs: `./run demo` of a fresh clone, packages installed, the compiler's cache empty. Says CPU
# minutes, minutes by the clock, what the compiler took of them, and how busy the machine was.
# usage: bench/first_run.sh [COMMIT]
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone -q . "$work/clone"
git -C "$work/clone" checkout -q "$(git rev-parse "${1:-HEAD}")"
export CCACHE_DIR=$work/ccache
load() { cut -d' ' -f1-2 /proc/loadavg; }
before=$(load)
cd "$work/clone"
spent() {  # spent COMMAND...: "USER SYSTEM CLOCK" in seconds
  local TIMEFORMAT='%U %S %R'
  { time "$@" >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }; } 2>"$work/time"
  tail -n 1 "$work/time"
}
all=$(spent ./run demo)
again=$(spent ./run demo)  # nothing is built
awk -v all="$all" -v again="$again" -v before="$before" -v after="$(load)" -v cores="$(nproc)" 'BEGIN {
  split(all, a, " "); split(again, b, " ")
  printf "the first run: %.1f CPU minutes, %.1f by the clock; without building %.1f and %.1f\n", \
    (a[1] + a[2]) / 60, a[3] / 60, (b[1] + b[2]) / 60, b[3] / 60
  printf "%d cores, load (1 and 5 minutes) %s before, %s after\n", cores, before, after }'
tail -n 12 "$work/log"
