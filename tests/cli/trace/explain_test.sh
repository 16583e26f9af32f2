#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# rehearse explain: scenarios, reports and traces against one another, predicted and measured; the causes of every answer
# add up to the difference, in whole nanoseconds. usage: explain_test.sh REHEARSE
cd "$(dirname "$0")/../../.." || exit 2
rehearse=$1
. tests/command.sh

cat >"$work/adds_up.py" <<'PY'
import json, sys
e = json.load(open(sys.argv[1]))
assert e["schema"] == "rehearse.explanation/1", e["schema"]
assert sum(c["a_ns"] for c in e["causes"]) == e["a"]["step_ns"], "a"
assert sum(c["b_ns"] for c in e["causes"]) == e["b"]["step_ns"], "b"
assert sum(c["difference_ns"] for c in e["causes"]) == e["difference_ns"] == e["b"]["step_ns"] - e["a"]["step_ns"]
assert all(isinstance(c[k], int) for c in e["causes"] for k in ("a_ns", "b_ns", "difference_ns"))
assert e["sentence"].startswith("B takes "), e["sentence"]
for side, label in zip("ab", sys.argv[2:]):
    assert e[side]["label"] == label, (side, e[side]["label"])
PY
adds_up() {  # A B LABEL_A LABEL_B [FLAGS]
  a=$1 b=$2 label_a=$3 label_b=$4; shift 4
  "$rehearse" explain "$a" "$b" --json "$@" >"$work/e.json" || { fail "explain $a $b"; return; }
  python3 "$work/adds_up.py" "$work/e.json" "$label_a" "$label_b" || fail "explain $a $b $*"
}

# A prediction, its report and its trace are one step.
"$rehearse" simulate tiny-gpt-4-ranks --json --trace "$work/p.trace" >"$work/p.json" || fail "simulate"
for one in tiny-gpt-4-ranks "$work/p.json" "$work/p.trace"; do
  for other in tiny-gpt-4-ranks "$work/p.json" "$work/p.trace"; do
    adds_up "$one" "$other" predicted predicted
    grep -q '"difference_ns": 0,' "$work/e.json" || fail "$one and $other differ"
  done
done

# Predicted against measured, as traces and as reports.
"$rehearse" run tiny-gpt-4-ranks --steps 3 --trace "$work/m.trace" --json >"$work/m.json" 2>/dev/null || fail "run"
adds_up "$work/p.trace" "$work/m.trace" predicted measured
adds_up "$work/p.json" "$work/m.json" predicted measured
adds_up tiny-gpt-4-ranks "$work/m.json" predicted measured
adds_up "$work/m.json" "$work/m.trace" measured measured

# Another schedule, another number of GPUs, a profile of PyTorch.
adds_up 3d-8-gpus 3d-8-gpus predicted predicted --set plan.schedule=gpipe
adds_up 3d-8-gpus gpt3-175b-1024 predicted predicted
adds_up 3d-8-gpus tests/data/viz/kineto_sample.json predicted measured
adds_up tests/data/viz/kineto_sample.json.gz tests/data/viz/kineto_pipeline measured measured
says "keys that differ" explain 3d-8-gpus 3d-8-gpus --set plan.schedule=gpipe
says "plan.schedule: 1f1b -> gpipe" explain 3d-8-gpus 3d-8-gpus --set plan.schedule=gpipe
says "per token" explain 3d-8-gpus gpt3-175b-1024
says "B takes as long as A, for the same causes." explain 3d-8-gpus 3d-8-gpus
"$rehearse" simulate 3d-8-gpus --json | "$rehearse" explain 3d-8-gpus - --json >/dev/null 2>&1 &&
  fail "a report on standard input is taken for a scenario"

# The picture has a bar for each cause, and is the same each time.
"$rehearse" explain 3d-8-gpus 3d-8-gpus --set plan.schedule=gpipe --svg "$work/a.svg" >/dev/null || fail "--svg"
"$rehearse" explain 3d-8-gpus 3d-8-gpus --set plan.schedule=gpipe --svg "$work/b.svg" >/dev/null || fail "--svg"
cmp -s "$work/a.svg" "$work/b.svg" || fail "two pictures of one answer differ"
python3 -c "import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])" "$work/a.svg" || fail "the picture is no XML"
grep -q "B takes" "$work/a.svg" || fail "the picture has no sentence"

refused 2 "nothing.trace" explain 3d-8-gpus nothing.trace
refused 2 "ends in .svg" explain 3d-8-gpus 3d-8-gpus --svg "$work/a.png"
refused 2 "set changes a scenario; this is a trace" explain 3d-8-gpus "$work/p.trace" --set plan.schedule=gpipe
refused 2 "set changes a scenario; this is a report" explain 3d-8-gpus "$work/p.json" --set plan.schedule=gpipe
refused 2 "the nearest known one is schedule" explain 3d-8-gpus 3d-8-gpus --set plan.schedul=gpipe
echo '{"schema": "rehearse.comparison/1"}' >"$work/c.json"
refused 2 "rehearse.comparison/1 is no report of a step" explain 3d-8-gpus "$work/c.json"
echo '{"traceEvents": []}' >"$work/c.json"
refused 2 "no events" explain 3d-8-gpus "$work/c.json"
exit $status
