#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# rehearse run where the plan leaves the micro-batch open: "auto" is the fastest on this machine, as
# its calibration predicts, or refused. Usage: micro_batch_test.sh REHEARSE.
cd "$(dirname "$0")/../.." || exit 2
rehearse=$1
. tests/command.sh
tiny '"tensor_parallel": 2, "pipeline_parallel": 2, "schedule": "1f1b", "global_batch": 8' '"steps": 1'
auto="--set plan.micro_batch=auto"

# A calibration of a machine like this one, under this one's name.
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
cores=$(nproc)
cp tests/data/contract/0.1/machine.json "$work"
here=$work/here.cluster.json
sed -e "s/\"cpu\": .*,/\"cpu\": \"${cpu:-unknown CPU}\",/" -e "s/\"workers\": .*,/\"workers\": $cores,/" \
  tests/data/contract/0.1/machine.cluster.json >"$here"

# Not of this machine: no number is made up.
said='plan.micro_batch: "auto" is for the machine that runs: '
refused 2 "$said.*is described, not measured" run "$scenario" $auto
refused 2 "$said.*is described, not measured" run "$scenario" $auto --dry-run
sed 's/"cpu": .*,/"cpu": "Another CPU",/' "$here" >"$work/other.cluster.json"
refused 2 "$said.*of $cores cores of Another CPU, here are $cores of" \
  run "$scenario" $auto --cluster "$work/other.cluster.json"
sed 's/"workers": .*,/"workers": 77,/' "$here" >"$work/large.cluster.json"
refused 2 "$said.*of 77 cores of" run "$scenario" $auto --cluster "$work/large.cluster.json"

# Of this machine: the fastest of the divisors of 8, each predicted for itself.
best= least=
for b in 1 2 4 8; do
  "$rehearse" run "$scenario" --cluster "$here" --dry-run --json --set plan.micro_batch=$b >"$work/p.json" ||
    fail "--dry-run of $b"
  step=$(key "$work/p.json" step_time_s)
  if [ -z "$least" ] || awk "BEGIN { exit !($step < $least) }"; then best=$b least=$step; fi
done
for dry in "" --dry-run; do
  "$rehearse" run "$scenario" $auto --cluster "$here" $dry --json >"$work/r.json" 2>"$work/err" ||
    fail "auto $dry: $(cat "$work/err")"
  grep -q "plan.micro_batch: $best, the fastest that fits of 1, 2, 4, 8: .* ms per step predicted on .*, next is [1248] with .* ms" \
    "$work/err" || fail "auto $dry does not say $best: $(cat "$work/err")"
  [ "$(key "$work/r.json" micro_batch)" = "$best" ] || fail "auto $dry runs $(key "$work/r.json" micro_batch)"
done

# Left out: as `simulate` of the file chooses, which is said.
"$rehearse" simulate "$scenario" --set plan.runtime=rehearse --json >"$work/s.json" || fail "simulate"
"$rehearse" run "$scenario" --json >"$work/r.json" 2>"$work/err" || fail "left out: $(cat "$work/err")"
grep -q "plan.micro_batch: .* predicted on dgx-a100-80gb" "$work/err" || fail "left out: $(cat "$work/err")"
[ "$(key "$work/r.json" micro_batch)" = "$(key "$work/s.json" micro_batch)" ] || fail "left out: another than simulate's"
exit $status
