#!/usr/bin/env bash
# Everything that needs a GPU, in one run of less than 9 minutes: kernels, layouts in one process and over NCCL, gradients
# and bf16 against the CPU, speed beside PyTorch, calibration and steps predicted from it, memory, compute-sanitizer.
# Writes one folder of results, summary.md first (each target, and whether it was reached), and OUT.tar.gz of it.
#
#   bench/gpu.sh pack            where everything can be built: puts what the GPU's machine needs into build/gpu-pack
#   bench/gpu.sh [OUT]           on the GPU's machine (driver, CUDA's and NCCL's libraries; no compiler, no network, no
#                                packages): runs the pack, or what was built there. OUT: build/gpu
#   DEVICE=double bench/gpu.sh   rehearses every part without a GPU, on the tests' doubles and in tiny sizes
#   DEVICE=cpu bench/gpu.sh      rehearses what a CPU can do of it
#
# A part that fails or takes too long is noted and the next one runs; SECONDS_IN_ALL (520) ends the programme early.
# PYTHON: where PyTorch is, if not in python3. PARTS: only the parts whose name in steps.txt matches this expression.
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
rm -rf "$out" && mkdir -p "$out"
out=$(cd "$out" && pwd)
summary=$out/summary.md
: >"$summary"
limit=${SECONDS_IN_ALL:-520}
python=${PYTHON:-python3}
note() { echo "$*" | tee -a "$summary"; }
left() { echo $((limit - SECONDS)); }
watcher=
trap '[ -n "$watcher" ] && kill $watcher 2>/dev/null; tar -czf "$out.tar.gz" -C "$(dirname "$out")" "$(basename "$out")"; echo "results: $summary, $out.tar.gz"' EXIT

# attempt NAME SECONDS COMMAND...: stdout in NAME.out, stderr in NAME.err; says why it failed.
attempt() {
  local name=$1 seconds=$2 began=$SECONDS status
  shift 2
  [[ $name =~ ${PARTS:-.} ]] || return 1
  [ "$(left)" -lt "$seconds" ] && seconds=$(left)
  [ "$seconds" -le 3 ] && { note "- $name: not run, the time is over"; return 1; }
  timeout -k 5 "$seconds" "$@" >"$out/$name.out" 2>"$out/$name.err"
  status=$?
  echo "$name: exit $status after $((SECONDS - began)) s" | tee -a "$out/steps.txt"
  [ $status -eq 0 ] && return 0
  note "- **$name failed** (exit $status$([ $status -eq 124 ] && echo ", over $seconds s")): $(grep -v '^ *$' "$out/$name.err" | tail -1 | cut -c1-200)"
  return 1
}
# say TEXT REPORT ARGUMENTS...: a line of gpu_report.py behind TEXT, or why there is none.
report() { "$python" bench/gpu_report.py "$@" 2>"$out/report.err" || echo "**not known**: $(tail -1 "$out/report.err")"; }
say() { note "$1 $(shift; report "$@")"; }

build=${BUILD:-build/release}
bin=$build/bin
[ -d "$pack/bin" ] && [ "$device" = cuda ] && bin=$pack/bin
rehearse=$bin/rehearse kernels=$bin/cuda_kernels_test asked=$device
small=1     # a rehearsal: tiny models, few steps
half=fp32   # what a bf16 run runs in
case $device in
  cuda) small='' half=bf16 ;;
  double)
    rehearse=$build/tests/cuda_double/rehearse_on_cuda_double kernels=$build/bin/cuda_emulated_test asked=cuda
    # Its kernels know fp32: bf16 runs take their turns and compute nothing.
    export REHEARSE_DOUBLE_IDLES_IN_BF16=1 TMPDIR=$out/tmp
    mkdir -p "$TMPDIR" ;;
  cpu) ;;
  *) note "DEVICE: cuda, double or cpu"; exit 2 ;;
esac
[ -x "$rehearse" ] || { note "nothing to run at $rehearse: bench/gpu.sh pack, or ./run build"; exit 2; }
libraries=$PWD/$pack/lib:/usr/local/cuda/lib64:/usr/local/cuda/lib
for folder in $("$python" -c 'import glob, site, sys; print(*(f for p in {*site.getsitepackages(), *sys.path} for f in glob.glob(p + "/nvidia/*/lib")))' 2>/dev/null); do
  libraries=$libraries:$folder  # CUDA as Python packages bring it
done
# For our programs alone: PyTorch brings its own.
ours=(env "LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
export REHEARSE_SCENARIOS=${REHEARSE_SCENARIOS:-$PWD/scenarios}  # the pack was built elsewhere
rehearse=("${ours[@]}" "$rehearse")

# --- the machine --------------------------------------------------------------
if [ "$device" = cuda ]; then
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader >"$out/device.csv" 2>&1 ||
    { note "no GPU: $(head -1 "$out/device.csv")"; exit 3; }
  note "# $(head -1 "$out/device.csv")"
  nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu --format=csv -lms 500 >"$out/clocks.csv" 2>/dev/null &
  watcher=$!
else
  note "# a rehearsal of bench/gpu.sh on DEVICE=$device: nothing here is a measurement of a GPU"
fi
note "$(date -u +%F), commit $(cat "$pack/commit" 2>/dev/null || git rev-parse --short HEAD 2>/dev/null || echo unknown), $("${rehearse[@]}" --version | tr '\n' ' ')"
note ""

# --- it runs at all; the CPU's numbers, beside the kernels' tests ----------------
tiny=scenarios/tiny-gpt-4-ranks.json
one=(--set plan.tensor_parallel=1 --set plan.pipeline_parallel=1 --set plan.sequence_parallel=false --set plan.schedule=1f1b
  --set plan.virtual_stages=1 --set plan.zero_stage=0 --set plan.data_parallel=1 --set gpus=null)
layouts=("pipeline_parallel=1" "pipeline_parallel=2" "tensor_parallel=2" "context_parallel=2" "data_parallel=2 zero_stage=1"
  "data_parallel=2 zero_stage=3" "tensor_parallel=2 pipeline_parallel=2" "pipeline_parallel=4 schedule=zb_h1")
name_of() { tr ' =' '__' <<<"$1"; }
keys_of() {  # sets `keys`
  keys=(--json "${one[@]}" --set plan.precision=fp32)
  for key in $1; do keys+=(--set "plan.$key"); done
}
# Every layout computes what one rank computes: one run of the CPU is the reference of all of them.
keys_of pipeline_parallel=1
attempt cpu 60 "${rehearse[@]}" run "$tiny" --device cpu "${keys[@]}" --steps 10
attempt gradients_cpu 30 "${rehearse[@]}" run "$tiny" --device cpu "${keys[@]}" --steps 1 --checkpoint "$out/state_cpu"
attempt first_step 60 "${rehearse[@]}" run "$tiny" --device "$asked" "${keys[@]}" --steps 2 &&
  note "- two steps of a tiny model: losses $(report get "$out/first_step.out" 'r["losses"]')"
attempt gradients 30 "${rehearse[@]}" run "$tiny" --device "$asked" "${keys[@]}" --steps 1 --checkpoint "$out/state" &&
  say "- gradients of one step, fp32, against the CPU's:" gradients "$out/state" "$out/state_cpu" 1e-4
rm -rf "$out/state" "$out/state_cpu"
if [ "$device" != cpu ]; then
  attempt kernels 100 "${ours[@]}" "$kernels" --gtest_brief=1 ${small:+--gtest_filter=*Norm*}
  note "- kernels against the CPU: $(grep -E '^\[ +(PASSED|FAILED) +\] [0-9]+ test' "$out/kernels.out" | tr '\n' ' ')"
fi

# --- layouts: ranks of one process, then a process per rank with NCCL, all on one GPU ----
# over_nccl NAME RANKS: each process is another host to NCCL, which would else refuse to share a GPU
nccl_failed=0
over_nccl() {
  local rank status=0 pids=() seconds=30
  [[ $1 =~ ${PARTS:-.} ]] || { echo "not asked for" >"$out/$1.err"; return 1; }
  [ "$nccl_failed" -ge 2 ] && { echo "not run, after two that failed" >"$out/$1.err"; return 1; }
  [ "$(left)" -lt 35 ] && { echo "not run, the time is over" >"$out/$1.err"; return 1; }
  port=$((${port:-29560} + 1))
  for rank in $(seq 0 $(($2 - 1))); do
    NCCL_HOSTID=rehearse$rank NCCL_SOCKET_IFNAME=lo NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_IB_DISABLE=1 NCCL_MAX_CTAS=2 \
      RANK=$rank WORLD_SIZE=$2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
      timeout -k 5 $seconds "${rehearse[@]}" run "$tiny" --device cuda --timeout 15 "${keys[@]}" --steps 10 \
      >"$out/$1.$rank.out" 2>"$out/$1.$rank.err" &
    pids[rank]=$!
  done
  for rank in "${!pids[@]}"; do wait "${pids[rank]}" || status=1; done
  cat "$out/$1".[0-9].err >"$out/$1.err"
  mv "$out/$1.0.out" "$out/$1.out"
  return $status
}
rows=()
for layout in "${layouts[@]}"; do
  keys_of "$layout"
  name=$(name_of "$layout") ranks=1 nccl=
  for key in $layout; do case $key in *parallel=*) ranks=$((ranks * ${key#*=})) ;; esac; done
  here="**failed**"
  attempt "$name" 30 "${rehearse[@]}" run "$tiny" --device "$asked" "${keys[@]}" --steps 10 && here=$(report curves "$out/$name.out" "$out/cpu.out" 1e-4)
  if [ "$device" != cpu ] && [ "$ranks" -gt 1 ]; then
    began=$SECONDS
    if over_nccl "nccl_$name" "$ranks"; then
      nccl=$(report curves "$out/nccl_$name.out" "$out/cpu.out" 1e-4)
    else
      nccl_failed=$((nccl_failed + 1))
      nccl="**failed**: $(tail -1 "$out/nccl_$name.err" | cut -c1-160)"
    fi
    echo "nccl_$name: $((SECONDS - began)) s" | tee -a "$out/steps.txt"
  fi
  rows+=("| $layout | $here | $nccl |")
done
note ""
note "| layout, fp32, 10 steps, against one rank on the CPU | ranks of one process | NCCL, a process per rank |"
note "|---|---|---|"
for row in "${rows[@]}"; do note "$row"; done
note ""
steps=100
[ -n "$small" ] && steps=10
hundred=(--device "$asked" --steps "$steps" --json "${one[@]}")
attempt fp32 40 "${rehearse[@]}" run "$tiny" "${hundred[@]}" --set plan.precision=fp32 &&
  attempt bf16 40 "${rehearse[@]}" run "$tiny" "${hundred[@]}" --set "plan.precision=$half" &&
  say "- $half against fp32 over $(report get "$out/fp32.out" 'r["steps"]') steps:" curves "$out/bf16.out" "$out/fp32.out" 1e-2

# --- speed, beside PyTorch in the same job -------------------------------------
# scenario NAME MODEL MICRO_BATCH SEQUENCE STEPS [MORE_OF_THE_PLAN]
scenario() {
  local model=$2 micro=$3 sequence=$4 steps=$5
  [ -n "$small" ] && model=tiny-gpt micro=$((1 + $3 / 16)) sequence=$(($4 / 16)) steps=4
  cat >"$out/$1.json" <<JSON
{"name": "$1", "model": "models/$model.json", "cluster": "clusters/dgx-h200.json", "gpus": 1,
 "plan": {"micro_batch": $micro, "global_batch": $((2 * micro)), "sequence_length": $sequence, "precision": "bf16", "dropout": 0${6:+, $6}},
 "train": {"steps": $steps}}
JSON
}
measure() {  # measure NAME SECONDS
  attempt "run_$1" "$2" "${rehearse[@]}" run "$out/$1.json" --device "$asked" --json --trace "$out/$1.measured.trace"
}
there=
timeout 60 "$python" -c 'import torch' 2>"$out/torch.err" && there=1
torch() {  # torch NAME SECONDS MODEL MICRO_BATCH
  [ -n "$there" ] || return 0
  local what=(--model "$3" --batch "$4")
  [ -n "$small" ] && what=(--model tiny --batch 2 --device cpu --steps 3 --warmup 1 --no-compile)
  attempt "torch_$1" "$2" "$python" bench/peers/torch_gpt2_gpu.py "${what[@]}"
}
scenario 124m gpt2-124m 32 1024 30
scenario 124m-16 gpt2-124m 16 1024 12
scenario 124m-8 gpt2-124m 8 1024 12
scenario 124m-short gpt2-124m 32 512 12
scenario 124m-recomputed gpt2-124m 16 1024 12 '"recompute": "full"'
scenario 355m gpt2-355m 16 1024 12
scenario 1558m gpt2-1.5b 8 1024 14
configurations=(124m 124m-16 124m-8 124m-short 124m-recomputed 355m 1558m)
measure 124m 60
torch 124m 110 gpt2-124m 32
say "- GPT-2 124M:" speed "$out/run_124m.out" "$out/torch_124m.out" 1.15 475000
measure 1558m 80

# --- calibration, the kernels' table, steps predicted from it -------------------
shapes=()
for c in "${configurations[@]}"; do shapes+=(--scenario "$out/$c.json"); done
if attempt calibrate 110 "${rehearse[@]}" calibrate --device "$asked" --quick "${shapes[@]}" -o "$out/machine.json"; then
  head -3 "$out/calibrate.out" | sed 's/^/- /' | tee -a "$summary"
  for c in "${configurations[@]}"; do
    [ -s "$out/run_$c.out" ] || measure "$c" 40
    attempt "dry_$c" 20 "${rehearse[@]}" run "$out/$c.json" --device "$asked" --dry-run --json --cluster "$out/machine.cluster.json"
  done
  note ""
  note "| configuration, one GPU | predicted ms | measured ms | error | arena planned by the prediction / the run | planned = used |"
  note "|---|---|---|---|---|---|"
  for c in "${configurations[@]}"; do
    [ -s "$out/run_$c.out" ] && [ -s "$out/dry_$c.out" ] && note "$(report prediction "$c" "$out/run_$c.out" "$out/dry_$c.out")"
  done
  note ""
  if [ "$device" != cpu ]; then
    for c in 124m 1558m; do say "- memory of $c by cudaMemGetInfo:" memory "$out/run_$c.out" "$out/machine.json"; done
  fi
  report kernels "$out/machine.json" >"$out/kernels.md"
  note "- every kernel against the measured ceilings: kernels.md"
fi

# --- compute-sanitizer, and the largest model by PyTorch -------------------------
sanitizer=
for at in "$(command -v compute-sanitizer)" /usr/local/cuda/bin/compute-sanitizer /usr/local/cuda/compute-sanitizer/compute-sanitizer; do
  [ -x "$at" ] && sanitizer=$at && break
done
if [ "$device" = cuda ] && [ -n "$sanitizer" ]; then
  attempt sanitizer_kernels 60 "${ours[@]}" "$sanitizer" --error-exitcode 9 "$kernels" --gtest_brief=1 --gtest_filter='*Attention*:*Norm*:*Loss*:*Pointwise*'
  attempt sanitizer_run 60 "${ours[@]}" "$sanitizer" --error-exitcode 9 "${rehearse[@]:2}" run "$tiny" --device cuda --steps 3 "${one[@]}" \
    --set "plan.precision=$half" --set plan.pipeline_parallel=2
  for part in kernels run; do note "- compute-sanitizer, $part: $(grep -h 'ERROR SUMMARY' "$out/sanitizer_$part.out" "$out/sanitizer_$part.err" 2>/dev/null | head -1)"; done
elif [ "$device" = cuda ]; then
  note "- compute-sanitizer: there is none on this machine"
fi
torch 1558m 130 gpt2-1.5b 8
say "- GPT-2 1558M:" speed "$out/run_1558m.out" "$out/torch_1558m.out" 1.05 46800
note "- $SECONDS s in all"
