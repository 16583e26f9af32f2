#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# rehearse run as people and scripts call it. Usage: run_test.sh REHEARSE.
cd "$(dirname "$0")/../../.." || exit 2
rehearse=$1
. tests/command.sh
tiny '"tensor_parallel": 2, "pipeline_parallel": 2, "schedule": "1f1b", "micro_batch": 1,
      "global_batch": 4' '"steps": 3'

# What was built in is said, and only that.
parts=$("$rehearse" --version | sed -n 's/^built in: *//p')
module=$(dirname "$rehearse")/rehearse_cuda.so
case $parts in
  *cuda*nccl*) [ -e "$module" ] || fail "--version: cuda without its module: $parts" ;;
  *) [ -e "$module" ] && fail "--version: nothing of the CUDA module: $parts" ;;
esac
if [ -e /dev/nvidiactl ]; then
  echo "run_test: SKIPPED: what is said without a GPU: there is one"
else
  refused 3 CUDA run "$scenario" --device cuda
  refused 3 CUDA run /no/such.json --device cuda
fi
refused 2 "not in" run "$scenario" --device tpu

# The set of kernels is the one asked for, or none.
( export REHEARSE_ISA=sse9
  refused 2 'REHEARSE_ISA: no instruction set "sse9".*there is generic' run "$scenario"
  refused 2 'REHEARSE_ISA: no instruction set "sse9".*there is generic' calibrate -o "$work/c.json"
  exit $status ) || status=1
for set in generic avx2 avx512 avx512_bf16 amx; do
  if REHEARSE_ISA=$set "$rehearse" run "$scenario" --steps 1 --json >"$work/set.json" 2>"$work/err"; then
    [ "$(key "$work/set.json" instruction_set)" = "\"$set\"" ] || fail "REHEARSE_ISA=$set is not what ran"
  else
    one_line "$work/err" "REHEARSE_ISA: this machine has no $set; there is generic" "REHEARSE_ISA=$set"
    [ $set = generic ] && fail "no generic kernels"
  fi
done
refused 2 "no such file" run "$scenario" --data /no/such/text
refused 2 "train.data: /dev/zero: is not a regular file" run "$scenario" --data /dev/zero
refused 2 "train.data" run "$scenario" --data "$work"
refused 2 "cannot write" run "$scenario" --metrics /no/such/folder/m.jsonl
refused 2 "cannot write" run "$scenario" --trace /no/such/folder/t.trace
# Nothing that is read, or written too, is written over.
cp "$scenario" "$work/own.json"
refused 2 "run: --metrics .*: would be written over SCENARIO" run "$work/own.json" --metrics "$work/own.json"
refused 2 "run: --trace .*: would be written over --metrics" run "$scenario" --trace "$work/x" --metrics "$work/x"
cmp -s "$scenario" "$work/own.json" || fail "a scenario was written over"
refused 2 "not in the vocabulary" run "$scenario" --set model.vocab_size=100 --data README.md
refused 2 "does not divide" run "$scenario" --set plan.tensor_parallel=3
# What is not performed is refused by its name, by the prediction of a run too; what nobody has
# built, everywhere.
for how in "" --dry-run; do
  refused 2 "model.activation_function: .geglu. is not performed .*; nor plan.transfers .serial." \
    run "$scenario" $how --set plan.transfers=serial --set model.activation_function=geglu
  refused 2 "plan.overlap.tensor_parallel_chunks: 3 pieces do not divide the 16 rows of a micro-batch" run "$scenario" \
    $how --set plan.overlap.tensor_parallel=true --set plan.overlap.tensor_parallel_chunks=3
  refused 2 "plan.transfers: .serial. is not performed by .run." run "$scenario" $how --set plan.transfers=serial
done
# Every order of transfers gives the same bits.
losses_of() { "$rehearse" run "$scenario" --json "$@" >"$work/form.json" 2>"$work/err" || fail "$*: $(cat "$work/err")"; losses "$work/form.json"; }
plain=$(losses_of)
for form in producer_order consumer_order grouped; do
  [ "$(losses_of --set plan.transfers=$form)" = "$plain" ] || fail "plan.transfers $form: other numbers"
done
refused 2 "plan.overlap.tensor_parallel: true needs sequence_parallel in runtime megatron" simulate "$scenario" \
  --set plan.overlap.tensor_parallel=true
[ "$(losses_of --set plan.overlap.tensor_parallel=true)" = "$plain" ] || fail "products in pieces: other numbers"

# What is done otherwise, and what nobody knows, is said: one line each.
"$rehearse" run "$scenario" --steps 1 --set plan.flash_attention=false --set plan.runtime=megatron \
  --set model.colour=red >"$work/out" 2>"$work/err" || fail "does not run"
[ "$(wc -l <"$work/err")" -eq 3 ] || fail "not three lines: $(cat "$work/err")"
for said in "plan.flash_attention false: " 'plan.runtime "megatron": ' "model.colour: no key of gpt2"; do
  grep -qF "$said" "$work/err" || fail "nothing said of $said: $(cat "$work/err")"
done

refused 1 "diverged at step" run "$scenario" --set train.learning_rate=1000 --set train.clip_norm=0 \
  --steps 50
refused 3 "this machine has" run "$scenario" --set model.n_embd=65536 --set model.n_layer=200

( ulimit -f 8 && refused 3 "full.trace: cannot write: File too large" run "$scenario" --steps 1 \
    --trace "$work/full.trace" && exit $status ) || status=1  # as a full disk
refused 2 "must be a number" run "$scenario" --timeout nan
refused 2 "offload-dir: nothing goes to drives" run "$scenario" --offload-dir "$work"

# The host is the device: said, and run.
"$rehearse" run "$scenario" --set plan.offload=optimizer --steps 1 >/dev/null 2>"$work/err" || fail "offload does not run"
grep -q "plan.offload: host and device are one memory on the CPU" "$work/err" || fail "nothing said of offload"
mkdir "$work/drives"
"$rehearse" run "$scenario" --set plan.offload=optimizer --set plan.offload_to=nvme --offload-dir "$work/drives" --steps 1 >"$work/out" 2>"$work/err" ||
  fail "offload to drives does not run"
! grep -q "plan.offload" "$work/err" || fail "an offload that saves memory is said to save none"
grep -q "drives$" "$work/out" || fail "the memory on drives is not printed"
[ -z "$(ls "$work/drives")" ] || fail "a file is left on the drives"

# One run: report, metrics, trace.
"$rehearse" run "$scenario" --json --trace "$work/a.trace" --metrics "$work/a.jsonl" >"$work/a.json" 2>"$work/err" ||
  fail "does not run: $(cat "$work/err")"
[ -s "$work/err" ] && fail "a pipe sees: $(cat "$work/err")"
[ "$(wc -l <"$work/a.jsonl")" -eq 3 ] || fail "not a metrics line per step"
grep -q '"step":2,"loss":[0-9]' "$work/a.jsonl" || fail "metrics: $(tail -1 "$work/a.jsonl")"
grep -q '"schema": "rehearse.measurement/1"' "$work/a.json" || fail "schema"

# More ranks than threads: said in report and trace, and only then.
"$rehearse" run "$scenario" --threads 1 --steps 1 --json --trace "$work/turns.trace" >"$work/turns.json" 2>/dev/null
[ "$(key "$work/turns.json" ranks_per_core)" = 4.0 ] || fail "ranks_per_core: $(key "$work/turns.json" ranks_per_core)"
grep -q "4 ranks take turns on 1 " "$work/turns.json" || fail "nothing in notes: $(grep -A2 notes "$work/turns.json")"
"$rehearse" run "$scenario" --threads 1 --steps 1 2>/dev/null | grep -q "^note: 4 ranks take turns on 1 " ||
  fail "the report does not say that ranks take turns"
"$rehearse" render "$work/turns.trace" --svg "$work/turns.svg" && grep -q "4 ranks take turns on 1 " "$work/turns.svg" ||
  fail "the trace does not say that ranks take turns"
"$rehearse" run "$scenario" --set gpus=1 --set plan.tensor_parallel=1 --set plan.pipeline_parallel=1 \
  --set plan.schedule=none --steps 1 | grep -q "take turns" && fail "one rank takes turns"
"$rehearse" run "$scenario" --set plan.prefetch=2 --steps 1 >/dev/null 2>"$work/err"
one_line "$work/err" "plan.prefetch changes nothing: only sharded parameters" "a key without effect"

# Planned = counted = predicted, and one schedule.
"$rehearse" run "$scenario" --dry-run --json --trace "$work/p.trace" >"$work/p.json" || fail "--dry-run"
grep -q '"schema": "rehearse.prediction/1"' "$work/p.json" || fail "--dry-run gives no prediction"
# What a run does otherwise is said once on stderr and once in the document, and contradicts nothing.
"$rehearse" run "$scenario" --dry-run --device cpu --set plan.precision=fp8 --json >"$work/fp8.json" 2>"$work/err"
for said in "$work/err" "$work/fp8.json"; do
  [ "$(grep -c "fp8 is run as fp32" "$said")" = 1 ] || fail "$said: how fp8 is run is not said once"
  grep -q "predicted with" "$said" && fail "$said: a precision that is not run is predicted"
done
planned=$(key "$work/a.json" peak_planned_bytes)
[ "${planned:-0}" -gt 0 ] || fail "peak_planned_bytes is $planned"
[ "$planned" = "$(key "$work/a.json" peak_allocated_bytes)" ] || fail "planned is not counted"
[ "$planned" = "$(key "$work/p.json" peak_allocated_bytes)" ] || fail "planned is not predicted"
[ "$(key "$work/a.json" peak_reserved_bytes)" = "$(key "$work/p.json" peak_reserved_bytes)" ] || fail "arenas"
[ "$(key "$work/a.json" schedule_hash)" = "$(key "$work/p.json" schedule_hash)" ] || fail "hashes"
"$rehearse" compare "$work/p.trace" "$work/a.trace" >/dev/null || fail "the two timelines do not compare"

# auto: one order for a file, whatever machine performs it or is described beside it.
auto="--set plan.schedule=auto --set plan.tensor_parallel=1 --set plan.data_parallel=2 --set plan.global_batch=8"
"$rehearse" run "$scenario" $auto --steps 1 --json >"$work/auto.json" || fail "auto does not run"
"$rehearse" run "$scenario" $auto --dry-run --json >"$work/auto.dry.json" || fail "auto --dry-run"
"$rehearse" run "$scenario" $auto --dry-run --cluster rtx4090-8 --json >"$work/auto.other.json" || fail "auto, another machine"
"$rehearse" simulate "$scenario" $auto --json >"$work/auto.simulated.json" || fail "auto, simulate"
hash=$(key "$work/auto.json" schedule_hash)
[ "$hash" = "$(key "$work/auto.dry.json" schedule_hash)" ] || fail "auto: the dry run has another order"
[ "$hash" = "$(key "$work/auto.other.json" schedule_hash)" ] || fail "auto: another order for another machine"
taken=$(grep -A1 '"order"' "$work/auto.json" | grep '"schedule"')
[ -n "$taken" ] || fail "auto: the report does not say which order"
for report in dry other simulated; do
  [ "${taken%,}" = "$(grep -A1 '"order"' "$work/auto.$report.json" | grep '"schedule"' | tr -d ,)" ] ||
    fail "auto: $report took another order than the run's $taken"
done
"$rehearse" run "$scenario" $auto --steps 1 >"$work/auto.txt" || fail "auto, as text"
grep -q "^  order: " "$work/auto.txt" || fail "auto: the text does not say which order"

# Again, and with another number of workers: the same numbers to the last digit.
for threads in 1 3; do
  "$rehearse" run "$scenario" --json --threads $threads >"$work/b.json" || fail "--threads $threads"
  [ "$(losses "$work/a.json")" = "$(losses "$work/b.json")" ] || fail "--threads $threads: other losses"
done
[ "$(losses "$work/a.json" | wc -l)" -eq 10 ] || fail "3 losses and 3 norms: $(losses "$work/a.json")"
"$rehearse" run "$scenario" --json --set train.seed=2 >"$work/b.json"
[ "$(losses "$work/a.json")" = "$(losses "$work/b.json")" ] && fail "the seed changes nothing"

# Ctrl-C: what was measured until then is written, as at an end.
"$rehearse" run "$scenario" --json --steps 1000000 --trace "$work/c.trace" --metrics "$work/c.jsonl" >"$work/c.json" 2>"$work/err" &
training=$!
appears "$work/c.jsonl.partial" || fail "INT: no first step"
kill -INT $training
wait $training
got=$?
[ $got -eq 130 ] || fail "INT: exit $got"
one_line "$work/err" "stopped after step [0-9]*, without a checkpoint" "INT"
"$rehearse" compare "$work/a.trace" "$work/c.trace" >"$work/out" 2>&1 || fail "INT: the timeline: $(cat "$work/out")"
[ "$(key "$work/c.json" steps)" = "$(wc -l <"$work/c.jsonl")" ] || fail "INT: the report of $(key "$work/c.json" steps) steps"

# bf16 that is asked for is run, in less memory, with other losses; bf16 that nobody asks for is not.
"$rehearse" run "$scenario" --set plan.precision=bf16 --json >"$work/bf16.json" 2>"$work/err" || fail "bf16"
[ -s "$work/err" ] && fail "bf16: $(cat "$work/err")"
[ "$(losses "$work/a.json")" = "$(losses "$work/bf16.json")" ] && fail "bf16 has the losses of fp32"
"$rehearse" run "$scenario" --set plan.precision=bf16 --dry-run --json >"$work/p.json" || fail "bf16 --dry-run"
planned=$(key "$work/bf16.json" peak_planned_bytes)
[ "${planned:-0}" -gt 0 ] || fail "bf16: peak_planned_bytes is $planned"
[ "$planned" = "$(key "$work/bf16.json" peak_allocated_bytes)" ] || fail "bf16: planned is not counted"
[ "$planned" = "$(key "$work/p.json" peak_allocated_bytes)" ] || fail "bf16: planned is not predicted"
# fp16: a scale at which gradients overflow skips the steps on every rank; a checkpoint has the scale, and a
# dynamic one goes on from there, halves at every overflow, and trains below them.
half="--set plan.precision=fp16"
"$rehearse" run "$scenario" $half --set train.loss_scale=1e12 --steps 2 --checkpoint "$work/scaled" --json >"$work/b.json" ||
  fail "fp16 with overflows"
[ "$(key "$work/b.json" skipped_steps)" = 2 ] || fail "fp16: skipped_steps $(key "$work/b.json" skipped_steps)"
"$rehearse" run "$scenario" $half --set train.loss_scale=dynamic --steps 40 --resume "$work/scaled" --json \
  --metrics "$work/scaled.jsonl" >"$work/b.json" || fail "fp16 goes on"
scales=$(sed -n '/"loss_scales"/,/]/p' "$work/b.json" | tr -dc '0-9.,')
case $scales in 1000000000000.0,500000000000.0,250000000000.0,*) ;; *) fail "fp16: scales $scales" ;; esac
skipped=$(key "$work/b.json" skipped_steps)
[ "$skipped" -ge 10 ] && [ "$skipped" -le 36 ] || fail "fp16: $skipped of 38 steps are skipped"
[ "$(grep -c '"skipped":true' "$work/scaled.jsonl")" = "$skipped" ] || fail "fp16: metrics"
"$rehearse" run "$scenario" $half --steps 1 --json >"$work/b.json" && [ "$(key "$work/b.json" skipped_steps)" = 0 ] ||
  fail "fp16 with its own scale"
"$rehearse" run "$scenario" --set train.loss_scale=512 --steps 1 >/dev/null 2>"$work/err" || fail "a scale in fp32"
one_line "$work/err" "train.loss_scale changes nothing: the plan computes in fp32" "a scale in fp32"
"$rehearse" run "$scenario" --steps 1 --set plan.precision=null >"$work/out" 2>"$work/err" || fail "no precision"
one_line "$work/err" "plan.precision: bf16 is run as fp32" "bf16 that nobody asks for"
exit $status
