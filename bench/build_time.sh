#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# User seconds that revisions take to build from nothing on this machine, without the compiler's cache, as
# `./run build` builds: everything, tests too. Other load on the machine makes these seconds longer, so compare
# what one call prints. CUDA's kernels are left out: they are nvcc's.
#   bench/build_time.sh REVISION...
set -euo pipefail
[ $# -ge 1 ] || { sed -n 's/^# \{0,1\}//; 3,6p' "$0" >&2; exit 2; }
cd "$(dirname "$0")/.."
export CCACHE_DISABLE=1
scratch=$(mktemp -d)
leave() { git worktree remove --force "$scratch/tree" 2>/dev/null || true; rm -rf "$scratch"; }
trap leave EXIT
printf 'machine: %s of %s, load %s\n' "$(nproc)" "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)" "$(cut -d' ' -f1 /proc/loadavg)"
TIMEFORMAT='%U %R'
for revision in "$@"; do
  git worktree add --quiet --detach "$scratch/tree" "$revision"
  cmake -S "$scratch/tree" -B "$scratch/build" --preset release -DREHEARSE_TESTS_TOGETHER=ON -DCMAKE_CUDA_COMPILER=NOTFOUND >"$scratch/log"
  read -r user real < <({ time ninja -C "$scratch/build" >"$scratch/log" 2>&1; } 2>&1) ||
    { tail -n 20 "$scratch/log" >&2; exit 1; }
  printf '%s: %s user seconds, %s by the clock, %s objects\n' "$revision" "$user" "$real" \
    "$(ninja -C "$scratch/build" -t targets all | grep -c ': C[A-Z]*_COMPILER')"
  git worktree remove --force "$scratch/tree"
  rm -rf "$scratch/build"
done
