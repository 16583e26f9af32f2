#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Under sanitizers: a part of the matrix with two workers, the given tests, runs of
# several processes and their faults. Any report is a failure.
# Usage: sanitize.sh BIN TEST..., BIN a folder of programs built with sanitizers, in the project's root.
# ThreadSanitizer of g++ 12 wants fewer random bits in addresses than newer kernels use.
if [ "$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0)" -gt 28 ] && [ -z "$REHEARSE_PLAIN_ADDRESSES" ]; then
  REHEARSE_PLAIN_ADDRESSES=1 exec setarch -R bash "$0" "$@"
fi
bin=$1
shift
. tests/exec/processes/processes.sh
reports=$work/reports
mkdir "$reports"
# Reports go to files, so that a test that captures what a program prints cannot hide one.
export ASAN_OPTIONS="log_path=$reports/asan:detect_stack_use_after_return=1:strict_init_order=1"
export UBSAN_OPTIONS="log_path=$reports/ubsan:print_stacktrace=1"
export TSAN_OPTIONS="log_path=$reports/tsan:history_size=4:second_deadlock_stack=1:print_suppressions=0:suppressions=$PWD/tests/exec/tsan.supp"

# step NAME COMMAND...: prints what took how long; what it says only where it fails.
step() {
  name=$1 before=$(ls "$reports" | wc -l) begin=$SECONDS
  shift
  "$@" >"$work/log" 2>&1 || fail "$name fails: $(tail -n 20 "$work/log")"
  found=$(($(ls "$reports" | wc -l) - before))
  [ "$found" -eq 0 ] || fail "$name: $found reports"
  echo "$name: $((SECONDS - begin)) s$([ "$found" -eq 0 ] && echo ", no report")"
}

# Every order and every axis, and products of them.
layouts="naive_pp2 gpipe_pp2 one_f_one_b_uneven eager_pp4 interleaved_pp2_v2 looped_bfs_pp2_v2 zb_h1_pp4
  zb_h2_pp4 zb_v_pp2 v_half_pp4 v_min_pp4 interleaved_zb1p_pp2 dualpipev_pp2 full_zb_v_pp2
  offload_activations_pp2 chimera_pp4 dualpipe_pp4 tp4_sp tp2_sp_selective tp4_two_heads ddp2_overlap
  parameter_server4 zero1_dp4_overlap zero2_dp4 zero3_dp4 cp4_full cp2_tp2_sp_pp2_dp2_zero1
  seq_1f1b_pp2_2_tp2_sp_dp2_zero1 seq_zb_h1_pp2_4_cp2_tp2
  pp2_tp2_dp2_zero1 pp2_tp2_dp2_zero3 zb_v_tp2_sp_dp2 dualpipe_dp2_zero2"
filter=
for layout in $layouts; do filter+=*TwoWorkers/$layout:; done
step "matrix, $(echo $layouts | wc -w) layouts" "$bin/exec_matrix_test" --gtest_filter="$filter"
[ "$(grep -c '^\[       OK \]' "$work/log")" -eq "$(echo $layouts | wc -w)" ] || fail "not every layout was run"
for test in "$@"; do
  step "$test" "$bin/$test"
done
step "processes" bash tests/exec/processes/processes_test.sh "$bin/rehearse"
step "processes with experts" bash tests/exec/processes/experts_processes_test.sh "$bin/rehearse"
scenario "$work/s.json" 8
for layout in "pipeline_parallel=2 tensor_parallel=2 data_parallel=2 schedule=1f1b zero_stage=1" \
  "pipeline_parallel=4 data_parallel=2 schedule=zb_h1 zero_stage=3" \
  "context_parallel=2 tensor_parallel=2 data_parallel=2 zero_stage=2"; do
  step "two processes of two threads, $layout" "$bin/rehearse" run "$work/s.json" --processes 2 --threads 2 \
    $(printf -- '--set plan.%s ' $layout)
done
cat "$reports"/* 2>/dev/null
exit $status
