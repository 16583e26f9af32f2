#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Benchmarks are built by hand, by who measures; that they still compile is asked here. Usage: benches_compile.sh CXX.
# SKIPPED, which is said: those of Google Benchmark where it is not installed.
cd "$(dirname "$0")/.." || exit 2
status=0
for source in bench/*.cc bench/peers/*.cc; do
  if grep -q '^#include <benchmark/' "$source" && ! echo '#include <benchmark/benchmark.h>' | "$1" -std=c++20 -fsyntax-only -x c++ - 2>/dev/null; then
    echo "SKIPPED: $source: Google Benchmark is not installed"
    continue
  fi
  said=$("$1" -std=c++20 -I. -fsyntax-only "$source" 2>&1) || { echo "$source: $(echo "$said" | grep -m1 error)"; status=1; }
done
exit $status
