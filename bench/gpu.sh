#!/usr/bin/env bash
# Everything that needs a GPU, in one run of less than 9 minutes: kernels, NCCL, layouts and bf16 against the CPU, speed
# beside PyTorch, calibration and prediction. Writes one folder of results, summary.md first, and OUT.tar.gz of it.
#
#   bench/gpu.sh pack          where everything can be built: puts what the GPU's machine needs into build/gpu-pack
#   bench/gpu.sh [OUT]         on the GPU's machine (driver, CUDA's and NCCL's libraries; no compiler, no network, no
#                              packages): runs the pack, or what was built there. OUT: build/gpu
#   DEVICE=cpu bench/gpu.sh    rehearses the script itself without a GPU
#
# A step that fails or takes too long is noted and the next one runs; SECONDS_IN_ALL (520) ends the programme early.
set -uo pipefail
cd "$(dirname "$0")/.."
device=${DEVICE:-cuda}
pack=build/gpu-pack

if [ "${1:-}" = pack ]; then
  set -e
  # shellcheck disable=SC1007
  [ -f build/release/build.ninja ] || ./run build
  targets=(rehearse exec_cuda cuda_kernels_test)
  cmake --build --preset release --target "${targets[@]}" >build/gpu-pack.log 2>&1 || { tail -20 build/gpu-pack.log; exit 2; }
  rm -rf "$pack" && mkdir -p "$pack/bin" "$pack/lib"
  cp build/release/bin/{rehearse,libexec_cuda.so,cuda_kernels_test} "$pack/bin"
  strip "$pack"/bin/*
  # Libraries of packages; the C library, CUDA and NCCL are the machine's own.
  ldd "$pack/bin/rehearse" "$pack/bin/cuda_kernels_test" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|libpthread|librt|libcudart|libcublasLt|libnccl|libcuda)\.so' | xargs -I{} cp -L {} "$pack/lib"
  git rev-parse --short HEAD >"$pack/commit"
  echo "$pack: $(du -sh "$pack" | cut -f1)"
  exit
fi

out=${1:-build/gpu}
mkdir -p "$out"
summary=$out/summary.md
: >"$summary"
limit=${SECONDS_IN_ALL:-520}
note() { echo "$*" | tee -a "$summary"; }
left() { echo $((limit - SECONDS)); }
trap 'tar -czf "$out.tar.gz" -C "$(dirname "$out")" "$(basename "$out")"; echo "results: $summary, $out.tar.gz"' EXIT

# attempt NAME SECONDS COMMAND...: stdout in NAME.out, stderr in NAME.err; says why it failed.
attempt() {
  local name=$1 seconds=$2 began=$SECONDS status
  shift 2
  [ "$(left)" -lt "$seconds" ] && seconds=$(left)
  [ "$seconds" -le 3 ] && { note "- $name: not run, the time is over"; return 1; }
  timeout -k 5 "$seconds" "$@" >"$out/$name.out" 2>"$out/$name.err"
  status=$?
  echo "$name: exit $status after $((SECONDS - began)) s" | tee -a "$out/steps.txt"
  [ $status -eq 0 ] && return 0
  note "- **$name failed** (exit $status$([ $status -eq 124 ] && echo ", over $seconds s")): $(tail -1 "$out/$name.err" | cut -c1-200)"
  return 1
}

bin=build/release/bin
[ -d "$pack/bin" ] && bin=$pack/bin
[ -x "$bin/rehearse" ] || { note "nothing to run: bench/gpu.sh pack, or ./run build"; exit 2; }
libraries=$PWD/$pack/lib:/usr/local/cuda/lib64:/usr/local/cuda/lib
for folder in $(python3 -c 'import glob, site, sys; print(*(f for p in {*site.getsitepackages(), *sys.path} for f in glob.glob(p + "/nvidia/*/lib")))' 2>/dev/null); do
  libraries=$libraries:$folder  # CUDA as Python packages bring it
done
# For our programs alone: PyTorch brings its own.
ours=(env "LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
export REHEARSE_SCENARIOS=${REHEARSE_SCENARIOS:-$PWD/scenarios}  # the pack was built elsewhere
rehearse=("${ours[@]}" "$bin/rehearse")
report() { python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); print(eval(sys.argv[2], {"r": r}))' "$out/$1.out" "$2"; }

# --- the machine --------------------------------------------------------------
if [ "$device" = cuda ]; then
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader >"$out/device.csv" 2>&1 ||
    { note "no GPU: $(head -1 "$out/device.csv")"; exit 3; }
  note "# $(head -1 "$out/device.csv")"
  nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu --format=csv -lms 500 >"$out/clocks.csv" 2>/dev/null &
  watcher=$!
  trap 'kill $watcher 2>/dev/null; tar -czf "$out.tar.gz" -C "$(dirname "$out")" "$(basename "$out")"; echo "results: $summary, $out.tar.gz"' EXIT
else
  note "# a rehearsal of bench/gpu.sh on a CPU: nothing here is a measurement of a GPU"
fi
note "$(date -u +%F), commit $(cat "$pack/commit" 2>/dev/null || git rev-parse --short HEAD 2>/dev/null || echo unknown)"

tiny=scenarios/tiny-gpt-4-ranks.json
one=(--set plan.tensor_parallel=1 --set plan.pipeline_parallel=1 --set plan.sequence_parallel=false --set plan.schedule=1f1b
  --set plan.virtual_stages=1 --set plan.zero_stage=0 --set plan.data_parallel=1 --set gpus=null)
attempt first_step 60 "${rehearse[@]}" run "$tiny" --device "$device" --steps 2 --json "${one[@]}" --set plan.precision=fp32 &&
  note "- two steps of a tiny model: losses $(report first_step 'r["losses"]')"

# --- kernels, NCCL, layouts ---------------------------------------------------
if [ "$device" = cuda ]; then
  attempt kernels 100 "${ours[@]}" "$bin/cuda_kernels_test" --gtest_brief=1
  note "- kernels against the CPU: $(grep -E '^\[ +(PASSED|FAILED) +\] [0-9]+ test' "$out/kernels.out" | tr '\n' ' ')"
  two=(--steps 5 --json "${one[@]}" --set plan.precision=fp32 --set plan.pipeline_parallel=2 --set gpus=2)
  for rank in 0 1; do  # two processes on one GPU: each another host to NCCL
    NCCL_HOSTID=rehearse$rank NCCL_SOCKET_IFNAME=lo NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_IB_DISABLE=1 NCCL_MAX_CTAS=2 \
      RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29561 \
      timeout -k 5 60 "${rehearse[@]}" run "$tiny" --device cuda "${two[@]}" >"$out/nccl_$rank.out" 2>"$out/nccl_$rank.err" &
    pids[rank]=$!
  done
  wait "${pids[0]}" && wait "${pids[1]}" && note "- NCCL, two processes on one GPU: losses $(report nccl_0 r[\"losses\"])" ||
    note "- **NCCL, two processes on one GPU failed**: $(cat "$out"/nccl_[01].err | tail -1)"
fi

worst() { python3 -c 'import json, sys; a, b = (json.load(open(f))["losses"] for f in sys.argv[1:]); print("%.2g" % max(abs(x / y - 1) for x, y in zip(a, b)))' "$out/$1.out" "$out/$2.out"; }
note ""
note "| layout, fp32, 10 steps | largest relative difference of losses from the CPU's |"
note "|---|---|"
for layout in "pipeline_parallel=1" "pipeline_parallel=2" "tensor_parallel=2" "context_parallel=2" "data_parallel=2 zero_stage=1" \
  "data_parallel=2 zero_stage=3" "tensor_parallel=2 pipeline_parallel=2" "pipeline_parallel=4 schedule=zb_h1"; do
  keys=(--steps 10 --json "${one[@]}" --set plan.precision=fp32)
  for key in $layout; do keys+=(--set "plan.$key"); done
  name=$(tr ' =' '__' <<<"$layout")
  attempt "cpu_$name" 30 "${rehearse[@]}" run "$tiny" --device cpu "${keys[@]}" &&
    attempt "gpu_$name" 30 "${rehearse[@]}" run "$tiny" --device "$device" "${keys[@]}" &&
    note "| $layout | $(worst "gpu_$name" "cpu_$name") |"
done
note ""
hundred=(--device "$device" --steps 100 --json "${one[@]}")
attempt fp32 40 "${rehearse[@]}" run "$tiny" "${hundred[@]}" --set plan.precision=fp32 &&
  attempt bf16 40 "${rehearse[@]}" run "$tiny" "${hundred[@]}" --set plan.precision=bf16 &&
  note "- bf16 against fp32 over 100 steps: losses within $(worst bf16 fp32)"

# --- speed, beside PyTorch in the same job -------------------------------------
scenario() {  # scenario MODEL MICRO_BATCH STEPS
  cat >"$out/$1.json" <<JSON
{"name": "$1", "model": "models/$1.json", "cluster": "clusters/dgx-h200.json", "gpus": 1,
 "plan": {"micro_batch": $2, "global_batch": $((2 * $2)), "sequence_length": 1024, "precision": "bf16", "dropout": 0},
 "train": {"steps": $3}}
JSON
}
speed() {  # speed MODEL MICRO_BATCH: ours, then PyTorch's
  attempt "ours_$1" 70 "${rehearse[@]}" run "$out/$1.json" --device "$device" --json --trace "$out/$1.measured.trace" &&
    note "- $1, ours: $(report "ours_$1" '"%.0f tokens/s, step %.1f ms, planned %d B" % (r["tokens_per_s"], 1e3 * r["step_time_s"], r["peak_planned_bytes"])')"
  [ "$device" = cuda ] && python3 -c 'import torch' 2>/dev/null || return
  attempt "torch_$1" 110 python3 bench/peers/torch_gpt2_gpu.py --model "$1" --batch "$2" &&
    note "- $1, PyTorch: $(report "torch_$1" '"%.0f tokens/s, step %.1f ms, peak %d B, %s" % (r["tokens_per_s"], r["ms"], r["peak_bytes"], r["version"])')"
}
if [ "$device" = cuda ]; then
  scenario gpt2-124m 32 30
  scenario gpt2-1.5b 8 15
  speed gpt2-124m 32
else
  cp "$tiny" "$out/gpt2-124m.json"
fi

# --- calibration, and a step predicted from it ---------------------------------
attempt calibrate 100 "${rehearse[@]}" calibrate --device "$device" --quick --scenario "$out/gpt2-124m.json" -o "$out/machine.json" && {
  head -3 "$out/calibrate.out" | sed 's/^/- /' | tee -a "$summary"
  attempt predicted 30 "${rehearse[@]}" run "$out/gpt2-124m.json" --device "$device" --dry-run --json --cluster "$out/machine.cluster.json" &&
    note "- gpt2-124m predicted: step $(report predicted '"%.1f ms" % (1e3 * r["step_time_s"])')"
}
[ "$device" = cuda ] && speed gpt2-1.5b 8
[ "$device" = cuda ] && command -v compute-sanitizer >/dev/null &&
  attempt sanitizer 90 "${ours[@]}" compute-sanitizer --error-exitcode 9 "$bin/cuda_kernels_test" --gtest_brief=1 --gtest_filter='*Attention*:*Norm*:*Loss*' &&
  note "- compute-sanitizer: $(grep -h 'ERROR SUMMARY' "$out/sanitizer.out" | head -1)"
note "- $SECONDS s in all"
