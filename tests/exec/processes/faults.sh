#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# SIGKILL and SIGSTOP of a random rank at a random moment, under our launcher and under torchrun's
# variables: the culprit is named, every rank ends, nobody is left behind.
# Usage: faults.sh REHEARSE [TIMES].
cd "$(dirname "$0")/../../.." || exit 2
rehearse=$1 times=${2:-20} timeout=10
. tests/exec/processes/processes.sh
RANDOM=${SEED:-$$}
scenario "$work/s.json" 4

# judge WHAT RANK SIGNAL: what the line must say.
judge() {
  # Two ranks a process: either may be named, both are listed.
  one_line "$work/err" "rank $2 |ranks $2-" "$1"
  if [ "$3" = KILL ]; then says="killed by signal 9|its connection closed"; else says="is stopped|not been heard of"; fi
  one_line "$work/err" "$says" "$1"
  one_line "$work/err" " in [^ ]+.* of step [0-9]+|before its first step|after its last op" "$1"
}

for i in $(seq "$times"); do
  signal=$([ $((i % 2)) -eq 0 ] && echo KILL || echo STOP)
  processes=$((2 + RANDOM % 2 * 2)) each=$((4 / processes)) victim=$((RANDOM % processes))
  export REHEARSE_NEIGHBORS=$((i / 2 % 2))  # by TCP, and by each other's memory
  moment=0.$((RANDOM % 900 + 100))
  rank=$((victim * each))
  layout=(--set plan.pipeline_parallel=4)
  [ $((RANDOM % 2)) -eq 0 ] && layout=(--set plan.data_parallel=4 --set plan.zero_stage=2)
  if [ $((i % 4)) -lt 3 ]; then
    what="fault $i: SIG$signal of process $victim of $processes, REHEARSE_NEIGHBORS=$REHEARSE_NEIGHBORS"
    "$rehearse" run "$work/s.json" "${layout[@]}" --steps 1000000 --timeout $timeout --processes $processes \
      --flight "$work/flight" >"$work/out" 2>"$work/err" & launcher=$!
    children $launcher $processes || fail "$what: the children do not come"
    pids=$(pgrep -P $launcher)
    sleep $moment
    kill -$signal "$(child $launcher $victim)"
    wait $launcher; code=$?
    judge "$what" $rank $signal
    [ $code -eq 3 ] || fail "$what: exit $code"
    grep -q '"rehearse.flight/1"' "$work/flight/rank-$rank.json" || fail "$what: no flight record"
    rm -rf "$work/flight"
    gone $pids
  else  # as torchrun starts them: no launcher watches; process 0 does, or the next where it is the victim
    what="fault $i: SIG$signal of process $victim of $processes, torchrun's variables"
    port=$((20000 + RANDOM % 12000)) pids=()
    for k in $(seq 0 $((processes - 1))); do
      RANK=$k WORLD_SIZE=$processes MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$rehearse" run "$work/s.json" \
        "${layout[@]}" --steps 1000000 --timeout $timeout --metrics "$work/met.jsonl" >"$work/out" 2>"$work/err.$k" & pids+=($!)
    done
    appears "$work/met.jsonl.partial" || fail "$what: no first step"  # all have met
    sleep $moment
    kill -$signal "${pids[$victim]}"
    for k in $(seq 0 $((processes - 1))); do
      [ "$k" -eq "$victim" ] && continue
      wait "${pids[$k]}"; code=$?
      [ $code -eq 3 ] || fail "$what: process $k exits $code"
    done
    cat "$work"/err.* >"$work/err"; rm "$work"/err.*
    judge "$what" $rank $signal
    kill -9 "${pids[$victim]}" 2>/dev/null  # whoever stopped it is its own launcher here
    wait "${pids[$victim]}" 2>/dev/null
    gone "${pids[@]}"
    rm -f "$work"/met.jsonl*
  fi
  [ -t 1 ] && echo "$what: $(cat "$work/err")"
done

# Both who would judge are gone: still one line, from whoever is left, and all end.
what="the host of the store and the next process killed at once, torchrun's variables"
port=$((20000 + RANDOM % 12000)) pids=()
mkdir "$work/tmp"
for k in 0 1 2 3; do
  RANK=$k WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TMPDIR=$work/tmp "$rehearse" run "$work/s.json" \
    --set plan.pipeline_parallel=4 --steps 1000000 --timeout $timeout --metrics "$work/both.jsonl" >"$work/out" 2>"$work/err.$k" & pids+=($!)
done
appears "$work/both.jsonl.partial" || fail "$what: no first step"  # all have met
kill -KILL "${pids[0]}" "${pids[1]}"
wait "${pids[0]}" "${pids[1]}" 2>/dev/null
for k in 2 3; do
  wait "${pids[$k]}"; code=$?
  [ $code -eq 3 ] || fail "$what: process $k exits $code"
done
cat "$work"/err.* >"$work/err"; rm "$work"/err.*
judge "$what" 0 KILL
gone "${pids[@]}"
exit $status
