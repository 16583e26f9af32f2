#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sizes that would take minutes or memory that is not there are refused by an estimate, at once, in
# one line: each within seconds and 2 GB of address space. Usage: too_large.sh REHEARSE.
cd "$(dirname "$0")/../.." || exit 2
rehearse=$1
. tests/command.sh
ulimit -v 2000000
ulimit -t 20  # seconds of work, each

refused 2 "--microbatches: v_min is searched for" schedule --schedule v_min --stages 100000 --microbatches 8
refused 2 "--microbatches: zb_2p is searched for" schedule --schedule zb_2p --stages 20000 --microbatches 40000
refused 2 "--microbatches: zb_v is searched for" schedule --schedule zb_v --stages 20000 --microbatches 8
refused 2 "plan.global_batch: 960000 micro-batches make a schedule of about" \
  simulate scenarios/gpt3-175b-1024.json --set plan.global_batch=15360000
( ulimit -v 800000 && refused 2 "plan.global_batch: 20000 micro-batches .* which take 1.2 GB: this machine gives 0.8" \
  simulate scenarios/gpt3-175b-1024.json --set plan.global_batch=320000 && exit $status ) || status=1
# Global batches of 64e6 and 2^31 under FSDP, 2^32 with micro_batch auto.
refused 2 "plan.global_batch" simulate scenarios/dp-zero3.json --set plan.global_batch=64000000
refused 2 "plan.global_batch" simulate scenarios/dp-zero3.json --set plan.global_batch=2147483648
refused 2 "plan.global_batch" simulate scenarios/microbatch-sweep.json --set plan.micro_batch=auto \
  --set plan.global_batch=4294967296
refused 2 "plan.global_batch" run scenarios/dp-zero3.json --set plan.global_batch=64000000 \
  --set plan.dropout=0 --set plan.precision=fp32

# Orders alone: 2^24 compute ops.
for shape in "1f1b --stages 4096 --microbatches 4096" "chimera --stages 1000 --microbatches 20000" \
  "interleaved_1f1b --stages 1000 --microbatches 1000 --chunks 30" \
  "dualpipe --stages 1000 --microbatches 20000"; do
  refused 2 "--microbatches: .* million ops, more than the 16.8 that are timed" schedule --schedule $shape
done
# A search whose every plan has millions of micro-batches, and one thread of which finds no memory (ranks that
# differ: a step that repeats is predicted from a short one, which takes none).
refused 2 "plan.global_batch: 134217728 samples a step .* than the 1.0 million ops that are searched" \
  plan llama3-70b --gpus 8 --on dgx-h100 --global-batch 134217728 --set plan.micro_batch=1
( ulimit -v 120000 && refused 3 "not enough memory on this machine" \
  plan llama3-70b --gpus 1024 --on dgx-h100 --global-batch 65536 --set variation.speed_sigma=0.1 && exit $status ) || status=1
# Eight ranges of replicas that differ, 30,000 micro-batches each: 8 x 20 x 30,000 ops.
( ulimit -v 1000000 && refused 2 "variation: replicas that differ are .* million ops, which take .* GB: this machine gives 1.0" \
  simulate scenarios/pipeline-1f1b.json --set plan.data_parallel=8 --set gpus=32 --set plan.micro_batch=1 \
  --set plan.global_batch=240000 --set variation.speed_sigma=0.1 && exit $status ) || status=1
# Replicas that differ on 131,072 GPUs: what tells rows apart is kept for the rows, not for every GPU.
"$rehearse" simulate scenarios/gpt3-175b-1024.json --set gpus=131072 --set plan.data_parallel=2048 \
  --set plan.global_batch=196608 --set variation.speed_sigma=0.02 >/dev/null || fail "131,072 GPUs that differ"
# More than 2^58 bytes.
refused 2 "plan.micro_batch: a micro-batch of 134217728 tokens a GPU may keep" \
  simulate scenarios/3d-8-gpus.json --set plan.micro_batch=32768 --set plan.global_batch=65536 \
  --set model.vocab_size=134217728
refused 2 "model.v_head_dim: heads x v_head_dim is beyond 2.20" simulate scenarios/deepseek-v3-2048.json \
  --set model.v_head_dim=1000000

# 640,000 ops with the arena planned, most of whose values live at one time: not the square of that.
"$rehearse" simulate scenarios/pipeline-gpipe.json --set plan.runtime=rehearse --set plan.dropout=0 \
  --set plan.global_batch=32000 >/dev/null || fail "an arena of 640,000 ops"

# The largest that the planner takes is done in that time.
"$rehearse" schedule --schedule zb_1p --stages 2000 --microbatches 100 --format json >/dev/null ||
  fail "zb_1p of 2,000 positions"
exit $status
