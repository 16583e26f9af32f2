#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# rehearse calibrate as people and scripts call it. Usage: calibrate_test.sh REHEARSE.
cd "$(dirname "$0")/../.." || exit 2
rehearse=$1
. tests/command.sh

[ -e /dev/nvidiactl ] || refused 3 "no CUDA device" calibrate --device cuda
refused 2 "not in" calibrate --device tpu
refused 2 "cannot write" calibrate -o /no/such/folder/here.json
refused 2 "cannot write" calibrate -o "$work"
refused 2 "no such file" calibrate --scenario /no/such.json -o "$work/here.json"
[ -e "$work/here.json" ] && fail "a refused call left a file"

# A real one: two files, nothing else, and both are taken as they stand.
mkdir "$work/machine"
"$rehearse" calibrate --quick -o "$work/machine/here.json" >"$work/out" 2>"$work/err" || fail "does not run: $(cat "$work/err")"
[ -s "$work/err" ] && fail "a pipe sees: $(cat "$work/err")"
[ "$(ls "$work/machine" | tr '\n' ' ')" = "here.cluster.json here.json " ] || fail "files: $(ls "$work/machine")"
scenario=scenarios/tiny-gpt-4-ranks.json cluster=$work/machine/here.cluster.json
"$rehearse" run "$scenario" --dry-run --json --cluster "$cluster" >"$work/a.json" || fail "run --dry-run --cluster"
"$rehearse" simulate scenarios/gpt3-175b-1024.json --set plan.precision=fp8 2>&1 >/dev/null |
  grep -q "plan.precision: .* has no products in 8 bit" || fail "nothing said of fp8 on an A100"
"$rehearse" simulate "$scenario" --json --cluster "$cluster" --set plan.runtime=rehearse >"$work/b.json" ||
  fail "simulate --cluster"
"$rehearse" run "$scenario" --dry-run --json >"$work/c.json" || fail "--dry-run"
[ "$(key "$work/a.json" step_time_s)" = "$(key "$work/b.json" step_time_s)" ] || fail "two predictions"
[ "$(key "$work/a.json" peak_allocated_bytes)" = "$(key "$work/c.json" peak_allocated_bytes)" ] ||
  fail "memory depends on the calibration"
for direction in forward backward; do
  grep "\"direction\":\"$direction\"" "$work/machine/here.json" | grep -q '"causal":false' ||
    fail "attention in parts is not measured: $direction"
done
# How steady the machine was is said, and goes with every prediction: as if it had not been.
grep -q "rounds of the same product lay [0-9]* % apart" "$work/out" || fail "nothing said of rounds: $(cat "$work/out")"
grep -q '"scatter.product":[0-9]' "$work/machine/here.json" || fail "no scatter: $(tail -3 "$work/machine/here.json")"
sed -i 's/"scatter.product":[0-9.e-]*/"scatter.product":0.37/; s/"scatter.together":[0-9.e-]*/"scatter.together":0/' "$work/machine/here.json"
"$rehearse" run "$scenario" --dry-run --cluster "$cluster" --trace "$work/p.trace" >"$work/out" || fail "run --dry-run --trace"
grep -q "9 in 10 between .* (-27 %, +37 %)" "$work/out" || fail "the prediction's band: $(grep "9 in 10" "$work/out")"
grep -q "^doubtful: equal measurements of this machine lay 37 % apart" "$work/out" || fail "not said to be doubtful"
"$rehearse" run "$scenario" --steps 2 --trace "$work/r.trace" >"$work/out.r" || fail "run --trace"
"$rehearse" compare "$work/p.trace" "$work/r.trace" >"$work/out" || fail "compare"
grep -q "^predicted on .*doubtful: its measurements lay 37 % apart" "$work/out" || fail "compare: $(head -3 "$work/out")"
grep -q '"measured": 0,' "$work/a.json" && fail "nothing of the prediction is measured"
exit $status
