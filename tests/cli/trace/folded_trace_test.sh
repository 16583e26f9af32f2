#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Traces with a row for every rank, and those that hold one rank of each class: each opens in every
# command that reads traces, and they lie side by side. Usage: folded_trace_test.sh REHEARSE.
cd "$(dirname "$0")/../../.." || exit 2
rehearse=$1
. tests/command.sh
old=tests/data/traces/folded/measured.trace scenario=tests/data/traces/folded/four-replicas.json
new=$work/new.trace predicted=$work/predicted.trace

# rows TRACE: the names of its rows.
rows() { "$rehearse" render "$1" --text | sed -n 's/^\(rank [0-9]*\( (x[0-9]*)\)\{0,1\}\) *|.*/\1/p' | tr '\n' ','; }

"$rehearse" run "$scenario" --trace "$new" --json >"$work/new.json" || fail "does not run"
"$rehearse" run "$scenario" --dry-run --trace "$predicted" >"$work/out" || fail "--dry-run"
[ "$(rows "$new")" = "rank 0,rank 1,rank 2,rank 3," ] || fail "rows of a measured trace: $(rows "$new")"
[ "$(rows "$old")" = "rank 0 (x4)," ] || fail "rows of a trace of 0.1: $(rows "$old")"
[ "$(rows "$predicted")" = "rank 0 (x4)," ] || fail "rows of a prediction: $(rows "$predicted")"

# Ranks have times of their own.
"$rehearse" export "$new" --to csv "$work/new.csv" || fail "export csv"
begins=$(sed -n 's/.*,0F0,rank [0-9]*,//p' "$work/new.csv" | sort -u | wc -l)
[ "$begins" -eq 4 ] || fail "0F0 of four ranks has $begins different rows: $(grep 0F0 "$work/new.csv")"

for trace in "$old" "$new"; do
  "$rehearse" render "$trace" --svg "$work/a.svg" --png "$work/a.png" || fail "render $trace"
  for format in chrome perfetto csv; do
    "$rehearse" export "$trace" --to $format "$work/exported" || fail "export $trace --to $format"
  done
  "$rehearse" export "$trace" --to chrome "$work/again.json"
  "$rehearse" compare "$trace" "$work/again.json" | grep -q "^no op differs" || fail "$trace through Chrome's JSON"
  "$rehearse" view "$trace" --svg "$work/v.svg" || fail "view $trace"
  for other in "$predicted" "$old" "$new"; do
    # The executor's program is another than that of 0.1: its head has other values.
    if [ "$other" = "$trace" ] || [ "$trace$other" = "$new$predicted" ]; then
      "$rehearse" compare "$other" "$trace" --json >"$work/c.json" || fail "compare $other $trace"
    else
      refused 2 'the two traces are of different schedules' compare "$other" "$trace"
    fi
    "$rehearse" view "$other" "$trace" --svg "$work/v.svg" || fail "view $other $trace"
  done
done

# Beside a prediction every rank has its own row, in numbers and in the window.
"$rehearse" compare "$predicted" "$new" --json --worst 1000 >"$work/c.json"
for rank in 0 1 2 3; do
  grep -q "\"row\": \"rank $rank\"" "$work/c.json" || fail "compare: no op of rank $rank"
done
grep -q '"row": "rank 0 (x4)"' "$work/c.json" || fail "compare: ranks of equal memory are not one entry"
"$rehearse" view "$predicted" "$new" --height 1400 --svg "$work/v.svg"
[ "$(grep -c '>rank 3' "$work/v.svg")" -ge 2 ] || fail "view: rank 3 is not there twice"
# The slowest rank is said of what has ranks to tell apart, and of nothing else.
[ "$("$rehearse" compare "$predicted" "$new" | grep -c "^measured: slowest of equal ranks: rank [0-3] computes")" -eq 1 ] ||
  fail "compare: no slowest rank"
"$rehearse" compare "$old" "$old" | grep -q "slowest" && fail "compare: a slowest rank of one"
grep -A7 '"stragglers"' "$work/new.json" | grep -q '"ranks": 4' || fail "run --json: no stragglers"

# Over several processes, each of which has a part of the ranks.
case $("$rehearse" --version) in
  *gloo*)
    for processes in 2 4; do
      "$rehearse" run "$scenario" --processes $processes --trace "$work/p.trace" >"$work/out" || fail "$processes processes"
      [ "$(rows "$work/p.trace")" = "rank 0,rank 1,rank 2,rank 3," ] || fail "$processes processes: $(rows "$work/p.trace")"
      "$rehearse" compare "$new" "$work/p.trace" >"$work/out" || fail "$processes processes: compare"
    done ;;
  *) echo "folded_trace_test: SKIPPED: several processes: this build has no Gloo" ;;
esac
exit $status
