# SPDX-License-Identifier: Apache-2.0
# Of bench/gpu.sh: is what a GPU computes what the CPU computes? One function per group of bench/gpu/parts.txt.
# shellcheck shell=bash disable=SC2154,SC2034
layouts=("pipeline_parallel=1" "pipeline_parallel=2" "tensor_parallel=2" "context_parallel=2" "data_parallel=2 zero_stage=1"
  "data_parallel=2 zero_stage=3" "tensor_parallel=2 pipeline_parallel=2" "pipeline_parallel=4 schedule=zb_h1"
  "pipeline_parallel=2 offload=activations" "offload=optimizer")
name_of() { tr ' =' '__' <<<"$1"; }
ranks_of() {
  local key ranks=1
  for key in $1; do case $key in expert_parallel=* | sequence_parallel=*) ;; *parallel=*) ranks=$((ranks * ${key#*=})) ;; esac; done
  echo $ranks
}
keys_of() {  # sets `keys`
  keys=(--json "${one[@]}" --set plan.precision=fp32)
  for key in $1; do keys+=(--set "plan.$key"); done
}

# It runs at all. Every layout computes what one rank computes: one run of the CPU is the reference of all of them.
run_first() {
  keys_of pipeline_parallel=1
  attempt cpu "${rehearse[@]}" run "$tiny" --device cpu "${keys[@]}" --steps 10
  attempt gradients_cpu "${rehearse[@]}" run "$tiny" --device cpu "${keys[@]}" --steps 1 --checkpoint "$out/state_cpu"
  attempt first_step "${rehearse[@]}" run "$tiny" --device "$asked" "${keys[@]}" --steps 2 &&
    note "- two steps of a tiny model: losses $(report get "$out/first_step.out" 'r["losses"]')"
  attempt gradients "${rehearse[@]}" run "$tiny" --device "$asked" "${keys[@]}" --steps 1 --checkpoint "$out/state" &&
    say "- gradients of one step, fp32, against the CPU's:" gradients "$out/state" "$out/state_cpu" 1e-4
  rm -rf "$out/state" "$out/state_cpu"
}

run_kernels() {
  [ "$device" = cpu ] && return
  attempt kernels "${ours[@]}" "$kernels" --gtest_brief=1 ${small:+--gtest_filter=*Norm*}
  grep -qE '^\[ +(PASSED|FAILED) +\]' "$out/kernels.out" 2>/dev/null || { note "- kernels against the CPU: SKIPPED: no test ended"; return; }
  note "- kernels against the CPU: $(grep -E '^\[ +PASSED +\] [0-9]+ test' "$out/kernels.out")$(grep -oE '^\[ +FAILED +\] [A-Za-z]+[^ ,]*' "$out/kernels.out" | sort -u | sed 's/.*\]/; failed:/' | tr -d '\n')"
}

# table TITLE ROWS...: behind what was said of parts that failed
table() {
  note ""
  note "| layout, fp32, 10 steps, against one rank on the CPU | $1 |"
  note "|---|---|"
  shift
  for row in "$@"; do note "$row"; done
  note ""
}
run_layouts() {
  local layout name here rows=()
  for layout in "${layouts[@]}"; do
    name=$(name_of "$layout") here="**failed**"
    wanted "$name" || continue
    keys_of "$layout"
    attempt "$name" "${rehearse[@]}" run "$tiny" --device "$asked" "${keys[@]}" --steps 10 &&
      here=$(report curves "$out/$name.out" "$out/cpu.out" 1e-4)
    rows+=("| $layout | $here |")
  done
  table "ranks of one process" "${rows[@]}"
}

# nccl_rank NAME RANK RANKS COMMAND...: one process of a run with a process per rank, all on one GPU: each is another host
# to NCCL, which would else refuse to share it. The shell becomes the command. Without MPS the processes take turns on the
# device, and a collective needs all of them: an op's timeout is nearly the part's limit.
nccl_rank() {
  local name=$1 rank=$2 ranks=$3
  shift 3
  export NCCL_HOSTID=rehearse$rank NCCL_SOCKET_IFNAME=lo NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_IB_DISABLE=1 NCCL_MAX_CTAS=2 \
    RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port NCCL_DEBUG=WARN NCCL_DEBUG_FILE=$out/$name.$rank.nccl
  exec "$@" --device cuda >"$out/$name.$rank.out" 2>"$out/$name.$rank.err"
}
over_nccl() {  # over_nccl NAME RANKS
  local rank status=0 pids=() seconds=${limits[$1]}
  [ "$nccl_failed" -ge 2 ] && { echo "not run, after two that failed" >"$out/$1.err"; return 1; }
  [ "$(left)" -le "$seconds" ] && { echo "not run, the time is over" >"$out/$1.err"; return 1; }
  port=$((${port:-29560} + 1))
  for rank in $(seq 0 $(($2 - 1))); do
    nccl_rank "$1" "$rank" "$2" timeout -k 5 "$seconds" "${rehearse[@]}" run "$tiny" --timeout $((seconds - 5)) "${keys[@]}" --steps 10 &
    pids[rank]=$!
  done
  for rank in "${!pids[@]}"; do wait "${pids[rank]}" || status=1; done
  cat "$out/$1".[0-9].err >"$out/$1.err"
  mv "$out/$1.0.out" "$out/$1.out"
  return $status
}
# why_not NAME: the last line that was said, and NCCL's first warning.
why_not() {
  tail -1 "$out/$1.err" | cut -c1-160
  grep -h "NCCL WARN" "$out/$1".[0-9].nccl 2>/dev/null | head -1 | cut -c1-160
}
run_nccl() {
  [ "$device" = cpu ] && return
  local layout name there began nccl_failed=0 rows=()
  for layout in "${layouts[@]}"; do
    name=nccl_$(name_of "$layout") began=$SECONDS
    wanted "$name" || continue
    keys_of "$layout"
    if over_nccl "$name" "$(ranks_of "$layout")"; then
      there=$(report curves "$out/$name.out" "$out/cpu.out" 1e-4)
    else
      nccl_failed=$((nccl_failed + 1))
      there="**failed**: $(why_not "$name" | paste -sd ' ')"
    fi
    echo "$name: $((SECONDS - began)) of ${limits[$name]} s" | tee -a "$out/steps.txt"
    rows+=("| $layout | $there |")
  done
  table "NCCL, a process per rank" "${rows[@]}"
}

# Of two processes one is killed, or stopped, in the middle of a run: the other says whose fault it is and ends.
run_failure() {
  [ "$device" = cpu ] && return
  local signal name began rank pids state code
  for signal in KILL STOP; do
    name=nccl_$signal pids=() state="does not end" code=-
    wanted "$name" && [ "$(left)" -gt "${limits[$name]}" ] || continue
    port=$((${port:-29560} + 1))
    keys_of "tensor_parallel=2 pipeline_parallel=1"
    for rank in 0 1; do
      nccl_rank "$name" "$rank" 2 "${rehearse[@]}" run "$tiny" --timeout 10 "${keys[@]}" --steps 1000000 --metrics "$out/$name.metrics" &
      pids[rank]=$!
    done
    began=$SECONDS
    until [ -s "$out/$name.metrics.partial" ] || [ $((SECONDS - began)) -ge "${limits[$name]}" ] || ! kill -0 "${pids[0]}" 2>/dev/null; do sleep 0.2; done
    [ -s "$out/$name.metrics.partial" ] || state="no first step"
    kill -$signal "${pids[1]}"
    local struck=$SECONDS
    until [ $((SECONDS - began)) -ge "${limits[$name]}" ] || ! kill -0 "${pids[0]}" 2>/dev/null; do sleep 0.2; done
    if kill -0 "${pids[0]}" 2>/dev/null; then kill -KILL "${pids[0]}"; elif [ "$state" != "no first step" ]; then
      wait "${pids[0]}"; code=$? state="ends after $((SECONDS - struck)) s"
    fi
    kill -KILL "${pids[1]}" 2>/dev/null
    wait "${pids[@]}" 2>/dev/null  # not for what watches the clocks
    echo "$name: $((SECONDS - began)) of ${limits[$name]} s" | tee -a "$out/steps.txt"
    cat "$out/$name.0.err" >"$out/$name.err"
    grep -q "rank 1 " "$out/$name.err" && [ "$code" = 3 ] || state="**failed**: $state"
    note "- NCCL, two processes, SIG$signal for one in a step: the other $state, exit $code: $(why_not "$name" | paste -sd ' ')"
    rm -f "$out/$name.metrics"*
  done
}

# 32 samples a step at a low rate: training that is steady, so that what rounding moves stays what it is. It is measured,
# too: a rate that is a thousandth higher moves losses by far less than the target. (At the file's own rate of 1.5e-3 and 8
# samples fp32 itself spikes, and a thousandth of the rate moves losses by more than the target.)
run_precision() {
  local steps=${small:+10} hundred rate=3e-4
  hundred=(--device "$asked" --steps "${steps:-100}" --json "${one[@]}" --set plan.micro_batch=4 --set plan.global_batch=32)
  attempt fp32 "${rehearse[@]}" run "$tiny" "${hundred[@]}" --set plan.precision=fp32 --set train.learning_rate=$rate || return
  attempt bf16 "${rehearse[@]}" run "$tiny" "${hundred[@]}" --set "plan.precision=$half" --set train.learning_rate=$rate &&
    say "- $half against fp32 over $(report get "$out/fp32.out" 'r["steps"]') steps:" curves "$out/bf16.out" "$out/fp32.out" 1e-2
  # On the doubles 16 bits compute nothing.
  local narrow=fp16; [ "$half" = bf16 ] || narrow=$half
  attempt fp16 "${rehearse[@]}" run "$tiny" "${hundred[@]}" --set "plan.precision=$narrow" --set train.learning_rate=$rate &&
    say "- $narrow against fp32, $(report get "$out/fp16.out" 'r.get("skipped_steps", 0)') steps left out:" curves "$out/fp16.out" "$out/fp32.out" 1e-2
  attempt fp32_nudged "${rehearse[@]}" run "$tiny" "${hundred[@]}" --set plan.precision=fp32 --set train.learning_rate=3.003e-4 &&
    say "- how steady that training is: fp32 at 1.001 times the rate:" curves "$out/fp32_nudged.out" "$out/fp32.out" 1e-3 losses
}

run_sanitizer() {
  wanted sanitizer_kernels || wanted sanitizer_run || return
  [ "$device" = cuda ] || { note "- compute-sanitizer: SKIPPED: a rehearsal has no device"; return; }
  local sanitizer='' at part
  for at in "$(command -v compute-sanitizer)" /usr/local/cuda/bin/compute-sanitizer /usr/local/cuda/compute-sanitizer/compute-sanitizer; do
    [ -x "$at" ] && sanitizer=$at && break
  done
  [ -n "$sanitizer" ] || { note "- compute-sanitizer: SKIPPED: there is none on this machine"; return; }
  attempt sanitizer_kernels "${ours[@]}" "$sanitizer" --error-exitcode 9 "$kernels" --gtest_brief=1 --gtest_filter='*Attention*:*Norm*:*Loss*:*Pointwise*'
  attempt sanitizer_run "${ours[@]}" "$sanitizer" --error-exitcode 9 "${rehearse[@]:2}" run "$tiny" --device cuda --steps 3 "${one[@]}" \
    --set "plan.precision=$half" --set plan.pipeline_parallel=2
  for part in kernels run; do
    wanted "sanitizer_$part" && note "- compute-sanitizer, $part: $(grep -h 'ERROR SUMMARY' "$out/sanitizer_$part.out" "$out/sanitizer_$part.err" 2>/dev/null | head -1)"
  done
}
