#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures the engines and a SimPy model of the same schedules, and writes the figures into
# docs/simulator.md with machine, date and commit.
#   bench/engine.sh [BUILD]      BUILD: a configured release build, default build/release
# SimPy is looked for in ${PYTHON:-python3} (Debian: python3-simpy3; pip: simpy); without it the
# peer's rows are left out.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
python=${PYTHON:-python3}
[ -f "$build/build.ninja" ] || cmake --preset release -B "$build" >/dev/null
ninja -C "$build" engine_bench write_ops >/dev/null
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$build/bin/engine_bench" --benchmark_min_time=0.5 --benchmark_repetitions=5 \
  --benchmark_report_aggregates_only=false --benchmark_format=json >"$work/engine.json" 2>/dev/null
for shape in "16 256 1" "64 128 1"; do
  # shellcheck disable=SC2086
  "$build/bin/write_ops" $shape >"$work/ops"
  if "$python" -c 'import simpy' 2>/dev/null; then
    for _ in 1 2 3; do
      echo "$shape $("$python" bench/peers/simpy_pipeline.py "$work/ops")" >>"$work/simpy"
    done
  fi
done
"$python" bench/engine_table.py "$work/engine.json" "$work/simpy" docs/simulator.md
