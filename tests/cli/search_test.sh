#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# rehearse search as people and scripts call it. Usage: search_test.sh REHEARSE.
cd "$(dirname "$0")/../.." || exit 2
rehearse=$1
. tests/command.sh
tiny '"global_batch": 8, "runtime": "rehearse"' '"steps": 2'

# Every plan is saved as a scenario: `simulate` predicts what was listed, `run` trains it.
"$rehearse" search "$scenario" --all --top 3 --save "$work/plans" --json >"$work/found.json" || fail "exit $?"
listed=$(sed -n 's/.*"step_time_s": \([0-9.e-]*\),/\1/p' "$work/found.json" | head -3)
number=0
for listed_step in $listed; do
  number=$((number + 1))
  plan=$work/plans/plan-0$number.json
  step=$("$rehearse" simulate "$plan" --json | sed -n 's/.*"step_time_s": \([0-9.e-]*\),.*/\1/p' | head -1)
  [ "$step" = "$listed_step" ] || fail "plan $number: listed $listed_step, simulated $step"
  "$rehearse" run "$plan" >"$work/run" 2>&1 || fail "plan $number does not run: $(cat "$work/run")"
done
[ "$number" -eq 3 ] || fail "$number plans saved instead of 3"

# Plans that are equal are one row, unless all are asked for.
rows() { "$rehearse" search "$scenario" --top 50 "$@" | grep -c '^ *[0-9]* .* dp '; }
[ "$(rows)" -lt "$(rows --all)" ] || fail "no plans are merged: $(rows) rows of $(rows --all)"
"$rehearse" search "$scenario" >"$work/rows"
grep -q "\[and [0-9]* equal, from " "$work/rows" || fail "equal plans are not counted: $(cat "$work/rows")"
grep -q "9 in 10 between" "$work/rows" || fail "no band: $(cat "$work/rows")"
"$rehearse" search 3d-8-gpus --set plan.schedule=null --set plan.virtual_stages=null >"$work/rows"
grep -q "no released framework runs them" "$work/rows" || fail "schedules left out in silence"
grep -q "dualpipe" "$work/rows" || fail "dualpipe is not named as left out"

# The same bytes for any number of threads.
for threads in 1 2 5; do
  "$rehearse" search "$scenario" --json --threads $threads >"$work/threads-$threads.json"
  cmp -s "$work/threads-1.json" "$work/threads-$threads.json" || fail "$threads threads differ"
done

# A table over clusters says for each row what limits it and what would help; CSV has it too.
"$rehearse" search "$scenario" --gpus 2 4 --cluster dgx-a100-80gb dgx-h100 >"$work/table" || fail "table: exit $?"
[ "$(grep -c 'all of it fits .*computing .* +20 %: ' "$work/table")" -eq 4 ] || fail "no reasons: $(cat "$work/table")"
"$rehearse" search "$scenario" --top 2 --csv >"$work/csv"
awk -F, 'NR == 1 { columns = NF } NF != columns { exit 1 } END { exit NR != 3 }' "$work/csv" || fail "csv: $(cat "$work/csv")"

# The column of what is recomputed has the words of the plan, a list's too.
"$rehearse" search "$scenario" --top 1 --csv --set plan.runtime=megatron \
  --set 'plan.recompute=["attention_core"]' >"$work/csv" || fail "csv of parts: exit $?"
column=$(awk -F, 'NR == 1 { for (i = 1; i <= NF; ++i) if ($i == "recompute") at = i } NR == 2 { print $at }' "$work/csv")
[ "$column" = attention_core ] || fail "recompute: $column: $(cat "$work/csv")"

# Ctrl-C: the best so far, a clean exit.
"$rehearse" search scenarios/search/llama3-70b.json --json >"$work/stopped" 2>"$work/err" &
search=$!
catches $search || fail "search has no handler for SIGINT"
kill -INT $search 2>/dev/null
wait $search
code=$?
[ "$code" -eq 0 ] || [ "$code" -eq 1 ] || fail "stopped: exit $code"
grep -q '"interrupted": ' "$work/stopped" || fail "stopped: nothing printed"
[ -s "$work/err" ] && fail "stopped: $(cat "$work/err")"

refused 2 "not in range 1 to 1048576" search "$scenario" --gpus 0
refused 2 'no such file: "nowhere"' search "$scenario" --cluster nowhere
refused 2 "the list is empty" search "$scenario" --set 'plan.tensor_parallel=[]'
refused 2 "min is more than max" search "$scenario" --set 'plan.tensor_parallel={"min": 4, "max": 2}'
refused 2 'unknown schedule "1f2b"' search "$scenario" --set 'plan.schedule=["1f1b", "1f2b"]'
refused 2 "no combination of the sizes" search "$scenario" --set 'plan.tensor_parallel=[3]'
refused 2 "no micro_batch divides" search "$scenario" --set 'plan.micro_batch=[3]'
refused 2 'there is no "torch", the nearest known one is torchtitan' search "$scenario" --framework torch
refused 2 "must be a number from 0 to 99" search "$scenario" --headroom 100
refused 2 "exclude each other" search "$scenario" --json --csv
refused 2 "one price" search "$scenario" --price 1 2

# The flags of a framework are the same for people and scripts.
"$rehearse" search "$scenario" --framework megatron --top 1 >"$work/out" || fail "search --framework: exit $?"
"$rehearse" search "$scenario" --framework megatron --top 1 --json >"$work/json" || fail "search --framework --json: exit $?"
grep '^flags ' "$work/out" | sed 's/^flags *//' >"$work/flags"
[ -s "$work/flags" ] || fail "search --framework prints no flags"
python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["flags"])' "$work/json" | cmp -s - "$work/flags" ||
  fail "--json has other flags than the text"

# Nothing fits: said, with the situation, and exit 1.
"$rehearse" search scenarios/search/llama3-70b.json --gpus 1 >"$work/out"
[ $? -eq 1 ] || fail "nothing fits: wrong exit"
grep -q "no plan fits in memory" "$work/out" || fail "nothing fits: $(cat "$work/out")"

exit $status
