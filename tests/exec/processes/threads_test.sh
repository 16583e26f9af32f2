#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two processes of two threads each on 8 ranks: the numbers of one process with one thread, bit for bit.
# Usage: threads_test.sh REHEARSE.
cd "$(dirname "$0")/../../.." || exit 2
rehearse=$1
. tests/exec/processes/processes.sh
case $("$rehearse" --version) in *gloo*) ;; *) echo "SKIPPED: this build has no Gloo"; exit 0 ;; esac
scenario "$work/s.json" 8
for layout in "pipeline_parallel=2 tensor_parallel=2 data_parallel=2 schedule=1f1b zero_stage=1" \
  "pipeline_parallel=4 data_parallel=2 schedule=zb_h1 zero_stage=3" \
  "context_parallel=2 tensor_parallel=2 data_parallel=2 zero_stage=2"; do
  # shellcheck disable=SC2046,SC2086
  set -- $(printf -- '--set=plan.%s ' $layout)
  "$rehearse" run "$work/s.json" "$@" --json --threads 1 >"$work/one.json" 2>"$work/err" || fail "$layout: $(cat "$work/err")"
  "$rehearse" run "$work/s.json" "$@" --json --processes 2 --threads 2 >"$work/many.json" 2>"$work/err" ||
    fail "$layout: $(cat "$work/err")"
  [ "$(losses "$work/one.json" | wc -l)" -eq 10 ] || fail "$layout: 3 losses and 3 norms expected"
  [ "$(losses "$work/one.json")" = "$(losses "$work/many.json")" ] || fail "$layout: other numbers"
done
exit $status
