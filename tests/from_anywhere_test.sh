#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every test program finds its data wherever it is started: each lists the same tests in an empty
# folder as in the project's root (parameters are read from files), and a few that read much run there.
# Usage: from_anywhere_test.sh BIN PROGRAM...; programs that were not built are left out.
cd "$(dirname "$0")/.." || exit 2
bin=$1; shift
root=$PWD work=$(mktemp -d) listed=0 status=0
trap 'rm -rf "$work"' EXIT
mkdir "$work/empty"
cd "$work/empty" || exit 2

names() { sed 's/ *#.*//' "$1"; }  # without parameters, which may be printed as their bytes
for program in "$@"; do
  [ -x "$bin/$program" ] || continue
  "$bin/$program" --gtest_list_tests >"$work/here" 2>&1 ||
    { echo "$program, started elsewhere, lists no tests: $(tail -n 3 "$work/here")"; status=1; continue; }
  (cd "$root" && "$bin/$program" --gtest_list_tests) >"$work/there" 2>&1
  cmp -s <(names "$work/here") <(names "$work/there") || { echo "$program, started elsewhere, lists other tests"; status=1; }
  listed=$((listed + 1))
done
[ "$listed" -gt 0 ] || { echo "no test program in $bin"; status=1; }

# runs PROGRAM FILTER: these tests pass here.
runs() {
  [ -x "$bin/$1" ] || return
  "$bin/$1" --gtest_filter="$2" >"$work/log" 2>&1 && grep -q '^\[  PASSED  \] [1-9]' "$work/log" ||
    { echo "$1, started elsewhere, $2: $(tail -n 5 "$work/log")"; status=1; }
}
runs scenario_test '*'
runs runtime_file_test '*'
runs config_golden_test 'ConfigGolden.PredictionLayersAreLeftOutAndSaid:ConfigGolden.WhatRunRefuses*'
runs lower_golden_test '*'
runs viz_import_test '*'
runs exec_safetensors_test '*'
runs cuda_experts_test 'CudaExperts.TooFewRowsAreSaidAtTheEndOfTheStep'
[ -z "$(ls -A "$work/empty")" ] || { echo "left behind, where they were started: $(ls -A "$work/empty")"; status=1; }
exit $status
