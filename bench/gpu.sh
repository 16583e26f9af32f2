#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that needs a GPU: kernels, layouts (with experts and latent attention too) in one process and over NCCL,
# gradients and bf16 against the CPU, speed beside PyTorch, calibration and steps predicted from it, memory, compute-sanitizer. Writes one folder of results,
# summary.md first (each target, and whether it was reached), and OUT.tar.gz of it.
#
#   bench/gpu.sh pack              where everything can be built: puts what the GPU's machine needs into build/gpu-pack
#   bench/gpu.sh [OUT]             on the GPU's machine (driver, CUDA's and NCCL's libraries; no compiler, no network, no
#                                  packages): runs the pack, or what was built there. OUT: build/gpu
#   bench/gpu.sh STAGE... [OUT]    only correct, experts, speed or predict; what OUT holds of other stages stays
#   bench/gpu.sh merge OUT ARCHIVE...   results of several calls as one folder: the last of each group of parts counts
#   bench/gpu.sh list [STAGE...]   which parts a call runs, in which order, and what is dropped if every limit is reached
#   DEVICE=double bench/gpu.sh     rehearses every part without a GPU, on the tests' doubles and in tiny sizes
#   DEVICE=cpu bench/gpu.sh        rehearses what a CPU can do of it
#
# A part that fails or takes too long is noted and the next one runs; SECONDS_IN_ALL (520) ends a call early. Parts, their
# limits, what they take and their order: bench/gpu/parts.txt. A call of everything drops the least valuable where machines
# are slow; a call per stage drops nothing.
# PYTHON: where PyTorch is, if not in python3. PARTS: only the parts whose name matches this expression.
set -uo pipefail
cd "$(dirname "$0")/.."
device=${DEVICE:-cuda}
pack=build/gpu-pack
limit=${SECONDS_IN_ALL:-520}

if [ "${1:-}" = pack ]; then
  set -e
  # shellcheck disable=SC1007
  [ -f build/release/build.ninja ] || ./run build
  targets=(rehearse modules module_cuda cuda_kernels_test)
  cmake --build --preset release --target "${targets[@]}" >build/gpu-pack.log 2>&1 || { tail -20 build/gpu-pack.log; exit 2; }
  rm -rf "$pack" && mkdir -p "$pack/bin" "$pack/lib"
  cp build/release/bin/{rehearse,rehearse_*.so,cuda_kernels_test} "$pack/bin"
  strip "$pack"/bin/*
  # Libraries of packages; the C library, CUDA and NCCL are the machine's own.
  ldd "$pack"/bin/* | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|libpthread|librt|libcudart|libcublasLt|libnccl|libcuda)\.so' | xargs -I{} cp -L {} "$pack/lib"
  git rev-parse --short HEAD >"$pack/commit"
  echo "$pack: $(du -sh "$pack" | cut -f1)"
  exit
fi

# --- which parts ------------------------------------------------------------------
declare -A limits=()
groups=()      # of this call, in order
all_groups=()  # of the table
stages=() merged='' listing=''
while [ $# -gt 0 ]; do
  case $1 in
    correct | experts | speed | predict) stages+=("$1") ;;
    list) listing=1 ;;
    merge) merged=1 ;;
    *) break ;;
  esac
  shift
done
name=${stages[*]:-all}
name=${name// /+}
parts=0 sum=0 takes=0 dropped=''
while read -r group stage part seconds usual; do
  [[ $group == '#'* || -z $group ]] && continue
  [[ " ${all_groups[*]-} " == *" $group "* ]] || all_groups+=("$group")
  [ "$name" = all ] || [[ " ${stages[*]} " == *" $stage "* ]] || continue
  # What a stage of its own measures once more has been measured in this call.
  [[ $part == again_* && " $name+" =~ (all|speed) ]] && continue
  [[ $part =~ ${PARTS:-.} ]] || continue
  [ "$device" = cuda ] && limits[$part]=$seconds || limits[$part]=$((3 * seconds))  # a rehearsal's machine is anyone's
  [[ " ${groups[*]-} " == *" $group "* ]] || groups+=("$group")
  parts=$((parts + 1)) sum=$((sum + seconds)) takes=$((takes + ${usual#\~}))
  [ "$sum" -gt "$limit" ] && dropped="$dropped $part"
  [ -n "$listing" ] && printf '%-12s %-40s %4d s of %4d s\n' "$group" "$part" "${usual#\~}" "$seconds"
done <bench/gpu/parts.txt
plan="$name: $parts parts, $takes s on an H200, limits of $sum s in all, $limit s are given; if every limit is reached"
promise="$plan ${dropped:+these are cut short or dropped:}${dropped:-nothing is dropped}"
[ -n "$listing" ] && { echo "$promise"; exit; }
[ -z "$merged" ] && echo "$promise"

# --- the folder -------------------------------------------------------------------
out=${1:-build/gpu}
[ "$name" = all ] && [ -z "$merged" ] && rm -rf "$out"
mkdir -p "$out/summary"
out=$(cd "$out" && pwd)
summary=$out/summary.md
# Calls first, then what their parts found, in the order of the table.
compose() {
  {
    cat "$out"/summary/call-*.md 2>/dev/null
    echo
    for group in "${all_groups[@]}"; do cat "$out/summary/$group.md" 2>/dev/null; done
  } >"$summary"
}
finish() {
  compose
  tar -czf "$out.tar.gz" -C "$(dirname "$out")" "$(basename "$out")"
  echo "results: $summary, $out.tar.gz"
}
if [ -n "$merged" ]; then
  shift
  for archive in "$@"; do
    tar -xzf "$archive" --strip-components=1 -C "$out" || { echo "$archive: cannot be unpacked"; exit 2; }
  done
  finish
  exit
fi
for part in "${!limits[@]}"; do rm -f "$out/$part.out" "$out/$part.err"; done
piece=$out/summary/call-$name.md
: >"$piece"
note() { echo "$*" | tee -a "$piece"; }
watcher=
trap '[ -n "$watcher" ] && kill $watcher 2>/dev/null; finish' EXIT

# --- running a part -----------------------------------------------------------------
python=${PYTHON:-python3}
left() { echo $((limit - SECONDS)); }
wanted() { [ -n "${limits[$1]:-}" ]; }
# attempt NAME COMMAND...: stdout in NAME.out, stderr in NAME.err; says why it failed.
attempt() {
  local name=$1 seconds=${limits[$1]:-} began=$SECONDS status
  shift
  [ -n "$seconds" ] || return 1
  [ "$(left)" -lt "$seconds" ] && seconds=$(left)
  [ "$seconds" -le 3 ] && { note "- $name: not run, the time is over"; return 1; }
  timeout -k 5 "$seconds" "$@" >"$out/$name.out" 2>"$out/$name.err"
  status=$?
  echo "$name: exit $status after $((SECONDS - began)) of ${limits[$name]} s" | tee -a "$out/steps.txt"
  [ $status -eq 0 ] && return 0
  note "- **$name failed** (exit $status$([ $status -eq 124 ] && echo ", over $seconds s")): $(grep -v '^ *$' "$out/$name.err" | tail -1 | cut -c1-200)"
  return 1
}
# Waits until the GPU's memory is as free as it was at the least taken moment seen so far: a context outlives its process
# for some seconds, and cudaMemGetInfo counts every process's.
memory_used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null | head -1; }
alone() {
  [ "$device" = cuda ] || return 0
  local used
  for _ in 1 2 3 4 5 6 7 8; do
    used=$(memory_used)
    [[ $used =~ ^[0-9]+$ ]] || return 0
    [ -z "$least" ] || [ "$used" -lt "$least" ] && least=$used
    [ "$used" -le $((least + 16)) ] && return 0
    sleep 0.5
  done
  note "- GPU memory: $used MiB are others', against $least MiB before: what is said of memory counts them"
}
least=''

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
    rehearse=$build/bin/rehearse_on_cuda_double kernels=$build/bin/cuda_emulated_test asked=cuda
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
# The pack was built elsewhere: where scenarios and the tests' data are here.
export REHEARSE_SCENARIOS=${REHEARSE_SCENARIOS:-$PWD/scenarios} REHEARSE_ROOT=$PWD
rehearse=("${ours[@]}" "$rehearse")
tiny=scenarios/tiny-gpt-4-ranks.json
one=(--set plan.tensor_parallel=1 --set plan.pipeline_parallel=1 --set plan.sequence_parallel=false --set plan.schedule=1f1b
  --set plan.virtual_stages=1 --set plan.zero_stage=0 --set plan.data_parallel=1 --set gpus=null)

# --- the machine --------------------------------------------------------------------
if [ "$device" = cuda ]; then
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv,noheader >"$out/device-$name.csv" 2>&1 ||
    { note "no GPU: $(head -1 "$out/device-$name.csv")"; exit 3; }
  note "# $(head -1 "$out/device-$name.csv")"
  alone
  nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu --format=csv -lms 500 >"$out/clocks-$name.csv" 2>/dev/null &
  watcher=$!
else
  note "# a rehearsal of bench/gpu.sh on DEVICE=$device: nothing here is a measurement of a GPU"
fi
note "- $(date -u +%F), commit $(cat "$pack/commit" 2>/dev/null || git rev-parse --short HEAD 2>/dev/null || echo unknown), $("${rehearse[@]}" --version | tr '\n' ' ')"
note "- $plan $(wc -w <<<"$dropped") are cut short or dropped"

# wgmma and cuDNN's attention are new: where attention's tests fail on this GPU, perhaps by a fault that ends the process
# or by one that hangs it, this call does without. Tests that cannot run say nothing of it: a run compares all engines
# itself. try_attention WHAT FILTER ENGINES: those that this call is left with where WHAT fails.
try_attention() {
  local said=$out/attention-$name-$3.out status last
  timeout -k 5 30 "${ours[@]}" "$kernels" --gtest_brief=1 --gtest_filter="$2" >"$said" 2>&1
  status=$?
  last=$(grep -v '^ *$' "$said" | tail -1 | cut -c1-160)
  if [ $status -eq 0 ] && grep -q '^\[  PASSED  \] [1-9]' "$said" && ! grep -q SKIPPED "$said"; then
    note "- $1 tests: $last"
  elif [ $status -eq 0 ] || [ $status -eq 2 ] || [ $status -eq 125 ] || [ $status -eq 126 ] || [ $status -eq 127 ]; then
    grep -q 'SKIPPED: no cuDNN' "$said" && last=$(grep -m1 -o 'no cuDNN.*' "$said" | cut -c1-160)
    note "- **$1 tests cannot run** (exit $status): $last"
  else
    export REHEARSE_CUDA_ATTENTION=$3
    note "- **$1 tests fail** (exit $status): $([ "$3" = mma ] && echo "mma.sync alone" || echo "without cuDNN") in this call ($last)"
  fi
}
trial='*Attention*/bf16:-Cudnn*' of_cudnn='Cudnn*/bf16'
[ "$device" = double ] && trial='*Norm*/bf16' of_cudnn=  # the emulation takes minutes for attention's, and has no cuDNN
if [ "$device" != cpu ] && [ -z "${REHEARSE_CUDA_ATTENTION:-}" ]; then
  try_attention "attention's" "$trial" mma
  [ -z "$of_cudnn" ] || [ -n "${REHEARSE_CUDA_ATTENTION:-}" ] || try_attention "cuDNN's attention's" "$of_cudnn" ours
fi

# --- what is run --------------------------------------------------------------------
. bench/gpu/correct.sh
. bench/gpu/experts.sh
. bench/gpu/speed.sh
. bench/gpu/predict.sh
call=$piece
for group in "${groups[@]}"; do
  piece=$out/summary/$group.md
  : >"$piece"
  "run_$group"
  compose
done
piece=$call
note "- $SECONDS s in all ($name)"
