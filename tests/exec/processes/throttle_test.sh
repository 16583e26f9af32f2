#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# run --throttle: transfers between two real processes last as long as their link takes, predicted and measured;
# numbers are those of a run without. Usage: throttle_test.sh REHEARSE.
cd "$(dirname "$0")/../../.." || exit 2
rehearse=$1
. tests/command.sh
tiny '"pipeline_parallel": 2, "schedule": "1f1b", "micro_batch": 1, "global_batch": 8' '"steps": 2'
two_ranks() { "$rehearse" run "$scenario" --gpus 2 --processes 2 "$@" 2>"$work/err" || fail "$*: $(cat "$work/err")"; }

refused 2 "run: --throttle: 'fast' is not GBPS,LATENCY_US: " run "$scenario" --processes 2 --throttle fast
refused 2 "run: --throttle: nothing crosses between processes: there is one" run "$scenario" --throttle 1,50
refused 2 "run: --throttle: dgx-a100-80gb is of GPUs, which is no prediction of this machine" \
  run "$scenario" --processes 2 --throttle 1,50 --dry-run --json
case $("$rehearse" --version) in *gloo*) ;; *) echo "SKIPPED: this build has no Gloo"; exit $status ;; esac

# durations TRACE KIND: of all such ops, ms, ascending.
durations() {
  "$rehearse" export "$1" --to csv "$work/ops.csv" >/dev/null || fail "no ops in $1"
  awk -F, -v kind="$2" 'NR == 1 { for (i = 1; i <= NF; ++i) column[$i] = i; next }
    $column["name"] ~ kind { print ($column["end_ns"] - $column["start_ns"]) / 1e6 }' "$work/ops.csv" | sort -n
}
# follows KIND THROTTLE LEAST KEYS...: ops of the kind take LEAST ms and, in the middle, what is predicted.
follows() {
  kind=$1 throttle=$2 least=$3; shift 3
  two_ranks "$@" --json >"$work/free.json"
  two_ranks "$@" --throttle "$throttle" --trace "$work/run.trace" --json >"$work/slow.json"
  one_line "$work/err" "run: --throttle: links between processes are slowed: .* GB/s each way between two processes" \
    "$throttle"
  [ "$(losses "$work/free.json")" = "$(losses "$work/slow.json")" ] || fail "$throttle: other numbers"
  two_ranks "$@" --throttle "$throttle" --dry-run --trace "$work/dry.trace" \
    --cluster tests/data/contract/0.1/machine.cluster.json >/dev/null
  durations "$work/run.trace" "$kind" >"$work/measured"
  durations "$work/dry.trace" "$kind" >"$work/predicted"
  [ -s "$work/measured" ] && [ -s "$work/predicted" ] || fail "$throttle: no $kind in the traces"
  awk -v least="$least" -v what="$kind, $throttle" 'FILENAME ~ /measured/ { m[++n] = $1; next } { p[++k] = $1 }
    END {
      if (m[1] < 0.99 * least) { print what ": one of " m[1] " ms, at least " least; exit 1 }
      if (p[1] < least) { print what ": one predicted of " p[1] " ms, at least " least; exit 1 }
      ratio = m[int((n + 1) / 2)] / p[int((k + 1) / 2)]
      if (ratio > 1.15 || ratio < 0.85) { print what ": measured " ratio " times the prediction"; exit 1 }
    }' "$work/measured" "$work/predicted" || fail "$kind does not follow --throttle $throttle"
}
# An activation of 2,048 B: 40 + 2 ms, and 5 + 10.2 ms. Of gradients the least are the norms' few bytes.
follows SEND 0.001,40000 42
follows SEND 0.0002,5000 15.2
follows ALL_REDUCE 0.01,20000 20 --set plan.schedule=none --set plan.pipeline_parallel=1
exit $status
