#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Races `rehearse run` against PyTorch on this machine: bench/race.sh [options of race.py]
# PYTHONS: interpreters that have torch (Debian's python3-torch, a virtual environment with the current release).
# PyTorch is set up well: OpenBLAS with OpenMP threads, and told of AVX-512, which Debian's builds miss.
set -eu
cd "$(dirname "$0")/.."
: "${PYTHONS:=/usr/bin/python3}"
openblas=$(find /usr/lib -name libblas.so.3 -path '*openblas-openmp*' 2>/dev/null | head -1)
[ -z "$openblas" ] || export LD_LIBRARY_PATH="$(dirname "$openblas")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
if grep -q avx512bw /proc/cpuinfo; then
  export OPENBLAS_CORETYPE=SkylakeX ATEN_CPU_CAPABILITY=avx512
fi
peak=$(mktemp)
trap 'rm -f "$peak"' EXIT
c++ -O3 -march=native bench/fma_peak.cc -o "$peak"
gflops=$("$peak")
machine="$(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2 | xargs), $(nproc) cores, load $(cut -d' ' -f1-3 /proc/loadavg), \
FMA peak of a thread $gflops GF/s, $(date -u +%F), commit $(git rev-parse --short HEAD)"
for python in $PYTHONS; do set -- "$@" --python "$python"; done
exec python3 bench/race.py --rehearse build/release/bin/rehearse --peak "$gflops" --machine "$machine" "$@"
