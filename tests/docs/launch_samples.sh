#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The samples of docs/launch: their numbers fit, and what their pods run gives one process's numbers, here as two pods of two
# processes (JobSet) and four of one (PyTorchJob) on this host, without GPUs.
# Usage: launch_samples.sh REHEARSE.
cd "$(dirname "$0")/../.." || exit 2
rehearse=$1
case $("$rehearse" --version) in *gloo*) ;; *) echo "SKIPPED: this build has no Gloo"; exit 77 ;; esac
. tests/exec/processes/processes.sh
python3 tests/docs/launch_samples.py "$work" || exit $?
bash -n docs/launch/slurm.sh || fail "slurm.sh is no shell script"
PATH=$(dirname "$rehearse"):$PATH
export PATH SCENARIO=$work/s.json MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 12000)) PODS=2 GPUS=2
scenario "$SCENARIO" 4
sed -i 's/"plan": {/"plan": {"pipeline_parallel": 4, /' "$SCENARIO"
"$rehearse" run "$SCENARIO" >"$work/one" || fail "one process"
steps() { awk '$NF ~ /^[0-9]+$/ && $1 ~ /^[0-9]+$/ { print $1, $2, $3, $4 }' "$1"; }  # loss, norm and rate of each

# pods SAMPLE N VARIABLE...: as many containers; the first one's output in pod.0.
pods() {
  sample=$1 n=$2; shift 2
  pids=()
  for k in $(seq 0 $((n - 1))); do
    env JOB_COMPLETION_INDEX="$k" "$@" $([ "$sample" = pytorchjob ] && echo RANK="$k" WORLD_SIZE="$n") \
      bash -c "$(cat "$work/$sample.sh")" >"$work/pod.$k" 2>"$work/err.$k" &
    pids+=($!)
  done
}
for sample in "jobset 2" "pytorchjob 4"; do
  export MASTER_PORT=$((MASTER_PORT + 2))
  pods $sample
  for k in "${!pids[@]}"; do wait "${pids[$k]}" || fail "$sample: pod $k: $(cat "$work/err.$k")"; done
  [ "$(steps "$work/one" | wc -l)" = 3 ] && [ "$(steps "$work/pod.0")" = "$(steps "$work/one")" ] ||
    fail "$sample: other numbers: $(diff <(steps "$work/pod.0") <(steps "$work/one"))"
done

# A process of a pod that dies ends that pod, and the run.
export MASTER_PORT=$((MASTER_PORT + 2))
sed -i 's/"steps": 3/"steps": 1000000/' "$SCENARIO"
pods jobset 2
until [ "$(pgrep -cP "${pids[1]}" -x rehearse)" = 2 ]; do sleep 0.1; done
kill -9 "$(pgrep -P "${pids[1]}" -x rehearse | head -1)"
for k in 0 1; do wait "${pids[$k]}" && fail "pod $k goes on after a process of pod 1 was killed"; done
exit $status
