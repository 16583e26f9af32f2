#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# rehearse search about a whole training run: a date, a budget, failures, prices of the day, energy.
# Usage: buy_test.sh REHEARSE.
cd "$(dirname "$0")/../.." || exit 2
rehearse=$1
. tests/command.sh
tiny '"micro_batch": 1, "zero_stage": 1' '"steps": 1'
fails="--set cluster.failures_per_million_gpu_hours=2000 --set cluster.checkpoint_gb_per_s=0.001"
set -- search "$scenario" --set plan.global_batch=32 --start 2026-12-01 --tokens 1e9

# The smallest cluster that is done in time: one node and twice as many until one is.
"$rehearse" "$@" --price 2 --by 2099-01-01 --json >"$work/late.json" || fail "no date is too late: exit $?"
[ "$(grep -c '"done_by": "' "$work/late.json")" = 1 ] || fail "one node is enough by 2099"
grep -q '"chosen": {' "$work/late.json" || fail "none chosen by 2099"
"$rehearse" search "$scenario" --set plan.global_batch=32 --start 2026-12-01 --tokens 1e13 --by 2026-12-01 --gpus 4 --json >"$work/soon.json"
[ $? -eq 1 ] && grep -q '"chosen": null' "$work/soon.json" || fail "a day is too short: $(grep done_by "$work/soon.json")"

# A budget that nothing meets: exit 1, and said. With enough money: exit 0.
"$rehearse" "$@" --price 1000 --budget 0.001 >"$work/out"
[ $? -eq 1 ] || fail "too dear is exit 1"
grep -q "none of these is done for 0 USD" "$work/out" || fail "not said: $(cat "$work/out")"
"$rehearse" "$@" --price 2 --budget 1e9 --gpus 4 8 --json >"$work/rich.json" || fail "rich: exit $?"
grep -q '"chosen": {' "$work/rich.json" || fail "rich: none chosen"

# Failures: the spread lies around the formula, later than without.
"$rehearse" "$@" $fails --restart 60 --gpus 4 --json >"$work/fail.json" || fail "failures: exit $?"
share=$(key "$work/fail.json" share) p10=$(key "$work/fail.json" p10) p90=$(key "$work/fail.json" p90)
awk -v s="$share" -v a="$p10" -v b="$p90" 'BEGIN { exit !(a <= b && a > 0 && b < 1 && s > 0) }' ||
  fail "goodput: $share, $p10 to $p90"
"$rehearse" "$@" $fails --restart 60 --gpus 4 >"$work/out" || fail "text: exit $?"
grep -q "failures played through" "$work/out" || fail "no table: $(cat "$work/out")"
same() { "$rehearse" "$@" $fails --restart 60 --gpus 4 --json; }
same "$@" >"$work/again.json"
cmp -s "$work/fail.json" "$work/again.json" || fail "the same question, another answer"

# Prices of the day, and interruptions that come with them.
cat >"$work/prices.json" <<X
{"schema": "prices/1", "prices": [{"cluster": "dgx-a100-80gb", "usd_per_gpu_hour": 1.25,
  "interruptions_per_million_gpu_hours": 5000, "source": "made up"}]}
X
"$rehearse" "$@" --prices "$work/prices.json" --pue 1.2 --co2 400 --gpus 8 --json >"$work/spot.json" || fail "spot: exit $?"
[ "$(key "$work/spot.json" usd_per_gpu_hour)" = 1.25 ] || fail "spot price: $(key "$work/spot.json" usd_per_gpu_hour)"
awk -v g="$(key "$work/spot.json" gpus_kwh)" -v f="$(key "$work/spot.json" facility_kwh)" \
  'BEGIN { exit !(g > 0 && f > g) }' || fail "energy: $(grep kwh "$work/spot.json")"
grep -q '"co2_t": [0-9]' "$work/spot.json" || fail "no CO2"
"$rehearse" "$@" --pue 1.2 --gpus 8 --csv >"$work/csv"
awk -F, 'NR == 1 { columns = NF } NF != columns { exit 1 }' "$work/csv" || fail "csv: $(cat "$work/csv")"

refused 2 "about a whole training run: --tokens" search "$scenario" --by 2099-01-01
refused 2 "no date; a date is like" "$@" --by tomorrow
refused 2 "no date; a date is like" "$@" --by 2027-02-30
refused 2 "is before the run begins" "$@" --by 2026-11-30
refused 2 "does not say how often it fails" "$@" --restart 2
refused 2 "has no price" "$@" --budget 100
refused 2 "exclude each other" "$@" --price 1 --prices "$work/prices.json"
refused 2 "has no price for \"dgx-h100\"" "$@" --prices "$work/prices.json" --cluster dgx-h100
refused 2 "without --repair a failed node is back at once" "$@" $fails --spares 1
refused 2 "does not say what a node takes beside its GPUs" "$@" --pue 1.2 --cluster rtx4090-8
sed 's/"source".*/"sauce": "made up"}]}/' "$work/prices.json" >"$work/odd.json"
refused 2 "odd.json:2: prices\[0\].sauce: unknown" "$@" --prices "$work/odd.json"
refused 2 "must be a number from 1 to 5" "$@" --pue 0.5
exit $status
