#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `rehearse calibrate --device cuda` as one process and as three that torchrun would start, on the DOUBLE of cudart and
# NCCL: what is written, and who says what when one of them dies. Usage: calibrate_test.sh REHEARSE.
cd "$(dirname "$0")/../.." || exit 2
rehearse=$1
. tests/exec/processes/processes.sh
export TMPDIR=$work  # where the double's ranks meet
export REHEARSE_DOUBLE_IDLES_IN_BF16=1  # calibrate measures bf16, which the double's kernels have not
case $("$rehearse" --version) in *gloo*) ;; *) echo "SKIPPED: this build has no Gloo"; exit 0 ;; esac

"$rehearse" calibrate --device cuda --quick -o "$work/alone.json" >"$work/out" 2>"$work/err" || fail "alone: $(cat "$work/err")"
grep -q "0 collectives" "$work/out" || fail "alone: collectives: $(cat "$work/out")"

member() {  # member K: process K of three
  RANK=$1 WORLD_SIZE=3 LOCAL_RANK=$1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port exec "$rehearse" calibrate --device cuda \
    --quick -o "$work/three.json" >"$work/out.$1" 2>"$work/err.$1"
}
port=$((20000 + $$ % 12000))  # below those that the system lends
for k in 1 2; do member $k & pids[k]=$!; done
(member 0) || fail "process 0: $(cat "$work/err.0")"
for k in 1 2; do
  wait "${pids[k]}" || fail "process $k: $(cat "$work/err.$k")"
  [ -s "$work/out.$k" ] && fail "process $k prints"
done
grep -q " 24 collectives" "$work/out.0" || fail "not six collectives of two sizes over two and three ranks: $(cat "$work/out.0")"
python3 - "$work/three.json" "$work/three.cluster.json" <<'PY' || fail "what three processes wrote"
import json, sys
calibration, cluster = (json.load(open(f)) for f in sys.argv[1:])
ranks = sorted({c["ranks"] for c in calibration["collectives"]})
assert ranks == [2, 3], ranks
assert cluster["gpus_per_node"] == 3, cluster
PY
"$rehearse" run scenarios/tiny-gpt-4-ranks.json --dry-run --device cuda --cluster "$work/alone.cluster.json" >/dev/null 2>"$work/err" \
  --set plan.pipeline_parallel=1 --set plan.tensor_parallel=1 --set plan.data_parallel=1 --set plan.sequence_parallel=false \
  --set plan.schedule=1f1b --set plan.virtual_stages=1 --set plan.zero_stage=0 --set plan.precision=bf16 --set gpus=1 ||
  fail "the cluster file predicts nothing: $(cat "$work/err")"

# One dies while all measure: the others end with 3, and one line of one of them names it.
export REHEARSE_DOUBLE_REPETITIONS=1000
for victim in 2 0; do
  port=$((port + 1))
  rm -rf "$work"/err.* "$work"/three* "$work"/nccl_double_*
  for k in 0 1 2; do member $k & pids[k]=$!; done
  for _ in $(seq 6000); do  # until all have met, and measure
    [ "$(ls "$work"/nccl_double_*/s0_[012] 2>/dev/null | wc -l)" -eq 3 ] && break
    sleep 0.1
  done
  kill -KILL "${pids[victim]}" || fail "victim $victim: has ended already"
  wait "${pids[victim]}" 2>/dev/null
  for k in 0 1 2; do
    [ $k -eq $victim ] && continue
    wait "${pids[k]}"; code=$?
    [ $code -eq 3 ] || fail "victim $victim: process $k exits $code"
  done
  cat "$work"/err.* >"$work/err"
  one_line "$work/err" "rank $victim" "victim $victim"
  [ -e "$work/three.json" ] && fail "victim $victim: a calibration was written"
done
exit $status
