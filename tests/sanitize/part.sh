#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One part of tests/sanitize/parts.txt, as it was built: every test of it by ctest, each report of a sanitizer a
# failure. Prints what took how long, and at the end the row that docs/measurements/sanitizers.md takes.
# Usage: part.sh BUILD PART [SECONDS], what its build took; or part.sh targets PART, which prints what it needs built.
cd "$(dirname "$0")/../.." || exit 2
build=$1 part=$2 parts=tests/sanitize/parts.txt
preset=$(awk -v part="$part" '/^[^ #]/ && $1 == part { print $2 }' $parts)
tests=$(awk -v part="$part" '/^[^ #]/ { here = $1 == part } /^ +[^ #]/ && here' $parts)
[ -n "$tests" ] && [ "$preset" != - ] || { echo "sanitize: no part $part"; exit 2; }
if [ "$build" = targets ]; then
  for test in $tests; do
    case $test in
      *_test) echo "$test" ;;
      cuda_double_*) echo rehearse_on_cuda_double ;;
      *) printf '%s\n' rehearse modules ;;  # scripts
    esac
  done | sort -u
  exit
fi
# ThreadSanitizer of g++ 12 wants fewer random bits in addresses than newer kernels use.
if [ "$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0)" -gt 28 ] && [ -z "$REHEARSE_PLAIN_ADDRESSES" ]; then
  REHEARSE_PLAIN_ADDRESSES=1 exec setarch -R bash "$0" "$@"
fi
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
reports=$work/reports status=0 began=$((SECONDS - ${3:-0})) ran=0 failed=0
mkdir "$reports"
# Reports go to files, so that a test that captures what a program prints cannot hide one.
export ASAN_OPTIONS="log_path=$reports/asan:detect_stack_use_after_return=1:strict_init_order=1"
export UBSAN_OPTIONS="log_path=$reports/ubsan:print_stacktrace=1"
export TSAN_OPTIONS="log_path=$reports/tsan:history_size=4:second_deadlock_stack=1:print_suppressions=0:suppressions=$PWD/tests/sanitize/tsan.supp"

# Of the matrix every order and every axis, and products of them, with two workers.
layouts="naive_pp2 gpipe_pp2 one_f_one_b_uneven eager_pp4 interleaved_pp2_v2 looped_bfs_pp2_v2 zb_h1_pp4
  zb_h2_pp4 zb_v_pp2 v_half_pp4 v_min_pp4 interleaved_zb1p_pp2 dualpipev_pp2 full_zb_v_pp2
  offload_activations_pp2 chimera_pp4 dualpipe_pp4 tp4_sp tp2_sp_selective tp4_two_heads ddp2_overlap
  parameter_server4 zero1_dp4_overlap zero2_dp4 zero3_dp4 cp4_full cp2_tp2_sp_pp2_dp2_zero1
  seq_1f1b_pp2_2_tp2_sp_dp2_zero1 seq_zb_h1_pp2_4_cp2_tp2
  pp2_tp2_dp2_zero1 pp2_tp2_dp2_zero3 zb_v_tp2_sp_dp2 dualpipe_dp2_zero2"

# Files with a report; a warning alone is none (the emulation gives threads of a block stacks of their own, and says so).
reported() { grep -lsE 'ERROR: |runtime error: |WARNING: ThreadSanitizer' "$reports"/* | wc -l; }
known=" $(ctest --test-dir "$build" -N | sed -n 's/^ *Test *#[0-9]*: //p' | tr '\n' ' ') "
for test in $tests; do
  case $known in *" $test "*) ;; *) echo "$test: not in this build"; continue ;; esac
  filter='*'
  [ "$test" = exec_matrix_test ] && filter=$(printf '*TwoWorkers/%s:' $layouts)
  before=$(reported) begin=$SECONDS said=
  GTEST_FILTER=$filter ctest --test-dir "$build" -R "^$test\$" --timeout 3000 --output-on-failure >"$work/log" 2>&1 ||
    { said=", FAILS"; status=1; tail -n 40 "$work/log"; }
  grep -q 'Skipped' "$work/log" && said=", skipped: $(sed -n 's/.*SKIPPED: //p' "$work/log" | head -1)"
  found=$(($(reported) - before))
  [ "$found" -eq 0 ] || { said+=", $found reports"; status=1; }
  case $said in '') ran=$((ran + 1)) ;; *FAILS* | *reports*) failed=$((failed + 1)) ;; esac
  echo "$test: $((SECONDS - begin)) s${said:-, no report}"
done
cat "$reports"/* 2>/dev/null
result="$ran tests, no report"
[ $status -eq 0 ] || result="FAILS: $failed of $((ran + failed)) tests, $(reported) reports"
bash tests/sanitize/row.sh "sanitize $part" $((SECONDS - began)) "$result"
exit $status
