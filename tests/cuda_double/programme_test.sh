#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bench/gpu.sh on the DOUBLE: some of its parts, by stages, no time, and no Python; there is a folder of results each time.
# Usage: programme_test.sh. The whole of it: DEVICE=double bench/gpu.sh
cd "$(dirname "$0")/../.." || exit 2
command -v python3 >/dev/null || { echo "SKIPPED: there is no python3"; exit 0; }
case $("${BUILD:-build/release}/bin/rehearse_on_cuda_double" --version 2>/dev/null) in
  *gloo*) ;; *) echo "SKIPPED: no double with Gloo was built"; exit 0 ;;
esac
. tests/command.sh
has() { grep -Eq -- "$1" "$work/out/summary.md" || fail "no \"$1\" in: $(cat "$work/out/summary.md")"; }
programme() {  # programme VARIABLES... [-- STAGES...]
  local variables=()
  while [ $# -gt 0 ] && [ "$1" != -- ]; do variables+=("$1") && shift; done
  [ $# -gt 0 ] && shift
  env DEVICE=double "${variables[@]}" bash bench/gpu.sh "$@" "$work/out" >"$work/said" 2>&1 || fail "exit $?: $(tail -3 "$work/said")"
  [ -s "$work/out.tar.gz" ] || fail "no archive"
  has " s in all"
}
# Calls of one stage after another fill one folder, what one found stands beside what the others did.
programme PYTHON=python3 PARTS='^(cpu|gradients.*|kernels|pipeline_parallel_[12]|nccl_pipeline_parallel_2)$' -- correct
has "gradients of one step.*100 tensors.*reached"
has "kernels against the CPU:.*PASSED"
has "^\| pipeline_parallel=2 \| losses .*reached"
[ "$(grep -c "pipeline_parallel=2 | losses" "$work/out/summary.md")" = 2 ] || fail "not in one process and over NCCL"
cp "$work/out.tar.gz" "$work/correct.tar.gz"
programme PYTHON=python3 PARTS='^((nccl_)?experts_(cpu|pipeline_parallel_1|data_parallel_2_expert_parallel_2)|latent_cpu|(nccl_)?latent_context_parallel_2|nccl_KILL)$' -- experts
has "^\| pipeline_parallel=1 \| losses .*reached"
has "^\| data_parallel=2 expert_parallel=2 \| losses .*reached.*\| losses .*reached"
has "^\| context_parallel=2 \| losses .*reached.*\| losses .*reached"
has "SIGKILL for one in a step: the other ends after [0-9]+ s, exit 3: rehearse: rank 1 "
programme PYTHON=python3 PARTS='^overlap_(apart|shared|pairs_apart|pairs)$' -- experts
has "a shared expert beside its dispatch: .* losses and norms target equal: reached"
has "pairs of a forward and a backward: .* losses and norms target equal: reached"
# Between ranks of one process, and as if there were two GPUs.
programme PYTHON=python3 GPUS=1 PARTS='^pieces_(whole|cut)$' -- experts
has "products in pieces beside their collectives, ranks of one process: .* losses and norms target equal: reached"
programme PYTHON=python3 GPUS=2 PARTS='^(nccl_)?pieces(_.*)?$' -- experts
has "products in pieces beside their collectives, two GPUs over NCCL: .* losses and norms target equal: reached"
has "products in pieces over NCCL, a process per rank, against the CPU: losses .*reached"
cp "$work/out.tar.gz" "$work/correct.tar.gz"
programme PYTHON=python3 PARTS='^(calibrate|.*_124m(-8)?)$' -- predict
has "^\| 124m \| .* B \| yes"
has "^\| 124m-8 \| .* B \| yes"
has "memory of 124m by"
has "kernels against the CPU:.*PASSED"
[ -s "$work/out/again_124m.out" ] || fail "the steps that are predicted were not measured beside their calibration"
grep -q "attention backward, another's keys" "$work/out/kernels.md" || fail "no table of kernels"
grep -q "heads of 192 and 128," "$work/out/kernels.md" || fail "no attention of latent heads in the table of kernels"
# The trial before everything else tells tests that cannot run from tests that fail; only these turn wgmma off. Nor do
# tests run without their data, which are looked for where REHEARSE_ROOT says.
has "attention's tests: .*PASSED"
build=${BUILD:-build/release}
REHEARSE_ROOT=$work/nowhere "$build/bin/cuda_emulated_test" >"$work/said" 2>&1
[ $? = 2 ] && grep -q "nowhere: the tests' data" "$work/said" || fail "tests without data: $(tail -1 "$work/said")"
mkdir -p "$work/build/bin"
ln -s "$(realpath "$build/bin/rehearse_on_cuda_double")" "$work/build/bin/"
for code in 2 1 139; do
  printf '#!/bin/sh\necho "the trial says $REHEARSE_ROOT"\nexit %s\n' $code >"$work/build/bin/cuda_emulated_test"
  chmod +x "$work/build/bin/cuda_emulated_test"
  programme BUILD="$work/build" PARTS='^cpu$' -- correct
  case $code in
    2) has "attention's tests cannot run\*\* \(exit 2\): the trial says $PWD" ;;
    *) has "attention's tests fail\*\* \(exit $code\): mma.sync alone" ;;
  esac
done
# Archives of calls elsewhere become one folder.
bash bench/gpu.sh merge "$work/merged" "$work/correct.tar.gz" "$work/out.tar.gz" >/dev/null || fail "merge: $?"
cmp -s "$work/merged/summary.md" "$work/out/summary.md" || fail "merged: $(diff "$work/merged/summary.md" "$work/out/summary.md")"
# What a call promises: a stage of its own drops nothing; all of them in one may.
for stage in correct experts speed predict; do
  bash bench/gpu.sh list $stage | grep -q "nothing is dropped" || fail "$stage: $(bash bench/gpu.sh list $stage | tail -1)"
done
takes=$(bash bench/gpu.sh list | grep -Eo '[0-9]+ s on an H200' | cut -d' ' -f1)
[ "$takes" -le 520 ] || fail "a call of everything takes $takes s"
bash bench/gpu.sh list | grep -q "dropped: .*sanitizer_run" || fail "all: $(bash bench/gpu.sh list | tail -1)"
# A group of parts without a function would be said to be unknown.
programme SECONDS_IN_ALL=0
has "calibrate: not run, the time is over"
grep -q "command not found" "$work/said" && fail "$(grep "command not found" "$work/said")"
programme PYTHON=false PARTS='^(cpu|pipeline_parallel_1)$'
has "^\| pipeline_parallel=1 \| \*\*not known"
exit $status
