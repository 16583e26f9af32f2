#!/bin/bash
# bench/gpu.sh on the DOUBLE: some of its parts, no time, and no Python; there is a folder of results each time. Usage:
# programme_test.sh, in the project's root. The whole of it: DEVICE=double bench/gpu.sh
command -v python3 >/dev/null || { echo "SKIPPED: there is no python3"; exit 0; }
case $("${BUILD:-build/release}/tests/cuda_double/rehearse_on_cuda_double" --version 2>/dev/null) in
  *gloo*) ;; *) echo "SKIPPED: no double with Gloo was built"; exit 0 ;;
esac
. tests/command.sh
has() { grep -Eq -- "$1" "$work/out/summary.md" || fail "no \"$1\" in: $(cat "$work/out/summary.md")"; }
programme() {  # programme VARIABLES...
  env DEVICE=double "$@" bash bench/gpu.sh "$work/out" >"$work/said" 2>&1 || fail "exit $?: $(tail -3 "$work/said")"
  [ -s "$work/out.tar.gz" ] || fail "no archive"
  has " s in all"
}
programme PYTHON=python3 PARTS='^(cpu|gradients.*|kernels|pipeline_parallel_1|nccl_pipeline_parallel_2|calibrate|.*_124m-8)$'
has "gradients of one step.*100 tensors.*reached"
has "kernels against the CPU:.*PASSED"
has "^\| pipeline_parallel=1 \| losses .*reached"
has "^\| pipeline_parallel=2 \| .* \| losses .*reached"
has "^\| 124m-8 \| .* B \| yes"
grep -q "attention backward" "$work/out/kernels.md" || fail "no table of kernels"
programme SECONDS_IN_ALL=0
has "calibrate: not run, the time is over"
programme PYTHON=false PARTS='^(cpu|pipeline_parallel_1)$'
has "^\| pipeline_parallel=1 \| \*\*not known"
exit $status
