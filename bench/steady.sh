#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A long step from a short one, and many GPUs: 25 random plans of every schedule whose two reports
# must be equal (PLANS says how many), then CPU seconds (user, system) and memory of steps that are a
# thousand times as long, and of clusters that are a thousand times as large.
# Usage: bench/steady.sh [BUILD], default build/release.
set -e
cd "$(dirname "$0")/.."
build=${1:-build/release}
STEADY_PLANS=${PLANS:-25} "$build/bin/steady_state_test"
predict() {  # what it says of itself, with CPU seconds and the most memory
  /usr/bin/time -f '%U + %S s, %M kB' "$build/bin/rehearse" simulate gpt3-175b-1024 --json "$@" \
    2>&1 >/dev/null | tail -1
}
for schedule in 1f1b eager_1f1b interleaved_1f1b zb_h1 zb_h2 interleaved_zb1p zb_v v_half v_min 1f1b_v dualpipe dualpipev \
  chimera chimera_forward_doubling hanayo bitpipe seq_1f1b seq_zb_h1; do
  chunks=null
  case $schedule in interleaved*) chunks=3 ;; esac
  for m in 96 1000 100000; do
    printf '%s, %s micro-batches: ' $schedule $m
    predict --set plan.schedule=$schedule --set plan.virtual_stages=$chunks \
      --set plan.global_batch=$((16 * m))
  done
done
for replicas in 16 2048 16384; do
  printf '%s GPUs: ' $((64 * replicas))
  predict --gpus $((64 * replicas)) --set plan.data_parallel=$replicas \
    --set plan.global_batch=$((96 * replicas))
done
