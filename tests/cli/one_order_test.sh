#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run and its predictions are of one schedule: whatever orders it, however many processes perform
# it, whichever cluster it is predicted for, and with replicas that differ. Usage:
# one_order_test.sh REHEARSE.
cd "$(dirname "$0")/../.." || exit 2
rehearse=$1
. tests/command.sh
found=tests/data/findings pipeline=tests/data/findings/pipeline_of_four.json

# hash_of ARGUMENTS: of the schedule that `run` tells.
hash_of() {
  "$rehearse" run "$@" --json >"$work/out" 2>"$work/err" || fail "run $*: $(cat "$work/err")"
  sed -n 's/^  "schedule_hash": "\([0-9a-f]*\)".*/\1/p' "$work/out"
}
# same ARGUMENTS: of the prediction, of the run and of what else may be asked of them.
same() {
  measured=$(hash_of "$@")
  [ -n "$measured" ] || fail "run $*: no hash"
  for other in --dry-run "--dry-run --cluster pcie-a100-80gb-8" "$processes"; do
    # shellcheck disable=SC2086  # several words
    [ "$(hash_of "$@" $other)" = "$measured" ] || fail "run $* $other: another schedule"
  done
}
# predicted COMMAND...: schedule and step of a prediction on another cluster than the file's.
predicted() {
  "$rehearse" "$@" --json --cluster "$work/here.cluster.json" --set plan.runtime=rehearse >"$work/out" 2>"$work/err" ||
    fail "$*: $(cat "$work/err")"
  echo "$(key "$work/out" schedule_hash) $(key "$work/out" step_time_s)"
}
# one_prediction SCENARIO ARGUMENTS: whichever command makes it.
one_prediction() {
  said=$(predicted simulate "$@")
  [ "$said" = "$(predicted run "$@" --dry-run)" ] || fail "two predictions of $*: $said, $(predicted run "$@" --dry-run)"
}
processes=
case $("$rehearse" --version) in *gloo*) processes="--processes 2" ;; esac

same $pipeline
for schedule in gpipe eager_1f1b zb_h1 zb_1p chimera; do same $pipeline --set plan.schedule=$schedule; done
for schedule in interleaved_1f1b zb_v dualpipev; do
  same $pipeline --set plan.schedule=$schedule --set plan.pipeline_parallel=2
done
same $pipeline --set plan.schedule=seq1f1b --set plan.sequence_slices=2
same $pipeline --set plan.pipeline_parallel=2 --set plan.zero_stage=3
same $pipeline --set plan.pipeline_parallel=2 --set plan.overlap.pipeline=true --set plan.overlap.gradient_reduce=true
"$rehearse" schedule --schedule 1f1b --stages 4 --microbatches 8 --format csv >"$work/order.csv" || fail "schedule"
same $pipeline --set plan.schedule="file:$work/order.csv"
# What is simulated for our runtime is what is run.
[ "$("$rehearse" simulate $pipeline --set plan.runtime=rehearse --json |
  sed -n 's/^  "schedule_hash": "\([0-9a-f]*\)".*/\1/p')" = "$(hash_of $pipeline)" ] || fail "simulate: another schedule"

# Of one machine, measured, each of whose times is now this and now that many times as long: its own prices would order
# these runs in ways of their own, and the file's order takes other steps there.
machine=tests/data/contract/0.1
for times in 1 5 20; do
  cp $machine/machine.cluster.json "$work/here.cluster.json"
  awk -v times=$times '
    { while (match($0, /"time_us": ?[0-9.e+-]+/)) {
        text = substr($0, RSTART, RLENGTH); value = text; sub(/.*: ?/, "", value)
        printf "%s\"time_us\":%.6g", substr($0, 1, RSTART - 1), value * (++n % 3 == 0 ? times : 1)
        $0 = substr($0, RSTART + RLENGTH)
      }
      print }' $machine/machine.json >"$work/machine.json"
  one_prediction $pipeline
  one_prediction scenarios/tiny-gpt-4-ranks.json
  one_prediction $pipeline --set plan.schedule=auto
done

# Transfers of another order than FLOP counts give: a checkpoint of before goes on.
"$rehearse" run $pipeline --resume $found/before --metrics "$work/on.jsonl" >"$work/out" || fail "--resume before"
grep -q "$(hash_of $pipeline)" $found/before/step-000002/state.json && fail "the checkpoint is of the same order"
"$rehearse" run $pipeline --metrics "$work/whole.jsonl" >"$work/out" || fail "run"
losses() { sed -n 's/.*"step":3,"loss":\([0-9.]*\),.*/\1/p' "$1"; }
[ -n "$(losses "$work/on.jsonl")" ] || fail "no loss of step 3"
[ "$(losses "$work/on.jsonl")" = "$(losses "$work/whole.jsonl")" ] || fail "going on comes to other losses"

# Replicas that differ: of the prediction too every rank has a row.
"$rehearse" run $found/slow_replica.json --dry-run --trace "$work/p.trace" >"$work/out" || fail "--dry-run --trace"
"$rehearse" run $found/slow_replica.json --trace "$work/m.trace" >"$work/out" || fail "--trace"
"$rehearse" compare "$work/p.trace" "$work/m.trace" >"$work/out" || fail "compare of replicas that differ"
grep -q "^predicted: slowest of equal ranks: rank 2" "$work/out" || fail "the slow replica is not told: $(cat "$work/out")"
"$rehearse" view "$work/p.trace" "$work/m.trace" --svg "$work/v.svg" || fail "view of replicas that differ"
same $found/slow_replica.json
exit $status
