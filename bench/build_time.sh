#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# User seconds that revisions take to build from nothing on this machine, without the compiler's cache, as
# `./run build` builds: everything, tests too. Other load on the machine makes these seconds longer, so compare
# what one call prints. CUDA's kernels are left out: they are nvcc's.
# apart:REVISION: its sources one by one, as whoever works at them may build them (REHEARSE_BY_FOLDER off, and with it
# precompiled headers of the product; REHEARSE_TESTS_TOGETHER off).
#   bench/build_time.sh [apart:]REVISION...
set -euo pipefail
[ $# -ge 1 ] || { sed -n 's/^# \{0,1\}//; 3,8p' "$0" >&2; exit 2; }
cd "$(dirname "$0")/.."
export CCACHE_DISABLE=1
scratch=$(mktemp -d)
leave() { git worktree remove --force "$scratch/tree" 2>/dev/null || true; rm -rf "$scratch"; }
trap leave EXIT
printf 'machine: %s of %s, load %s\n' "$(nproc)" "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)" "$(cut -d' ' -f1 /proc/loadavg)"
TIMEFORMAT='%U %R'
for revision in "$@"; do
  together=ON
  [ "$revision" = "${revision#apart:}" ] || together=OFF
  git worktree add --quiet --detach "$scratch/tree" "${revision#apart:}"
  cmake -S "$scratch/tree" -B "$scratch/build" --preset release -DREHEARSE_TESTS_TOGETHER=$together -DREHEARSE_BY_FOLDER=$together \
    -DCMAKE_CUDA_COMPILER=NOTFOUND >"$scratch/log" 2>&1
  { time ninja -C "$scratch/build" >"$scratch/log" 2>&1 || touch "$scratch/failed"; } 2>"$scratch/took"
  [ ! -e "$scratch/failed" ] || { grep -m5 -E 'rror' "$scratch/log" >&2; exit 1; }
  read -r user real <"$scratch/took"
  printf '%s: %s user seconds, %s by the clock, %s objects\n' "$revision" "$user" "$real" \
    "$(ninja -C "$scratch/build" -t targets all | grep -c ': C[A-Z]*_COMPILER')"
  git worktree remove --force "$scratch/tree"
  rm -rf "$scratch/build"
done
