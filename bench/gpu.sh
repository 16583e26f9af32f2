#!/usr/bin/env bash
# Everything that needs a GPU, in one run: tests, layouts both ways, fp32 against the CPU, bf16 against
# fp32, throughput beside PyTorch where it is installed. Writes one folder of results.
#
#   bench/gpu.sh [OUT]          (from the project's root; OUT: build/gpu)
#
# Nobody has run it on a GPU yet: expect to mend it.
set -uo pipefail
out=${1:-build/gpu}
mkdir -p "$out"
run=build/release/bin/rehearse
summary=$out/summary.md
step() { echo "== $*" | tee -a "$out/log"; }
note() { echo "$*" | tee -a "$summary"; }

nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv >"$out/device.csv" 2>&1 ||
  { echo "gpu.sh: no GPU: $(head -1 "$out/device.csv")"; exit 3; }
: >"$summary"
note "# $(tail -1 "$out/device.csv")"
note "$(date -u +%Y-%m-%d), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
./run build || exit 2
note ""
"$run" --version | tee -a "$summary"

step "kernels against the CPU (label gpu)"
ctest --preset release -L gpu 2>&1 | tee "$out/kernels.txt" | tail -5 | tee -a "$summary"

tiny=scenarios/tiny-gpt-4-ranks.json
losses() { python3 -c 'import json,sys; r=json.load(open(sys.argv[1])); print(" ".join("%.9g" % x for x in r["losses"]))' "$1"; }
worst() {  # worst A B: largest relative difference of their losses
  python3 - "$1" "$2" <<'PY'
import json, sys
a, b = (json.load(open(f))["losses"] for f in sys.argv[1:])
print("%.3g" % max(abs(x / y - 1) for x, y in zip(a, b)))
PY
}
train() {  # train NAME ARGS...: the report in $out/NAME.json
  local name=$1; shift
  timeout 120 "$run" run "$tiny" --json "$@" >"$out/$name.json" 2>"$out/$name.err" ||
    { note "| $name | FAILED | $(head -1 "$out/$name.err") |"; return 1; }
}

step "layouts on one GPU, fp32, against the CPU"
note ""
note "| layout | largest relative difference of 10 losses |"
note "|---|---|"
layouts=("pipeline_parallel=1" "pipeline_parallel=2" "tensor_parallel=2" "data_parallel=2 zero_stage=1"
  "data_parallel=2 zero_stage=3" "tensor_parallel=2 pipeline_parallel=2" "pipeline_parallel=4 schedule=zb_h1")
for layout in "${layouts[@]}"; do
  keys=(--steps 10 --set plan.precision=fp32 --set plan.tensor_parallel=1 --set plan.pipeline_parallel=1
    --set plan.sequence_parallel=false --set plan.schedule=1f1b --set plan.virtual_stages=1 --set plan.zero_stage=0
    --set plan.data_parallel=1 --set gpus=null)
  for key in $layout; do keys+=(--set "plan.$key"); done
  name=$(tr ' =' '__' <<<"$layout")
  train "cpu_$name" --device cpu "${keys[@]}" && train "cuda_$name" --device cuda "${keys[@]}" &&
    note "| $layout | $(worst "$out/cuda_$name.json" "$out/cpu_$name.json") |"
done

step "NCCL: two processes on one GPU, each with its own host id"
port=29561
for rank in 0 1; do
  NCCL_HOSTID=rehearse$rank NCCL_SOCKET_IFNAME=lo NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_IB_DISABLE=1 \
    NCCL_MAX_CTAS=2 RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
    timeout 120 "$run" run "$tiny" --device cuda --steps 5 --json --set plan.precision=fp32 --set plan.tensor_parallel=1 \
    --set plan.pipeline_parallel=2 --set plan.virtual_stages=1 --set plan.schedule=1f1b --set plan.sequence_parallel=false \
    --set plan.data_parallel=1 --set gpus=2 >"$out/nccl_$rank.json" 2>"$out/nccl_$rank.err" &
done
wait
[ -s "$out/nccl_0.json" ] && note "NCCL, two processes: losses $(losses "$out/nccl_0.json")" ||
  note "NCCL, two processes: FAILED $(head -1 "$out/nccl_0.err")"

step "bf16 against fp32, 100 steps"
train bf16 --device cuda --steps 100 --set plan.precision=bf16 && train fp32 --device cuda --steps 100 --set plan.precision=fp32 &&
  note "bf16 against fp32, 100 steps: losses within $(worst "$out/bf16.json" "$out/fp32.json")"

step "GPT-2 throughput, bf16, T = 1024"
for model in gpt2-124m gpt2-1.5b; do
  batch=$([ $model = gpt2-124m ] && echo 32 || echo 8)
  cat >"$out/$model.scenario.json" <<JSON
{"name": "$model", "model": "models/$model.json", "cluster": "clusters/dgx-a100-80gb.json", "gpus": 1,
 "plan": {"micro_batch": $batch, "global_batch": $((2 * batch)), "sequence_length": 1024, "precision": "bf16"}, "train": {"steps": 30}}
JSON
  timeout 180 "$run" run "$out/$model.scenario.json" --device cuda --json >"$out/$model.json" 2>"$out/$model.err" &&
    note "$model: $(python3 -c 'import json,sys; r=json.load(open(sys.argv[1])); print("%.0f tokens/s, step %.2f ms, planned %d B" % (r["tokens_per_s"], 1e3 * r["step_time_s"], r["peak_planned_bytes"]))' "$out/$model.json")" ||
    note "$model: FAILED $(head -1 "$out/$model.err")"
done
echo "results: $summary"
