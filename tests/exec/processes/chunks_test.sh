#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# overlap.tensor_parallel over two processes with throttled links: the numbers are the same, bit for bit, and the step
# is predicted at least 15 % shorter than without. With REHEARSE_TEST_LONG it has to be measured so, too, and measured
# and predicted within 15 % of one another. Other load on the machine makes that impossible: then all runs go ahead of
# it, where that is allowed. Without REHEARSE_TEST_LONG it is printed. Usage: chunks_test.sh REHEARSE.
cd "$(dirname "$0")/../../.." || exit 2
rehearse=$1
. tests/command.sh
case $("$rehearse" --version) in *gloo*) ;; *) echo "SKIPPED: this build has no Gloo"; exit 77 ;; esac
cat >"$work/s.json" <<'JSON'
{
  "name": "chunks", "cluster": "clusters/dgx-a100-80gb.json", "gpus": 2,
  "model": {"model_type": "gpt2", "n_embd": 768, "n_layer": 2, "n_head": 12, "n_positions": 512, "vocab_size": 256,
            "resid_pdrop": 0},
  "plan": {"tensor_parallel": 2, "sequence_parallel": true, "micro_batch": 1, "global_batch": 2, "sequence_length": 512,
           "precision": "fp32"},
  "train": {"steps": 3}
}
JSON
ahead=
[ -n "${REHEARSE_TEST_LONG:-}" ] && chrt -r 1 true 2>"$work/err" && ahead="chrt -r 1"
$ahead "$rehearse" calibrate --quick --scenario "$work/s.json" -o "$work/here.json" >"$work/out" 2>"$work/err" ||
  fail "calibrate: $(cat "$work/err")"
doubtful=$(grep -c "doubtful" "$work/out" "$work/err" | awk -F: '{ n += $2 } END { print n + 0 }')

# step FILE ARGUMENTS...: the report of such a run.
step() {
  report=$1; shift
  $ahead "$rehearse" run "$work/s.json" --processes 2 --threads 1 --throttle 0.05,50 "$@" --json >"$report" 2>"$work/err" ||
    fail "$*: $(cat "$work/err")"
}
for chunks in false true; do
  step "$work/measured.$chunks" --set plan.overlap.tensor_parallel=$chunks
  step "$work/predicted.$chunks" --set plan.overlap.tensor_parallel=$chunks --dry-run --cluster "$work/here.cluster.json"
done
[ "$(losses "$work/measured.false")" = "$(losses "$work/measured.true")" ] || fail "other numbers"
for report in measured predicted; do
  for chunks in false true; do key "$work/$report.$chunks" step_time_s; done
done | tr '\n' ' ' >"$work/times"
awk '{ printf "measured %.4f s, in pieces %.4f s; predicted %.4f s, in pieces %.4f s\n", $1, $2, $3, $4 }' "$work/times"
awk '{ exit !($4 <= 0.85 * $3) }' "$work/times" || fail "predicted: not 15 % shorter"
[ -n "${REHEARSE_TEST_LONG:-}" ] || exit $status
if [ "$doubtful" -gt 0 ]; then
  echo "SKIPPED: this machine is not steady: its tables are doubtful"
  [ $status -eq 0 ] && exit 77
  exit $status
fi
awk '{ exit !($2 <= 0.85 * $1) }' "$work/times" || fail "measured: not 15 % shorter"
awk 'function near(a, b) { return a / b < 1.15 && b / a < 1.15 } { exit !(near($1, $3) && near($2, $4)) }' \
  "$work/times" || fail "measured and predicted are further apart than 15 %"
exit $status
